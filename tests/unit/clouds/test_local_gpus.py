"""GPUs of this machine as types of `local`: what is offered, at which price, and what a job's processes see."""

import json
import os
import time
from pathlib import Path

import pytest
from tests import fake_gpu

from mlcd.clouds.gpu_sampler import GpuSampler
from mlcd.clouds.gpu_types import counts_text, gpu_types
from mlcd.clouds.local import USD_PER_CPU_HOUR, Local
from mlcd.clouds.nodes import NodeOrder, NodesState
from mlcd.clouds.provider import LeaseFailed
from mlcd.errors import SpecError
from mlcd.gpus import find_gpus, gpu_loads
from mlcd.jobs.train import prepare
from mlcd.platforms.agent import Job, is_of_gpu, is_out_of_memory
from mlcd.problem import Problem
from mlcd.spec import parse_train
from mlcd.trial.node_metrics import NodeMetrics
from mlcd.trial.trial import FailureKind
from mlcd.units import Usd

JOB = """
name: tiny
resources: {RESOURCES}
num_nodes: 1..4
run: "true"
job: {samples: 100}
goal: {minimize: time}
"""


@pytest.fixture
def four(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with four H200 and eight processors."""
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    fake_gpu.install(bin_, monkeypatch, alike=4)
    monkeypatch.setattr("mlcd.clouds.local.usable_cpus", lambda: tuple(range(8)))
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    return tmp_path


def problem(resources: str) -> Problem:
    return prepare(parse_train(JOB.replace("{RESOURCES}", f"{{infra: local, {resources}}}"))).problem


def test_types_are_numbers_of_gpus_with_their_part_of_the_processors(four: Path) -> None:
    offered = {each.name: each for each in Local(four, prices={"local.gpu": Usd.of(2)}).offer()}
    assert [name for name in offered if "h200" in name] == [
        *("local.h200.25p", "local.h200.50p", "local.h200.1", "local.h200.2", "local.h200.4")
    ]
    two = offered["local.h200.2"]
    assert (two.accelerator, two.accelerators, two.vcpus) == ("H200", 2, 4)
    assert two.accelerator_memory_gib == pytest.approx(143771 / 1024)
    assert two.accelerator_tflops == 989
    assert two.usd_per_hour == Usd.of(str(2 * 2 + 4 * USD_PER_CPU_HOUR))
    half = offered["local.h200.50p"]
    assert half.accelerators == 1
    assert half.accelerator_memory_gib == pytest.approx(143771 / 2048)
    assert half.usd_per_hour.dollars == pytest.approx(2 / 2 + half.vcpus * USD_PER_CPU_HOUR)


def test_the_catalogs_price_of_the_gpu_counts_where_the_job_gives_none(four: Path) -> None:
    engine = Local(four)
    (note,) = engine.notes
    assert note.startswith("an hour of the NVIDIA H200 counts $")
    assert "resources.prices.local.gpu sets another" in note


def test_gpus_of_several_models_are_types_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_gpu.install(tmp_path, monkeypatch, mps=False)
    names = [kind.name for kind in gpu_types(find_gpus(), 8, shares=False)]
    assert names == ["local.h200.1", "local.l4.1"]
    assert counts_text(find_gpus()) == (
        "1 x NVIDIA H200 with 140 GiB, driver 580.1, 1 x NVIDIA L4 with 22 GiB, driver 580.1"
    )


@pytest.mark.parametrize(
    ("resources", "types"),
    [
        ("instance_type: local.h200.*", {"local.h200.25p", "local.h200.50p", *(f"local.h200.{n}" for n in (1, 2, 4))}),
        ("prices: {local.gpu: 1 USD}", {"local.h200.1", "local.h200.2", "local.h200.4"}),
        ("gpus: 1..8", {"local.h200.1", "local.h200.2", "local.h200.4"}),
        ("gpus: [0.5, 1]", {"local.h200.50p", "local.h200.1"}),
        ("gpus: 0", {"local.1", "local.2", "local.4", "local.8"}),
    ],
)
def test_a_job_chooses_from_numbers_of_gpus(four: Path, resources: str, types: set[str]) -> None:
    assert {config.instance for config in problem(resources).space} == types


def test_no_more_nodes_than_have_gpus_of_their_own(four: Path) -> None:
    found = {(config.instance, config.nodes) for config in problem("gpus: [0.5, 1, 2]").space}
    assert found == {
        ("local.h200.50p", 1),
        *(("local.h200.1", nodes) for nodes in (1, 2, 3, 4)),
        ("local.h200.2", 1),
        ("local.h200.2", 2),
    }


@pytest.mark.parametrize(
    ("gpus", "text"),
    [
        ("3", "resources.gpus: no type has this number of GPUs (got 3); allowed: 0, 0.25, 0.5, 1, 2, 4 on local"),
        ("1.5", "resources.gpus: is not a number of GPUs"),
        ("[H200]", "resources.gpus: is not a number of GPUs"),
        ("8..1", "resources.gpus: is an empty range"),
    ],
)
def test_numbers_of_gpus_that_are_not_there_are_refused(four: Path, gpus: str, text: str) -> None:
    with pytest.raises(SpecError) as caught:
        problem(f"gpus: {gpus}")
    assert text in str(caught.value)


def seen(engine: Local, folder: Path, instance: str, count: int) -> list[str]:
    """CUDA_VISIBLE_DEVICES and the MPS percentage of each node of a lease."""
    run = 'printf "%s|%s" "$CUDA_VISIBLE_DEVICES" "$CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" > "seen-$MLCD_RANK"'
    (folder / "workdir").mkdir(parents=True)
    for rank in range(count):
        (folder / f"node-{rank}").mkdir()
    (folder / "job.json").write_text(Job(lease_id="mlcd-x", run=run, seconds=60.0).to_json())
    order = NodeOrder(lease_id=f"mlcd-{folder.name}", instance=instance, count=count, seconds=60.0, folder=folder)
    nodes = engine.start(order)
    try:
        while nodes.state() is not NodesState.ENDED:
            time.sleep(0.05)
    finally:
        nodes.release()
    return [(folder / "workdir" / f"seen-{rank}").read_text() for rank in range(count)]


def test_every_node_sees_its_own_gpus_and_a_node_without_any_sees_none(four: Path) -> None:
    engine = Local(four / "home", cpus=tuple(sorted(os.sched_getaffinity(0))) * 8)
    assert seen(engine, four / "a", "local.h200.2", 2) == ["GPU-0,GPU-1|", "GPU-2,GPU-3|"]
    assert seen(engine, four / "b", "local.1", 1) == ["|"]
    assert seen(engine, four / "c", "local.h200.50p", 1) == ["GPU-0|50"]


def test_gpus_that_another_lease_holds_are_not_given_twice(four: Path) -> None:
    engine = Local(four / "home", cpus=tuple(range(16)))
    order = NodeOrder(lease_id="mlcd-a", instance="local.h200.4", count=1, seconds=60.0, folder=four)
    engine._take_cpus(order)
    with pytest.raises(LeaseFailed) as caught:
        engine._take_cpus(NodeOrder(lease_id="b", instance="local.h200.1", count=1, seconds=1.0, folder=four))
    assert caught.value.kind is FailureKind.LAUNCH  # it is free again when the other lease ends
    assert "need 1 GPUs; 0 of 4 are free" in caught.value.message
    engine._release("mlcd-a")
    engine._take_cpus(NodeOrder(lease_id="b", instance="local.h200.1", count=1, seconds=1.0, folder=four))


def test_load_and_peak_of_the_jobs_own_gpus_are_measured(four: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlcd.clouds.gpu_sampler.SAMPLE_SECONDS", 0.01)
    own = find_gpus()[1:3]
    assert [(each.percent, each.used_gib) for each in gpu_loads(own)] == [(51.0, 2.0), (52.0, 3.0)]
    sampler = GpuSampler(own, nodes=1)
    assert sampler.metrics() is None
    sampler.start()
    while sampler.metrics() is None:
        time.sleep(0.01)
    sampler.stop()
    assert sampler.metrics() == NodeMetrics(source="nvidia-smi", nodes=1, gpu_percent=51.5, gpu_memory_gib=3.0)


@pytest.mark.parametrize(
    ("line", "of_gpu"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", True),
        ("torch.cuda.OutOfMemoryError: CUDA out of memory.", True),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", True),
        ("tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor", True),
        ("jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate", True),
        ("RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory", False),
        ("MemoryError", False),
    ],
)
def test_running_out_of_memory_is_told_from_other_failures(line: str, of_gpu: bool) -> None:
    assert is_out_of_memory(line)
    assert is_of_gpu(line) is of_gpu


@pytest.mark.parametrize(
    "line", ["RuntimeError: CUDA error: device-side assert triggered", "ValueError: shapes", "Killed", json.dumps({})]
)
def test_other_failures_are_not_a_lack_of_memory(line: str) -> None:
    assert not is_out_of_memory(line)
