"""Nodes and batch change in mid-training, and a worker is killed: with real processes and the digits example."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlcd.clouds import processes
from mlcd.clouds.job import JobCloud, JobLease, RealJob
from mlcd.clouds.local import Local, usable_cpus
from mlcd.clouds.provider import LeaseFailed, Order, Purpose
from mlcd.profiler.noise import noise_scale
from mlcd.space import Config
from mlcd.spec.batches import LearningRate, RateRule, TargetSpec
from mlcd.trial.trial import FailureKind

pytest.importorskip("torch", reason="PyTorch is not installed: scripts/setup-venv test")
pytestmark = [
    pytest.mark.waits,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc"),
    pytest.mark.skipif(len(usable_cpus()) < 2, reason="two nodes need two processors"),
]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "digits-cnn"
SCRIPT = "python target.py --width 16 --epochs"
RATE = LearningRate(base=0.1, at_batch=64, rule=RateRule.FIXED)  # a rate that rises at once makes a spike of its own
EPOCH = 1472  # samples that count: 23 batches of 64
SECONDS = 600.0


def job(epochs: int, **envs: str) -> RealJob:
    return RealJob(
        run=f"{SCRIPT} {epochs}",
        workdir=EXAMPLE,
        platform="pytorch",
        checkpoints=True,
        learning_rate=RATE,
        noise=True,
        envs={"MLCD_CHECKPOINT_SECONDS": "600", **envs},
    )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def cloud(home: Path, what: RealJob) -> JobCloud:
    return JobCloud(Local(home, cpus=usable_cpus()[:2]), what, home=home)


def leased(where: JobCloud, nodes: int, batch: int) -> JobLease:
    config = Config((("instance", "local.1"), ("nodes", nodes), ("batch", batch)))
    lease = where.lease(Order(config=config, attempt=1, purpose=Purpose.RUN, seconds=SECONDS, run_id="elastic"))
    assert isinstance(lease, JobLease)
    return lease


def curve(lines: list[dict[str, Any]]) -> "Curve":
    return [(line["samples"], line["metrics"]["accuracy"]) for line in lines if "metrics" in line]


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def trained(seeds: int, epochs: int, folder: Path) -> list[list[tuple[float, float]]]:
    """The curves of whole trainings with K = 1, B = 64, a seed each, side by side."""
    started = []
    for seed in range(seeds):
        (folder / str(seed)).mkdir(parents=True)
        variables = {
            "MLCD_PROGRESS_FILE": str(folder / str(seed) / "progress.jsonl"),
            "MLCD_BATCH": "64",
            "MLCD_LEARNING_RATE": str(RATE.base),
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
        }
        command = [sys.executable, str(EXAMPLE / "target.py"), *SCRIPT.split()[2:], str(epochs), "--seed", str(seed)]
        started.append(subprocess.Popen(command, cwd=folder / str(seed), env={**os.environ, **variables}))
    try:
        assert [process.wait(timeout=SECONDS) for process in started] == [0] * seeds
    finally:
        for process in started:
            process.kill()
    return [curve(lines_of(folder / str(seed) / "progress.jsonl")) for seed in range(seeds)]


def smooth(values: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """Medians of three: now and then a single evaluation falls out of any training's curve."""
    return np.asarray(np.median(np.stack([values[:-2], values[1:-1], values[2:]]), axis=0))


Leg = tuple[int, int, float]
Curve = list[tuple[float, float]]


def switched(where: JobCloud, legs: list[Leg]) -> Iterator[tuple[JobLease, Curve]]:
    """Each leg (K, B, samples at which it ends): its lease, once that is over, and what it reported."""
    for nodes, batch, until in legs:
        with leased(where, nodes, batch) as lease:
            for point in lease.progress():
                if lease.base_samples + point.samples >= until:
                    break
            settled = lease.finish(point)
        assert settled.reached_samples >= min(until, lease.total_samples or until)
        yield lease, curve(lines_of(lease.folder / "progress.jsonl"))


