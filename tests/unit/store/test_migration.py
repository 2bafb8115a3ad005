import os
import random
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
from tests import old_rows
from tests.old_rows import OldHome
from tests.synthetic import SyntheticCloud, driven, make_engine, make_problem

from mlcd import codec
from mlcd.catalog.functions import FunctionPrices
from mlcd.errors import StoreError
from mlcd.functions import FunctionProblem
from mlcd.goal import Goal, Objective
from mlcd.known.resemblance import Resemblance
from mlcd.problem import Batching, Blueprint, Problem, Target, TrialPolicy
from mlcd.run.attempt import Attempt, Ending
from mlcd.run.authorisation import Authorisation
from mlcd.run.header import FunctionFacts, Header, ServingFacts
from mlcd.run.kind import Kind
from mlcd.run.run import Run
from mlcd.run.step import Outcome, Role, Step
from mlcd.run.verdict import Naive, PlainInstance, Relaxation, Verdict
from mlcd.space import Config, Knob, Space
from mlcd.store.file_locks import FileLocks
from mlcd.store.migration import schema_in
from mlcd.store.rows import TABLES, digest
from mlcd.store.store import FILE, SCHEMA, Store
from mlcd.trial.call import FunctionCall
from mlcd.trial.epoch import Epoch, FailedEpoch, Fleet, Phase
from mlcd.trial.epoch_0_1 import epoch_from_0_1
from mlcd.trial.outcome import Status
from mlcd.trial.plan import Plan
from mlcd.trial.trial import Failure, FailureKind, Learned, Load, Measurement
from mlcd.trial.watched import Watch
from mlcd.units import Usd

SCHEMAS = (2, 3, 4, 5)
SMALL, LARGE = Config.deployment("c5.small", 1), Config.deployment("c5.small", 4)
KILLS = 15


# ---- expected values of the old rows


def header(run_id: str, kind: Kind, *, simulated: bool = True) -> Header:
    return Header(
        run_id=run_id,
        created="2026-08-01T10:00:00+00:00",
        kind=kind,
        cloud="sim/aws",
        simulated=simulated,
        strategy="heterbo",
        seed=7,
        version="0.1.0",
        catalog_date="2026-08-01",
        parallel=2,
    )


PROBLEM = Problem(
    name="tiny",
    work_samples=2e6,
    space=Space(
        (
            Knob(
                name="instance",
                values=("c5.small",),
                features={"c5.small": (1.0, 2.0)},
                log2_sizes={"c5.small": 4.0},
                kinds={"c5.small": "cpu"},
            ),
            Knob(name="nodes", values=(1, 4)),
        ),
        (SMALL, LARGE),
    ),
    goal=Goal(minimize=Objective.TIME, budget=Usd.of(9)),
    usd_per_hour=(Usd.of(1), Usd.of(4)),
    trial=TrialPolicy(seconds=300.0, retries=2),
    max_trials=12,
    noise=0.01,
    assurance=0.99,
    stretch=(1.0, 1.5),
    blueprint=Blueprint(flops_per_sample=1e9, parameter_bytes=1e8, batch=512, machines={"c5.small": (4e9, 1.25e9)}),
    keeps_work=True,
    work_error=0.25,
    target=Target(metric="accuracy", value=0.9),
)
LOAD = Load(p50_seconds=0.01, p95_seconds=0.02, p99_seconds=0.03, requests=500, errors=1, memory_gib=1.5)
VERDICT = Verdict(
    stopped="enough",
    search_seconds=1234.5,
    choice=Plan(config=SMALL, seconds=9.5, usd=Usd(7), worst_seconds=12.5, worst_usd=Usd(8)),
    naive=(
        Naive(
            label="one",
            plan=Plan(config=LARGE, seconds=9.5, usd=Usd(7), worst_seconds=12.5, worst_usd=Usd(8)),
            measured=False,
        ),
    ),
    relaxations=(Relaxation(text="more", budget=Usd(5)),),
)


def measurement(schema: int) -> Measurement:
    first = Measurement(
        config=SMALL,
        attempt=1,
        samples_per_second=12.5,
        relative_error=0.01,
        iterations=50,
        startup_seconds=40.0,
        seconds=600.0,
        usd=Usd(166_667),
        extended=True,
    )
    if schema > 2:
        first = replace(first, reached_samples=700.0, utilisation=0.5)
    if schema > 3:
        first = replace(first, load=LOAD, noise_scale=33.0, learned=(Learned(10.0, 0.5), Learned(20.0, 0.75)))
    return first


