"""A home that version 0.1.0 wrote (tests/fixtures/make_home.py): it opens, shows the same figures, and resumes."""

import json
import math
import multiprocessing
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.integration import old_home_driver
from tests.toy_job import MAIN
from tests.unmeasured import MEASURED, UNMEASURED_CHILDREN

from mlcd.cli.main import run as mlcd
from mlcd.clouds.local import usable_cpus
from mlcd.store.restore import restore
from mlcd.store.store import FILE, Store
from mlcd.units import Usd

FIXTURE = Path(__file__).resolve().parents[1] / "fixtures" / "home-0.1.0"
ROOT = "/tmp/mlcd-home-0.1.0"
"""Where the fixture was made: in the store and in what 0.1.0 showed, it stands for the folder of the copy."""
SCHEMA = 5
BACKUP = f"{FILE}.schema{SCHEMA}.bak"
PATIENCE_SECONDS = 300.0
"""How long to wait for what is sure to come; no assertion depends on it."""

LISTED: list[dict[str, Any]] = json.loads((FIXTURE / "expected" / "runs.json").read_text())["runs"]
RUNS: dict[str, dict[str, Any]] = {run["run_id"]: run for run in LISTED}
UNFINISHED = [run for run, listed in RUNS.items() if listed["status"] in ("running", "interrupted")]
SIMULATED = [run for run in UNFINISHED if run.startswith(("sim-", "lambda-"))]
REAL = [run for run in UNFINISHED if run not in SIMULATED]

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["tests.integration.old_home_driver"])


# ---- the copy


def unpack(folder: Path, *, to_read: bool = False) -> Path:
    """The fixture as it lay in ROOT, in `folder`: its home. `to_read` leaves out what only a resumed run needs."""
    with tarfile.open(FIXTURE / "root.tar.gz") as tar:
        shown = [member for member in tar.getmembers() if member.name == f"home/{FILE}" or "/outputs" in member.name]
        tar.extractall(folder, shown if to_read else None, filter="data")
    home = folder / "home"
    with closing(sqlite3.connect(home / FILE)) as db, db:
        db.execute("UPDATE runs SET spec = replace(spec, ?, ?)", (ROOT, str(folder)))
    return home


def as_if_killed_now(home: Path) -> None:
    """Move every run's wall clock, so that its last start was a second ago: a lost step is charged for its time."""
    starts = ("trials_started", "finals_started", "epochs_started")
    with closing(sqlite3.connect(home / FILE)) as db, db:
        for run in RUNS:
            lasts = [
                db.execute(f"SELECT max(started_at) FROM {t} WHERE run_id = ?", (run,)).fetchone()[0] for t in starts
            ]
            last = max((at for at in lasts if at is not None), default=None)
            if last is not None:
                for table in starts:
                    moved = f"UPDATE {table} SET started_at = started_at + ? WHERE run_id = ?"
                    db.execute(moved, (time.time() - 1 - last, run))


PATIENT = {
    '"extension":0.5,"watchdog_seconds":3.5999999999999996': '"extension":10.0,"watchdog_seconds":30.0',
    '"extension":0.5,"watchdog_seconds":20.0': '"extension":0.5,"watchdog_seconds":120.0',
    '"slo":{"seconds":0.5,': '"slo":{"seconds":5.0,',
}
"""Limits of the real runs -> limits that a slow machine keeps too."""


def be_patient(home: Path) -> None:
    """Change the limits of every run."""
    with closing(sqlite3.connect(home / FILE)) as db, db:
        for before, after in PATIENT.items():
            changed = db.execute(
                "UPDATE runs SET problem = replace(problem, ?, ?) WHERE instr(problem, ?)", (before, after, before)
            )
            assert changed.rowcount > 0, before


def user_version(file: Path) -> int:
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db:
        return int(db.execute("PRAGMA user_version").fetchone()[0])


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the old home, which is $MLCD_HOME."""
    return _use(unpack(tmp_path / "old"), monkeypatch)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy for the tests that only read; the first to come opens it."""
    return unpack(tmp_path_factory.mktemp("opened") / "old", to_read=True)


