"""BoTorch: its Gaussian process over the same features as mlcd's, and the expected improvement for its price."""

from dataclasses import dataclass
from importlib import import_module
from typing import ClassVar

import numpy as np
from scipy.special import ndtr

from mlcd.problem import Problem
from mlcd.search.acquisition import expected_saving
from mlcd.search.candidates import log_seconds_that_fit
from mlcd.trial.plan import Remaining
from peers.peer import Peer, Rows, Told


@dataclass(frozen=True, kw_only=True)
class BoTorchPeer(Peer):
    """SingleTaskGP with its own priors; EI x Pr[fits] / price over all candidates.

    stops  whether it ends when no expected improvement exceeds the price of its trial, as a careful user would
    """

    name: ClassVar[str] = "botorch"
    package: ClassVar[str] = "botorch"
    stops: bool = True

    def ask(self, problem: Problem, told: list[Told], remaining: Remaining, rows: Rows) -> int | None:
        """See Peer."""
        torch, library = import_module("torch"), import_module("botorch")
        likelihoods = import_module("gpytorch.mlls")
        torch.set_num_threads(1)
        torch.manual_seed(self.seed)
        encoding = problem.space.encoding
        node_price = np.log2(problem.dollars_per_second / problem.nodes)[:, None]
        inputs = np.hstack([encoding.features, encoding.counts, encoding.totals, node_price])
        inputs = (inputs - inputs.min(axis=0)) / np.maximum(np.ptp(inputs, axis=0), 1e-12)
        at = np.array([problem.space.index[each.config] for each in told])
        x = torch.tensor(inputs, dtype=torch.double)
        values = np.array([each.log_value for each in told])
        y = torch.tensor(values, dtype=torch.double).unsqueeze(-1)
        model = library.models.SingleTaskGP(x[at], y)
        library.fit_gpytorch_mll(likelihoods.ExactMarginalLogLikelihood(model.likelihood, model))
        with torch.no_grad():
            posterior = model.posterior(x[rows])
            mean = posterior.mean.squeeze(-1).numpy()
            variance = np.maximum(posterior.variance.squeeze(-1).numpy(), 1e-12)
        fitting = [each.log_value for each in told if each.log_excess <= 0]
        best = float(np.exp(min(fitting) if fitting else values.max() + 3 * np.sqrt(variance.max())))
        scale = np.log(problem.goal.scale(problem.dollars_per_second))[rows]
        log_cap = log_seconds_that_fit(problem, remaining)[rows] + scale
        gain = expected_saving(mean, variance, best) * ndtr((log_cap - mean) / np.sqrt(variance))
        seconds = problem.planned_trial_seconds
        prices = problem.goal.values(seconds, seconds * problem.dollars_per_second)[rows]
        if self.stops and fitting and (gain <= prices).all():
            return None
        return int(rows[int((gain / prices).argmax())])
