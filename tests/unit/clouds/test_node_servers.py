"""Servers on leased nodes, on the engine `local`: it needs no root, and its nodes are processes of this machine."""

import json
import os
import shlex
import signal
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from tests import split_server

from mlcd.clouds import processes
from mlcd.clouds.local import Local
from mlcd.clouds.provider import JobProgress, LeaseFailed, Order
from mlcd.clouds.serving.command import CommandServing
from mlcd.clouds.serving.on_nodes import NodeServers, NodeServing
from mlcd.errors import BadInput
from mlcd.space import Config
from mlcd.trial.trial import FailureKind

CPUS = (0, 0)
"""Two nodes of one processor each; on a machine with one, they share it."""
TIMEOUT_SECONDS = 120.0
SERVER = """
import os, sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer

class Answers(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/die":
            print("the model is gone", flush=True)
            os._exit(int(os.environ["CODE"]))
        text = f"{os.environ['SEQS']} {os.environ['MODEL']} {os.environ.get('MLCD_HOME', '-')}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass

HTTPServer((os.environ["HOST"], int(os.environ["PORT"])), Answers).serve_forever()
"""


def config(nodes: int = 2, code: int = 3) -> Config:
    return Config.of({"instance": "local.1", "nodes": nodes, "SEQS": 16, "CODE": code})


def cloud(tmp_path: Path, run: str | None = None, load_processors: dict[str, float] | None = None) -> NodeServing:
    (tmp_path / "server.py").write_text(SERVER)
    command = run or f"exec {shlex.quote(sys.executable)} server.py"
    home = tmp_path / "home"
    program = CommandServing(command, home=home, noise=0.0, folder=tmp_path, model="m", ready="/", cpus=CPUS)
    nodes = Local(home, cpus=CPUS)
    return NodeServing(nodes, program, noise=0.0, is_here=True, load_processors=load_processors)


def ready(lease: NodeServers) -> None:
    until = time.monotonic() + TIMEOUT_SECONDS
    for _ in lease.progress():
        assert time.monotonic() < until


def answer(address: str) -> str:
    with urllib.request.urlopen(address, timeout=10) as found:
        return str(found.read().decode())


def answers(address: str) -> bool:
    try:
        return bool(answer(address))
    except OSError:
        return False


def check_for_long(lease: NodeServers) -> None:
    until = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < until:
        lease.check()
        time.sleep(0.1)


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path: Path) -> object:
    yield
    leases = {path.name for path in tmp_path.glob("home/work/*/leases/*")}
    assert leases
    assert not leases & processes.all_tagged().keys()


def order(nodes: int = 2, seconds: float = 600.0, code: int = 3) -> Order:
    return Order(config=config(nodes, code), seconds=seconds, run_id="toy-1")


def test_every_node_has_a_server_with_the_settings(tmp_path: Path) -> None:
    with cloud(tmp_path).lease(order()) as lease:
        with pytest.raises(RuntimeError):
            _ = lease.endpoint
        ready(lease)
        found = lease.endpoint
        assert len(set(found.addresses)) == 2
        assert [answer(address) for address in found.addresses] == ["16 m -", "16 m -"]
        assert found.model == "m"
        assert found.shares_cpus
        lease.check()
        settled = lease.finish(JobProgress(1.0, 1.0))
        assert settled.seconds > 0
    assert not any(answers(address) for address in found.addresses)
    assert not (lease.folder / "workdir").exists()
    assert '"SEQS": ""' in (lease.folder / "job.json").read_text()  # values of variables do not stay


def test_one_node_more_sends_the_load(tmp_path: Path) -> None:
    with cloud(tmp_path, load_processors={"local.1": 0.5}).lease(order(nodes=1)) as lease:
        ready(lease)
        found = lease.endpoint
        assert found.addresses == (found.address,)
        assert answer(found.address) == "16 m -"
        assert (found.shares_cpus, found.client_cpus, found.generator_processors) == (False, (), 0.5)
        with pytest.raises(BadInput, match="x is no load generator"):
            found.generator("x", "{}", most_seconds=60.0)
        job = json.loads((lease.folder / "job.json").read_text())
        token = job["envs"]["MLCD_LOAD_TOKEN"]
        assert len(token) == 32
        assert sorted(path.name for path in lease.folder.glob("node-*")) == ["node-0", "node-1"]
        os.kill(int((lease.folder / "node-1" / "agent.pid").read_text()), signal.SIGTERM)
        with pytest.raises(LeaseFailed, match="node 1: it was asked to end"):
            check_for_long(lease)
    assert token not in (lease.folder / "job.json").read_text()


