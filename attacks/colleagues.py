"""Runs that another client of a team's store added or damaged, under the live page and the commands that read them.

A colleague who may add rows writes them with right digests: every check of damage passes, and what the rows say is
hostile: texts for terminals, pages and file systems, numbers that cannot be, kinds that do not fit each other, a
name that is a path. Half of the stores are a real PostgreSQL server (where one is installed), the others SQLite.

Beside what `judge` finds, these are defects: an answer of the page with a status of 500 or more that is not a message
about damage (503), a list of runs or a good run that cannot be shown any more, markup of a text that gets into a page
or a picture, a control character on the terminal, a file outside the home that is read, written or deleted.
"""

import json
import random
import shutil
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import postgres_server
from tests.ui_page import JOB
from tests.unit.web.test_app import Ask, asker

from attacks.attack import Attack, Ended, Kind, Tally, judge
from attacks.forked import Case, ended, quiet_env, warm_up
from attacks.job_files import odd_characters

FILE = "mlcd.sqlite3"
MARK = "<mlcd-mark"
"""What every hostile text begins with that is meant for a page: it may appear escaped only."""
CANARY = "canary"
"""The content of a file beside the home."""
FOUND = "found: "
FIRST_ID = 10**7
"""Of rows that are numbered in the whole store: those of the run that is copied have lower ones."""
TEXTS = (
    f"{MARK} onload=x>", f"</script>{MARK}>", f"]]>{MARK}>", f"\"'>{MARK}>", f"{MARK}>" * 2_000, "javascript:alert(1)",
    "{{7*7}}", "\x1b]0;owned\x07", "\x9b31m", "\u202eevil", "a\u2028b", "a\nb", "a\0b", "\ud800", "../../../canary",
    "..",
    "", "=cmd()", "x" * 300_000, "%s%n", "[red]x[/red]", "2026-13-45", "9" * 5_000, "{0.__class__}", "\ufeff", "\t",
)  # fmt: skip
NUMBERS: tuple[object, ...] = (
    0, -1, 1, 2, 1e308, -1e308, 5e-324, 1e18, 2**63 - 1, -(2**63), 10**30, float("nan"), float("inf"), float("-inf"),
    0.1, True, None, "x", [], {},
)  # fmt: skip
NAMES = (
    "..", ".", "", "../canary", "../../canary", "/etc", "a/b", f"{MARK}>", "a" * 300, "a\nb", "\x1b[31m", "x y", "-rf",
    "\u202e", "%2e%2e", "a\\b", "~", "*", "$(id)", "con", "a.lock", "é", "{}", "?token=x", "#x", "&x=1",
)  # fmt: skip
CLEAN_SECONDS = 60.0
_TABLES = ("runs", "steps_started", "steps_ended", "calls", "verdicts", "findings", "statuses")
_JSON = {
    "runs": ("header", "problem", "spec"),
    "steps_started": ("choice", "started_moment", "watch"),
    "steps_ended": ("outcome", "ended_moment"),
    "verdicts": ("verdict",),
    "findings": ("findings",),
}
"""The columns that hold JSON."""
Rows = dict[str, list[dict[str, Any]]]


def _attack(count: int, seed: int, folder: Path) -> Tally:
    warm_up()
    base = make_base(folder)
    tally = Tally()
    server = None if postgres_server.missing() else postgres_server.Server()
    try:
        where: list[_Sqlite | _Postgres] = [_Sqlite(folder=folder, base=base)]
        if server is not None:
            where.append(_Postgres(folder=folder, base=base, server=server))
        for case in range(count):
            _one(case, random.Random(f"{seed}/{case}"), where[case % len(where)], base, folder, tally)
    finally:
        if server is not None:
            server.remove()
    tally.outcomes["of them on PostgreSQL"] = sum(case % len(where) for case in range(count))
    return tally


@dataclass(frozen=True, kw_only=True)
class _Base:
    """A home with runs of three kinds, one of which is not over, and their rows by run."""

    home: Path
    rows: Mapping[str, Rows]


def make_base(folder: Path) -> _Base:
    """The runs of a home of version 0.1, migrated, and a training of today."""
    home = folder / "base" / "home"
    home.parent.mkdir()
    import tarfile  # noqa: PLC0415

    from attacks.damaged_stores import FIXTURE, _forked, _import_all  # noqa: PLC0415

    _import_all()
    with tarfile.open(FIXTURE) as tar:
        tar.extract(f"home/{FILE}", home.parent, filter="data")
    (home.parent / "job.yaml").write_text(json.dumps(JOB))
    for command in (["runs"], ["train", "job.yaml"]):
        end = _forked(command, home)
        if end.code != 0:
            raise RuntimeError(f"the attack's own {command} ended with {end.code}: {end.stderr[-500:]}")
    with closing(sqlite3.connect(home / FILE)) as db:
        db.row_factory = sqlite3.Row
        names = [row[0] for row in db.execute("SELECT run_id FROM runs ORDER BY rowid")]
        rows = {name: {table: _select(db, table, name) for table in _TABLES} for name in names}
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return _Base(home=home, rows=rows)


