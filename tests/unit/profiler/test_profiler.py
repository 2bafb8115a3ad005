import itertools
import math
import random
from collections.abc import Callable

import numpy as np
import pytest
from tests.synthetic import ScriptedCloud, ScriptedLease

from mlcd.clouds.provider import JobProgress, LeaseFailed, Settled
from mlcd.errors import Interrupted, ProviderError
from mlcd.problem import TrialPolicy
from mlcd.profiler.measure import MOST_POINTS, MOST_RATES, MOST_RELATIVE_ERROR, _Watch, measure, steady_speed
from mlcd.space import Config
from mlcd.trial.node_metrics import NodeMetrics
from mlcd.trial.trial import Failure, FailureKind, Measurement, Trial
from mlcd.units import ZERO, Usd

POLICY = TrialPolicy()  # 600 s, up to 900 s, watchdog 120 s
CONFIG = Config.deployment("a", 1)
PRICE = Usd.of(36)  # a cent a second


def endless(rate: Callable[[int], float], *, startup: float = 50.0, step: float = 10.0) -> ScriptedLease:
    """A lease whose step `i` processes rate(i) samples a second."""
    total = [0.0]

    def tail(i: int) -> tuple[float, float]:
        if i:
            total[0] += rate(i) * step
        return startup + i * step, total[0]

    return ScriptedLease([], tail=tail)


def run(lease: ScriptedLease | LeaseFailed, *, noise: float = 0.0, policy: TrialPolicy = POLICY) -> Trial:
    cloud = ScriptedCloud(lease, noise=noise)
    return measure(cloud, CONFIG, attempt=1, policy=policy, usd_per_hour=PRICE)


def measurement(lease: ScriptedLease, *, noise: float = 0.0, policy: TrialPolicy = POLICY) -> Measurement:
    trial = run(lease, noise=noise, policy=policy)
    assert isinstance(trial, Measurement)
    return trial


def failure(lease: ScriptedLease | LeaseFailed, *, policy: TrialPolicy = POLICY) -> Failure:
    trial = run(lease, policy=policy)
    assert isinstance(trial, Failure)
    return trial


def test_a_trial_has_what_the_clouds_monitoring_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = NodeMetrics(source="CloudWatch", nodes=1, cpu_percent=61.5)
    settled = lambda _, at: Settled(seconds=at.seconds, node_metrics=metrics)  # noqa: E731
    monkeypatch.setattr(ScriptedLease, "finish", settled)
    assert measurement(endless(lambda i: 20.0)).node_metrics == metrics


def test_a_steady_job_takes_the_planned_time_and_is_paid_for_it() -> None:
    lease = endless(lambda i: 20.0)
    trial = measurement(lease)
    assert trial.samples_per_second == pytest.approx(20)
    assert trial.relative_error == pytest.approx(0, abs=1e-12)
    assert trial.seconds == 600
    assert trial.usd == Usd.of(6)
    assert trial.startup_seconds == 50
    assert not trial.extended
    assert trial.iterations >= 27
    assert lease.released == 1


def test_warm_up_is_dropped() -> None:
    trial = measurement(endless(lambda i: 20.0 if i > 12 else 2.0 + i))
    assert trial.samples_per_second == pytest.approx(20, rel=1e-9)
    assert trial.iterations <= 55 - 12


def test_a_first_step_that_compiles_for_longer_than_the_trial_is_no_speed() -> None:
    """torch.compile: the first report comes after the planned time, and then the steps are quick."""

    def tail(i: int) -> tuple[float, float]:
        return (50.0, 0.0) if i == 0 else (650.0 + (i - 1), 20.0 * i)

    trial = measurement(ScriptedLease([], tail=tail))
    assert trial.samples_per_second == pytest.approx(20, rel=0.01)
    assert trial.extended
    assert trial.seconds < POLICY.extended_seconds(1)


def test_a_level_that_never_settles_is_not_taken_for_warm_up() -> None:
    """At most the first half is dropped: a drop within the second half stays and widens the interval."""
    trial = measurement(endless(lambda i: 20.0 if i < 40 else 10.0), policy=TrialPolicy(extension=0.0))
    assert trial.relative_error > 0.05
    assert 10 < trial.samples_per_second < 20


