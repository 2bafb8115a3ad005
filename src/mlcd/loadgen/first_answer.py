"""The first answer of a server that is not mlcd's own: whether it speaks the protocol that the job says."""

import http.client
import time
from collections.abc import Sequence

from mlcd.errors import MlcdError
from mlcd.loadgen.plan import LoadInput
from mlcd.loadgen.wire import bodies, plain_request, server_place
from mlcd.untrusted import Fields, Malformed, parse_json, printable

MOST_ANSWER_BYTES = 2**24
LONGEST_ANSWER_SECONDS = 60.0
"""A server's first request may load kernels."""
_HEAD_LENGTH = "Inference-Header-Content-Length"


def check_answer(address: str, model: str, inputs: Sequence[LoadInput], *, path: str = "", body: str = "") -> None:
    """Send one request, and read its answer. Raises MlcdError with what is wrong with it.

    path, body  of plain HTTP; without them, the answer must have `outputs` as the Open Inference Protocol says
    """
    host, port = server_place(address)
    place = address.partition("//")[2]
    request = plain_request(place, path, body) if path else bodies(place, model, inputs, seed=0, count=1)[0]
    head, _, data = request.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    protocol = "plain HTTP" if path else "the Open Inference Protocol"
    link = http.client.HTTPConnection(host, port, timeout=LONGEST_ANSWER_SECONDS)
    try:
        link.request("POST", first.split()[1], body=data, headers=headers)
        answer = link.getresponse()
        if answer.status == 200 and answer.getheader("Content-Length") is None:
            raise MlcdError("an answer does not say its length (Content-Length), which load tests need")
        content = _content(answer)
    except TimeoutError:
        raise MlcdError(f"no whole answer came within {LONGEST_ANSWER_SECONDS:.0f} s of the first request") from None
    except (OSError, http.client.HTTPException) as error:
        raise MlcdError(f"the server does not answer as {protocol} says: {error or type(error).__name__}") from error
    finally:
        link.close()
    if answer.status != 200:
        text = printable(content[:300].decode(errors="replace"))
        raise MlcdError(f"the server answers {first.split()[1]} with status {answer.status}: {text}")
    if path:
        return
    length = answer.getheader(_HEAD_LENGTH, "")
    try:
        found = Fields(parse_json(content[: int(length)] if length.isdigit() else content), "the answer")
        found.items("outputs")
    except (ValueError, Malformed) as error:
        raise MlcdError(f"the server does not answer as {protocol} says: {error}") from error


def _content(answer: http.client.HTTPResponse) -> bytes:
    """What was answered. Raises TimeoutError where it does not end in time, MlcdError where it is too large."""
    until = time.monotonic() + LONGEST_ANSWER_SECONDS
    content = b""
    while part := answer.read1(2**16):
        content += part
        if len(content) > MOST_ANSWER_BYTES:
            raise MlcdError(f"an answer has more than {MOST_ANSWER_BYTES // 2**20} MiB")
        if time.monotonic() > until:
            raise TimeoutError
    return content