def _select(db: sqlite3.Connection, table: str, name: str) -> list[dict[str, Any]]:
    return [dict(row) for row in db.execute(f"SELECT * FROM {table} WHERE run_id = ? ORDER BY rowid", (name,))]


# ---- stores


@dataclass(frozen=True, kw_only=True)
class _Sqlite:
    folder: Path
    base: _Base

    def with_run(self, here: Path, rows: Rows, count: int) -> dict[str, str]:
        """A home in `here` whose store also has these rows; the variables that lead there."""
        home = here / "home"
        shutil.copytree(self.base.home, home)
        with closing(sqlite3.connect(home / FILE)) as db:
            db.execute("PRAGMA foreign_keys = OFF")
            _insert(rows, count, db.execute, "?")
            db.commit()
        return {"MLCD_HOME": str(home)}

    def clean(self, name: str) -> None:
        """Nothing: the home is removed."""


@dataclass(frozen=True, kw_only=True)
class _Postgres:
    folder: Path
    base: _Base
    server: postgres_server.Server

    def __post_init__(self) -> None:
        """A store with the base's runs."""
        self.server.new_store()
        for rows in self.base.rows.values():
            self._add(rows, sum(map(len, rows.values())))

    def with_run(self, here: Path, rows: Rows, count: int) -> dict[str, str]:
        """An empty home, and the server's address."""
        self._add(rows, count)
        (here / "home").mkdir()
        return {"MLCD_HOME": str(here / "home"), "MLCD_STORE": self.server.url()}

    def _add(self, rows: Rows, count: int) -> None:
        import psycopg  # noqa: PLC0415 - an extra

        with psycopg.connect(self.server.url(), options="-c search_path=mlcd") as db:
            _insert(rows, count, lambda query, values: db.execute(query.encode(), values), "%s")

    def clean(self, name: str) -> None:
        """Remove the run that was added. What the page started may write to it until it ends."""
        import psycopg  # noqa: PLC0415 - an extra

        quoted = "'" + name.replace("'", "''") + "'"
        tables = ("row_counts", *reversed(_TABLES))
        until = time.monotonic() + CLEAN_SECONDS
        while True:
            try:
                self.server.sql(*(f"DELETE FROM mlcd.{table} WHERE run_id = {quoted}" for table in tables))
                return
            except psycopg.errors.ForeignKeyViolation:
                if time.monotonic() > until:
                    raise
                time.sleep(0.5)


def _insert(rows: Rows, count: int, execute: Callable[[str, Sequence[Any]], object], mark: str) -> None:
    """Rows, each with the digest of what it says unless it has one already, and their number."""
    from mlcd.store.rows import digest  # noqa: PLC0415 - imported by warm_up

    run_id = next(row["run_id"] for table in _TABLES for row in rows[table])
    for table, made in (
        *((table, rows[table]) for table in _TABLES),
        ("row_counts", [{"run_id": run_id, "row_count": count}]),
    ):
        for row in made:
            whole = {**row, "digest": row.get("digest") or digest(row)}
            marks = ", ".join([mark] * len(whole))
            execute(f"INSERT INTO {table} ({', '.join(whole)}) VALUES ({marks})", list(whole.values()))


# ---- cases


def _one(
    case: int, chance: random.Random, store: "_Sqlite | _Postgres", base: _Base, folder: Path, tally: Tally
) -> None:
    good = chance.choice(sorted(base.rows))
    name, what, rows, count = _made(chance, base.rows[good], good)
    here = folder / f"case-{case}"
    here.mkdir()
    (here / CANARY).write_text(CANARY)
    try:
        try:
            env = store.with_run(here, rows, count)
        except Exception as error:
            tally.count(f"refused by the database ({type(error).__name__})")
            return
        calls: list[Any] = [lambda: _ask_pages(here / "home", name, good)]
        calls.append(_command(chance, name))
        outer = {**quiet_env(folder), "MLCD_STORE": "", **env}
        for done, end in ended([Case(number=case, what=what, calls=calls, folder=here, env=outer)]):
            judge(end, tally, case, done.what)
            _check(case, what, end, here, tally)
    finally:
        store.clean(name)
        shutil.rmtree(here, ignore_errors=True)


