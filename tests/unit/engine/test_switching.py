"""A training that changes its batch midway: fake leases whose noise is not as expected, no process, no clock.

The trials are so early that typical noise is expected, with which the large batch is better.
"""

import math
from collections.abc import Callable, Iterator
from types import TracebackType

import pytest
from tests.synthetic import QUICK_TRIALS, Machine, SyntheticCloud, batched, driven, make_engine, make_problem

from mlcd.clouds.provider import JobProgress, Lease, Order, Purpose, Settled
from mlcd.clouds.reading import GradientNorms, Listening, Reading
from mlcd.engine.switching import SWITCH_GAIN
from mlcd.events import Event, Warned
from mlcd.goal import Goal, Objective
from mlcd.problem import STOP_SECONDS, Batching, Problem
from mlcd.run.attempt import Ending
from mlcd.run.run import SearchRun
from mlcd.space import Config
from mlcd.store.store import Store
from mlcd.trial.outcome import Status
from mlcd.units import Usd

MACHINES = {"a": Machine(usd_per_hour=1.0, speed=10.0)}
SPEEDS = {64: 10.0, 256: 20.0}
WORK = 36_000.0  # an hour at 64
STARTUP, SAVING, STEP = 12.0, 3.0, 5.0
QUIET, NOISY = 20.0, 2000.0  # at the first a sample at 256 counts for 30%, at the second for 91%

Noise = Callable[[float], float | None]


def at(batch: int) -> Config:
    return Config((("instance", "a"), ("nodes", 1), ("batch", batch)))


def problem(minimize: Objective = Objective.TIME) -> Problem:
    given = make_problem(
        machines=MACHINES, counts=(1,), work_samples=WORK, goal=Goal(minimize=minimize), trial=QUICK_TRIALS
    )
    return Problem(**{**vars(batched(given)), "batching": Batching(reference=64), "keeps_work": True})


def heard(samples: float, phi: float, batch: float) -> Reading:
    """Norms of two workers that give this noise scale: |G|^2 = 2 total - local = 1, s^2 = (local - total) B = phi."""
    norms = GradientNorms(workers=2, batch=batch, total=1 + phi / batch, local=1 + 2 * phi / batch)
    return Reading(seconds=0.0, samples=samples, noise=norms)


class Run:
    """A lease at the speed of its batch. Its noise depends on the work done, in samples at the reference batch."""

    def __init__(self, cloud: "Noisy", order: Order) -> None:
        self.cloud, self.order = cloud, order
        self.batch = int(order.config["batch"])
        self.heard: list[Reading] = []
        self.samples = 0.0

    def __enter__(self) -> "Run":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def progress(self) -> Iterator[JobProgress]:
        seconds, cloud = STARTUP, self.cloud
        yield JobProgress(seconds, 0.0)
        trial = self.order.purpose is Purpose.TRIAL
        while trial or cloud.done < WORK:
            seconds += STEP
            stepped = STEP * SPEEDS[self.batch]
            self.samples += stepped
            phi = QUIET if trial else cloud.noise_of(cloud.done)
            if not trial:
                cloud.done += stepped * cloud.worth(self.batch)
            if phi is not None:
                self.heard.append(heard(cloud.reached + self.samples, phi, self.batch))
            yield JobProgress(seconds, self.samples)

    def finish(self, at: JobProgress) -> Settled:
        if self.order.purpose is Purpose.RUN:
            self.cloud.reached += self.samples
        return Settled(seconds=at.seconds + SAVING, reached_samples=self.cloud.reached)


class Noisy(SyntheticCloud):
    """A cloud that looks real to the engine."""

    def __init__(self, noise_of: Noise) -> None:
        super().__init__(MACHINES, simulated=False)
        self.noise_of = noise_of
        self.done = 0.0
        self.reached = 0.0
        self.orders: list[Order] = []

    def worth(self, batch: int) -> float:
        return Batching(reference=64, noise_scale=self.noise_of(self.done) or math.inf).worth(batch)

    def reached_samples(self, run_id: str) -> float:
        return max(self.reached, 1.0)  # the trials have left a checkpoint

    def lease(self, order: Order) -> Lease:
        if order.purpose is Purpose.RUN:
            self.orders.append(order)
        lease = Run(self, order)
        assert isinstance(lease, Listening)
        return lease


