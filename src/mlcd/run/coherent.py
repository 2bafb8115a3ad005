"""Whether the parts of a run fit each other. Each may be right, and the whole none that mlcd could have written."""

import math
from collections.abc import Mapping

from mlcd.functions import FunctionProblem
from mlcd.problem import Problem
from mlcd.run.kind import Kind
from mlcd.run.run import AnyRun
from mlcd.run.step import Role, Step
from mlcd.space import Config
from mlcd.trial.epoch import Epoch, FailedEpoch, Fleet
from mlcd.trial.trial import Measurement

MOST_RELATIVE_ERROR = 100.0
"""Of a measured speed: ten times what the profiler gives one that is unknown. Bounds of more overflow."""


def check_coherent(run: AnyRun) -> None:
    """Raises ValueError, with what does not fit, for a run that mlcd cannot have recorded like this.

    What was tried or measured is one of the problem's configurations: prices and plans are looked up by it.
    """
    problem = run.problem
    if isinstance(problem, FunctionProblem) != (run.kind is Kind.SERVERLESS):
        raise ValueError(f"its problem is none of `mlcd {run.kind}`")
    if run.kind is Kind.TRAIN and not _has_types(problem):
        raise ValueError("it trains on no instance type")
    for step in run.steps:
        _check_step(step, run.kind)
    if isinstance(problem, FunctionProblem):
        return
    for step in run.steps:
        _check_config(step.config, problem.space.index, f"step {step.number}")
        if step.outcome is not None and not isinstance(step.outcome, Epoch | FailedEpoch):
            _check_config(step.outcome.config, problem.space.index, f"the outcome of step {step.number}")
            _check_error(step.outcome, f"the outcome of step {step.number}")
    for each in run.header.reused:
        if isinstance(each.trial, Measurement):
            _check_config(each.trial.config, problem.space.index, f"a trial of {each.run_id}")
            _check_error(each.trial, f"a trial of {each.run_id}")


def _check_step(step: Step, kind: Kind) -> None:
    """Its times, and whether such a run has such steps."""
    what = f"step {step.number}"
    if not all(map(math.isfinite, (step.started_seconds, step.started_at, step.ended_seconds or 0.0))):
        raise ValueError(f"{what} began or ended at no time")
    if not step.authorised_seconds >= 0:
        raise ValueError(f"{what} was authorised for {step.authorised_seconds} seconds")
    if (step.role is Role.EPOCH) != (kind is Kind.SERVERLESS):
        raise ValueError(f"{what}, a {step.role}, is no part of a run of `mlcd {kind}`")
    if isinstance(step.authorisation.choice, Fleet) != (step.role is Role.EPOCH):
        raise ValueError(f"{what}, a {step.role}, is not where it can be")


def _has_types(problem: Problem | FunctionProblem) -> bool:
    return isinstance(problem, Problem) and any(knob.name == "instance" for knob in problem.space.knobs)


def _check_config(config: Config, known: Mapping[Config, int], what: str) -> None:
    if config not in known:
        raise ValueError(f"{what} is on {str(config)[:100]!r}, which is none of its configurations")


def _check_error(outcome: object, what: str) -> None:
    if isinstance(outcome, Measurement) and not outcome.relative_error <= MOST_RELATIVE_ERROR:
        raise ValueError(f"{what} has a speed that is known up to a factor of {outcome.relative_error:g}")
