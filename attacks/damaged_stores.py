"""Damaged stores: bytes, pages, rows, tables, logs and kinds of files, under every command that reads or resumes.

Commands run in processes forked from this one: `mlcd` is imported already, everything else is as for a user. Beside
what `judge` finds, these are defects: a damaged file that is deleted, replaced or made shorter; an answer of `mlcd
show`, or a line of `mlcd runs`, that is neither the one of the undamaged store nor says that the run is damaged; a run
that `mlcd runs --restore` does not name; a control character on the terminal.
"""

import hashlib
import json
import os
import random
import shutil
import signal
import socket
import sqlite3
import stat
import sys
import tarfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from attacks.attack import Attack, Ended, Kind, Tally, judge
from attacks.job_files import odd_characters

FIXTURE = Path(__file__).resolve().parents[1] / "tests" / "fixtures" / "home-0.1.0" / "root.tar.gz"
FILE = "mlcd.sqlite3"
HANG_SECONDS = 60.0
COMMANDS_PER_STORE = 3
_TABLES = ("runs", "steps_started", "steps_ended", "calls", "verdicts", "findings", "statuses")
_HOSTILE: tuple[object, ...] = (
    "", "{}", "[]", "null", '{"a":', "[" * 100_000, "x" * 1_000_000, "\x1b[31mred", "NaN", "-1", "1e999", "9" * 5_000,
    -1, 0, 2**63 - 1, -(2**63), 1e308, float("inf"), -0.5, None, b"\xff\xfe", "done", "running", "asleep",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Base:
    """An undamaged home.

    shown      what `mlcd show RUN -o json` prints, by run; empty where damage cannot be told (no digests yet)
    listed     the lines of `mlcd runs -o json`, by run
    resumable  runs whose resumption starts nothing real
    """

    home: Path
    runs: tuple[str, ...]
    resumable: tuple[str, ...]
    shown: dict[str, str]
    listed: dict[str, object]


def attack(count: int, seed: int, folder: Path) -> Tally:
    """Case i depends on (seed, i) alone; every fifth store is one of version 0.1."""
    _import_all()
    tally = Tally()
    today, old = _bases(folder)
    for case in range(count):
        chance = random.Random(f"{seed}/{case}")
        base = old if chance.random() < 0.2 else today
        home = folder / "case" / "home"
        shutil.copytree(base.home, home)
        name, damage = chance.choice(_DAMAGES)
        with suppress(sqlite3.Error, OSError):  # a hostile value that SQLite itself refuses: the store is intact
            damage(home, chance)
        _try_commands(base, home, name, case, chance, tally)
        shutil.rmtree(folder / "case", ignore_errors=True)
    return tally


def _try_commands(base: Base, home: Path, name: str, case: int, chance: random.Random, tally: Tally) -> None:
    restoring = False
    for number in range(COMMANDS_PER_STORE):
        run = chance.choice(base.runs)
        resumed = chance.choice(base.resumable)
        command = chance.choice(
            (
                ["runs"],
                ["runs", "-o", "json"],
                ["runs", "-o", "json"],
                ["runs", "-o", "csv"],
                ["logs", run, "--paths"],
                ["show", run],
                ["show", run, "-o", "json"],
                ["show", run, "-o", "json"],
                ["report", run, "--out", str(home.parent / "r.html")],
                ["resume", resumed, "-o", "json"],
                ["check"],
                ["runs", "--restore", "-o", "json"],
                ["down", "--dry-run"],
            )
        )
        before = _state(home)
        ended = _forked(command, home)
        what = f"{name}: {' '.join(command[:2])}"
        judge(ended, tally, case, what)
        if odd := odd_characters(ended.stdout + ended.stderr):
            tally.find(Kind.WRONG, case, f"{what}: prints {odd!r}")
        after = _state(home)
        restoring = "--restore" in command
        if restoring and ended.code == 0:
            _check_restored(base, before, after, home, ended, tally, case, what)
            return
        problem = _overwritten(before, after)
        if problem:
            tally.find(Kind.WRONG, case, f"{what}: {problem}")
        if number == 0 and command == ["runs", "-o", "json"] and ended.code == 0 and not name.startswith("log cut"):
            for line in json.loads(ended.stdout)["runs"] if base.listed else ():
                if not line["damage"] and line != base.listed.get(line["run_id"]):
                    tally.find(Kind.WRONG, case, f"{what}: lists {line['run_id']!r} in another way than before")
        is_answer = command[0] == "show" and "json" in command and ended.code == 0
        # A log that lost its end, or is gone, is as if mlcd had been killed earlier; a resumed run has gone on.
        if (
            is_answer
            and base.shown
            and not name.startswith("log cut")
            and number == 0
            and ended.stdout != base.shown[run]
        ):
            tally.find(Kind.WRONG, case, f"{what}: shows another answer than before the damage")


def _check_restored(
    base: Base,
    before: dict[str, tuple[str, int, int, str]],
    after: dict[str, tuple[str, int, int, str]],
    home: Path,
    ended: Ended,
    tally: Tally,
    case: int,
    what: str,
) -> None:
    try:
        done = json.loads(ended.stdout)
    except ValueError:
        tally.find(Kind.WRONG, case, f"{what}: no JSON within a megabyte")
        return
    kept = Path(done["damaged_file"]).name
    if FILE in before and after.get(kept, ("", 0, 0, ""))[3] != before[FILE][3]:
        tally.find(Kind.WRONG, case, f"{what}: the damaged file is not kept as it was")
    named = {*done["saved"], *done["from_backup"], *done["lost"], *done["missing"]}
    if base.shown and not set(base.runs) <= named:
        tally.find(Kind.WRONG, case, f"{what}: forgot {sorted(set(base.runs) - named)[:3]}")
    listed = _forked(["runs", "-o", "json"], home)
    judge(listed, tally, case, f"{what}, then runs")
    if listed.code != 0 or any(run["damage"] for run in json.loads(listed.stdout)["runs"]):
        tally.find(Kind.WRONG, case, f"{what}: is damaged still")


def _state(home: Path) -> dict[str, tuple[str, int, int, str]]:
    """Kind, inode, size and hash of each file of the store."""
    found = {}
    for path in home.iterdir():
        if path.name.startswith(FILE):
            info = path.lstat()
            is_file = stat.S_ISREG(info.st_mode)
            content = hashlib.sha256(path.read_bytes()).hexdigest() if is_file else ""
            found[path.name] = (str(stat.S_IFMT(info.st_mode)), info.st_ino, info.st_size, content)
    return found


def _overwritten(before: dict[str, tuple[str, int, int, str]], after: dict[str, tuple[str, int, int, str]]) -> str:
    if FILE not in before:
        return ""
    if FILE not in after:
        return "the damaged file is gone"
    if before[FILE][:2] != after[FILE][:2]:
        return "the damaged file was replaced"
    has_shrunk = after[FILE][2] < before[FILE][2]
    is_migrated = any(name.endswith(".bak") for name in after)  # a copy was made before
    return "the damaged file was made shorter" if has_shrunk and not is_migrated else ""


# ---- homes


def _import_all() -> None:
    from importlib import import_module  # noqa: PLC0415

    for name in ("runs", "show", "logs", "report", "resume", "check", "down", "output"):
        import_module(f"mlcd.cli.{name}")
    for name in ("kinds.train", "kinds.serve", "kinds.serverless", "store.restore", "jobs.down", "clouds.minicloud"):
        import_module(f"mlcd.{name}")
    import_module("scipy.optimize")


def _bases(folder: Path) -> tuple[Base, Base]:
    """Homes with runs of three kinds, ended, interrupted and killed: today's, with its last steps in the log; 0.1's."""
    with tarfile.open(FIXTURE) as tar:
        tar.extract(f"home/{FILE}", folder / "old", filter="data")
    old = folder / "old" / "home"
    with closing(sqlite3.connect(old / FILE)) as db:
        names = tuple(row[0] for row in db.execute("SELECT run_id FROM runs"))
    is_simulated = ("sim-", "lambda-")
    resumable = tuple(name for name in names if name.startswith(is_simulated) or "-done-" in name)
    work = folder / "work" / "home"
    shutil.copytree(old, work)
    _forked(["runs"], work)  # migrates
    _forked(["resume", next(name for name in resumable if name.startswith("sim-interrupted"))], work)
    (work / "locks").mkdir(exist_ok=True)
    for name in names:
        (work / "locks" / f"{name}.lock").touch()
    today = folder / "today" / "home"
    with closing(sqlite3.connect(work / FILE)) as db:  # holds the log while mlcd writes
        db.execute("SELECT count(*) FROM runs").fetchone()
        _forked(["resume", next(name for name in resumable if name.startswith("sim-killed"))], work)
        shutil.copytree(work, today)
    (today / f"{FILE}-shm").unlink(missing_ok=True)
    for extra in today.glob("*.bak"):
        extra.unlink()
    shown = {}
    for name in names:
        copy = folder / "shown" / "home"
        shutil.copytree(today, copy)
        shown[name] = _forked(["show", name, "-o", "json"], copy).stdout
        shutil.rmtree(copy)
    copy = folder / "shown" / "home"
    shutil.copytree(today, copy)
    listed = {line["run_id"]: line for line in json.loads(_forked(["runs", "-o", "json"], copy).stdout)["runs"]}
    return (
        Base(home=today, runs=names, resumable=resumable, shown=shown, listed=listed),
        Base(home=old, runs=names, resumable=resumable, shown={}, listed={}),
    )


def _forked(arguments: Sequence[str], home: Path) -> Ended:
    """Run a command in a child of this process, with its own home and folder."""
    out, errors = home.parent / "out", home.parent / "err"
    began = time.monotonic()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        code = 99
        try:
            os.setsid()
            os.chdir(home.parent)
            for descriptor, file in ((1, out), (2, errors)):
                os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), descriptor)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.environ.update(MLCD_HOME=str(home), NO_COLOR="1", COLUMNS="100")
            from mlcd.cli.main import run  # noqa: PLC0415

            code = run(list(arguments))
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)
    status: int | None = None
    peak = 0.0
    while status is None:
        pid, found, usage = os.wait4(child, os.WNOHANG)
        peak = usage.ru_maxrss / 1024
        if pid:
            status = os.waitstatus_to_exitcode(found)
        elif time.monotonic() - began > HANG_SECONDS:
            os.killpg(child, signal.SIGKILL)
            os.wait4(child, 0)
            break
        else:
            time.sleep(0.005)
    texts = [path.read_bytes()[:1_000_000].decode(errors="replace") for path in (out, errors)]
    return Ended(code=status, stdout=texts[0], stderr=texts[1], seconds=time.monotonic() - began, peak_mib=peak)