def quiet_until(share: float) -> Noise:
    return lambda done: QUIET if done < share * WORK else NOISY


def train(
    noise: Noise, text: str = "scavenger-goodput", *, given: Problem | None = None
) -> tuple[SearchRun, Noisy, list[str]]:
    events: list[Event] = []
    cloud = Noisy(noise)
    with Store(None) as store:
        record = driven(make_engine(given or problem(), cloud, store, text, observer=events.append), store)
    return record, cloud, [event.text for event in events if isinstance(event, Warned)]


def test_the_training_switches_to_a_smaller_batch_when_noise_stays_low() -> None:
    record, cloud, warned = train(quiet_until(1.1))
    assert record.status is Status.DONE
    assert record.choice is not None
    assert record.choice.config == at(256), "with the noise that is expected, the large batch is better"
    assert [order.config for order in cloud.orders] == [at(256), at(64)]
    (moved,) = record.earlier
    assert (moved.config, moved.ending) == (at(256), Ending.MOVED)
    assert moved.message.startswith("at an expected noise scale of ")
    assert "batch=64 is better than 1 x a, batch=256 for the remaining work" in moved.message
    assert any(moved.message in text and "continues from its checkpoint" in text for text in warned)
    assert moved.noise_scale == pytest.approx(QUIET)
    assert record.final is not None
    assert (record.final.config, record.final.ending) == (at(64), Ending.DONE)
    assert cloud.orders[1].noise_scale == pytest.approx(QUIET), "its learning rate follows the noise of now"


def test_the_restart_is_charged_and_the_change_still_pays() -> None:
    record, _, _ = train(quiet_until(1.1))
    stayed, _, _ = train(quiet_until(1.1), "scavenger-goodput:replan=off")
    (moved,), final = record.earlier, record.final
    assert final is not None
    assert stayed.final is not None
    assert stayed.earlier == ()
    assert stayed.final.config == at(256)
    trained = moved.samples_per_second
    assert trained == pytest.approx(SPEEDS[256], rel=0.02)
    work_seconds = moved.reached_samples / SPEEDS[256]
    assert moved.seconds == pytest.approx(STARTUP + work_seconds + SAVING, abs=STEP), "start-up and saving are in it"
    assert moved.usd == Usd.of(1).for_seconds(moved.seconds)
    both = moved.seconds + final.seconds
    assert record.total_seconds == pytest.approx(record.search_seconds + both)
    assert record.total_usd == record.search_usd + moved.usd + final.usd
    assert both < (1 - SWITCH_GAIN) * stayed.final.seconds


@pytest.mark.parametrize(
    ("noise", "text"),
    [
        (quiet_until(0.0), "scavenger-goodput"),  # it is as noisy as expected
        (quiet_until(1.1), "scavenger-goodput:replan=off"),
        (quiet_until(1.1), "scavenger-partial"),  # which is not asked again
    ],
)
def test_a_gain_that_is_too_small_changes_nothing(noise: Noise, text: str) -> None:
    record, cloud, warned = train(noise, text)
    assert record.status is Status.DONE
    assert record.earlier == ()
    assert [order.config for order in cloud.orders] == [at(256)]
    assert warned == []


def test_the_restart_cost_prevents_a_late_change() -> None:
    """At 99% the remaining work would be faster at 256; start-up and saving make it slower."""
    rest = 0.01 * WORK
    there = rest / Batching(reference=64, noise_scale=NOISY).worth(256) / SPEEDS[256]
    assert there < (1 - SWITCH_GAIN) * rest / SPEEDS[64] < there + STARTUP + STOP_SECONDS


def test_without_reports_of_noise_nothing_is_changed() -> None:
    record, cloud, _ = train(lambda done: None)
    assert record.status is Status.DONE
    assert [order.config for order in cloud.orders] == [at(256)]
    assert record.earlier == ()


def test_no_change_before_there_is_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Noisy, "reached_samples", lambda self, run_id: 0.0)
    record, cloud, _ = train(quiet_until(1.1))
    assert [order.config for order in cloud.orders] == [at(256)]
    assert record.earlier == ()
