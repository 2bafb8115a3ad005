import math
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from mlcd.catalog.functions import function_prices
from mlcd.engine.checked import MOST_MICROS
from mlcd.errors import BadInput, RunBusy, StoreError
from mlcd.functions import FunctionProblem
from mlcd.goal import Goal, Objective
from mlcd.problem import Problem
from mlcd.run.attempt import Attempt, Ending
from mlcd.run.authorisation import Authorisation
from mlcd.run.findings import Findings
from mlcd.run.header import FunctionFacts, Header
from mlcd.run.kind import Kind
from mlcd.run.run import AnyRun, Run
from mlcd.run.step import Role, Step
from mlcd.run.verdict import Naive, PlainInstance, Relaxation, Verdict
from mlcd.space import Config, Knob, Space
from mlcd.store.records import Records
from mlcd.store.rows import insert, seal
from mlcd.store.sqlite import SqliteDatabase
from mlcd.store.store import FILE, SCHEMA, URL_VARIABLE, Store, home
from mlcd.trial.call import FunctionCall
from mlcd.trial.epoch import Epoch, FailedEpoch, Fleet, Phase
from mlcd.trial.outcome import Status
from mlcd.trial.plan import Plan
from mlcd.trial.trial import Failure, FailureKind, Measurement
from mlcd.units import Usd

SMALL = Config.deployment("c5.small", 1)
LARGE = Config.deployment("c5.small", 4)
FASTEST = Goal(minimize=Objective.TIME)
FLEET = Fleet(3, 1024, 0.5)
FUNCTIONS = FunctionProblem(
    name="bow",
    functions=(1, 2, 3, 7, 8, 10),
    memory_mb=(1024, 2048),
    samples=1000,
    batch=10,
    model_bytes=4000,
    target_loss=0.3,
    max_epochs=20,
    goal=Goal(minimize=Objective.TIME, budget=Usd.of(3)),
    prices=function_prices("aws-lambda"),
    first_loss=math.log(2),
)


def nodes_problem(*, goal: Goal = FASTEST, work_known: bool = True) -> Problem:
    knobs = (
        Knob(name="instance", values=("c5.small",), features={"c5.small": (1.0, 2.0)}, log2_sizes={"c5.small": 4.0}),
        Knob(name="nodes", values=(1, 4)),
    )
    space = Space(knobs, (SMALL, LARGE))
    prices = (Usd.of(1), Usd.of(4))
    return Problem(
        name="tiny", work_samples=2e6, space=space, goal=goal, usd_per_hour=prices, work_known=work_known, noise=0.01
    )


def header(run_id: str, kind: Kind = Kind.TRAIN) -> Header:
    return Header(
        run_id=run_id,
        created="2026-08-01T10:00:00+00:00",
        kind=kind,
        cloud="sim/aws",
        simulated=True,
        strategy="heterbo",
        seed=7,
        version="0.2.0",
        catalog_date="2026-08-01",
        parallel=2,
        functions=FunctionFacts(model="logistic", sync="bsp") if kind is Kind.SERVERLESS else None,
    )


def add(store: Store, run_id: str, problem: Problem | None = None) -> Run[Problem]:
    run = Run(header=header(run_id), problem=problem or nodes_problem())
    store.add(run, spec={"a": [1, "ü"]})
    return run


def step(number: int, *, role: Role = Role.TRIAL, config: Config = SMALL, attempt: int = 1, at: float = 1000.0) -> Step:
    return Step(
        number=number,
        round=number,
        role=role,
        authorisation=Authorisation(choice=config, attempt=attempt, usd=Usd.of(1), seconds=1020.0),
        reason="because",
        usd_per_hour=Usd.of(1),
        started_seconds=600.0 * (number - 1),
        started_at=at,
    )


def measured(config: Config = SMALL, speed: float = 12.5, *, total_samples: float | None = None) -> Measurement:
    return Measurement(
        config=config,
        attempt=1,
        samples_per_second=speed,
        relative_error=0.01,
        iterations=50,
        startup_seconds=40.0,
        seconds=600.0,
        usd=Usd(166_667),
        total_samples=total_samples,
    )


