"""mpc and siren on simulated functions, against `informed`, which knows the laws."""

import math
import tempfile
from functools import lru_cache
from pathlib import Path

import numpy as np

from ablated.compare import Change, Outcome
from mlcd.bench.serverless.compare import LawsOfRun
from mlcd.bench.serverless.training import train
from mlcd.clouds.functions.sim import SimFunctionCloud
from mlcd.clouds.functions.sim.workloads import workload
from mlcd.goal import Goal, Objective
from mlcd.schedulers.informed import Informed
from mlcd.schedulers.mpc import Mpc
from mlcd.schedulers.registry import scheduler
from mlcd.schedulers.scheduler import Scheduler
from mlcd.schedulers.siren_state import FEATURES
from mlcd.trial.outcome import Status
from mlcd.units import Usd

SEEDS, FIRST_SEED = 1, 3000
SEEN = tuple(f"tune-{index}" for index in range(600, 630))
UNSEEN = tuple(f"unseen-{index}" for index in range(12))
BUDGETS = (75.0, 100.0, 200.0, 300.0)
DEADLINE_SECONDS = 6000.0
LOCALHOST, LOCALHOST_BUDGET = "lenet-localhost", 3.0
UNFINISHED_LOSS = 3.0
EVEN, HALF_MEMORY = "siren:weights=even", "siren:weights=zero"
"""Not options of the product: policies whose network is 0. `even` spends what remains evenly with the largest memory,
`zero` with half of it."""

MPC_CHANGES = (
    Change(part="opening parts", text="mpc:opening-parts=off"),
    Change(part="first part: a quarter of the functions", text="mpc:first-functions-divisor=1"),
    Change(part="opening: growth", text="mpc:part-growth=8"),
    Change(part="known to 5%, then whole epochs", text="mpc:known-way-share=1"),
    Change(part="busy four times the start", text="mpc:busy-factor=0"),
    Change(part="last part cut", text="mpc:cut-last=off"),
    Change(part="start-up learning", text="mpc:learn-startup=off"),
    Change(part="money kept back", text="mpc:kept-back-epochs=0"),
    Change(part="money kept back: cap", text="mpc:kept-back-share=1"),
    Change(part="money kept back for doubt", text="mpc:doubt-sigmas=0"),
    Change(part="no more epochs than affordable", text="mpc:affordable-share=1e9"),
    Change(part="tight budget: shorter way", text="mpc:hope-sigmas=0"),
    Change(part="opening: other memory sizes", text="mpc:memory-gap=1e9"),
    Change(part="plan with part-payable fleets", text="mpc:plannable-share=1"),
    Change(part="twelve stretches", text="mpc:stretches=1"),
    Change(part="90 counts, 10 sizes", text="mpc:function-counts=45,memory-sizes=4"),
)
SIREN_CHANGES = (
    Change(part="opening", text="siren:opening-share=1", beds=("$",)),
    Change(part="last part cut", text="siren:cut-last=off", beds=("$",)),
    Change(part="share of what is payable", text="siren:payable-share=1e9", beds=("$",)),
    Change(part="network: 0, as before training", text="siren:untrained=on", beds=("$",)),
    Change(part="network: even, all memory", text=EVEN, beds=("$",)),
    Change(part="network: zero", text=HALF_MEMORY, beds=("$",)),
)


def outcomes(text: str, change: Change, tables: Path, seeds: int) -> list[Outcome]:  # noqa: ARG001
    """Each workload under each budget, and for mpc also under a deadline."""
    made = _made(text)
    found = []
    names = [(name, False) for name in SEEN] + [(name, True) for name in UNSEEN]
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        for name, unseen in names:
            for budget in BUDGETS:
                if change.concerns(f"${budget:g}"):
                    loss = _against_informed(made, name, budget, seed)
                    found.append(Outcome(bed=f"${budget:g}", workload=name, unseen=unseen, seed=seed, loss=loss))
            if isinstance(made, Mpc):
                loss = _cost(made, name, seed)
                found.append(Outcome(bed="cheapest", workload=name, unseen=unseen, seed=seed, loss=loss))
        if isinstance(made, Mpc):
            for draw in range(5):
                at = seed * 5 + draw
                loss = _against_informed(made, LOCALHOST, LOCALHOST_BUDGET, at)
                found.append(Outcome(bed="localhost", workload=f"draw {draw}", unseen=False, seed=seed, loss=loss))
    return found


def _made(text: str) -> Scheduler:
    if text in {EVEN, HALF_MEMORY}:
        return scheduler(f"siren:weights={_constant_policy(1.0 if text == EVEN else 0.0)}")
    return scheduler(text)


@lru_cache(maxsize=2)
def _constant_policy(memory: float) -> Path:
    """A policy file whose every action is (0, memory)."""
    path = Path(tempfile.mkdtemp()) / "policy.npz"
    np.savez(path, weight0=np.zeros((2, FEATURES)), bias0=np.array([0.0, memory]), log_deviation=np.zeros(2))
    return path


def _against_informed(made: Scheduler, name: str, budget: float, seed: int) -> float:
    best = _informed_seconds(name, budget, seed)
    problem = workload(name).problem(Goal(minimize=Objective.TIME, budget=Usd.of(budget)))
    run = train(problem, SimFunctionCloud(problem=problem, laws=workload(name).laws, seed=seed), made)
    return run.step_seconds / best if run.status is Status.DONE and math.isfinite(best) else UNFINISHED_LOSS


@lru_cache(maxsize=4096)
def _informed_seconds(name: str, budget: float, seed: int) -> float:
    problem = workload(name).problem(Goal(minimize=Objective.TIME, budget=Usd.of(budget)))
    cloud = SimFunctionCloud(problem=problem, laws=workload(name).laws, seed=seed)
    run = train(problem, cloud, Informed(truth=LawsOfRun.of(cloud)))
    return run.step_seconds if run.status is Status.DONE else math.inf


def _cost(made: Scheduler, name: str, seed: int) -> float:
    problem = workload(name).problem(Goal(minimize=Objective.COST, deadline_seconds=DEADLINE_SECONDS))
    run = train(problem, SimFunctionCloud(problem=problem, laws=workload(name).laws, seed=seed), made)
    return run.spent.dollars / workload(name).cheapest_usd() if run.status is Status.DONE else UNFINISHED_LOSS
