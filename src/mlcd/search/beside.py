"""What a trial beside a running training can be worth: the gain on the work that is left when it ends."""

from dataclasses import replace

from mlcd.problem import Problem
from mlcd.trial.plan import Plan, Remaining
from mlcd.trial.trial import History

MOST_SHARE = 0.99
"""The largest share of the rest of a training that may pass during a trial: a little always remains to be won."""


def after_a_trial(problem: Problem, history: History, remaining: Remaining) -> tuple[Problem, History, Remaining]:
    """The same when a trial has ended that starts now beside the training; unchanged where none runs.

    Less work is left, and less money; the training's plan is for that rest; every other deployment takes at least a
    restart before its first sample.
    """
    training = remaining.training
    if training is None:
        return problem, history, remaining
    done = min(problem.trial.planned_seconds(1) / training.seconds, MOST_SHARE)
    later = replace(
        remaining,
        usd=None if remaining.usd is None else remaining.usd - training.usd * done,
        training=_part(training, 1 - done),
    )
    rest = problem.with_work_done(problem.work_samples * done)
    return rest, history.with_startup(problem.restart_seconds), later


def _part(plan: Plan, share: float) -> Plan:
    """The plan for a share of its work."""
    return replace(
        plan,
        seconds=plan.seconds * share,
        usd=plan.usd * share,
        worst_seconds=plan.worst_seconds * share,
        worst_usd=plan.worst_usd * share,
    )