def epoch_step(number: int) -> Step:
    return Step(
        number=number,
        round=number,
        role=Role.EPOCH,
        authorisation=Authorisation(choice=FLEET, attempt=1, usd=Usd.of(1), seconds=math.inf),
        reason="first",
        usd_per_hour=None,
        started_seconds=0.0,
        started_at=5.0,
    )


def epoch(number: int) -> Epoch:
    phase = Phase(mean_seconds=1.0, max_seconds=2.0)
    return Epoch(
        number=number,
        fleet=FLEET,
        loss=0.5,
        seconds=9.0,
        usd=Usd(70),
        fetch=phase,
        compute=phase,
        update=phase,
        calls=3,
    )


def call(shard: int, attempt: int = 1) -> FunctionCall:
    return FunctionCall(
        epoch=1,
        shard=shard,
        attempt=attempt,
        memory_mb=1024,
        seconds=8.5,
        usd=Decimal("0.0000123456789012"),
        fetch_seconds=1.0,
        compute_seconds=2.0,
        update_seconds=3.0,
        waited_seconds=2.5,
        puts=1,
        gets=2,
        cold=shard == 0,
        ending="done",
        peak_mb=None if shard else 700.5,
        message="ü",
    )


def sqlite_of(store: Store) -> sqlite3.Connection:
    """The connection of a store in a file."""
    assert isinstance(store._database, SqliteDatabase)
    return store._database.db


def edit(store: Store, table: str, column: str, old: str, new: str) -> None:
    """Change rows as another version of mlcd would have written them: with the digests of what they say now."""
    sqlite_of(store).execute(f"UPDATE {table} SET {column} = replace({column}, ?, ?), digest = NULL", (old, new))
    seal(sqlite_of(store))


@pytest.fixture(params=["sqlite", "postgres"])
def opened(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Store]:
    """Opens the same store again and again, on each database: one contract for both."""
    if request.param == "postgres":
        monkeypatch.setenv(URL_VARIABLE, request.getfixturevalue("team"))
        monkeypatch.setattr("mlcd.store.store._me", lambda: "")
    return lambda: Store(tmp_path)


@pytest.fixture
def store(opened: Callable[[], Store]) -> Iterator[Store]:
    with opened() as each:
        yield each


@pytest.fixture
def file_store(tmp_path: Path) -> Iterator[Store]:
    """A store in a file: for tests that reach into it."""
    with Store(tmp_path) as each:
        yield each


def test_a_run_round_trips(store: Store) -> None:
    goal = Goal(minimize=Objective.KNEE, budget=Usd.of(9), deadline_seconds=7000.5)
    run = add(store, "a-run", nodes_problem(goal=goal))
    assert store.load("a-run") == run
    assert store.spec("a-run") == {"a": [1, "ü"]}
    first, second = step(1), step(2, at=2000.0)
    store.start("a-run", [first, second])
    run = run.with_started([first, second])
    assert store.load("a-run") == run
    failed = Failure(
        config=SMALL, attempt=1, kind=FailureKind.HANG, message="silent", seconds=5.0, usd=Usd(9), reached_samples=1.0
    )
    for number, outcome in ((2, measured()), (1, failed)):
        run = run.with_ended(number, outcome)
        store.end("a-run", run.steps[number - 1])
        assert store.load("a-run") == run
    plan = Plan.of(run.problem, measured())
    verdict = Verdict(
        stopped="enough",
        search_seconds=5.0,
        choice=plan,
        naive=(Naive(label="x", plan=plan, measured=False),),
        relaxations=(Relaxation(text="more", budget=Usd.of(3)), Relaxation(text="longer", deadline_seconds=60.0)),
    )
    store.conclude("a-run", Verdict(stopped="first thought"))
    store.conclude("a-run", verdict)
    run = replace(run, verdict=verdict)
    assert store.load("a-run") == run
    attempts = (
        Attempt(
            config=SMALL,
            seconds=1.5,
            usd=Usd.of(1),
            ending=Ending.LOST,
            reached_samples=7.0,
            samples_per_second=3.0,
            message="mlcd died",
            next_plan=plan,
            noise_scale=math.inf,
        ),
        Attempt(config=SMALL, seconds=3.5, usd=Usd.of(2)),
    )
    for number, attempt in enumerate(attempts, start=3):
        started = step(number, role=Role.TRAINING, attempt=number - 2)
        store.start("a-run", [started])
        store.end("a-run", started.ended(attempt))
        run = run.with_started([started]).with_ended(number, attempt)
    store.set_status("a-run", Status.INTERRUPTED)
    assert store.status("a-run") is Status.INTERRUPTED
    store.finish("a-run", Status.DONE, Findings())
    run = replace(run, status=Status.DONE, findings=Findings())
    assert store.load("a-run") == run
    (line,) = store.runs()
    assert (line.run_id, line.status, line.kind) == ("a-run", Status.DONE, Kind.TRAIN)
    assert (line.trials, line.spent) == (2, run.spent)


