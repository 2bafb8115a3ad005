"""What a trial is worth in the goal's own unit: what it may save, if it fits, less its price.

With k the incumbent's value, V(x) the run on x, c(x) the price of its trial and r(x) the share of the work that is left
when the trial ends:

    net(x) = r E[(k - V - m)^+ ; x fits] + w - c

Trials whose work is lost: r = 1. Where a trial is a stretch of the training (`Problem.keeps_work`), its work is worth
w = (1 - r) k. Beside a training (`Remaining.training`), k is the rest of that training; it goes on during the trial, so
that a trial takes money but no time, and moving takes m = restart / r of x. While nothing measured fits, k is virtual:
ending without a run counts as `unfinished_runs` of the most promising one.
"""

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
from mlcd.trial.plan import Plan, Remaining, log_margin

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

    incumbent      the rest of the training that runs, or the best measured plan that fits; None: nothing fits yet
    round_seconds  how long the other trials of the round take: beside them, a trial takes only what it takes longer
    target         what must be beaten, if the round's other trials are expected to improve on the incumbent
    """

    problem: Problem
    remaining: Remaining
    settings: AutoSettings
    incumbent: Plan | None
    round_seconds: float = 0.0
    target: float | None = None

    @property
    def goal(self) -> Goal:
        """The goal; another unit while nothing measured fits a budget (see AutoSettings.first_unit)."""
        unit = self.settings.first_unit
        if self.incumbent is None and self.remaining.usd is not None and unit != "goal":
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
    scale = setting.goal.scale(problem.dollars_per_second)
    values = model.log_seconds + np.log(scale)
    left = _left(setting, model)
    move = _move(setting) * scale / left
    log_cap = _log_cap(setting, left) + np.log(scale)
    deviation = np.sqrt(model.variance)
    chance = model.weights @ ndtr((log_cap - values) / deviation)
    promising = _promising(model.weights @ values, log_cap, chance, candidates, settings.likely)
    incumbent = setting.incumbent
    if incumbent is None:
        k, worth, scarcity = settings.unfinished_runs * promising, promising, settings.first_scarcity
    else:
        k = incumbent.value(problem)
        worth, scarcity = k, settings.scarcity
    target = k if setting.target is None else min(k, setting.target)
    beaten = np.maximum(target - move, 1e-12 * target)
    prices = _prices(setting, k)
    credit = (1 - left) * worth if problem.keeps_work else np.zeros_like(left)
    paid = np.maximum(prices - credit, LEAST_PRICE_SHARE * prices)
    paid = paid + scarcity * _share_of_slack(setting, model, candidates) * max(k - promising, 0.0)
    net = left * (model.weights @ expected_saving(values, model.variance, beaten, log_cap)) - paid
    if incumbent is None:
        tails = model.weights @ stdtr(settings.tail_degrees, (log_cap - values) / deviation)
        pays = candidates & (tails >= settings.least_chance * _share_of_limits(setting))
        ceiling = FAR * beaten
    else:
        pays = candidates & (net > settings.least_gain * k)
        ceiling = beaten
    rank = np.where(pays, net, -np.inf)
    if settings.order == "pandora" and pays.any():
        rows = np.flatnonzero(pays)
        rows = rows[np.argsort(-net[rows], kind="stable")[:MOST_INDEXED]]
        index = pandora_index(
            values[:, rows],
            model.variance[:, rows],
            (paid / left)[rows],
            ceiling[rows],
            log_cap[rows],
            weights=model.weights,
        )
        rank = np.full(len(net), -np.inf)
        rank[rows] = -(index + move[rows])
    return NetValues(net=net, rank=rank, chance=chance)


def _promising(mean: Floats, log_cap: Floats, chance: Floats, candidates: Mask, likely: float) -> float:
    """The value of the best candidate of those that are likely to fit; of the likeliest, if none is."""
    rows = candidates & (chance >= min(likely, float(chance[candidates].max())))
    return float(np.exp(np.minimum(mean, log_cap)[rows].min()))


def _left(setting: Setting, model: MixedModel) -> Floats:
    """(N,) the share of the work that is left when a trial of each configuration ends; more than 0."""
    problem, training = setting.problem, setting.remaining.training
    seconds = problem.planned_trial_seconds
    if training is not None:
        done = seconds / max(training.seconds, 1e-9)
    elif problem.keeps_work:
        useful = np.maximum(seconds - model.startup_seconds, 0.0)
        done = useful * np.exp(model.weights @ model.log_speed) / problem.works
    else:
        return np.ones(len(seconds))
    return np.maximum(1 - done, 1e-3)


def _move(setting: Setting) -> float:
    """Seconds that moving the training takes, beyond the start-up that every run has."""
    return setting.problem.restart_seconds if setting.remaining.training is not None else 0.0


def _log_cap(setting: Setting, left: Floats) -> Floats:
    """(N,) ln seconds for all of the work above which a run on each configuration would not fit after its trial."""
    log_longest = log_seconds_that_fit(setting.problem, setting.remaining)
    if setting.remaining.training is None:
        return log_longest
    with np.errstate(divide="ignore"):
        return np.log(np.maximum(np.exp(log_longest) - _move(setting), 0.0) / left)


def _prices(setting: Setting, k: float) -> Floats:
    """(N,) the price of one more trial in the goal's unit."""
    problem, goal, training = setting.problem, setting.goal, setting.remaining.training
    seconds = problem.planned_trial_seconds
    usd = seconds * problem.dollars_per_second
    if training is None:
        return goal.values(np.maximum(seconds - setting.round_seconds, 0.0), usd)
    if goal.minimize is Objective.COST:
        return usd
    if goal.minimize is Objective.TIME:
        return np.zeros_like(usd)
    return k * usd / (2 * max(training.usd.dollars, 1e-9))  # the knee's derivative by money


def _share_of_slack(setting: Setting, model: MixedModel, candidates: Mask) -> Floats:
    """(N,) a trial's share of what the tighter limit leaves for the search, at most 1.

    While nothing fits, the search must leave enough for the run that is expected to need least.
    """
    problem, remaining, incumbent = setting.problem, setting.remaining, setting.incumbent
    share = np.zeros(len(problem.space))
    seconds = problem.planned_trial_seconds
    rate = problem.dollars_per_second
    worst = np.exp(model.mean + log_margin(problem, problem.noise))
    if remaining.seconds is not None and remaining.training is None:
        reserve = incumbent.worst_seconds if incumbent else float(worst[candidates].min())
        share = np.maximum(share, seconds / max(remaining.seconds - reserve, _LEAST_SLACK * remaining.seconds, 1e-9))
    if remaining.usd is not None:
        budget = remaining.usd.dollars
        reserve = incumbent.worst_usd.dollars if incumbent else float((worst * rate)[candidates].min())
        share = np.maximum(share, seconds * rate / max(budget - reserve, _LEAST_SLACK * budget, 1e-9))
    return np.minimum(share, 1.0)


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
        share = np.maximum(share, seconds * problem.dollars_per_second / max(remaining.usd.dollars, 1e-9))
    return share