def _command(chance: random.Random, name: str) -> list[str]:
    return chance.choice(
        (
            ["runs"], ["runs", "-o", "json"], ["runs", "-o", "csv"], ["show", "--", name], ["show", "-o", "json",
            "--", name],
            ["report", "--out", "r.html", "--", name], ["logs", "--", name], ["runs", "rm", "-y", "--force", "--",
            name],
            ["resume"], ["down", "--dry-run"], ["runs", "--kind", "train", "--name", "*"],
            ["report", "--format", "json", "--out", "-", "--", name],
        )
    )  # fmt: skip


def _made(chance: random.Random, rows: Rows, good: str) -> tuple[str, str, Rows, int]:
    """(name, what was done, rows, what the count of rows says) of a copy of a run."""
    name = "hostile-0a1b2c"
    made = {table: [{**row, "run_id": name, "digest": None} for row in rows[table]] for table in _TABLES}
    for row in (*made["verdicts"], *made["statuses"]):
        row["id"] += FIRST_ID
    made["runs"][0]["header"] = made["runs"][0]["header"].replace(f'"{good}"', f'"{name}"')
    way = chance.choices(("leaves", "name", "damage", "many", "mixed"), (60, 15, 12, 5, 8))[0]
    count = sum(map(len, made.values()))
    if way == "leaves":
        what = "; ".join(_leaf(chance, made) for _ in range(chance.choice((1, 1, 2, 4, 8))))
    elif way == "name":
        name = chance.choice(NAMES)
        for table in _TABLES:
            for row in made[table]:
                row["run_id"] = name
        if chance.random() < 0.8:
            made["runs"][0]["header"] = made["runs"][0]["header"].replace('"hostile-0a1b2c"', json.dumps(name))
        what = f"named {name[:30]!r}"
    elif way == "damage":
        what, count = _damaged(chance, made, count)
    elif way == "many":
        what, count = _many(chance, made)
    else:
        what = _mixed(chance, made)
    return name, f"{good}: {what}"[:400], made, count


def _leaf(chance: random.Random, made: Rows) -> str:
    """Replace a value somewhere in a column with JSON, or a whole column."""
    table = chance.choice([table for table in _TABLES if made[table]])
    row = chance.choice(made[table])
    columns = [column for column in _JSON.get(table, ()) if row[column] is not None]
    if not columns or chance.random() < 0.15:
        column = chance.choice([column for column in row if column not in ("run_id", "digest")])
        is_text = isinstance(row[column], str)
        row[column] = (
            chance.choice(TEXTS) if is_text else chance.choice((0, -1, 2**62, 1e308, -0.5, float("inf"), 10**6))
        )
        return f"{table}.{column}={str(row[column])[:40]!r}"
    column = chance.choice(columns)
    try:
        value = json.loads(row[column])
    except (TypeError, ValueError):  # replaced as a whole before, maybe by a number
        return "nothing"
    places = list(_leaves(value, ()))
    if not places:
        return "nothing"
    path = chance.choice(places)
    held = value
    for step in path[:-1]:
        held = held[step]
    old = held[path[-1]]
    pool: Sequence[object] = TEXTS if isinstance(old, str) or chance.random() < 0.2 else NUMBERS
    held[path[-1]] = chance.choice(pool)
    row[column] = json.dumps(value, separators=(",", ":"))
    return f"{table}.{column}.{'.'.join(map(str, path))}={str(held[path[-1]])[:40]!r}"


def _leaves(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict):
        for key, below in value.items():
            yield from _leaves(below, (*path, key))
    elif isinstance(value, list):
        for at, below in enumerate(value[:50]):
            yield from _leaves(below, (*path, at))
    if path:
        yield path


def _damaged(chance: random.Random, made: Rows, count: int) -> tuple[str, int]:
    way = chance.choice(("digest", "fewer", "more", "count", "order"))
    table = chance.choice([table for table in _TABLES if made[table]])
    if way == "digest":
        chance.choice(made[table])["digest"] = chance.choice(("0" * 16, "", "x", "é"))
    elif way == "fewer" and table != "runs":
        made[table].remove(chance.choice(made[table]))
    elif way == "more":
        copy = {**chance.choice(made["statuses"]), "id": 2 * FIRST_ID}
        made["statuses"].append(copy)
    elif way == "count":
        return "a wrong count", chance.choice((0, 1, count + 1, 2**62))
    else:
        for row in made["steps_started"]:
            row["number"] += 1
    return f"{way} in {table}", count


def _many(chance: random.Random, made: Rows) -> tuple[str, int]:
    """Thousands of statuses or verdicts, or a step again and again."""
    if chance.random() < 0.5 or not made["steps_started"]:
        last = made["statuses"][-1]
        made["statuses"] += [{**last, "id": 2 * FIRST_ID + at} for at in range(3_000)]
    else:
        first = made["steps_started"][-1]
        made["steps_started"] += [{**first, "number": first["number"] + 1 + at} for at in range(2_000)]
    return "thousands of rows", sum(map(len, made.values()))


