"""auto: mlcd's own strategy. Every trial, the first included, must pay for itself in the goal's own unit."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mlcd.models.mixed_speed import BELIEFS, Level, MixedModel, as_expected, mixed_model
from mlcd.problem import Problem
from mlcd.search.auto_settings import AutoSettings
from mlcd.search.beside import after_a_trial
from mlcd.search.candidates import chance_to_run, open_rows
from mlcd.search.choice_now import choice_now
from mlcd.search.net_value import NetValues, Setting, money_for_search, net_values
from mlcd.search.strategy import MeasuredStrategy
from mlcd.search.wording import amount, ending
from mlcd.trial.plan import Remaining
from mlcd.trial.trial import History, Suggestion
from mlcd.units import chance_text

Mask = NDArray[np.bool_]

DEFAULTS = AutoSettings()

MOST_IN_A_ROUND = 64
"""Trials of one round. Each of them adds a vector over all configurations to the model: 50 MB of 100,000."""


@dataclass(frozen=True, kw_only=True)
class Auto(MeasuredStrategy):
    """The trial that may turn out best for its price, until none is expected to pay for itself.

    Its options are the fields of AutoSettings.
    """

    name: ClassVar[str] = "auto"
    settings: AutoSettings = DEFAULTS

    @property
    def watched(self) -> bool:
        """See Watching."""
        return self.settings.watched

    @property
    def least_trial(self) -> float:
        """See EndsTrials."""
        return self.settings.least_trial

    @property
    def other_jobs(self) -> bool:
        """See OtherJobs."""
        return self.settings.other_jobs

    def suggest(self, problem: Problem, history: History, remaining: Remaining, count: int) -> tuple[Suggestion, ...]:
        """The best by net value. Each one assumes that those before it go as expected."""
        count = min(count, MOST_IN_A_ROUND)
        candidates = open_rows(problem, history, remaining, memory=self.settings.memory)
        problem, history, remaining = after_a_trial(problem, history, remaining)
        level = self._level(problem, history)
        beliefs = BELIEFS if self.settings.mixture else (max(BELIEFS, key=lambda belief: belief.weight),)
        model = mixed_model(problem, history, beliefs, level)
        now = choice_now(problem, history, remaining, watched=self.settings.watched)
        setting = Setting(
            problem=problem,
            remaining=remaining,
            settings=self.settings,
            now=now,
            runs=chance_to_run(problem, history, self.settings.failed_share),
        )
        if not history.measured and level is None:
            return self._first_looks(setting, model, candidates, count)
        picks: list[Suggestion] = []
        prices = problem.planned_trial_dollars
        round_usd = self._round_usd(setting, model, candidates)
        while len(picks) < count and candidates.any():
            values = net_values(setting, model, candidates)
            row = int(values.rank.argmax())
            if not np.isfinite(values.rank[row]):
                break
            picks.append(
                Suggestion(
                    config=problem.space.configs[row],
                    reason=_reason(setting, values, row),
                    expected=model.expectation(row) if history.measured else None,
                    chance=None if setting.now is None else float(values.chance[row]),
                )
            )
            if len(picks) > 1:
                round_usd -= float(prices[row])
            candidates = _without(candidates, row) & (prices <= round_usd)
            if len(picks) < count and candidates.any():
                setting = self._after(setting, model, row)
                model = as_expected(model, row, problem.noise)
        return tuple(picks)

    def ending(self, problem: Problem, history: History, remaining: Remaining) -> str:
        """The limits, the reserve, or no trial that pays for itself."""
        return ending(problem, history, remaining, memory=self.settings.memory)

    def _level(self, problem: Problem, history: History) -> Level | None:
        """How long the job is, as far as its limits say; None if they say nothing.

        They are for all of the work: where a part of it is done, they say nothing about the rest. With settings to
        choose, a measured speed says more: a limit far from it would be explained by the settings of the trial.
        """
        goal, settings = problem.goal, self.settings
        outdated = bool(history.measured) and (problem.keeps_work or problem.beside or bool(problem.space.settings))
        if not (settings.level and goal.is_limited and problem.work_known) or outdated:
            return None
        deadline, budget = goal.deadline_seconds, goal.budget
        return Level(
            log_seconds=None if deadline is None else float(np.log(deadline / settings.deadline_runs)),
            log_usd=None if budget is None else float(np.log(budget.dollars / settings.budget_runs)),
            deviation=settings.level_deviation,
        )

    def _first_looks(self, setting: Setting, model: MixedModel, candidates: Mask, count: int) -> tuple[Suggestion, ...]:
        """Nothing is known of the job's length: what is expected to be best; then what may be better than that."""
        problem = setting.problem
        picks: list[Suggestion] = []
        best = np.inf
        while len(picks) < count and candidates.any():
            values = problem.log_values(problem.goal, model.log_seconds)
            mean = model.weights @ values
            spread = model.weights @ np.sqrt(model.variance)
            row = int(np.where(candidates, mean - (spread if picks else 0.0), np.inf).argmin())
            if picks and mean[row] - spread[row] > best:
                break
            best = min(best, float(mean[row]))
            reason = "a first look: expected to be among the best" if picks else "a first look: expected to be the best"
            picks.append(Suggestion(config=problem.space.configs[row], reason=reason))
            candidates = _without(candidates, row)
            if len(picks) < count:
                model = as_expected(model, row, problem.noise)
        return tuple(picks)

    def _round_usd(self, setting: Setting, model: MixedModel, candidates: Mask) -> float:
        """What the trials of the round may cost together, besides the first; infinite without a budget."""
        if setting.remaining.usd is None or not candidates.any():
            return math.inf
        return self.settings.round_share * money_for_search(setting, model, candidates)

    def _after(self, setting: Setting, model: MixedModel, row: int) -> Setting:
        """The setting for the next trial of the same round, after one of `row`."""
        problem = setting.problem
        seconds = max(setting.round_seconds, float(problem.planned_trial_seconds[row]))
        target = setting.target
        if self.settings.round_target and setting.now is not None:
            expected = float(np.exp(problem.log_values(setting.goal, model.mean)[row]))
            target = expected if target is None else min(target, expected)
        return replace(setting, round_seconds=seconds, target=target)


def _without(candidates: Mask, row: int) -> Mask:
    left = candidates.copy()
    left[row] = False
    return left


def _reason(setting: Setting, values: NetValues, row: int) -> str:
    if setting.now is None:
        chance = chance_text(values.chance[row])
        return f"nothing measured fits the limits yet; this fits with probability {chance}, at a low price"
    return f"expected to save {amount(setting.problem, float(values.net[row]))} net of its price"