# ---- damage

Damage = Callable[[Path, random.Random], None]


def _flips(suffix: str, most: int) -> Damage:
    def damage(home: Path, chance: random.Random) -> None:
        path = home / f"{FILE}{suffix}"
        data = bytearray(path.read_bytes())
        for _ in range(chance.randint(1, most)):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(bytes(data))

    return damage


def _one_page(home: Path, chance: random.Random) -> None:
    """Random bytes, zeros or another page in place of one."""
    path = home / FILE
    data = bytearray(path.read_bytes())
    pages = len(data) // 4096
    at, other = chance.randrange(pages) * 4096, chance.randrange(pages) * 4096
    kind = chance.randrange(4)
    mine, theirs = bytes(data[at : at + 4096]), bytes(data[other : other + 4096])
    if kind == 0:
        data[at : at + 4096] = chance.randbytes(4096)
    elif kind == 1:
        data[at : at + 4096] = bytes(4096)
    else:
        data[at : at + 4096] = theirs
        if kind == 3:
            data[other : other + 4096] = mine
    path.write_bytes(bytes(data))


def _cut(suffix: str) -> Damage:
    def damage(home: Path, chance: random.Random) -> None:
        path = home / f"{FILE}{suffix}"
        size = path.stat().st_size
        os.truncate(path, chance.choice((0, 1, 16, 100, 4096, size - 1, chance.randrange(size))))

    return damage


