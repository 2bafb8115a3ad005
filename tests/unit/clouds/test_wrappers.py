import math
import time
from collections import Counter
from itertools import islice, pairwise
from statistics import fmean, stdev

import pytest

from mlcd.catalog import load_catalog
from mlcd.clouds.provider import Cloud, JobProgress, KnownTruth, Lease, LeaseFailed, Order, Purpose
from mlcd.clouds.sim import SimCloud, SimJob
from mlcd.clouds.sim.cloud import NO_FAILURES
from mlcd.clouds.wrappers import ALL_KINDS, Delayed, Flaky, Noisy, NoisyRun, SlowerRun
from mlcd.space import Config
from mlcd.trial.trial import FailureKind

CONFIG = Config.deployment("c5.4xlarge", 8)


@pytest.fixture(scope="module")
def plain() -> SimCloud:
    aws = load_catalog().for_cloud("aws")
    return SimCloud(cloud="aws", instances=aws, job=SimJob(model="resnet152"), seed=3, noise=0.0, rates=NO_FAILURES)


def watch(cloud: Cloud, purpose: Purpose = Purpose.TRIAL, attempt: int = 1, count: int = 40) -> list[JobProgress]:
    with cloud.lease(Order(config=CONFIG, attempt=attempt, purpose=purpose)) as lease:
        return list(islice(lease.progress(), count))


def test_wrappers_are_clouds_and_pass_the_truth_through(plain: SimCloud) -> None:
    cloud = Delayed(Noisy(Flaky(plain, rate=0.1, seed=1), sigma=0.04, seed=1), real_seconds=0)
    as_cloud: Cloud = cloud
    as_truth: KnownTruth = cloud
    assert as_cloud.name == "sim/aws"
    assert as_cloud.simulated
    assert as_truth.true_samples_per_second(CONFIG) == plain.true_samples_per_second(CONFIG)
    assert cloud.stretch(CONFIG) == 1


def test_noise_is_on_trials_only_and_adds_up(plain: SimCloud) -> None:
    cloud = Noisy(Noisy(plain, sigma=0.03, seed=1), sigma=0.04, seed=2)
    assert cloud.noise == pytest.approx(0.05)
    assert watch(cloud, Purpose.RUN) == watch(plain, Purpose.RUN)
    logs = [math.log(watch(cloud, attempt=a)[-1].samples / watch(plain, attempt=a)[-1].samples) for a in range(1, 301)]
    assert abs(fmean(logs)) < 0.01
    assert stdev(logs) == pytest.approx(0.05, rel=0.2)
    assert watch(cloud) == watch(cloud)


def test_a_noisy_run_leaves_trials_alone(plain: SimCloud) -> None:
    cloud = NoisyRun(plain, sigma=0.1, seed=1)
    assert cloud.noise == plain.noise
    assert watch(cloud) == watch(plain)
    noisy, true = watch(cloud, Purpose.RUN), watch(plain, Purpose.RUN)
    assert noisy[-1].seconds == true[-1].seconds
    assert noisy[-1].samples != true[-1].samples


def test_a_slower_run_leaves_trials_alone(plain: SimCloud) -> None:
    cloud = SlowerRun(plain, share=0.25)
    assert watch(cloud) == watch(plain)
    slower, true = watch(cloud, Purpose.RUN), watch(plain, Purpose.RUN)
    assert [p.seconds for p in slower] == [p.seconds for p in true]
    assert [p.samples * 1.25 for p in slower] == pytest.approx([p.samples for p in true])
    with pytest.raises(ValueError, match="share"):
        SlowerRun(plain, share=-0.1)


def test_flaky_fails_the_stated_share_in_every_way(plain: SimCloud) -> None:
    cloud = Flaky(plain, rate=0.5, seed=1)
    seen: Counter[FailureKind] = Counter()
    errors: list[LeaseFailed] = []
    for attempt in range(1, 401):
        try:
            points = watch(cloud, attempt=attempt, count=60)
            if any(a.samples == b.samples for a, b in pairwise(points)):
                seen[FailureKind.HANG] += 1
        except LeaseFailed as failed:
            seen[failed.kind] += 1
            errors.append(failed)
    assert all(e.billed == (e.kind is not FailureKind.CAPACITY) and e.seconds < 600 for e in errors)
    assert set(seen) == set(ALL_KINDS)
    assert 160 < seen.total() < 240
    assert watch(Flaky(plain, rate=1, seed=1), Purpose.RUN) == watch(plain, Purpose.RUN)


def test_delay_is_real(plain: SimCloud) -> None:
    start = time.monotonic()
    assert watch(Delayed(plain, real_seconds=0.05)) == watch(plain)
    assert time.monotonic() - start >= 0.05


def test_a_cloud_without_known_truth_raises() -> None:
    class Real:
        name, simulated, noise = "real", False, 0.02

        def lease(self, order: Order) -> Lease:
            raise LeaseFailed(FailureKind.CAPACITY, "full", seconds=1, billed=False)

    wrapped = Noisy(Real(), sigma=0.1, seed=1)
    assert wrapped.stretch(CONFIG) == 1
    with pytest.raises(TypeError, match="true speeds"):
        wrapped.true_samples_per_second(CONFIG)


def test_bad_settings_are_refused(plain: SimCloud) -> None:
    with pytest.raises(ValueError, match="sigma: must be in"):
        Noisy(plain, sigma=-1, seed=1)
    with pytest.raises(ValueError, match="rate: must be in"):
        Flaky(plain, rate=2, seed=1)
    with pytest.raises(ValueError, match="kinds: must not be empty"):
        Flaky(plain, rate=0.1, seed=1, kinds=())
    with pytest.raises(ValueError, match="real_seconds: must not be negative"):
        Delayed(plain, real_seconds=-1)
