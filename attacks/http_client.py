"""One client of the attacks on servers: sends the pieces of a case, and reads the answers whole."""

import asyncio
import contextlib
import re
import socket
import struct
from dataclasses import dataclass

from attacks.http_requests import CLOSED, Case, End

HANG = "neither answered nor closed"
TRIES = 5
MOST_HEAD_BYTES = 2**20
MOST_ANSWER_BYTES = 32 * 2**20


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An answer; its status is CLOSED where the connection ended without one."""

    status: int
    head: bytes
    content: bytes


@dataclass(frozen=True, kw_only=True)
class Client:
    """A client of the server on this port.

    hang_seconds  after which a case that was neither answered nor closed is a hang
    hold_seconds  for which a case that holds its connection does not read
    """

    port: int
    hang_seconds: float
    hold_seconds: float

    async def ask(self, case: Case) -> list[Answer] | str:
        """The answers, or what is wrong in words. Tries again where the server turns the client away."""
        found: list[Answer] | str = []
        for attempt in range(TRIES):
            try:
                found = await asyncio.wait_for(self.talk(case), self.hang_seconds)
            except TimeoutError:
                return HANG
            if not found or isinstance(found, str) or not _is_turned_away(case, found[0].status):
                break
            await asyncio.sleep(0.05 * 2**attempt)
        return found

    async def talk(self, case: Case) -> list[Answer] | str:
        """The same, once and without a limit on time."""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=MOST_HEAD_BYTES)
        except OSError as error:
            return f"cannot connect: {error}"
        sending: asyncio.Task[None] | None = None
        try:
            if case.end is End.RESET:
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sending = asyncio.create_task(_send(case, writer))
            if case.end in (End.CLOSE, End.RESET):
                await sending
                return []
            if case.end is End.HOLD:
                writer.transport.pause_reading()  # type: ignore[attr-defined]
                await sending
                await asyncio.sleep(self.hold_seconds)
                writer.transport.resume_reading()  # type: ignore[attr-defined]
                with contextlib.suppress(OSError):
                    while await reader.read(2**16):  # it ends by now
                        pass
                return []
            return await _answers(reader, case.answers)
        finally:
            if sending is not None:
                sending.cancel()
            writer.transport.abort() if case.end is End.RESET else writer.close()


def _is_turned_away(case: Case, status: int) -> bool:
    return status == 503 or (status == CLOSED and CLOSED not in case.allowed)


async def _send(case: Case, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        for data, pause in case.pieces:
            writer.write(data)
            await writer.drain()
            if pause:
                await asyncio.sleep(pause)


async def _answers(reader: asyncio.StreamReader, most: int) -> list[Answer] | str:
    found: list[Answer] = []
    while len(found) < most:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            status = int(head[9:12])
            if status < 200:
                continue
            length = re.search(rb"\r\ncontent-length: (\d+)\r\n", head, re.IGNORECASE)
            if b"text/event-stream" in head:
                content = await reader.read(2**16)
                return [*found, Answer(status=status, head=head, content=content)]
            if length is None or int(length[1]) > MOST_ANSWER_BYTES:
                return f"an answer {status} whose length is {length[1] if length else None!r}"
            content = await reader.readexactly(int(length[1]))
        except (asyncio.IncompleteReadError, OSError):
            return [*found, Answer(status=CLOSED, head=b"", content=b"")]
        except (asyncio.LimitOverrunError, ValueError) as error:
            return f"no HTTP answer: {error}"
        found.append(Answer(status=status, head=head, content=content))
    return found
