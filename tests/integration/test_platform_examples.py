"""Each platform's example really trains on two nodes: two agents on this machine, with all their processes."""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from mlcd.clouds.nodes import agent_command
from mlcd.platforms.agent import Job
from mlcd.platforms.registry import NAMES, TOPOLOGIES
from mlcd.spec.real import Platform

pytestmark = [pytest.mark.waits, pytest.mark.together("both processors")]

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


def job_file(example: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((EXAMPLES / f"{example}.yaml").read_text())
    return loaded


def free_ports() -> int:
    """A port with a few free ones after it, for a process that starts right away."""
    # A range for each of xdist's workers: what is free now is taken only in seconds.
    own = 20000 + 4000 * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 3)
    for port in range(own + os.getpid() % 2000, own + 4000 - 8, 16):
        try:
            for offset in range(8):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port + offset))
        except OSError:
            continue
        return port
    raise AssertionError("no free ports")


@dataclass(frozen=True)
class Ended:
    """How a job on several nodes ended."""

    codes: list[int]
    log: str
    progress: list[dict[str, Any]]
    workdir: Path

    @property
    def samples(self) -> list[float]:
        return [line["samples"] for line in self.progress if "samples" in line]

    def metrics(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads((self.workdir / "metrics.json").read_text())
        return loaded


class Nodes:
    """A job's agents on this machine; the end of the `with` block ends them."""

    def __init__(self, folder: Path, example: str, *, count: int = 2, run: str | None = None, **changes: Any) -> None:
        text = job_file(example)
        work = text["job"]
        fields: dict[str, Any] = {
            "lease_id": "mlcd-test",
            "run": run or text["run"],
            "envs": {
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
                "OMP_NUM_THREADS": "1",
                **text.get("envs", {}),
            },
            "platform": text["platform"]["name"],
            "topology": text["platform"].get("topology", TOPOLOGIES[text["platform"]["name"]][0]),
            "port": free_ports(),
            "seconds": 900.0,
            "batch": work["batch"],
            "samples": work["samples"] * work["epochs"],
            "checkpoints": text.get("checkpoints", False),
        }
        self.folder, self.text, self.count = folder, text, count
        self.job = Job(**{**fields, **changes})
        shutil.copytree(EXAMPLES / text["workdir"], folder / "workdir", dirs_exist_ok=True)
        (folder / "job.json").write_text(self.job.to_json())
        self.agents: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "Nodes":
        addresses = ["127.0.0.1"] * self.count
        self.agents = [
            subprocess.Popen(agent_command(self.folder, rank, addresses, lifeline="stdin"), stdin=subprocess.PIPE)
            for rank in range(self.count)
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for agent in self.agents:
            if agent.poll() is None:
                agent.send_signal(signal.SIGTERM)
        for agent in self.agents:
            agent.communicate()

    def progress(self) -> list[dict[str, Any]]:
        file = self.folder / "progress.jsonl"
        lines = file.read_text().splitlines(keepends=True) if file.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def wait_for_progress(self, samples: float) -> None:
        while not any(line.get("samples", 0) >= samples for line in self.progress()):
            assert all(agent.poll() in (None, 0) for agent in self.agents), self.ended().log
            assert self.agents[0].poll() is None, self.ended().log
            time.sleep(0.05)

    def wait(self, ranks: list[int] | None = None) -> Ended:
        for rank in range(self.count) if ranks is None else ranks:
            self.agents[rank].wait()
        return self.ended()

    def ended(self) -> Ended:
        logs = [file.read_text(errors="replace") for file in sorted(self.folder.glob("node-*/*.txt"))]
        codes = [agent.returncode for agent in self.agents]
        return Ended(codes, "\n".join(logs), self.progress(), self.folder / "workdir")


def engine_python(name: str) -> str:
    """The Python of .venvs/NAME; skips the test where that does not exist."""
    python = ROOT / ".venvs" / name / "bin" / "python"
    if not (ROOT / ".venvs" / name / "mlcd.stamp").exists():
        pytest.skip(f"no .venvs/{name}: run scripts/setup-engine {name}")
    return str(python)


@pytest.mark.slow
# The ring is also trained on below, and by test_slurm_search.py.
@pytest.mark.parametrize("form", [pytest.param("ring", marks=pytest.mark.extra), "ps"])
def test_pytorch_trains_on_two_nodes(tmp_path: Path, form: str) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed: scripts/setup-venv test")
    samples = 1500 * 20
    with Nodes(tmp_path, "digits-cnn", run="python train.py --epochs 20", topology=form, samples=samples) as nodes:
        ended = nodes.wait()
    assert ended.codes == [0, 0], ended.log
    assert ended.samples[0] == 0
    assert ended.samples[-1] >= samples
    assert ended.samples == sorted(ended.samples)
    assert ended.metrics()["accuracy"] > 0.9
    assert ended.metrics()["last_loss"] < ended.metrics()["first_loss"]
    assert (ended.workdir / "model.pt").stat().st_size > 0
    assert ended.progress[-1].get("checkpoint") == ended.samples[-1]


@pytest.mark.slow
def test_pytorch_stops_when_asked_and_continues_with_another_number_of_nodes(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed: scripts/setup-venv test")
    with Nodes(tmp_path, "digits-cnn") as nodes:
        nodes.wait_for_progress(20_000)
        (tmp_path / "stop").touch()
        first = nodes.wait([0])
    assert first.codes[0] == 0, first.log
    reached = first.progress[-1]["checkpoint"]
    assert 20_000 <= reached < 300000
    assert not (first.workdir / "metrics.json").exists()

    (tmp_path / "stop").unlink()
    (tmp_path / "progress.jsonl").unlink()
    epochs = -(-reached // 1500) + 3
    run = f"python train.py --epochs {epochs}"
    with Nodes(tmp_path, "digits-cnn", count=3, run=run, samples=epochs * 1500) as nodes:
        second = nodes.wait()
    assert second.codes == [0, 0, 0], second.log
    assert second.samples[0] == reached
    assert second.metrics()["restored_samples"] == reached
    assert second.metrics()["first_loss"] < 2.0, "a network that knows nothing starts at log 10 = 2.3"
    assert second.samples[-1] >= epochs * 1500
    assert second.samples == sorted(second.samples)
    assert (second.workdir / "model.pt").stat().st_size > 0
    assert second.progress[-1].get("checkpoint") == second.samples[-1]


@pytest.mark.slow
def test_mxnet_trains_on_two_nodes(tmp_path: Path) -> None:
    run = f"MLCD_MXNET_PYTHON={shlex.quote(engine_python('mxnet'))}; {job_file('mxnet-ps')['run']} 20"
    with Nodes(tmp_path, "mxnet-ps", run=run) as nodes:
        ended = nodes.wait()
    assert ended.codes == [0, 0], ended.log
    samples = [int(found) for found in re.findall(job_file("mxnet-ps")["progress"]["pattern"], ended.log)]
    assert samples[-1] == 20 * (1500 // 192) * 192
    assert ended.metrics()["accuracy"] > 0.8
    assert ended.metrics()["last_loss"] < ended.metrics()["first_loss"]


@pytest.mark.extra  # scripts/setup-engine mxnet-ring compiles Horovod for minutes
def test_mxnet_trains_on_a_ring_of_two_nodes_as_on_one(tmp_path: Path) -> None:
    run = f"MLCD_MXNET_RING_PYTHON={shlex.quote(engine_python('mxnet-ring'))}; {job_file('mxnet-ring')['run']} 20"
    losses = {}
    for count in (1, 2):
        (tmp_path / str(count)).mkdir()
        with Nodes(tmp_path / str(count), "mxnet-ring", run=run, count=count) as nodes:
            ended = nodes.wait()
        assert ended.codes == [0] * count, ended.log
        samples = [int(found) for found in re.findall(job_file("mxnet-ring")["progress"]["pattern"], ended.log)]
        assert samples[-1] == 20 * (1500 // 192) * 192
        assert ended.metrics()["accuracy"] > 0.8
        losses[count] = ended.metrics()["training_loss"]
    # Two workers have learned from the same batches as one: without all-reduce, worker 0 would know half of each only.
    assert losses[2] == pytest.approx(losses[1], rel=0.001)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["ring", "ps"])
def test_tensorflow_trains_on_two_nodes(tmp_path: Path, form: str) -> None:
    example = f"tensorflow-{form}"
    run = f"MLCD_TENSORFLOW_PYTHON={shlex.quote(engine_python('tensorflow'))}; {job_file(example)['run']} --epochs 15"
    samples = 1500 * 15
    with Nodes(tmp_path, example, run=f"export MLCD_NOISE_EVERY=1; {run}", samples=samples, noise=True) as nodes:
        ended = nodes.wait([0, 1] if form == "ring" else [0])  # with ps only the chief knows when the job is done
    assert ended.codes[0] == 0, ended.log
    assert form == "ps" or ended.codes[1] == 0, ended.log
    assert ended.samples[0] == 0
    assert ended.samples[-1] >= samples
    assert ended.progress[-1].get("checkpoint") == ended.samples[-1]
    assert ended.metrics()["accuracy"] > 0.8
    assert ended.metrics()["last_loss"] < ended.metrics()["first_loss"]
    assert sum("noise" in line for line in ended.progress) > 30


def test_any_command_trains_on_two_nodes(tmp_path: Path) -> None:
    with Nodes(tmp_path, "command", run="python softmax.py --epochs 20") as nodes:
        ended = nodes.wait()
    assert ended.codes == [0, 0], ended.log
    steps = [int(found) for found in re.findall(job_file("command")["progress"]["pattern"], ended.log)]
    assert steps == list(range(10, 20 * 7 + 1, 10))
    assert ended.metrics()["accuracy"] > 0.8
    assert ended.metrics()["last_loss"] < ended.metrics()["first_loss"]


def test_every_example_names_an_existing_platform_and_existing_files() -> None:
    files = sorted(EXAMPLES.glob("*.yaml"))
    platforms = {file.stem: {"name": Platform().name} | job_file(file.stem).get("platform", {}) for file in files}
    assert {platform["name"] for platform in platforms.values()} == set(NAMES)
    for file in files:
        text, platform = job_file(file.stem), platforms[file.stem]
        assert platform.get("topology", "ring") in TOPOLOGIES[platform["name"]]
        script = next(word for word in text["run"].split() if word.endswith(".py"))
        assert (EXAMPLES / text["workdir"] / script).is_file()
        if "pattern" in text.get("progress", {}):
            assert set(re.compile(text["progress"]["pattern"]).groupindex) <= {"samples", "steps", "rate"}