SHORT = TrialPolicy(least_share=0.25)  # 150 s after the first sample


def test_a_short_trial_ends_when_its_speed_is_known() -> None:
    trial = measurement(endless(lambda i: 20.0), policy=SHORT)
    assert trial.seconds == 50 + 150
    assert trial.usd == Usd.of(2)
    assert trial.samples_per_second == pytest.approx(20)
    assert not trial.extended


def test_a_short_trial_of_a_job_that_warms_up_measures_the_speed_after_it() -> None:
    trial = measurement(endless(lambda i: 20.0 if i > 12 else 2.0 + i), policy=SHORT)
    assert 200 < trial.seconds < 600
    assert trial.samples_per_second == pytest.approx(20, rel=SHORT.known_precision)


def test_a_short_trial_of_an_unsteady_job_takes_its_planned_time_or_more() -> None:
    rng = random.Random(1)
    rough = [20 * math.exp(rng.gauss(0, 0.3)) for _ in range(400)]
    assert measurement(endless(lambda i: rough[i]), policy=SHORT).seconds >= 600


def test_a_short_trial_is_measured_for_a_minute_and_by_enough_points() -> None:
    brief = TrialPolicy(seconds=160.0, least_share=0.1)
    assert measurement(endless(lambda i: 20.0), policy=brief).seconds == 50 + 80  # eight means need eight points
    assert measurement(endless(lambda i: 20.0, step=2.0), policy=brief).seconds == 50 + 60
    assert measurement(endless(lambda i: 20.0, step=60.0), policy=SHORT).seconds == 50 + 8 * 60


@pytest.mark.parametrize(("to_beat", "seconds"), [(40.0, 50 + 80), (29.0, 200), (0.0, 200)])
def test_a_short_trial_that_cannot_win_ends_sooner(to_beat: float, seconds: float) -> None:
    """Half as fast as what it must beat: after half of the least time. Two thirds: warm-up might be the reason."""
    cloud = ScriptedCloud(endless(lambda i: 20.0), noise=0.03)
    trial = measure(cloud, CONFIG, attempt=1, policy=SHORT, usd_per_hour=PRICE, to_beat=to_beat)
    assert trial.seconds == seconds


def test_a_trial_that_cannot_win_ends_sooner_also_where_its_speed_is_not_known_well() -> None:
    rng = random.Random(1)
    rough = [20 * math.exp(rng.gauss(0, 0.2)) for _ in range(400)]
    trials = [
        measure(
            ScriptedCloud(endless(lambda i: rough[i])),
            CONFIG,
            attempt=1,
            policy=SHORT,
            usd_per_hour=PRICE,
            to_beat=to_beat,
        )
        for to_beat in (80.0, 0.0)
    ]
    assert [trial.seconds < 200 for trial in trials] == [True, False]


def test_a_trial_that_cannot_win_takes_its_planned_time_where_none_ends_early() -> None:
    cloud = ScriptedCloud(endless(lambda i: 20.0))
    assert measure(cloud, CONFIG, attempt=1, policy=POLICY, usd_per_hour=PRICE, to_beat=400.0).seconds == 600


def test_a_slow_warm_up_is_not_taken_for_a_trial_that_cannot_win() -> None:
    cloud = ScriptedCloud(endless(lambda i: 20.0 if i > 6 else 8.0))
    trial = measure(cloud, CONFIG, attempt=1, policy=SHORT, usd_per_hour=PRICE, to_beat=19.0)
    assert isinstance(trial, Measurement)
    assert trial.samples_per_second == pytest.approx(20, rel=0.02)


def test_a_trial_that_may_not_take_longer_is_not_shortened() -> None:
    exact = TrialPolicy(extension=0.0, least_share=0.25)
    assert measurement(endless(lambda i: 20.0), policy=exact).seconds == 600


def test_nodes_take_longer() -> None:
    cloud = ScriptedCloud(endless(lambda i: 5.0))
    trial = measure(cloud, Config.deployment("a", 10), attempt=1, policy=POLICY, usd_per_hour=PRICE)
    assert trial.seconds == 600 + 3 * 60


