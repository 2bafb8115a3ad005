"""GPUs of this machine: who is there, what a share is, and that mlcd's own service ends with its server."""

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests import fake_gpu

import mlcd.clouds.mps
from mlcd.clouds.gpu_share import on_share
from mlcd.clouds.serving import CommandServing, LocalServing
from mlcd.clouds.serving.local import cores_of
from mlcd.clouds.serving.provider import Endpoint
from mlcd.gpus import Gpu, can_share, find_gpus, used_gib
from mlcd.memory import ran_out_of_memory
from mlcd.space import Config

H200 = Gpu(index=0, uuid="GPU-aaa", name="NVIDIA H200", memory_gib=140.0, driver="580.1")
SHARED = Config.of({"batch": 8, "gpu_share": 25, "replicas": 1, "precision": "fp16", "compile": "on"})


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    fake_gpu.install(tmp_path, monkeypatch)
    return tmp_path


@pytest.mark.usefixtures("gpus")
def test_the_driver_tells_the_gpus() -> None:
    found = find_gpus()
    assert [(gpu.index, gpu.model, round(gpu.memory_gib)) for gpu in found] == [(0, "H200", 140), (1, "L4", 22)]
    assert can_share()


@pytest.mark.usefixtures("gpus")
@pytest.mark.parametrize(("wanted", "seen"), [("1", [1]), ("GPU-b,0", [1, 0]), ("0,7,1", [0]), ("", []), ("-1", [])])
def test_only_visible_gpus_count(wanted: str, seen: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", wanted)
    assert [gpu.index for gpu in find_gpus()] == seen


def test_no_driver_means_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_gpus() == ()
    assert not can_share()
    assert used_gib(H200) is None


@pytest.mark.usefixtures("gpus")
def test_memory_is_that_of_the_servers_processes_or_what_came_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Endpoint(address="", model="", gpu=H200, gpu_pids=(11, 12), gpu_gib_before=1.0)
    monkeypatch.setenv("FAKE_USED", str(3 * 1024))
    monkeypatch.setenv("FAKE_APPS", "11, 512\n99, 4096\n12, 512\n")
    assert place.gpu_memory_gib() == 1.0
    monkeypatch.setenv("FAKE_APPS", "11, [N/A]\n")
    assert place.gpu_memory_gib() == 2.0
    assert Endpoint(address="", model="").gpu_memory_gib() is None


def test_a_share_limits_processors_and_memory() -> None:
    command, env = on_share(["serve"], {"A": "1"}, gpu=H200, percent=25)
    assert env == {
        "A": "1",
        "CUDA_VISIBLE_DEVICES": "GPU-aaa",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={35 * 1024}M",
    }
    assert command[-1] == "serve"
    assert mlcd.clouds.mps.__file__ in command
    assert on_share(["serve"], {}, gpu=H200, percent=100) == (["serve"], {"CUDA_VISIBLE_DEVICES": "GPU-aaa"})


def test_a_configuration_with_a_share_runs_on_the_gpu(tmp_path: Path) -> None:
    cloud = LocalServing(tmp_path / "a.pt2", home=tmp_path, noise=0.1, cpus=(0, 1, 2), gpu=H200)
    launch = cloud.launch(SHARED)
    assert launch.gpu == H200
    assert launch.cores == 2 == cores_of(SHARED, 3)
    assert {"--device", "cuda", "--compile", "fp16"} <= set(launch.command)
    assert launch.env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"


def test_a_command_gets_its_share(tmp_path: Path) -> None:
    cloud = CommandServing("exec serve", home=tmp_path, noise=0.1, folder=tmp_path, model="m", gpu=H200)
    launch = cloud.launch(Config.of({"SEQS": 4, "GPU_SHARE": 50}))
    assert launch.env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "50"
    assert launch.gpu == H200
    whole = cloud.launch(Config.of({"SEQS": 4, "GPU_SHARE": 100}))
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" not in whole.env
    assert whole.env["CUDA_VISIBLE_DEVICES"] == "GPU-aaa"


def test_the_service_ends_with_its_server(gpus: Path) -> None:
    seen = gpus / "seen"
    server = f"echo $CUDA_MPS_PIPE_DIRECTORY $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE > {seen}; exit 7"
    command, env = on_share(["/bin/sh", "-c", server], os.environ, gpu=H200, percent=25)
    assert subprocess.run(command, env=env, check=False, timeout=30).returncode == 7
    pipes, share = seen.read_text().split()
    assert share == "25"
    assert not Path(pipes).exists()
    pid = int((gpus / "mps.pid").read_text())
    until = time.monotonic() + 10
    while time.monotonic() < until and Path(f"/proc/{pid}").exists():
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists()


def test_service_and_server_die_where_what_started_them_is_killed(gpus: Path) -> None:
    seen = gpus / "seen"
    command, env = on_share(["/bin/sh", "-c", f"echo $$ > {seen}; exec sleep 60"], os.environ, gpu=H200, percent=25)
    started = subprocess.Popen(command, env=env)
    until = time.monotonic() + 30
    while time.monotonic() < until and not (seen.exists() and seen.read_text().strip()):
        time.sleep(0.05)
    pids = [int(file.read_text()) for file in (seen, gpus / "mps.pid")]
    started.kill()
    started.wait()
    until = time.monotonic() + 10
    while time.monotonic() < until and any(map(_runs, pids)):
        time.sleep(0.05)
    assert not [pid for pid in pids if _runs(pid)]


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_users_own_service_is_used(gpus: Path) -> None:
    (gpus / "control").touch()
    server = [sys.executable, "-c", "import os; print(os.environ['CUDA_MPS_PIPE_DIRECTORY'])"]
    command, env = on_share(server, {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(gpus)}, gpu=H200, percent=25)
    done = subprocess.run(command, env=env, check=True, timeout=30, capture_output=True, text=True)
    assert done.stdout.strip() == str(gpus)
    assert not (gpus / "mps.pid").exists()


def test_the_service_of_another_user_is_not_used(gpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (gpus / "control").touch()
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(gpus))
    assert mlcd.clouds.mps.users_service() == str(gpus)
    monkeypatch.setattr(os, "stat", lambda _: SimpleNamespace(st_uid=os.getuid() + 1))
    assert mlcd.clouds.mps.users_service() == ""


@pytest.mark.parametrize(
    ("text", "ran_out"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", True),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", True),
        ("CUDA_ERROR_OUT_OF_MEMORY: out of memory", True),
        ('status 503: {"error":"CB worker is dead: Memory footprint 42420 is more than available memory 33373"}', True),
        ("ValueError: No available memory for the cache blocks.", True),
        ("RuntimeError: CUDA error: device-side assert triggered", False),
        ("", False),
    ],
)
def test_running_out_of_gpu_memory_is_told_from_other_failures(text: str, ran_out: bool) -> None:
    assert ran_out_of_memory(text) is ran_out
