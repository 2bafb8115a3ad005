"""The paper's cost-time figures, simulated: K = 20, 16, 12, 8 and several batches, priced by node and by memory.

The paper measured on GCP and prints no numbers with its curves, so nothing here reproduces its numbers. Step times come
from mlcd's simulator (its arithmetic and network, with noise on every trial), which shares no code with the models that
predict them; steps to the target come from a separate law with noise. Predictions are those of Scavenger's full search:
every K timed at three of the batches, and the convergence of those three.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mlcd.catalog import load_catalog
from mlcd.clouds.chance import share
from mlcd.clouds.sim.models import SimModel
from mlcd.clouds.sim.network import exchange_seconds
from mlcd.clouds.sim.node import GIB, compute_seconds
from mlcd.clouds.sim.physics import waiting_factor
from mlcd.findings.batches import batch_tradeoff
from mlcd.models import parallel
from mlcd.models.parallel import ClusterSetting, Refined, StepTime
from mlcd.report.batch_picture import batch_picture
from mlcd.run.findings import BatchCurve, BatchPoint
from papers import scavenger_convergence as convergence
from papers.scavenger_convergence import Reached
from papers.scavenger_pricing import ByMemory, PerNode, PricePolicy, Pricing

WORKERS = (8, 12, 16, 20)
BATCHES = (240, 480, 960, 1920)
"""Each K divides each batch."""
INSTANCE = "n1-standard-8"
TRIAL_NOISE, TRAINING_NOISE = 0.01, 0.03
"""Relative deviation of a brief run's step time, and of the steps of a whole training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperJob:
    """A network of the paper with its simulated convergence S(B) = floor (1 + critical/B)."""

    title: str
    network: SimModel
    floor_steps: float
    critical_batch: float


# Operations and parameters are the networks' published ones, at CIFAR's 32 x 32 pixels and sentences of 30 tokens.
# Convergence has round figures of the size that public trainings show; it is simulated, not measured.
PAPER_JOBS = {
    "resnet18": PaperJob(
        title="ResNet-18",
        network=SimModel(
            name="resnet18",
            parameters=11.2e6,
            gflop_per_sample=3.3,
            activation_mib=8.0,
            cpu_efficiency=0.35,
            fp32_efficiency=0.2,
            tensor_efficiency=0.03,
            kernels=600,
            host_ms=1.0,
            half_batch=16,
        ),
        floor_steps=530,
        critical_batch=5000,
    ),
    "resnet50": PaperJob(
        title="ResNet-50",
        network=SimModel(
            name="resnet50",
            parameters=23.7e6,
            gflop_per_sample=7.8,
            activation_mib=22.0,
            cpu_efficiency=0.35,
            fp32_efficiency=0.2,
            tensor_efficiency=0.03,
            kernels=1600,
            host_ms=1.0,
            half_batch=12,
        ),
        floor_steps=580,
        critical_batch=8000,
    ),
    "transformer": PaperJob(
        title="Transformer",
        network=SimModel(
            name="transformer",
            parameters=65e6,
            gflop_per_sample=11.7,
            activation_mib=14.0,
            cpu_efficiency=0.35,
            fp32_efficiency=0.3,
            tensor_efficiency=0.1,
            kernels=1500,
            host_ms=0.3,
            half_batch=8,
        ),
        floor_steps=1180,
        critical_batch=12_000,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedPoint:
    """One (K, B): simulated and predicted seconds, and its price per hour."""

    workers: int
    batch: int
    seconds: float
    predicted_seconds: float
    usd_per_hour: float


def pricing(job: PaperJob, policy: PricePolicy) -> Pricing:
    """By node: the catalog's price. By memory: the same price for a worker that has the whole node's memory."""
    instance = next(i for i in load_catalog().instances if i.cloud == "gcp" and i.name == INSTANCE)
    usd = instance.usd_per_hour.dollars
    if policy is PricePolicy.PER_NODE:
        return PerNode(usd_per_worker_hour=usd)
    fixed = job.network.parameters * job.network.state_bytes / GIB + 1.2  # 1.2 GiB: the framework itself
    return ByMemory(
        usd_per_gib_hour=usd / instance.memory_gib,
        fixed_gib=fixed,
        gib_per_sample=job.network.activation_mib / 1024,
    )


def simulate(job: PaperJob, policy: PricePolicy) -> list[SimulatedPoint]:
    """Every (K, B), simulated, and predicted from the smallest, a middle and the largest batch."""
    known = (BATCHES[0], BATCHES[(len(BATCHES) - 1) // 2], BATCHES[-1])
    grid = [ClusterSetting(workers=k, batch=b) for b in BATCHES for k in WORKERS]
    runs = [StepTime(setting=s, seconds=_trial_seconds(job, s)) for s in grid if s.batch in known]
    steps = Refined(model=parallel.choose(runs), runs=tuple(runs))
    law = convergence.fit([Reached(batch=b, steps=_true_steps(job, b)) for b in known])
    price = pricing(job, policy)
    return [
        SimulatedPoint(
            workers=s.workers,
            batch=int(s.batch),
            seconds=_true_step_seconds(job, s) * _true_steps(job, int(s.batch)),
            predicted_seconds=steps.seconds(s) * law.steps(s.batch),
            usd_per_hour=price.usd_per_hour(s.workers, s.batch),
        )
        for s in grid
    ]


def figure(name: str, policy: PricePolicy, points: Sequence[SimulatedPoint], width: float = 860.0) -> str:
    """The SVG of one network and price policy."""
    curves = []
    for batch in BATCHES:
        line = [p for p in points if p.batch == batch]
        true = tuple(
            BatchPoint(workers=p.workers, seconds=p.seconds, usd=p.seconds / 3600 * p.usd_per_hour) for p in line
        )
        guessed = tuple(
            BatchPoint(workers=p.workers, seconds=p.predicted_seconds, usd=p.predicted_seconds / 3600 * p.usd_per_hour)
            for p in line
        )
        curves.append(BatchCurve(batch=batch, measured=true, predicted=guessed))
    priced = "a fixed price a node" if policy is PricePolicy.PER_NODE else "priced by memory"
    return batch_picture(
        batch_tradeoff(curves),
        title=f"{PAPER_JOBS[name].title}: training time against cost for K = 20, 16, 12, 8, {priced} (simulated)",
        origin=f"SIMULATED: {PAPER_JOBS[name].title} on {INSTANCE}, {priced}",
        width=width,
    )


def _true_step_seconds(job: PaperJob, setting: ClusterSetting) -> float:
    instance = next(i for i in load_catalog().instances if i.cloud == "gcp" and i.name == INSTANCE)
    computing = compute_seconds(instance, job.network, math.ceil(setting.local_batch))
    computing *= waiting_factor(instance, setting.workers)
    return computing + exchange_seconds(instance, job.network, "ps", setting.workers)


def _trial_seconds(job: PaperJob, setting: ClusterSetting) -> float:
    return _true_step_seconds(job, setting) * (1 + TRIAL_NOISE * _chance("trial", job, setting.workers, setting.batch))


def _true_steps(job: PaperJob, batch: int) -> float:
    return job.floor_steps * (1 + job.critical_batch / batch) * (1 + TRAINING_NOISE * _chance("steps", job, batch))


def _chance(what: str, job: PaperJob, *key: object) -> float:
    """Uniform over -1.7..1.7 (deviation 1), deterministic for each key."""
    return math.sqrt(3) * (2 * share(what, job.title, *key) - 1)
