"""What a trial is worth in the goal's own unit: what it may save, if it fits, less its price.

With k the incumbent's value, V(x) the run on x, c(x) the price of its trial and r(x) the share of the work that is left
when the trial ends:

    net(x) = r E[(k - V)^+ ; x fits] + (1 - r) k - c

Where a trial is a stretch of the training (`Problem.keeps_work`), it does the share 1 - r of the work; else r = 1.
Beside a training (`Remaining.training`), k is the rest of that training and a trial takes money but no time; the caller
asks about the work that is left when a trial has ended (mlcd.search.beside). While nothing measured fits, k is virtual:
ending without a run counts as `unfinished_runs` of the most promising one.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, stdtr

from mlcd.goal import Goal, Objective
from mlcd.models.mixed_speed import MixedModel
from mlcd.problem import Problem
from mlcd.search.acquisition import expected_saving, pandora_index
from mlcd.search.auto_settings import AutoSettings
from mlcd.search.candidates import log_seconds_that_fit
from mlcd.search.choice_now import KEPT_SIGMAS, ChoiceNow
from mlcd.trial.plan import Remaining, log_margin
from mlcd.trial.watched import may_be_watched

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

MOST_INDEXED = 300
"""Only so many of the trials that pay, those with the largest net value, are put in the order of their index: solving
for it takes longer than all else."""

LEAST_PRICE_SHARE = 0.05
"""Of a trial's price, what is paid in any case: a trial whose work is kept still has a start-up."""

FAR = 1e3
"""The incumbent's factor under which an index is sought while nothing fits: all trials then have one."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a round of trials is weighed against.

    now            what would be trained on if the search ended now; None: nothing fits yet
    runs           (N,) the probability that the job runs at all
    round_seconds  how long the other trials of the round take: beside them, a trial takes only what it takes longer
    target         what must be beaten, if the round's other trials are expected to improve on the incumbent
    """

    problem: Problem
    remaining: Remaining
    settings: AutoSettings
    now: ChoiceNow | None
    runs: Floats
    round_seconds: float = 0.0
    target: float | None = None

    @property
    def goal(self) -> Goal:
        """The goal; another unit while nothing measured fits a budget (see AutoSettings.first_unit)."""
        unit = self.settings.first_unit
        if self.now is None and self.remaining.usd is not None and unit != "goal":
            return replace(self.problem.goal, minimize=Objective(unit))
        return self.problem.goal


@dataclass(frozen=True, kw_only=True)
class NetValues:
    """Of each configuration (N,): the net value of its trial; its rank, where larger is tried first; its chance to fit.

    Only rows with a finite rank are worth a trial.
    """

    net: Floats
    rank: Floats
    chance: Floats


def net_values(setting: Setting, model: MixedModel, candidates: Mask) -> NetValues:
    """The value of a trial of each candidate. At least one candidate is required."""
    problem, settings = setting.problem, setting.settings
    values = problem.log_values(setting.goal, model.log_seconds)
    left = _left(setting, model)
    log_cap = problem.log_values(setting.goal, _log_seconds_that_fit(setting))
    deviation = np.sqrt(model.variance)
    runs, now = setting.runs, setting.now
    chance = runs * (model.weights @ ndtr((log_cap - values) / deviation))
    promising = _promising(model.weights @ values, log_cap, chance, candidates, settings.likely)
    unfinished = settings.unfinished_runs * promising
    if now is None:
        k, worth, scarcity = unfinished, promising, settings.first_scarcity
    else:
        k, worth, scarcity = now.value, now.value, settings.scarcity
    prices = _prices(setting, k)
    target = np.full(len(prices), k if setting.target is None else min(k, setting.target))
    given_up = np.zeros(len(prices))
    if now is not None and now.later is not None:
        instead = now.plan.value(problem) if now.certain else unfinished
        given_up = np.maximum(np.minimum(now.later, instead) - k, 0.0)
        target += given_up
    credit = (1 - left) * worth if problem.keeps_work else np.zeros_like(left)
    scarce = scarcity * _share_of_slack(setting, model, candidates) * max(k - promising, 0.0)
    saving = model.weights @ expected_saving(values, model.variance, target, log_cap)
    net = runs * left * saving + credit - prices - scarce - given_up
    if now is None:
        tails = runs * (model.weights @ stdtr(settings.tail_degrees, (log_cap - values) / deviation))
        ratio = np.where(candidates, tails / np.maximum(_share_of_limits(setting), 1e-9), 0.0)
        pays = candidates & (ratio >= min(settings.least_chance, float(ratio.max()))) & (tails >= settings.hopeless)
        ceiling = FAR * target
    else:
        pays = candidates & (net > settings.least_gain * k)
        ceiling = target
    rank = np.where(pays, net, -np.inf)
    if settings.order == "pandora" and pays.any():
        rows = np.flatnonzero(pays)
        rows = rows[np.argsort(-net[rows], kind="stable")[:MOST_INDEXED]]
        paid = np.maximum(prices - credit, LEAST_PRICE_SHARE * prices) + scarce + given_up
        index = pandora_index(
            values[:, rows],
            model.variance[:, rows],
            (paid / left / runs)[rows],
            ceiling[rows],
            log_cap[rows],
            weights=model.weights,
        )
        rank = np.full(len(net), -np.inf)
        rank[rows] = -index
    return NetValues(net=net, rank=rank, chance=chance)


