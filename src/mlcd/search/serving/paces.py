"""What a load test may bring that goes through several numbers of requests in flight and keeps the best one.

The value of a configuration is that of its best pace within the limits: a maximum over correlated beliefs. So it is
computed from joint samples of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlcd.loadgen.chat.plan import ChatLimit, ChatMetric
from mlcd.models.serving.gaussian import Belief
from mlcd.models.serving.language import LanguagePrior
from mlcd.problem import Problem
from mlcd.search.serving.serving_forecast import LoadTests, ServingForecast
from mlcd.trial.plan import plans
from mlcd.trial.trial import History

Floats = NDArray[np.float64]

SAMPLES = 512
"""Joint samples: the standard error of a probability is at most 0.02. They are drawn with a fixed seed."""
PERCENTILE_SHIFT = {50: 0.0, 95: 0.4, 99: 0.6}
"""ln(percentile / median) of a latency. Unmeasured; the first trial says it."""
PART_OF_REQUEST = {"e2e": (0.0, 0.1), "tpot": (-0.1, 0.3), "ttft": (-1.5, 1.0)}
"""ln(part of a request's time) and its deviation: all of it; the time per token times the tokens; the time to the first
one. Unmeasured; the first trial says it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Paced:
    """Beliefs about ln seconds of a request at N x K paces, each with its probability."""

    problem: Problem
    history: History
    language: LanguagePrior
    shares: Sequence[tuple[float, Belief]]

    @property
    def width(self) -> int:
        """K."""
        return len(self.language.users)

    def tests(self) -> LoadTests:
        """Every pace that the load tests went through."""
        rows, values, errors = [], [], []
        for trial in self.history.measured:
            tokens = None if trial.load is None else trial.load.tokens
            if tokens is None:
                continue
            first = self.problem.space.index[trial.config] * self.width
            per_request = max(tokens.output_tokens, 1e-9)
            seen = [(point.concurrency, point.output_tokens_per_second / per_request) for point in tokens.front]
            for concurrency, rate in seen or [(tokens.concurrency, trial.samples_per_second)]:
                if rate > 0 and concurrency > 0:
                    apart = np.abs(np.log(np.array(self.language.users) / concurrency))
                    rows.append(first + int(apart.argmin()))
                    values.append(np.log(self.language.users[int(apart.argmin())] / rate))
                    errors.append(max(trial.relative_error, float(apart.min())))
        return LoadTests(rows=np.array(rows, dtype=np.intp), log_seconds=np.array(values), errors=np.array(errors))

    def forecast(self, fits: Floats, pending: tuple[int, ...] = ()) -> ServingForecast:
        """What each configuration may bring; `pending` trials are assumed to go as expected."""
        problem, tests = self.problem, self.tests()
        users = np.tile(np.array(self.language.users, dtype=float), len(problem.space))
        scale = problem.goal.scale(problem.dollars_per_second) * problem.work_samples
        log_limits = [self._log_seconds_within(limit, tests) for limit in problem.goal.token_limits]
        fitting = {plan.config: plan.value(problem) for plan in plans(problem, self.history)}
        row = problem.space.index[min(fitting, key=lambda config: fitting[config])] if fitting else None
        values, kept, weights = [], [], []
        for number, (share, belief) in enumerate(self.shares):
            seconds = _samples(belief, tests, number)
            keeps = np.ones(seconds.shape, dtype=bool)
            for at, (bound, deviation) in enumerate(log_limits):
                off = np.random.default_rng([number, at]).standard_normal((SAMPLES, 1))
                keeps &= seconds <= bound + deviation * off
            rates = np.where(keeps, users / np.exp(seconds), 0.0).reshape(SAMPLES, len(problem.space), self.width)
            best = rates.max(axis=2)
            if problem.goal.rate is not None:
                best = np.where(best >= problem.goal.rate, problem.goal.rate, 0.0)
            with np.errstate(divide="ignore"):
                values.append(scale / best)
            kept.append(best > 0)
            weights.append(np.full(SAMPLES, share / SAMPLES))
        value, held, weight = np.concatenate(values), np.concatenate(kept), np.concatenate(weights)
        keeps_all = np.asarray(weight @ held) * fits
        worth = np.asarray(weight @ np.where(held, 1.0 / np.where(held, value, 1.0), 0.0)) * fits
        log_value = np.log(np.maximum(keeps_all, 1e-300) / np.maximum(worth, 1e-300))
        if row is None:
            stand_in = float(np.exp(log_value[keeps_all >= min(0.5, float(keeps_all.max()))].max()))
            gain, least = stand_in**2 * worth, stand_in
        else:
            least = fitting[problem.space.configs[row]]
            target = least
            if pending:
                target = min(least, float(np.exp(log_value[list(pending)].min())))
            gain = np.asarray(weight @ np.where(held, np.maximum(target - value, 0.0), 0.0)) * fits
        return ServingForecast(
            log_value=np.asarray(log_value),
            keeps=np.minimum(keeps_all, 1.0),
            gain=np.asarray(gain),
            best=least,
            has_incumbent=row is not None,
            incumbent=row,
        )

    def _log_seconds_within(self, limit: ChatLimit, tests: LoadTests) -> tuple[Floats, float]:
        """(N x K,) ln of the longest request that keeps the limit, and its deviation, after the load tests."""
        metric = ChatMetric(limit.metric)
        part, deviation = PART_OF_REQUEST[str(metric)]
        mean = np.full(len(self.problem.space) * self.width, part + PERCENTILE_SHIFT[limit.percentile])
        if metric is ChatMetric.E2E and self.language.ratio is not None:
            mean = self.language.ratio.mean + PERCENTILE_SHIFT[limit.percentile]
            deviation = float(np.sqrt(np.diag(self.language.ratio.covariance).mean()))
        tokens_of = self.language.output_tokens if metric is ChatMetric.TPOT else 1.0
        off = []
        for trial in self.history.measured:
            tokens = None if trial.load is None else trial.load.tokens
            seen = 0.0 if tokens is None else tokens.seen(limit) * tokens_of
            if tokens is not None and seen > 0 and tokens.requests_per_second > 0:
                apart = np.abs(np.log(np.array(self.language.users) / tokens.concurrency))
                at = self.problem.space.index[trial.config] * self.width + int(apart.argmin())
                off.append(float(np.log(seen * tokens.requests_per_second / tokens.concurrency) - mean[at]))
        if off:  # one shift for all, as if the prior were one more trial
            mean = mean + sum(off) / (len(off) + (LIMIT_ERROR / deviation) ** 2)
            deviation = 1.0 / np.sqrt(len(off) / LIMIT_ERROR**2 + 1.0 / deviation**2)
        return np.log(limit.seconds) - mean, float(np.hypot(deviation, LIMIT_ERROR))


LIMIT_ERROR = 0.1
"""Deviation of ln(latency / requests in flight x rate) between two configurations of one model. On the llmpilot tables
of other models than the searched one it is 0.04 to 0.17."""


def _samples(belief: Belief, tests: LoadTests, number: int) -> Floats:
    """(SAMPLES, rows) of ln seconds after the load tests."""
    after = belief.after(tests.rows, tests.log_seconds, tests.errors)
    size = len(after.mean)
    lower = np.linalg.cholesky(after.covariance + 1e-6 * np.eye(size))
    draws = np.random.default_rng(number).standard_normal((SAMPLES, size))
    return np.asarray(after.mean + draws @ lower.T)
