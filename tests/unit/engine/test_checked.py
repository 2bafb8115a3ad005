"""What a cloud says, and what is believed and charged: unit by unit (tests/contract has whole runs)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import pytest
from tests.synthetic import SyntheticCloud, make_problem, make_run

from mlcd.clouds.functions.provider import EpochOrder
from mlcd.clouds.provider import JobProgress, LeaseFailed, Order, Settled
from mlcd.engine.checked import (
    MOST_SAMPLES,
    MOST_STILL_REPORTS,
    REACHED_FACTOR,
    CheckedCloud,
    CheckedLease,
    checked_cloud,
    number,
)
from mlcd.engine.checked_epochs import CheckedFunctions
from mlcd.engine.performer import Situation
from mlcd.engine.watch import AttemptWatch
from mlcd.engine.watchdog import Bounds, abandoned
from mlcd.run.authorisation import Authorisation
from mlcd.run.moment import Moment
from mlcd.run.step import Role, Step
from mlcd.space import Config
from mlcd.trial.epoch import Epoch, FailedEpoch, Fleet, Phase
from mlcd.trial.trial import FailureKind
from mlcd.units import Usd
from mlcd.untrusted import Malformed

CONFIG = Config.deployment("c5.small", 1)


@dataclass
class Told:
    """A cloud and its only lease, which plays points and says what it is told to."""

    points: Sequence[Any] = ()
    failure: LeaseFailed | None = None
    settled_seconds: float = 0.0
    reached: float = 0.0
    simulated: bool = False
    noise: float = 0.0
    name: str = "told"
    now: float = 0.0
    real_seconds_per_point: float = 0.0
    warned: list[str] = field(default_factory=list)

    def lease(self, _order: Order) -> "Told":
        return self

    def __enter__(self) -> "Told":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def progress(self) -> Iterator[Any]:
        for point in self.points:
            self.now += self.real_seconds_per_point
            yield JobProgress(*point)
        if self.failure is not None:
            raise self.failure

    def finish(self, _at: JobProgress) -> Settled:
        return Settled(seconds=self.settled_seconds, reached_samples=self.reached)


def leased(cloud: Told, *, seconds: float = 1000.0) -> CheckedLease:
    return CheckedCloud(cloud=cloud, clock=lambda: cloud.now, warn=cloud.warned.append).lease(
        Order(config=CONFIG, seconds=seconds)
    )


def ended(cloud: Told, *, seconds: float = 1000.0) -> LeaseFailed:
    with leased(cloud, seconds=seconds) as lease, pytest.raises(LeaseFailed) as failed:
        for _ in lease.progress():
            pass
    return failed.value


@pytest.mark.parametrize("value", [True, "1", None, 1j])
def test_what_is_no_number_is_refused(value: object) -> None:
    with pytest.raises(Malformed, match="should be a number"):
        number(value, "seconds")


def test_time_and_samples_only_rise() -> None:
    assert "ran backwards, from 5 to 4" in ended(Told(points=[(5.0, 1.0), (4.0, 2.0)])).message
    assert "went down, from 2 to 1" in ended(Told(points=[(5.0, 2.0), (6.0, 1.0)])).message


def test_a_simulated_cloud_whose_time_stands_still_hangs() -> None:
    points = [(5.0, float(at)) for at in range(2 * MOST_STILL_REPORTS)]
    failed = ended(Told(points=points, simulated=True))
    assert failed.kind is FailureKind.HANG
    assert "its time stands still at 5 s" in failed.message


def test_a_cloud_that_understates_its_time_is_charged_what_passed() -> None:
    cloud = Told(points=[(1.0, 1.0)], settled_seconds=10.0)
    with leased(cloud) as lease:
        points = list(lease.progress())
        cloud.now = 500.0
        settled = lease.finish(points[-1])
    assert settled.seconds == 500.0
    assert "says that a lease took 10 s" in cloud.warned[0]
    over = Told(points=[(1.0, 1.0)], settled_seconds=700.0, now=0.0)
    with leased(over) as lease:
        assert lease.finish(next(lease.progress())).seconds == 700.0, "what it states counts where it is more"


def test_a_lease_that_had_nodes_is_paid_whatever_it_says() -> None:
    def unpaid(kind: FailureKind) -> LeaseFailed:
        return LeaseFailed(kind, "no", seconds=3.0, billed=False)

    assert not ended(Told(failure=unpaid(FailureKind.CAPACITY))).billed
    assert ended(Told(points=[(1.0, 5.0)], failure=unpaid(FailureKind.CAPACITY))).billed, "it processed samples"
    assert ended(Told(failure=unpaid(FailureKind.OUT_OF_MEMORY))).billed, "only a node runs out of memory"


def test_a_lease_that_runs_on_after_its_time_is_ended() -> None:
    late = Bounds().late_seconds
    cloud = Told(points=[(float(at), float(at)) for at in range(100)], real_seconds_per_point=100.0)
    failed = ended(cloud, seconds=1000.0)
    assert failed.kind is FailureKind.OVERRAN
    assert 1000.0 + late < cloud.now <= 1000.0 + late + 100.0
    assert failed.seconds == cloud.now


def step(*, seconds: float = 1000.0) -> Step:
    return Step(
        number=1,
        round=1,
        role=Role.TRAINING,
        authorisation=Authorisation(choice=CONFIG, attempt=1, usd=Usd.of(9), seconds=seconds),
        reason="",
        usd_per_hour=Usd.of(1),
        started_seconds=0.0,
        started_at=0.0,
    )


def situation(**changed: Any) -> Situation[Any]:
    run = make_run(make_problem(), SyntheticCloud(), "listed", run_id="run-1")
    return Situation(**{"run": run, "elapsed_seconds": lambda: 0.0, "tell": lambda _event: None, **changed})


def test_a_checkpoint_cannot_cover_more_than_the_work() -> None:
    counted = checked_cloud(Told(), step(), situation(), Bounds())
    assert counted.most_samples == REACHED_FACTOR * make_problem().work_samples < MOST_SAMPLES


# ---- time


def test_a_step_that_nobody_could_end_is_charged_for_all_its_time() -> None:
    def charged(passed: float, authorised: float) -> float:
        now = Moment(wall_seconds=passed, boot_seconds=passed, boot="b")
        began = Moment(wall_seconds=0.0, boot_seconds=0.0, boot="b")
        return abandoned(step(seconds=authorised), situation(moment=lambda: now), began, "it hangs")[0]

    assert charged(passed=100.0, authorised=1000.0) == 1000.0
    assert charged(passed=3000.0, authorised=1000.0) == 3000.0
    assert charged(passed=100.0, authorised=float("inf")) == 100.0


def test_a_real_step_has_time_to_give_its_nodes_back() -> None:
    bounds = Bounds(abandon_seconds=600.0, simulated_seconds=10.0)
    assert bounds.step_seconds(1000.0, simulated=False) == 1600.0
    assert bounds.step_seconds(1000.0, simulated=True) == 10.0


def watched(*points: tuple[float, float]) -> AttemptWatch:
    watch = AttemptWatch(work=1000.0, seconds_left=1e9)
    for point in points:
        watch.take(JobProgress(*point))
    return watch


def test_the_work_is_done_between_two_reports() -> None:
    assert watched((0.0, 0.0), (60.0, 900.0), (120.0, 1100.0)).crossing() == pytest.approx(90.0)


def test_the_current_speed_is_that_of_the_last_half() -> None:
    slowed = watched(
        *((float(at), 10.0 * at) for at in range(1, 51)), *((50.0 + at, 500.0 + at) for at in range(1, 51))
    )
    assert slowed.speed() == pytest.approx(1.0)


# ---- epochs

FLEET = Fleet(4, 1024)
ORDER = EpochOrder(number=3, fleet=FLEET, seconds=100.0, usd=Usd.of(2))
PHASE = Phase(mean_seconds=1.0, max_seconds=2.0)


@dataclass
class ToldFunctions:
    answer: Any
    simulated: bool = True
    name: str = "told"

    def run_epoch(self, _order: EpochOrder) -> Any:
        return self.answer


def epoch(number: int = 3, fleet: Fleet = FLEET) -> Epoch:
    return Epoch(
        number=number, fleet=fleet, loss=1.0, seconds=10.0, usd=Usd.of(1), fetch=PHASE, compute=PHASE, update=PHASE,
        calls=4,
    )  # fmt: skip


def outcome(answer: object) -> Epoch | FailedEpoch:
    return CheckedFunctions(cloud=ToldFunctions(answer)).run_epoch(ORDER)[0]


def test_only_the_epoch_that_was_ordered_is_accepted() -> None:
    assert outcome(epoch()) == epoch()
    for wrong in (epoch(number=4), epoch(fleet=Fleet(8, 1024)), None):
        found = outcome(wrong)
        assert isinstance(found, FailedEpoch)
        assert found.usd == ORDER.usd, "what it cost is not known: all of it is charged"


def test_the_speed_is_unknown_for_some_seconds_after_the_first_sample_however_late_that_was() -> None:
    assert watched((100.0, 1.0), (101.0, 2.0), (102.0, 3.0)).speed() is None
    assert watched((100.0, 1.0), (103.0, 4.0), (106.0, 7.0)).speed() == pytest.approx(1.0)
