"""The base class of falcon and falcon-transfer: a belief about latency, updated by trials, guides the choice."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mlcd.models.serving.gaussian import Belief
from mlcd.problem import Problem
from mlcd.search.serving.falcon_settings import BeliefSettings
from mlcd.search.serving.serving_forecast import ServingForecast, load_tests, outlook
from mlcd.search.serving.table_informed import Need, TableInformedStrategy, open_rows
from mlcd.trial.plan import Plan, Remaining, plans
from mlcd.trial.trial import History, Suggestion

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

DEFAULTS = BeliefSettings()


@dataclass(frozen=True, kw_only=True, eq=False)
class ServingPrior:
    """What is known of the model before its first trial, for the configurations of a problem.

    belief  of ln seconds of a batch
    fits    (N,) the probability that memory suffices
    unseen  operators that were never measured, each with the one used in its place
    """

    belief: Belief
    fits: Floats
    unseen: Mapping[str, str]

    @property
    def caveat(self) -> str:
        """Names the operators that were never measured; empty if there are none."""
        named = ", ".join(f"{name} (treated as {like})" for name, like in self.unseen.items())
        return f"; never measured before: {named}" if named else ""


@dataclass(frozen=True, kw_only=True)
class PosteriorStrategy(TableInformedStrategy, ABC):
    """Suggests by a belief about the latency of every configuration, updated after each trial."""

    needs: ClassVar[frozenset[Need]] = frozenset({"known", "target"})
    needs_operators: ClassVar[bool] = True

    settings: BeliefSettings = DEFAULTS

    @abstractmethod
    def prior(self, problem: Problem) -> ServingPrior:
        """The belief before the first trial. Called often; cache it for each problem."""

    @abstractmethod
    def pick(self, problem: Problem, history: History, worth: ServingForecast, candidates: Mask) -> tuple[int, str]:
        """One of the candidates (there is at least one), and why it is worth a trial."""

    def paying(self, problem: Problem, worth: ServingForecast) -> Mask:  # noqa: ARG002
        """(N,) whether a trial is worth its price, given that something keeps the limits."""
        return np.asarray(worth.gain > self.settings.gain * worth.best)

    def suggest(self, problem: Problem, history: History, remaining: Remaining, count: int) -> tuple[Suggestion, ...]:
        """One after another; each assumes that those before it go as predicted."""
        prior, is_open = self.prior(problem), open_rows(problem, history, remaining)
        rows: list[int] = []
        found = []
        for _ in range(min(count, self.trials_left(problem, history))):
            is_open[rows] = False
            if not is_open.any():
                break
            worth = self.outlook(problem, history, tuple(rows))
            paying = is_open & self.paying(problem, worth) if worth.has_incumbent else is_open
            least = self.settings.least + self.settings.unseen_trials * bool(prior.unseen)
            may_end = len(history.tried) + len(rows) >= least
            if may_end and (not paying.any() or worth.is_hopeless(is_open, self.settings.least_probability)):
                break
            row, reason = self.pick(problem, history, worth, paying if paying.any() else is_open)
            rows.append(row)
            found.append(Suggestion(config=problem.space.configs[row], reason=reason + prior.caveat))
        return tuple(found)

    def recommend(self, problem: Problem, history: History, remaining: Remaining) -> Plan | None:
        """The best that fits by the belief after all trials: the largest value x P(limits kept)^`limit_weight`.

        One that barely kept them in a noisy trial loses to one that keeps them safely and is hardly worse.
        """
        fitting = [plan for plan in plans(problem, history) if remaining.fits(plan)]
        if not fitting:
            return None
        worth = self.outlook(problem, history)
        believed = worth.log_value - self.settings.limit_weight * np.log(np.maximum(worth.keeps, 1e-6))
        return min(fitting, key=lambda plan: believed[problem.space.index[plan.config]])

    def ending(self, problem: Problem, history: History, remaining: Remaining) -> str:
        """The trial limit, nothing open or likely, or a small gain."""
        if self.trials_left(problem, history) <= 0:
            return f"all {len(history.tried)} load tests of {self.name} were made"
        if not open_rows(problem, history, remaining).any():
            return "nothing more may be tried"
        if not any(trial.meets(problem.goal) for trial in history.measured):
            return "nothing that may still be tried is likely to keep the limits"
        return self.small_gain(problem)

    def small_gain(self, problem: Problem) -> str:  # noqa: ARG002
        """The ending by a small gain."""
        return f"no load test is expected to save {self.settings.gain:.2%} of the best"

    def outlook(self, problem: Problem, history: History, pending: tuple[int, ...] = ()) -> ServingForecast:
        """The forecast of each configuration after the trials, assuming that the pending ones go as expected."""
        prior, data = self.prior(problem), load_tests(problem, history)
        mean, variance = prior.belief.given(data.rows, data.log_seconds, data.errors)
        if pending:
            rows = np.append(data.rows, pending).astype(np.intp)
            values = np.append(data.log_seconds, mean[list(pending)])
            errors = np.append(data.errors, np.full(len(pending), problem.noise))
            mean, variance = prior.belief.given(rows, values, errors)
        fits = prior.fits.copy()
        fits[data.rows] = 1.0  # these ran
        return outlook(problem, history, mean, variance, fits, waiting_deviation=self.settings.waiting_deviation)
