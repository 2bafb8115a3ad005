"""Beyond Falcon: a Gaussian process over models and configurations, the operators' additive latency as its mean."""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mlcd.errors import BadInput
from mlcd.goal import Objective
from mlcd.known.tables import Known, TargetModel
from mlcd.models.serving.gaussian import Belief
from mlcd.models.serving.language import LanguagePrior
from mlcd.models.serving.operators import operator_seconds
from mlcd.models.serving.transfer import transfer_belief
from mlcd.problem import Problem
from mlcd.search.serving.falcon import RESIDUAL_LENGTHS, memory_fits
from mlcd.search.serving.falcon_settings import FalconTransferSettings
from mlcd.search.serving.language_sizes import sizes_prior
from mlcd.search.serving.paces import Paces
from mlcd.search.serving.posterior import Mask, PosteriorStrategy, ServingPrior
from mlcd.search.serving.serving_forecast import ServingForecast, load_tests
from mlcd.search.serving.table_informed import ById, known_rows
from mlcd.space import Config, Space
from mlcd.trial.trial import History
from mlcd.units import chance_text

Floats = NDArray[np.float64]

DEFAULTS = FalconTransferSettings()


@dataclass(frozen=True, kw_only=True)
class FalconTransfer(PosteriorStrategy):
    """The largest expected saving under the limits, until it no longer pays for its trial.

    A language model's operators are those that its sizes say: their times are the roofline's, with factors learnt from
    other models' runs (mlcd.models.serving.language). Its options are `steps` and the fields of FalconTransferSettings.
    """

    name: ClassVar[str] = "falcon-transfer"
    takes_sizes: ClassVar[bool] = True

    settings: FalconTransferSettings = DEFAULTS

    def prior(self, problem: Problem) -> ServingPrior:
        """The prior from the operators and from the residuals of other models. Raises BadInput where there are none."""
        language = self._language(problem)
        if language is None:
            return operator_prior(ById(problem.space), self.tables, self.model, self.settings)
        if language.described is None:
            raise BadInput("search.strategy: falcon-transfer needs a model's operators, or its sizes (config.json)")
        return ServingPrior(belief=language.described, fits=language.fits.astype(float), unseen={})

    def outlook(self, problem: Problem, history: History, pending: tuple[int, ...] = ()) -> ServingForecast:
        """See PosteriorStrategy. A language model's load tests go through several numbers of requests in flight."""
        language = self._language(problem)
        if language is None or language.described is None:
            return super().outlook(problem, history, pending)
        fits = language.fits.astype(float)
        fits[load_tests(problem, history).rows] = 1.0  # these ran
        shares = ((1.0, language.described, fits),)
        return Paces(problem=problem, history=history, language=language, shares=shares).forecast(pending)

    def _language(self, problem: Problem) -> LanguagePrior | None:
        """None where the model is known by its operators. Raises BadInput where some type's GPUs are not known."""
        if self.model.operators or self.tables.lengths is None:
            return None
        found = sizes_prior(ById(problem.space), self.tables, self.model)
        if found is None:
            raise BadInput("search.strategy: falcon-transfer needs the GPUs of every type, from their data sheets")
        return found

    def paying(self, problem: Problem, worth: ServingForecast) -> Mask:
        """Net gain: E[saving on a request] x requests > price of the trial."""
        if problem.goal.minimize is not Objective.COST:
            return super().paying(problem, worth)
        usd = problem.planned_trial_seconds * problem.dollars_per_second
        return np.asarray(worth.gain / problem.work_samples * self.settings.requests > usd)

    def pick(self, problem: Problem, history: History, worth: ServingForecast, candidates: Mask) -> tuple[int, str]:  # noqa: ARG002
        """The largest expected saving."""
        row = int(np.where(candidates, worth.gain, -1.0).argmax())
        likely = f"keeps the limits with probability {chance_text(worth.keeps[row])}"
        if not worth.has_incumbent:
            return row, f"best value by the known models, {likely}"
        return row, f"expected saving {worth.gain[row] / worth.best:.1%} of the best so far, {likely}"

    def small_gain(self, problem: Problem) -> str:
        """The ending by net gain."""
        if problem.goal.minimize is not Objective.COST:
            return super().small_gain(problem)
        return f"no further load test is expected to save what it costs over {self.settings.requests:,.0f} requests"


@lru_cache(maxsize=8)
def operator_prior(
    space: ById[Space], known: Known, target: TargetModel, settings: FalconTransferSettings
) -> ServingPrior:
    """What the operators of a model and the residuals of others tell of it before its first trial."""
    at = known_rows(known, space.value)
    belief = transfer_belief(
        known, target, known_points(known.configs), least_models=settings.least_models, alike=settings.likeness
    )
    if not np.array_equal(at, np.arange(len(known.configs))):
        belief = Belief(mean=belief.mean[at], covariance=belief.covariance[np.ix_(at, at)])
    unseen = {of.operator: of.like for of in operator_seconds(known, target) if of.like}
    return ServingPrior(belief=belief, fits=memory_fits(known)[at], unseen=unseen)


@lru_cache(maxsize=16)
def known_points(configs: tuple[Config, ...]) -> Floats:
    """(N, d) known configurations as numbers: log2 of sizes, a column for each option, in units of RESIDUAL_LENGTHS."""
    columns: list[Floats] = []
    for name, _ in configs[0].values:
        values = [config[name] for config in configs]
        if any(isinstance(value, str) for value in values):
            columns += [
                np.array([float(v == o) for v in values]) * 2 / RESIDUAL_LENGTHS[1] for o in dict.fromkeys(values)
            ]
        else:
            columns.append(np.log2(np.array(values, dtype=float)) / RESIDUAL_LENGTHS[0])
    return np.stack(columns, axis=1)
