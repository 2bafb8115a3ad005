"""Damaged stores: named, never overwritten, restored; other runs stay readable."""

import errno
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.store.test_store import FUNCTIONS, call, epoch, epoch_step, header, measured, nodes_problem, step

from mlcd.cli.main import run as main
from mlcd.errors import BadInput, RunBusy, StoreError
from mlcd.problem import Problem
from mlcd.run.findings import Findings
from mlcd.run.kind import Kind
from mlcd.run.run import Run
from mlcd.run.verdict import Verdict
from mlcd.store.backups import backups
from mlcd.store.damage import DamagedStore, NotWritable, damaged, damaged_run, explained, explained_os
from mlcd.store.restore import restore
from mlcd.store.rows import TABLES, digest, set_count
from mlcd.store.store import FILE, Store
from mlcd.trial.outcome import Status

LOG = f"{FILE}-wal"


def run_with_steps(store: Store, name: str, *, count: int = 2, paid: bool = False) -> Run[Problem]:
    run = Run(header=replace(header(name), simulated=not paid), problem=nodes_problem())
    store.add(run, spec={})
    for number in range(1, count + 1):
        store.start(name, [step(number)])
        store.end(name, step(number).ended(measured()))
    return run


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Two runs that ended and one that did not; a backup with the first two."""
    with Store(tmp_path / "home") as store:
        for name in ("first", "second"):
            run_with_steps(store, name, paid=True)
            store.conclude(name, Verdict(stopped="enough"))
            with store.lock(name):
                store.finish(name, Status.DONE, None)
        run_with_steps(store, "third")
        with store.lock("third"):
            pass
    return tmp_path / "home"


def sql(home: Path, *statements: str) -> None:
    with closing(sqlite3.connect(home / FILE, isolation_level=None)) as db:
        for statement in statements:
            db.execute(statement)


def load(home: Path, run_id: str) -> None:
    with Store(home) as store:
        store.load(run_id)


def load_all(home: Path) -> None:
    with Store(home) as store:
        for name in ("first", "second", "third"):
            store.load(name)


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


ROW_DAMAGE = [
    ("UPDATE steps_ended SET usd_micros = 1 WHERE run_id = 'second' AND number = 2", "the outcome of step 2 is not as"),
    ("UPDATE steps_started SET round = 9 WHERE run_id = 'second' AND number = 1", "the start of step 1 is not as"),
    ("UPDATE steps_started SET digest = NULL WHERE run_id = 'second'", "the start of step 1 is not as"),
    ("UPDATE statuses SET status = 'asleep' WHERE run_id = 'second'", "its status is not as"),
    ("UPDATE runs SET header = '[' WHERE run_id = 'second'", "what was recorded when it started is not as"),
    ("UPDATE runs SET problem = CAST(x'ff' AS TEXT) WHERE run_id = 'second'", "UTF-8"),
    ("DELETE FROM statuses WHERE run_id = 'second'", "2 of its 8 rows are missing"),
    ("DELETE FROM statuses WHERE run_id = 'second' AND status = 'done'", "1 of its 8 rows are missing"),
    ("UPDATE row_counts SET row_count = 7 WHERE run_id = 'second'", "the count of its rows is not as"),
    ("DELETE FROM row_counts WHERE run_id = 'second'", "the count of its rows is missing"),
    ("DELETE FROM steps_ended WHERE run_id = 'second' AND number = 2", "1 of its 8 rows are missing"),
    ("DELETE FROM verdicts WHERE run_id = 'second'", "1 of its 8 rows are missing"),
    ("DELETE FROM steps_started WHERE run_id = 'second' AND number = 1", "1 of its 8 rows are missing"),
]


@pytest.mark.parametrize(("statement", "what"), ROW_DAMAGE)
def test_a_damaged_row_names_its_run_and_the_others_stay_readable(home: Path, statement: str, what: str) -> None:
    sql(home, statement)
    with Store(home) as store:
        assert {line.run_id for line in store.runs()} == {"first", "second", "third"}
        with pytest.raises(StoreError, match=rf"{FILE}: run second is damaged: .*{what}.*`MLCD_HOME=.*--restore`"):
            store.load("second")
        assert store.load("first").status is Status.DONE
        assert len(store.load("third").steps) == 2
    done = restore(home)
    assert (set(done.saved), done.from_backup, done.lost) == ({"first", "third"}, ("second",), ())
    with Store(home) as store:
        assert len(store.load("second").ended) == 2
        assert {line.run_id: line.damage for line in store.runs()} == dict.fromkeys(("first", "second", "third"), "")


@pytest.mark.parametrize(
    ("statement", "what"),
    [row for row in ROW_DAMAGE if "UTF-8" not in row[1]],
)
def test_the_list_shows_a_damaged_run(home: Path, statement: str, what: str) -> None:
    sql(home, statement)
    with Store(home) as store:
        lines = {line.run_id: line for line in store.runs()}
    assert what in lines["second"].damage
    assert (lines["second"].status, lines["first"].status) == (None, Status.DONE)


def test_a_step_that_is_missing_in_a_run_that_goes_on(home: Path) -> None:
    sql(home, "DELETE FROM steps_started WHERE run_id = 'third' AND number = 1")
    with Store(home) as store, pytest.raises(StoreError, match="run third is damaged: 1 of its 6 rows are missing"):
        store.load("third")
    with closing(sqlite3.connect(home / FILE, isolation_level=None)) as db:
        set_count(db, "third", 5)  # as if it had been missing when a home without counts was converted
    with Store(home) as store, pytest.raises(StoreError, match="run third is damaged: the start of a step is missing"):
        store.load("third")


@pytest.fixture
def every_table(tmp_path: Path) -> Path:
    """A run of functions that has rows in every table, and another run."""
    with Store(tmp_path / "home") as store:
        run_with_steps(store, "other")
        run = Run(header=header("all", Kind.SERVERLESS), problem=FUNCTIONS)
        store.add(run, spec={})
        for number in (1, 2):
            store.start("all", [epoch_step(number)])
            store.end("all", epoch_step(number).ended(epoch(number)), [call(0), call(1)])
            store.conclude("all", Verdict(stopped=f"verdict {number}"))
        store.finish("all", Status.DONE, Findings())
    return tmp_path / "home"


def rows_of(home: Path, run_id: str) -> list[tuple[str, int]]:
    with closing(sqlite3.connect(home / FILE)) as db:
        return [
            (table, number)
            for table in TABLES
            for (number,) in db.execute(f"SELECT rowid FROM {table} WHERE run_id = ?", (run_id,))
        ]


def check_damaged(home: Path, run_id: str, other: str) -> None:
    """However it is read, the run is damaged, and the other one is not."""
    with Store(home) as store:
        assert {line.run_id: bool(line.damage) for line in store.runs()} == {run_id: True, other: False}
        store.load(other)
        for read in (store.load, store.spec, store.calls, store.kind, store.status, store.logs):
            with pytest.raises(StoreError, match=f"run {run_id} is damaged"):
                read(run_id)


@pytest.mark.parametrize("run_id", ["all", "other"])
def test_a_run_that_lost_any_of_its_rows_is_damaged_whatever_reads_it(
    every_table: Path, tmp_path: Path, run_id: str
) -> None:
    for table, number in rows_of(every_table, run_id):
        home = tmp_path / f"{table}-{number}"
        shutil.copytree(every_table, home)
        sql(home, f"DELETE FROM {table} WHERE rowid = {number}")
        check_damaged(home, run_id, "other" if run_id == "all" else "all")
        done = restore(home)
        assert run_id in (*done.from_backup, *done.lost)
        with Store(home) as store:
            assert not any(line.damage for line in store.runs())


def test_a_row_that_was_written_twice_is_damage(every_table: Path) -> None:
    for table, column in (("statuses", "id"), ("verdicts", "id"), ("calls", "shard"), ("steps_ended", "number")):
        with closing(sqlite3.connect(every_table / FILE, isolation_level=None)) as db:
            db.row_factory = sqlite3.Row
            row = dict(db.execute(f"SELECT * FROM {table} WHERE run_id = 'all'").fetchone())
            row[column] = 99
            row["digest"] = digest(row)
            marks = ", ".join("?" * len(row))
            db.execute(f"INSERT INTO {table} VALUES ({marks})", tuple(row.values()))
        check_damaged(every_table, "all", "other")
        sql(every_table, f"DELETE FROM {table} WHERE {column} = 99")
    load(every_table, "all")


def test_the_newest_run_that_can_be_continued_is_not_guessed_where_newer_ones_are_damaged(home: Path) -> None:
    with Store(home) as store:
        run_with_steps(store, "fourth")
        store.finish("fourth", Status.DONE, None)
        assert store.latest(unfinished=True) == "third"
        sql(home, "UPDATE statuses SET at = 9 WHERE run_id = 'fourth'")
        assert store.latest() == "fourth"
        with pytest.raises(StoreError, match="run fourth is damaged: its status is not as mlcd wrote it"):
            store.latest(unfinished=True)


def test_the_name_of_a_damaged_run_is_shown_harmlessly(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLCD_HOME", str(home))
    name = "'x' || char(27) || ']52;c;QUFB' || char(7) || char(10) || 'mlcd: done'"
    sql(home, f"UPDATE runs SET run_id = {name} WHERE run_id = 'second'")
    for arguments in ([], ["-o", "json"], ["-o", "csv"]):
        assert main(["runs", *arguments]) == 0
        said = capsys.readouterr()
        assert "are damaged, such as" in said.err
        assert said.err.count("\n") == 1
        assert not set("\x1b\x07") & set(said.out + said.err)


def test_what_is_paid_for_is_recorded_in_a_damaged_run_too_and_it_stays_damaged(home: Path) -> None:
    sql(home, "DELETE FROM row_counts WHERE run_id = 'third'")
    with Store(home) as store:
        store.start("third", [step(3)])
        store.end("third", step(3).ended(measured()))
        with pytest.raises(StoreError, match="run third is damaged: the count of its rows is missing"):
            store.load("third")
    with closing(sqlite3.connect(home / FILE)) as db:
        assert db.execute("SELECT count(*) FROM steps_ended WHERE run_id = 'third'").fetchone() == (3,)


def test_a_run_without_a_name_is_listed(home: Path) -> None:
    sql(home, "PRAGMA foreign_keys = OFF", "UPDATE runs SET run_id = '' WHERE run_id = 'second'")
    with Store(home) as store:
        found = {line.run_id: bool(line.damage) for line in store.runs()}
    assert found == {"first": False, "": True, "second": True, "third": False}


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def _lost_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("nowhere")


FILE_DAMAGE: list[tuple[Callable[[Path], object], str]] = [
    (lambda path: path.write_bytes(b""), "it is empty, but there was a run first"),
    (lambda path: path.write_bytes(b"a letter to my mother " * 400), "it is not a database"),
    (lambda path: overwrite(path, 40, b"\xff" * 30), ""),
    (lambda path: os.truncate(path, 5000), ""),
    (lambda path: overwrite(path, 4096, b"\xa5" * (path.stat().st_size - 4096)), ""),
    (lambda path: sql(path.parent, "PRAGMA user_version = 0"), "says that it has schema 0, but its tables are of"),
    (lambda path: sql(path.parent, "PRAGMA user_version = 6"), "says that it has schema 6, but its tables are of"),
    (lambda path: sql(path.parent, "PRAGMA user_version = 5"), "says that it has schema 5, but its tables are of"),
    (lambda path: sql(path.parent, "PRAGMA foreign_keys = OFF", "DROP TABLE statuses"), "its tables are"),
    (
        lambda path: sql(path.parent, "ALTER TABLE statuses DROP COLUMN at"),
        "its table statuses lacks the column at",
    ),
    (_fifo, "it should be a file and is a FIFO"),
    (_folder, "it should be a file and is a folder"),
    (_device, "it should be a file and is a device"),
    (_lost_link, "it should be a file and is a link that leads nowhere"),
    (
        lambda path: sql(
            path.parent,
            "PRAGMA writable_schema = ON",
            "UPDATE sqlite_master SET sql = CAST(x'6e6ff4' AS TEXT), name = CAST(x'f4' AS TEXT) WHERE name = 'runs'",
        ),
        "",
    ),
    (lambda path: path.with_name(LOG).mkdir(), f"{LOG} should be a file and is a folder"),
]


@pytest.mark.parametrize(("damage", "what"), FILE_DAMAGE)
def test_a_damaged_file_is_named_left_alone_and_restored(
    home: Path, damage: Callable[[Path], object], what: str
) -> None:
    path = home / FILE
    damage(path)
    before = path.read_bytes() if path.is_file() and path.stat().st_size else None
    with pytest.raises(StoreError, match=rf"{FILE}.* damaged: .*{what}.*`MLCD_HOME=.* mlcd runs --restore`"):
        load_all(home)
    assert before is None or path.read_bytes() == before
    done = restore(home)
    assert os.path.lexists(done.damaged)
    assert before is None or done.damaged.read_bytes() == before
    assert "third" in (*done.saved, *done.lost, *done.missing)  # the backup does not have it
    with Store(home) as store:
        assert len(store.load("first").ended) == len(store.load("second").ended) == 2
    with pytest.raises(BadInput, match="is not damaged"):
        restore(home)


@pytest.fixture
def logged(tmp_path: Path) -> Path:
    """A home whose last steps are in the log alone: mlcd was killed."""
    with Store(tmp_path / "live") as store:
        for name in ("first", "second"):
            run_with_steps(store, name, paid=True)
            store.finish(name, Status.DONE, None)
        run_with_steps(store, "third", count=4)
        shutil.copytree(tmp_path / "live", tmp_path / "home")
    return tmp_path / "home"


def test_an_intact_log_is_read(logged: Path) -> None:
    with Store(logged) as store:
        assert len(store.load("third").ended) == 4


def test_a_log_of_a_few_bytes_is_damaged(logged: Path) -> None:
    os.truncate(logged / LOG, 5)
    with pytest.raises(StoreError, match="its header is cut off"):
        Store(logged)


@pytest.mark.parametrize("at", [0, 20, 32 + 24 + 100, 32 + 5 * (24 + 4096) + 300])
def test_a_damaged_log_is_not_taken_for_a_shorter_one(logged: Path, at: int) -> None:
    log = logged / LOG
    byte = log.read_bytes()[at]
    overwrite(log, at, bytes([byte ^ 0x40]))
    before = log.read_bytes()
    with pytest.raises(StoreError, match=rf"{FILE} is damaged: its log {LOG}: .*mlcd runs --restore"):
        Store(logged)
    assert log.read_bytes() == before
    done = restore(logged)
    assert done.damaged.with_name(f"{done.damaged.name}-wal").read_bytes() == before
    with Store(logged) as store:
        assert len(store.load("first").ended) == 2


def test_a_log_whose_end_was_cut_off_is_intact(logged: Path) -> None:
    log = logged / LOG
    os.truncate(log, log.stat().st_size - 3000)
    with Store(logged) as store:
        assert len(store.load("first").ended) == 2


def test_a_log_without_its_file_is_not_deleted(logged: Path) -> None:
    (logged / FILE).unlink()
    with pytest.raises(StoreError, match="it is missing, but its log"):
        Store(logged)
    assert (logged / LOG).stat().st_size


# ---- backups


def test_backups_are_made_when_runs_end_and_the_newest_two_are_kept(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        run_with_steps(store, "simulated")
        store.finish("simulated", Status.DONE, None)
        assert [file.name for file in backups(tmp_path)] == ["000001.sqlite3"]
        run_with_steps(store, "again")
        store.finish("again", Status.DONE, None)  # within ten minutes, and nothing was paid
        assert [file.name for file in backups(tmp_path)] == ["000001.sqlite3"]
        for name in ("a", "b"):
            run_with_steps(store, name, paid=True)
            store.finish(name, Status.DONE, None)
        run_with_steps(store, "c", paid=True)
        store.set_status("c", Status.INTERRUPTED)
        assert [file.name for file in backups(tmp_path)] == ["000003.sqlite3", "000004.sqlite3"]
        assert {file.stat().st_mode & 0o777 for file in backups(tmp_path)} == {0o600}
    with closing(sqlite3.connect(backups(tmp_path)[-1])) as db:
        assert db.execute("SELECT count(*) FROM runs").fetchone() == (5,)


def test_a_damaged_store_does_not_replace_a_backup(home: Path) -> None:
    before = [file.read_bytes() for file in backups(home)]
    sql(home, "UPDATE steps_ended SET usd_micros = 1 WHERE run_id = 'second'")
    with Store(home) as store:
        store.finish("third", Status.DONE, None)
        run_with_steps(store, "fourth", paid=True)
        store.finish("fourth", Status.DONE, None)
    assert [file.read_bytes() for file in backups(home)] == before


def test_money_is_not_spent_on_a_damaged_store(home: Path) -> None:
    sql(home, "PRAGMA writable_schema = ON", "DELETE FROM sqlite_master WHERE name = 'statuses_by_run'")
    with Store(home) as store, pytest.raises(StoreError, match="is damaged: "):
        store.add(Run(header=replace(header("real"), simulated=False), problem=nodes_problem()), spec={})


# ---- restoring


def test_a_lost_run_is_named(home: Path) -> None:
    sql(home, "UPDATE runs SET header = '[' WHERE run_id = 'third'")
    (home / "work" / "fourth").mkdir(parents=True)
    done = restore(home)
    assert (done.lost, done.missing) == (("third",), ("fourth",))


def test_damage_in_place_of_a_name_is_no_run(home: Path) -> None:
    sql(home, "UPDATE statuses SET run_id = printf('%.*c', 2000000, 'x') WHERE run_id = 'third'")
    done = restore(home)
    assert max(map(len, (*done.saved, *done.from_backup, *done.lost, *done.missing))) < 100
    assert "third" in (*done.from_backup, *done.lost)


def test_nothing_is_restored_while_a_run_is_live(home: Path) -> None:
    sql(home, "UPDATE runs SET header = '[' WHERE run_id = 'third'")
    with Store(home) as store, store.lock("first"), pytest.raises(RunBusy, match="run first is in use"):
        restore(home)


def test_a_restore_that_was_killed_is_completed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sql(home, "UPDATE runs SET header = '[' WHERE run_id = 'second'")
    monkeypatch.setattr("mlcd.store.restore._put_in_place", lambda _: pytest.exit)
    restore(home)
    monkeypatch.undo()
    with pytest.raises(StoreError, match="`mlcd runs --restore` completes it"):
        Store(home)
    assert restore(home).damaged.exists()
    with Store(home) as store:
        assert len(store.load("second").ended) == 2


@pytest.mark.parametrize("make", [lambda path: path.write_bytes(b"garbage" * 900), os.mkfifo])
def test_what_restore_did_not_write_is_not_taken_for_the_store(home: Path, make: Callable[[Path], object]) -> None:
    make(home / f"{FILE}.restored")
    with pytest.raises(StoreError, match="`mlcd runs --restore` completes it"):
        Store(home)
    with pytest.raises(BadInput, match="is not damaged"):
        restore(home)
    assert os.path.lexists(home / f"{FILE}.restored.damaged-1")
    load_all(home)


def test_an_empty_folder_has_nothing_to_restore(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="nothing to restore"):
        restore(tmp_path)


# ---- disks

READ = """
import sys
from pathlib import Path
from mlcd.store.store import Store
with Store(Path(sys.argv[1]), reading=True) as store:
    print(*(f"{line.run_id}:{line.status}" for line in store.runs()), len(store.load("third").steps))
    print(store.is_live("third"))
