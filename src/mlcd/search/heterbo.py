"""HeterBO (Yi et al., IPDPS 2020): Bayesian optimisation with trial costs and a reserve for the training."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, stdtr

from mlcd.goal import Objective
from mlcd.models.speed import SpeedModel, as_expected, speed_model
from mlcd.problem import Problem
from mlcd.search.acquisition import expected_rise, expected_saving, pandora_index
from mlcd.search.beside import after_a_trial
from mlcd.search.candidates import log_seconds_that_fit, open_rows, rising_rows
from mlcd.search.first_looks import first_looks, known_types, one_of_each_kind
from mlcd.search.heterbo_settings import HeterBOSettings
from mlcd.search.strategy import MeasuredStrategy
from mlcd.search.wording import amount, ending
from mlcd.trial.plan import MIN_TIE_FRACTION, Plan, Remaining, best_fitting, plans
from mlcd.trial.trial import History, Suggestion

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

DEFAULTS = HeterBOSettings()
PAPER = HeterBOSettings(start="all", acquisition="tei", memory="off")
"""As the paper describes it (III-C). Price, prune, gate, reserve and the 95% interval are the defaults already."""


@dataclass(frozen=True, kw_only=True)
class HeterBO(MeasuredStrategy):
    """Single nodes first; then the trial with the largest net gain, until none is worth its price.

    Its options are the fields of HeterBOSettings; `presets` are settings with a name, such as `heterbo:paper`.
    """

    name: ClassVar[str] = "heterbo"
    presets: ClassVar[Mapping[str, HeterBOSettings]] = {"paper": PAPER}
    settings: HeterBOSettings = DEFAULTS

    @property
    def guarded(self) -> bool:
        """True unless the reserve is switched off."""
        return self.settings.reserve

    def suggest(self, problem: Problem, history: History, remaining: Remaining, count: int) -> tuple[Suggestion, ...]:
        """Start trials, then the best by the acquisition. Each one assumes that those before it go as expected."""
        candidates = open_rows(problem, history, remaining, memory=self.settings.memory)
        problem, history, remaining = after_a_trial(problem, history, remaining)
        if self.settings.prune:
            candidates &= rising_rows(problem, history, self.settings)
        rows = self._start(problem, history, candidates, count)
        model = speed_model(problem, history)
        if rows or model is None:
            return tuple(_suggestion(problem, row, "a first look at this type", model) for row in rows)
        return self._by_acquisition(problem, history, remaining, model=model, candidates=candidates, count=count)

    def ending(self, problem: Problem, history: History, remaining: Remaining) -> str:
        """The limits, the reserve, or no trial that pays for itself."""
        return ending(problem, history, remaining, memory=self.settings.memory)

    # ---- start

    def _start(self, problem: Problem, history: History, candidates: Mask, count: int) -> list[int]:
        """The rows still to try before the model is used, at most `count`."""
        if self.settings.start == "auto" and not (count > 1 and _only_time_counts(problem)):
            return one_of_each_kind(problem, history, candidates)[:count]
        size = {"all": len(problem.space), "auto": count}.get(self.settings.start) or int(self.settings.start)
        missing = size - len(known_types(problem, history))
        if missing <= 0:
            return []
        firsts = first_looks(problem, history, candidates, in_the_middle=self.settings.start == "auto")
        return firsts[: min(missing, count)]

    # ---- acquisition

    def _by_acquisition(
        self,
        problem: Problem,
        history: History,
        remaining: Remaining,
        *,
        model: SpeedModel,
        candidates: Mask,
        count: int,
    ) -> tuple[Suggestion, ...]:
        incumbent = remaining.training or best_fitting(problem, history, remaining)
        target = incumbent.value(problem) if incumbent else None
        missed = _has_missed(problem, history, remaining, incumbent)
        picks: list[Suggestion] = []
        round_seconds = 0.0
        while len(picks) < count:
            # Beside the training, a trial takes no time; it must promise more than what counts as a tie.
            is_beside = remaining.training is not None
            prices = self._trial_price(problem, math.inf if is_beside else round_seconds)
            if is_beside and target is not None:
                if problem.goal.minimize is Objective.TIME:
                    usd = problem.planned_trial_dollars
                    prices = prices + usd * remaining.seconds_per_usd
                prices = np.maximum(prices, MIN_TIE_FRACTION * target)
            if problem.keeps_work and target is not None and count == 1:
                prices = np.maximum(prices - _work_done(problem, model, target), 0.0)
            if self.settings.acquisition in ("auto", "net", "pandora"):
                use_pandora = count == 1 and self._can_use_pandora(problem, remaining)
                score, reason = self._net(
                    problem, remaining, target, model, prices, use_pandora=use_pandora, missed=missed
                )
            else:
                score, reason = self._tei(
                    problem, history, remaining, target=target, model=model, candidates=candidates
                )
            if self.settings.gate and incumbent is not None:
                candidates = candidates & _may_pay(problem, incumbent, model, prices, self.settings.bound_sigmas)
            row = int(np.where(candidates, score, -np.inf).argmax())
            if not candidates[row] or score[row] <= 0:
                break
            found = _suggestion(problem, row, reason.format(amount(problem, score[row])), model)
            picks.append(replace(found, chance=self._chance(problem, remaining, model, row)))
            candidates = candidates.copy()
            candidates[row] = False
            round_seconds = max(round_seconds, float(problem.planned_trial_seconds[row]))
            if target is not None and self.settings.round_target:
                # The next trial of this round must beat the expected result of this one.
                scale = problem.goal.scale(problem.dollars_per_second)[row]
                target = min(target, float(np.exp(model.log_seconds[row]) * scale))
            model = as_expected(model, row) if len(picks) < count else model
        return tuple(picks)

    def _trial_price(self, problem: Problem, round_seconds: float) -> Floats:
        """(N,) the price of one more trial in the goal's unit, next to trials that already take `round_seconds`."""
        if not self.settings.price:
            return np.zeros(len(problem.space))
        seconds = problem.planned_trial_seconds
        extra = np.maximum(seconds - round_seconds, 0.0)
        return problem.goal.values(extra, problem.planned_trial_dollars)

    def _net(
        self,
        problem: Problem,
        remaining: Remaining,
        target: float | None,
        model: SpeedModel,
        prices: Floats,
        *,
        use_pandora: bool,
        missed: bool,
    ) -> tuple[Floats, str]:
        """(N,) the expected saving of each trial net of its price, and the reason to report."""
        scale = np.log(problem.goal.scale(problem.dollars_per_second))
        mean = model.log_seconds + scale
        log_cap = self._log_longest(problem, remaining) + scale
        if target is not None:
            if self.settings.price and self._counts_share(problem, missed=missed):
                # A trial uses up limits that others need: a share of the limits costs as much as that share of the run.
                prices = prices + target * _share_of_limits(problem)
            gain = expected_saving(mean, model.variance, target, log_cap)
            if self.settings.acquisition == "pandora" or (self.settings.acquisition == "auto" and use_pandora):
                upside = np.full(len(mean), -np.inf)
                pays = gain > prices
                index = pandora_index(mean[pays], model.variance[pays], prices[pays], target, log_cap[pays])
                upside[pays] = target - index
                return upside, "may save up to {} for its price"
            return gain - prices, "expected to save {} net of its price"
        score = self._until_one_fits(problem, model, prices, mean=mean, log_cap=log_cap)
        return score, "nothing measured fits the limits yet; this has the best probability of fitting for its price"

    def _log_longest(self, problem: Problem, remaining: Remaining) -> Floats:
        """(N,) ln of the longest run that still fits on each configuration."""
        return log_seconds_that_fit(problem, remaining)

    def _chance(self, problem: Problem, remaining: Remaining, model: SpeedModel, row: int) -> float:
        """The probability that the training fits what remains after the trial."""
        room = float(self._log_longest(problem, remaining)[row] - model.log_seconds[row])
        return float(ndtr(room / math.sqrt(max(float(model.variance[row]), 1e-12))))

    def _can_use_pandora(self, problem: Problem, remaining: Remaining) -> bool:
        """Whether a useless trial costs little: there is no limit, or every trial informs the one speed curve."""
        return not remaining.is_limited or (self.settings.single_type_pandora and _is_one_fast_curve(problem))

    def _counts_share(self, problem: Problem, *, missed: bool) -> bool:
        """Whether a trial's share of the limits counts; if every trial informs all others, only after a miss."""
        share = self.settings.limit_share
        return share == "always" or (share == "on" and (missed or not _is_one_fast_curve(problem)))

    def _until_one_fits(
        self, problem: Problem, model: SpeedModel, prices: Floats, *, mean: Floats, log_cap: Floats
    ) -> Floats:
        """(N,) the probability of fitting less the price of run and trial, in units of the penalty for finding nothing.

        If money is minimised, a run that fits costs at most its cap, however slow the model expects it to be. The cap
        bounds the loss; the mean of a run far beyond the deadline does not. Then only the order and the sign count.
        """
        distance = (log_cap - mean) / np.sqrt(model.variance)
        chance = stdtr(self.settings.tail_degrees, distance)
        surest = int(distance.argmax())
        fitting = np.exp(np.minimum(mean, log_cap))
        counts = self.settings.price and self.settings.limit_share != "off"
        share = _share_of_limits(problem) if counts else np.zeros(len(mean))

        def net(nothing_found: float, share: Floats) -> Floats:
            return np.asarray(chance * np.maximum(1 - fitting / nothing_found, 0.0) - prices / nothing_found - share)

        unfinished = self.settings.unfinished_runs
        if problem.goal.minimize is not Objective.COST or not self.settings.deadline_first_try:
            return net(unfinished * float(np.exp(mean[surest])), share)
        run = float(fitting[surest])
        if run <= 0:  # no trial leaves time for a run
            return np.zeros(len(mean))
        measured = model.posterior.data.rows
        missed = len(measured) - len(np.unique(problem.space.encoding.machine[measured]))  # beyond the first looks
        times = self.settings.first_try_runs * self.settings.first_try_growth**missed
        # As when something fits: a share of the limits costs as much as that share of the run.
        goes_on = net(unfinished * run, share / unfinished) > 0
        return np.where(goes_on, np.exp(net(times * run, share / times)), 0.0)

    def _tei(
        self,
        problem: Problem,
        history: History,
        remaining: Remaining,
        *,
        target: float | None,
        model: SpeedModel,
        candidates: Mask,
    ) -> tuple[Floats, str]:
        """(N,) expected improvement for the trial's price where the slack of equations 5 and 6 is not negative.

        Slack is what remains of the limit after the trial and the training on it, at the expected speed. While nothing
        measured fits and no candidate has slack, the upper end of the confidence interval is the speed. The improvement
        (equation 4) is of the speed if time is minimised or nothing fits yet, else of the goal's value; the price
        (equations 7 and 8) is in the goal's unit.
        """
        prices = self._trial_price(problem, 0.0) if self.settings.price else np.ones(len(problem.space))
        if target is None or problem.goal.minimize is Objective.TIME:
            work = problem.work_samples
            best_speed = work / target if target else max(trial.samples_per_second for trial in history.measured)
            gain = expected_rise(np.log(work) - model.log_seconds, model.variance, best_speed)
        else:
            scale = np.log(problem.goal.scale(problem.dollars_per_second))
            gain = expected_saving(model.log_seconds + scale, model.variance, target)
        log_longest = self._log_longest(problem, replace(remaining, guarded=False))
        has_slack = model.log_seconds <= log_longest
        if target is None and not (has_slack & candidates).any():
            has_slack = model.log_seconds - self.settings.bound_sigmas * np.sqrt(model.variance) <= log_longest
        reason = "largest expected improvement for its price, with slack for the training"
        return np.where(has_slack, gain / prices, 0.0), reason