def test_servers_do_not_get_the_token_of_the_load_generator(tmp_path: Path) -> None:
    run = (
        f"exec {shlex.quote(sys.executable)} -c 'import os; raise SystemExit(str(os.environ.get(\"MLCD_LOAD_TOKEN\")))'"
    )
    with (
        pytest.raises(LeaseFailed, match="exit code 1: None"),
        cloud(tmp_path, run, load_processors={"local.1": 0.5}).lease(order(nodes=1)) as lease,
    ):
        check_for_long(lease)


def test_one_server_over_two_nodes_answers_from_the_first(tmp_path: Path) -> None:
    command = f"exec {shlex.quote(sys.executable)} {shlex.quote(split_server.__file__)}"
    home = tmp_path / "home"
    program = CommandServing(
        command, home=home, noise=0.0, folder=tmp_path, model="m", ready="/", cpus=CPUS, nodes=2, per_node=["LAYERS"]
    )
    split = Config.of({"instance": "local.1", "nodes": 2, "LAYERS_0": 10, "LAYERS_1": 22})
    nodes = NodeServing(Local(home, cpus=CPUS), program, noise=0.0, is_here=True)
    with nodes.lease(Order(config=split, seconds=600.0, run_id="toy-1")) as lease:
        ready(lease)
        found = lease.endpoint
        assert found.addresses == (found.address,)
        with urllib.request.urlopen(found.address, data=b"x", timeout=10) as said:
            assert json.loads(said.read()) == {"layers": [10, 22]}
        lease.check()
        os.kill(int((lease.folder / "node-1" / "agent.pid").read_text()), signal.SIGTERM)
        with pytest.raises(LeaseFailed, match="node 1: it was asked to end"):
            check_for_long(lease)


@pytest.mark.parametrize(("code", "words"), [(3, "exit code 3: the model is gone"), (0, "ended by itself")])
def test_a_server_that_ends_after_it_was_ready(tmp_path: Path, code: int, words: str) -> None:
    with cloud(tmp_path).lease(order(code=code)) as lease:
        ready(lease)
        assert not answers(f"{lease.endpoint.further[0]}/die")
        with pytest.raises(LeaseFailed, match=words) as failed:
            lease.check()
    assert failed.value.kind is FailureKind.ERROR
    assert "node 1" in failed.value.message


def test_a_server_that_never_starts(tmp_path: Path) -> None:
    failing = cloud(tmp_path, "echo cannot open the GPU; exit 5")
    with failing.lease(order()) as lease, pytest.raises(LeaseFailed, match="cannot open the GPU"):
        ready(lease)


def test_servers_end_with_their_time(tmp_path: Path) -> None:
    with cloud(tmp_path).lease(order(seconds=3.0)) as lease:
        ready(lease)
        with pytest.raises(LeaseFailed, match="its 3 s were over") as failed:
            check_for_long(lease)
    assert failed.value.kind is FailureKind.HANG


def test_what_a_server_writes_as_its_address_is_not_followed(tmp_path: Path) -> None:
    spoil = 'echo "evil.example/x?" > "$(dirname "$MLCD_PROGRESS_FILE")/node-0/address"; sleep 600'
    with cloud(tmp_path, spoil).lease(order(nodes=1)) as lease, pytest.raises(LeaseFailed, match="is not an address"):
        ready(lease)


def test_more_nodes_than_the_machine_has_cost_nothing(tmp_path: Path) -> None:
    with pytest.raises(LeaseFailed) as failed, cloud(tmp_path).lease(order(nodes=3)):
        pass
    assert failed.value.billed is False
    assert os.path.lexists(tmp_path / "home")
