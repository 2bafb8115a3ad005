"""Knobs of a training as part of what is chosen: the space with them, and what cannot be left out of it."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from mlcd.jobs.choice import check_size, listed
from mlcd.jobs.run_script import script_of
from mlcd.problem import Problem
from mlcd.space import UNSET, Config, Space, Value
from mlcd.space.settings import Settings
from mlcd.spec import TrainSpec
from mlcd.spec.place import PlacedSpec

STRATEGIES = (
    "auto",
    "heterbo",
    "convbo",
    "convbo-budget",
    "cherrypick",
    "cherrypick-budget",
    "lynceus",
    "ernest",
    "arrow",
    "random",
    "exhaustive",
)
"""Strategies that search a space with knobs."""
_LIBRARY_PREFIXES = (
    "OMP_",
    "KMP_",
    "MKL_",
    "OPENBLAS_",
    "NCCL_",
    "GLOO_",
    "CUDA_",
    "CUDNN_",
    "PYTORCH_",
    "TORCH_",
    "XLA_",
    "TF_",
)
"""Variables that libraries read: no script names them."""
MOST_SCRIPT_BYTES = 1_000_000
MOST_LEARNING = 16
"""Combinations of knobs that change learning: each needs a trial of its own."""
_MOST_PRODUCT = 200_000
"""Combinations of a single deployment that are enumerated before conditions."""


def with_knobs(spec: TrainSpec, problem: Problem) -> tuple[Problem, tuple[str, ...]]:
    """The problem with the job's knobs, and notes on values that are never chosen. Raises SpecError.

    What the conditions exclude is not in the space: nothing is ever paid for it.
    """
    knobs = spec.knobs
    _check(spec)
    narrow = "knobs, num_nodes or resources.instance_type"
    check_size(spec, "knobs", knobs.combinations, narrow=narrow, most=_MOST_PRODUCT)
    same = None if knobs.depends_on_machine else knobs.rows("", 1)
    rows: list[tuple[int, tuple[Value, ...]]] = []
    for at, config in enumerate(problem.space):
        here = knobs.rows(config.instance, config.nodes) if same is None else same
        rows += [(at, row) for row in here]
        check_size(spec, "knobs", len(rows), narrow=narrow)
    if not rows:
        raise spec.error("knobs.exclude", "excludes every combination", allowed="fewer exclusions")
    every = [row for _, row in rows]
    check_applies(spec, knobs, every)
    notes = tuple(never_chosen(knobs, every))
    names, deployments = knobs.names, problem.space.configs
    configs = tuple(Config((*deployments[at].values, *zip(names, row, strict=True))) for at, row in rows)
    space = Space((*problem.space.knobs, *knobs.space_knobs(every)), configs)
    prices = tuple(problem.usd_per_hour[at] for at, _ in rows)
    problem = replace(problem, space=space, usd_per_hour=prices, learning=knobs.learning)
    combinations = len({problem.learning_values(config) for config in problem.space})
    if problem.learning and combinations > MOST_LEARNING:
        said = f"the knobs that change learning ({', '.join(problem.learning)}) have {combinations:,} combinations"
        raise spec.error("knobs", said, allowed=f"at most {MOST_LEARNING}: each is tried once")
    return problem, notes


def _check(spec: TrainSpec) -> None:
    if spec.batch is not None:
        raise spec.error("knobs", "cannot be chosen together with batch yet", allowed="job.batch, or no knobs")
    name = spec.search.strategy.partition(":")[0]
    if name.startswith(("scavenger-", "paleo", "paris")):
        problem = f"{name} does not search knobs"
        raise spec.error("search.strategy", problem, value=spec.search.strategy, allowed=", ".join(STRATEGIES))
    for knob in spec.knobs.knobs:
        if knob.changes_learning and spec.job.target is None:
            problem = "changes learning, so the same samples give another model: the job needs a target"
            allowed = "job.target such as {metric: accuracy, value: 0.97}, or changes: speed"
            raise spec.error(f"knobs.{knob.name}", problem, allowed=allowed)
        if knob.name in spec.envs or knob.name.upper() in spec.envs:
            raise spec.error(f"knobs.{knob.name}", "is also a variable of envs", allowed="one of the two")


def check_applies(spec: PlacedSpec, knobs: Settings, rows: list[tuple[Value, ...]]) -> None:
    """Raises SpecError for a knob that applies in none of the combinations `rows`."""
    for at, knob in enumerate(knobs.knobs):
        if {row[at] for row in rows} == {UNSET}:
            problem = f"never applies: its condition ({knob.when}) contradicts the other conditions"
            raise spec.error(f"knobs.{knob.name}", problem, allowed="a condition that can hold")


def never_chosen(knobs: Settings, rows: list[tuple[Value, ...]]) -> Iterator[str]:
    """Notes on values that never occur in the combinations `rows`."""
    for at, knob in enumerate(knobs.knobs):
        seen = {row[at] for row in rows}
        if missing := [str(value) for value in knob.values if value not in seen]:
            yield f"knobs.{knob.name}: {listed(missing)} never occur under the conditions and are excluded"


def unmentioned(spec: TrainSpec, workdir: Path | None) -> tuple[str, ...]:
    """The knobs that neither the commands nor the script's text name: only the script can say that it reads them."""
    commands = f"{spec.setup}\n{spec.run}"
    text = _script_text(spec, workdir)
    left = []
    for name in spec.knobs.names:
        either = f"(?:{re.escape(name)}|{re.escape(name.upper())})"
        in_command = re.search(rf"\$(?:{either}\b|\{{{either}\b)", commands)
        in_script = re.search(rf"environ.{{0,40}}[\"']{either}[\"']|getenv\([\"']{either}[\"']", text)
        if not (in_command or in_script or name.upper().startswith(_LIBRARY_PREFIXES)):
            left.append(name)
    return tuple(left)


def _script_text(spec: TrainSpec, workdir: Path | None) -> str:
    name = script_of(spec.run)
    if not name or workdir is None:
        return ""
    try:
        with (workdir / name).open("rb") as file:
            return file.read(MOST_SCRIPT_BYTES).decode(errors="replace")
    except OSError:
        return ""
