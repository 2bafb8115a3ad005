"""One file from the web, read with limits: no other protocol, no compression, no endless answer."""

import http.client
import queue
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from datetime import date
from email.utils import parsedate_to_datetime
from typing import IO, Any
from urllib.parse import urlsplit

from mlcd.errors import CatalogError
from mlcd.version import __version__

MOST_BYTES = 64 * 2**20
"""The largest table is SkyPilot's of Azure: 10 MB in 2026."""
SECONDS = 120.0
"""The longest that one file may take, however slowly it comes."""
SOCKET_SECONDS = 20.0
GRACE_SECONDS = 1.0
"""So much later the thread that reads is given up; it has its own look at the clock."""
PART_BYTES = 2**16
SCHEMES = ("http", "https")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """The content of an address; `modified` is when it last changed, None where its server does not say."""

    content: bytes
    modified: date | None


def fetch(url: str, *, most_bytes: int = MOST_BYTES, seconds: float = SECONDS) -> Fetched:
    """What the address has. Raises CatalogError where it cannot be had, or is not plainly all of it.

    It is read by a thread that nobody waits for longer than `seconds`: a server has many ways to keep a reader waiting
    (a header a second, informational answers or trailers without end), and sockets limit the silence only.
    """
    _check_scheme(url, url)
    done: queue.SimpleQueue[Fetched | Exception] = queue.SimpleQueue()

    def read() -> None:
        try:
            done.put(_fetched(url, most_bytes, seconds))
        except Exception as error:  # raised again below, in the thread that waits
            done.put(error)

    threading.Thread(target=read, daemon=True).start()
    try:
        found = done.get(timeout=seconds + GRACE_SECONDS)
    except queue.Empty:
        raise CatalogError(f"{url}: took longer than {seconds:g} s") from None
    if isinstance(found, Exception):
        raise found
    return found


def _fetched(url: str, most_bytes: int, seconds: float) -> Fetched:
    request = urllib.request.Request(  # noqa: S310 - checked above, and at every redirect
        url, headers={"User-Agent": f"mlcd/{__version__}", "Accept-Encoding": "identity"}
    )
    until = time.monotonic() + seconds
    try:
        with urllib.request.build_opener(_Redirects).open(request, timeout=min(SOCKET_SECONDS, seconds)) as answer:
            return _read(answer, url, most_bytes, until, seconds)
    except urllib.error.HTTPError as error:
        error.close()
        raise CatalogError(f"{url}: the server answers {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise CatalogError(f"{url}: cannot be fetched: {reason}") from error


def _read(answer: Any, url: str, most_bytes: int, until: float, seconds: float) -> Fetched:
    encoding = answer.headers.get("Content-Encoding", "identity")
    if encoding != "identity":
        raise CatalogError(f"{url}: comes compressed ({encoding}) although it was asked for plain; it is not unpacked")
    parts: list[bytes] = []
    size = 0
    while part := answer.read1(PART_BYTES):
        size += len(part)
        if size > most_bytes:
            raise CatalogError(f"{url}: is larger than {most_bytes / 2**20:.0f} MiB; no table of prices is")
        if time.monotonic() > until:
            raise CatalogError(f"{url}: took longer than {seconds:g} s")
        parts.append(part)
    told = answer.headers.get("Content-Length", "")
    if told.isascii() and told.isdigit() and int(told) != size:
        raise CatalogError(f"{url}: was cut off after {size:,} of {int(told):,} bytes; try again")
    return Fetched(content=b"".join(parts), modified=_day(answer.headers.get("Last-Modified")))


def _day(text: str | None) -> date | None:
    try:
        return parsedate_to_datetime(text).date() if text else None
    except (ValueError, TypeError, ArithmeticError):
        return None


def _check_scheme(url: str, asked: str) -> None:
    scheme = urlsplit(url).scheme
    if scheme not in SCHEMES:
        where = "" if url == asked else f" leads to {url[:200]}, which"
        raise CatalogError(f"{asked}:{where} is not an http or https address; for a file give its path")
    if urlsplit(asked).scheme == "https" and scheme != "https":
        raise CatalogError(f"{asked}: leads to {url[:200]}, which is not encrypted")


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to http and https only, and never from https to http."""

    def http_error_302(self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any) -> Any:
        """See urllib, which refuses other protocols by itself, but takes ftp."""
        if location := headers.get("location"):
            scheme = urlsplit(location).scheme
            _check_scheme(location if scheme else req.full_url, req.full_url)
        return super().http_error_302(req, fp, code, msg, headers)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302
