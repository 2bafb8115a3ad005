"""Every real cloud against the one contract; a cloud that this machine cannot run is reported, not hidden."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.sky_moto import SkyMoto, needs_skypilot, sky_moto, wait_for
from tests.slurm_cluster import NodeKind, slurm_cluster, why_not

from mlcd.catalog import load_catalog
from mlcd.clouds.job import JobCloud, JobLease, RealJob
from mlcd.clouds.local import Local, usable_cpus
from mlcd.clouds.minicloud import MiniCloud, missing
from mlcd.clouds.nodes import NodeEngine, NodeOrder, Nodes
from mlcd.clouds.provider import LeaseFailed, Order
from mlcd.clouds.skypilot import SkyPilotEngine, SkySettings
from mlcd.clouds.slurm import Slurm
from mlcd.space import Config
from mlcd.testing import RealCloudContract
from mlcd.testing.real_clouds import COUNT_STEPS
from mlcd.trial.trial import FailureKind
from mlcd.units import Usd

pytestmark = pytest.mark.waits

D = Config.deployment
ROOM_SECONDS = 240.0
linux = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")


@linux
class TestLocal(RealCloudContract):
    cloud_name = "local"
    one, two, too_many = D("local.1", 1), D("local.1", 2), D("local.1", 1000)
    make_engine = "from mlcd.clouds.local import Local, usable_cpus\nengine = Local(home, cpus=usable_cpus()[:1] * 2)"

    @pytest.fixture
    def engine(self, tmp_path: Path) -> NodeEngine:
        # Two nodes even on a machine with one CPU: they share it.
        return Local(tmp_path / "home", cpus=usable_cpus()[:1] * 2)

    @pytest.mark.parametrize(
        ("samples", "outputs"), [(50, ("model.json", "not-there")), (1000, ("model.json",))], ids=["output", "work"]
    )
    def test_a_trial_that_lacks_an_output_or_half_of_the_work_is_not_finished(
        self, make: Callable[..., JobCloud], samples: int, outputs: tuple[str, ...]
    ) -> None:
        script = COUNT_STEPS.replace('int(float(os.environ["MLCD_SAMPLES"]))', "50")
        assert script != COUNT_STEPS
        assert not self.finishes(make(script, samples=samples, outputs=outputs))


class Patient(MiniCloud):
    """A minicloud that waits for capacity: other tests may have nodes on this machine."""

    def start(self, order: NodeOrder) -> "Nodes":  # type: ignore[override]  # the seam's own type is enough here
        until = time.monotonic() + ROOM_SECONDS
        while True:
            try:
                return super().start(order)
            except LeaseFailed as failed:
                if failed.kind is not FailureKind.CAPACITY or order.count > 2 or time.monotonic() > until:
                    raise
                time.sleep(0.5)


@pytest.mark.together("the machine's room for nodes")
@pytest.mark.skipif(bool(missing()), reason="; ".join(missing()) or "-")
class TestMiniCloud(RealCloudContract):
    cloud_name = "minicloud"
    one, two, too_many = D("m.large", 1), D("m.large", 2), D("m.large", 200)
    make_engine = "from tests.contract.test_real_clouds import Patient\nengine = Patient()"

    @pytest.fixture
    def engine(self) -> NodeEngine:
        return Patient()


@pytest.fixture(scope="class")
def cluster() -> Iterator[None]:
    with slurm_cluster({"all": NodeKind(count=2)}):
        yield


@pytest.mark.together("the machine's room for nodes")
@pytest.mark.skipif(bool(why_not()), reason=f"no Slurm cluster can be made here: {why_not()}")
@pytest.mark.slow
class TestSlurm(RealCloudContract):
    cloud_name = "slurm"
    one, two, too_many = D("all", 1), D("all", 2), D("all", 50)
    make_engine = (
        "from mlcd.clouds.slurm import Slurm\nfrom mlcd.units import Usd\nengine = Slurm({'all': Usd.of('0.5')})"
    )

    @pytest.fixture
    def engine(self, cluster: None) -> Iterator[NodeEngine]:
        engine = Slurm({"all": Usd.of("0.5")})
        yield engine
        for leftover in engine.leftovers():  # of a test that failed
            engine.end(leftover)


@pytest.fixture(scope="class")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SkyMoto]:
    with sky_moto(tmp_path_factory.mktemp("sky-home")) as here, pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name not in here.environment:
                patch.delenv(name)
        for name, value in here.environment.items():
            patch.setenv(name, value)
        yield here


@pytest.fixture(scope="class")
def sky_engine(moto: SkyMoto, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SkyPilotEngine]:
    settings = SkySettings(infra="aws", image_id=moto.image)
    engine = SkyPilotEngine(settings, state=tmp_path_factory.mktemp("state"), catalog=load_catalog())
    yield engine
    engine.close()


@needs_skypilot
@pytest.mark.slow
@pytest.mark.extra
class TestSkyPilotOnMoto(RealCloudContract):
    """Only starting and releasing nodes; tests/integration/test_skypilot.py covers that too, and kills."""

    cloud_name = "skypilot"
    one, two, too_many = D("m5.large", 1), D("m5.large", 2), None
    make_engine = ""
    runs_jobs = False
    no_jobs = "no machine stands behind moto's addresses, so no job runs there"

    @pytest.fixture
    def engine(self, sky_engine: SkyPilotEngine) -> NodeEngine:
        return sky_engine

    def test_nodes_exist_only_during_the_lease(self, engine: NodeEngine, moto: SkyMoto, tmp_path: Path) -> None:
        cloud = JobCloud(engine, RealJob(run="true"), home=tmp_path)
        lease = cloud.lease(Order(config=self.two, run_id="contract", seconds=600.0))
        assert isinstance(lease, JobLease)
        points = iter(lease.progress())

        def running() -> bool:
            next(points)  # a heartbeat, although nothing runs yet
            return [i["state"] for i in moto.instances(lease.lease_id)].count("running") == 2

        def leave_by_error() -> None:
            with lease:
                wait_for(running, "two running instances")
                assert [(x.lease_id, x.owned) for x in engine.leftovers()] == [(lease.lease_id, True)]
                raise KeyError("from inside")

        with pytest.raises(KeyError, match="from inside"):
            leave_by_error()
        assert engine.leftovers() == ()
        assert moto.instances() == []


def test_every_real_cloud_has_its_contract() -> None:
    from mlcd.jobs.down import EVERYWHERE

    named = {cls.cloud_name for cls in RealCloudContract.__subclasses__()}
    assert named == set(EVERYWHERE)
