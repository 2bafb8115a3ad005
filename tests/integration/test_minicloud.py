"""Real nodes on this machine: types have the promised limits, and nothing remains afterwards."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from mlcd.clouds.minicloud import MiniCloud, missing
from mlcd.clouds.minicloud.cgroup import groups_of
from mlcd.clouds.minicloud.hierarchy import hierarchy
from mlcd.clouds.minicloud.leased import MiniNodes
from mlcd.clouds.minicloud.network import links_of, namespaces_of, processes_in, run_command
from mlcd.clouds.minicloud.record import read_records
from mlcd.clouds.minicloud.warm import WarmWorkers
from mlcd.clouds.nodes import NodeEngine, NodeOrder, NodesState
from mlcd.clouds.processes import started_at, tagged
from mlcd.clouds.provider import LeaseFailed
from mlcd.platforms.agent import Job
from mlcd.trial.trial import FailureKind

pytestmark = [
    pytest.mark.waits,
    pytest.mark.together("the machine's room for nodes"),
    pytest.mark.skipif(bool(missing()), reason="; ".join(missing())),
]
CAPACITY_TIMEOUT_SECONDS = 240.0
"""How long a test waits for capacity: other mlcd processes may use the machine."""
TIMEOUT_SECONDS = 240.0
"""How long a test waits for something that must happen."""


class Bench:
    """Leases that end with the test."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.cloud, self.count = folder, MiniCloud(), 0
        self.undo = ExitStack()

    def lease(
        self,
        run: str,
        *,
        instance: str = "m.small",
        nodes: int = 1,
        cloud: MiniCloud | None = None,
        script: str = "",
        **job: Any,
    ) -> MiniNodes:
        self.count += 1
        lease_id = f"mlcd-test-{os.getpid()}-{self.count}"
        folder = self.folder / lease_id
        (folder / "workdir").mkdir(parents=True)
        (folder / "workdir" / "job.py").write_text(script)
        (folder / "workdir" / "beside.py").write_text("NAME = 'beside'\n")
        (folder / "job.json").write_text(Job(lease_id=lease_id, run=run, envs={"GREETING": "hello"}, **job).to_json())
        order = NodeOrder(lease_id=lease_id, instance=instance, count=nodes, seconds=900, folder=folder)
        until = time.monotonic() + CAPACITY_TIMEOUT_SECONDS
        while True:
            try:
                leased = (cloud or self.cloud).start(order)
                break
            except LeaseFailed as failed:
                if failed.kind is not FailureKind.CAPACITY or time.monotonic() > until:
                    raise
                time.sleep(0.5)
        self.undo.callback(leased.release)
        return leased

    def output(self, leased: MiniNodes) -> list[str]:
        """What each node printed, once all have ended."""
        await_true(lambda: leased.state() is NodesState.ENDED)
        return [(self.node(leased, rank) / "log.txt").read_text() for rank in range(leased.record.count)]

    def node(self, leased: MiniNodes, rank: int) -> Path:
        return Path(leased.record.folder) / f"node-{rank}"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    with bench.undo:
        yield bench


