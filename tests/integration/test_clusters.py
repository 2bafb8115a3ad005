"""Benchmarks and ask/tell on real clusters of two workers each, through joblib: Dask, and Ray where it is installed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from mlcd.bench.cluster import on_cluster
from mlcd.errors import BadInput, MissingExtra

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 120.0
BENCH = ["train", "--sim", "--workloads", "resnet*", "--strategies", "heterbo,random", "--seeds", "3", "-o", "json"]
ASK_AND_TELL = """
import json, os, sys, time
from joblib import Parallel, delayed
import mlcd
from mlcd.bench.cluster import on_cluster

def score(x, y):
    time.sleep(0.2)
    return (x - 0.3) ** 2 + (y - 0.7) ** 2, os.getpid()

values = [i / 10 for i in range(11)]
workers = set()
with on_cluster(sys.argv[1]), Parallel() as parallel:
    search = mlcd.Search(knobs={"x": values, "y": values}, objective="minimize", max_trials=12, seed=1)
    while suggestions := search.ask(2):
        found = parallel(delayed(score)(**each.config.as_dict()) for each in suggestions)
        for suggestion, (value, pid) in zip(suggestions, found):
            search.tell(suggestion, value=value)
            workers.add(pid)
print(json.dumps({"best": search.best.value, "workers": len(workers), "here": os.getpid() in workers}))
"""


def python_of(name: str) -> Path:
    return ROOT / ".venvs" / name / "bin" / "python"


def environment() -> dict[str, str]:
    """What the cluster's processes and the one that asks them share: this mlcd, and its packages."""
    packages = [path for path in sys.path if path.endswith("site-packages")]
    path = os.pathsep.join([str(ROOT / "src"), *packages])
    return {**os.environ, "PYTHONPATH": path, "RAY_USAGE_STATS_ENABLED": "0", "OPENBLAS_NUM_THREADS": "1"}


def started(folder: Path, name: str, command: list[str]) -> "subprocess.Popen[bytes]":
    with (folder / f"{name}.txt").open("wb") as output:
        return subprocess.Popen(command, stdout=output, stderr=output, env=environment(), start_new_session=True)


def end(processes: "list[subprocess.Popen[bytes]]") -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture(scope="module")
def dask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A scheduler and two workers; what --cluster takes."""
    if not python_of("dask").exists():
        pytest.skip(".venvs/dask is missing; run: scripts/setup-engine dask")
    folder = tmp_path_factory.mktemp("dask")
    file = folder / "scheduler.json"
    program = [str(python_of("dask")), "-m", "dask"]
    place = ["--scheduler-file", str(file)]
    quiet = ["--no-dashboard", "--host", "127.0.0.1"]
    processes = [started(folder, "scheduler", [*program, "scheduler", "--port", "0", *quiet, *place])]
    try:
        for number in range(2):
            worker = [*program, "worker", *place, *quiet, "--nthreads", "1", "--name", str(number), "--no-nanny"]
            worker += ["--local-directory", str(folder)]
            processes.append(started(folder, f"worker-{number}", worker))
        until = time.monotonic() + PATIENCE_SECONDS
        while not file.exists():
            assert time.monotonic() < until, (folder / "scheduler.txt").read_text()
            time.sleep(0.05)
        yield "dask:" + json.loads(file.read_text())["address"]
    finally:
        end(processes)


@pytest.fixture(scope="module")
def ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Two nodes of one processor each; what --cluster takes."""
    if not python_of("ray").exists():
        pytest.skip(".venvs/ray is missing; run: scripts/setup-engine ray")
    folder = tmp_path_factory.mktemp("ray")
    program = [
        str(python_of("ray").with_name("ray")),
        "start",
        "--block",
        "--num-cpus",
        "1",
        "--node-ip-address",
        "127.0.0.1",
    ]
    program += ["--object-store-memory", "100000000"]
    files = Path("/tmp") / f"mlcd-ray-{os.getpid()}"  # a socket's path has at most 107 characters
    head = [*program, "--head", "--port", "0", "--include-dashboard=false", "--temp-dir", str(files)]
    processes = [started(folder, "head", head)]
    try:
        until = time.monotonic() + PATIENCE_SECONDS
        while "--address='" not in (text := (folder / "head.txt").read_text()):
            assert time.monotonic() < until, text
            time.sleep(0.1)
        address = text.partition("--address='")[2].partition("'")[0]
        processes.append(started(folder, "second", [*program, "--address", address]))
        while "Ray runtime started" not in (text := (folder / "second.txt").read_text()):
            assert time.monotonic() < until, text
            time.sleep(0.1)
        yield f"ray:{address}"
    finally:
        end(processes)
        shutil.rmtree(files, ignore_errors=True)


def asked(name: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(python_of(name)), *arguments], capture_output=True, text=True, env=environment(), check=False
    )


class OnACluster:
    """What each of them must do."""

    name: str

    @pytest.fixture
    def cluster(self) -> str:
        raise NotImplementedError

    def test_a_benchmark_has_the_same_rows_as_here(self, cluster: str) -> None:
        there = asked(self.name, "-m", "mlcd", "bench", "--cluster", cluster, *BENCH)
        assert there.returncode == 0, there.stderr
        here = asked(self.name, "-m", "mlcd", "bench", *BENCH, "--jobs", "1")
        assert json.loads(there.stdout) == json.loads(here.stdout)

    def test_two_workers_try_what_ask_suggests(self, cluster: str) -> None:
        done = asked(self.name, "-c", ASK_AND_TELL, cluster)
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout.splitlines()[-1])
        assert (said["workers"], said["here"]) == (2, False)
        assert said["best"] < 0.1


IMPATIENT = """\
import sys
from mlcd.bench import cluster
from mlcd.cli.main import run
cluster.CONNECT_SECONDS = 2
sys.exit(run(sys.argv[1:]))
"""
"""mlcd, which waits two seconds for a cluster."""


class TestDask(OnACluster):
    name = "dask"

    @pytest.fixture
    def cluster(self, dask: str) -> str:
        return dask

    def test_a_cluster_that_does_not_answer_is_named(self) -> None:
        there = asked(self.name, "-c", IMPATIENT, "bench", "--cluster", f"{self.name}:127.0.0.1:1", *BENCH)
        assert there.returncode == 7
        assert f"--cluster: the {self.name} cluster at 127.0.0.1:1 does not answer" in there.stderr


@pytest.mark.extra
class TestRay(OnACluster):
    name = "ray"

    @pytest.fixture
    def cluster(self, ray: str) -> str:
        return ray


@pytest.mark.parametrize("text", ["", "dask", "dask:", "spark:host", "tcp://host:1"])
def test_other_clusters_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"--cluster: must be KIND:ADDRESS .*allowed: dask:tcp://HOST:8786, ray:auto"):
        on_cluster(text).__enter__()


@pytest.mark.parametrize("kind", ["dask", "ray"])
def test_a_missing_package_is_named_with_its_command(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("distributed", "ray", "ray.util.joblib"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=f"--cluster {kind} needs the extra '{kind}'"):
        on_cluster(f"{kind}:127.0.0.1:1").__enter__()
