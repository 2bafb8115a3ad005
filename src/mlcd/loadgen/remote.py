"""The generators on a node of their own, from where mlcd runs: see mlcd.loadgen.node."""

import http.client
import json
from dataclasses import dataclass, field

from mlcd.errors import BadInput, MlcdError
from mlcd.loadgen.node import RUN, TOKEN_HEADER
from mlcd.untrusted import Fields, Malformed, parse_json

MOST_ANSWER_BYTES = 64 * 2**20
MARGIN_SECONDS = 30.0
"""Beyond what the generator may take: it ends itself, and says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteGenerator:
    """A Generator at `HOST:PORT`."""

    place: str
    token: str = field(repr=False)

    def __call__(self, module: str, plan: str, *, most_seconds: float) -> str:
        """What the generator prints. Raises BadInput for an invalid plan, MlcdError."""
        asked = json.dumps({"module": module, "plan": plan, "most_seconds": most_seconds}).encode()
        host, _, port = self.place.rpartition(":")
        way = http.client.HTTPConnection(host, int(port), timeout=most_seconds + MARGIN_SECONDS)
        try:
            way.request("POST", RUN, body=asked, headers={TOKEN_HEADER: self.token})
            answer = way.getresponse()
            text = answer.read(MOST_ANSWER_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise MlcdError(f"the node that sends the load does not answer: {error}") from error
        finally:
            way.close()
        if answer.status != http.client.OK:
            raise MlcdError(f"the node that sends the load answered with status {answer.status}")
        return _output(text)


def _output(text: bytes) -> str:
    try:
        said = Fields(parse_json(text, "the node that sends the load"))
        if "error" not in said:
            return said.text("output", most_characters=MOST_ANSWER_BYTES)
        message, is_input = said.text("error"), said.data.get("bad_input") is True
    except Malformed as error:
        raise MlcdError(str(error)) from error
    raise BadInput(message) if is_input else MlcdError(message)