def test_a_serverless_run_round_trips_with_its_calls(store: Store) -> None:
    run: AnyRun = Run(header=header("f", Kind.SERVERLESS), problem=FUNCTIONS)
    store.add(run, spec={})
    assert store.kind("f") is Kind.SERVERLESS
    first, second, third = epoch_step(1), epoch_step(2), epoch_step(3)
    store.start("f", [first])
    store.end("f", first.ended(epoch(1)), [call(1), call(0), call(0, 2)])
    store.start("f", [second])
    broken = FailedEpoch(number=2, fleet=FLEET, seconds=1.0, usd=Usd(5), message="m", hopeless=True, lost=True)
    store.end("f", second.ended(broken))
    store.start("f", [third])
    instances = (PlainInstance(name="c5", usd_per_hour=Usd(5), seconds=1.0, usd=Usd(7)),)
    verdict = Verdict(stopped="budget", smallest_budget=Usd(8), instances=instances)
    store.conclude("f", verdict)
    steps = (first.ended(epoch(1)), second.ended(broken), third)
    assert store.load("f") == replace(run, steps=steps, verdict=verdict)
    assert store.calls("f") == (call(0), call(0, 2), call(1))
    assert store.runs()[0].trials == 2
    assert store.runs()[0].spent == Usd(75)


def test_a_new_run_has_no_steps(store: Store) -> None:
    with pytest.raises(ValueError, match="a new run has no steps"):
        store.add(Run(header=header("r"), problem=nodes_problem(), steps=(step(1),)), spec={})
    assert store.runs() == ()


def test_work_that_the_job_reported_is_part_of_the_problem(store: Store) -> None:
    add(store, "r", nodes_problem(work_known=False))
    assert not store.load("r").problem.work_known  # type: ignore[union-attr]
    store.start("r", [step(1)])
    store.end("r", step(1).ended(measured(total_samples=500.0)))
    problem = store.load("r").problem
    assert isinstance(problem, Problem)
    assert (problem.work_known, problem.work_samples) == (True, 500.0)


def test_nothing_is_written_twice(store: Store) -> None:
    add(store, "once")
    store.start("once", [step(1)])
    store.end("once", step(1).ended(measured()))
    store.finish("once", Status.DONE, Findings())
    with pytest.raises(StoreError, match="UNIQUE"):
        add(store, "once")
    with pytest.raises(StoreError, match="UNIQUE"):
        store.start("once", [step(1)])
    with pytest.raises(StoreError, match="UNIQUE"):
        store.end("once", step(1).ended(measured(speed=99.0)))
    with pytest.raises(StoreError, match="UNIQUE"):
        store.finish("once", Status.OVERRAN, Findings())
    run = store.load("once")
    assert run.status is Status.DONE
    assert run.steps == (step(1).ended(measured()),)


def test_a_round_is_all_or_nothing(store: Store) -> None:
    add(store, "round")
    with pytest.raises(StoreError):
        store.start("round", [step(1), step(1)])
    assert store.load("round").steps == ()


