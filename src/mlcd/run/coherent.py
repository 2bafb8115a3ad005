"""Whether the parts of a run fit each other. Each may be right, and the whole none that mlcd could have written."""

import math
from collections.abc import Mapping

from mlcd.functions import FunctionProblem
from mlcd.run.kind import Kind
from mlcd.run.run import AnyRun
from mlcd.run.step import Role
from mlcd.space import Config
from mlcd.trial.epoch import Epoch, FailedEpoch, Fleet
from mlcd.trial.trial import Measurement


def check_coherent(run: AnyRun) -> None:
    """Raises ValueError, with what does not fit, for a run that mlcd cannot have recorded like this.

    What was tried or measured is one of the problem's configurations: prices and plans are looked up by it.
    """
    problem = run.problem
    if isinstance(problem, FunctionProblem) != (run.kind is Kind.SERVERLESS):
        raise ValueError(f"its problem is none of `mlcd {run.kind}`")
    for step in run.steps:
        what = f"step {step.number}"
        if not all(map(math.isfinite, (step.started_seconds, step.started_at, step.ended_seconds or 0.0))):
            raise ValueError(f"{what} began or ended at no time")
        if not step.authorised_seconds >= 0:
            raise ValueError(f"{what} was authorised for {step.authorised_seconds} seconds")
        if (step.role is Role.EPOCH) != (run.kind is Kind.SERVERLESS):
            raise ValueError(f"{what}, a {step.role}, is no part of a run of `mlcd {run.kind}`")
        if isinstance(step.authorisation.choice, Fleet) != (step.role is Role.EPOCH):
            raise ValueError(f"{what}, a {step.role}, is not where it can be")
        if isinstance(problem, FunctionProblem):
            continue
        _check_config(step.config, problem.space.index, what)
        if step.outcome is not None and not isinstance(step.outcome, Epoch | FailedEpoch):
            _check_config(step.outcome.config, problem.space.index, f"the outcome of {what}")
    if isinstance(problem, FunctionProblem):
        return
    for each in run.header.reused:
        if isinstance(each.trial, Measurement):
            _check_config(each.trial.config, problem.space.index, f"a trial of {each.run_id}")


def _check_config(config: Config, known: Mapping[Config, int], what: str) -> None:
    if config not in known:
        raise ValueError(f"{what} is on {str(config)[:100]!r}, which is none of its configurations")