def _mixed(chance: random.Random, made: Rows) -> str:
    """Parts that do not fit each other: a kind, a role, a status of another sort of run."""
    from mlcd.run.kind import Kind as RunKind  # noqa: PLC0415 - imported by warm_up
    from mlcd.trial.outcome import Status  # noqa: PLC0415

    way = chance.choice(("kind", "status", "role", "no findings", "no verdict"))
    if way == "kind":
        header = json.loads(made["runs"][0]["header"])
        header["kind"] = chance.choice([str(kind) for kind in RunKind if str(kind) != header["kind"]])
        made["runs"][0]["header"] = json.dumps(header, separators=(",", ":"))
        return f"kind {header['kind']}"
    if way == "status":
        made["statuses"][-1]["status"] = str(chance.choice(list(Status)))
        return f"status {made['statuses'][-1]['status']}"
    if way == "role" and made["steps_started"]:
        made["steps_started"][-1]["role"] = chance.choice(("trial", "training", "verification", "epoch"))
        return "another role"
    made["findings" if way == "no findings" else "verdicts"].clear()
    return way


# ---- what is asked


def _ask_pages(home: Path, name: str, good: str) -> int:
    """Ask everything that the page can show of the run, and that the good ones are still shown; prints faults."""
    from urllib.parse import quote  # noqa: PLC0415

    ask = asker(home)
    for path in ("/", "/api/runs", f"/api/runs/{good}/now", f"/runs/{good}", "/?search=hostile"):
        _asked(ask, path, must=True)
    run = quote(name, safe="")
    paths = [f"/runs/{run}", f"/runs/{run}/what-if", f"/runs/{run}/report", f"/compare?run={good}&run={run}"]
    paths += [
        f"/api/runs/{run}{below}" for below in ("", "/now", "/logs", "/logs/0", "/what-if", "/what-if?next_trial=no")
    ]
    page = _asked(ask, paths[0])
    parts = sorted({part.split('"')[0] for part in page.split('data-part="')[1:]})[:12]
    paths += [f"/runs/{run}/live?parts={quote(part)}:wide" for part in parts]
    for picture in ("speed", "map", "timeline", "spending", "loss", "front"):
        paths += [f"/runs/{run}/tables/{picture}", f"/api/runs/{run}/pictures/{picture}"]
    for path in paths[1:]:
        _asked(ask, path)
    for path in (f"/api/runs/{run}/stop", f"/api/runs/{run}/resume"):
        _asked(ask, path, b"{}")
    sys.stdout.flush()
    return 0


def _asked(ask: Ask, path: str, body: bytes | None = None, *, must: bool = False) -> str:
    shown = path[:80]
    try:
        status, headers, answer = ask(path, body)
    except Exception as error:
        print(f"{FOUND}{Kind.SERVER_ERROR}: {shown}: {type(error).__name__}: {str(error)[:200]!r}")
        return ""
    text = answer.decode("utf-8", "replace")
    if must and status != 200:
        print(f"{FOUND}{Kind.WRONG}: {shown}: answered {status}: {text[-300:]!r}")
    if status >= 500 and (status != 503 or "traceback" in text.lower()):
        print(f"{FOUND}{Kind.SERVER_ERROR}: {shown}: answered {status}: {text[-300:]!r}")
    kind = headers.get("content-type", "")
    if MARK in text and not kind.startswith("application/json"):
        at = text.index(MARK)
        print(f"{FOUND}{Kind.WRONG}: {shown}: markup gets through: {text[max(at - 80, 0) : at + 40]!r}")
    if "bug in mlcd" in text:
        print(f"{FOUND}{Kind.BUG}: {shown}: {text[-300:]!r}")
    return text


def _check(case: int, what: str, end: Ended, here: Path, tally: Tally) -> None:
    kept = []
    for line in end.stdout.splitlines():
        if line.startswith(FOUND):
            kind, _, said = line.removeprefix(FOUND).partition(": ")
            tally.find(Kind(kind), case, f"{what}: {said}")
        else:
            kept.append(line)
    if odd := odd_characters("\n".join(kept) + end.stderr):
        tally.find(Kind.WRONG, case, f"{what}: prints {odd!r}")
    canary = here / CANARY
    if not canary.is_file() or canary.read_text() != CANARY:
        tally.find(Kind.WRONG, case, f"{what}: a file beside the home is gone or changed")
    strange = {path.name for path in here.iterdir()} - {"home", CANARY, "stdout", "stderr", "r.html", "-"}
    if strange:
        tally.find(Kind.WRONG, case, f"{what}: wrote {sorted(strange)[:5]} beside the home")


ATTACKS = (
    Attack(
        name="colleagues",
        what="hostile runs that another client added to a store, PostgreSQL or SQLite, under the page and the commands",
        count=400,
        run=_attack,
    ),
)