def trial(number: int, config: Config, outcome: Outcome | None) -> Step:
    started = 600.0 * (number - 1)
    return Step(
        number=number,
        round=number,
        role=Role.TRIAL,
        authorisation=Authorisation(choice=config, attempt=1, usd=Usd.of(2), seconds=1020.0),
        reason="because",
        usd_per_hour=Usd.of(1),
        started_seconds=started,
        started_at=1000.0 + started,
        outcome=outcome,
    )


def final(
    number: int, attempt: int, role: Role, config: Config, started_seconds: float, outcome: Attempt | None
) -> Step:
    return Step(
        number=number,
        round=number,
        role=role,
        authorisation=Authorisation(choice=config, attempt=attempt, usd=Usd.of(3), seconds=99.5),
        reason="",
        usd_per_hour=PROBLEM.price(config),
        started_seconds=started_seconds,
        started_at=3000.0 + attempt,
        outcome=outcome,
    )


def train_run(run_id: str, schema: int, *, simulated: bool) -> Run[Problem]:
    reached = schema > 2
    failure = Failure(
        config=LARGE,
        attempt=1,
        kind=FailureKind.HANG,
        message="silent",
        seconds=5.5,
        usd=Usd(9),
        reached_samples=1.0 if reached else 0.0,
    )
    lost = Attempt(config=LARGE, seconds=1.5, usd=Usd(11), ending=Ending.LOST)
    done = Attempt(config=SMALL, seconds=2.5, usd=Usd(12))
    if reached:
        lost = replace(lost, reached_samples=70.0, samples_per_second=3.5, message="mlcd died")
        done = replace(done, reached_samples=90.0)
    starts = (1234.5, 1236.0) if simulated else (2001.0, 2002.0)
    return Run(
        header=header(run_id, Kind.TRAIN, simulated=simulated),
        problem=PROBLEM,
        status=Status.DONE,
        steps=(
            trial(1, SMALL, measurement(schema)),
            trial(2, LARGE, failure),
            trial(3, LARGE, None),
            final(4, 1, Role.TRAINING, LARGE, starts[0], lost),
            final(5, 2, Role.TRAINING, SMALL, starts[1], done),
        ),
        verdict=VERDICT,
    )


def serve_run(run_id: str, schema: int) -> Run[Problem]:
    facts = ServingFacts(
        model="model.onnx",
        scenario="poisson",
        headroom=0.1,
        verify_seconds=60.0,
        resemblance=Resemblance(nearest=(("resnet50", 0.9), ("vgg", 0.5)), covered=0.8, unseen=("Foo",), source="h200"),
        notes=("no int8",),
    )
    moved = Attempt(
        config=SMALL,
        seconds=1.5,
        usd=Usd(11),
        ending=Ending.MOVED,
        samples_per_second=8.5,
        message="too slow",
        load=LOAD,
    )
    return Run(
        header=replace(header(run_id, Kind.SERVE, simulated=False), serving=facts),
        problem=replace(PROBLEM, verify_seconds=90.0),
        steps=(
            trial(1, SMALL, measurement(schema)),
            final(2, 1, Role.VERIFICATION, SMALL, 2001.0, moved),
            final(3, 2, Role.VERIFICATION, LARGE, 2002.0, None),
        ),
        verdict=VERDICT,
    )