def await_true(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < until, "it did not come"
        time.sleep(0.05)


def remains(lease_id: str) -> dict[str, object]:
    found = {
        "namespaces": namespaces_of(lease_id),
        "links": links_of(lease_id),
        "groups": groups_of(lease_id),
        "processes": tagged(lease_id),
        "records": [name for name in read_records() if name == lease_id],
    }
    return {what: things for what, things in found.items() if things}


ADD = """
import horovod.mxnet as hvd
import mxnet as mx
hvd.init()
print(hvd.rank(), hvd.allreduce(mx.nd.array([hvd.rank() + 1.0]), average=False).asscalar())
"""


@pytest.mark.extra  # scripts/setup-engine mxnet-ring compiles Horovod for minutes
def test_horovod_connects_nodes_with_addresses_of_their_own(bench: Bench) -> None:
    """As released, it connects to the address of the host name: 127.0.0.1 here."""
    folder = Path(__file__).resolve().parents[2] / ".venvs" / "mxnet-ring"
    if not (folder / "mlcd.stamp").exists():
        pytest.skip("no .venvs/mxnet-ring: run scripts/setup-engine mxnet-ring")
    run = f"{folder}/bin/python job.py"
    leased = bench.lease(run, script=ADD, instance="m.large", nodes=2, platform="mxnet", topology="ring")
    assert bench.output(leased) == ["0 3.0\n", "1 3.0\n"]


SEND = """
import os, socket, time
if os.environ["MLCD_RANK"] == "0":
    server = socket.create_server(("", 29500))
    connection, _ = server.accept()
    connection.recv(1)
    start, count = time.monotonic(), 0
    while received := connection.recv(1 << 20):
        count += len(received)
    print(count, time.monotonic() - start)
else:
    while True:
        try:
            connection = socket.create_connection((os.environ["MLCD_HEAD"], 29500))
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    connection.sendall(bytes(20_000_000))
"""


@pytest.mark.measures
def test_bandwidth_is_limited_by_the_type(bench: Bench) -> None:
    seconds = {}
    for instance in ("m.large", "n.large"):
        leased = bench.lease("python job.py", script=SEND, instance=instance, nodes=2)
        count, taken = bench.output(leased)[0].split()
        assert int(count) == 20_000_000 - 1
        seconds[instance] = float(taken)
        leased.release()
    assert seconds["m.large"] > 1.5 * seconds["n.large"], "n has four times the bandwidth of m"
    assert 20e6 * 8 / seconds["m.large"] < 110e6, "100 Mbit/s are never exceeded"


BURN = """
import time
start = time.monotonic()
while time.monotonic() < start + 3:
    pass
print(time.process_time() / (time.monotonic() - start))
"""


@pytest.mark.measures
def test_cpu_is_limited_by_the_type_and_two_leases_work_side_by_side(bench: Bench) -> None:
    small = bench.lease("python job.py", script=BURN, instance="m.small")
    large = MiniCloudBeside(bench).lease("python job.py", script=BURN, instance="m.large")
    assert set(small.addresses).isdisjoint(large.addresses)
    shares = {leased: float(bench.output(leased)[0]) for leased in (small, large)}
    # Well below a whole CPU, and more for the larger type: a busy machine allows no stricter check within a second.
    assert shares[small] < 0.25
    assert shares[large] < 0.5
    assert shares[large] > 1.1 * shares[small]
    used = small.used_seconds()
    assert used is not None
    assert used > 0
    small.release()
    assert small.used_seconds() == pytest.approx(used, rel=0.5), "what was used is known after the release"


class MiniCloudBeside(Bench):
    """Another engine, with the leases of the first one's test."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench.folder / "beside")
        self.undo, self.count = bench.undo, 100


REACH = """
import os, socket, sys, time
def reached(address, port):
    try:
        socket.create_connection((address, port), timeout=1).close()
        return True
    except OSError:
        return False
if os.environ["MLCD_RANK"] == "0":
    server = socket.create_server(("", 29500))
    server.accept()
    print("served", sorted(name for _, name in socket.if_nameindex()))
else:
    time.sleep(0.5)
    outside = [reached(sys.argv[1], int(sys.argv[2])), reached("127.0.0.1", int(sys.argv[2]))]
    while not reached(os.environ["MLCD_HEAD"], 29500):
        time.sleep(0.05)
    print("outside", outside)
"""


def test_a_node_reaches_its_lease_and_nothing_else(bench: Bench) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as host:
        other = bench.lease("sleep 900")
        leased = bench.lease(
            f"python job.py {other.addresses[0]} {host.getsockname()[1]}", script=REACH, nodes=2, instance="n.small"
        )
        served, outside = bench.output(leased)
    assert served.strip() == "served ['eth0', 'lo']"
    assert outside.strip() == "outside [False, False]"


def test_more_than_the_machine_has_is_refused_unpaid(bench: Bench) -> None:
    most = bench.cloud.most_nodes("m.small")
    assert most is not None
    held = bench.lease("sleep 900")
    for count in (most + 1, most):  # too many for the machine; too many with the one already leased
        order = NodeOrder(lease_id="mlcd-test-refused", instance="m.small", count=count, seconds=9, folder=bench.folder)
        with pytest.raises(LeaseFailed, match="this machine has") as refused:
            bench.cloud.start(order)
        assert refused.value.kind is FailureKind.CAPACITY
        assert not refused.value.billed
    assert not remains("mlcd-test-refused")
    assert held.state() is NodesState.RUNNING


def test_a_lease_id_must_not_be_used_twice_at_once(bench: Bench) -> None:
    held = bench.lease("sleep 900")
    order = NodeOrder(
        lease_id=held.record.lease_id, instance="m.small", count=1, seconds=9, folder=Path(held.record.folder)
    )
    with pytest.raises(ValueError, match="is already leased"):
        bench.cloud.start(order)
    assert held.state() is NodesState.RUNNING


def test_nodes_that_cannot_be_created_are_a_failed_launch_and_leave_nothing(bench: Bench) -> None:
    (bench.folder / "a-file").touch()
    order = NodeOrder(
        lease_id="mlcd-test-nowhere", instance="m.small", count=1, seconds=9, folder=bench.folder / "a-file" / "nowhere"
    )
    bench.lease("true").release()  # there is room
    with pytest.raises(LeaseFailed, match="the nodes could not be created") as failed:
        bench.cloud.start(order)
    assert failed.value.kind is FailureKind.LAUNCH
    assert not failed.value.billed
    assert not remains("mlcd-test-nowhere")


def test_a_process_that_joined_a_namespace_on_its_own_is_ended_too(bench: Bench) -> None:
    leased = bench.lease("sleep 900")
    lease_id = leased.record.lease_id
    guest = subprocess.Popen(["nsenter", f"--net=/run/netns/{lease_id}.0", "sleep", "30"])
    await_true(lambda: guest.pid in processes_in(lease_id))
    leased.release()
    assert guest.wait() == -signal.SIGKILL


def test_out_of_memory_is_reported(bench: Bench) -> None:
    wait = "while [ ! -e limited ]; do sleep 0.1; done"
    leased = bench.lease(f"{wait}; python job.py", script="held = [b'x' * (1 << 24) for _ in range(128)]")
    node = groups_of(leased.record.lease_id)[0].node
    assert hierarchy().limits(node)[1] == 1.0
    hierarchy().limit(node, cpus=None, memory_gib=0.125)  # filling a GiB takes an eighth of a core long
    (Path(leased.record.folder) / "workdir" / "limited").touch()
    with pytest.raises(LeaseFailed, match="node 0 ran out of its 1 GiB") as failed:
        await_true(lambda: leased.state() is NodesState.ENDED)
    assert failed.value.kind is FailureKind.OUT_OF_MEMORY


COUNT = """
import itertools, time
for number in itertools.count():
    print(number, flush=True)
    time.sleep(0.02)
"""


@pytest.mark.parametrize("how", ["namespace", "link", "down"])
def test_a_lost_network_is_reported(bench: Bench, how: str) -> None:
    leased = bench.lease("sleep 900", nodes=2)
    lease_id = leased.record.lease_id
    assert leased.state() is NodesState.RUNNING
    link, space = next(name for name in links_of(lease_id) if name.endswith("-1")), f"{lease_id}.1"
    commands = {
        "namespace": ("netns", "del", space),
        "link": ("link", "del", link),
        "down": ("-n", space, "link", "set", "eth0", "down"),
    }
    run_command("ip", *commands[how])
    with pytest.raises(LeaseFailed, match="node 1's network is gone") as failed:
        await_true(lambda: leased.state() is NodesState.ENDED)
    assert failed.value.kind is FailureKind.LOST
    leased.release()
    assert not remains(lease_id)


def test_a_killed_agent_is_reported(bench: Bench) -> None:
    leased = bench.lease("sleep 900")
    pid_file = bench.node(leased, 0) / "agent.pid"
    await_true(lambda: pid_file.exists() and bool(pid_file.read_text()))
    os.kill(int(pid_file.read_text()), signal.SIGKILL)
    with pytest.raises(LeaseFailed, match="the agent of node 0 ended") as failed:
        await_true(lambda: leased.state() is NodesState.ENDED)
    assert failed.value.kind is FailureKind.LOST


OWNER = """
import sys, time
from pathlib import Path
from mlcd.clouds.minicloud import MiniCloud
from mlcd.clouds.minicloud.warm import WarmWorkers
from mlcd.clouds.nodes import NodeOrder
folder = Path(sys.argv[1])
cloud = MiniCloud()
cloud._warm = WarmWorkers(())  # without PyTorch, which takes seconds and is no part of this
nodes = cloud.start(NodeOrder(lease_id=sys.argv[2], instance="m.small", count=2, seconds=900, folder=folder))
time.sleep(600)
"""


@pytest.mark.parametrize("agents", ["alive", "killed"])
def test_a_killed_mlcd_leaves_nothing_after_the_next_start(bench: Bench, agents: str) -> None:
    lease_id = f"mlcd-test-{os.getpid()}-{agents}"
    folder = bench.folder / lease_id
    (folder / "workdir").mkdir(parents=True)
    (folder / "workdir" / "job.py").write_text(COUNT)
    (folder / "job.json").write_text(Job(lease_id=lease_id, run="python job.py").to_json())
    bench.lease("true").release()  # there is room
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(folder), lease_id])
    try:
        logs = [folder / f"node-{rank}" / "log.txt" for rank in range(2)]
        await_true(lambda: owner.poll() is not None or all(log.exists() and log.stat().st_size for log in logs))
        assert owner.poll() is None
        mine = [
            remaining
            for remaining in bench.cloud.leftovers()
            if read_records()[remaining.lease_id].owner_pid == owner.pid
        ]
        assert len(mine) == 2, "the lease and the warm worker"
        assert all(remaining.owned for remaining in mine)
        if agents == "killed":
            for rank in range(2):
                os.kill(int((folder / f"node-{rank}" / "agent.pid").read_text()), signal.SIGKILL)
    finally:
        owner.kill()
        owner.wait()
    if agents == "alive":  # they end themselves and the job, and the warm worker itself
        await_true(lambda: not any(tagged(remaining.lease_id) for remaining in mine))
    assert all(not remaining.owned for remaining in bench.cloud.leftovers() if remaining in mine)
    bench.lease("true")
    for remaining in mine:
        assert not remains(remaining.lease_id)


def test_leftovers_are_listed_and_ended(bench: Bench) -> None:
    leased = bench.lease("sleep 900", nodes=2)
    engine: NodeEngine = MiniCloud()
    await_true(lambda: "process" in find(engine, leased.record.lease_id))
    assert "2 namespaces, 3 links, 2 control groups" in find(engine, leased.record.lease_id)
    for remaining in engine.leftovers():
        if remaining.lease_id == leased.record.lease_id:
            assert remaining.owned
            engine.end(remaining)
            engine.end(remaining)  # ending it twice is no error
    assert not remains(leased.record.lease_id)


def find(engine: NodeEngine, lease_id: str) -> str:
    return next(remaining.what for remaining in engine.leftovers() if remaining.lease_id == lease_id)


TELL = """
import atexit, json, os, random, socket, sys, threading, time
from pathlib import Path
import beside
def wait_and_print():  # after the script's own last word: two that print at once get into each other's lines
    log, last = Path(os.readlink("/proc/self/fd/1")), "a text" if sys.argv[1] == "text" else "to stderr"
    while not log.read_text().endswith(last + "\\n"):
        time.sleep(0.01)
    print("thread")
atexit.register(print, "exit handler")
threading.Thread(target=wait_and_print).start()
print(json.dumps({
    "argv": sys.argv, "name": __name__, "file": __file__, "cwd": os.getcwd(), "greeting": os.environ["GREETING"],
    "main": sys.modules["__main__"].__dict__ is globals(), "beside": beside.NAME, "stdin": sys.stdin.read(),
    "links": sorted(name for _, name in socket.if_nameindex()), "path": sys.path[0], "numpy": "numpy" in sys.modules,
    "groups": sorted(line.split(":")[2] for line in Path("/proc/self/cgroup").read_text().splitlines()
                     if "mlcd" in line),
}))
print("to stderr", file=sys.stderr)
sys.exit({"three": 3, "text": "a text"}.get(sys.argv[1], 1))
"""


@pytest.fixture(scope="module")
def warm() -> Iterator[MiniCloud]:
    cloud = MiniCloud(warm=True)
    yield cloud
    cloud.close()


def test_a_warm_process_behaves_like_a_cold_one(bench: Bench, warm: MiniCloud) -> None:
    for argument, code in (("three", 3), ("text", 1)):
        told = {}
        for cloud in (bench.cloud, warm):
            lease = bench.lease(f"python job.py {argument} 'a b'", cloud=cloud, script=TELL, instance="m.large")
            folder = Path(lease.record.folder)
            lines = bench.output(lease)[0].splitlines()
            said = json.loads(next(line for line in lines if line.startswith("{")))
            is_warm = said.pop("numpy")
            assert is_warm == (cloud is warm)
            said = json.loads(json.dumps(said).replace(lease.record.lease_id, "LEASE"))
            told[cloud] = said, sorted(line for line in lines if not line.startswith("{"))
            assert json.loads((folder / "node-0" / "exit.json").read_text())["code"] == code
            lease.release()
        assert told[warm] == told[bench.cloud]
        assert told[warm][0]["argv"] == ["job.py", argument, "a b"]


TRAIN = """
import os, torch, torch.distributed as dist
rank, nodes = int(os.environ["MLCD_RANK"]), int(os.environ["MLCD_NUM_NODES"])
dist.init_process_group("gloo", init_method=f"tcp://{os.environ['MLCD_HEAD']}:29500", rank=rank, world_size=nodes)
drawn = [torch.zeros(1) for _ in range(nodes)]
dist.all_gather(drawn, torch.rand(1))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(10):
    optimizer.zero_grad()
    model(torch.randn(8, 64)).square().mean().backward()
    optimizer.step()
print("trained", torch.get_num_threads(), len({float(x) for x in drawn}))
dist.destroy_process_group()
"""


def test_warm_processes_train_together_and_end(bench: Bench, warm: MiniCloud) -> None:
    pytest.importorskip("torch")
    for _ in range(2):
        leased = bench.lease("python job.py", script=TRAIN, cloud=warm, nodes=2)
        for log in bench.output(leased):
            assert "trained 1 2" in log, "one thread; each node draws random numbers of its own"
        leased.release()


def test_a_warm_worker_that_was_killed_is_started_again_and_ends_with_its_cloud(bench: Bench) -> None:
    cloud = MiniCloud()
    cloud._warm = WarmWorkers(())  # without PyTorch, which takes seconds and is no part of this
    bench.undo.callback(cloud.close)
    others = own_workers()
    assert bench.output(bench.lease("python job.py", script="print('one')", cloud=cloud)) == ["one\n"]
    (killed,) = own_workers() - others
    (worker,) = tagged(killed)
    os.kill(worker, signal.SIGKILL)
    await_true(lambda: not started_at(worker))
    assert bench.output(bench.lease("python job.py", script="print('two')", cloud=cloud)) == ["two\n"]
    (again,) = own_workers() - others
    cloud.close()
    cloud.close()
    assert not remains(killed)
    assert not remains(again)


def own_workers() -> set[str]:
    return {name for name in read_records() if name.startswith(f"mlcd-warm-{os.getpid()}-")}
