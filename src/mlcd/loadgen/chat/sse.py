"""Answers of an OpenAI-compatible server, read as they arrive, within limits: HTTP, chunks, events, tokens."""

import re
from dataclasses import dataclass, field

from mlcd.untrusted import Fields, Malformed, parse_json, printable

MOST_HEAD_BYTES = 64 * 1024
MOST_EVENT_BYTES = 256 * 1024
"""Of one event: a piece of an answer has hundreds of bytes, its log-probabilities kilobytes."""
MOST_TOKENS = 10**8
_MOST_CHUNK_BYTES = 2**24
_MOST_DIGITS = 15
_PIECE = re.compile(rb'"(?:content|reasoning_content|reasoning|text|arguments)"\s*:\s*"[^"]')
"""A piece of text. Quotes within a text are escaped, so that this finds none inside of one."""
_ROLE = re.compile(rb'"role"\s*:\s*"')
_CHOICE = re.compile(rb'"choices"\s*:\s*\[\s*\{')
_FINISHED = re.compile(rb'"finish_reason"\s*:\s*"')
_USAGE = re.compile(rb'"usage"\s*:\s*\{')
_ERROR = re.compile(rb'^\s*\{\s*"error"\s*:')


class BadAnswer(Exception):
    """The answer is not what such a server sends; the message says how."""


