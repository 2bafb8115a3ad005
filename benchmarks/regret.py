"""Regret against money spent: how good the best measured deployment is after so much money, and its picture."""

from collections.abc import Mapping, Sequence

import numpy as np

from mlcd.bench.case import UNFINISHED_RATIO, TrainTruth
from mlcd.run.run import SearchRun
from papers.curve_picture import Curve, curve_picture

GRID = tuple(float(share) for share in np.geomspace(0.01, 3.0, 25))
"""Money spent on trials, over what the best run costs."""


def regret_curve(truth: TrainTruth, run: SearchRun) -> list[float]:
    """For each point of GRID: the training on the best deployment measured so far, over the best training there is.

    A deployment counts if its true training keeps the limits after what was spent by then; UNFINISHED_RATIO stands for
    none, and is the most. The price of the search itself is on the other axis, not in the figure.
    """
    goal, problem = run.problem.goal, run.problem
    prices = dict(zip(problem.space, problem.usd_per_hour, strict=True))
    seconds = dict(zip(problem.space, truth.seconds, strict=True))
    runs = [(s, prices[c].for_seconds(s).dollars) for c, s in seconds.items() if s is not None]
    fitting = [pair for pair in runs if _fits(run, *pair, elapsed=0.0, spent=0.0)]
    best_seconds, best_usd = min(fitting, key=lambda pair: goal.value(*pair))
    best = goal.value(best_seconds, best_usd)
    known: list[tuple[float, float, float, float]] = []  # spent, elapsed, seconds, dollars
    spent = elapsed = 0.0
    for trial in run.history:
        spent, elapsed = spent + trial.usd.dollars, elapsed + trial.seconds
        took = seconds[trial.config] if trial in run.history.measured else None
        usd = np.inf if took is None else prices[trial.config].for_seconds(took).dollars
        known.append((spent, elapsed, np.inf if took is None else took, usd))
    curve = []
    for share in GRID:
        so_far = [each for each in known if each[0] <= share * best_usd]
        now = so_far[-1][:2] if so_far else (0.0, 0.0)
        ratios = [
            goal.value(took, usd) / best
            for _, _, took, usd in so_far
            if np.isfinite(took) and _fits(run, took, usd, elapsed=now[1], spent=now[0])
        ]
        curve.append(round(min([*ratios, UNFINISHED_RATIO]), 4))
    return curve


def _fits(run: SearchRun, seconds: float, usd: float, *, elapsed: float, spent: float) -> bool:
    goal = run.problem.goal
    in_time = goal.deadline_seconds is None or elapsed + seconds <= goal.deadline_seconds
    return in_time and (goal.budget is None or spent + usd <= goal.budget.dollars)


def mean_curve(curves: Sequence[Sequence[float]]) -> list[float]:
    """The mean at every point of GRID."""
    return [round(float(value), 4) for value in np.mean(np.array(curves), axis=0)]


def regret_picture(curves: Mapping[str, Sequence[float]], *, goal: str, origin: str) -> str:
    """The SVG of one goal: a line for each strategy."""
    return curve_picture(
        [Curve(name=name, points=tuple(zip(GRID, values, strict=True))) for name, values in curves.items()],
        title=f"Regret against money spent on trials, goal {goal}",
        across="money spent on trials, over the best run's (logarithmic)",
        up="training on the best measured so far, over the best",
        origin=origin,
        span=(1.0, UNFINISHED_RATIO),
        log=True,
    )
