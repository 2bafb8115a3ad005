"""Answers of the model on their way out: large ones in parts, at the pace of the client."""

import asyncio
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from mlcd.server.memory import Held
from mlcd.server.protocol import HEADER

_WHOLE_BYTES = 64 * 1024
"""Shorter answers are sent at once."""
_PART_BYTES = 256 * 1024


class _InParts(Response):
    """A body in parts. What it holds of the server's memory is given back when it is sent, or the client gone."""

    def __init__(self, parts: list[bytes], held: Held, headers: dict[str, str], media_type: str) -> None:
        self._parts, self._held = parts, held
        length = sum(map(len, parts))
        super().__init__(None, headers={**headers, "content-length": str(length)}, media_type=media_type)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """See Starlette."""
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            for part in self._parts:
                for at in range(0, len(part), _PART_BYTES):
                    await send({"type": "http.response.body", "body": part[at : at + _PART_BYTES], "more_body": True})
                    await asyncio.sleep(0)  # others are answered meanwhile
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._held.set(0)


def answer_in_parts(parts: list[bytes], json_length: int | None, held: Held) -> Response:
    """The response with this body, JSON and, after `json_length` bytes of it, binary tensors."""
    headers: dict[str, Any] = {} if json_length is None else {HEADER: str(json_length)}
    media_type = "application/json" if json_length is None else "application/octet-stream"
    if held.size_bytes > _WHOLE_BYTES:
        return _InParts(parts, held, headers, media_type)
    held.set(0)
    return Response(b"".join(parts), headers=headers, media_type=media_type)