def serverless_run(run_id: str, schema: int, *, simulated: bool) -> Run[FunctionProblem]:
    fleet = Fleet(3, 1024, 0.5 if schema > 4 else 1.0)
    phase = Phase(mean_seconds=1.0, max_seconds=2.0)
    done = Epoch(
        number=1,
        fleet=fleet,
        loss=0.5,
        seconds=9.5,
        usd=Usd(70),
        fetch=phase,
        compute=phase,
        update=phase,
        calls=3,
        failed=1,
        cold_starts=2,
        cpu_share=0.25,
    )
    failed = FailedEpoch(number=2, fleet=fleet, seconds=4.5, usd=Usd(70), message="broken")
    starts = (0.0, 9.5, 14.0) if simulated else (0.0, 10.0, 20.0)
    outcomes: tuple[Epoch | FailedEpoch | None, ...] = (done, failed, None)
    prices = FunctionPrices(
        name="made-up",
        usd_per_gb_second=Decimal("0.0000166667"),
        usd_per_request=Decimal("0.0000002"),
        granule_seconds=Decimal("0.001"),
        usd_per_put=Decimal("0.000005"),
        usd_per_get=Decimal("0.0000004"),
        memory_mb=(128, 10240, 1),
        limit_seconds=900.0,
        concurrency=1000,
        date=date(2026, 8, 1),
        source="a page",
        tier_usd_per_second={1024: Decimal("0.00002"), 2048: Decimal("0.00004")},
    )
    return Run(
        header=replace(
            header(run_id, Kind.SERVERLESS, simulated=simulated),
            functions=FunctionFacts(model="logistic", sync="bsp"),
        ),
        problem=FunctionProblem(
            name="bow",
            functions=(1, 2, 3, 7, 8, 10),
            memory_mb=(1024, 2048),
            samples=1000,
            batch=10,
            model_bytes=4000,
            target_loss=0.3,
            max_epochs=20,
            goal=Goal(minimize=Objective.COST, deadline_seconds=500.0),
            prices=prices,
        ),
        status=Status.OVERRAN,
        steps=tuple(
            Step(
                number=number,
                round=number,
                role=Role.EPOCH,
                authorisation=Authorisation(choice=fleet, attempt=1, usd=Usd.of(4), seconds=77.5),
                reason="",
                usd_per_hour=None,
                started_seconds=start,
                started_at=50.0 + 10 * number,
                outcome=outcome,
            )
            for number, (start, outcome) in enumerate(zip(starts, outcomes, strict=True), start=1)
        ),
        verdict=Verdict(
            stopped="no budget",
            smallest_budget=Usd(8),
            instances=(PlainInstance(name="c5", usd_per_hour=Usd(5), seconds=1.5, usd=Usd(7)),),
        ),
    )


def version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("PRAGMA user_version").fetchone()[0])


# ---- tests


@pytest.mark.parametrize("simulated", [True, False])
@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_schema_of_0_1_opens_with_all_its_data(tmp_path: Path, schema: int, simulated: bool) -> None:
    old = OldHome(tmp_path, schema)
    old.train("t", simulated=simulated)
    if schema > 3:
        old.serve("s")
    old.serverless("f", simulated=simulated)
    old.close()
    for _ in range(2):  # migrated, and opened again
        with Store(tmp_path) as store:
            assert store.load("t") == train_run("t", schema, simulated=simulated)
            assert store.load("f") == serverless_run("f", schema, simulated=simulated)
            if schema > 3:
                assert store.load("s") == serve_run("s", schema)
                assert store.spec("s") == old_rows.SPEC
            assert store.spec("t") == store.spec("f") == old_rows.SPEC
            assert store.calls("f") == (
                FunctionCall(
                    epoch=1,
                    shard=0,
                    attempt=1,
                    memory_mb=1024,
                    seconds=8.5,
                    usd=Decimal("0.0000123456789"),
                    fetch_seconds=1.0,
                    compute_seconds=2.0,
                    update_seconds=3.0,
                    waited_seconds=2.5,
                    puts=1,
                    gets=2,
                    cold=True,
                    ending="done",
                    message="ü",
                ),
            )
            lines = {line.run_id: line for line in store.runs()}
            assert (lines["t"].trials, lines["t"].spent) == (2, Usd(166_667 + 9 + 11 + 12))
            assert (lines["f"].trials, lines["f"].spent) == (2, Usd(140))
    with closing(sqlite3.connect(tmp_path / FILE)) as db:
        tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()}
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []
    assert tables == set(TABLES)
    assert version(tmp_path / FILE) == SCHEMA


@pytest.mark.parametrize("schema", [2, 3])
def test_a_home_older_than_functions_has_no_epoch_tables(tmp_path: Path, schema: int) -> None:
    old = OldHome(tmp_path, schema, epochs=False)
    old.train("t")
    old.close()
    with Store(tmp_path) as store:
        assert store.load("t") == train_run("t", schema, simulated=True)


def test_an_empty_home_opens(tmp_path: Path) -> None:
    OldHome(tmp_path, 5).close()
    with Store(tmp_path) as store:
        assert store.runs() == ()


