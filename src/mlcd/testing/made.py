"""Synthetic jobs for the contracts: problems whose speeds are known in closed form, and their trials."""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mlcd.goal import Goal, Objective
from mlcd.problem import Batching, Blueprint, Problem
from mlcd.space import Config, Knob, Space
from mlcd.space.settings import Condition, Setting, Settings
from mlcd.trial.trial import Failure, FailureKind, Measurement, Trial
from mlcd.units import Usd

FASTEST = Goal(minimize=Objective.TIME)


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A synthetic instance type: its price, its speed on one node, and the efficiency lost with every further node."""

    usd_per_hour: float
    speed: float
    drag: float = 0.05
    memory_gib: float = 16.0
    fewest: int = 1

    def samples_per_second(self, nodes: int) -> float | None:
        """speed n / (1 + drag (n - 1) + drag^2 n (n - 1)); None (out of memory) under `fewest` nodes."""
        if nodes < self.fewest:
            return None
        return self.speed * nodes / (1 + self.drag * (nodes - 1) + self.drag**2 * nodes * (nodes - 1))


MACHINES: Mapping[str, Machine] = {
    "c5.small": Machine(usd_per_hour=0.17, speed=10.0, drag=0.04),
    "c5.big": Machine(usd_per_hour=0.68, speed=34.0, drag=0.06),
    "p2.one": Machine(usd_per_hour=0.90, speed=60.0, drag=0.25, memory_gib=61.0),
}


def make_problem(
    *,
    machines: Mapping[str, Machine] = MACHINES,
    counts: Sequence[int] = (1, 2, 3, 4, 6, 8, 12, 16),
    goal: Goal = FASTEST,
    work_samples: float = 2e6,
    sizes: bool = True,
    **others: object,
) -> Problem:
    """A problem over all `machines` and `counts`, with features, sizes and a blueprint like a real job's."""
    features = {n: (math.log2(m.speed), math.log2(m.memory_gib), float(m.drag > 0.1)) for n, m in machines.items()}
    memory = {name: math.log2(machine.memory_gib) for name, machine in machines.items()}
    knobs = (
        Knob(name="instance", values=tuple(machines), features=features, log2_sizes=memory if sizes else None),
        Knob(name="nodes", values=tuple(counts)),
    )
    configs = tuple(Config.deployment(name, n) for name in machines for n in counts)
    blueprint = Blueprint(
        flops_per_sample=1e9,
        parameter_bytes=1e8,
        batch=512,
        machines={name: (m.speed * 4e9, 1.25e9) for name, m in machines.items()},
    )
    return Problem(
        name="synthetic",
        work_samples=work_samples,
        space=Space(knobs, configs),
        goal=goal,
        usd_per_hour=tuple(Usd.of(machines[c.instance].usd_per_hour) * c.nodes for c in configs),
        blueprint=blueprint,
        **others,  # type: ignore[arg-type]  # the caller names Problem's own fields
    )


def batched(problem: Problem, batches: Sequence[int] = (64, 256)) -> Problem:
    """The problem with a global batch to choose. Speed does not depend on it; a sample counts less at a larger one."""
    pairs = [(c, p) for c, p in zip(problem.space, problem.usd_per_hour, strict=True) for _ in batches]
    configs = tuple(Config((*c.values, ("batch", b))) for c in problem.space for b in batches)
    knobs = (*problem.space.knobs, Knob(name="batch", values=tuple(batches)))
    return replace(
        problem,
        space=Space(knobs, configs),
        usd_per_hour=tuple(price for _, price in pairs),
        batching=Batching(reference=min(batches), decay=0.5),
    )


SETTINGS = Settings(
    (
        Setting(name="precision", values=("fp32", "bf16")),
        Setting(name="micro_batch", values=(1, 2, 8), memory="rises", when=Condition((("sharding", ("fsdp",)),))),
        Setting(name="sharding", values=("ddp", "fsdp")),
    ),
    exclude=(Condition((("precision", ("fp32",)), ("micro_batch", (8,)))),),
)
"""Knobs of a script, with a condition and an exclusion: 7 settings."""


def with_settings(problem: Problem) -> Problem:
    """The problem with SETTINGS to choose."""
    rows = SETTINGS.rows("", 1)
    configs = tuple(
        Config((*c.values, *zip(SETTINGS.names, row, strict=True))) for c in problem.space.configs for row in rows
    )
    space = Space((*problem.space.knobs, *SETTINGS.space_knobs(rows)), configs)
    return replace(problem, space=space, usd_per_hour=tuple(p for p in problem.usd_per_hour for _ in rows))


def setting_factor(config: Config) -> float:
    """How much faster these settings are than the slowest on any machine, on accelerators more than on others."""
    given = config.settings
    factor = 1.8 if given.get("precision") == "bf16" else 1.0
    factor *= {"ddp": 1.3, "fsdp": 0.5 + 0.2 * math.log2(1 + float(given.get("micro_batch", 1)))}.get(
        str(given.get("sharding")), 1.0
    )
    return factor**1.3 if config.instance.startswith("p") else factor


def measured(
    problem: Problem,
    config: Config,
    speed: float,
    *,
    error: float = 0.02,
    seconds: float | None = None,
    attempt: int = 1,
    startup: float = 0.0,
) -> Measurement:
    """A trial of `config` that took its planned time."""
    seconds = problem.trial.planned_seconds(config.nodes) if seconds is None else seconds
    return Measurement(
        config=config,
        attempt=attempt,
        samples_per_second=speed,
        relative_error=error,
        iterations=20,
        startup_seconds=startup,
        seconds=seconds,
        usd=problem.price(config).for_seconds(seconds),
    )


def failed(
    problem: Problem,
    config: Config,
    kind: FailureKind = FailureKind.ERROR,
    *,
    seconds: float = 100.0,
    attempt: int = 1,
) -> Failure:
    """A trial of `config` that failed; a lack of capacity is not charged."""
    usd = Usd(0) if kind is FailureKind.CAPACITY else problem.price(config).for_seconds(seconds)
    return Failure(config=config, attempt=attempt, kind=kind, message=f"made: {kind}", seconds=seconds, usd=usd)


def true_trial(problem: Problem, config: Config, *, attempt: int = 1, noise: float = 0.02) -> Trial:
    """The outcome of a trial of `config` on MACHINES, with noise seeded by the configuration."""
    speed = MACHINES[config.instance].samples_per_second(config.nodes)
    if speed is None:
        return failed(problem, config, FailureKind.OUT_OF_MEMORY, attempt=attempt)
    factor = math.exp(noise * random.Random(f"true|{config}|{attempt}").gauss()) * setting_factor(config)
    return measured(problem, config, speed * factor, error=noise, attempt=attempt, startup=60.0)
