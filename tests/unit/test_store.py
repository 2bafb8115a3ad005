import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.synthetic import SyntheticCloud, make_problem, make_record, measured

from mlcd.clouds.provider import Cloud
from mlcd.errors import BadInput, RunBusy, StoreError
from mlcd.goal import Goal, Objective
from mlcd.ledger import Authorisation
from mlcd.problem import Problem
from mlcd.space import Config
from mlcd.store import codec
from mlcd.store.store import FILE, SCHEMA, StartedFinal, StartedTrial, Store, home
from mlcd.trial.outcome import Status
from mlcd.trial.plan import Plan
from mlcd.trial.record import Ending, FinalRun, Naive, Relaxation
from mlcd.trial.trial import Failure, FailureKind, Measurement
from mlcd.units import Usd

SMALL = Config.deployment("c5.small", 1)
CLOUD: Cloud = SyntheticCloud()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path) as opened:
        yield opened


def add(store: Store, run_id: str, problem: Problem | None = None) -> Problem:
    problem = problem or make_problem()
    store.add_run(
        make_record(problem, CLOUD, "heterbo", run_id=run_id, seed=7, parallel=2), kind="train", spec={"a": [1, "ü"]}
    )
    return problem


def started(problem: Problem, number: int, *, config: Config = SMALL, at: float = 1000.0) -> StartedTrial:
    leave = Authorisation(config=config, attempt=1, usd=Usd.of(1), seconds=1020.0)
    return StartedTrial(
        number=number,
        round=number,
        reason="because",
        usd_per_hour=problem.price(config),
        authorisation=leave,
        started_seconds=600.0 * (number - 1),
        started_at=at,
    )


def test_a_run_comes_back_as_it_was_written(store: Store) -> None:
    goal = Goal(minimize=Objective.KNEE, budget=Usd.of(9), deadline_seconds=7000.5)
    problem = add(store, "a-run", make_problem(goal=goal, stretch=tuple(1.0 + i / 100 for i in range(24))))
    assert store.record("a-run").problem == problem
    assert store.spec("a-run") == {"a": [1, "ü"]}
    record = store.record("a-run")
    assert (record.status, record.seed, record.parallel, record.rows) == (Status.RUNNING, 7, 2, ())
    first, second = started(problem, 1), started(problem, 2, at=2000.0)
    assert store.first_start("a-run") is None
    store.start_trials("a-run", [first, second])
    assert store.in_flight("a-run") == (first, second)
    assert store.first_start("a-run") == 1000.0
    trial = measured(problem, SMALL, 12.5)
    store.end_trial("a-run", 2, trial)
    assert store.in_flight("a-run") == (first,)
    assert store.rows("a-run") == (second.ended(trial),)
    assert store.record("a-run").search_seconds == 600 + trial.seconds
    plan = Plan.of(problem, trial)
    naive = (Naive(label="x", plan=plan, measured=False),)
    relaxed = (Relaxation(text="more", budget=Usd.of(3)), Relaxation(text="longer", deadline_seconds=60.0))
    store.set_verdict("a-run", search_seconds=5.0, stopped="done", choice=plan, naive=naive, relaxations=relaxed)
    leave = Authorisation(config=SMALL, attempt=1, usd=Usd.of(3), seconds=9.0)
    store.start_final("a-run", leave, 5.0)
    assert store.final_in_flight("a-run") == StartedFinal(authorisation=leave, started_at=5.0)
    lost = FinalRun(
        config=SMALL,
        seconds=1.5,
        usd=Usd.of(1),
        ending=Ending.LOST,
        reached_samples=7.0,
        samples_per_second=3.0,
        message="mlcd died",
    )
    store.end_attempt("a-run", 1, lost)
    assert store.final_in_flight("a-run") is None
    store.start_final("a-run", replace(leave, attempt=2), 6.0)
    store.end_run("a-run", Status.DONE, FinalRun(config=SMALL, seconds=3.5, usd=Usd.of(2)), attempt=2)
    record = store.record("a-run")
    assert (record.choice, record.naive, record.relaxations) == (plan, naive, relaxed)
    assert (record.stopped, record.search_seconds) == ("done", 5.0)
    assert record.final == FinalRun(config=SMALL, seconds=3.5, usd=Usd.of(2))
    assert record.earlier == (lost,)
    assert record.total_usd == trial.usd + Usd.of(3)
    assert record.total_seconds == 5.0 + 1.5 + 3.5
    assert record.status is Status.DONE
    (line,) = store.runs()
    assert (line.run_id, line.status, line.trials, line.spent) == ("a-run", Status.DONE, 1, trial.usd + Usd.of(3))


