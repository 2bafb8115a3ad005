"""What numbers may be at most, told or read from a file: beyond them, sums of money and time are no longer exact."""

from mlcd.problem import Problem
from mlcd.trial.trial import Measurement, Trial
from mlcd.units import Usd

MOST_SECONDS = 3650 * 86400.0
MOST_USD = Usd.of(10**6)
"""Of an hour, and of a trial."""
MOST_BUDGET = Usd.of(10**12)
LARGEST = 1e30
"""Samples, and 1 / LARGEST at least."""
FASTEST = 1e101
"""Samples per second, and 1 / FASTEST at least; own numbers, which stand in their place, go as far (Told.speed)."""
LARGEST_ERROR = 10.0


def check_trial(trial: Trial) -> None:
    """Raises ValueError naming the number that is out of range."""
    _within("seconds", trial.seconds, 0.0, MOST_SECONDS)
    _within("usd", trial.usd.micros, 0, MOST_USD.micros)
    if isinstance(trial, Measurement):
        _within("samples_per_second", trial.samples_per_second, 1 / FASTEST, FASTEST)
        _within("startup_seconds", trial.startup_seconds, 0.0, trial.seconds)
        _within("relative_error", trial.relative_error, 0.0, LARGEST_ERROR)


def check_problem(problem: Problem) -> None:
    """Raises ValueError naming the number that is out of range."""
    _within("work_samples", problem.work_samples, 1 / LARGEST, LARGEST)
    _within("usd_per_hour", max(price.micros for price in problem.usd_per_hour), 1, MOST_USD.micros)
    _within("trial_seconds", problem.trial.worst_seconds(int(problem.nodes.max())), 0.0, MOST_SECONDS)
    for name in ("extra_seconds_per_3_nodes", "extension", "watchdog_seconds"):
        _within(f"trial.{name}", getattr(problem.trial, name), 0.0, MOST_SECONDS)
    if problem.goal.deadline_seconds is not None:
        _within("deadline", problem.goal.deadline_seconds, 0.0, MOST_SECONDS)
    if problem.goal.budget is not None:
        _within("budget", problem.goal.budget.micros, 0, MOST_BUDGET.micros)


def _within(name: str, number: float, least: float, most: float) -> None:
    if not least <= number <= most:
        raise ValueError(f"{name}: is out of range")