def test_an_infinite_number_as_0_1_wrote_it(tmp_path: Path) -> None:
    old = OldHome(tmp_path, 5)
    old.run("t", "train", old_rows.BATCHED, {}, simulated=True)
    old.close()
    with Store(tmp_path) as store:
        problem = store.load("t").problem
        assert isinstance(problem, Problem)
        assert problem.batching == Batching(reference=64, noise_scale=float("inf"))


def test_an_epoch_next_to_the_parameters_is_read_in_both_forms() -> None:
    epoch = serverless_run("f", 5, simulated=True).epochs[0]
    today = codec.to_json(epoch)
    assert epoch_from_0_1(today) == today
    phase = {"mean_seconds": 1.0, "max_seconds": 2.0}
    before = {
        "kind": "done", "number": 1, "functions": 3, "memory_mb": 1024, "share": 0.5, "seconds": 9.5, "usd_micros": 70,
        "loss": 0.5, "fetch": phase, "compute": phase, "update": phase, "calls": 3, "failed": 1, "cold_starts": 2,
        "memory_share": None, "cpu_share": 0.25,
    }  # fmt: skip
    assert codec.from_json(epoch_from_0_1(before), Epoch) == epoch


def test_a_migrated_run_continues(tmp_path: Path) -> None:
    old = OldHome(tmp_path, 5)
    old.serverless("f", ended=False)
    old.close()
    with Store(tmp_path) as store:
        third = store.load("f").steps[2]
        done = replace(serverless_run("f", 5, simulated=True).epochs[0], number=2)
        store.end("f", third.ended(done))
        store.conclude("f", Verdict(stopped="done"))
        store.finish("f", Status.DONE, None)
        run = store.load("f")
        assert (run.in_flight, run.stopped, run.status) == ((), "done", Status.DONE)
        assert len(run.epochs) == 2


def test_the_home_is_copied_before_it_is_migrated(tmp_path: Path) -> None:
    old = OldHome(tmp_path, 4)
    old.train("t")
    before = list(old.db.iterdump())
    old.close()
    Store(tmp_path).__exit__(None, None, None)
    backup = tmp_path / f"{FILE}.schema4.bak"
    with closing(sqlite3.connect(backup)) as db:
        assert list(db.iterdump()) == before
    assert version(backup) == 4
    assert not list(tmp_path.glob("*.partial*"))


def test_a_copy_that_is_there_is_kept_and_a_partial_one_is_replaced(tmp_path: Path) -> None:
    old = OldHome(tmp_path, 5)
    old.train("t")
    old.close()
    backup = tmp_path / f"{FILE}.schema5.bak"
    backup.write_bytes(b"mine")
    Store(tmp_path).__exit__(None, None, None)
    assert backup.read_bytes() == b"mine"

    other = tmp_path / "other"
    OldHome(other, 5).close()
    (other / f"{FILE}.schema5.bak.partial").write_bytes(b"half")
    Store(other).__exit__(None, None, None)
    assert version(other / f"{FILE}.schema5.bak") == 5
    assert not list(other.glob("*.partial*"))


def test_data_that_no_version_wrote_leaves_the_home_as_it_was(tmp_path: Path) -> None:
    old = OldHome(tmp_path, 5)
    old.train("fine")
    old.run("odd", "train", {"name": "what"}, {}, simulated=True)
    before = list(old.db.iterdump())
    old.close()
    with pytest.raises(StoreError, match=r"run odd cannot be migrated to this version .*; the file is unchanged"):
        Store(tmp_path)
    assert version(tmp_path / FILE) == 5
    with closing(sqlite3.connect(tmp_path / FILE)) as db:
        assert list(db.iterdump()) == before


