"""Laws of the workloads `wide-N`: each draws its own loss curve, epoch times and effect of n on progress, by its name.

A workload whose name has an odd SHA-256 is for tuning and training; it draws from the laws of `TUNING`. One with an
even SHA-256 is unseen; it draws from `TUNING` and `UNSEEN_ONLY` alike. So schedulers are tested on laws that nothing
was tuned on.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random

from mlcd.clouds.chance import generator
from mlcd.clouds.functions.sim.laws import FunctionLaws
from mlcd.clouds.functions.sim.losses import (
    Exponential,
    Inverse,
    Logarithmic,
    LossShape,
    Plateau,
    Power,
    SlowStart,
    TwoPhase,
    TwoScales,
)

LossDraw = Callable[[Random, float], LossShape]
LawsDraw = Callable[[Random, FunctionLaws], FunctionLaws]


@dataclass(frozen=True, slots=True, kw_only=True)
class LawFamilies:
    """Families by name, from which a workload draws one of each kind.

    losses    shapes of the loss curve, given the effective epochs to the target
    times     what slows many functions down
    memory    how speed depends on memory
    progress  what an epoch of many functions gains
    """

    losses: Mapping[str, LossDraw]
    times: Mapping[str, LawsDraw]
    memory: Mapping[str, LawsDraw]
    progress: Mapping[str, LawsDraw]


def _two_phase(random: Random, target: float) -> LossShape:
    step = target * random.uniform(0.35, 0.7)
    return TwoPhase(
        scale=step / random.uniform(1.5, 4),
        level=random.uniform(0.25, 0.6),
        step=step,
        later_scale=(target - step) / random.uniform(0.8, 2),
        drop=random.uniform(0.15, 0.5),
    )


def _plateau(random: Random, target: float) -> LossShape:
    start = target * random.uniform(0.15, 0.45)
    length = target * random.uniform(0.15, 0.35)
    moving = target - 0.9 * length
    return Plateau(scale=moving / random.uniform(1.5, 3), start=start, end=start + length)


def _same(random: Random, laws: FunctionLaws) -> FunctionLaws:  # noqa: ARG001
    return laws


TUNING = LawFamilies(
    losses={
        "inverse": lambda random, target: Inverse(half=target / random.uniform(3, 15)),
        "exponential": lambda random, target: Exponential(scale=target / random.uniform(1.5, 3.5)),
        "power": lambda random, target: Power(scale=target / random.uniform(5, 30), power=random.uniform(0.35, 0.7)),
        "two-phase": _two_phase,
    },
    times={
        "contention": lambda random, laws: replace(laws, contention=random.uniform(0.0, 0.3)),
        "stragglers": lambda random, laws: replace(laws, straggling=random.uniform(0.05, 0.3)),
    },
    memory={
        "even": _same,
        "saturating": lambda random, laws: replace(laws, fastest_mb=random.uniform(1536, 2600)),
    },
    progress={
        "early-gain": _same,
        "none": lambda random, laws: replace(laws, early_gain=0.0, staleness=laws.staleness * random.uniform(0, 0.5)),
    },
)
UNSEEN_ONLY = LawFamilies(
    losses={
        "plateau": _plateau,
        "logarithmic": lambda random, target: Logarithmic(
            scale=target / random.uniform(3, 20), end=target * random.uniform(1.3, 3)
        ),
        "two-scales": lambda random, target: TwoScales(
            quick=random.uniform(0.4, 0.8),
            quick_scale=target * random.uniform(0.05, 0.2),
            slow_scale=target * random.uniform(0.4, 1.2),
        ),
        "slow-start": lambda random, target: SlowStart(
            half=target / random.uniform(1.5, 4), power=random.uniform(1.4, 2.4)
        ),
    },
    times={
        "storage": lambda random, laws: replace(laws, storage_functions=random.uniform(250, 1200)),
        "quadratic": lambda random, laws: replace(laws, contention=random.uniform(0.2, 1.0), contention_power=2.0),
    },
    memory={
        "steps": lambda random, laws: replace(
            laws, memory_step_mb=random.choice((448.0, 886.0, 1769.0)), memory_power=1.0
        ),
    },
    progress={
        "critical": lambda random, laws: replace(
            laws, early_gain=0.0, staleness=0.0, critical_functions=random.uniform(400, 3000)
        ),
    },
)


def is_unseen(name: str) -> bool:
    """Whether SHA-256 of the name is even: then nothing may be tuned or trained on the workload."""
    return hashlib.sha256(name.encode()).digest()[-1] % 2 == 0


def families(name: str) -> dict[str, str]:
    """The name of the family of each kind that the workload `name` draws: losses, times, memory, progress."""
    random, unseen = generator("families", name), is_unseen(name)
    found = {}
    for kind in ("losses", "times", "memory", "progress"):
        known = [*getattr(TUNING, kind), *(getattr(UNSEEN_ONLY, kind) if unseen else ())]
        found[kind] = known[random.randrange(len(known))]
    return found


def with_laws(name: str, base: FunctionLaws) -> FunctionLaws:
    """`base` with the laws that the workload `name` draws, and with measured losses that deviate."""
    random, laws = generator("laws", name), base
    chosen = families(name)
    for kind in ("times", "memory", "progress"):
        draws = {**getattr(TUNING, kind), **getattr(UNSEEN_ONLY, kind)}
        laws = draws[chosen[kind]](random, laws)
    shape = {**TUNING.losses, **UNSEEN_ONLY.losses}[chosen["losses"]](random, laws.target_epochs)
    return replace(laws, shape=shape, chance=replace(laws.chance, loss=random.uniform(0.003, 0.02)))