def test_an_end_and_its_calls_are_all_or_nothing(store: Store) -> None:
    store.add(Run(header=header("f", Kind.SERVERLESS), problem=FUNCTIONS), spec={})
    store.start("f", [epoch_step(1)])
    with pytest.raises(StoreError, match="UNIQUE"):
        store.end("f", epoch_step(1).ended(epoch(1)), [call(0), call(0)])
    assert (store.load("f").steps, store.calls("f")) == ((epoch_step(1),), ())


def test_an_end_needs_a_start_and_an_outcome(store: Store) -> None:
    add(store, "r")
    with pytest.raises(StoreError, match="FOREIGN KEY"):
        store.end("r", step(5).ended(measured()))
    with pytest.raises(ValueError, match="step 5 has no outcome"):
        store.end("r", step(5))


def test_a_step_needs_a_run(store: Store) -> None:
    with pytest.raises(StoreError, match="FOREIGN KEY"):
        store.start("nobody", [step(1)])


def test_unreadable_data_names_run_and_field(file_store: Store) -> None:
    add(file_store, "r")
    file_store.start("r", [step(1)])
    file_store.end("r", step(1).ended(measured()))
    edit(file_store, "steps_ended", "outcome", "iterations", "rounds")
    with pytest.raises(StoreError, match=rf"{FILE}: run r: outcome of step 1: iterations: is missing; .* upgrade mlcd"):
        file_store.load("r")
    edit(file_store, "runs", "header", '"seed":7', '"seed":"x"')
    with pytest.raises(StoreError, match="run r: header: seed: invalid literal"):
        file_store.load("r")
    assert "header: seed: invalid literal" in file_store.runs()[0].damage


def test_fields_of_a_later_version_are_ignored(file_store: Store) -> None:
    run = add(file_store, "r")
    edit(file_store, "runs", "header", '"seed":7', '"seed":7,"mood":[1]')
    assert file_store.load("r") == run


def test_the_newest_run_comes_first_and_part_of_a_name_is_enough(store: Store) -> None:
    add(store, "resnet-aa1")
    add(store, "resnet-ab2")
    assert [line.run_id for line in store.runs()] == ["resnet-ab2", "resnet-aa1"]
    assert store.load("resnet-ab").run_id == "resnet-ab2"
    assert store.status("resnet-ab") is Status.RUNNING
    with pytest.raises(BadInput, match="'resnet-a' matches 2 runs"):
        store.load("resnet-a")
    with pytest.raises(BadInput, match="`mlcd runs` lists them"):
        store.load("zzz")
    with pytest.raises(BadInput, match="did you mean 'resnet-ab2'"):
        store.spec("resmet-ab2")
    with pytest.raises(BadInput, match="there is no run"):
        store.kind("\udcff\udcfe")


def test_runs_are_listed_by_when_they_began_and_found_by_how_their_name_begins(store: Store) -> None:
    for name, hour in (("second", 11), ("third", 12), ("first", 10)):
        made = replace(header(name), created=f"2026-08-01T{hour}:00:00+00:00")
        store.add(Run(header=made, problem=nodes_problem()), spec={})
    assert [line.run_id for line in store.runs()] == ["third", "second", "first"]
    assert store.load("f").run_id == "first"
    with pytest.raises(BadInput, match="there is no run 'irst'"):
        store.load("irst")


