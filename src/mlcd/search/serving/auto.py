"""auto for serving: what is known before the first trial, corrected by trials that must pay for themselves."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mlcd.known.tables import Known, TargetModel
from mlcd.models.serving.gaussian import Belief
from mlcd.models.serving.language import LanguagePrior
from mlcd.problem import Problem
from mlcd.search.serving.auto_settings import ServingAutoSettings
from mlcd.search.serving.falcon_settings import FalconTransferSettings
from mlcd.search.serving.falcon_transfer import operator_prior
from mlcd.search.serving.heterbo import ServingHeterBO
from mlcd.search.serving.language_sizes import sizes_prior
from mlcd.search.serving.own_knobs import OwnKnobs, has_only_own_knobs
from mlcd.search.serving.paces import Paces
from mlcd.search.serving.posterior import Mask, PosteriorStrategy, ServingPrior
from mlcd.search.serving.serving_forecast import LoadTests, ServingForecast, load_tests, outlook
from mlcd.search.serving.table_informed import ById, Need
from mlcd.search.strategy import Strategy
from mlcd.space import Space
from mlcd.trial.plan import Plan, Remaining
from mlcd.trial.trial import FailureKind, History, Suggestion
from mlcd.units import HOUR, chance_text

Floats = NDArray[np.float64]

DEFAULTS = ServingAutoSettings()

RUNS_WHERE_IT_FITS, RUNS_WHERE_NOT, RUNS_UNKNOWN = 0.95, 0.02, 0.7
"""The probability that a trial does not run out of memory: by the model's sizes, against them, and without them."""


@dataclass(frozen=True, kw_only=True, eq=False)
class AutoPrior(ServingPrior):
    """A belief with the model's description, and one without it (mlcd.models.serving.language).

    language  None where the prior comes from operators, or from nothing
    """

    language: LanguagePrior | None = None


