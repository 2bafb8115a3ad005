"""Search beside the run on a cloud with real time: nodes that are kept, moved, lost and given back."""

import time
from collections.abc import Iterator
from dataclasses import replace
from types import TracebackType
from typing import Any

import pytest
from tests.synthetic import Listed, Machine, OneFirst, driven, make_engine, make_problem, stored

from mlcd.clouds.provider import JobProgress, Lease, LeaseFailed, Order, Purpose, Settled
from mlcd.engine import Engine
from mlcd.engine.on_nodes import NodePerformer
from mlcd.errors import Interrupted
from mlcd.goal import Goal, Objective
from mlcd.problem import Problem, TrialPolicy
from mlcd.run.attempt import Ending
from mlcd.run.step import Role
from mlcd.space import Config
from mlcd.store.store import Store
from mlcd.trial.outcome import Status
from mlcd.trial.plan import Remaining
from mlcd.trial.trial import Failure, FailureKind, History, Suggestion
from mlcd.units import Usd

MACHINES = {
    "slow": Machine(usd_per_hour=36.0, speed=1000.0),
    "even": Machine(usd_per_hour=36.0, speed=1000.0),
    "fast": Machine(usd_per_hour=36.0, speed=10_000.0),
}
SLOW, EVEN, FAST = (Config.deployment(name, 1) for name in MACHINES)
WORK = 3000.0  # three seconds on slow
TRIAL = TrialPolicy(seconds=0.3, extra_seconds_per_3_nodes=0.0, extension=0.0, watchdog_seconds=30.0)
POINT_SECONDS = 0.01


class QuickCloud:
    """Jobs that run in real time at their machine's speed, and save what they do when they are asked to.

    uneven  where trials report so unevenly that they are extended
    """

    name, simulated, noise = "quick", False, 0.0

    def __init__(self, *, uneven: Config | None = None) -> None:
        self.uneven, self.saved = uneven, 0.0
        self.leases: list[QuickLease] = []

    def lease(self, order: Order) -> Lease:
        self.leases.append(QuickLease(self, order))
        return self.leases[-1]

    def reached_samples(self, run_id: str) -> float:
        return self.saved

    def trainings(self) -> list["QuickLease"]:
        return [lease for lease in self.leases if lease.order.purpose is Purpose.RUN]


class QuickLease:
    def __init__(self, cloud: QuickCloud, order: Order) -> None:
        self.cloud, self.order, self.released = cloud, order, 0
        self.base = cloud.saved if order.continues else 0.0
        self.began = time.monotonic()

    def __enter__(self) -> "QuickLease":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.released += 1

    def progress(self) -> Iterator[JobProgress]:
        yield JobProgress(0.0, 0.0)
        speed = MACHINES[self.order.config.instance].speed
        is_trial = self.order.purpose is Purpose.TRIAL
        while True:
            time.sleep(POINT_SECONDS)
            seconds = time.monotonic() - self.began
            samples = seconds * speed
            if is_trial and self.order.config == self.cloud.uneven:
                samples = int(seconds * 5) * speed / 5
            done = not is_trial and self.base + samples >= WORK
            yield JobProgress(seconds, WORK - self.base if done else samples)
            if done:
                return

    def finish(self, at: JobProgress) -> Settled:
        saved = self.base + at.samples if self.order.continues else 0.0
        self.cloud.saved = max(self.cloud.saved, saved)
        return Settled(seconds=time.monotonic() - self.began, reached_samples=saved)


class Killed(BaseException):
    """mlcd was killed: nothing after this runs."""


class Dying(Listed):
    """Raises when it is asked with the training under way, the second time."""

    error: type[BaseException] = Killed

    def suggest(self, problem: Problem, history: History, remaining: Remaining, count: int) -> tuple[Suggestion, ...]:
        if len(history) == 2:
            raise self.error
        return super().suggest(problem, history, remaining, count)


class Interrupting(Dying):
    """The user presses Ctrl-C then."""

    error = KeyboardInterrupt


@pytest.fixture
def store() -> Iterator[Store]:
    with Store(None) as opened:
        yield opened


def problem(**others: Any) -> Problem:
    made: dict[str, Any] = {"goal": Goal(minimize=Objective.TIME), "noise": 0.0, "trial": TRIAL, **others}
    return make_problem(machines=MACHINES, counts=(1,), work_samples=WORK, beside=True, **made)


def engine(cloud: QuickCloud, store: Store, *configs: Config, add: bool = True, chosen: Any = None) -> Engine[Problem]:
    return make_engine(problem(), cloud, store, chosen=chosen or Listed(configs=configs), add=add)


def test_a_training_that_stays_keeps_its_lease(store: Store) -> None:
    cloud = QuickCloud()
    run = driven(engine(cloud, store, SLOW, EVEN), store)
    assert run.status is Status.DONE
    (lease,) = cloud.trainings()
    assert lease.released == 1
    stretches = [step for step in run.steps if step.role is Role.TRAINING]
    assert [step.final.ending for step in stretches] == [Ending.CONTINUED, Ending.DONE]
    (whole,) = run.attempts
    assert whole.seconds == pytest.approx(sum(step.final.seconds for step in stretches))
    assert whole.usd == stretches[0].price.for_seconds(whole.seconds)
    assert 0 < stretches[0].final.reached_samples < WORK


class Finishing(QuickCloud):
    """Trials that get through all of the work leave the outputs too."""

    def lease(self, order: Order) -> Lease:
        self.leases.append(FinishingLease(self, order))
        return self.leases[-1]


class FinishingLease(QuickLease):
    def finish(self, at: JobProgress) -> Settled:
        is_finished = self.order.purpose is Purpose.TRIAL and at.samples >= WORK
        return replace(super().finish(at), is_finished=is_finished)