def test_nothing_is_written_twice(store: Store) -> None:
    problem = add(store, "once")
    store.start_trials("once", [started(problem, 1)])
    store.end_trial("once", 1, measured(problem, SMALL, 12.5))
    store.set_verdict("once", search_seconds=1, stopped="s", choice=None, naive=(), relaxations=())
    store.start_final("once", Authorisation(config=SMALL, attempt=1, usd=Usd(1), seconds=1.0), 5.0)
    store.end_run("once", Status.DONE, FinalRun(config=SMALL, seconds=1, usd=Usd(1)))
    with pytest.raises(StoreError, match="UNIQUE"):
        add(store, "once")
    with pytest.raises(StoreError, match="UNIQUE"):
        store.start_trials("once", [started(problem, 1)])
    with pytest.raises(StoreError, match="UNIQUE"):
        store.end_trial("once", 1, measured(problem, SMALL, 99.0))
    with pytest.raises(StoreError, match="UNIQUE"):
        store.set_verdict("once", search_seconds=2, stopped="t", choice=None, naive=(), relaxations=())
    with pytest.raises(StoreError, match="UNIQUE"):
        store.end_run("once", Status.OVERRAN, FinalRun(config=SMALL, seconds=1, usd=Usd(1)))
    assert store.status("once") is Status.DONE
    assert store.rows("once")[0].trial == measured(problem, SMALL, 12.5)


def test_a_round_is_all_or_nothing(store: Store) -> None:
    problem = add(store, "round")
    with pytest.raises(StoreError):
        store.start_trials("round", [started(problem, 1), started(problem, 1)])
    assert store.in_flight("round") == ()


def test_an_end_needs_a_start(store: Store) -> None:
    problem = add(store, "r")
    with pytest.raises(StoreError, match="FOREIGN KEY"):
        store.end_trial("r", 5, measured(problem, SMALL, 12.5))


def test_the_newest_run_comes_first_and_part_of_a_name_will_do(store: Store) -> None:
    add(store, "resnet-aa1")
    add(store, "resnet-ab2")
    assert [line.run_id for line in store.runs()] == ["resnet-ab2", "resnet-aa1"]
    assert store.record("resnet-ab").run_id == "resnet-ab2"
    with pytest.raises(BadInput, match="'resnet-a' begins the names of 2 runs"):
        store.record("resnet-a")
    with pytest.raises(BadInput, match="`mlcd runs` lists them"):
        store.record("zzz")


def test_a_run_is_held_by_one_at_a_time(tmp_path: Path) -> None:
    with Store(tmp_path) as one, Store(tmp_path) as two:
        with one.lock("r"), two.lock("other"), pytest.raises(RunBusy, match="run r is being worked on"), two.lock("r"):
            pytest.fail("held twice")
        with two.lock("r"):
            pass


def test_in_memory_there_is_nobody_to_share_with() -> None:
    with Store(None) as store, store.lock("r"), store.lock("r"):
        add(store, "r")
        assert store.runs()[0].run_id == "r"


def test_a_newer_schema_is_left_alone(tmp_path: Path) -> None:
    Store(tmp_path).__exit__(None, None, None)
    with closing(sqlite3.connect(tmp_path / FILE)) as db:
        db.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    with pytest.raises(StoreError, match=rf"newer mlcd \(schema {SCHEMA + 1}, this one knows {SCHEMA}\): upgrade"):
        Store(tmp_path)


def test_what_is_not_a_database_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"this is no database, it is a letter to my mother " * 40)
    with pytest.raises(StoreError, match="is damaged or not a database: restore it"):
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
    with pytest.raises(StoreError, match="is damaged or not a database"), Store(tmp_path) as store:
        store.runs()


def _fill(store: Store) -> None:
    for number in range(2000):
        add(store, f"more-{number}")