def _garbage(suffix: str) -> Damage:
    def damage(home: Path, chance: random.Random) -> None:
        (home / f"{FILE}{suffix}").write_bytes(chance.randbytes(chance.choice((1, 100, 5_000, 200_000))))

    return damage


def _header(home: Path, chance: random.Random) -> None:
    path = home / FILE
    data = bytearray(path.read_bytes())
    for _ in range(chance.randint(1, 3)):
        data[chance.randrange(16, 100)] = chance.randrange(256)
    path.write_bytes(bytes(data))


def _sql(make: Callable[[sqlite3.Connection, random.Random], None]) -> Damage:
    """Edit the database by SQL. The log is written into it."""

    def damage(home: Path, chance: random.Random) -> None:
        with closing(sqlite3.connect(home / FILE, isolation_level=None)) as db:
            db.execute("PRAGMA writable_schema = ON")
            make(db, chance)

    return damage


def _columns(db: sqlite3.Connection, chance: random.Random) -> tuple[str, list[str]]:
    tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    table = chance.choice(tables)
    return table, [row[1] for row in db.execute(f"PRAGMA table_info({table})")]


def _edit(db: sqlite3.Connection, chance: random.Random) -> None:
    """A hostile value in some rows, or in all."""
    for _ in range(8):  # until one that SQLite's types allow
        table, columns = _columns(db, chance)
        column, value = chance.choice(columns), chance.choice(_HOSTILE)
        mark = "CAST(? AS TEXT)" if isinstance(value, bytes) else "?"
        some = "" if chance.random() < 0.3 else f"WHERE rowid % 7 = {chance.randrange(7)}"
        with suppress(sqlite3.Error, OverflowError):
            if db.execute(f"UPDATE OR IGNORE {table} SET {column} = {mark} {some}", (value,)).rowcount:
                return


