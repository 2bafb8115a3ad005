"""The training's decisions on made-up leases: no process and no wall clock."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any

import pytest
from tests.clocks import FakeClocks
from tests.synthetic import QUICK_TRIALS, Listed, Machine, SyntheticCloud, driven, make_engine, make_problem, stored

from mlcd.clouds.provider import JobProgress, Lease, LeaseFailed, Order, Purpose, Settled
from mlcd.clouds.reading import Reading
from mlcd.engine.checked import CheckedCloud, checked_cloud
from mlcd.engine.clock import Moments, read_moment
from mlcd.engine.on_nodes import NodePerformer
from mlcd.engine.trials import measure_trial
from mlcd.engine.watch import MOST_REPORTS, AttemptWatch
from mlcd.engine.watchdog import Bounds
from mlcd.errors import Interrupted
from mlcd.events import Event, RunProgress, Warned
from mlcd.goal import Goal, Objective
from mlcd.problem import STOP_SECONDS, Problem
from mlcd.run.attempt import Ending
from mlcd.run.run import SearchRun
from mlcd.run.step import Role
from mlcd.space import Config
from mlcd.store.store import Store
from mlcd.trial.node_metrics import NodeMetrics
from mlcd.trial.outcome import Status
from mlcd.trial.trial import FailureKind, Measurement, Trial
from mlcd.units import ZERO, Usd

MACHINES = {"a": Machine(usd_per_hour=1.0, speed=10.0), "b": Machine(usd_per_hour=1.0, speed=8.0)}
A, B = Config.deployment("a", 1), Config.deployment("b", 1)
WORK = 36_000.0  # an hour on a, an hour and a quarter on b
BUDGET = Usd.of(3)


class Killed(BaseException):
    """mlcd was killed: nothing after this runs."""


@dataclass
class Attempt:
    """One lease of the training: its points, then how it ends.

    reached   samples of the training that are saved when the lease ends
    stopping  seconds that saving and releasing the nodes take
    """

    points: Sequence[tuple[float, float]]
    failure: BaseException | None = None
    reached: float = 0.0
    stopping: float = 1.0
    node_metrics: NodeMetrics | None = None
    missing: Any = ()
    cloud: "Trainings | None" = field(default=None, init=False)
    finished: int = field(default=0, init=False)
    released: int = field(default=0, init=False)

    def __enter__(self) -> "Attempt":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.released += 1
        assert self.cloud is not None
        self.cloud.saved = max(self.cloud.saved, self.reached)

    def progress(self) -> Iterator[JobProgress]:
        for seconds, samples in self.points:
            yield JobProgress(seconds, samples)
        if self.failure is not None:
            raise self.failure

    def finish(self, at: JobProgress) -> Settled:
        self.finished += 1
        seconds = at.seconds + self.stopping
        return Settled(
            seconds=seconds,
            reached_samples=self.reached,
            node_metrics=self.node_metrics,
            missing_outputs=self.missing,
            kept_folder="/kept" if self.missing else "",
        )


class Trainings(SyntheticCloud):
    """A cloud that looks real to the engine, with scripted trainings."""

    def __init__(self, *attempts: Attempt, saved: float = 0.0) -> None:
        super().__init__(MACHINES, simulated=False)
        self.attempts, self.saved = list(attempts), saved
        self.orders: list[Order] = []
        for attempt in attempts:
            attempt.cloud = self

    def reached_samples(self, run_id: str) -> float:
        return self.saved

    def lease(self, order: Order) -> Lease:
        if order.purpose is Purpose.TRIAL:
            return super().lease(order)
        self.orders.append(order)
        return self.attempts[len(self.orders) - 1]


@pytest.fixture
def store() -> Iterator[Store]:
    with Store(None) as opened:
        yield opened


def problem(**others: Any) -> Problem:
    given: dict[str, Any] = {"goal": Goal(minimize=Objective.TIME, budget=BUDGET), "trial": QUICK_TRIALS, **others}
    return make_problem(machines=MACHINES, counts=(1,), work_samples=WORK, **given)


def train(
    cloud: Trainings,
    store: Store,
    *,
    given: Problem | None = None,
    guarded: bool = True,
    add: bool = True,
    moments: Moments = read_moment,
) -> tuple[SearchRun, list[str]]:
    """The run with A and B tried and A chosen, and its warnings."""
    events: list[Event] = []
    chosen = Listed(configs=(A, B), guarded=guarded)
    record = driven(
        make_engine(given or problem(), cloud, store, chosen=chosen, observer=events.append, add=add, moments=moments),
        store,
    )
    return record, [event.text for event in events if isinstance(event, Warned)]


def steady(speed: float, until: float, *, since: float = 10.0, step: float = 10.0) -> list[tuple[float, float]]:
    """Points at a speed until `until` samples are done, after `since` seconds of start-up."""
    points = [(since, 0.0)]
    while points[-1][1] < until:
        points.append((points[-1][0] + step, min(points[-1][1] + speed * step, until)))
    return points


def silent(after: tuple[float, float], seconds: float) -> list[tuple[float, float]]:
    return [(after[0] + second, after[1]) for second in range(1, int(seconds) + 1)]


def test_a_training_that_goes_as_predicted(store: Store) -> None:
    cloud = Trainings(Attempt(steady(10.0, WORK), reached=WORK))
    record, warned = train(cloud, store)
    assert record.status is Status.DONE
    assert record.final is not None
    assert (record.final.config, record.final.ending, record.final.message) == (A, Ending.DONE, "")
    assert record.final.seconds == pytest.approx(10 + 3600 + 1)
    assert record.final.samples_per_second == pytest.approx(10.0)
    assert record.final.usd == Usd.of(1).for_seconds(record.final.seconds)
    assert record.earlier == ()
    assert warned == []
    (order,) = cloud.orders
    assert order.run_id == "run-1"
    remaining = (BUDGET - record.search_usd).dollars * 3600
    assert order.seconds == pytest.approx(remaining)  # its nodes end themselves when the money is gone


@pytest.mark.parametrize("saved", [0.0, WORK])
def test_a_training_without_checkpoints_has_reached_what_it_did(store: Store, saved: float) -> None:
    """A job whose progress is a pattern saves nothing; its finished training was reported as 0 samples."""
    record, _ = train(Trainings(Attempt(steady(10.0, WORK), reached=saved)), store)
    assert record.final is not None
    assert (record.status, record.final.reached_samples) == (Status.DONE, WORK)


METRICS = NodeMetrics(source="CloudWatch", nodes=1, cpu_percent=61.5, received_bytes=1e9)


def test_what_the_clouds_monitoring_measured_is_stored_with_the_attempt(store: Store) -> None:
    slow = Attempt(steady(1.0, WORK), reached=120.0, node_metrics=METRICS)
    cloud = Trainings(slow, Attempt(steady(8.0, WORK - 120)), saved=60.0)
    record, _ = train(cloud, store)
    assert [attempt.node_metrics for attempt in store.load(record.run_id).attempts] == [METRICS, None]


def test_a_finished_training_without_its_outputs_is_not_done(store: Store) -> None:
    cloud = Trainings(Attempt(steady(10.0, WORK), reached=WORK, missing=("model.pt",)))
    record, _ = train(cloud, store)
    found = store.load(record.run_id)
    assert (found.status, found.status.exit_code) == (Status.OUTPUT_MISSING, 8)
    assert found.final is not None
    assert (found.final.missing_outputs, found.final.kept_folder) == (("model.pt",), "/kept")


def test_a_training_that_moves_misses_no_output(store: Store) -> None:
    slow = Attempt(steady(1.0, WORK), reached=120.0, missing=("model.pt",))
    record, _ = train(Trainings(slow, Attempt(steady(8.0, WORK - 120)), saved=60.0), store)
    assert [attempt.missing_outputs for attempt in record.attempts] == [(), ()]
    assert record.status is Status.DONE


def test_missing_outputs_of_a_wrong_type_fail_the_lease(store: Store) -> None:
    record, _ = train(Trainings(Attempt(steady(10.0, WORK), missing=(1,))), store)
    assert record.final is not None
    assert "missing_outputs: should be str" in record.final.message


@pytest.mark.parametrize("wrong", [{"cpu_percent": 50.0}, "CPU: 50%"])
def test_metrics_of_a_wrong_type_fail_the_lease(store: Store, wrong: Any) -> None:
    record, _ = train(Trainings(Attempt(steady(10.0, WORK), node_metrics=wrong)), store)
    assert record.final is not None
    assert record.final.ending is Ending.FAILED
    assert "node_metrics: should be NodeMetrics" in record.final.message


@dataclass
class Talking(Attempt):
    """A job that says that something is wrong while it runs, and a lease that does so when it fetches the results."""

    heard: list[Reading] = field(default_factory=list)

    def progress(self) -> Iterator[JobProgress]:
        for point in super().progress():
            self.heard.append(Reading(seconds=0.0, warning="the disk is full"))
            yield point

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, value, trace)
        self.heard.append(Reading(seconds=0.0, warning="an output is not taken"))


@pytest.mark.parametrize("failure", [None, LeaseFailed(FailureKind.ERROR, "failed", seconds=5000.0)])
def test_what_a_training_says_is_passed_on_however_late_it_says_it(store: Store, failure: LeaseFailed | None) -> None:
    cloud = Trainings(Talking(steady(10.0, WORK), failure=failure))
    _, warned = train(cloud, store)
    assert warned == ["the training: the disk is full", "the training: an output is not taken"]


def test_without_a_budget_the_lease_is_still_limited(store: Store) -> None:
    cloud = Trainings(Attempt(steady(10.0, WORK)))
    record, _ = train(cloud, store, given=problem(goal=Goal(minimize=Objective.TIME)))
    assert record.choice is not None
    assert cloud.orders[0].seconds == pytest.approx(10 * record.choice.worst_seconds + 3600)


def test_a_training_that_falls_behind_moves_while_the_budget_allows_it(store: Store) -> None:
    slow = Attempt(steady(1.0, WORK), reached=120.0)
    cloud = Trainings(slow, Attempt(steady(8.0, WORK - 120)), saved=60.0)
    record, warned = train(cloud, store)
    assert record.status is Status.DONE
    (moved,) = record.earlier
    assert (moved.ending, moved.config, moved.reached_samples) == (Ending.MOVED, A, 120.0)
    assert moved.samples_per_second == pytest.approx(1.0)
    assert "continues on 1 x b" in moved.message
    assert record.final is not None
    assert record.final.config == B
    assert slow.finished == slow.released == 1
    assert record.total_usd <= BUDGET
    assert len(warned) == 1
    assert warned[0].endswith("the training continues from its checkpoint, at 0%")


def test_a_training_that_would_miss_the_deadline(store: Store) -> None:
    goal = Goal(minimize=Objective.TIME, deadline_seconds=6000.0)
    slow = Attempt(steady(2.0, WORK))
    cloud = Trainings(slow)
    record, warned = train(cloud, store, given=problem(goal=goal), moments=FakeClocks())
    assert len(warned) == 1  # once, not at every look
    assert warned[0].startswith("1 x a falls behind: it would end after 5 h")
    assert "nothing else that was measured fits" in warned[0]
    assert record.final is not None
    assert record.final.ending is Ending.DONE
    assert record.status is Status.DONE  # by the clock of this test no time went by


@pytest.mark.parametrize("saved", [0.0, 60.0])
def test_a_training_that_cannot_move_stops_before_the_budget_is_exceeded(store: Store, saved: float) -> None:
    goal = Goal(minimize=Objective.TIME, budget=Usd.of("1.35"))  # enough for a, and not for b
    slow = Attempt(steady(2.0, WORK), reached=saved, stopping=STOP_SECONDS - 1)
    cloud = Trainings(slow, saved=saved)
    record, warned = train(cloud, store, given=problem(goal=goal))
    assert record.status is Status.OVERRAN
    assert record.final is not None
    assert record.final.ending is Ending.STOPPED
    assert "stopped before it would cost more than the budget of $1.35" in record.final.message
    assert record.total_usd <= Usd.of("1.35")
    assert record.final.reached_samples == saved
    assert len(warned) == 1


def test_a_move_that_uses_up_the_budget_ends_the_run(store: Store) -> None:
    slow = Attempt(steady(1.0, WORK), reached=120.0, stopping=9000.0)
    record, _ = train(Trainings(slow, saved=60.0), store)
    assert record.status is Status.NOTHING_FITS
    assert record.final is None
    assert [run.ending for run in record.earlier] == [Ending.MOVED]
    assert record.total_usd <= BUDGET


@pytest.mark.parametrize("kind", [FailureKind.LOST, FailureKind.INTERRUPTED, FailureKind.LAUNCH])
def test_lost_nodes_restart_from_the_checkpoint(store: Store, kind: FailureKind) -> None:
    gone = LeaseFailed(kind, "node 1 is gone", seconds=520.0, billed=True, reached_samples=4000.0)
    cloud = Trainings(Attempt(steady(10.0, 5000), gone, reached=4000.0), Attempt(steady(10.0, WORK - 4000)))
    record, warned = train(cloud, store)
    assert record.status is Status.DONE
    (first,) = record.earlier
    assert (first.ending, first.seconds, first.reached_samples) == (Ending.RESTARTED, 520.0, 4000.0)
    assert first.usd == Usd.of(1).for_seconds(520.0)
    assert record.final is not None
    assert record.final.config == A
    assert [order.attempt for order in cloud.orders] == [1, 2]
    assert warned == ["node 1 is gone; the training continues from its checkpoint, at 11%"]


def test_a_training_that_continues_shows_how_much_of_all_of_it_is_done(store: Store) -> None:
    gone = LeaseFailed(FailureKind.LOST, "node 1 is gone", seconds=520.0, billed=True, reached_samples=9000.0)
    cloud = Trainings(Attempt(steady(10.0, 10000), gone, reached=9000.0), Attempt(steady(10.0, WORK - 9000)))
    events: list[Event] = []
    engine = make_engine(problem(), cloud, store, chosen=Listed(configs=(A, B)), observer=events.append)
    driven(engine, store)
    shown = [event.fraction for event in events if isinstance(event, RunProgress)]
    again = next(at for at in range(1, len(shown)) if shown[at] < shown[at - 1])
    assert (shown[0], shown[-1]) == (0.0, 1.0)
    assert shown[again] == pytest.approx(9000 / WORK)


def test_a_training_without_progress_is_given_up(store: Store) -> None:
    def lost() -> Attempt:
        return Attempt(steady(10.0, 500), LeaseFailed(FailureKind.LOST, "node 0 is gone", seconds=60.0))

    record, warned = train(Trainings(lost(), lost()), store)
    assert record.status is Status.RUN_FAILED
    assert record.final is not None
    assert (record.final.ending, record.final.message) == (Ending.FAILED, "node 0 is gone")
    assert [run.ending for run in record.earlier] == [Ending.RESTARTED]  # search.trial.retries is 1
    assert warned == ["node 0 is gone; the training continues from the beginning"]


def test_a_training_that_makes_progress_is_restarted_each_time(store: Store) -> None:
    def lost(reached: float) -> Attempt:
        gone = LeaseFailed(FailureKind.LOST, "node 0 is gone", seconds=60.0, reached_samples=reached)
        return Attempt(steady(10.0, 500), gone, reached=reached)

    last = Attempt(steady(10.0, WORK - 4000))
    record, _ = train(Trainings(*(lost(1000.0 * n) for n in range(1, 5)), last), store)
    assert record.status is Status.DONE
    assert [run.reached_samples for run in record.earlier] == [1000.0, 2000.0, 3000.0, 4000.0]


def test_a_restart_that_no_longer_fits_moves_or_ends_the_run(store: Store) -> None:
    gone = LeaseFailed(FailureKind.LOST, "node 0 is gone", seconds=9000.0)
    record, _ = train(Trainings(Attempt(steady(10.0, 500), gone)), store)
    assert record.status is Status.NOTHING_FITS
    assert record.total_usd <= BUDGET


@pytest.mark.parametrize(("kind", "billed"), [(FailureKind.ERROR, True), (FailureKind.CAPACITY, False)])
def test_a_job_that_fails_is_not_restarted(store: Store, kind: FailureKind, billed: bool) -> None:
    failed = LeaseFailed(kind, "no such file", seconds=100.0, billed=billed)
    points = steady(10.0, 500) if billed else [(10.0, 0.0)]  # without nodes, nothing is processed
    record, _ = train(Trainings(Attempt(points, failed)), store)
    assert record.status is Status.RUN_FAILED
    assert record.final is not None
    assert (record.final.ending, record.final.message) == (Ending.FAILED, "no such file")
    assert record.final.usd == (Usd.of(1).for_seconds(100.0) if billed else ZERO)


def test_a_training_that_the_cloud_did_not_end_in_time_overran(store: Store) -> None:
    late = LeaseFailed(FailureKind.OVERRAN, "the job still runs after its time", seconds=100.0)
    record, _ = train(Trainings(Attempt(steady(10.0, 500), late)), store)
    assert record.final is not None
    assert (record.status, record.final.ending) == (Status.OVERRAN, Ending.OVERRAN)


def test_a_hung_training_is_restarted(store: Store) -> None:
    points = steady(10.0, 2000)
    hung = Attempt([*points, *silent(points[-1], 300)], reached=1500.0)
    cloud = Trainings(hung, Attempt(steady(10.0, WORK - 1500)))
    record, warned = train(cloud, store)
    assert record.status is Status.DONE
    (first,) = record.earlier
    assert first.ending is Ending.RESTARTED
    assert first.message == "no progress for 60 s"
    assert first.reached_samples == 1500.0
    assert first.seconds >= points[-1][0] + QUICK_TRIALS.watchdog_seconds
    assert (hung.finished, hung.released) == (0, 1)  # it is not asked to save: it would not hear it
    assert warned[0].startswith("no progress for 60 s; the training continues from its checkpoint")


def test_a_hung_training_on_a_cloud_that_says_less_than_passed_is_charged_what_passed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = 0.0

    def clock() -> float:
        nonlocal passed
        passed += 5.0
        return passed

    def slow(*given: Any) -> CheckedCloud:
        return replace(checked_cloud(*given), clock=clock)

    monkeypatch.setattr("mlcd.engine.on_nodes.checked_cloud", slow)
    points = steady(10.0, 2000)
    hung = Attempt([*points, *silent(points[-1], 300)], reached=1500.0)
    record, _ = train(Trainings(hung, Attempt(steady(10.0, WORK - 1500), reached=WORK)), store)
    first = record.earlier[0]
    assert first.message == "no progress for 60 s"
    assert first.seconds > 2 * (points[-1][0] + 60)
    assert first.usd == Usd.of(1).for_seconds(first.seconds)


def test_a_job_that_is_often_silent_is_not_a_hang(store: Store) -> None:
    settling = [(10.0 + n, 10.0 * n) for n in range(1, 20)]
    record, warned = train(Trainings(Attempt([*settling, *_ever_longer_silences(settling[-1])])), store)
    assert record.status is Status.DONE
    assert record.earlier == ()
    assert warned == []


def _ever_longer_silences(start: tuple[float, float]) -> Iterator[tuple[float, float]]:
    """Each less than three times the longest before it, and in the end far longer than the watchdog's."""
    seconds, samples = start
    gap = 1.0
    while samples < WORK:
        yield from silent((seconds, samples), gap - 1)
        seconds, samples = seconds + gap, min(samples + 10 * gap, WORK)
        yield seconds, samples
        gap = min(gap * 2, 150.0)