def _suggestion(problem: Problem, row: int, reason: str, model: SpeedModel | None) -> Suggestion:
    expected = None if model is None else model.expectation(row)
    return Suggestion(config=problem.space.configs[row], reason=reason, expected=expected)


def _work_done(problem: Problem, model: SpeedModel, target: float) -> Floats:
    """(N,) how much shorter or cheaper the incumbent's run becomes through the work that a trial is expected to do."""
    useful = np.maximum(problem.planned_trial_seconds - model.startup_seconds, 0.0)
    share = useful * np.exp(model.log_speed) / problem.work_samples
    return np.asarray(np.minimum(share, 1.0) * target)


def _only_time_counts(problem: Problem) -> bool:
    return problem.goal.budget is None and problem.goal.minimize is Objective.TIME


def _has_missed(problem: Problem, history: History, remaining: Remaining, incumbent: Plan | None) -> bool:
    """Whether a measured configuration beats the incumbent but does not fit."""
    if incumbent is None:
        return False
    value = incumbent.value(problem)
    return any(plan.value(problem) < value and not remaining.fits(plan) for plan in plans(problem, history))


def _is_one_fast_curve(problem: Problem) -> bool:
    """Whether time is minimised and only the number of nodes varies, so that every trial informs all others."""
    return not problem.space.encoding.identity.any() and problem.goal.minimize is Objective.TIME


def _may_pay(problem: Problem, incumbent: Plan, model: SpeedModel, prices: Floats, sigmas: float) -> Mask:
    """(N,) whether the bound `sigmas` below the mean, plus the trial's price, beats the incumbent (paper III-C)."""
    scale = problem.goal.scale(problem.dollars_per_second)
    optimistic = np.exp(model.log_seconds - sigmas * np.sqrt(model.variance)) * scale
    return np.asarray(optimistic + prices < incumbent.value(problem))


def _share_of_limits(problem: Problem) -> Floats:
    """(N,) a trial's price as a share of the tighter limit."""
    share = np.zeros(len(problem.space))
    seconds = problem.planned_trial_seconds
    if problem.goal.deadline_seconds is not None:
        share = np.maximum(share, seconds / problem.goal.deadline_seconds)
    if problem.goal.budget is not None:
        share = np.maximum(share, problem.planned_trial_dollars / problem.goal.budget.dollars)
    return share