def _digit(db: sqlite3.Connection, chance: random.Random) -> None:
    """Another digit, or another word, in stored JSON."""
    for _ in range(8):
        table, columns = _columns(db, chance)
        column, old = chance.choice(columns), chance.choice("0123456789")
        new = chance.choice("0123456789e-")
        with suppress(sqlite3.Error):
            if db.execute(f"UPDATE {table} SET {column} = replace({column}, ?, ?)", (old, new)).rowcount:
                return


def _delete(db: sqlite3.Connection, chance: random.Random) -> None:
    table, _ = _columns(db, chance)
    some = "" if chance.random() < 0.2 else f"WHERE rowid % 5 = {chance.randrange(5)}"
    db.execute(f"DELETE FROM {table} {some}")


def _drop(db: sqlite3.Connection, chance: random.Random) -> None:
    kinds = db.execute("SELECT type, name FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name").fetchall()
    kind, name = chance.choice(kinds)
    db.execute(f"DROP {kind} {name}")


def _master(db: sqlite3.Connection, chance: random.Random) -> None:
    (names,) = db.execute("SELECT group_concat(name) FROM sqlite_master").fetchone()
    name = chance.choice(names.split(","))
    change = chance.choice(("sql = 'nonsense'", "rootpage = 1", "rootpage = 99999", "sql = NULL", "type = 'view'"))
    db.execute(f"UPDATE sqlite_master SET {change} WHERE name = ?", (name,))


def _schema_number(db: sqlite3.Connection, chance: random.Random) -> None:
    db.execute(f"PRAGMA user_version = {chance.choice((0, 1, 2, 5, 6, 8, -1, 2**31 - 1))}")


def _kind(suffix: str) -> Damage:
    def damage(home: Path, chance: random.Random) -> None:
        path = home / f"{FILE}{suffix}"
        path.unlink(missing_ok=True)
        match chance.randrange(7):
            case 0:
                path.mkdir()
            case 1:
                os.mkfifo(path)
            case 2:
                path.symlink_to("nowhere")
            case 3:
                path.symlink_to("/dev/zero")
            case 4:
                path.symlink_to(path.name)
            case 5:
                path.symlink_to("/dev/null")
            case _:
                with closing(socket.socket(socket.AF_UNIX)) as made:
                    made.bind(str(path))

    return damage


def _beside(home: Path, chance: random.Random) -> None:
    """What is beside the store: locks, backups, values, an unfinished restore."""
    name = chance.choice(
        ("locks", "backups", "envs", "work", "leases", "mlcd.sqlite3.restored", "backups/000001.sqlite3")
    )
    path = home / name
    if path.is_dir():
        shutil.rmtree(path)
    path.parent.mkdir(exist_ok=True)
    match chance.randrange(3):
        case 0:
            path.write_bytes(chance.randbytes(5_000))
        case 1:
            path.unlink(missing_ok=True)
            path.symlink_to("nowhere")
        case _:
            path.unlink(missing_ok=True)
            os.mkfifo(path)
    if chance.random() < 0.5:
        _flips("", 20)(home, chance)


def _log_gone(home: Path, _: random.Random) -> None:
    (home / f"{FILE}-wal").unlink()


def _both(home: Path, chance: random.Random) -> None:
    _flips("", 200)(home, chance)
    for backup in home.glob("backups/*.sqlite3"):
        os.truncate(backup, chance.randrange(backup.stat().st_size))


_DAMAGES: tuple[tuple[str, Damage], ...] = (
    ("1 to 3 bits", _flips("", 3)),
    ("up to 100 bits", _flips("", 100)),
    ("a page", _one_page),
    ("cut", _cut("")),
    ("garbage", _garbage("")),
    ("header", _header),
    ("hostile values", _sql(_edit)),
    ("hostile values", _sql(_edit)),
    ("other digits", _sql(_digit)),
    ("rows deleted", _sql(_delete)),
    ("table dropped", _sql(_drop)),
    ("catalog of tables", _sql(_master)),
    ("schema number", _sql(_schema_number)),
    ("bits of the log", _flips("-wal", 5)),
    ("garbage as log", _garbage("-wal")),
    ("log cut", _cut("-wal")),
    ("log cut: gone", _log_gone),
    ("garbage as index of the log", _garbage("-shm")),
    ("another kind of file", _kind("")),
    ("another kind of log", _kind("-wal")),
    ("another kind of index", _kind("-shm")),
    ("what is beside it", _beside),
    ("with its backup", _both),
)

ATTACKS = (
    Attack(
        name="damaged-stores",
        what=f"damaged stores, {COMMANDS_PER_STORE} commands each",
        count=1_000,
        run=attack,
    ),
)
