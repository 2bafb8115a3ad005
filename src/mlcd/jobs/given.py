"""What callers from Python may hand over as a job, read into the same frozen values as a job file."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import cast

from mlcd.errors import BadInput
from mlcd.goal import Goal
from mlcd.spec import TrainSpec, parse_goal, parse_train, spec_from_mapping, with_overrides
from mlcd.spec.document import document, read_text
from mlcd.spec.functions import parse_serverless, read_serverless, serverless_mapping, with_function_flags
from mlcd.spec.parse import places_of
from mlcd.spec.serve import ServeSpec
from mlcd.spec.serverless import ServerlessSpec
from mlcd.spec.serving import is_job_file, model_job, parse_serve, read_serve, serve_mapping, with_flags
from mlcd.units import MICROS, Usd

Job = str | os.PathLike[str] | Mapping[str, object] | TrainSpec
"""A job file's path, its text (a str with a line break in it), its fields as a mapping, or a parsed job."""

ServeJob = str | os.PathLike[str] | Mapping[str, object] | ServeSpec
"""A model's path, or a job in the forms of `Job`; a path is a job file's where it ends in .yaml or .yml."""

ServerlessJob = str | os.PathLike[str] | Mapping[str, object] | ServerlessSpec
"""A training on functions in the forms of `Job`."""

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
    money, time = _money(budget), _time(deadline)
    return with_overrides(spec, on=on, budget=money, deadline=time, strategy=strategy, parallel=parallel, mark="")


def serve_spec(
    job: ServeJob,
    *,
    slo: str | Mapping[str, object] | None = None,
    rate: str | float | None = None,
    trials: int | None = None,
    budget: str | float | Usd | None = None,
    deadline: str | timedelta | None = None,
    strategy: str | None = None,
    sizes: Mapping[str, int] | None = None,
) -> ServeSpec:
    """The job of serving a model, with the overrides in place of its own. Raises BadInput naming the argument."""
    flags = {
        "slo": slo,
        "rate": rate,
        "trials": trials,
        "budget": _money(budget),
        "deadline": _time(deadline),
        "strategy": strategy,
    }
    return with_flags(_served(job, sizes), flags, mark="")


def serverless_spec(
    job: ServerlessJob,
    *,
    on: str | None = None,
    budget: str | float | Usd | None = None,
    deadline: str | timedelta | None = None,
    strategy: str | None = None,
    sync: str | None = None,
    functions: str | int | Sequence[int] | None = None,
    memory: str | int | Sequence[int] | None = None,
) -> ServerlessSpec:
    """The training on functions, with the overrides in place of its own. Raises BadInput naming the argument."""
    flags = {
        "on": on,
        "budget": _money(budget),
        "deadline": _time(deadline),
        "strategy": strategy,
        "sync": sync,
        "functions": functions,
        "memory": memory,
    }
    return with_function_flags(_trained_on_functions(job), flags, mark="")


def _served(job: ServeJob, sizes: Mapping[str, int] | None) -> ServeSpec:
    if isinstance(job, ServeSpec):
        spec = job
    elif isinstance(job, Mapping):
        spec = serve_mapping(job)
    elif _is_text(job):
        spec = parse_serve(os.fspath(job))
    elif is_job_file(job):
        spec = read_serve(os.fspath(job))
    else:
        return model_job(job, sizes)
    if sizes:
        raise BadInput("sizes: goes with a model's path; in a job write sizes: {AXIS: N}")
    return spec


def _trained_on_functions(job: ServerlessJob) -> ServerlessSpec:
    if isinstance(job, ServerlessSpec):
        return job
    if isinstance(job, Mapping):
        return serverless_mapping(job)
    return parse_serverless(os.fspath(job)) if _is_text(job) else read_serverless(os.fspath(job))


def _is_text(job: str | os.PathLike[str]) -> bool:
    """Whether it is a job file's text and no path."""
    return isinstance(job, str) and "\n" in job


def _money(budget: str | float | Usd | None) -> str | float | None:
    """A budget as a job file has it."""
    return f"{Decimal(budget.micros) / MICROS:f} USD" if isinstance(budget, Usd) else budget


def _time(deadline: str | timedelta | None) -> str | None:
    """A deadline as a job file has it."""
    return f"{Decimal(repr(deadline.total_seconds())):f}s" if isinstance(deadline, timedelta) else deadline


def _parsed(job: str | os.PathLike[str] | Mapping[str, object], goal: Goal | None) -> TrainSpec:
    """The job, with `goal` in place of its own: its source says so too, so that the run can be repeated from it."""
    if isinstance(job, Mapping):
        return spec_from_mapping(job if goal is None else {**job, "goal": goal})
    file = "job.yaml" if _is_text(job) else os.fspath(job)
    text = cast(str, job) if _is_text(job) else read_text(file)
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
