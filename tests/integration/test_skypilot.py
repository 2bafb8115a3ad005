"""Leases through SkyPilot on a moto server: nodes reach running and go again, whatever happens to mlcd.

No machine stands behind moto's addresses, so the job never starts there: what runs on a node is tested elsewhere
(tests/unit/clouds/test_skypilot_parts.py runs the very command that a node gets, on this machine).
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sky_moto import PYTHON, ROOT, SkyMoto, needs_skypilot, sky_moto, wait_for

from mlcd.catalog import load_catalog
from mlcd.clouds.job import JobCloud, JobLease, RealJob
from mlcd.clouds.nodes import NodeOrder, NodesState
from mlcd.clouds.provider import LeaseFailed, Order
from mlcd.clouds.skypilot import SkyPilotEngine, SkySettings
from mlcd.errors import ProviderError
from mlcd.jobs.serve import prepare
from mlcd.space import Config
from mlcd.spec.serving import serve_mapping
from mlcd.trial.node_metrics import NodeMetrics
from mlcd.trial.trial import FailureKind

pytestmark = [pytest.mark.waits, pytest.mark.slow, pytest.mark.together("SkyPilot's server"), needs_skypilot]

SECRET = "hunter2-not-to-be-found"


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SkyMoto]:
    home = tmp_path_factory.mktemp("sky-home")
    with sky_moto(home) as here, pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name not in here.environment:
                patch.delenv(name)
        for name, value in here.environment.items():
            patch.setenv(name, value)
        yield here
    assert here.processes() == []


@pytest.fixture(scope="module")
def engine(moto: SkyMoto, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SkyPilotEngine]:
    made = make_engine(moto, tmp_path_factory.mktemp("state"))
    yield made
    made.close()
    assert moto.instances() == []
    assert moto.servers() == []  # it was this engine's worker that started it


def make_engine(moto: SkyMoto, state: Path, **given: object) -> SkyPilotEngine:
    settings = SkySettings(infra="aws", image_id=moto.image, secrets={"TOKEN": SECRET}, **given)  # type: ignore[arg-type]
    return SkyPilotEngine(settings, state=state, catalog=load_catalog())


def order(tmp_path: Path, name: str, *, count: int = 2, instance: str = "m5.large") -> NodeOrder:
    folder = tmp_path / name
    (folder / "workdir").mkdir(parents=True)
    (folder / "checkpoint").mkdir()
    (folder / "job.json").write_text(json.dumps({"lease_id": name, "run": "true"}))
    return NodeOrder(lease_id=name, instance=instance, count=count, seconds=600.0, folder=folder)


def running(moto: SkyMoto, cluster: str) -> list[str]:
    return [i["id"] for i in moto.instances(cluster) if i["state"] == "running"]


def test_two_nodes_reach_running_and_are_torn_down(moto: SkyMoto, engine: SkyPilotEngine, tmp_path: Path) -> None:
    wanted = order(tmp_path, "mlcd-two-abc123")
    nodes = engine.start(wanted)
    wait_for(lambda: len(running(moto, wanted.lease_id)) == 2, "two running instances")
    assert nodes.state() is NodesState.STARTING  # no machine answers ssh
    (remaining,) = engine.leftovers()
    assert (remaining.lease_id, remaining.owned) == (wanted.lease_id, True)
    assert "2 nodes" in remaining.what
    assert {i["type"] for i in moto.instances(wanted.lease_id)} == {"m5.large"}
    assert not any(i["spot"] for i in moto.instances(wanted.lease_id))

    moto.put_metrics(running(moto, wanted.lease_id), {"CPUUtilization": 61.5, "NetworkIn": 1000.0, "NetworkOut": 7.0})
    ids = set(running(moto, wanted.lease_id))
    nodes.release()
    nodes.release()
    assert nodes.state() is NodesState.ENDED
    assert moto.instances() == []
    assert engine.leftovers() == ()
    figures = json.loads((wanted.folder / "cloudwatch.json").read_text())
    assert set(figures["instances"]) == ids
    for metrics in figures["instances"].values():
        assert [value for _, value in metrics["CPUUtilization"]] == [61.5]
        assert [value for _, value in metrics["NetworkIn"]] == [1000.0]
    assert nodes.node_metrics() == NodeMetrics(
        source="CloudWatch", nodes=2, cpu_percent=61.5, received_bytes=1000.0, sent_bytes=7.0
    )

    kept = [file for folder in (tmp_path, engine._state) for file in folder.rglob("*") if file.is_file()]
    assert len(kept) > 3
    assert not any(SECRET.encode() in file.read_bytes() for file in kept)


def test_a_lease_has_spot_nodes_and_gives_them_back_after_an_error(
    moto: SkyMoto, engine: SkyPilotEngine, tmp_path: Path
) -> None:
    spot = make_engine(moto, tmp_path / "state", use_spot=True)
    cloud = JobCloud(spot, RealJob(run="true"), home=tmp_path / "home")
    lease = cloud.lease(Order(config=Config.deployment("m5.large", 1), run_id="spot", seconds=600.0))
    assert isinstance(lease, JobLease)
    points = iter(lease.progress())

    def is_running() -> bool:
        next(points)  # a heartbeat, although nothing runs yet
        return bool(running(moto, lease.lease_id))

    def leave_by_error() -> None:
        with lease:
            wait_for(is_running, "a running instance")
            assert all(i["spot"] for i in moto.instances(lease.lease_id))
            assert [(remaining.lease_id, remaining.owned) for remaining in spot.leftovers()] == [(lease.lease_id, True)]
            raise KeyError("from inside")

    try:
        with pytest.raises(KeyError, match="from inside"):
            leave_by_error()
        assert spot.leftovers() == ()
        assert moto.instances() == []
    finally:
        spot.close()


@pytest.mark.parametrize(
    "code", ["InsufficientInstanceCapacity", pytest.param("VcpuLimitExceeded", marks=pytest.mark.extra)]
)
def test_no_capacity_and_no_quota_are_capacity_failures_and_unpaid(
    code: str, moto: SkyMoto, engine: SkyPilotEngine, tmp_path: Path
) -> None:
    moto.refused["c5.large"] = code
    nodes = engine.start(order(tmp_path, f"mlcd-full-{code[:4].lower()}", instance="c5.large"))
    try:
        with pytest.raises(LeaseFailed) as failed:
            wait_for(lambda: nodes.state() is not NodesState.STARTING, "a refusal")
        assert failed.value.kind is FailureKind.CAPACITY
        assert not failed.value.billed
        assert code in failed.value.message  # EC2's own error code reaches the user
    finally:
        nodes.release()
        moto.refused.clear()
    assert engine.leftovers() == ()
    assert moto.instances() == []


def test_servers_are_leased_and_given_back(moto: SkyMoto, engine: SkyPilotEngine, tmp_path: Path) -> None:
    """The job of `mlcd serve` up to a running server's lease."""
    fields = {
        "name": "llama",
        "server": {"run": "exec serve $MODEL --port $PORT --seqs $SEQS"},
        "model": "org/llama",
        "setup": "pip install serve",
        "resources": {"infra": "aws", "instance_type": ["m5.large"], "replicas": [2], "image_id": moto.image},
        "knobs": {"SEQS": [16]},
        "goal": {"maximize": "rate", "budget": "5 USD"},
    }
    prepared = prepare(serve_mapping(fields), folder=tmp_path)
    assert prepared.charged
    assert prepared.nodes is not None
    cloud = prepared.nodes.cloud(prepared.server, noise=None)
    (config,) = prepared.problem.space
    try:
        with cloud.lease(Order(config=config, run_id="llama", seconds=600.0)) as lease:
            points = iter(lease.progress())

            def is_running() -> bool:
                next(points)  # the server is not ready: no machine stands behind the addresses
                return len(running(moto, lease.lease_id)) == 2

            wait_for(is_running, "two running instances")
            assert {i["type"] for i in moto.instances(lease.lease_id)} == {"m5.large"}
            job = json.loads((lease.folder / "job.json").read_text())
            assert (job["setup"], job["envs"]) == ("pip install serve", {"SEQS": "16", "MODEL": "org/llama"})
            with pytest.raises(RuntimeError, match="not ready"):
                _ = lease.endpoint
        assert moto.instances() == []
    finally:
        cloud.close()
    assert engine.leftovers() == ()


