"""A real Slurm cluster: jobs through sbatch, with the agent on every node, and nothing running afterwards."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.slurm_cluster import Cluster, NodeKind, slurm_cluster, why_not

from mlcd.clouds.lease_records import LeaseRecords, home_of
from mlcd.clouds.nodes import PREFIX, Leftover, NodeOrder, NodesState
from mlcd.clouds.processes import ProcessId, tagged
from mlcd.clouds.provider import LeaseFailed
from mlcd.clouds.slurm import Slurm
from mlcd.clouds.slurm.nodes import SlurmNodes
from mlcd.errors import ProviderError
from mlcd.platforms.agent import Job
from mlcd.trial.trial import FailureKind
from mlcd.units import Usd

REASON = why_not()
pytestmark = [
    pytest.mark.waits,
    pytest.mark.together("the machine's room for nodes"),
    pytest.mark.skipif(bool(REASON), reason=f"no Slurm cluster can be made here: {REASON}"),
]

PRICES = {"small": Usd.of("0.10"), "large": Usd.of("0.50")}
TIMEOUT_SECONDS = 240.0  # after which a test gives up; no assertion depends on it


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    kinds = {
        "small": NodeKind(count=2, cpus=0.4, mbit=100, max_minutes=30),
        "large": NodeKind(count=2, mbit=400),
    }
    with slurm_cluster(kinds) as cluster:
        yield cluster


@pytest.fixture
def engine(cluster: Cluster) -> Iterator[Slurm]:
    engine = Slurm(PRICES)
    yield engine
    for leftover in engine.leftovers():  # of a test that failed
        engine.end(leftover)


@pytest.fixture
def order(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., NodeOrder]:
    def make(run: str, *, instance: str = "small", count: int = 1, seconds: float = 600.0, name: str = "") -> NodeOrder:
        lease_id = f"{PREFIX}test-{abs(hash(request.node.name)) % 10**8}{name}"
        folder = tmp_path / "with a space" / lease_id
        (folder / "workdir").mkdir(parents=True)
        (folder / "job.json").write_text(Job(lease_id=lease_id, run=run, seconds=seconds).to_json())
        return NodeOrder(lease_id=lease_id, instance=instance, count=count, seconds=seconds, folder=folder)

    return make


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"timed out waiting for: {what}"
        time.sleep(0.1)


def reaches(nodes: SlurmNodes, state: NodesState) -> None:
    until(lambda: nodes.state() is state, f"{nodes.job_id} {state}")


def failure(nodes: SlurmNodes) -> LeaseFailed:
    failed: list[LeaseFailed] = []

    def has_failed() -> bool:
        try:
            nodes.state()
        except LeaseFailed as error:
            failed.append(error)
        return bool(failed)

    until(has_failed, f"{nodes.job_id} fails")
    return failed[0]


def queue() -> str:
    return subprocess.run(["squeue", "--noheader"], capture_output=True, text=True, check=True).stdout


def test_the_offer_is_the_priced_partitions(engine: Slurm) -> None:
    small, large = engine.offer()
    assert (small.cloud, small.name, small.usd_per_hour) == ("slurm", "small", Usd.of("0.10"))
    assert (large.name, large.memory_gib, large.vcpus) == ("large", 1.5, float(os.cpu_count() or 0))
    assert engine.notes == ()
    assert engine.most_nodes("small") == 2


def test_partitions_without_a_price_are_skipped_and_reported(cluster: Cluster) -> None:
    engine = Slurm({"large": Usd.of(1)})
    assert [instance.name for instance in engine.offer()] == ["large"]
    assert "small" in " ".join(engine.notes)
    with pytest.raises(ProviderError, match=r"prices: \{small: 1.00 USD, large: 1.00 USD\}|large.*small"):
        Slurm({}).offer()
    with pytest.raises(ProviderError, match=r"no partition 'larg'.*did you mean 'large'"):
        Slurm({"larg": Usd.of(1)}).offer()


def test_an_agent_runs_on_each_node_with_its_rank_and_the_addresses(
    engine: Slurm, cluster: Cluster, order: Callable[..., NodeOrder]
) -> None:
    wanted = order('echo "rank=$MLCD_RANK nodes=$MLCD_NODES"; hostname -I', count=2)
    nodes = engine.start(wanted)
    reaches(nodes, NodesState.ENDED)
    addresses = [node.address for node in cluster.partitions["small"]]
    for rank, own in enumerate(addresses):
        said = (wanted.folder / f"node-{rank}" / "log.txt").read_text().split()
        assert said == [f"rank={rank}", f"nodes={','.join(addresses)}", own]
    used = nodes.used_seconds()
    assert used is not None
    assert used >= 0
    nodes.release()
    nodes.release()
    assert nodes.state() is NodesState.ENDED
    assert queue() == ""


def test_the_nodes_reach_each_other(engine: Slurm, order: Callable[..., NodeOrder]) -> None:
    script = (
        "import os, socket\n"
        "rank, head, port = int(os.environ['MLCD_RANK']), os.environ['MLCD_HEAD'], int(os.environ['MLCD_PORT'])\n"
        "if rank == 0:\n"
        "    with socket.create_server(('', port)) as server:\n"
        "        server.settimeout(60)\n"
        "        print(server.accept()[0].recv(10).decode())\n"
        "else:\n"
        "    import time\n"
        "    for _ in range(600):\n"
        "        try:\n"
        "            socket.create_connection((head, port), 60).sendall(b'hello')\n"
        "            break\n"
        "        except ConnectionRefusedError:\n"
        "            time.sleep(0.1)\n"
    )
    wanted = order("python talk.py", instance="large", count=2)
    (wanted.folder / "workdir" / "talk.py").write_text(script)
    nodes = engine.start(wanted)
    reaches(nodes, NodesState.ENDED)
    nodes.release()
    assert (wanted.folder / "node-0" / "log.txt").read_text().split() == ["hello"]


def test_a_job_that_waits_is_starting_and_reports_why(engine: Slurm, order: Callable[..., NodeOrder]) -> None:
    first = engine.start(order("sleep 600", count=2, name="a"))
    reaches(first, NodesState.RUNNING)
    second = engine.start(order("sleep 600", count=1, name="b"))
    until(lambda: bool(second.state() is NodesState.STARTING and second.waits_for), "a reason")
    assert second.waits_for in ("Resources", "Priority")
    assert (second.order.folder / "heartbeat").exists()
    second.release()
    assert first.state() is NodesState.RUNNING
    first.release()
    assert queue() == ""


def test_release_leaves_no_process(engine: Slurm, cluster: Cluster, order: Callable[..., NodeOrder]) -> None:
    wanted = order("(setsid sleep 600 &) ; trap '' TERM; sleep 600; sleep 600", count=2)
    nodes = engine.start(wanted)
    reaches(nodes, NodesState.RUNNING)
    until(lambda: len(tagged(wanted.lease_id)) >= 4, "the job's processes")
    nodes.release()
    assert tagged(wanted.lease_id) == []
    assert queue() == ""


def test_a_job_that_fails_ends_with_its_code(engine: Slurm, order: Callable[..., NodeOrder]) -> None:
    wanted = order('test "$MLCD_RANK" = 0 && exit 3; exit 4', count=2)
    nodes = engine.start(wanted)
    reaches(nodes, NodesState.ENDED)
    assert '"code": 3' in (wanted.folder / "node-0" / "exit.json").read_text()
    assert '"code": 4' in (wanted.folder / "node-1" / "exit.json").read_text()
    nodes.release()


def test_a_job_stops_when_it_is_asked(engine: Slurm, order: Callable[..., NodeOrder]) -> None:
    nodes = engine.start(order('while [ ! -e "$MLCD_STOP_FILE" ]; do sleep 0.1; done'))
    reaches(nodes, NodesState.RUNNING)
    nodes.ask_to_stop()
    reaches(nodes, NodesState.ENDED)
    nodes.release()


def test_more_nodes_than_the_partition_has_is_a_capacity_failure_and_unpaid(
    engine: Slurm, order: Callable[..., NodeOrder]
) -> None:
    with pytest.raises(LeaseFailed, match=r"allows a job at most 2 nodes \(got 3\)") as refused:
        engine.start(order("true", count=3))
    assert (refused.value.kind, refused.value.billed) == (FailureKind.CAPACITY, False)
    with pytest.raises(ProviderError, match="no partition 'nope'"):
        engine.start(order("true", instance="nope", name="b"))
    assert queue() == ""


def test_a_job_that_slurm_never_starts_is_a_capacity_failure(engine: Slurm, order: Callable[..., NodeOrder]) -> None:
    first = engine.start(order("sleep 600", count=2, name="a"))
    reaches(first, NodesState.RUNNING)
    second = engine.start(order("true", name="b"))  # waits, so there is time to hold it
    subprocess.run(["scontrol", "hold", second.job_id], check=True)
    failed = failure(second)
    assert (failed.kind, failed.billed) == (FailureKind.CAPACITY, False)
    assert "JobHeld" in failed.message
    second.release()
    first.release()
    assert queue() == ""


def test_the_partitions_limit_is_requested_where_more_was_authorised(
    engine: Slurm, order: Callable[..., NodeOrder]
) -> None:
    nodes = engine.start(order("sleep 600", seconds=7200.0))
    reaches(nodes, NodesState.RUNNING)
    limit = ["squeue", "--noheader", f"--jobs={nodes.job_id}", "--format=%l"]
    assert subprocess.run(limit, capture_output=True, text=True, check=True).stdout.strip() == "30:00"
    nodes.release()


def test_a_job_that_another_cancels_is_lost(engine: Slurm, order: Callable[..., NodeOrder]) -> None:
    nodes = engine.start(order("sleep 600"))
    reaches(nodes, NodesState.RUNNING)
    subprocess.run(["scancel", nodes.job_id], check=True)
    failed = failure(nodes)
    assert failed.kind is FailureKind.LOST
    assert "cancelled" in failed.message
    nodes.release()


def test_an_agent_that_cannot_start_is_a_failed_launch(
    engine: Slurm, order: Callable[..., NodeOrder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    nodes = engine.start(order("true"))
    monkeypatch.setattr("mlcd.clouds.slurm.nodes.FILES_SECONDS", 1.0)
    failed = failure(nodes)
    assert failed.kind is FailureKind.LAUNCH
    assert "/no/such/python" in failed.message
    nodes.release()


@pytest.mark.extra  # takes HEARTBEAT_SECONDS; tests/unit/platforms/test_agent.py has it with 2
def test_the_job_ends_itself_when_mlcd_is_gone(engine: Slurm, order: Callable[..., NodeOrder]) -> None:
    wanted = order("sleep 600", count=2)
    nodes = engine.start(wanted)
    reaches(nodes, NodesState.RUNNING)
    assert [leftover.owned for leftover in engine.leftovers()] == [True]
    records = LeaseRecords(home_of(wanted.folder))
    record = records.get(wanted.lease_id)
    assert record is not None
    records.save(replace(record, owner=ProcessId(pid=2**22, started="1")))  # as if mlcd was killed
    assert [leftover.owned for leftover in engine.leftovers()] == [False]
    # From now on nobody touches the heartbeat, and its last time is an hour ahead of the nodes' clock.
    ahead = time.time() + 3600
    os.utime(wanted.folder / "heartbeat", (ahead, ahead))
    until(lambda: queue() == "", "the job ends by itself")
    assert "it lost contact with mlcd" in (wanted.folder / "node-1" / "exit.json").read_text()
    assert tagged(wanted.lease_id) == []


def test_leftovers_are_found_and_ended(engine: Slurm, order: Callable[..., NodeOrder]) -> None:
    wanted = order("sleep 600", count=2)
    nodes = engine.start(wanted)
    reaches(nodes, NodesState.RUNNING)
    other = subprocess.run(
        ["sbatch", "--parsable", "--partition=large", "--job-name=mine", "--output=/dev/null", "--wrap=sleep 600"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    again = Slurm({})  # `mlcd down` knows no prices
    assert again.leftovers() == (
        Leftover(cloud="slurm", lease_id=wanted.lease_id, what=f"job {nodes.job_id} (running)", owned=True),
    )
    again.end(again.leftovers()[0])
    assert again.leftovers() == ()
    assert tagged(wanted.lease_id) == []
    assert "mine" in queue()  # somebody else's job is not touched
    subprocess.run(["scancel", other], check=True)
    until(lambda: queue() == "", "the other job ends")


@pytest.mark.extra  # Slurm itself is slow to declare a node down
def test_a_node_that_dies_is_lost(order: Callable[..., NodeOrder]) -> None:
    with slurm_cluster({"frail": NodeKind(count=2)}) as cluster:
        engine = Slurm({"frail": Usd.of(1)})
        nodes = engine.start(order("sleep 600", instance="frail", count=2))
        reaches(nodes, NodesState.RUNNING)
        cluster.kill_node("frail1")
        failed = failure(nodes)
        assert failed.kind is FailureKind.LOST
        assert failed.billed


def test_nothing_of_a_cluster_remains() -> None:
    with slurm_cluster({"brief": NodeKind(count=1)}) as cluster:
        lease_id, folder = cluster.record.lease_id, cluster.folder
        pids = cluster.group("brief0").pids()
        assert pids
    assert not folder.exists()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert not list(Path("/run/netns").glob(f"{lease_id}*"))
    assert not list(Path("/sys/fs/cgroup").glob(f"*/*/{lease_id}"))