@pytest.mark.parametrize(
    ("schema", "statement", "message"),
    [
        (5, "UPDATE sqlite_master SET sql = replace(sql, 'number', 'numbem')", r"run t cannot be migrated .*'number'"),
        (5, "UPDATE sqlite_master SET sql = replace(sql, ', at ', ', ax ')", r"is damaged: .* at"),
        (5, "UPDATE runs SET run_id = '../../t'", "is damaged: a run has a name that mlcd does not give"),
        (5, "UPDATE runs SET run_id = ''", "is damaged: a run has a name that mlcd does not give"),
        (
            7,
            "UPDATE runs SET run_id = '/' WHERE run_id = 'two'",
            "is damaged: a run has a name that mlcd does not give",
        ),
        (7, "UPDATE sqlite_master SET sql = replace(sql, 'status  TEXT', 'state  TEXT')", "is damaged: "),
    ],
)
def test_an_old_home_with_damaged_values_is_called_damaged_and_left_as_it_was(
    tmp_path: Path, schema: int, statement: str, message: str
) -> None:
    if schema == 7:
        schema_7(tmp_path)
    else:
        old = OldHome(tmp_path, schema)
        old.train("t")
        old.close()
    with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as db:
        db.execute("PRAGMA writable_schema = ON")
        assert db.execute(statement).rowcount
    with pytest.raises(StoreError, match=message):
        Store(tmp_path)
    assert version(tmp_path / FILE) == schema


