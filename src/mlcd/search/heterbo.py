"""HeterBO (Yi et al., IPDPS 2020): Bayesian optimisation that knows what each trial costs and what must be kept back."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from mlcd.models import gp
from mlcd.models.speed import SpeedModel, speed_model
from mlcd.problem import Problem
from mlcd.search.acquisition import expected_rise, expected_saving
from mlcd.search.candidates import open_rows, rising_rows
from mlcd.search.strategy import MeasuredStrategy
from mlcd.trial.plan import Left, Plan, best_fitting, margin_sigmas
from mlcd.trial.trial import History, Suggestion

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

UNFINISHED = 3.0
"""While nothing measured fits, ending empty-handed counts as this many times the best run expected."""


@dataclass(frozen=True, kw_only=True)
class HeterBO(MeasuredStrategy):
    """Single nodes first, cheapest first; then the trial with the largest net gain, until none is worth its price.

    start        how many types are tried on their fewest nodes first: a number, "all" (the paper), or "auto"
    acquisition  net: expected improvement in the goal's unit where it fits, less the trial's price
                 tei: equations 5-6 as repaired (slack after the trial and the expected run)
                 tei-literal: equations 5-6 as printed
    price        off: trials are thought to cost nothing
    prune        off: no concave prior on the speed over nodes
    gate         off: no test that the optimistic bound pays for the trial
    reserve      off: nothing is kept back for the incumbent (simulated clouds only)
    """

    name: ClassVar[str] = "heterbo"
    start: str = "auto"
    acquisition: Literal["net", "tei", "tei-literal"] = "net"
    price: bool = True
    prune: bool = True
    gate: bool = True
    reserve: bool = True

    @property
    def guarded(self) -> bool:
        """Unless its reserve is switched off."""
        return self.reserve

    def suggest(self, problem: Problem, history: History, left: Left, count: int) -> tuple[Suggestion, ...]:
        """The start, then by the acquisition; several at once as if each had come out as expected."""
        candidates = open_rows(problem, history, left)
        if self.prune:
            candidates &= rising_rows(problem, history)
        picks = [
            Suggestion(config=problem.space.configs[row], reason="fewest nodes of a type not tried yet")
            for row in self._start(problem, history, left, candidates)[:count]
        ]
        model = speed_model(problem, history)
        if model is None or picks:
            return tuple(picks)
        return self._by_acquisition(problem, history, left, model, candidates, count)

    # ---- start

    def _start(self, problem: Problem, history: History, left: Left, candidates: Mask) -> list[int]:
        """The rows still to try: each type's fewest nodes, cheapest trial first."""
        identity = problem.space.encoding.identity
        known = {int(identity[problem.space.index[t.config]]) for t in history.measured}
        wanted = len(np.unique(identity)) if self.start == "all" else 0
        if self.start == "auto":
            wanted = 2
        elif self.start != "all":
            wanted = int(self.start)
        firsts = []
        for kind in np.unique(identity[candidates]):
            if int(kind) not in known:
                rows = np.flatnonzero(candidates & (identity == kind))
                firsts.append(int(rows[problem.nodes[rows].argmin()]))
        firsts.sort(key=lambda row: (problem.worst_trial_micros[row], row))
        return firsts[: max(wanted - len(known), 0)]

    # ---- acquisition

    def _by_acquisition(
        self, problem: Problem, history: History, left: Left, model: SpeedModel, candidates: Mask, count: int
    ) -> tuple[Suggestion, ...]:
        incumbent = best_fitting(problem, history, left)
        picks: list[Suggestion] = []
        log_seconds, variance, posterior = model.log_seconds, model.variance, model.posterior
        candidates = candidates.copy()
        round_seconds = 0.0
        while len(picks) < count and candidates.any():
            prices = self._trial_price(problem, round_seconds)
            score, passes = self._net(problem, left, incumbent, log_seconds, variance, prices)
            eligible = candidates & passes
            if not eligible.any():
                break
            row = int(np.where(eligible, score, -np.inf).argmax())
            if score[row] <= 0:
                break
            picks.append(Suggestion(config=problem.space.configs[row], reason=self._reason(problem, score[row])))
            candidates[row] = False
            round_seconds = max(round_seconds, float(problem.planned_trial_seconds[row]))
            if len(picks) < count:
                posterior = _as_expected(posterior, row)
                variance = posterior.predict()[1]
        return tuple(picks)

    def _trial_price(self, problem: Problem, round_seconds: float) -> Floats:
        """(N,) what one more trial costs in the goal's unit, beside trials that take `round_seconds` anyway."""
        if not self.price:
            return np.zeros(len(problem.space))
        seconds = problem.planned_trial_seconds
        usd = seconds * problem.dollars_per_second
        extra = np.maximum(seconds - round_seconds, 0.0)
        return np.array([problem.goal.value(s, u) for s, u in zip(extra, usd, strict=True)])

    def _net(
        self,
        problem: Problem,
        left: Left,
        incumbent: Plan | None,
        log_seconds: Floats,
        variance: Floats,
        prices: Floats,
    ) -> tuple[Floats, Mask]:
        scale = np.log(problem.goal.scale(problem.dollars_per_second))
        mean = log_seconds + scale
        passes = np.ones(len(mean), dtype=bool)
        if incumbent is None:
            chance = CDF((_log_seconds_that_fit(problem, left) - log_seconds) / np.sqrt(variance))
            share = _share_of_limits(problem)
            if MODE == "pf":
                return chance - share, passes
            if MODE == "pfl":
                return chance - share - self._opp(problem, left, log_seconds, variance, share, chance), passes
            cap = _log_seconds_that_fit(problem, left) + scale
            target = UNFINISHED * _likely_value(mean, variance, cap)
            gain = expected_saving(mean, variance, target, cap)
            return gain - prices * (MODE != "virt0"), passes
        cap = _log_seconds_that_fit(problem, left) + scale
        target = incumbent.value(problem)
        gain = expected_saving(mean, variance, target, cap)
        if self.gate and incumbent is not None:
            passes = np.exp(mean - 1.645 * np.sqrt(variance)) + prices < target
        return gain - prices, passes

    def _opp(self, problem, left, log_seconds, variance, share, chance):
        import dataclasses

        grid = np.linspace(0, 1, 9) * share.max()
        best = []
        for g in grid:
            l = dataclasses.replace(
                left,
                usd=None if left.usd is None else Usd(int(left.usd.micros - g * problem.goal.budget.micros)),
                seconds=None if left.seconds is None else left.seconds - g * problem.goal.deadline_seconds,
            )
            c = CDF((_log_seconds_that_fit(problem, l) - log_seconds) / np.sqrt(variance))
            best.append(c.max())
        return best[0] - np.interp(share, grid, best)

    def _reason(self, problem: Problem, score: float) -> str:
        return f"expected to save {score:.3g} {problem.goal.unit} net of its price"


