"""Every cloud and every wrapper passes the contract."""

from types import TracebackType

from tests.synthetic import ScriptedCloud, ScriptedLease, SyntheticCloud

from mlcd.catalog import load_catalog
from mlcd.clouds.provider import Cloud, Lease, Order
from mlcd.clouds.replay import ReplayCloud, ReplayInstance, ReplayWorkload
from mlcd.clouds.sim import SimCloud, SimJob
from mlcd.clouds.sim.cloud import NO_FAILURES
from mlcd.clouds.wrappers import Delayed, Flaky, Noisy, NoisyRun, Wrapped
from mlcd.space import Config
from mlcd.testing import CloudContract
from mlcd.trial.trial import FailureKind
from mlcd.units import Usd

D = Config.deployment


def replay() -> ReplayCloud:
    seconds = {D("a", 2): 9000.0, D("a", 4): 5200.0, D("b", 2): 40_000.0, D("b", 4): None}
    instances = {name: ReplayInstance(name=name, usd_per_hour=Usd.of(1)) for name in ("a", "b")}
    return ReplayCloud(ReplayWorkload(name="made-up", seconds=seconds, instances=instances), folder="made-up")


class TestSim(CloudContract):
    cloud_name = "sim"
    good = (D("c5.4xlarge", 1), D("c5.4xlarge", 8), D("p3.2xlarge", 4))

    def make(self, seed: int) -> Cloud:
        aws = load_catalog().for_cloud("aws")
        return SimCloud(cloud="aws", instances=aws, job=SimJob(model="resnet152"), seed=seed, rates=NO_FAILURES)


class TestSimOutOfMemory(CloudContract):
    cloud_name = "sim"
    good = (D("p3.16xlarge", 8),)
    broken = (D("p2.xlarge", 1),)

    def make(self, seed: int) -> Cloud:
        aws = load_catalog().for_cloud("aws")
        return SimCloud(cloud="aws", instances=aws, job=SimJob(model="zero-8b"), seed=seed, rates=NO_FAILURES)


class TestReplay(CloudContract):
    cloud_name = "replay"
    good = (D("a", 2), D("a", 4), D("b", 2))
    broken = (D("b", 4),)

    def make(self, seed: int) -> Cloud:
        return replay()


class TestNoisy(CloudContract):
    cloud_name = "noisy"
    good, broken = TestReplay.good, TestReplay.broken

    def make(self, seed: int) -> Cloud:
        return Noisy(replay(), sigma=0.1, seed=seed)


class TestFlaky(CloudContract):
    cloud_name = "flaky"
    good, broken = TestReplay.good, TestReplay.broken
    flaky = True

    def make(self, seed: int) -> Cloud:
        return Flaky(replay(), rate=0.3, seed=7)


class TestNoisyFlaky(CloudContract):
    cloud_name = "noisy-flaky"
    good, broken = TestReplay.good, TestReplay.broken
    flaky = True

    def make(self, seed: int) -> Cloud:
        return Noisy(Flaky(replay(), rate=0.3, seed=seed), sigma=0.05, seed=seed)


class TestDelayed(CloudContract):
    cloud_name = "delayed"
    good, broken = TestReplay.good, TestReplay.broken

    def make(self, seed: int) -> Cloud:
        return Delayed(replay(), real_seconds=0.0)


class TestSynthetic(CloudContract):
    """The tests' own cloud passes the contract too, so that tests on it are valid for other clouds."""

    cloud_name = "synthetic"
    good = (D("c5.small", 1), D("p2.one", 4))

    def make(self, seed: int) -> Cloud:
        return SyntheticCloud(noise=0.04, seed=seed)


class Counted(Wrapped):
    """Counts the leases entered and left inside a wrapper."""

    def __init__(self, inner: Cloud) -> None:
        super().__init__(inner)
        self.entered = self.left = 0

    def lease(self, order: Order) -> Lease:
        return _CountedLease(self, super().lease(order))


class _CountedLease:
    def __init__(self, cloud: Counted, inner: Lease) -> None:
        self.cloud, self.inner = cloud, inner
        self.progress, self.finish = inner.progress, inner.finish

    def __enter__(self) -> Lease:
        self.cloud.entered += 1
        self.inner.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self.cloud.left += 1
        return self.inner.__exit__(kind, value, trace)


def test_wrappers_release_the_lease_inside_whatever_happens() -> None:
    for kind in (FailureKind.INTERRUPTED, FailureKind.HANG, FailureKind.ERROR):
        counted = Counted(replay())
        cloud = Delayed(
            NoisyRun(Noisy(Flaky(counted, rate=1, seed=1, kinds=(kind,)), sigma=0.1, seed=1), sigma=0.1, seed=1),
            real_seconds=0,
        )
        contract = TestNoisy()
        for attempt in range(1, 6):
            contract.watch(cloud, D("a", 2), attempt=attempt)
        assert counted.entered == counted.left == 5


def test_the_scripted_cloud_follows_its_script() -> None:
    cloud = ScriptedCloud(ScriptedLease([(1.0, 0.0), (2.0, 5.0)]))
    assert len(TestNoisy().points(cloud, D("a", 2))) == 2