def test_an_old_run_that_its_index_has_lost_is_named(tmp_path: Path) -> None:
    old = OldHome(tmp_path, 5)
    old.train("t")
    old.close()
    with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as db:
        db.execute("PRAGMA writable_schema = ON")
        (empty,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_calls_1'").fetchone()
        db.execute("UPDATE sqlite_master SET rootpage = ? WHERE name = 'sqlite_autoindex_runs_1'", (empty,))
        db.execute("DELETE FROM sqlite_master WHERE name = 'calls'")
        db.execute("DELETE FROM sqlite_master WHERE name = 'sqlite_autoindex_calls_1'")
    with pytest.raises(StoreError, match=r"run t cannot be migrated .*its row is not in the index"):
        Store(tmp_path)


def test_a_home_in_which_an_older_mlcd_works_is_left_alone(tmp_path: Path) -> None:
    old = OldHome(tmp_path, 5)
    old.train("t")
    old.close()
    with (
        FileLocks(tmp_path, lambda _run_id: True).held("t"),
        pytest.raises(StoreError, match=r"an older mlcd is working on run t.*wait for that run"),
    ):
        Store(tmp_path)
    assert version(tmp_path / FILE) == 5
    Store(tmp_path).__exit__(None, None, None)
    assert version(tmp_path / FILE) == SCHEMA


# ---- other processes

RUNS = 40


@pytest.fixture(scope="module")
def large_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough runs to make the migration slow."""
    old = OldHome(tmp_path_factory.mktemp("large") / "home", 5)
    old.db.execute("BEGIN")
    for number in range(RUNS):
        old.train(f"t{number}")
        old.serve(f"s{number}")
        old.serverless(f"f{number}")
    old.db.execute("COMMIT")
    old.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return old.close()


def check_all(home: Path) -> None:
    with Store(home) as store:
        for number in (0, random.randrange(RUNS), RUNS - 1):
            assert store.load(f"t{number}") == train_run(f"t{number}", 5, simulated=True)
            assert store.load(f"s{number}") == serve_run(f"s{number}", 5)
            assert store.load(f"f{number}") == serverless_run(f"f{number}", 5, simulated=True)
        assert len(store.runs()) == 3 * RUNS


def in_a_child(work: Callable[[], None]) -> int:
    """A child process that only runs this function."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return child


@pytest.mark.slow
def test_killed_at_any_instant_it_opens_and_has_everything(tmp_path: Path, large_home: Path) -> None:
    home = shutil.copytree(large_home, tmp_path / "timed")
    begun = time.perf_counter()
    Store(home).__exit__(None, None, None)
    whole_seconds = time.perf_counter() - begun
    rng, killed = random.Random(13), 0
    for number in range(KILLS):
        home = shutil.copytree(large_home, tmp_path / str(number))
        child = in_a_child(lambda home=home: Store(home).__exit__(None, None, None))  # type: ignore[misc]
        time.sleep(rng.uniform(0, whole_seconds))
        os.kill(child, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        killed += code == -signal.SIGKILL
        if code == 0:  # the machine is quicker than it was
            whole_seconds *= 0.7
        backup = home / f"{FILE}.schema5.bak"
        if backup.exists():
            with closing(sqlite3.connect(backup)) as db:
                assert db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
                assert db.execute("SELECT count(*) FROM runs").fetchone()[0] == 3 * RUNS
        assert version(home / FILE) in (5, SCHEMA)
        check_all(home)
        assert version(backup) == 5
        assert not list(home.glob("*.partial*"))
        shutil.rmtree(home)
    assert killed > KILLS / 3


def test_processes_that_open_an_old_home_at_once_all_succeed(tmp_path: Path, large_home: Path) -> None:
    for number in range(3):
        home = shutil.copytree(large_home, tmp_path / str(number))
        children = [in_a_child(lambda home=home: check_all(home)) for _ in range(4)]  # type: ignore[misc]
        assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 4
        check_all(home)


# ---- schema 7, which counted a run's rows in its statuses


def schema_7(folder: Path) -> None:
    """Two runs as schema 7 had them: the last status of each has the count of its rows."""
    with Store(folder) as store:
        for name in ("one", "two"):
            store.add(Run(header=header(name, Kind.TRAIN), problem=PROBLEM), spec={})
            store.start(name, [trial(1, SMALL, None)])
            store.end(name, trial(1, SMALL, measurement(5)))
            store.set_status(name, Status.INTERRUPTED)
    with closing(sqlite3.connect(folder / FILE, isolation_level=None)) as db:
        db.row_factory = sqlite3.Row
        db.execute("ALTER TABLE statuses ADD COLUMN row_count INTEGER")
        for row in map(dict, db.execute("SELECT * FROM statuses").fetchall()):
            row["row_count"] = 2 if row["status"] == "running" else 5
            values = (row["row_count"], digest(row), row["id"])
            db.execute("UPDATE statuses SET row_count = ?, digest = ? WHERE id = ?", values)
        db.execute("DROP TABLE row_counts")
        db.execute("ALTER TABLE steps_started DROP COLUMN watch")
        db.execute("PRAGMA user_version = 7")


@pytest.mark.parametrize(
    ("statement", "damage"),
    [
        ("", ""),
        ("DELETE FROM steps_ended WHERE run_id = 'two'", "1 of its 5 rows are missing"),
        ("UPDATE statuses SET status = 'done' WHERE run_id = 'two'", "its status is not as mlcd wrote it"),
        ("UPDATE steps_ended SET digest = NULL WHERE run_id = 'two'", "the outcome of step 1 is not as mlcd wrote it"),
    ],
)
def test_a_home_of_schema_7_opens_and_what_was_damaged_is_still_known(
    tmp_path: Path, statement: str, damage: str
) -> None:
    schema_7(tmp_path)
    with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as db:
        db.execute(statement)
    with Store(tmp_path) as store:
        assert {line.run_id: line.damage for line in store.runs()} == {"one": "", "two": damage}
        assert [(step.number, step.watch) for step in store.load("one").ended] == [(1, None)]
        store.set_status("one", Status.RUNNING)
        assert store.load("one").status is Status.RUNNING
    assert version(tmp_path / FILE) == SCHEMA
    assert version(tmp_path / f"{FILE}.schema7.bak") == 7


def test_a_watch_is_stored_with_its_step(tmp_path: Path) -> None:
    problem = make_problem()
    config = problem.space.configs[0]
    back = Plan(config=config, seconds=10.0, usd=Usd(5), worst_seconds=12.0, worst_usd=Usd(6))
    with Store(tmp_path) as store:
        run = driven(make_engine(problem, SyntheticCloud(), store), store)
        for number, fallback in enumerate((back, None), start=len(run.steps) + 1):
            watch = Watch(seconds=7.5, usd=Usd(3), chance=0.875, fallback=fallback)
            step = replace(run.steps[-1], number=number, round=number, outcome=None, ended_seconds=None, watch=watch)
            store.start(run.run_id, (step,))
            assert store.load(run.run_id).steps[-1].watch == watch


@pytest.mark.parametrize("is_new", [True, False])
def test_a_store_that_another_process_makes_or_migrates_meanwhile_is_not_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_new: bool
) -> None:
    if not is_new:
        schema_7(tmp_path)
    others: list[int | None] = []

    def late(db: sqlite3.Connection) -> int | None:
        if not others:
            others.append(None)
            with Store(tmp_path):
                pass
        others.append(schema_in(db))
        return others[-1]

    monkeypatch.setattr("mlcd.store.sqlite.schema_in", late)
    with Store(tmp_path) as store:
        assert len(store.runs()) == (0 if is_new else 2)
    assert version(tmp_path / FILE) == SCHEMA