def test_switching_nodes_and_batch_keeps_the_curve_of_the_unswitched_run(home: Path, tmp_path: Path) -> None:
    epochs = 18
    whole = trained(3, epochs, tmp_path / "seeds")
    legs = [(1, 64, 9.0 * EPOCH), (2, 128, 15.0 * EPOCH), (1, 96, float(epochs * EPOCH))]
    rates, seen, reached, worked = [], [], 0.0, 0.0
    for lease, points in switched(cloud(home, job(epochs)), legs):
        assert lease.base_samples == reached, "it goes on where the last one stopped"
        told = json.loads((lease.folder / "job.json").read_text())
        rates.append(told["learning_rate"])
        # On the axis of the unswitched run: a sample at B counts B0/B where the rate stays.
        seen += [(worked + (at - reached) * 64 / float(lease.order.config["batch"]), value) for at, value in points]
        worked += (lease.cloud.reached_samples("elastic") - reached) * 64 / float(lease.order.config["batch"])
        reached = lease.cloud.reached_samples("elastic")
    assert rates == pytest.approx([0.1, 0.1, 0.1]), "the rate follows the batch by its rule"
    assert reached >= 0.8 * epochs * EPOCH
    assert sum(samples > legs[0][2] for samples, _ in seen) >= 3, "there are points after the change"
    # The unswitched curves at the samples of the switched one: their spread is the noise between seeds.
    samples = np.array([at for at, _ in seen if at >= 7 * EPOCH])  # before that, no two seeds are alike
    accuracy = np.array([value for at, value in seen if at >= 7 * EPOCH])
    others = np.array([np.interp(samples, [at for at, _ in some], [value for _, value in some]) for some in whole])
    accuracy, others = smooth(accuracy), np.array([smooth(some) for some in others])
    spread = max(float(np.ptp(others, axis=0).max()), 0.05)  # single steps are as far off as that
    assert (accuracy >= others.min(axis=0) - spread).all(), (samples, accuracy, others)
    assert (accuracy <= others.max(axis=0) + spread).all(), (samples, accuracy, others)
    assert accuracy[-1] >= 0.85, "it learns"
    first_after = next(value for at, value in seen if at > legs[0][2])
    last_before = [value for at, value in seen if at <= legs[0][2]][-1]
    assert first_after >= last_before - spread, "nothing of what was learned is lost"


def worker(lease_id: str, rank: int) -> int:
    """The process that trains as this rank."""
    for pid in processes.tagged(lease_id):
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        if f"RANK={rank}".encode() in variables and b"python\0target.py" in command:
            return pid
    raise AssertionError(f"no process of rank {rank} was found")


def watch_and_kill(lease: JobLease, *, after_saves: int) -> None:
    """Watch it to its end; rank 1 is killed once so many checkpoints were saved and more was done after the last."""
    killed, progress = False, lease.folder / "progress.jsonl"
    with lease:
        for _ in lease.progress():
            lines = lines_of(progress) if progress.exists() and not killed else []
            saves = [line["checkpoint"] for line in lines if "checkpoint" in line]
            if len(saves) >= after_saves and lines[-1].get("samples", 0) > saves[-1]:
                os.kill(worker(lease.lease_id, 1), signal.SIGKILL)
                killed = True


def test_a_killed_worker_costs_at_most_one_checkpoint_interval(home: Path) -> None:
    interval = 1.0
    where = cloud(home, job(4000, MLCD_CHECKPOINT_SECONDS=str(interval)))
    lease = leased(where, 2, 64)
    with pytest.raises(LeaseFailed) as failed:
        watch_and_kill(lease, after_saves=2)
    assert failed.value.kind is FailureKind.LOST
    reached = failed.value.reached_samples
    lines = lines_of(lease.folder / "progress.jsonl")
    saves = {line["checkpoint"]: line["time"] for line in lines if "checkpoint" in line}
    assert reached == max(saves), "the newest checkpoint is home"
    reports = [line["time"] for line in lines]
    longest = max(after - before for before, after in pairwise(reports))
    assert max(reports) - saves[int(reached)] <= interval + 2 * longest, "no more is lost than an interval's work"
    assert max(line["samples"] for line in lines if "samples" in line) > reached > 0
    assert len(saves) >= 2

    with leased(where, 1, 64) as again:  # and what is saved is gone on from, on what nodes there are
        points = again.progress()
        assert next(points).samples == 0
        assert again.base_samples == reached
        assert any(point.samples > 0 for point in points)


@pytest.mark.extra
def test_tensorflow_s_workers_report_their_noise_and_end_at_the_target(home: Path) -> None:
    python = EXAMPLE.parents[1] / ".venvs" / "tensorflow" / "bin" / "python"
    if not python.exists():
        pytest.skip("no .venvs/tensorflow: run scripts/setup-engine tensorflow")
    target = TargetSpec(metric="accuracy", value=0.9)
    what = replace(
        job(200, MLCD_TENSORFLOW_PYTHON=str(python), MLCD_NOISE_EVERY="2"),
        run="${MLCD_TENSORFLOW_PYTHON} tensorflow_target.py",
        platform="tensorflow",
        target=target,
        learning_rate=replace(RATE, base=0.01),
        outputs=("metrics.json",),
    )
    with leased(cloud(home, what), 2, 128) as lease:
        *_, last = lease.progress()
        lease.finish(last)
    lines = lines_of(lease.folder / "progress.jsonl")
    metrics = curve(lines)
    assert metrics[-1][1] >= target.value > max(value for _, value in metrics[:-1])
    assert lines[-1].get("checkpoint") == metrics[-1][0] + 128, "the step in which it was met is done and saved"
    seen = [line["noise"] for line in lines if "noise" in line]
    assert {(noise["workers"], noise["batch"]) for noise in seen} == {(2, 128)}
    found = noise_scale(lease.heard)
    assert found is not None
    assert 0 < found < 1e5