@dataclass(frozen=True, kw_only=True)
class ServingAuto(PosteriorStrategy):
    """The trial that may turn out best for its price, until none is expected to pay for itself.

    What is known before the first trial, the first of these that there is: a language model's sizes with the GPUs' data
    sheets and runs of other models; an ONNX model's operators. Where there is neither, it searches as `heterbo` does,
    and as `bayesian` does where only a server's own settings can be chosen. Its options are `steps` and the fields of
    ServingAutoSettings.
    """

    name: ClassVar[str] = "auto"
    needs: ClassVar[frozenset[Need]] = frozenset()
    needs_operators: ClassVar[bool] = False

    settings: ServingAutoSettings = DEFAULTS

    def prior(self, problem: Problem) -> AutoPrior:
        """See PosteriorStrategy. Raises ValueError where nothing is known."""
        found = self._known_prior(problem)
        if found is None:
            raise ValueError("nothing is known of the model or of others")
        return found

    def suggest(self, problem: Problem, history: History, remaining: Remaining, count: int) -> tuple[Suggestion, ...]:
        """As PosteriorStrategy; as heterbo or bayesian where nothing is known.

        What does not fit into memory by the model's sizes is left out before anything is measured. Then the sizes may
        turn out wrong: it is tried if what it may save, times that probability, pays for the trial.
        """
        if not self.knows_something(problem):
            return self._uninformed(problem).suggest(
                problem, history, remaining, min(count, self.trials_left(problem, history))
            )
        if not history.measured:
            fits = self.outlook_memory(problem, history) >= self.settings.least_memory
            fitting = replace(remaining, allowed=remaining.allowed & fits)
            remaining = fitting if fitting.allowed.any() else remaining
        return super().suggest(problem, history, remaining, count)

    def knows_something(self, problem: Problem) -> bool:
        """Whether anything is known before the first trial."""
        return self._known_prior(problem) is not None

    def recommend(self, problem: Problem, history: History, remaining: Remaining) -> Plan | None:
        """As PosteriorStrategy; as heterbo or bayesian where nothing is known."""
        if not self.knows_something(problem):
            return self._uninformed(problem).recommend(problem, history, remaining)
        return super().recommend(problem, history, remaining)

    def ending(self, problem: Problem, history: History, remaining: Remaining) -> str:
        """As PosteriorStrategy; as heterbo or bayesian where nothing is known."""
        if not self.knows_something(problem) and self.trials_left(problem, history) > 0:
            return self._uninformed(problem).ending(problem, history, remaining)
        return super().ending(problem, history, remaining)

    def paying(self, problem: Problem, worth: ServingForecast) -> Mask:
        """Whether the expected saving, while the choice serves, exceeds the trial's price."""
        return np.asarray(worth.gain > worth.best * np.maximum(self._price_shares(problem, worth), self.settings.gain))

    def pick(self, problem: Problem, history: History, worth: ServingForecast, candidates: Mask) -> tuple[int, str]:
        """The largest net saving; before anything kept the limits, the largest expected worth."""
        likely = "keeps the limits with probability"
        if worth.incumbent is None:
            row = self._first(problem, history, worth, candidates)
            return row, f"expected to be the best, {likely} {chance_text(worth.keeps[row])}"
        net = worth.gain / worth.best - self._price_shares(problem, worth)
        row = int(np.where(candidates, net, -np.inf).argmax())
        return row, f"expected to save {net[row]:.1%} net of its price, {likely} {chance_text(worth.keeps[row])}"

    def small_gain(self, problem: Problem) -> str:  # noqa: ARG002
        """The ending by net gain."""
        hours = self.settings.hours
        return f"no load test is expected to save {self.settings.gain:.1%}, or its price in {hours:g} hours of serving"

    def outlook(self, problem: Problem, history: History, pending: tuple[int, ...] = ()) -> ServingForecast:
        """See PosteriorStrategy. A language model's comes from both beliefs, each with its probability."""
        prior, fits = self.prior(problem), self.outlook_memory(problem, history)
        language = prior.language
        if language is None:
            data, waiting = load_tests(problem, history), self.settings.waiting_deviation
            mean, variance = _given(prior.belief, data, pending, problem.noise)
            return outlook(problem, history, mean, variance, fits, waiting_deviation=waiting)
        ran = np.zeros(len(fits), dtype=bool)
        ran[load_tests(problem, history).rows] = True
        anywhere = np.ones(len(fits))
        shares: tuple[tuple[float, Belief, Floats], ...] = ((1.0, language.undescribed, anywhere),)
        if language.described is not None:
            trust = self._trust(language, problem, history)
            memory = (language.fits | ran).astype(float)
            shares = ((trust, language.described, memory), (1 - trust, language.undescribed, anywhere))
        return Paces(problem=problem, history=history, language=language, shares=shares).forecast(pending)

    def outlook_memory(self, problem: Problem, history: History) -> Floats:
        """(N,) the probability that memory suffices, by the description and by how far trials agree with it."""
        prior = self.prior(problem)
        fits = prior.fits
        if prior.language is not None and prior.language.described is not None:
            trust = self._trust(prior.language, problem, history)
            fits = trust * np.where(prior.language.fits, 1.0, 0.0) + (1 - trust)
        found = fits.copy()
        found[load_tests(problem, history).rows] = 1.0  # these ran
        return found

    def _uninformed(self, problem: Problem) -> Strategy:
        if has_only_own_knobs(problem.space):
            return OwnKnobs(seed=self.seed)
        return ServingHeterBO(seed=self.seed)

    def _known_prior(self, problem: Problem) -> AutoPrior | None:
        return _prior(ById(problem.space), self.known, self.target)

    def _trust(self, language: LanguagePrior, problem: Problem, history: History) -> float:
        """The probability that the description is right, after the trials."""
        if language.described is None:
            return 0.0
        ran = language.fits[load_tests(problem, history).rows]
        data = Paces(problem=problem, history=history, language=language).tests
        log_odds = np.log(self.settings.described / (1 - self.settings.described))
        if len(data.rows):
            log_odds += _level_density(language.described, data) - _level_density(language.undescribed, data)
        log_odds += float(np.log(np.where(ran, RUNS_WHERE_IT_FITS, RUNS_WHERE_NOT) / RUNS_UNKNOWN).sum())
        for failure in history.failures:
            if failure.kind is FailureKind.OUT_OF_MEMORY:
                runs = RUNS_WHERE_IT_FITS if language.fits[problem.space.index[failure.config]] else RUNS_WHERE_NOT
                log_odds += np.log((1 - runs) / (1 - RUNS_UNKNOWN))
        return float(1 / (1 + np.exp(-np.clip(log_odds, -50, 50))))

    def _first(self, problem: Problem, history: History, worth: ServingForecast, candidates: Mask) -> int:
        """The largest expected worth; of equal ones, the one that tells most about the others."""
        likely = np.where(candidates, worth.gain, -1.0)
        among = np.flatnonzero(likely >= likely.max() * (1 - 1e-6))
        if len(among) == 1 or len(history):
            return int(among[0])
        prior = self.prior(problem)
        width = len(prior.language.users) if prior.language is not None and prior.language.users else 1
        told = prior.belief.covariance.sum(axis=1).reshape(-1, width).sum(axis=1)
        return int(among[told[among].argmax()])

    def _price_shares(self, problem: Problem, worth: ServingForecast) -> Floats:
        """(N,) a trial's price as a share of what serving costs in `hours`, in the goal's unit."""
        seconds = problem.planned_trial_seconds
        prices = problem.goal.values(seconds, seconds * problem.dollars_per_second)
        row = worth.incumbent if worth.incumbent is not None else int(worth.log_value.argmin())
        served = np.array([max(self.settings.hours, 1e-6) * HOUR])
        whole = problem.goal.values(served, served * problem.dollars_per_second[row])
        return np.asarray(prices / whole[0])


def _level_density(belief: Belief, data: LoadTests) -> float:
    """ln of the density that the belief gave to the median residual: many paces of one server say one thing."""
    off = float(np.median(data.log_seconds - belief.mean[data.rows]))
    deviation = float(np.sqrt(np.diag(belief.covariance)[data.rows].mean()))
    return -0.5 * (off / deviation) ** 2 - float(np.log(deviation))


def _given(belief: Belief, data: LoadTests, pending: tuple[int, ...], noise: float) -> tuple[Floats, Floats]:
    mean, variance = belief.given(data.rows, data.log_seconds, data.errors)
    if not pending:
        return mean, variance
    rows = np.append(data.rows, pending).astype(np.intp)
    values = np.append(data.log_seconds, mean[list(pending)])
    return belief.given(rows, values, np.append(data.errors, np.full(len(pending), noise)))


@lru_cache(maxsize=8)
def _prior(space: ById[Space], known: Known | None, target: TargetModel | None) -> AutoPrior | None:
    """What is known before the first trial; None if nothing is."""
    configs = space.value.configs
    ones = np.ones(len(configs))
    language = sizes_prior(space, known, target)
    if language is not None:
        belief = language.described or language.undescribed
        if np.ptp(belief.mean.reshape(len(configs), -1), axis=0).max() > 0:  # tells them apart
            return AutoPrior(belief=belief, fits=ones, unseen={}, language=language)
    if known is not None and target is not None and target.operators and known.curves:
        found = operator_prior(space, known, target, FalconTransferSettings())
        return AutoPrior(belief=found.belief, fits=found.fits, unseen=found.unseen)
    return None