import os
from scipy.special import ndtr
from mlcd.units import Usd

MODE = os.environ.get("MODE", "pf")
DF = float(os.environ.get("DF", "0"))
from scipy.special import stdtr

CDF = (lambda z: stdtr(DF, z)) if DF else ndtr


def _share_of_limits(problem: Problem) -> Floats:
    """(N,) a trial's price as a share of the limits, the tighter of the two."""
    share = np.zeros(len(problem.space))
    seconds = problem.planned_trial_seconds
    if problem.goal.deadline_seconds is not None:
        share = np.maximum(share, seconds / problem.goal.deadline_seconds)
    if problem.goal.budget is not None:
        share = np.maximum(share, seconds * problem.dollars_per_second / problem.goal.budget.dollars)
    return share


def _likely_value(mean: Floats, variance: Floats, log_cap: Floats) -> float:
    """The value expected of the deployment that most probably fits."""
    row = int(((log_cap - mean) / np.sqrt(variance)).argmax())
    return float(np.exp(mean[row]))


def _log_seconds_that_fit(problem: Problem, left: Left) -> Floats:
    """(N,) ln of the longest run that would still fit, at its upper bound, after a trial of each configuration."""
    longest = np.full(len(problem.space), np.inf)
    trial = problem.planned_trial_seconds
    if left.seconds is not None:
        longest = np.minimum(longest, left.seconds - trial)
    if left.usd is not None:
        longest = np.minimum(longest, left.usd.dollars / problem.dollars_per_second - trial)
    margin = margin_sigmas(problem.assurance) * problem.noise
    with np.errstate(divide="ignore"):
        return np.log(np.maximum(longest, 0.0)) - margin


def _as_expected(posterior: gp.Posterior, row: int) -> gp.Posterior:
    """The process had the trial of `row` come out at its mean: the mean stays, the doubt shrinks."""
    mean = posterior.predict()[0]
    data = gp.Data(
        rows=np.append(posterior.data.rows, row),
        values=np.append(posterior.data.values, mean[row]),
        errors=np.append(posterior.data.errors, float(posterior.data.errors.mean())),
    )
    return gp.at(posterior.inputs, data, posterior.theta)
