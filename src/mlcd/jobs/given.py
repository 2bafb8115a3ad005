"""What callers from Python may hand over as a job, read into the same frozen values as a job file."""

import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import cast

from mlcd.errors import BadInput
from mlcd.goal import Goal
from mlcd.spec import TrainSpec, parse_goal, parse_train, spec_from_mapping, with_overrides
from mlcd.spec.document import document, read_text
from mlcd.spec.parse import places_of
from mlcd.units import MICROS, Usd

Job = str | os.PathLike[str] | Mapping[str, object] | TrainSpec
"""A job file's path, its text (a str with a line break in it), its fields as a mapping, or a parsed job."""

GoalLike = Goal | Mapping[str, object] | str
"""`{"minimize": "time", "budget": "100 USD"}`, the same as YAML, just `"time"`, or a Goal."""


def job_spec(
    job: Job,
    goal: GoalLike | None,
    *,
    on: str | None = None,
    budget: str | float | Usd | None = None,
    deadline: str | timedelta | None = None,
    strategy: str | None = None,
    parallel: int | None = None,
) -> TrainSpec:
    """The job with `goal` in place of its own and the overrides in theirs. Raises BadInput."""
    spec = job if isinstance(job, TrainSpec) else _parsed(job, None if goal is None else parse_goal(goal))
    if isinstance(job, TrainSpec) and goal is not None:
        spec = replace(_parsed(spec.source, parse_goal(goal)), file=spec.file, overrides=())
        kept = dict(job.overrides)
        spec = with_overrides(
            spec, on=kept.get("on"), strategy=kept.get("strategy"), parallel=kept.get("parallel"), mark=""
        )
    if isinstance(budget, Usd):
        budget = f"{Decimal(budget.micros) / MICROS:f} USD"
    if isinstance(deadline, timedelta):
        deadline = f"{Decimal(repr(deadline.total_seconds())):f}s"
    return with_overrides(spec, on=on, budget=budget, deadline=deadline, strategy=strategy, parallel=parallel, mark="")


def _parsed(job: str | os.PathLike[str] | Mapping[str, object], goal: Goal | None) -> TrainSpec:
    """The job, with `goal` in place of its own: its source says so too, so that the run can be repeated from it."""
    if isinstance(job, Mapping):
        return spec_from_mapping(job if goal is None else {**job, "goal": goal})
    is_text = isinstance(job, str) and "\n" in job
    file = "job.yaml" if is_text else os.fspath(job)
    text = cast(str, job) if is_text else read_text(file)
    if goal is None:
        return parse_train(text, file=file)
    root = document(text, file=file)
    fields = root.plain()
    if not isinstance(fields, dict) or "goal" in fields:
        parse_train(text, file=file)  # for its errors, which name the line
    spec = spec_from_mapping({**cast(dict[str, object], fields), "goal": goal})
    return replace(spec, file=file, places=places_of(root))


def check_seed(seed: int) -> None:
    """Raises BadInput for what is no seed."""
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise BadInput(f"a seed is a whole number, at least 0 (got {seed!r})")
