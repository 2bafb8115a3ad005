"""The address of a team's server: `postgresql://USER@HOST:PORT/DATABASE`. Its password is never shown."""

import os
import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote

from mlcd.errors import BadInput

SCHEMES = ("postgresql://", "postgres://")
_PARTS = re.compile(r"[a-z]+://(?:(?P<user>[^/?]*)@)?(?P<hosts>[^/?@]*)(?:/(?P<name>[^?]*))?(?:\?(?P<query>.*))?", re.S)
_SECRET = ("password", "sslpassword", "sslkey", "passfile")
_PUBLIC = ("user", "host", "hostaddr", "port", "dbname")
_HIDDEN = "***"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is.

    where    for messages and records: user, host, port and database
    url      for the driver; it may hold a password, so it is not part of the value's text
    secrets  what no message may hold
    """

    where: str
    url: str = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False, default=())

    def without_secrets(self, text: str) -> str:
        """A text of the driver or the server, with passwords replaced."""
        for secret in self.secrets:
            text = text.replace(secret, _HIDDEN)
        return text


def is_address(text: str) -> bool:
    """Whether it names a server, and not a folder."""
    return "://" in text


def parsed(text: str, what: str) -> Address:
    """The address in `text`, which came from `what`. Raises BadInput that quotes no part that may be a password."""
    found = _PARTS.fullmatch(text)
    if found is None or not text.startswith(SCHEMES) or any(ord(letter) < 33 for letter in text):
        scheme = text.partition("://")[0]
        got = (
            f"{scheme}://..."
            if "://" in text and scheme.isalnum()
            else "a value that does not begin with postgresql://"
        )
        raise BadInput(f"{what}: is not the address of a PostgreSQL server (got {got}); allowed: {ALLOWED}")
    user, _, password = (found["user"] or "").partition(":")
    options = dict(parse_qsl(found["query"] or "", keep_blank_values=True))
    given = {name: value for name, value in options.items() if name in _PUBLIC}
    hosts = found["hosts"] or given.get("host") or given.get("hostaddr") or os.environ.get("PGHOST", "")
    name = found["name"] or given.get("dbname") or os.environ.get("PGDATABASE", "")
    who = unquote(user) or given.get("user") or os.environ.get("PGUSER", "")
    shown = f"postgresql://{f'{who}@' if who else ''}{hosts}/{name}"
    secrets = {password, unquote(password), os.environ.get("PGPASSWORD", "")}
    secrets |= {value for option, value in options.items() if option in _SECRET}
    return Address(shown, text, tuple(sorted(filter(None, secrets), key=len, reverse=True)))


ALLOWED = "postgresql://USER@HOST:PORT/DATABASE, with the password in PGPASSWORD or in ~/.pgpass"
