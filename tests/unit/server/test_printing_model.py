"""A model that prints is served, and cannot speak for its server: only the server's own line says where it answers."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.tiny_onnx import write_mlp

from mlcd.clouds.provider import Order
from mlcd.clouds.serving import LocalServing
from mlcd.clouds.serving.command import free_port
from mlcd.clouds.serving.deploy import deploy
from mlcd.clouds.serving.local import LocalServer, is_ready
from mlcd.clouds.serving.node_program import READY
from mlcd.errors import BadInput
from mlcd.server import ServerOptions, start_server
from mlcd.server.tensors import TensorSpec
from mlcd.space import Config

FORGED = "http://127.0.0.1:9"
INPUT = TensorSpec(name="x", datatype="FP32", shape=(-1, 6))
CHOSEN = Config.of({"batch": 1, "threads": 1, "replicas": 1, "precision": "fp32"})
PIPE_BYTES = 65536


@pytest.fixture(scope="module")
def printing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A TorchScript file that prints, in every run, a line like the server's and more than a pipe holds."""
    torch: Any = pytest.importorskip("torch")
    line = json.dumps({"address": FORGED, "model": "forged", "inputs": [], "outputs": []})
    folder = tmp_path_factory.mktemp("printing")
    source = folder / "printing.py"
    source.write_text(
        "import torch\n"
        "class Printing(torch.nn.Module):\n"
        "    def forward(self, x: torch.Tensor) -> torch.Tensor:\n"
        f"        print({line!r})\n"
        f"        print({'y' * PIPE_BYTES!r})\n"
        "        return x * 2\n"
    )
    sys.path.insert(0, str(folder))
    try:
        import printing as module  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(folder))
    torch.jit.save(torch.jit.script(module.Printing()), str(folder / "m.pt"))
    return folder / "m.pt"


def answer(address: str, model: str) -> list[float]:
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 6], "data": [1, 2, 3, 4, 5, 6]}]}
    request = urllib.request.Request(f"{address}/v2/models/{model}/infer", data=json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=20) as found:
        data: list[float] = json.load(found)["outputs"][0]["data"]
    return data


def test_the_server_of_a_program(printing: Path) -> None:
    with start_server(ServerOptions(model=printing, inputs=(INPUT,))) as server:
        assert (server.address == FORGED, server.model) == (False, "m")
        for _ in range(3):  # each prints as much as a pipe holds
            assert answer(server.address, server.model) == [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]


def test_the_server_of_a_trial(printing: Path, tmp_path: Path) -> None:
    cloud = LocalServing(printing, home=tmp_path, noise=0.0, inputs=(INPUT,))
    with cloud.lease(Order(config=CHOSEN, seconds=60.0, run_id="r")) as lease:
        assert isinstance(lease, LocalServer)
        for _ in lease.progress():
            assert lease.elapsed_seconds < 60
        assert (lease.endpoint.address == FORGED, lease.endpoint.model) == (False, "m")
        for _ in range(3):
            assert len(answer(lease.endpoint.address, "m")) == 6


def test_the_server_that_stays(printing: Path, tmp_path: Path) -> None:
    cloud = LocalServing(printing, home=tmp_path, noise=0.0, inputs=(INPUT,))
    deployed = deploy(cloud, CHOSEN, run_id="r", host="127.0.0.1", port=0)
    try:
        assert (deployed.address == FORGED, deployed.model) == (False, "m")
        assert len(answer(deployed.address, "m")) == 6
        assert FORGED in Path(deployed.log).read_text()  # what it printed is in its log
    finally:
        os.kill(deployed.pid, 15)
        until = time.monotonic() + 20
        while Path(f"/proc/{deployed.pid}").exists() and time.monotonic() < until:
            try:
                os.waitpid(deployed.pid, os.WNOHANG)
            except ChildProcessError:
                break
            time.sleep(0.05)


def test_why_a_printing_model_is_refused(printing: Path) -> None:
    wrong = TensorSpec(name="x", datatype="BOOL", shape=(-1, 6))
    options = ServerOptions(model=printing, inputs=(wrong, wrong))
    with pytest.raises(BadInput, match=r"m: does not run|pt: does not run") as refused, start_server(options):
        pass
    assert "forged" not in str(refused.value)


@pytest.mark.parametrize("closed", ["", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_server_without_standard_streams(closed: str, tmp_path: Path) -> None:
    """It serves; its line is printed where there is somewhere to print it."""
    model, port = write_mlp(tmp_path / "m.onnx"), free_port()
    with subprocess.Popen(
        ["/bin/sh", "-c", f'exec "$0" -m mlcd.server "$1" --port {port} {closed}', sys.executable, str(model)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as server:
        until = time.monotonic() + 60
        while not is_ready(f"http://127.0.0.1:{port}{READY}") and time.monotonic() < until:
            assert server.poll() is None
            time.sleep(0.1)
        server.terminate()
        out, errors = server.communicate(timeout=20)
    assert (server.returncode, errors) == (0, b"")
    assert [json.loads(line)["model"] for line in out.splitlines()] == ([] if " >&-" in f" {closed}" else ["m"])
