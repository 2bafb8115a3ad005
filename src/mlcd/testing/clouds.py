"""The contract of every simulated cloud (mlcd.clouds.provider.Cloud). For real clouds see RealCloudContract."""

import math
from itertools import islice, pairwise
from typing import ClassVar, cast

import pytest

from mlcd.clouds.provider import Cloud, JobProgress, KnownTruth, LeaseFailed, Order, Purpose
from mlcd.engine.checked import CheckedCloud
from mlcd.problem import TrialPolicy
from mlcd.profiler.measure import measure
from mlcd.space import Config
from mlcd.trial.trial import Failure, FailureKind, Measurement
from mlcd.units import Usd

POLICY = TrialPolicy()
PRICE = Usd.of(3)


class CloudContract:
    """Each test holds for every cloud. A subclass names the cloud and makes one with a given seed.

    good     configurations on which the job runs
    broken   configurations on which it always fails
    known    whether the cloud knows its true mean speed
    flaky    whether trials may fail at random
    """

    cloud_name: ClassVar[str]
    good: ClassVar[tuple[Config, ...]]
    broken: ClassVar[tuple[Config, ...]] = ()
    known: ClassVar[bool] = True
    flaky: ClassVar[bool] = False

    def make(self, seed: int) -> Cloud:
        raise NotImplementedError

    @pytest.fixture
    def cloud(self) -> Cloud:
        return self.make(1)

    def watch(self, cloud: Cloud, config: Config, *, attempt: int = 1, purpose: Purpose = Purpose.TRIAL) -> object:
        """The first points of progress, or how the lease failed."""
        try:
            with cloud.lease(Order(config=config, attempt=attempt, purpose=purpose)) as lease:
                return list(islice(lease.progress(), 50))
        except LeaseFailed as error:
            return (error.kind, error.message, error.seconds, error.billed)

    def points(self, cloud: Cloud, config: Config, purpose: Purpose = Purpose.TRIAL) -> list[JobProgress]:
        """Progress of the first attempt that does not fail."""
        for attempt in range(1, 40):
            seen = self.watch(cloud, config, attempt=attempt, purpose=purpose)
            if isinstance(seen, list):
                return cast(list[JobProgress], seen)
        raise AssertionError("every attempt failed")

    def test_describes_itself(self, cloud: Cloud) -> None:
        assert cloud.name.strip()
        assert isinstance(cloud.simulated, bool)
        assert 0 <= cloud.noise < 1

    def test_the_same_question_gets_the_same_answer(self) -> None:
        first, second = self.make(3), self.make(3)
        questions = [(c, a, p) for c in (*self.good, *self.broken) for a in (1, 2, 3) for p in Purpose]
        answers = [self.watch(first, c, attempt=a, purpose=p) for c, a, p in questions]
        # in another order, to show that no state is carried from one lease to the next
        again = [self.watch(second, c, attempt=a, purpose=p) for c, a, p in reversed(questions)]
        assert answers == again[::-1]

    def test_noise_depends_on_seed_and_attempt(self) -> None:
        if self.make(1).noise == 0:
            config = self.good[0]
            assert len({str(self.points(self.make(seed), config)) for seed in (1, 2, 3)}) == 1
            return
        config = self.good[0]
        by_seed = [self.watch(self.make(seed), config) for seed in range(6)]
        by_attempt = [self.watch(self.make(1), config, attempt=attempt) for attempt in range(1, 7)]
        assert len({str(answer) for answer in by_seed}) > 1
        assert len({str(answer) for answer in by_attempt}) > 1

    @pytest.mark.parametrize("purpose", list(Purpose))
    def test_progress_rises_in_seconds_and_never_falls_in_samples(self, cloud: Cloud, purpose: Purpose) -> None:
        for config in self.good:
            points = self.points(cloud, config, purpose)
            assert points[0].samples == 0
            assert points[0].seconds >= 0
            assert all(a.seconds < b.seconds for a, b in pairwise(points))
            assert all(a.samples <= b.samples for a, b in pairwise(points))
            assert all(math.isfinite(p.seconds) and math.isfinite(p.samples) for p in points)

    def test_a_trial_reports_often_enough_to_watch_it(self, cloud: Cloud) -> None:
        for config in self.good:
            points = [p for p in self.points(cloud, config) if p.seconds <= POLICY.planned_seconds(config.nodes)]
            assert all(b.seconds - a.seconds <= POLICY.watchdog_seconds for a, b in pairwise(points))

    def test_the_run_has_the_true_mean_speed(self) -> None:
        if not self.known:
            pytest.skip("does not know its true speeds")
        for seed in (1, 2):
            cloud = self.make(seed)
            for config in self.good:
                points = self.points(cloud, config, Purpose.RUN)
                speed = (points[-1].samples - points[0].samples) / (points[-1].seconds - points[0].seconds)
                true = cast(KnownTruth, cloud).true_samples_per_second(config)
                assert true is not None
                assert speed == pytest.approx(true, rel=1e-9)

    def test_a_trial_measures_the_true_mean_within_the_stated_noise(self) -> None:
        if not self.known:
            pytest.skip("does not know its true speeds")
        errors = []
        for seed in range(12):
            cloud = self.make(seed)
            config = self.good[seed % len(self.good)]
            trial = measure(cloud, config, attempt=1, policy=POLICY, usd_per_hour=PRICE)
            if isinstance(trial, Measurement):
                true = cast(KnownTruth, cloud).true_samples_per_second(config)
                assert true is not None
                assert trial.relative_error >= cloud.noise
                errors.append((math.log(trial.samples_per_second / true)) / max(trial.relative_error, 0.005))
        assert errors
        assert max(map(abs, errors)) < 4.75
        assert abs(sum(errors)) / math.sqrt(len(errors)) < 4.0

    def test_a_failure_states_its_time_and_whether_it_is_billed(self, cloud: Cloud) -> None:
        for config in (*self.good, *self.broken):
            for attempt in range(1, 30):
                seen = self.watch(cloud, config, attempt=attempt)
                if isinstance(seen, tuple):
                    kind, message, seconds, billed = seen
                    assert kind in FailureKind
                    assert message
                    assert 0 <= seconds < POLICY.worst_seconds(config.nodes)
                    assert billed or kind is FailureKind.CAPACITY

    @pytest.mark.parametrize("authorised", [1.0, 30.0, 100.0])
    def test_a_failure_comes_within_the_authorised_time(self, cloud: Cloud, authorised: float) -> None:
        late = []
        for config in (*self.good, *self.broken):
            for attempt in range(1, 30):
                try:
                    with cloud.lease(Order(config=config, attempt=attempt, seconds=authorised)) as lease:
                        next(point for point in lease.progress() if point.seconds >= authorised)
                except LeaseFailed as error:
                    if error.seconds > authorised:
                        late.append(f"{config}, attempt {attempt}: {error.message} after {error.seconds:.0f} s")
        assert late == []

    def test_broken_configurations_fail_every_time(self, cloud: Cloud) -> None:
        for config in self.broken:
            for attempt in (1, 2):
                assert isinstance(self.watch(cloud, config, attempt=attempt), tuple)
            if self.known:
                assert cast(KnownTruth, cloud).true_samples_per_second(config) is None

    def test_trials_fail_at_random_only_on_a_flaky_cloud(self, cloud: Cloud) -> None:
        outcomes = [
            measure(cloud, config, attempt=attempt, policy=POLICY, usd_per_hour=PRICE)
            for config in self.good
            for attempt in range(1, 25)
        ]
        assert any(isinstance(t, Failure) for t in outcomes) == self.flaky
        assert any(isinstance(t, Measurement) for t in outcomes)
        for trial in outcomes:
            assert trial.seconds <= POLICY.worst_seconds(trial.config.nodes)
            assert trial.usd <= PRICE.for_seconds(POLICY.worst_seconds(trial.config.nodes))

    @pytest.mark.parametrize("purpose", list(Purpose))
    def test_it_says_nothing_that_the_engine_does_not_believe(self, cloud: Cloud, purpose: Purpose) -> None:
        """Finite, rising, within its promise: the engine's own checks, which end a lease otherwise."""
        warned: list[str] = []
        refused: list[LeaseFailed] = []
        checked = CheckedCloud(cloud=cloud, warn=warned.append)
        assert 0 <= checked.noise < 1
        for config in (*self.good, *self.broken):
            for attempt in (1, 2, 3):
                seconds = POLICY.worst_seconds(config.nodes)
                order = Order(config=config, attempt=attempt, purpose=purpose, seconds=seconds, run_id="contract")
                try:
                    with checked.lease(order) as lease:
                        points = list(islice(lease.progress(), 200))
                        settled = lease.finish(points[-1])
                except LeaseFailed as failed:
                    refused += [failed] if failed.message.startswith("the cloud ") else []
                    refused += [failed] if failed.kind is FailureKind.OVERRAN else []
                    continue
                assert settled.seconds >= points[-1].seconds
        assert (refused, warned) == ([], [])

    def test_an_error_inside_a_lease_releases_it_and_propagates(self, cloud: Cloud) -> None:
        config = self.good[0]

        def leave_by_error() -> None:
            with cloud.lease(Order(config=config, attempt=self._calm_attempt(cloud), purpose=Purpose.TRIAL)) as lease:
                next(iter(lease.progress()))
                raise KeyError("from inside")

        with pytest.raises(KeyError, match="from inside"):
            leave_by_error()
        assert self.points(cloud, config)  # it can be leased again

    def _calm_attempt(self, cloud: Cloud) -> int:
        return next(a for a in range(1, 40) if isinstance(self.watch(cloud, self.good[0], attempt=a), list))