def test_a_job_that_has_done_its_work_may_exit_slowly(store: Store) -> None:
    points = steady(10.0, WORK)
    record, _ = train(Trainings(Attempt([*points, *silent(points[-1], 300)])), store)
    assert record.status is Status.DONE
    assert record.earlier == ()


def test_a_job_that_never_starts_is_a_hang(store: Store) -> None:
    worst = QUICK_TRIALS.worst_seconds(1)
    never = [(float(second), 0.0) for second in range(1, int(worst) + 100, 10)]
    record, _ = train(Trainings(Attempt(never), Attempt(never)), store)
    assert record.status is Status.RUN_FAILED
    assert record.final is not None
    assert record.final.message.startswith("it ended before its first sample after")


def test_a_watchdog_of_zero_ends_nothing(store: Store) -> None:
    points = steady(10.0, 2000)
    still = [*points, *silent(points[-1], 300), (points[-1][0] + 400, 2000.0), (4400.0, WORK)]
    given = problem(trial=replace(QUICK_TRIALS, watchdog_seconds=0.0))
    record, _ = train(Trainings(Attempt(still)), store, given=given)
    assert record.status is Status.DONE
    assert record.earlier == ()


def test_a_job_that_exits_too_early_gives_a_warning(store: Store) -> None:
    record, warned = train(Trainings(Attempt(steady(10.0, WORK / 2))), store)
    assert record.status is Status.DONE
    assert warned == ["the job exited successfully after 50% of the work its file names: check job.samples"]
    assert record.final is not None
    assert [record.final.warning] == warned