@dataclass(slots=True, eq=False)
class Answer:
    """One answer, fed with what arrives. `times` are those of its pieces; tokens are counted by the server.

    pieces  the events with pieces of text; None: not kept
    """

    status: int = 0
    is_over: bool = False
    keep_alive: bool = True
    times: list[float] = field(default_factory=list)
    input_tokens: int | None = None
    output_tokens: int | None = None
    error: str = ""
    pieces: list[bytes] | None = None
    _data: bytes = b""
    """Received and not yet understood: of the head, or of the framing."""
    _chunked: bool = False
    _left: int = -1
    """Bytes that are left of the chunk, or of the body; -1 before its size is known."""
    _event: bytes = b""
    """The beginning of the next event."""
    _done: bool = False

    def feed(self, data: bytes, now: float) -> None:
        """Take what has arrived at `now`. Raises BadAnswer."""
        self._data += data
        if not self.status and not self._read_head():
            return
        if self._chunked:
            self._read_chunks(now)
        else:
            self._read_plain(now)

    def closed(self, now: float) -> bool:
        """The server closed the connection; returns whether the answer was whole."""
        self.keep_alive = False
        if self.status and not self._chunked and self._left < 0:  # a body without a length ends so
            self._take(b"\n\n", now)
            self.is_over = True
        return self.is_over or self._done

    def text(self) -> str:
        """The text of the pieces that were kept."""
        return "".join(map(_text, self.pieces or ()))

    def _read_head(self) -> bool:
        head, found, rest = self._data.partition(b"\r\n\r\n")
        if not found:
            if len(self._data) > MOST_HEAD_BYTES:
                raise BadAnswer(f"the answer's header is over {MOST_HEAD_BYTES:,} bytes")
            return False
        first, *lines = head.split(b"\r\n")
        words = first.split(b" ", 2)
        if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit() or len(words[1]) != 3:
            raise BadAnswer("the answer is not HTTP/1.1")
        fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
        self._chunked = fields.get(b"transfer-encoding", b"").lower() == b"chunked"
        length = fields.get(b"content-length", b"")
        if length and not self._chunked:
            if not length.isdigit() or len(length) > _MOST_DIGITS:
                raise BadAnswer("the answer's length is no number")
            self._left = int(length)
        self.keep_alive = fields.get(b"connection", b"").lower() != b"close" and (self._chunked or bool(length))
        self._data, self.status = rest, int(words[1])
        return True

    def _read_plain(self, now: float) -> None:
        data, self._data = self._data, b""
        if self._left >= 0:
            data, extra = data[: self._left], data[self._left :]
            self._left -= len(data)
            self.keep_alive = self.keep_alive and not extra
        self._take(data, now)
        if self._left == 0:
            self._take(b"\n\n", now)
            self.is_over = True

    def _read_chunks(self, now: float) -> None:
        while self._data and not self.is_over:
            if self._left < 0:
                size, found, rest = self._data.partition(b"\r\n")
                if not found:
                    if len(self._data) > 1024:
                        raise BadAnswer("the size of a chunk is missing")
                    return
                try:
                    self._left = int(size.partition(b";")[0], 16) if len(size) < 256 else -1
                except ValueError:
                    self._left = -1
                if self._left < 0 or self._left > _MOST_CHUNK_BYTES:
                    raise BadAnswer("the size of a chunk is no number")
                if self._left == 0:
                    self._read_last_chunk(rest, now)
                    return
                self._data = rest
                self._left += 2  # the line's end after the chunk
            own, part = max(self._left - 2, 0), self._data[: self._left]
            self._data, self._left = self._data[len(part) :], self._left - len(part)
            self._take(part[:own], now)
            if self._left == 0:
                self._left = -1

    def _read_last_chunk(self, rest: bytes, now: float) -> None:
        """The chunk of size 0, after which come trailers, if any, and an empty line."""
        if not rest.startswith(b"\r\n") and b"\r\n\r\n" not in rest:
            self._left = -1  # the rest of it has yet to come
            if len(rest) > MOST_HEAD_BYTES:
                raise BadAnswer(f"the answer's trailers are over {MOST_HEAD_BYTES:,} bytes")
            return
        self._take(b"\n\n", now)
        self.is_over = True
        self.keep_alive = self.keep_alive and rest == b"\r\n"

    def _take(self, data: bytes, now: float) -> None:
        """Take a part of the body: events end with an empty line."""
        if self.status != 200:
            self.error = self.error or f"status {self.status}: "
            if len(self.error) < 300:
                self.error += " ".join(printable(data[:300].decode(errors="replace")).split())
            return
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n")
        *events, self._event = (self._event + data).split(b"\n\n")
        for event in events:
            self._read_event(event, now)
        if len(self._event) > MOST_EVENT_BYTES:
            raise BadAnswer(f"an event of the stream is over {MOST_EVENT_BYTES:,} bytes")

    def _read_event(self, event: bytes, now: float) -> None:
        text = event.strip()
        if not text.startswith(b"data:") or self._done:
            if text.startswith(b"{") and not self.times:
                self.error = self.error or "the answer is not a stream: the server does not know `stream`"
            return  # a comment, an event's name, or what follows the end
        text = text[5:].strip()
        if text == b"[DONE]":
            self._done = True
            return
        if _ERROR.match(text):
            self.error = self.error or " ".join(printable(text[:300].decode(errors="replace")).split())
        elif _PIECE.search(text) or _is_silent_token(text):
            self.times.append(now)
            if self.pieces is not None:
                self.pieces.append(text)
        if _USAGE.search(text):
            self._read_usage(text)

    def _read_usage(self, text: bytes) -> None:
        try:
            usage = Fields(parse_json(text)).fields("usage")
            self.input_tokens = usage.whole("prompt_tokens", least=0, most=MOST_TOKENS)
            self.output_tokens = usage.whole("completion_tokens", least=0, most=MOST_TOKENS)
        except Malformed as malformed:
            raise BadAnswer(f"the stream's usage: {malformed}") from malformed


def _is_silent_token(text: bytes) -> bool:
    """Whether an event without text is a token that decodes to none: neither the answer's role nor its end."""
    return bool(_CHOICE.search(text)) and not _ROLE.search(text) and not _FINISHED.search(text)


def _text(event: bytes) -> str:
    """The text of one piece, of a message or of a completion; "" where it has none."""
    try:
        choice = Fields(Fields(parse_json(event)).items("choices")[0])
        return choice.fields("delta").text("content") if "delta" in choice else choice.text("text")
    except (Malformed, IndexError):
        return ""