"""


def in_mount(script: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script with mounts of its own."""
    return subprocess.run(["unshare", "-m", "bash", "-ec", script], capture_output=True, text=True, check=False)


needs_mounts = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or in_mount("mount -t tmpfs none /mnt").returncode != 0,
    reason="needs the right to mount",
)


@needs_mounts
@pytest.mark.parametrize(("which", "has_index"), [("home", True), ("logged", True), ("logged", False)])
def test_a_read_only_home_is_read_with_its_log(request: pytest.FixtureRequest, which: str, has_index: bool) -> None:
    """Without the index of the log, which a restart of the machine removes, SQLite needs a copy of both."""
    home = request.getfixturevalue(which)
    if not has_index:
        (home / f"{LOG.removesuffix('-wal')}-shm").unlink()
    before = {file.name: file.read_bytes() for file in home.iterdir() if file.is_file()}
    done = in_mount(f"mount --bind {home} {home}; mount -o remount,ro,bind {home}; {sys.executable} -c '{READ}' {home}")
    assert done.stderr == ""
    assert done.stdout.split()[-2:] == ["4" if which == "logged" else "2", "False"]
    assert "first:done" in done.stdout
    assert {file.name: file.read_bytes() for file in home.iterdir() if file.is_file()} == before


FILL = """
import sys
from pathlib import Path
from mlcd.errors import StoreError
from mlcd.store.store import Store
from tests.unit.store.test_damage import run_with_steps
from tests.unit.store.test_store import measured, step
home = Path(sys.argv[1])
try:
    with Store(home) as store:
        for number in range(10_000):
            run_with_steps(store, f"run-{number}")
except StoreError as error:
    print(error)
try:
    with Store(home) as store:
        run_with_steps(store, "more")
except StoreError as error:
    print(error)
with Store(home, reading=True) as store:
    print(len(store.runs()) > 5, any(line.damage for line in store.runs()))
(home / "ballast").unlink()
with Store(home) as store:
    last = store.runs()[-1].run_id
    store.start(last, [step(len(store.load(last).steps) + 1)])
    print(store.load(last).in_flight != ())
"""


