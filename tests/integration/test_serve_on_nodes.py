"""`mlcd serve` on leased nodes: real servers in the minicloud's namespaces, real load, and nothing left behind."""

import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import chat_server, hostile_server, split_server
from tests.tiny_onnx import write_mlp

from mlcd.cli.main import run as mlcd
from mlcd.clouds.minicloud import MiniCloud, missing
from mlcd.clouds.minicloud.network import links_of, namespaces_of, processes_in
from mlcd.clouds.processes import all_tagged

pytestmark = [
    pytest.mark.waits,
    pytest.mark.together("the machine's room for nodes"),
    pytest.mark.skipif(bool(missing()), reason="; ".join(missing())),
]
MLCD = (sys.executable, "-c", "from mlcd.cli.main import main; main()")
TIMEOUT_SECONDS = 240.0
MODEL_JOB: dict[str, Any] = {
    "name": "tiny",
    "model": "tiny.onnx",
    "resources": {"infra": "minicloud", "instance_type": ["m.large"], "replicas": "1..2"},
    "knobs": {"batch": 4, "precision": "fp32"},
    "goal": {"minimize": "cost", "rate": "20/s", "slo": {"p99": "5s"}, "budget": "2 USD"},
    "load": {"verify": "1s"},
    "search": {"max_trials": 1, "trial": {"seconds": "5s", "watchdog": "120s"}},
}
SERVER = f"exec {shlex.quote(sys.executable)} {shlex.quote(chat_server.__file__)} --host $HOST --port $PORT"
CHAT_JOB: dict[str, Any] = {
    "name": "toy",
    "server": {"run": f"{SERVER} --slots $SLOTS", "name": "toy"},
    "resources": {"infra": "minicloud", "instance_type": "n.large", "replicas": 2},
    "knobs": {"SLOTS": [1]},
    "load": {"input_tokens": 16, "output_tokens": 8, "concurrency": 8, "verify": "1s"},
    "goal": {"maximize": "tokens per dollar", "slo": {"ttft_p95": "20s", "tpot_p95": "20s"}},
    "search": {"max_trials": 1, "trial": {"seconds": "3s", "watchdog": "120s"}},
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "home"
    monkeypatch.setenv("MLCD_HOME", str(folder))
    monkeypatch.chdir(tmp_path)
    yield folder
    assert leases_left(folder) == []


def leases_left(home: Path) -> list[str]:
    """The leases under this home of which a process, a namespace, a link or a record exists."""
    names = [path.name for path in home.glob("work/*/leases/*")]
    known = {leftover.lease_id for leftover in MiniCloud().leftovers()} | all_tagged().keys()
    return [n for n in names if n in known or namespaces_of(n) or links_of(n) or processes_in(n)]


def written(folder: Path, job: dict[str, Any]) -> str:
    if "model" in job:
        write_mlp(folder / "tiny.onnx")
    file = folder / "job.yaml"
    file.write_text(json.dumps(job))
    return str(file)


def answer(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(capsys.readouterr().out)
    return data


def test_one_node_is_measured_and_the_chosen_number_is_verified(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = {**MODEL_JOB, "resources": {**MODEL_JOB["resources"], "replicas": 2}}
    assert mlcd(["serve", written(tmp_path, job), "-o", "json"]) == 0
    said = answer(capsys)
    assert said["cloud"] == "minicloud"
    assert said["nominal_prices"] is True
    config = {"instance": "m.large", "nodes": 2, "batch": 4, "threads": 1, "replicas": 1, "precision": "fp32"}
    assert said["choice"]["config"] == config
    assert said["choice"]["usd_per_hour"] == pytest.approx(2 * 1.8)
    assert said["choice"]["load"]["errors"] == 0
    assert 0 < said["choice"]["load"]["memory_gib"] < 1.5
    assert said["choice"]["load"]["generator_share"] > 0
    assert {path.name for path in home.glob("work/*/leases/*/node-*")} == {"node-0", "node-1"}
    (trial,) = said["trials"]
    verification = said["receipt"]["verifications"][0]
    for step in (trial, verification):
        assert step["usd"] == pytest.approx(3.6 * step["seconds"] / 3600, abs=1e-5)
    assert mlcd(["show", said["run_id"]]) == 0
    assert "Serve with: 2 x m.large" in capsys.readouterr().out


def test_a_node_of_its_own_sends_the_load_and_is_paid_for(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The price of requests is that of the server's node alone; what load tests cost is that of both."""
    resources = {"infra": "minicloud", "instance_type": ["n.large"], "replicas": 1}
    job = {**MODEL_JOB, "resources": resources, "load": {**MODEL_JOB["load"], "from": "node"}}
    assert mlcd(["serve", written(tmp_path, job), "-o", "json"]) == 0
    said = answer(capsys)
    assert said["load"]["from_node"] is True
    price = said["choice"]["usd_per_hour"]
    assert said["choice"]["usd_per_million_requests"] == pytest.approx(price / 3600 * 1e6 / 20, abs=1e-4)
    (trial,) = said["trials"]
    assert trial["usd_per_hour"] == pytest.approx(2 * price)
    for step in (trial, said["receipt"]["verifications"][0]):
        assert step["usd"] == pytest.approx(2 * price * step["seconds"] / 3600, abs=1e-5)
        assert step.get("load", step.get("measured", {}).get("load"))["generator_share"] > 0
    assert {path.name for path in home.glob("work/*/leases/*/node-*")} == {"node-0", "node-1"}
    assert mlcd(["show", said["run_id"]]) == 0
    assert "of a processor, on a node of its own" in capsys.readouterr().out


def test_two_servers_over_two_nodes_each_with_a_knob_per_node(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = f"exec {shlex.quote(sys.executable)} {shlex.quote(split_server.__file__)}; : $PORT $NODE_RANK $LAYERS"
    job = {
        "name": "split",
        "server": {"run": run, "api": "http", "ready": "/", "path": "/predict", "body": {"text": "x"}, "nodes": 2},
        "resources": {"infra": "minicloud", "instance_type": "m.large", "replicas": 2},
        "knobs": {"LAYERS": {"values": [10, 22], "per": "node"}},
        "load": {"concurrency": 2, "verify": "1s"},
        "goal": {"maximize": "rate", "budget": "2 USD"},
        "search": {"max_trials": 1, "strategy": "exhaustive", "trial": {"seconds": "5s", "watchdog": "120s"}},
    }
    assert mlcd(["serve", written(tmp_path, job), "-o", "json"]) == 0
    said = answer(capsys)
    assert said["configurations"] == 4
    assert said["choice"]["config"] == {"instance": "m.large", "nodes": 4, "LAYERS_0": 10, "LAYERS_1": 10}
    assert said["choice"]["usd_per_hour"] == pytest.approx(4 * 1.8)
    assert said["choice"]["load"]["errors"] == 0
    assert {path.name for path in home.glob("work/*/leases/*/node-*")} == {f"node-{rank}" for rank in range(4)}
    assert mlcd(["serve", str(tmp_path / "job.yaml"), "--write", "skyserve", str(tmp_path / "out")]) == 2
    assert "servers over several nodes (server.nodes) are not written" in capsys.readouterr().err


def test_a_language_model_is_loaded_from_a_node(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = {
        **CHAT_JOB,
        "resources": {**CHAT_JOB["resources"], "replicas": 1},
        "load": {**CHAT_JOB["load"], "from": "node"},
    }
    assert mlcd(["serve", written(tmp_path, job), "-o", "json"]) == 0
    said = answer(capsys)
    assert said["load"]["from_node"] is True
    assert said["choice"]["load"]["errors"] == 0


def test_a_command_serves_on_every_node_and_the_load_is_shared(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert mlcd(["serve", written(tmp_path, CHAT_JOB), "-o", "json"]) == 0
    said = answer(capsys)
    assert said["choice"]["config"] == {"instance": "n.large", "nodes": 2, "SLOTS": 1}
    # A server of this kind answers one request at a time: two in flight at full pace means that both served.
    assert said["choice"]["load"]["errors"] == 0


@pytest.mark.parametrize(
    ("run", "kind", "words"),
    [
        ("sleep 600; : $PORT $SLOTS", "hang", "not ready"),
        ("echo no such GPU; : $PORT $SLOTS; exit 3", "job-failed", "no such GPU"),
        ("exec {python} {server} garbage $PORT $SLOTS", "job-failed", "does not answer as OpenAI's API does"),
        ("exec {python} {server} leak $PORT $SLOTS", "out-of-memory", "ran out of its 1.5 GiB of memory"),
        ("exec {python} {server} die $PORT $SLOTS", "job-failed", "the server of node 0 ended with exit code 9"),
        ("exec {python} {server} endless $PORT $SLOTS", "job-failed", "does not end"),
        ("exec {python} {server} silent $PORT $SLOTS", "job-failed", "nothing came for"),
    ],
    ids=["hangs", "ends", "garbage", "leaks", "dies under load", "streams for ever", "is silent"],
)
def test_a_faulty_server_ends_its_trial_with_a_reason(
    home: Path, tmp_path: Path, run: str, kind: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = run.format(python=shlex.quote(sys.executable), server=shlex.quote(hostile_server.__file__))
    job = {
        **CHAT_JOB,
        "server": {"run": command, "name": "toy"},
        "resources": {"infra": "minicloud", "instance_type": "n.large"},
        "search": {"max_trials": 1, "trial": {"seconds": "4s", "watchdog": "10s", "retries": 0}},
    }
    assert mlcd(["serve", written(tmp_path, job), "-o", "json"]) == 6
    (trial,) = answer(capsys)["trials"]
    assert (trial["failure"]["kind"], words in trial["failure"]["message"]) == (kind, True), trial["failure"]
    assert trial["usd"] <= trial["authorised_usd"]


def kill_after(home: Path, file: str, is_so: Callable[[], bool], seconds: float = 0.0) -> None:
    """Start mlcd, and kill it so many seconds after something is so."""
    with subprocess.Popen([*MLCD, "serve", file], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        wait(lambda: is_so() or run.poll() is not None)
        time.sleep(seconds)
        run.send_signal(signal.SIGKILL)


def wait(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + TIMEOUT_SECONDS
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.05)


def no_server_answers(home: Path) -> bool:
    """Whether no process of a lease of this home runs."""
    names = {path.name for path in home.glob("work/*/leases/*")}
    return not any(processes_in(name) for name in names) and not names & all_tagged().keys()


def test_killed_mlcd_leaves_nothing_and_resumes(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = {**MODEL_JOB, "resources": {**MODEL_JOB["resources"], "replicas": 2}}
    file = written(tmp_path, {**job, "search": {**MODEL_JOB["search"], "max_trials": 2}})  # the killed one counts
    kill_after(home, file, lambda: bool(leases_left(home)), 2.0)
    wait(lambda: no_server_answers(home))  # the agents notice, and end the servers
    (run_id,) = (path.name for path in home.glob("work/*"))
    assert mlcd(["down", run_id, "-y"]) == 0
    assert leases_left(home) == []
    capsys.readouterr()
    assert mlcd(["resume", run_id, "-o", "json"]) == 0
    said = answer(capsys)
    assert said["status"] == "done"
    assert said["receipt"]["total_usd"] <= 2.0


def test_down_ends_the_servers_of_a_run(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    search = {"max_trials": 1, "trial": {"seconds": "60s", "retries": 0}}
    file = written(tmp_path, {**MODEL_JOB, "search": search})
    with subprocess.Popen([*MLCD, "serve", file], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        wait(lambda: bool(list(home.glob("work/*/leases/*/node-0/agent.pid"))))
        (lease,) = leases_left(home)
        (run_id,) = (path.name for path in home.glob("work/*"))
        assert mlcd(["down", "--on", "minicloud", "--dry-run"]) == 0
        said = capsys.readouterr()
        assert lease in said.out + said.err
        assert leases_left(home) == [lease]
        assert mlcd(["down", run_id, "-y"]) == 0
        assert run.wait(TIMEOUT_SECONDS) == 6  # its only load test lost its servers
