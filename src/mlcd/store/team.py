"""Makes a team's store in a PostgreSQL database, and says who may see it and who may spend.

PostgreSQL's own roles decide: a reader may SELECT, a spender also add rows. Only the owner, who made the store, can
change or delete what was recorded.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

import psycopg
from psycopg import sql

from mlcd.errors import BadInput
from mlcd.store.address import parsed
from mlcd.store.postgres import NAMESPACE, Session, check_schema, connected
from mlcd.store.postgres_errors import explained
from mlcd.store.rows import COUNTS, FACTS
from mlcd.store.sqlite import SCHEMA

_INIT_LOCK = 0x6D6C6364


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamStore:
    """What `make_store` found or did.

    where     its address, without a password
    is_new    whether the tables were made now
    readers, spenders  the roles that were granted something now
    """

    where: str
    is_new: bool
    readers: tuple[str, ...] = ()
    spenders: tuple[str, ...] = ()


def make_store(url: str, *, what: str, readers: Sequence[str] = (), spenders: Sequence[str] = ()) -> TeamStore:
    """Make the tables unless they are there, then grant; all or nothing. Raises BadInput, StoreError.

    what  where the address came from, for messages
    """
    address = parsed(url, what)
    raw = connected(address, application_name="mlcd-store-init")
    try:
        with raw.transaction():
            raw.execute("SELECT pg_advisory_xact_lock(%s)", (_INIT_LOCK,))
            found = raw.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (NAMESPACE,)).fetchone()
            if found is None:
                raw.execute(f"CREATE SCHEMA {NAMESPACE}")
            raw.execute(f"SET LOCAL search_path = {NAMESPACE}")
            if found is None:
                raw.execute(files("mlcd.store").joinpath("postgres.sql").read_text(encoding="utf-8").encode())
                raw.execute("INSERT INTO store_schema VALUES (%s)", (SCHEMA,))
            check_schema(Session(raw), address)
            for role in (*readers, *spenders):
                if raw.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (role,)).fetchone() is None:
                    raise BadInput(f"{address.where}: there is no role {role!r}; create it with: CREATE ROLE ... LOGIN")
            for role in readers:
                _grant_reading(raw, role)
            for role in spenders:
                _grant_reading(raw, role)
                _grant_spending(raw, role)
    except psycopg.Error as error:
        raise explained(error, address, raw.info.user) from error
    finally:
        raw.close()
    return TeamStore(where=address.where, is_new=found is None, readers=tuple(readers), spenders=tuple(spenders))


def _grant_reading(raw: psycopg.Connection[dict[str, object]], role: str) -> None:
    names = {"place": sql.Identifier(NAMESPACE), "role": sql.Identifier(role)}
    raw.execute(sql.SQL("GRANT USAGE ON SCHEMA {place} TO {role}").format(**names))
    raw.execute(sql.SQL("GRANT SELECT ON ALL TABLES IN SCHEMA {place} TO {role}").format(**names))


def _grant_spending(raw: psycopg.Connection[dict[str, object]], role: str) -> None:
    to = sql.Identifier(role)
    for table in FACTS:
        raw.execute(sql.SQL("GRANT INSERT ON {} TO {}").format(sql.Identifier(table), to))
    raw.execute(sql.SQL("GRANT INSERT, UPDATE ON {} TO {}").format(sql.Identifier(COUNTS), to))
    raw.execute(sql.SQL("GRANT INSERT, UPDATE, DELETE ON last_writes TO {}").format(to))
