"""Who may talk to the page of `mlcd ui`."""

import pytest

from mlcd.web.guard import Guard, Scope

TOKEN = "0123456789abcdef" * 3
OWN = "127.0.0.1:8377"


def scope(method: str = "GET", path: str = "/", query: str = "", **headers: str) -> Scope:
    given = {"host": OWN, "authorization": f"Bearer {TOKEN}", **headers}
    return {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in given.items() if value],
    }


def refused(guard: Guard, **given: str) -> int | None:
    found = guard.problem(scope(**given))
    return None if found is None else found[0]


@pytest.fixture
def guard() -> Guard:
    return Guard(host="127.0.0.1", port=8377, token=TOKEN)


def test_own_page_is_let_through(guard: Guard) -> None:
    assert refused(guard) is None
    assert refused(guard, host="localhost:8377", origin="http://localhost:8377") is None
    assert refused(guard, authorization="", cookie=f"mlcd-ui-8377={TOKEN}") is None
    assert refused(guard, authorization="", query=f"token={TOKEN}") is None


@pytest.mark.parametrize(
    "host", ["evil.example:8377", "127.0.0.1:80", "127.0.0.1", "127.0.0.1.evil.example:8377", "[::2]:8377", "x"]
)
def test_foreign_host_is_refused(guard: Guard, host: str) -> None:
    assert refused(guard, host=host) == 403


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "http://127.0.0.1:3000", "https://127.0.0.1:8377", "null", "http://localhost:8377"],
)
def test_foreign_origin_is_refused(guard: Guard, origin: str) -> None:
    assert refused(guard, origin=origin) == 403


def test_second_host_header_is_refused(guard: Guard) -> None:
    twice = scope()
    twice["headers"].append((b"host", b"127.0.0.1:8377"))
    assert guard.problem(twice) is not None


def test_pages_of_other_sites_cannot_make_requests(guard: Guard) -> None:
    assert refused(guard, sec_fetch_site="cross-site") == 403
    assert refused(guard, sec_fetch_site="same-site") == 403
    assert refused(guard, sec_fetch_site="cross-site", sec_fetch_mode="navigate") is None
    assert refused(guard, method="POST", sec_fetch_site="cross-site", sec_fetch_mode="navigate", x_mlcd_ui="1") == 403


def test_token_is_needed_on_loopback_too(guard: Guard) -> None:
    assert refused(guard, authorization="") == 401
    assert refused(guard, authorization="Bearer wrong") == 401
    assert refused(guard, authorization="", cookie=f"mlcd-ui-9999={TOKEN}") == 401
    assert refused(guard, authorization="", query=f"token={TOKEN[:-1]}") == 401
    assert refused(guard, authorization="", cookie='bad="') == 401


def test_what_changes_something_needs_the_header(guard: Guard) -> None:
    assert refused(guard, method="POST") == 403
    assert refused(guard, method="POST", x_mlcd_ui="1") is None


def test_names_of_other_machines_need_to_be_allowed() -> None:
    guard = Guard(host="0.0.0.0", port=8377, token=TOKEN, names=("box.example",))
    assert refused(guard, host="10.0.0.7:8377") is None
    assert refused(guard, host="box.example:8377") is None
    assert refused(guard, host="evil.example:8377") == 403


def test_policy_allows_no_inline_script(guard: Guard) -> None:
    policy = dict(guard.response_headers())[b"content-security-policy"].decode()
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