def test_shares_are_of_the_work_that_the_job_reported(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job file without job.samples: only the trials report how much work there is."""
    real = measure_trial

    def told(*args: Any) -> Trial:
        trial = real(*args)
        assert isinstance(trial, Measurement)
        return replace(trial, total_samples=WORK)

    monkeypatch.setattr("mlcd.engine.on_nodes.measure_trial", told)
    gone = LeaseFailed(FailureKind.LOST, "node 1 is gone", seconds=500.0, reached_samples=4000.0)
    first, second = Attempt(steady(10.0, 5000), gone, reached=4000.0), Attempt(steady(10.0, WORK / 2 - 4000))
    given = replace(problem(), work_known=False, work_samples=1.0)
    record, warned = train(Trainings(first, second), store, given=given)
    assert record.status is Status.DONE
    assert record.problem.work_samples == WORK
    assert warned == [
        "node 1 is gone; the training continues from its checkpoint, at 11%",
        "the job exited successfully after 50% of the work its file names: check job.samples",
    ]


def test_unguarded_rivals_are_neither_moved_nor_stopped(store: Store) -> None:
    cloud = Trainings(Attempt(steady(1.0, WORK)), saved=60.0)
    record, warned = train(cloud, store, guarded=False)
    assert record.status is Status.OVERRAN
    assert record.earlier == ()
    assert warned == []


def test_a_training_that_died_with_mlcd_is_charged_and_continues(store: Store) -> None:
    given, clocks = problem(), FakeClocks()
    killed = Attempt(steady(10.0, 2000), Killed(), reached=1500.0)
    cloud = Trainings(killed)
    with pytest.raises(Killed):
        train(cloud, store, given=given, moments=clocks)
    (in_flight,) = stored(store).in_flight
    assert in_flight.role is Role.TRAINING

    clocks.wait(200.0)
    again = Trainings(Attempt(steady(10.0, WORK - 1500)), saved=1500.0)
    record, warned = train(again, store, given=given, add=False, moments=clocks)
    assert record.status is Status.DONE
    (lost,) = record.earlier
    assert (lost.ending, lost.reached_samples) == (Ending.LOST, 1500.0)
    assert lost.seconds == pytest.approx(200.0)
    assert lost.usd == Usd.of(1).for_seconds(lost.seconds)
    assert warned == ["mlcd ended before the training did; the training continues from its checkpoint, at 4%"]
    assert record.final is not None
    assert record.final.seconds == pytest.approx(10 + 3450 + 1)


def test_a_training_that_died_long_ago_is_charged_at_most_what_was_authorised(store: Store) -> None:
    clocks = FakeClocks()
    with pytest.raises(Killed):
        train(Trainings(Attempt(steady(10.0, 2000), Killed())), store, moments=clocks)
    (before,) = stored(store).in_flight

    clocks.wait(1e6)
    record, _ = train(Trainings(Attempt(steady(10.0, WORK))), store, add=False, moments=clocks)
    assert record.earlier[0].seconds == before.authorisation.seconds  # its nodes had ended themselves by then


def test_where_nodes_outlive_mlcd_it_is_charged_for_as_long_as_they_may_have_run(store: Store) -> None:
    """They may have hung until the budget was used up: then nothing is left to start again with."""

    class Outliving(Trainings):
        outlives_mlcd = True

    clocks = FakeClocks()
    first = Outliving(Attempt(steady(10.0, 2000), Killed()))
    with pytest.raises(Killed):
        train(first, store, moments=clocks)
    (before,) = stored(store).in_flight
    clocks.wait(1e6)
    again = Outliving(Attempt(steady(10.0, WORK)))
    record, _ = train(again, store, add=False, moments=clocks)
    (order,) = first.orders
    assert order.seconds > before.authorised_seconds
    assert record.earlier[0].seconds == pytest.approx(order.seconds, abs=1.0)
    assert record.spent <= BUDGET
    assert again.orders == []
    assert record.status is Status.NOTHING_FITS


def test_ctrl_c_in_the_training_charges_it_and_can_be_resumed(store: Store) -> None:
    cloud = Trainings(Attempt(steady(10.0, 2000), KeyboardInterrupt(), reached=1000.0))
    with pytest.raises(Interrupted, match="continues from its checkpoint: `mlcd resume run-1` continues the run"):
        train(cloud, store)
    record = stored(store)
    assert record.status is Status.INTERRUPTED
    assert [run.ending for run in record.earlier] == [Ending.INTERRUPTED]
    again, _ = train(Trainings(Attempt(steady(10.0, WORK - 1000)), saved=1000.0), store, add=False)
    assert again.status is Status.DONE


def test_ctrl_c_charges_the_training_although_the_cloud_does_not_say_what_is_saved(store: Store) -> None:
    go = threading.Event()

    class Silent(Trainings):
        def reached_samples(self, run_id: str) -> float:
            if self.orders:
                go.wait()
            return 0.0

    cloud = Silent(Attempt(steady(10.0, 2000), KeyboardInterrupt()))
    engine = make_engine(problem(), cloud, store, chosen=Listed(configs=(A, B)))
    assert isinstance(engine.performer, NodePerformer)
    engine.performer.bounds = Bounds(interrupt_seconds=0.2)
    try:
        with pytest.raises(Interrupted, match="saved no checkpoint and starts again: `mlcd resume run-1`"):
            engine.drive()
    finally:
        go.set()
    record = stored(store)
    assert record.status is Status.INTERRUPTED
    assert not record.in_flight
    assert [run.ending for run in record.earlier] == [Ending.INTERRUPTED]


def test_a_stop_from_another_thread_ends_the_training(store: Store) -> None:
    attempt = Attempt(steady(10.0, WORK))
    cloud = Trainings(attempt)
    engine = make_engine(problem(), cloud, store, chosen=Listed(configs=(A,)))
    stop: threading.Event = engine._stop
    progress = attempt.progress

    def stopped() -> Iterator[JobProgress]:
        stop.set()
        yield from progress()

    attempt.progress = stopped  # type: ignore[method-assign]
    with pytest.raises(Interrupted):
        engine.drive()
    assert attempt.released == 1


def test_the_current_speed_is_unknown_until_it_has_settled() -> None:
    watch = AttemptWatch(work=1000.0, seconds_left=100.0)
    assert watch.last == JobProgress(0.0, 0.0)
    assert (watch.speed(), watch.expected_end(), watch.silent_seconds) == (None, None, 0.0)
    feed(watch, (0.0, 0.0), (1.0, 10.0), (2.0, 20.0), (3.0, 30.0))
    assert watch.speed() is None
    feed(watch, (11.0, 110.0))
    assert watch.speed() == pytest.approx(10.0)  # over the whole gap, although it began in the first half
    assert watch.expected_end() == pytest.approx(100.0)
    assert watch.longest_gap == 8.0
    feed(watch, *((11.0 + n, 110.0) for n in range(1, 24)))
    assert watch.silent_seconds == 23.0
    assert not watch.is_quiet
    feed(watch, (36.0, 110.0))
    assert watch.is_quiet  # more than three times its longest silence


def test_a_job_that_reports_once_an_epoch_is_not_a_hang() -> None:
    watch = AttemptWatch(work=10_000.0, seconds_left=1e6)
    for epoch in range(1, 5):
        feed(watch, (100.0 * epoch, 1000.0 * epoch))
        for second in range(1, 100):
            feed(watch, (100.0 * epoch + second, 1000.0 * epoch))
            assert epoch < 3 or watch.speed() == pytest.approx(10.0)
    feed(watch, (600.0, 4000.0))  # a silence twice as long as any before it
    assert watch.speed() == pytest.approx(2000.0 / 300.0)


def test_a_training_of_weeks_takes_no_more_memory_than_one_of_hours() -> None:
    watch = AttemptWatch(work=1e9, seconds_left=1e9)
    for at in range(1, 300_000):
        watch.take(JobProgress(float(at), 5.0 * at))
    assert len(watch._reports) <= MOST_REPORTS
    assert watch.speed() == pytest.approx(5.0)
    assert watch.longest_gap == 1.0
    assert watch.last.seconds == 299_999.0
    assert watch.expected_end() == pytest.approx(2e8, rel=0.01)


def feed(watch: AttemptWatch, *points: tuple[float, float]) -> None:
    for seconds, samples in points:
        watch.take(JobProgress(seconds, samples))
