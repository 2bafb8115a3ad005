"""Who may talk to the page: this user's browser, and programs with the token. Everything else is refused.

A page of any site can send requests to loopback, and one whose name is made to resolve to 127.0.0.1 can read the
answers (DNS rebinding): so Host must be this server's, and Origin the same. Other users of this machine reach loopback
too, and a job file is a command that is run: so every request needs the token, on loopback as well. A form or an image
of another site carries no header of its own: so what changes something needs one.
"""

import hmac
import ipaddress
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

from mlcd.server.origin import host_of, is_loopback
from mlcd.untrusted import printable, whole_number
from mlcd.web.ticket import Tickets

Scope = MutableMapping[str, Any]
Application = Callable[[Scope, Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Awaitable[None]]

COOKIE = "mlcd-ui"
HEADER = "x-mlcd-ui"
"""The page sends it with everything that changes something."""
REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'; sandbox"
"""Of a report, which is one file with its style inside: it has no script, and could run none."""
LOCAL_FRAMES = " http://localhost:* http://127.0.0.1:*"
"""Pages that may show this one in a frame, where that is allowed."""
TOKEN, TICKET = "token", "ticket"
"""Fields of the query of an address."""
BODY_BYTES = 1024 * 1024
"""The longest body that is accepted: a job file has at most 256 KiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """The rules for one server.

    host, port  that it is bound to
    names       further names of this server that Host may have
    token       a secret that every request carries: as a cookie, as `Authorization: Bearer`, or once in the address
    embedded    whether pages of this machine, such as a notebook, may show it in a frame
    tickets     that stand for the token once, in the address of a page
    """

    host: str
    port: int
    token: str
    names: tuple[str, ...] = ()
    embedded: bool = False
    tickets: Tickets = field(default_factory=Tickets, repr=False, compare=False)

    def problem(self, scope: Scope) -> tuple[int, str] | None:
        """(status, text) if the request is refused; None if it is not."""
        headers = _headers(scope)
        host = headers.get("host", "")
        if not self._is_own(host):
            return 403, f"Host {_shown(host)} is not this server; to use that name: mlcd ui --allow-host NAME"
        origin = headers.get("origin")
        if origin is not None and origin.lower() != f"http://{host.lower()}":
            return 403, f"Origin {_shown(origin)}: requests of other sites are refused"
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            is_visit = headers.get("sec-fetch-mode") == "navigate" and scope["method"] == "GET"
            if not is_visit:
                return 403, "requests of other sites are refused"
        if not self._has_token(scope, headers) and not self._has_ticket(scope):
            return 401, "the token is missing: open the address that `mlcd ui` printed"
        if scope["method"] not in ("GET", "HEAD") and headers.get(HEADER) is None:
            return 403, f"the header {HEADER} is missing: requests that change something need it"
        return None

    def response_headers(self) -> list[tuple[bytes, bytes]]:
        """What every answer carries: nothing may be loaded from elsewhere, framed elsewhere, or run inline."""
        policy = (
            "default-src 'none'; script-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self';"
            f" style-src 'self'; base-uri 'none'; frame-ancestors 'self'{LOCAL_FRAMES if self.embedded else ''}"
        )
        return [
            (b"content-security-policy", policy.encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
            (b"cross-origin-opener-policy", b"same-origin"),
            (b"cross-origin-resource-policy", b"same-origin"),
        ]

    def _is_own(self, header: str) -> bool:
        name = host_of(header)
        port = header.rpartition(":")[2] if header.rpartition(":")[2].isdigit() and not header.endswith("]") else "80"
        if port != str(self.port):
            return False
        if is_loopback(self.host):
            return is_loopback(name) or name in self.names
        # A name could be made to resolve to this machine; an address cannot.
        return name in (self.host.lower(), *self.names) or is_loopback(name) or _is_address(name)

    def _has_token(self, scope: Scope, headers: dict[str, str]) -> bool:
        given = [value for key, value in _cookies(headers.get("cookie", "")) if key == self.cookie]
        bearer = headers.get("authorization", "")
        if bearer.lower().startswith("bearer "):
            given.append(bearer[7:].strip())
        given += address_tokens(scope)
        return any(hmac.compare_digest(each.encode(), self.token.encode()) for each in given)

    def _has_ticket(self, scope: Scope) -> bool:
        is_page = scope["method"] == "GET" and not scope["path"].startswith("/api/")
        client, server = (tuple(scope[end]) if scope.get(end) else None for end in ("client", "server"))
        return is_page and any(self.tickets.take(each, client, server) for each in _in_address(scope, TICKET))

    @property
    def cookie(self) -> str:
        """The cookie's name; with the port, because cookies of one host are shared by all its ports."""
        return f"{COOKIE}-{self.port}"


def address_tokens(scope: Scope) -> list[str]:
    """The tokens in the query of the address."""
    return _in_address(scope, TOKEN)


def _in_address(scope: Scope, name: str) -> list[str]:
    query = scope.get("query_string", b"").decode("latin-1")
    return parse_qs(query, max_num_fields=50).get(name, []) if query.count("&") < 50 else []


def guarded(application: Application, guard: Guard) -> Application:
    """The application behind the guard's rules."""
    added = guard.response_headers()

    async def checked(scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await application(scope, receive, send)
            return

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                own = message.get("headers", ())
                names = {name.lower() for name, _ in own}
                message = {**message, "headers": [*own, *(each for each in added if each[0] not in names)]}
            await send(message)

        refused = guard.problem(scope)
        if refused is None and _declared_bytes(scope) > BODY_BYTES:
            refused = 413, f"the body is longer than {BODY_BYTES:,} bytes"
        if refused is not None:
            await _refuse(*refused)(scope, receive, send_with_headers)
        elif scope["method"] == "GET" and _is_way_in(scope) and not scope["path"].startswith("/api/"):
            await _without_token(scope, guard)(scope, receive, send_with_headers)
        else:
            await application(scope, receive, send_with_headers)

    return checked


def _is_way_in(scope: Scope) -> bool:
    return bool(address_tokens(scope) or _in_address(scope, TICKET))


def _refuse(status: int, problem: str) -> Any:
    from starlette.responses import JSONResponse  # noqa: PLC0415

    return JSONResponse({"error": problem}, status_code=status)


def _without_token(scope: Scope, guard: Guard) -> Any:
    """The same address without token and ticket; the token is kept as a cookie that no script can read."""
    from starlette.responses import RedirectResponse  # noqa: PLC0415

    query = scope["query_string"].decode("latin-1")
    kept = "&".join(part for part in query.split("&") if part and part.partition("=")[0] not in (TOKEN, TICKET))
    path = "/" + scope["path"].lstrip("/")
    answer = RedirectResponse(f"{path}?{kept}" if kept else path, status_code=303)
    answer.set_cookie(guard.cookie, guard.token, httponly=True, samesite="strict", max_age=30 * 24 * 3600)
    return answer


def _headers(scope: Scope) -> dict[str, str]:
    """The headers by name; one that is given twice counts as neither: proxies and browsers could differ on it."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        key = name.decode("latin-1").lower()
        found[key] = "" if key in found and key in ("host", "origin") else value.decode("latin-1")
    return found


def _cookies(header: str) -> list[tuple[str, str]]:
    try:
        return [(key, morsel.value) for key, morsel in SimpleCookie(header).items()]
    except CookieError:
        return []


def _declared_bytes(scope: Scope) -> int:
    length = _headers(scope).get("content-length", "0")
    return whole_number(length) or 0


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _shown(text: str) -> str:
    return repr(printable(text, most_characters=100))
