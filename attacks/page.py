"""The live page against hostile HTTP: `mlcd ui` as a real process over a home with good, hostile and damaged runs.

`page_requests.py` has the requests; the limits on time are shortened to seconds so that slow clients meet them. Every
answer is looked at. These are defects: a status of 500 or more (503 apart: overload, or a run that is damaged), another
status than is right, an answer without the headers that keep a browser from harm, a token or a run's name that somebody
without the token is told, a text of a run that becomes markup, a file that is none of the page's, a header that was
injected. Afterwards: the process, its memory, its descriptors, its log, what it started, and the store are looked at.
"""

import asyncio
import contextlib
import json
import os
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.ui_page import JOB, environment

from attacks.attack import Attack, Kind, Tally
from attacks.colleagues import FILE, FIRST_ID, MARK, TEXTS, make_base
from attacks.http_client import HANG, Answer, Client
from attacks.http_requests import CLOSED, Case
from attacks.page_requests import BODY_SECONDS, HEADER_SECONDS, IDLE_SECONDS, Target, case_of

AT_ONCE = 12
CONNECTIONS = 160
HANG_SECONDS = 60.0
MOST_GROWTH_MIB = 256
"""Of the server's memory over that after its first pages: models that are imported, what is kept of the runs (256
answers), bodies of 1 MiB that are read at once."""
MOST_LOG_BYTES = 64 * 1024
HOLD_SECONDS = BODY_SECONDS + IDLE_SECONDS
WITNESS_SECONDS = 10.0
"""A good request that takes longer during the attack was kept waiting."""
_PROGRAM = f"""\
import mlcd.web.page_server as page_server
from mlcd.server.limits import Limits
page_server.LIMITS = Limits(connections={CONNECTIONS}, header_seconds={HEADER_SECONDS}, body_seconds={BODY_SECONDS},
                        idle_seconds={IDLE_SECONDS})
from mlcd.cli.main import main
main()
"""
_SECRETS = (b"root:x:0:0", b"SQLite format 3")
"""Of files that no request may reach."""
_POLICIES = (b"content-security-policy: ", b"x-content-type-options: nosniff")


def _client(port: int) -> Client:
    return Client(port=port, hang_seconds=HANG_SECONDS, hold_seconds=HOLD_SECONDS)


def run(count: int, seed: int, folder: Path) -> Tally:
    """See Attack."""
    tally = Tally()
    home = _home(folder)
    rows_before = _rows(home)
    with _server(home, folder) as (process, target):
        pid = process.pid
        for path in ("/", f"/runs/{target.runs[0]}", f"/api/runs/{target.runs[0]}/what-if", "/catalog"):
            asyncio.run(
                _client(target.port).talk(Case(kind="first", pieces=[(target.get(path), 0.0)], allowed=frozenset()))
            )
        before = (_descriptors(pid), _memory_mib(pid, "VmHWM"))
        asyncio.run(_attack(count, seed, target, tally))
        time.sleep(2 * BODY_SECONDS + 2)  # whatever is held open has to end by now
        _judge_server(process, target, before, folder / "log.txt", tally)
    if _rows(home) != rows_before:
        tally.find(Kind.WRONG, -1, "rows of the store have changed")
    return tally


def _home(folder: Path) -> Path:
    """A home with the runs of the attack on stores, some of which are made hostile or damaged."""
    import random  # noqa: PLC0415

    from attacks.colleagues import Rows, _insert, _made  # noqa: PLC0415

    base = make_base(folder)
    with contextlib.closing(sqlite3.connect(base.home / FILE)) as db:
        db.execute("PRAGMA foreign_keys = OFF")
        for number in range(40):
            chance = random.Random(f"page home {number}")
            good = chance.choice(sorted(base.rows))
            name, _, rows, rows_count = _made(chance, base.rows[good], good)
            named: Rows = rows
            if name == "hostile-0a1b2c":
                name = f"hostile-{number:06}"
                named = json.loads(json.dumps(rows).replace("hostile-0a1b2c", name))
            for row in (*named["verdicts"], *named["statuses"]):
                row["id"] += (number + 2) * FIRST_ID
            db.execute("SAVEPOINT one")
            try:
                _insert(named, rows_count, db.execute, "?")
            except (sqlite3.Error, OverflowError, UnicodeEncodeError):  # the database itself refuses it
                db.execute("ROLLBACK TO one")
            db.execute("RELEASE one")
        db.commit()
    _write_logs(base.home / "work" / next(name for name in base.rows if name.startswith(str(JOB["name"]))) / "leases")
    return base.home