def _log_seconds_that_fit(setting: Setting) -> Floats:
    """(N,) ln of the longest run that would fit after the trial: expected to, where it can be watched, else certain to.

    Watching takes as long as another trial, and the incumbent must fit after it.
    """
    problem, remaining, now = setting.problem, setting.remaining, setting.now
    certain = log_seconds_that_fit(problem, remaining)
    if not setting.settings.watched or remaining.training is not None or not may_be_watched(problem, remaining):
        return certain
    expected = certain + log_margin(problem, problem.noise) - KEPT_SIGMAS * problem.noise
    if now is None:
        return expected
    twice = 2 * problem.planned_trial_seconds
    room = np.ones(len(certain), dtype=bool)
    if remaining.seconds is not None:
        room &= twice + now.plan.worst_seconds <= remaining.seconds
    if remaining.usd is not None:
        needed = twice * problem.dollars_per_second + problem.trial_move_dollars + problem.move_dollars
        room &= needed + now.plan.worst_usd.dollars <= remaining.usd.dollars
    return np.where(room, expected, certain)


def _promising(mean: Floats, log_cap: Floats, chance: Floats, candidates: Mask, likely: float) -> float:
    """The value of the best candidate of those that are likely to fit; of the likeliest, if none is."""
    rows = candidates & (chance >= min(likely, float(chance[candidates].max())))
    return float(np.exp(np.minimum(mean, log_cap)[rows].min()))


def _left(setting: Setting, model: MixedModel) -> Floats:
    """(N,) the share of the work that is left after the trial, if its work is kept; more than 0."""
    problem = setting.problem
    if not problem.keeps_work:
        return np.ones(len(problem.space))
    useful = np.maximum(problem.planned_trial_seconds - model.startup_seconds, 0.0)
    done = useful * np.exp(model.weights @ model.log_speed) / problem.works
    return np.maximum(1 - done, 1e-3)


def _prices(setting: Setting, k: float) -> Floats:
    """(N,) the price of one more trial in the goal's unit."""
    problem, goal, training = setting.problem, setting.goal, setting.remaining.training
    seconds = problem.planned_trial_seconds
    usd = problem.planned_trial_dollars
    if training is None:
        return goal.values(np.maximum(seconds - setting.round_seconds, 0.0), usd)
    if goal.minimize is Objective.COST:
        return usd
    if goal.minimize is Objective.TIME:
        return usd * setting.remaining.seconds_per_usd
    return k * usd / (2 * max(training.usd.dollars, 1e-9))  # the knee's derivative by money


def _share_of_slack(setting: Setting, model: MixedModel, candidates: Mask) -> Floats:
    """(N,) a trial's share of what the tighter limit leaves for the search, at most 1.

    While nothing fits, the search must leave enough for the run that is expected to need least.
    """
    problem, remaining = setting.problem, setting.remaining
    incumbent = None if setting.now is None else setting.now.plan
    share = np.zeros(len(problem.space))
    seconds = problem.planned_trial_seconds
    worst = np.exp(model.mean + log_margin(problem, problem.noise))
    if remaining.seconds is not None and remaining.training is None:
        reserve = incumbent.worst_seconds if incumbent else float(worst[candidates].min())
        share = np.maximum(share, seconds / max(remaining.seconds - reserve, _LEAST_SLACK * remaining.seconds, 1e-9))
    share = np.maximum(share, problem.planned_trial_dollars / money_for_search(setting, model, candidates))
    return np.minimum(share, 1.0)


def money_for_search(setting: Setting, model: MixedModel, candidates: Mask) -> float:
    """Dollars that the budget leaves for the search; more than 0, and infinite without a budget."""
    problem, left = setting.problem, setting.remaining.usd
    if left is None:
        return math.inf
    if setting.now is not None:
        reserve = setting.now.plan.worst_usd.dollars
    else:
        worst = np.exp(model.mean + log_margin(problem, problem.noise)) * problem.dollars_per_second
        worst += problem.move_dollars
        reserve = float(worst[candidates].min())
    return max(left.dollars - reserve, _LEAST_SLACK * left.dollars, 1e-9)


_LEAST_SLACK = 0.02
"""Of what remains: however little the model leaves for the search, it is not that sure."""


def _share_of_limits(setting: Setting) -> Floats:
    """(N,) a trial's share of what remains of the tighter limit."""
    problem, remaining = setting.problem, setting.remaining
    share = np.zeros(len(problem.space))
    seconds = problem.planned_trial_seconds
    if remaining.seconds is not None:
        share = np.maximum(share, seconds / max(remaining.seconds, 1e-9))
    if remaining.usd is not None:
        share = np.maximum(share, problem.planned_trial_dollars / max(remaining.usd.dollars, 1e-9))
    return share