@needs_mounts
def test_a_full_disk_is_named_and_everything_recorded_is_there(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    done = in_mount(
        f"mount -t tmpfs -o size=1m none {disk}; mkdir {disk}/home; head -c 500000 /dev/zero > {disk}/home/ballast;"
        f" {sys.executable} -c '{FILL}' {disk}/home"
    )
    first, second, read, write = done.stdout.splitlines()
    for line in (first, second):
        assert f"{disk}/home/{FILE}" in line
        assert "the disk is full: free some space, then `mlcd resume` the run" in line
    assert (read, write) == ("True False", "True")


# ---- what is said


def test_damage_of_a_store_in_memory_names_no_file() -> None:
    assert str(damaged(None, "a page is missing")) == "the store in memory is damaged: a page is missing"
    assert str(damaged_run(None, "r-1", "a row is missing")).startswith("the store in memory: run r-1 is damaged")


@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        (sqlite3.SQLITE_FULL, StoreError, "the disk is full"),
        (sqlite3.SQLITE_READONLY, NotWritable, "is not writable"),
        (sqlite3.SQLITE_BUSY, StoreError, "another mlcd process has locked it"),
        (sqlite3.SQLITE_IOERR, StoreError, "the disk cannot be read or written"),
        (sqlite3.SQLITE_CORRUPT, DamagedStore, "is damaged: it broke"),
    ],
)
def test_errors_of_sqlite_say_what_to_do(tmp_path: Path, code: int, kind: type[StoreError], says: str) -> None:
    error = sqlite3.OperationalError("it broke")
    error.sqlite_errorcode = code
    found = explained(error, tmp_path / FILE)
    assert type(found) is kind
    assert says in str(found)


def test_errors_of_the_system_say_what_to_do(tmp_path: Path) -> None:
    full = explained_os(OSError(errno.ENOSPC, "no space", str(tmp_path / FILE)), None)
    assert f"{tmp_path / FILE}: the disk is full" in str(full)
    assert isinstance(explained_os(PermissionError(errno.EACCES, "denied"), tmp_path), NotWritable)


def test_a_digest_counts_bytes_and_not_how_sqlite_writes_numbers() -> None:
    assert digest({"a": b"1"}) != digest({"a": b"2"}) != digest({"a": "2"})
    assert digest({"a": 600.0, "b": True}) == digest({"b": 1, "a": 600, "c": None})