def test_an_unstable_job_is_extended_as_long_as_needed() -> None:
    trial = measurement(endless(lambda i: 20.0 if i < 40 else 10.0))
    assert trial.extended
    assert 600 < trial.seconds < 900
    assert 1.96 * trial.relative_error <= POLICY.precision


def test_an_extension_is_bounded_and_recorded() -> None:
    rng = random.Random(1)
    wild = [20 * math.exp(rng.gauss(0, 1.2)) for _ in range(400)]
    trial = measurement(endless(lambda i: wild[i]))
    assert trial.seconds == 900
    assert trial.extended
    assert 1.96 * trial.relative_error > POLICY.precision


def test_no_extension_where_none_was_authorised() -> None:
    rng = random.Random(1)
    wild = [20 * math.exp(rng.gauss(0, 1.2)) for _ in range(400)]
    trial = measurement(endless(lambda i: wild[i]), policy=TrialPolicy(extension=0.0))
    assert trial.seconds == 600
    assert not trial.extended


def test_the_clouds_own_noise_is_part_of_the_error() -> None:
    trial = measurement(endless(lambda i: 20.0), noise=0.07)
    assert trial.relative_error == pytest.approx(0.07)


def test_a_hang_is_ended_by_the_watchdog() -> None:
    trial = failure(endless(lambda i: 20.0 if i < 20 else 0.0))
    assert trial.kind is FailureKind.HANG
    assert trial.message == "no progress for 120 s"
    # the last sample came at 50 + 19 x 10 s
    assert trial.seconds == 240 + 120
    assert trial.usd == PRICE.for_seconds(360)


class _Done(ScriptedLease):
    """A lease whose job has done all of its work when its samples no longer rise, and writes its results."""

    def has_done_all(self) -> bool:
        return True


def test_a_job_that_has_done_all_of_its_work_is_not_hung_while_it_writes_its_results() -> None:
    lease = endless(lambda i: 20.0 if i < 20 else 0.0)
    trial = measurement(_Done([*itertools.islice(map(lease.tail, itertools.count()), 60)]))  # type: ignore[arg-type]
    assert trial.samples_per_second == pytest.approx(20)
    assert trial.seconds == 640  # the job ended by itself, after 50 + 59 x 10 s


def test_a_job_that_never_ends_after_its_work_is_ended_with_the_trial_and_measured() -> None:
    trial = measurement(_Done([], tail=endless(lambda i: 20.0 if i < 20 else 0.0).tail))
    assert trial.seconds == 900


def test_slow_steps_are_no_hang() -> None:
    trial = measurement(endless(lambda i: 60.0 if i % 10 == 0 else 0.0))
    assert trial.samples_per_second == pytest.approx(6, rel=0.3)


def test_without_a_watchdog_a_hang_lasts_to_the_end_of_the_extension() -> None:
    trial = run(endless(lambda i: 20.0 if i < 20 else 0.0), policy=TrialPolicy(watchdog_seconds=0.0))
    assert trial.seconds <= 900


def test_a_job_that_never_starts_is_ended() -> None:
    trial = failure(endless(lambda i: 0.0))
    assert trial.kind is FailureKind.HANG
    ended = "the trial ended before its first sample after 900 s"
    assert trial.message == f"{ended}; increase search.trial.minutes"
    assert trial.seconds == 900
    assert trial.usd == PRICE.for_seconds(900)


def test_a_lease_that_ends_at_once_is_charged_in_full() -> None:
    trial = failure(ScriptedLease([]))
    assert trial.kind is FailureKind.ERROR
    assert trial.message.startswith("the job ended before its first sample")
    assert trial.seconds == POLICY.worst_seconds(1)


def test_a_late_start_leaves_too_few_points() -> None:
    trial = failure(ScriptedLease([(2000.0, 5.0)]))
    assert trial.seconds == POLICY.worst_seconds(1)
    assert trial.kind is FailureKind.ERROR
    assert trial.message == "the job ended after too few samples to measure its speed"