def _write_logs(leases: Path) -> None:
    """Logs as a hostile job leaves them: texts for browsers and terminals, long lines, and what is no file."""
    lines = "\n".join((*TEXTS, f"loss {MARK}>=0.5", "x" * 200_000)).encode("utf-8", "replace")
    for number in range(6):
        node = leases / f"mlcd-hostile-{number}" / "node-0"
        node.mkdir(parents=True)
        (node.parent / "job.json").write_text(json.dumps({"instance": chr(0x1B) + MARK}))
        (node / "log.txt").write_bytes(lines * (1 if number else 30))
    (leases / "mlcd-hostile-1" / "node-0" / "log.txt").unlink()
    os.mkfifo(leases / "mlcd-hostile-1" / "node-0" / "log.txt")
    (leases / "mlcd-hostile-2" / "node-0" / "log.txt").unlink()
    (leases / "mlcd-hostile-2" / "node-0" / "log.txt").symlink_to("/etc/passwd")
    (leases / "mlcd-hostile-3" / "job.json").write_text("[" * 100_000)
    (leases / "mlcd-hostile-link").symlink_to("/etc")
    (leases / f"{MARK}>").mkdir()


def _rows(home: Path) -> dict[str, int]:
    with contextlib.closing(sqlite3.connect(home / FILE)) as db:
        return {
            table: int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
            for table in ("runs", "steps_started", "steps_ended", "statuses", "findings")
        }


@contextlib.contextmanager
def _server(home: Path, folder: Path) -> "Iterator[tuple[subprocess.Popen[bytes], Target]]":
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, "ui", "--no-open", "-o", "json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment(home),
            cwd=folder,
        )
    try:
        assert process.stdout is not None
        text = ""
        while not text.rstrip().endswith("}"):
            line = process.stdout.readline().decode()
            if not line:
                raise RuntimeError(f"mlcd ui did not start: {(folder / 'log.txt').read_text()}")
            text += line
        whole, _, token = json.loads(text)["address"].partition("?token=")
        with contextlib.closing(sqlite3.connect(home / FILE)) as db:
            names = [str(row[0]) for row in db.execute("SELECT run_id FROM runs ORDER BY rowid DESC")]
        plain = [name for name in names if re.fullmatch(r"[A-Za-z0-9.-]+", name)]
        good = next(name for name in plain if name.startswith(JOB["name"]))  # type: ignore[arg-type]
        port = int(whole.rstrip("/").rpartition(":")[2])
        yield process, Target(port=port, token=token, runs=(good, *(name for name in plain if name != good)))
    finally:
        process.terminate()
        process.wait(60)
        if process.stdout:
            process.stdout.close()


async def _attack(count: int, seed: int, target: Target, tally: Tally) -> None:
    numbers = iter(range(count))
    over = asyncio.Event()
    slowest = 0.0

    async def attacker() -> None:
        for number in numbers:
            case = case_of(seed, number, target)
            for found in await asyncio.gather(*(_client(target.port).ask(case) for _ in range(case.clients))):
                _judge(case, number, found, target, tally)
            tally.count(case.kind)

    async def witness() -> None:
        nonlocal slowest
        good = Case(kind="witness", pieces=[(target.get("/api/runs?limit=1"), 0.0)], allowed=frozenset({200}))
        while not over.is_set():
            began = time.monotonic()
            found = await _client(target.port).ask(good)
            _judge(good, -1, found, target, tally)
            slowest = max(slowest, time.monotonic() - began)
            await asyncio.sleep(0.25)

    watching = asyncio.create_task(witness())
    await asyncio.gather(*(attacker() for _ in range(AT_ONCE)))
    over.set()
    await watching
    if slowest > WITNESS_SECONDS:
        tally.find(Kind.HANG, -1, f"a good request took {slowest:.1f} s")