@pytest.fixture
def read_home(opened: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The copy for reading, which is $MLCD_HOME."""
    return _use(opened, monkeypatch)


def _use(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in variables(home).items():
        monkeypatch.setenv(name, value)
    for name in ("MLCD_CATALOG", "MLCD_DEBUG", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return home


def variables(home: Path) -> dict[str, str]:
    return {
        "MLCD_HOME": str(home),
        "NO_COLOR": "1",
        "COLUMNS": "100",
        "OMP_NUM_THREADS": "1",
        "LITHOPS_CONFIG_FILE": str(home / "none"),
    }


# ---- what was expected


def expected(home: Path, name: str) -> str:
    """What 0.1.0 showed, with the paths of this copy."""
    return (FIXTURE / "expected" / name).read_text().replace(ROOT, str(home.parent))


REWORDED = {
    "dearer": "more expensive",
    "fits what is left;": "fits the limits;",
    "no room was left for it": "the limits left no room for it",
    "fits the limits; nothing was chosen": "fits the limits so far",
}
"""Phrases of 0.1.0 -> their current wording; the rest of a text must be the same."""


def reworded(text: str) -> str:
    """A text of 0.1.0 in the current wording."""
    for before, after in REWORDED.items():
        text = text.replace(before, after)
    text = re.sub(r"([0-9.,]+%) slower", r"takes \1 longer", text)
    text = re.sub(r",? (and|but) (\$[0-9.,]+) more expensive", r" \1 costs \2 more", text)
    return text.replace(", and takes ", " and takes ")


UNTRIED = ("not tried", "not tried yet")
"""What 0.1.0 said of a type without a trial; a reason or what the model expects now follows."""
MENDED = re.compile(r"\.why_not\[[0-9]+\]\.usd_per_million_requests")
"""A figure that was wrong in 0.1.0, which stored no findings: another configuration's price was at its measured rate,
the choice's at its promised one."""


OVER = re.compile(r"(p[0-9]+) [0-9.]+ m?s over the limit at (\S+)")
"""What 0.1.0 said of a latency: by how much it is over the limit; now both are named."""


def same_latency(old: Any, new: Any) -> bool:
    """Whether both name the same percentile at the same rate."""
    found = OVER.fullmatch(old) if isinstance(old, str) else None
    return found is not None and re.fullmatch(rf"{found[1]} .*, over the limit of .*, at {found[2]}", new) is not None


def differences(old: Any, new: Any, at: str = "") -> Iterator[str]:
    """Where `new` lacks or changes something of `old`; keys that only `new` has are no difference."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key, value in old.items():
            if key not in new:
                yield f"{at}.{key}: is gone"
            else:
                before = reworded(value) if key == "text" and isinstance(value, str) else value
                yield from differences(before, new[key], f"{at}.{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for place, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from differences(before, after, f"{at}[{place}]")
    elif MENDED.fullmatch(at) and old is not None:
        if new is None or new < old:  # less is promised than was measured
            yield f"{at}: {old!r} became {new!r}"
    elif (old in UNTRIED and isinstance(new, str) and new.startswith((f"{old}: ", f"{old}; "))) or same_latency(
        old, new
    ):
        return
    elif isinstance(old, float) and isinstance(new, int | float):
        if not math.isclose(old, new, rel_tol=1e-6, abs_tol=1e-9):  # intervals are fitted: another BLAS, other digits
            yield f"{at}: {old!r} became {new!r}"
    elif old != new or isinstance(old, bool) != isinstance(new, bool):
        yield f"{at}: {old!r} became {new!r}"


def shown(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    capsys.readouterr()
    assert mlcd(args) == 0
    return capsys.readouterr().out


# ---- the same figures


def test_the_fixture_has_every_kind_in_every_state() -> None:
    states = Counter((run["kind"], run["status"]) for run in LISTED)
    for kind in ("train", "serve", "serverless"):
        for status in ("done", "interrupted", "running"):
            assert states[kind, status], (kind, status)
    assert {listed["live"] for listed in LISTED} == {False}
    assert {path.stem for path in (FIXTURE / "expected").glob("*.json")} == {"runs", *RUNS}


@pytest.mark.parametrize("run", RUNS)
def test_a_run_shows_the_same_figures(run: str, read_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = json.loads(expected(read_home, f"{run}.json")), json.loads(shown(capsys, "show", run, "-o", "json"))
    assert list(differences(old, new)) == []


@pytest.mark.parametrize("run", RUNS)
def test_a_verdict_names_the_same_money(run: str, read_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    money = re.compile(r"\$[0-9][0-9,.]*[0-9]")
    old, new = (
        Counter(money.findall(text)) for text in (expected(read_home, f"{run}.txt"), shown(capsys, "show", run))
    )
    rejected = json.loads(expected(read_home, f"{run}.json")).get("why_not") or []
    mended = {
        str(Usd.of(each["usd_per_million_requests"])) for each in rejected if each.get("usd_per_million_requests")
    }
    assert old.keys() - new.keys() <= mended


def test_the_list_of_runs_is_the_same(read_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert list(differences({"runs": LISTED}, json.loads(shown(capsys, "runs", "-o", "json")))) == []


def test_the_old_store_is_kept_as_a_backup_where_its_schema_changes(home: Path) -> None:
    assert user_version(home / FILE) == SCHEMA
    before = _rows(home / FILE)
    with Store(home):
        pass
    check_backup(home, before)


def check_backup(home: Path, before: dict[str, int]) -> None:
    """A store of another schema than before has its predecessor, whole, beside it."""
    if user_version(home / FILE) != SCHEMA:
        assert user_version(home / BACKUP) == SCHEMA
        assert _rows(home / BACKUP) == before


def _rows(file: Path) -> dict[str, int]:
    """How many rows each table has."""
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        names = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()]
        return {name: db.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names}


# ---- resumed

PLANNED = re.compile(r"run_(worst_)?(seconds|usd)")
"""Keys of a trial that say what the work that is left would take there: they change with the work that is left."""


def paid_steps(told: dict[str, Any]) -> list[dict[str, Any]]:
    """The trials, or the epochs, of a run that ended, as they were measured and paid."""
    steps: list[dict[str, Any]] = told.get("epochs", told.get("trials", []))
    return [
        {**step, "measured": {key: value for key, value in step["measured"].items() if not PLANNED.fullmatch(key)}}
        if step.get("measured")
        else step
        for step in steps
    ]


def check_resumed(run: str, before: dict[str, Any], after: dict[str, Any], home: Path) -> None:
    """It is done, and nothing that had been paid was changed, lost or paid again."""
    assert after["status"] == "done", run
    old, new = paid_steps(before), paid_steps(after)
    assert list(differences(old, new[: len(old)], run)) == []
    if "epochs" in after:
        done = [epoch["epoch"] for epoch in new if epoch["failure"] is None]
        assert done == list(range(1, len(done) + 1)), run
        assert [epoch["go"] for epoch in new] == list(range(1, len(new) + 1)), run
    else:
        paid = Counter(json.dumps([trial["config"], trial["attempt"]], sort_keys=True) for trial in new)
        assert set(paid.values()) == {1}, run
    with Store(home) as store:
        (spent,) = (listed.spent.dollars for listed in store.runs() if listed.run_id == run)
    assert spent >= RUNS[run]["spent_usd"], run
    assert spent == pytest.approx(after["receipt"]["total_usd"], abs=2e-6), run
    if (budget := after["goal"]["budget_usd"]) is not None:
        assert spent <= budget, run


@pytest.mark.parametrize("run", SIMULATED)
def test_a_simulated_run_is_resumed(run: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = json.loads(expected(home, f"{run}.json"))
    after = json.loads(shown(capsys, "resume", run, "-o", "json"))
    check_resumed(run, before, after, home)
    assert json.loads(shown(capsys, "show", run, "-o", "json")) == after
    if run.startswith(("sim-interrupted", "sim-killed-training")):  # same job and seed: as if it was left alone
        (alone,) = (name for name in RUNS if name.startswith("sim-done"))
        left_alone = json.loads(expected(home, f"{alone}.json"))
        for part in ("trials", "choice", "training", "receipt", "why_not"):
            assert list(differences(left_alone[part], after[part], part)) == []


def reason_to_skip(group: str) -> str:
    """Why this machine cannot resume a group of real runs; "" where it can."""
    if sys.platform != "linux":
        return "looks at processes through /proc"
    if group == "local" and len(usable_cpus()) < 2:
        return "two nodes need two processors"
    if group == "serve" and not (find_spec("onnx") and find_spec("onnxruntime")):
        return "onnx or onnxruntime is missing: pip install 'mlcd[serve]'"
    if group == "lithops" and not find_spec("lithops"):
        return "Lithops is missing: pip install 'mlcd[lithops]'"
    return ""


GROUPS = {"local": ("local-", "batch-"), "serve": ("serve-",), "lithops": ("lithops-",)}
"""Real runs by what they need, and how their names begin."""


def test_every_unfinished_run_is_resumed() -> None:
    prefixes = tuple(prefix for group in GROUPS.values() for prefix in group)
    assert all(run.startswith(prefixes) for run in REAL)
    assert all(any(run.startswith(prefix) for run in REAL) for prefix in prefixes)
    assert len(SIMULATED) == 5
    assert list(GROUPS) == ["local", "serve", "lithops"]


@pytest.mark.waits
@pytest.mark.parametrize("group", ["local", pytest.param("serve", marks=pytest.mark.measures), "lithops"])
def test_real_runs_are_resumed(group: str, tmp_path: Path) -> None:
    if reason := reason_to_skip(group):
        pytest.skip(reason)
    runs = [run for run in REAL if run.startswith(GROUPS[group])]
    at_once = 1 if group == "serve" else len(runs)  # load tests measure; the others mostly sleep
    with ThreadPoolExecutor(max_workers=at_once) as pool:
        for run, home, (code, out, err) in pool.map(lambda run: _resumed(run, tmp_path / run), runs):
            assert code == 0, f"{run}: {err}"
            after = json.loads(out)
            check_resumed(run, json.loads(expected(home, f"{run}.json")), after, home)
            if group == "local":
                assert json.loads((Path(after["outputs"]) / "model.json").read_text())["samples"] > 0


def _resumed(run: str, folder: Path) -> tuple[str, Path, tuple[int, str, str]]:
    """`mlcd resume` in a home of its own: the run, that home, and (exit code, standard output, standard error)."""
    home = unpack(folder)
    be_patient(home)
    as_if_killed_now(home)
    done = subprocess.run(
        [sys.executable, "-c", UNMEASURED_CHILDREN + MAIN, "resume", run, "-o", "json"],
        env={**os.environ, **MEASURED, **variables(home)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    return run, home, (done.returncode, done.stdout, done.stderr)


# ---- killed while it is opened


def open_and_kill(home: Path, *, die_at: int = 0, after_seconds: float | None = None) -> tuple[int | None, str]:
    """Open the home in a process of its own: its exit code and what it said (see old_home_driver)."""
    ready = home.parent / f"ready-{die_at}-{after_seconds}"
    process = context.Process(target=old_home_driver.open_home, args=(str(home), str(ready), die_at))
    process.start()
    until = time.monotonic() + PATIENCE_SECONDS
    while not ready.exists() and process.exitcode is None:
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.0002)
    if after_seconds is not None:
        time.sleep(after_seconds)
        process.kill()
    process.join(PATIENCE_SECONDS)
    return process.exitcode, ready.read_text()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, float]:
    """SQL statements and seconds that it takes to open the old home, left alone."""
    code, said = open_and_kill(unpack(tmp_path_factory.mktemp("undisturbed") / "old", to_read=True))
    assert code == 0
    statements, seconds = said.split()
    assert int(statements) > 0
    return int(statements), float(seconds)


@pytest.mark.parametrize("kills", [4, pytest.param(20, marks=pytest.mark.extra)])
def test_killed_while_it_is_opened(
    kills: int,
    undisturbed: tuple[int, float],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    statements, seconds = undisturbed
    killed = 0
    for seed in range(kills):
        rng = random.Random(f"kill-{seed}")
        home = unpack(tmp_path / str(seed), to_read=True)
        rows = _rows(home / FILE)
        for _ in range(1 + (rng.random() < 0.3)):  # at times a second time, while what the first left is mended
            if seed % 2:
                code = open_and_kill(home, die_at=rng.randint(1, statements))[0]
            else:
                code = open_and_kill(home, after_seconds=rng.uniform(0, seconds))[0]
            assert code in (0, -signal.SIGKILL)
            killed += code == -signal.SIGKILL
        _use(home, monkeypatch)
        assert list(differences({"runs": LISTED}, json.loads(shown(capsys, "runs", "-o", "json")))) == []
        check_backup(home, rows)
        with closing(sqlite3.connect(home / FILE)) as db:
            assert db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
            assert db.execute("PRAGMA foreign_key_check").fetchall() == []
        kind = ("train", "serve", "serverless")[seed % 3]
        run = rng.choice([name for name, listed in RUNS.items() if listed["kind"] == kind])
        old = json.loads(expected(home, f"{run}.json"))
        assert list(differences(old, json.loads(shown(capsys, "show", run, "-o", "json")))) == []
    assert killed >= kills / 2  # those at an instant may come too late on a quick machine


def test_a_run_that_was_damaged_before_its_home_was_migrated_is_not_restored_as_sound(tmp_path: Path) -> None:
    """Version 0.1 wrote no digests: those that a migration adds are of the damaged values."""
    home = unpack(tmp_path, to_read=True)
    with closing(sqlite3.connect(home / FILE)) as db, db:
        db.execute("UPDATE statuses SET status = 'asleep' WHERE run_id = ?", (UNFINISHED[0],))
    with Store(home) as store:
        assert [line.run_id for line in store.runs() if line.damage] == [UNFINISHED[0]]
    found = restore(home)
    assert found.lost == (UNFINISHED[0],)
    assert set(found.saved) == set(RUNS) - {UNFINISHED[0]}
    with Store(home) as store:
        assert {line.run_id: line.damage for line in store.runs()} == dict.fromkeys(found.saved, "")
    assert found.damaged.exists()