def test_a_type_that_does_not_exist_is_refused_before_anything_starts(
    engine: SkyPilotEngine, moto: SkyMoto, tmp_path: Path
) -> None:
    with pytest.raises((ProviderError, LeaseFailed), match=r"x99\.huge"):
        engine.start(order(tmp_path, "mlcd-none-abc123", instance="x99.huge"))
    assert moto.instances() == []


DRIVER = """
import sys, time
from pathlib import Path
from mlcd.catalog import load_catalog
from mlcd.clouds.nodes import NodeOrder
from mlcd.clouds.skypilot import SkyPilotEngine, SkySettings
folder, image, name = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
engine = SkyPilotEngine(SkySettings(infra="aws", image_id=image), state=folder / "state", catalog=load_catalog())
engine.start(NodeOrder(lease_id=name, instance="m5.large", count=2, seconds=600.0, folder=folder / name))
print(engine._running_worker().pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(
    "also_the_worker",
    [
        pytest.param(True, marks=pytest.mark.extra, id="all-of-mlcd-killed"),  # the next test kills both, earlier
        pytest.param(False, id="mlcd-killed"),
    ],
)
def test_killing_mlcd_leaves_nothing_after_down(
    also_the_worker: bool, moto: SkyMoto, engine: SkyPilotEngine, tmp_path: Path
) -> None:
    name = f"mlcd-killed-{int(also_the_worker)}"
    order(tmp_path, name)
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path), moto.image, name],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert driver.stdout is not None
    worker = int(driver.stdout.readline())
    wait_for(lambda: len(running(moto, name)) == 2, "two running instances")
    mine = SkyPilotEngine(engine.settings, state=tmp_path / "state", catalog=load_catalog())
    try:
        assert [(remaining.lease_id, remaining.owned) for remaining in mine.leftovers()] == [(name, True)]
        driver.kill()
        driver.wait()
        if also_the_worker:
            os.kill(worker, signal.SIGKILL)
            (remaining,) = mine.leftovers()
            assert (remaining.lease_id, remaining.owned) == (name, False)
            assert len(running(moto, name)) == 2
            mine.end(remaining)
            mine.end(remaining)  # again: nothing to do
        else:  # the worker notices that mlcd is gone, and takes down what it launched
            wait_for(lambda: not Path(f"/proc/{worker}").exists() or _is_zombie(worker), "the worker's end")
        assert mine.leftovers() == ()
        assert moto.instances() == []
    finally:
        mine.close()


def test_killed_right_after_the_order_when_no_node_is_known_yet(
    moto: SkyMoto, engine: SkyPilotEngine, tmp_path: Path
) -> None:
    name = "mlcd-early-abc123"
    order(tmp_path, name)
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path), moto.image, name], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert driver.stdout is not None
    worker = int(driver.stdout.readline())
    os.kill(worker, signal.SIGKILL)
    driver.kill()
    driver.wait()
    for remaining in engine.leftovers():
        engine.end(remaining)
    time.sleep(5)  # a launch that had not been stopped would start its nodes now
    assert engine.leftovers() == ()
    assert moto.instances() == []


def test_missing_credentials_are_reported_with_the_sky_command(
    moto: SkyMoto, engine: SkyPilotEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = moto.home / ".aws" / "credentials"
    text = file.read_text()
    file.unlink()
    other = make_engine(moto, tmp_path / "state")
    try:
        with pytest.raises(ProviderError, match=r"no credentials for aws were found; run: aws configure") as error:
            other.start(order(tmp_path, "mlcd-none-1"))
        assert error.value.exit_code == 7
        monkeypatch.setenv("AWS_PROFILE", "default")  # looks like credentials, but SkyPilot finds none
        with pytest.raises(ProviderError, match=r"SkyPilot cannot use aws.*run: aws configure"):
            other.start(order(tmp_path, "mlcd-none-2"))
    finally:
        other.close()
        file.write_text(text)
    assert engine.check() is None


def test_a_dry_run_asks_the_optimizer_and_starts_nothing(moto: SkyMoto, engine: SkyPilotEngine, tmp_path: Path) -> None:
    says = engine.plan(order(tmp_path, "mlcd-plan-abc123"))
    assert "m5.large" in says
    assert moto.instances() == []
    assert engine.leftovers() == ()


OPTIMIZE = """
import sky
from sky import clouds, global_user_state, optimizer
from sky.clouds import cloud as cloud_lib
made = sky.Task.from_yaml_config(given["task"])
named = {"gcp": clouds.GCP(), "azure": clouds.Azure()}[given["cloud"]]
from sky.utils import registry
from unittest import mock
with mock.patch("sky.check.get_cached_enabled_clouds_or_refresh", return_value=[named]):
    with sky.Dag() as dag:
        dag.add(made)
    optimizer.Optimizer.optimize(dag, quiet=True)
best = made.best_resources
answer = {"cloud": str(best.cloud).lower(), "type": best.instance_type, "region": best.region, "nodes": made.num_nodes,
          "usd": best.get_cost(3600)}
"""


@pytest.mark.parametrize(
    ("infra", "instance"),
    [("gcp", "n2-standard-4"), pytest.param("azure", "Standard_D4s_v5", marks=pytest.mark.extra)],
)
def test_the_optimizer_prices_gcp_and_azure_from_the_catalog(
    infra: str, instance: str, moto: SkyMoto, tmp_path: Path
) -> None:
    """As far as it goes offline: credentials and SDKs of both are missing here, so nothing is launched."""
    from mlcd.clouds.skypilot.task import make_task

    assert PYTHON.exists()
    settings = SkySettings(infra=infra)
    task = make_task(order(tmp_path, f"mlcd-{infra}-abc123", instance=instance), settings, agent=tmp_path)
    task.pop("file_mounts")
    best = moto.ask(OPTIMIZE, task=task, cloud=infra)
    assert (best["cloud"], best["type"], best["region"], best["nodes"]) == (infra, instance, settings.region, 2)
    assert best["usd"] == pytest.approx(load_catalog().for_cloud(infra)[instance].usd_per_hour.dollars)


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
