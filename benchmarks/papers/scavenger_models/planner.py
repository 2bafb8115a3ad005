"""Goodput's receding horizon on a measured model: plan, train a stretch, learn the true step time, plan again.

The training is divided into stretches, each an equal share of the way to the target. Before each stretch the planner
compares the remaining training on every configuration, including the restart of a change, and takes the least. It
learns the step time of the configuration it runs; steps to the target stay those of the noise model, because the tables
have no training that changed its batch. A stretch at batch B is assumed to need its share of the iterations of a whole
training at B.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from mlcd.bench.scavenger.truth import ClusterChoice, ScavengerTruth, usd
from papers.scavenger_models.forecast import Forecast
from papers.scavenger_models.observed import Observed, observe

STRETCHES = 20
RESTART_SECONDS = 60.0
"""A change of K or B: checkpoint, new processes, the first batch. Sources give 30 to 90 s."""

Worth = Callable[[ClusterChoice, float], float]
"""The objective to minimise: maps a configuration and its seconds to a number."""


def time_worth(_: ClusterChoice, seconds: float) -> float:
    """Seconds."""
    return seconds


def money_worth(choice: ClusterChoice, seconds: float) -> float:
    """Dollars."""
    return usd(choice, seconds)


@dataclass(frozen=True, kw_only=True)
class Course:
    """The result: the value of the training; `restarts_worth`, for changes, comes on top."""

    worth: float
    restarts_worth: float
    choices: tuple[ClusterChoice, ...]


def receding_horizon(
    truth: ScavengerTruth, seen: Observed, model: Callable[[Observed], Forecast], worth: Worth
) -> Course:
    """Train on the truth from the first plan to the target."""
    forecast, now = model(seen), None
    spent, restarts = 0.0, 0.0
    run: list[ClusterChoice] = []
    for done in range(STRETCHES):
        remaining = 1 - done / STRETCHES

        def ahead(
            choice: ClusterChoice,
            remaining: float = remaining,
            now: ClusterChoice | None = now,
            plan: Forecast = forecast,
        ) -> float:
            restart = RESTART_SECONDS if now is not None and choice != now else 0.0
            return worth(choice, remaining * plan.seconds(choice) + restart)

        choice = min(seen.settings, key=ahead)
        if now is not None and choice != now:
            restarts += worth(choice, RESTART_SECONDS)
        spent += worth(choice, truth.seconds(choice) / STRETCHES)
        run.append(choice)
        if choice not in seen.tried:
            timed = observe(truth, [choice]).runs
            seen = replace(seen, tried=(*seen.tried, choice), runs=(*seen.runs, *timed))
            forecast = model(seen)
        now = choice
    return Course(worth=spent, restarts_worth=restarts, choices=tuple(run))
