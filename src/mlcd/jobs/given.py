"""The forms of a job that Python callers may pass, read into the same frozen values as a job file."""

import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TypeVar

from mlcd.errors import BadInput, SpecError
from mlcd.goal import Goal
from mlcd.jobs.arguments import check_envs, check_path
from mlcd.spec import TrainSpec, parse_goal, with_overrides
from mlcd.spec.functions import SERVERLESS
from mlcd.spec.job_file import JobFile
from mlcd.spec.parse import TRAIN
from mlcd.spec.serve import ServeSpec
from mlcd.spec.serverless import ServerlessSpec
from mlcd.spec.serving import SERVE, is_job_file, model_job
from mlcd.units import Usd

Spec = TypeVar("Spec", TrainSpec, ServeSpec, ServerlessSpec)

Job = str | os.PathLike[str] | Mapping[str, object] | TrainSpec
"""A job file's path, its text (a str with a line break in it), its fields as a mapping, or a parsed job."""

ServeJob = str | os.PathLike[str] | Mapping[str, object] | ServeSpec
"""A model's path, or a job in the forms of `Job`; a path that ends in .yaml or .yml is a job file."""

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
    envs: Mapping[str, str] | None = None,
) -> TrainSpec:
    """The job with `goal` and the overrides instead of its own values. Raises BadInput."""
    spec = _given(TRAIN, job, TrainSpec, {"goal": None if goal is None else parse_goal(goal)})
    return with_overrides(
        spec,
        on=on,
        budget=budget,
        deadline=deadline,
        strategy=strategy,
        parallel=parallel,
        envs=check_envs(envs),
        mark="",
    )


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
    """The serving job with the overrides instead of its own values. Raises BadInput naming the argument."""
    flags = {
        "slo": slo,
        "rate": rate,
        "trials": trials,
        "budget": budget,
        "deadline": deadline,
        "strategy": strategy,
    }
    return SERVE.with_flags(_served(job, sizes), flags, mark="")


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
    """The training on functions with the overrides instead of its own values. Raises BadInput naming the argument."""
    flags = {
        "on": on,
        "budget": budget,
        "deadline": deadline,
        "strategy": strategy,
        "sync": sync,
        "functions": functions,
        "memory": memory,
    }
    return SERVERLESS.with_flags(_given(SERVERLESS, job, ServerlessSpec), flags, mark="")


def _served(job: ServeJob, sizes: Mapping[str, int] | None) -> ServeSpec:
    if sizes is not None and not isinstance(sizes, Mapping):
        raise SpecError("must be a mapping", field="sizes", value=sizes, allowed='such as {"sequence": 128}')
    if isinstance(job, str | os.PathLike) and not _is_text(job) and not is_job_file(job):
        return model_job(job, sizes)
    if sizes:
        raise BadInput("sizes: only for the path of a model; in a job write sizes: {AXIS: N}")
    return _given(SERVE, job, ServeSpec)


def _given(
    kind: JobFile[Spec],
    job: str | os.PathLike[str] | Mapping[str, object] | Spec,
    parsed: type[Spec],
    flags: Mapping[str, object] | None = None,
) -> Spec:
    """The job in any of the forms of `Job`, with flags instead of its values."""
    if isinstance(job, parsed):
        return kind.with_flags(job, flags or {}, mark="")
    if isinstance(job, Mapping):
        return kind.from_mapping(job, flags=flags, mark="")
    if isinstance(job, str | os.PathLike):
        path = check_path("job", job)
        return kind.parse(path, flags=flags, mark="") if _is_text(job) else kind.read(path, flags=flags, mark="")
    allowed = f"a job file's path, its text, a mapping with its fields, or a {parsed.__name__}"
    raise SpecError("is not a job", field="job", value=job, allowed=allowed)


def _is_text(job: str | os.PathLike[str]) -> bool:
    """Whether it is the text of a job file, not a path."""
    return isinstance(job, str) and "\n" in job


def check_seed(seed: int) -> None:
    """Raises BadInput unless `seed` is a whole number, at least 0."""
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise BadInput(f"seed: must be a whole number, at least 0 (got {seed!r})")