def test_only_as_many_runs_are_read_as_are_asked_for(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        add(store, f"run-{number}")
    read: list[str] = []
    summary = Records.summary_or_damage
    monkeypatch.setattr(
        Records,
        "summary_or_damage",
        lambda self, name: read.append(name) or summary(self, name),  # type: ignore[func-returns-value]
    )
    found = store.newest(3)
    assert next(found).run_id == "run-4"
    assert read == ["run-4"]
    store.remove("run-3")
    assert [line.run_id for line in found] == ["run-2"]
    assert store.count() == 4


def test_a_run_whose_costs_have_more_than_64_bits_is_listed_with_them(store: Store) -> None:
    add(store, "run-1")
    most = Usd(MOST_MICROS)
    for number in (1, 2, 3):
        began = step(number)
        failed = Failure(config=SMALL, attempt=1, kind=FailureKind.OVERRAN, message="", seconds=1.0, usd=most)
        store.start("run-1", [began])
        store.end("run-1", began.ended(failed))
    (line,) = store.runs()
    assert (line.damage, line.spent) == ("", Usd(3 * MOST_MICROS))
    assert line.spent == store.load("run-1").spent


def test_a_run_is_held_by_one_at_a_time(opened: Callable[[], Store]) -> None:
    with opened() as one, opened() as two:
        assert not one.is_live("r")
        with one.lock("r"), two.lock("other"), pytest.raises(RunBusy, match="run r is in use"), two.lock("r"):
            pytest.fail("held twice")
        with one.lock("r"):
            assert two.is_live("r")
        with two.lock("r"):
            pass
        assert not one.is_live("r")


def test_a_run_that_was_deleted_meanwhile_leaves_no_lock(opened: Callable[[], Store], tmp_path: Path) -> None:
    with opened() as store:
        add(store, "r")
        with store.lock("r"):
            pass
        assert (tmp_path / "locks" / "r.lock").exists()
        store.remove("r")
        with store.lock("r"):  # of a command that found the run before it was deleted
            pass
        assert not list((tmp_path / "locks").iterdir())


def test_what_was_recorded_is_on_the_disk(file_store: Store) -> None:
    assert sqlite_of(file_store).execute("PRAGMA synchronous").fetchone()[0] == 2, "FULL: it survives a power cut"
    assert sqlite_of(file_store).execute("PRAGMA journal_mode").fetchone()[0] == "wal"


def test_a_store_in_memory_needs_no_lock() -> None:
    with Store(None) as store, store.lock("r"), store.lock("r"):
        add(store, "r")
        assert store.runs()[0].run_id == "r"


def test_a_newer_schema_is_left_alone(tmp_path: Path) -> None:
    Store(tmp_path).__exit__(None, None, None)
    with closing(sqlite3.connect(tmp_path / FILE)) as db:
        db.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    with pytest.raises(StoreError, match=rf"newer mlcd \(schema {SCHEMA + 1}, this one knows {SCHEMA}\): upgrade"):
        Store(tmp_path)


def test_the_schema_before_the_first_release_is_left_alone(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / FILE)) as db:
        db.execute("PRAGMA user_version = 1")
    with pytest.raises(StoreError, match="before the first release"):
        Store(tmp_path)


def test_a_file_that_is_not_a_database_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"this is no database, it is a letter to my mother " * 40)
    with pytest.raises(StoreError, match=r"is damaged: it is not a database; `MLCD_HOME=.* mlcd runs --restore`"):
        Store(tmp_path)


def test_a_damaged_page_says_what_to_do(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        for number in range(20):
            add(store, f"run-{number}")
    with closing(sqlite3.connect(tmp_path / FILE)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.execute("PRAGMA journal_mode = DELETE")
    path = tmp_path / FILE
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xa5" * (len(data) - 4096)
    path.write_bytes(bytes(data))
    with (
        pytest.raises(StoreError, match=r"mlcd\.sqlite3 is damaged: .*`MLCD_HOME=.* mlcd runs --restore`"),
        Store(tmp_path) as store,
    ):
        store.runs()


def _fill(store: Store) -> None:
    for number in range(2000):
        add(store, f"more-{number}")


def test_a_full_disk_says_what_to_do_and_loses_nothing(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        run = add(store, "first")
        store.start("first", [step(1)])
        pages = sqlite_of(store).execute("PRAGMA page_count").fetchone()[0]
        sqlite_of(store).execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreError, match="the disk is full: free some space, then `mlcd resume`"):
            _fill(store)
        assert store.load("first").problem == run.problem
        sqlite_of(store).execute("PRAGMA max_page_count = 100000")
        store.end("first", step(1).ended(measured()))
    with Store(tmp_path) as store:
        assert len(store.load("first").trials) == 1


def test_a_home_that_cannot_be_used_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="set MLCD_HOME to a writable folder"):
        Store(tmp_path / "file" / "home")
    (tmp_path / "folder" / FILE).mkdir(parents=True)
    with pytest.raises(StoreError, match="it should be a file and is a folder"):
        Store(tmp_path / "folder")


def test_a_store_held_too_long_by_another_says_what_to_do(tmp_path: Path) -> None:
    with Store(tmp_path) as store, closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as other:
        sqlite_of(store).execute("PRAGMA busy_timeout = 1")
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="another mlcd process has locked it for too long"):
            add(store, "r")
        other.execute("ROLLBACK")
        add(store, "r")