def test_start_up_ends_with_the_last_moment_before_the_first_sample() -> None:
    """A cloud may report while it starts; all of that is start-up, which the training needs again."""
    waiting = [(float(s), 0.0) for s in range(0, 200, 10)]
    lease = ScriptedLease(waiting, tail=lambda i: (200.0 + 10 * i, 100.0 * (i + 1)))
    trial = measurement(lease)
    assert trial.startup_seconds == 190
    assert trial.samples_per_second == pytest.approx(10, rel=0.02)


@pytest.mark.parametrize("billed", [True, False])
def test_a_failure_is_charged_only_if_nodes_were_obtained(billed: bool) -> None:
    trial = failure(LeaseFailed(FailureKind.LAUNCH, "did not come up", seconds=100.0, billed=billed))
    assert (trial.kind, trial.message, trial.seconds) == (FailureKind.LAUNCH, "did not come up", 100.0)
    assert trial.usd == (Usd.of(1) if billed else ZERO)


def test_a_failure_later_than_authorised_is_charged_what_was_authorised() -> None:
    lease = ScriptedLease([(10.0, 0.0), (20.0, 5.0)], failure=LeaseFailed(FailureKind.ERROR, "died", seconds=1e6))
    trial = failure(lease)
    assert trial.seconds == POLICY.worst_seconds(1)
    assert trial.usd == PRICE.for_seconds(POLICY.worst_seconds(1))
    assert lease.released == 1


def test_a_step_beyond_the_end_is_not_charged() -> None:
    """A simulated step may overshoot the end; the trial is recorded as ending on time."""
    trial = measurement(ScriptedLease([(0.0, 0.0), (5000.0, 5000.0)]))
    assert trial.seconds == POLICY.worst_seconds(1)
    assert trial.samples_per_second == pytest.approx(1.0)


def test_a_cancelled_trial_releases_its_nodes_and_raises() -> None:
    lease = endless(lambda i: 20.0)
    asked = 0

    def cancelled() -> bool:
        nonlocal asked
        asked += 1
        return asked > 5

    with pytest.raises(Interrupted):
        measure(ScriptedCloud(lease), CONFIG, attempt=1, policy=POLICY, usd_per_hour=PRICE, cancelled=cancelled)
    assert lease.released == 1
    assert asked == 6


def test_errors_that_are_not_outcomes_pass_through() -> None:
    class Broken:
        name, simulated, noise = "broken", False, 0.0

        def lease(self, *args: object, **kwargs: object) -> ScriptedLease:
            raise ProviderError("no credentials")

    with pytest.raises(ProviderError, match="no credentials"):
        measure(Broken(), CONFIG, attempt=1, policy=POLICY, usd_per_hour=PRICE)


def test_very_many_points_take_no_time_and_no_memory() -> None:
    """Finding the warm-up took the square of their number."""
    watch = _Watch(policy=TrialPolicy(seconds=1e9), nodes=1)
    for at in range(30_000):
        watch.is_over(JobProgress(float(at), 10.0 * at))
    assert len(watch.points) <= MOST_POINTS
    assert watch.points[-1] == JobProgress(29_999.0, 299_990.0)
    speed = steady_speed([JobProgress(float(at), 10.0 * at) for at in range(100_000)])
    assert speed is not None
    assert speed.samples_per_second == pytest.approx(10.0)
    assert speed.points <= MOST_RATES


def test_a_speed_of_which_nothing_is_known_has_bounds_all_the_same() -> None:
    """All work at once: the bounds overflowed, and with them every command that shows the run."""
    reports = [(0.0, 0.0), (1.0, 1.0), (2.0, 2.0), (3.0, 3.0), (4.0, 4.0), (4.0 + 1e-9, 1e6), (99.0, 1e6 + 1)]
    speed = steady_speed([JobProgress(*report) for report in reports])
    assert speed is not None
    assert speed.relative_error == MOST_RELATIVE_ERROR