def test_a_training_beside_a_trial_that_did_all_of_the_work_is_ended_and_charged(store: Store) -> None:
    """It would stay where it is: runs differ so much that a tenth of the time is no reason to move."""
    cloud = Finishing()
    given = problem(noise=0.95, trial=replace(TRIAL, seconds=0.5))
    run = driven(make_engine(given, cloud, store, chosen=Listed(configs=(SLOW, FAST))), store)
    assert run.status is Status.DONE
    assert run.finished_trial is not None
    (lease,) = cloud.trainings()
    assert lease.released == 1, "before the run ends"
    assert run.open_stretch is None
    assert "did all of the work" in run.attempts[-1].message


def test_a_training_moves_with_its_work(store: Store) -> None:
    cloud = QuickCloud()
    run = driven(engine(cloud, store, SLOW, FAST), store)
    moved, last = run.attempts
    assert (moved.ending, last.ending) == (Ending.MOVED, Ending.DONE)
    first, second = cloud.trainings()
    assert (first.order.config, second.order.config) == (SLOW, FAST)
    assert second.base == moved.reached_samples > 0
    assert first.released == second.released == 1


class Crowded(QuickCloud):
    """Has no room for the training that starts beside a trial."""

    refused = 0

    def lease(self, order: Order) -> Lease:
        if order.purpose is Purpose.RUN and not self.refused:
            self.refused += 1
            raise LeaseFailed(FailureKind.CAPACITY, "no room", seconds=0.0, billed=False)
        return super().lease(order)


def test_a_training_that_finds_no_room_beside_a_trial_starts_before_the_next_one(store: Store) -> None:
    cloud = Crowded()
    run = driven(make_engine(problem(), cloud, store, chosen=Listed(configs=(SLOW, EVEN, FAST))), store)
    assert cloud.refused == 1
    assert run.status is Status.DONE
    refused, *_, last = run.attempts
    assert (refused.ending, refused.usd, last.ending) == (Ending.RESTARTED, Usd.of(0), Ending.DONE)
    again = [step for step in run.steps if step.role is Role.TRAINING][1]
    assert [step.role for step in run.steps if step.round == again.round] == [Role.TRAINING]
    assert all(lease.released == 1 for lease in cloud.leases)


def test_a_trial_is_ended_when_the_training_beside_it_is_done(store: Store) -> None:
    cloud = QuickCloud(uneven=EVEN)
    longer = problem(trial=TrialPolicy(seconds=1.0, extension=60.0, watchdog_seconds=0.0, precision=1e-6))
    run = driven(make_engine(longer, cloud, store, chosen=Listed(configs=(SLOW, EVEN))), store)
    assert run.status is Status.DONE
    late = run.trials[-1].trial
    assert isinstance(late, Failure)
    assert late.kind is FailureKind.CANCELLED
    assert late.seconds < run.trials[-1].authorised_seconds
    assert late.usd == run.trials[-1].price.for_seconds(late.seconds)
    assert all(lease.released == 1 for lease in cloud.leases)


def test_nodes_that_were_kept_when_mlcd_died_are_charged(store: Store) -> None:
    cloud = QuickCloud()
    with pytest.raises(Killed):
        engine(cloud, store, chosen=Dying(configs=(SLOW, EVEN))).drive()
    before = stored(store)
    assert before.in_flight == ()
    assert before.open_stretch is not None
    run = driven(engine(cloud, store, SLOW, EVEN, add=False), store)
    lost, last = run.attempts
    assert (lost.ending, last.ending) == (Ending.LOST, Ending.DONE)
    assert lost.seconds > before.attempts[0].seconds  # the time between the last stretch and the end of mlcd too
    assert lost.usd > before.attempts[0].usd
    # Only the trial before the training had saved: what the stretch had reached is lost.
    saved = run.trials[0].trial.reached_samples
    assert before.attempts[0].reached_samples > saved > 0
    assert lost.reached_samples == cloud.trainings()[-1].base == saved


def test_nodes_that_are_kept_are_given_back_on_ctrl_c(store: Store) -> None:
    cloud = QuickCloud()
    with pytest.raises(Interrupted):
        engine(cloud, store, chosen=Interrupting(configs=(SLOW, EVEN))).drive()
    assert [lease.released for lease in cloud.trainings()] == [1]
    run = stored(store)
    assert run.in_flight == ()
    assert run.open_stretch is None
    assert run.attempts[-1].ending is Ending.INTERRUPTED


def test_nodes_that_are_kept_are_given_back_with_the_performer(store: Store) -> None:
    cloud = QuickCloud()
    made = engine(cloud, store, chosen=Dying(configs=(SLOW, EVEN)))
    with pytest.raises(Killed):
        made.drive()
    assert isinstance(made.performer, NodePerformer)
    made.performer.close()
    assert [lease.released for lease in cloud.trainings()] == [1]
    made.performer.close()
    assert [lease.released for lease in cloud.trainings()] == [1]


def test_the_nodes_of_a_training_end_themselves_at_its_upper_bound(store: Store) -> None:
    """Even if mlcd is gone, nodes of trials and training together cost no more than the budget."""
    cloud = QuickCloud()
    limited = problem(goal=Goal(minimize=Objective.TIME, budget=Usd.of(50)), slowdown=0.5)
    run = driven(
        make_engine(limited, cloud, store, chosen=OneFirst(configs=(SLOW, EVEN), at_once=1), parallel=2), store
    )
    assert run.status is Status.DONE
    (lease,) = cloud.trainings()
    first = next(step for step in run.steps if step.role is Role.TRAINING)
    assert lease.order.seconds == first.authorised_seconds