def test_a_full_disk_says_what_to_do_and_loses_nothing(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        problem = add(store, "first")
        store.start_trials("first", [started(problem, 1)])
        pages = store._db.execute("PRAGMA page_count").fetchone()[0]
        store._db.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreError, match="the disk is full: free some space, then `mlcd resume`"):
            _fill(store)
        assert store.record("first").problem == problem
        store._db.execute("PRAGMA max_page_count = 100000")
        store.end_trial("first", 1, measured(problem, SMALL, 3.0))
    with Store(tmp_path) as store:
        assert len(store.rows("first")) == 1


def test_a_home_that_cannot_be_used_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="set MLCD_HOME to a folder that can be written"):
        Store(tmp_path / "file" / "home")
    (tmp_path / "folder" / FILE).mkdir(parents=True)
    with pytest.raises(StoreError, match="cannot be written: set MLCD_HOME"):
        Store(tmp_path / "folder")


def test_a_store_held_too_long_by_another_says_what_to_do(tmp_path: Path) -> None:
    with Store(tmp_path) as store, closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as other:
        store._db.execute("PRAGMA busy_timeout = 1")
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="another mlcd process has held it for too long"):
            add(store, "r")
        other.execute("ROLLBACK")
        add(store, "r")


def test_home_is_where_the_user_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "x"))
    assert home() == tmp_path / "x"
    monkeypatch.setenv("MLCD_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert home() == tmp_path / ".mlcd"


# ---- values as JSON and back

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
configs = st.builds(Config.deployment, texts, st.integers(1, 10**6))
micros = st.builds(Usd, st.integers(0, 10**15))
seconds = st.floats(0, 1e9)
plans = st.builds(Plan, config=configs, seconds=seconds, usd=micros, worst_seconds=seconds, worst_usd=micros)


@st.composite
def trials(draw: st.DrawFn) -> Measurement | Failure:
    took = draw(seconds)
    if draw(st.booleans()):
        return Failure(
            config=draw(configs),
            attempt=draw(st.integers(1, 9)),
            kind=draw(st.sampled_from(FailureKind)),
            message=draw(texts),
            seconds=took,
            usd=draw(micros),
        )
    return Measurement(
        config=draw(configs),
        attempt=draw(st.integers(1, 9)),
        samples_per_second=draw(st.floats(1e-12, 1e12)),
        relative_error=draw(st.floats(0, 10)),
        iterations=draw(st.integers(1, 10**6)),
        startup_seconds=took * draw(st.floats(0, 1)),
        seconds=took,
        usd=draw(micros),
        extended=draw(st.booleans()),
    )


def through_text(value: dict[str, object]) -> dict[str, object]:
    import json

    loaded: dict[str, object] = json.loads(codec.dump(value))
    return loaded


@given(trials())
def test_trials_round_trip(trial: Measurement | Failure) -> None:
    assert codec.trial_from_json(through_text(codec.trial_to_json(trial))) == trial


@given(plans, texts, st.booleans())
def test_plans_and_naive_choices_round_trip(plan: Plan, label: str, was_measured: bool) -> None:
    assert codec.plan_from_json(through_text(codec.plan_to_json(plan))) == plan
    naive = Naive(label=label, plan=plan, measured=was_measured)
    assert codec.naive_from_json(through_text(codec.naive_to_json(naive))) == naive


@given(st.builds(Relaxation, text=texts, budget=st.none() | micros, deadline_seconds=st.none() | seconds))
def test_relaxations_round_trip(relaxation: Relaxation) -> None:
    assert codec.relaxation_from_json(through_text(codec.relaxation_to_json(relaxation))) == relaxation


@settings(max_examples=40)
@given(
    st.sampled_from(Objective),
    st.none() | st.integers(1, 10**14),
    st.none() | st.floats(0.001, 1e9),
    st.floats(1e-3, 1e15),
    st.booleans(),
    st.lists(st.integers(1, 500), min_size=1, max_size=6, unique=True),
)
def test_problems_round_trip(
    minimize: Objective, budget: int | None, deadline: float | None, work: float, sizes: bool, counts: list[int]
) -> None:
    goal = Goal(minimize=minimize, budget=None if budget is None else Usd(budget), deadline_seconds=deadline)
    problem = make_problem(goal=goal, work_samples=work, sizes=sizes, counts=counts)
    again = codec.problem_from_json(through_text(codec.problem_to_json(problem)))
    assert again == problem
    assert again.space.index == problem.space.index
    assert (again.worst_trial_micros == problem.worst_trial_micros).all()