def _judge(case: Case, number: int, found: list[Answer] | str, target: Target, tally: Tally) -> None:
    sent = case.pieces[0][0][:120]
    if isinstance(found, str):
        kind = Kind.HANG if found == HANG else Kind.WRONG
        tally.find(kind, number, f"{case.kind}: {found}: {sent!r}")
        return
    for answer in found:
        wrong = _wrong(case, answer, target)
        if wrong is not None:
            tally.find(wrong[0], number, f"{case.kind}: {wrong[1]}: {sent!r}")


def _wrong(case: Case, answer: Answer, target: Target) -> tuple[Kind, str] | None:
    """What is wrong with an answer; None where nothing is."""
    status, head, content = answer.status, answer.head.lower(), answer.content
    if status == CLOSED:
        return None if CLOSED in case.allowed else (Kind.WRONG, "closed without an answer")
    if status >= 500 and status != 503:
        return Kind.SERVER_ERROR, f"answered {status}: {content[-200:]!r}"
    if status not in case.allowed and status != 503:
        return Kind.WRONG, f"answered {status}: {content[-200:]!r}"
    if status == 200 and not all(each in head for each in _POLICIES):
        return Kind.WRONG, "an answer without the headers that protect browsers"
    if b"\r\nx-injected" in head:
        return Kind.WRONG, "a header was injected"
    if status == 303 and not re.search(rb"\r\nlocation: /([^/\\\r]|\r)", head):
        return Kind.WRONG, f"leads elsewhere: {head[:300]!r}"
    if status in (401, 403) and (target.token.encode() in answer.head + content or target.runs[0].encode() in content):
        return Kind.WRONG, "tells a secret to somebody without the token"
    if b"application/json" not in head and MARK.encode() in content:
        return Kind.WRONG, f"markup gets through: {content[max(content.index(MARK.encode()) - 80, 0) :][:140]!r}"
    if any(each in content for each in _SECRETS) or b"Traceback (most recent" in content:
        return Kind.WRONG, "shows a file, or a traceback"
    return None


# ---- the process


def _descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208


def _memory_mib(pid: int, name: str) -> float:
    found = re.search(rf"^{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0


def _judge_server(
    process: "subprocess.Popen[bytes]", target: Target, before: tuple[int, float], log: Path, tally: Tally
) -> None:
    if process.poll() is not None:
        tally.find(Kind.WRONG, -1, f"the server ended with code {process.returncode}")
        return
    # Every thread that reads has the store open once: two descriptors each.
    if (now := _descriptors(process.pid)) > before[0] + 40:
        tally.find(Kind.WRONG, -1, f"{now} descriptors are open after the attack, {before[0]} before it")
    tally.peak_mib = _memory_mib(process.pid, "VmHWM")
    if (growth := tally.peak_mib - before[1]) > MOST_GROWTH_MIB:
        tally.find(Kind.MEMORY, -1, f"the server's memory grew by {growth:.0f} MiB, over {MOST_GROWTH_MIB}")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    if children:
        tally.find(Kind.LEFT_RUNNING, -1, f"{len(children)} processes below the server")
    good = Case(kind="last", pieces=[(target.get(f"/runs/{target.runs[0]}"), 0.0)], allowed=frozenset({200}))
    _judge(good, -1, asyncio.run(_client(target.port).ask(good)), target, tally)
    text = log.read_text(errors="replace")
    tally.outcomes["lines of log"] = text.count("\n")
    if len(text) > MOST_LOG_BYTES:
        tally.find(Kind.MEMORY, -1, f"the log has {len(text):,} bytes, over {MOST_LOG_BYTES:,}")
    if "Traceback" in text:
        tally.find(Kind.TRACEBACK, -1, " ".join(text[text.index("Traceback") :].split())[:2_000])
    if target.token in text:
        tally.find(Kind.WRONG, -1, "the token is in the log")


ATTACKS = (Attack(name="page", what="hostile HTTP requests to the live page", count=6_000, run=run),)
