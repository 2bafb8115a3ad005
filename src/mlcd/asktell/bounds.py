"""Upper bounds of numbers that are told or read from a file: beyond them, sums of money and time are not exact."""

from mlcd.problem import Problem
from mlcd.trial.trial import Measurement, Trial
from mlcd.units import Usd

MAX_SECONDS = 3650 * 86400.0
MAX_USD = Usd.of(10**6)
"""Bound of a price per hour, and of the cost of a trial."""
MAX_BUDGET = Usd.of(10**12)
MAX_SAMPLES = 1e30
"""Samples are also at least 1 / MAX_SAMPLES."""
MAX_SAMPLES_PER_SECOND = 1e101
"""Also at least 1 / MAX_SAMPLES_PER_SECOND. Covers the speeds that stand for custom values (CustomValue.speed)."""
MAX_RELATIVE_ERROR = 10.0


def check_trial(trial: Trial) -> None:
    """Raises ValueError naming the number that is out of range."""
    _within("seconds", trial.seconds, 0.0, MAX_SECONDS)
    _within("usd", trial.usd.micros, 0, MAX_USD.micros)
    if isinstance(trial, Measurement):
        _within("samples_per_second", trial.samples_per_second, 1 / MAX_SAMPLES_PER_SECOND, MAX_SAMPLES_PER_SECOND)
        _within("startup_seconds", trial.startup_seconds, 0.0, trial.seconds)
        _within("relative_error", trial.relative_error, 0.0, MAX_RELATIVE_ERROR)


def check_problem(problem: Problem) -> None:
    """Raises ValueError naming the number that is out of range."""
    _within("work_samples", problem.work_samples, 1 / MAX_SAMPLES, MAX_SAMPLES)
    _within("usd_per_hour", max(price.micros for price in problem.usd_per_hour), 1, MAX_USD.micros)
    _within("trial_seconds", problem.trial.worst_seconds(int(problem.nodes.max())), 0.0, MAX_SECONDS)
    for name in ("extra_seconds_per_3_nodes", "extension", "watchdog_seconds"):
        _within(f"trial.{name}", getattr(problem.trial, name), 0.0, MAX_SECONDS)
    if problem.goal.deadline_seconds is not None:
        _within("deadline", problem.goal.deadline_seconds, 0.0, MAX_SECONDS)
    if problem.goal.budget is not None:
        _within("budget", problem.goal.budget.micros, 0, MAX_BUDGET.micros)


def _within(name: str, number: float, least: float, most: float) -> None:
    if not least <= number <= most:
        raise ValueError(f"{name}: is out of range")