def test_a_run_can_be_read_while_another_process_writes(tmp_path: Path) -> None:
    with Store(tmp_path) as store, closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as other:
        add(store, "r")
        other.execute("BEGIN IMMEDIATE")
        other.row_factory = sqlite3.Row
        insert(other, "statuses", [{"id": 2, "run_id": "r", "status": "done", "at": 1.0}])
        assert store.load("r").status is Status.RUNNING
        other.execute("COMMIT")
        assert store.load("r").status is Status.DONE


def test_what_cannot_be_stored_is_named(store: Store) -> None:
    add(store, "r")
    with pytest.raises(StoreError, match="a number is larger than can be stored"):
        store.start("r", [replace(step(1), round=2**64)])
    with pytest.raises(StoreError, match="a text has characters other than can be stored"):
        store.start("r", [replace(step(1), reason="\ud800")])
    assert store.load("r").steps == ()


def test_home_is_where_the_user_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "x"))
    assert home() == tmp_path / "x"
    monkeypatch.setenv("MLCD_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert home() == tmp_path / ".mlcd"


def test_a_store_that_is_removed_while_it_is_used_is_put_back_with_all_its_runs(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        add(store, "tiny-1")
        store.start("tiny-1", [step(1)])
        for file in tmp_path.glob(f"{FILE}*"):
            file.unlink()
        store.end("tiny-1", step(1).ended(measured(), seconds=600.0))
        store.set_status("tiny-1", Status.INTERRUPTED)
    with Store(tmp_path) as store:
        assert [s.outcome for s in store.load("tiny-1").steps] == [measured()]
        assert store.status("tiny-1") is Status.INTERRUPTED


def test_a_store_whose_folder_is_removed_while_it_is_used_is_put_back(tmp_path: Path) -> None:
    with Store(tmp_path / "home") as store:
        add(store, "tiny-1")
        (tmp_path / "home").rename(tmp_path / "elsewhere")
        store.start("tiny-1", [step(1)])
    with Store(tmp_path / "home") as store:
        assert len(store.load("tiny-1").steps) == 1
    assert (tmp_path / "home").stat().st_mode & 0o077 == 0


def test_a_store_that_is_replaced_while_it_is_used_is_kept_beside_the_other(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with Store(tmp_path / "other") as other:
        add(other, "other-1")
    with Store(tmp_path) as store:
        add(store, "tiny-1")
        for file in tmp_path.glob(f"{FILE}*"):
            file.unlink()
        (tmp_path / "other" / FILE).rename(tmp_path / FILE)
        with pytest.raises(StoreError, match=r"was replaced while mlcd used it.*mlcd\.sqlite3\.kept-") as raised:
            store.start("tiny-1", [step(1)])
    (kept,) = tmp_path.glob(f"{FILE}.kept-*")
    assert str(kept) in str(raised.value)
    with closing(sqlite3.connect(kept)) as db:
        assert db.execute("SELECT count(*) FROM steps_started").fetchone() == (1,)
    with Store(tmp_path) as found:
        assert [run.run_id for run in found.runs()] == ["other-1"]


@pytest.mark.parametrize("in_memory", [False, True])
def test_the_newest_run_is_found_and_can_be_removed(opened: Callable[[], Store], in_memory: bool) -> None:
    with Store(None) if in_memory else opened() as store:
        with pytest.raises(BadInput, match="there are no runs"):
            store.latest()
        with pytest.raises(BadInput, match="there is no run to continue"):
            store.latest(unfinished=True)
        add(store, "one")
        add(store, "two")
        assert store.latest() == store.latest(unfinished=True) == "two"
        store.finish("two", Status.DONE, None)
        assert (store.latest(), store.latest(unfinished=True)) == ("two", "one")
        store.remove("two")
        assert store.latest() == "one"
        with pytest.raises(BadInput):
            store.load("two")