def test_steady_speed_needs_enough_points() -> None:
    assert steady_speed([]) is None
    assert steady_speed([JobProgress(1.0, 5.0)]) is None
    assert steady_speed([JobProgress(1.0, 0.0), JobProgress(2.0, 0.0)]) is None
    assert steady_speed([JobProgress(1.0, 0.0), JobProgress(1.0, 7.0)]) is None
    two = steady_speed([JobProgress(1.0, 0.0), JobProgress(3.0, 8.0)])
    assert two is not None
    assert (two.samples_per_second, two.relative_error, two.points) == (4.0, 0.0, 1)


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    covered = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        rates = 20 * np.exp(rng.normal(0, 0.1, 40))
        samples = np.concatenate([[0.0], np.cumsum(rates * 10)])
        speed = steady_speed([JobProgress(10.0 * i, float(s)) for i, s in enumerate(samples)])
        assert speed is not None
        true = 20 * math.exp(0.1**2 / 2)
        covered += abs(math.log(speed.samples_per_second / true)) < 1.96 * speed.relative_error
    assert covered > 0.86 * 300


def test_a_job_that_is_silent_at_the_end_of_its_trial_hangs() -> None:
    policy = TrialPolicy(seconds=20, extension=0.5, watchdog_seconds=30)
    lease = ScriptedLease([(float(s), 10.0 * min(s, 10)) for s in range(40)])
    trial = measure(ScriptedCloud(lease), CONFIG, attempt=1, policy=policy, usd_per_hour=PRICE)
    assert isinstance(trial, Failure)
    assert trial.kind is FailureKind.HANG


def test_the_error_of_few_batches_is_widened_by_students_t() -> None:
    """Batches of 10 and 12 samples a second: a standard error of 1/11, and t at 97.5% with 1 degree is 12.7."""
    speed = steady_speed([JobProgress(0.0, 0.0), JobProgress(1.0, 10.0), JobProgress(2.0, 22.0)])
    assert speed is not None
    assert speed.samples_per_second == 11.0
    assert speed.relative_error == pytest.approx((1 / 11) * 12.7062 / 1.959964, rel=1e-4)


def test_the_interval_of_few_points_covers_the_truth_as_often() -> None:
    covered = 0
    for seed in range(400):
        rates = np.random.default_rng(seed).normal(20.0, 1.0, 3)
        samples = np.concatenate([[0.0], np.cumsum(rates)])
        speed = steady_speed([JobProgress(float(i), float(s)) for i, s in enumerate(samples)])
        assert speed is not None
        covered += abs(speed.samples_per_second - 20.0) / 20.0 < 1.96 * speed.relative_error
    assert 0.92 * 400 < covered < 0.98 * 400


def test_a_start_that_varies_a_little_more_is_no_warm_up() -> None:
    """MSER weighs the spread of the rest against its length: a quarter of the points is not dropped for a little."""
    rates = [9.3, 10.7] * 5 + [9.5, 10.5] * 15
    samples = np.concatenate([[0.0], np.cumsum(rates)])
    speed = steady_speed([JobProgress(float(at), float(done)) for at, done in enumerate(samples)])
    assert speed is not None
    assert speed.points == 40


def test_saving_and_releasing_the_nodes_is_paid() -> None:
    class Slow(ScriptedLease):
        def finish(self, at: JobProgress) -> Settled:
            return Settled(seconds=at.seconds + 45.0)

    lease = Slow([], tail=endless(lambda _: 5.0).tail)
    trial = measurement(lease)
    assert trial.seconds == 600.0 + 45.0
    assert trial.usd == PRICE.for_seconds(645.0)


def test_reports_that_come_more_often_later_are_no_warm_up() -> None:
    """10 samples a second throughout: five reports of 10 s each, then thirty of 1 s."""
    seconds = np.cumsum([0.0, *[10.0] * 5, *[1.0] * 30])
    speed = steady_speed([JobProgress(float(at), 10.0 * float(at)) for at in seconds])
    assert speed is not None
    assert speed.samples_per_second == pytest.approx(10.0)
    assert speed.points == 35


def test_a_trial_ends_early_when_it_is_known_as_well_as_two_runs_agree() -> None:
    policy = TrialPolicy()
    assert [policy.enough_precision(noise) for noise in (0.0, 0.03, 0.2)] == [0.02, 0.03, 0.05]
