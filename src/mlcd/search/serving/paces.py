"""What a load test of a language model may bring, by joint samples of what is believed of its paces.

A load test that goes through several numbers of requests in flight keeps the best one within the limits: a maximum over
correlated beliefs, which has no closed form.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mlcd.loadgen.chat.plan import ChatLimit, ChatMetric
from mlcd.models.serving.gaussian import Belief
from mlcd.models.serving.language import OUTLIER, LanguagePrior
from mlcd.problem import Problem
from mlcd.search.serving.serving_forecast import LoadTests, ServingForecast, items_of, load_tests
from mlcd.trial.plan import plans
from mlcd.trial.trial import History, Measurement

Floats = NDArray[np.float64]

SAMPLES = 512
"""Joint samples: the standard error of a probability is at most 0.02. They are drawn with a fixed seed."""
PERCENTILE_SHIFT = {50: 0.0, 95: 0.4, 99: 0.6}
"""ln(percentile / median) of a latency. Unmeasured; the first trial says it."""
PART_OF_REQUEST = {"e2e": (0.0, 0.1), "tpot": (-0.1, 0.3), "ttft": (-1.5, 1.0)}
"""ln(part of a request's time) and its deviation: all of it; the time per token times the tokens; the time to the first
one. Unmeasured; the first trial says it."""
FEWEST_FOR_OUTLIERS = 3
"""With fewer paces, none can be told to be far off the others."""
LIMIT_ERROR = 0.1
"""Deviation of ln(latency / (requests in flight / rate)) between two configurations of one model. Unmeasured."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Paces:
    """Beliefs about ln seconds of a request at N x K paces; see LanguagePrior.

    shares  the probability of each belief, the belief, and (N,) the probability under it that memory suffices
    """

    problem: Problem
    history: History
    language: LanguagePrior
    shares: Sequence[tuple[float, Belief, Floats]] = ()

    @property
    def width(self) -> int:
        """K."""
        return max(len(self.language.users), 1)

    @cached_property
    def users(self) -> Floats:
        """(N x K,) requests in flight."""
        if not self.language.users:
            return items_of(self.problem.space)
        return np.tile(np.array(self.language.users, dtype=float), len(self.problem.space))

    @cached_property
    def limits(self) -> tuple[ChatLimit, ...]:
        """The goal's limits; one on latency is on the whole request."""
        slo = self.problem.goal.slo
        if slo is None:
            return self.problem.goal.token_limits
        whole = ChatLimit(metric=ChatMetric.E2E, percentile=slo.percentile, seconds=slo.seconds)
        return (*self.problem.goal.token_limits, whole)

    @cached_property
    def tests(self) -> LoadTests:
        """Every pace that the load tests went through."""
        if not self.language.users:
            return load_tests(self.problem, self.history)
        rows, values, errors = [], [], []
        for trial in self.history.measured:
            tokens = None if trial.load is None else trial.load.tokens
            front = () if tokens is None else tokens.front
            per_request = 1.0 if tokens is None else max(tokens.output_tokens, 1e-9)
            seen = [(point.concurrency, point.output_tokens_per_second / per_request) for point in front]
            if not seen and tokens is not None:
                seen = [(tokens.concurrency, trial.samples_per_second)]
            for concurrency, rate in seen:
                if rate > 0 and concurrency > 0:
                    row = self._row(trial, concurrency)
                    rows.append(row)
                    values.append(np.log(concurrency / rate))
                    errors.append(max(trial.relative_error, abs(float(np.log(self.users[row] / concurrency)))))
        return LoadTests(rows=np.array(rows, dtype=np.intp), log_seconds=np.array(values), errors=np.array(errors))

    def forecast(self, pending: tuple[int, ...] = ()) -> ServingForecast:
        """What each configuration may bring; pending trials are assumed to go as expected.

        While nothing keeps the limits, the gain is the expected requests per unit of the goal: 0 where they are broken.
        """
        problem = self.problem
        scale = problem.goal.scale(problem.dollars_per_second) * problem.work_samples
        worth = np.concatenate([self._worth(number, each[1]) / scale for number, each in enumerate(self.shares)])
        weight = np.repeat([share / SAMPLES for share, _, _ in self.shares], SAMPLES)
        weights = weight[:, None] * np.repeat([fits for _, _, fits in self.shares], SAMPLES, axis=0)
        keeps = np.asarray((weights * (worth > 0)).sum(axis=0))
        expected = (weights * worth).sum(axis=0)
        log_value = np.log(np.maximum(keeps, 1e-300) / np.maximum(expected, 1e-300))
        fitting = {problem.space.index[plan.config]: plan.value(problem) for plan in plans(problem, self.history)}
        row = min(fitting, key=lambda each: fitting[each]) if fitting else None
        if row is None:
            best = float(np.exp(log_value.min()))
            gain = best**2 * expected
        else:
            best = fitting[row]
            target = min([best, *(float(np.exp(log_value[each])) for each in pending)])
            with np.errstate(divide="ignore"):
                gain = (weights * np.where(worth > 0, np.maximum(target - 1.0 / worth, 0.0), 0.0)).sum(axis=0)
        return ServingForecast(
            log_value=log_value,
            keeps=keeps,
            gain=np.asarray(gain),
            best=best,
            has_incumbent=row is not None,
            incumbent=row,
        )

    def _worth(self, number: int, belief: Belief) -> Floats:
        """(SAMPLES, N) requests a second that count, at the best pace within the limits; 0 where none keeps them."""
        tests = self.tests
        after = belief.after(tests.rows, tests.log_seconds, self._errors(belief))
        lower = np.linalg.cholesky(after.covariance + 1e-6 * np.eye(len(after.mean)))
        draws = np.random.default_rng(number).standard_normal((SAMPLES, len(after.mean)))
        log_seconds = after.mean + draws @ lower.T
        log_seconds[:, tests.rows] = tests.log_seconds + tests.errors * draws[:, tests.rows]
        kept = np.ones(log_seconds.shape, dtype=bool)
        for at, limit in enumerate(self.limits):
            longest, deviations = self._log_longest(limit)
            shift = np.random.default_rng([number, at]).standard_normal((SAMPLES, 1))
            kept &= log_seconds <= longest + deviations * shift
        rates = np.where(kept, self.users / np.exp(log_seconds), 0.0)
        best = rates.reshape(SAMPLES, len(self.problem.space), self.width).max(axis=2)
        rate = self.problem.goal.rate
        return best if rate is None else np.where(best >= rate, rate, 0.0)

    def _errors(self, belief: Belief) -> Floats:
        """The tests' errors for what they say about others: a pace far off the rest, out of memory, says nothing."""
        tests = self.tests
        if len(tests.rows) < FEWEST_FOR_OUTLIERS:
            return tests.errors
        off = tests.log_seconds - belief.mean[tests.rows]
        off = np.abs(off - np.median(off))
        return np.where(off > OUTLIER, off, tests.errors)

    def _log_longest(self, limit: ChatLimit) -> tuple[Floats, Floats]:
        """(N x K,) ln of the longest request that keeps the limit, and its deviation, after the load tests."""
        part, deviation = PART_OF_REQUEST[str(limit.metric)]
        mean = np.full(len(self.users), part)
        if limit.metric == ChatMetric.E2E and self.language.ratio is not None:
            mean = self.language.ratio.mean
            deviation = float(np.sqrt(np.diag(self.language.ratio.covariance).mean()))
        mean = mean + PERCENTILE_SHIFT[limit.percentile]
        seen: dict[int, tuple[float, float]] = {}
        for trial in self.history.measured:
            latency, seconds, row = self._seen(trial, limit)
            if latency > 0 and seconds > 0:
                seen[row] = (float(np.log(latency / seconds)), trial.relative_error)
        if seen:  # one shift for all that was not measured
            off = [ratio - mean[row] for row, (ratio, _) in seen.items()]
            mean = mean + sum(off) / (len(off) + (LIMIT_ERROR / deviation) ** 2)
            deviation = float(1.0 / np.sqrt(len(off) / LIMIT_ERROR**2 + 1.0 / deviation**2))
        deviations = np.full(len(mean), np.hypot(deviation, LIMIT_ERROR))
        for row, (ratio, error) in seen.items():
            mean[row], deviations[row] = ratio, error
        return np.log(limit.seconds) - mean, deviations

    def _seen(self, trial: Measurement, limit: ChatLimit) -> tuple[float, float, int]:
        """A limit's metric in a trial, as seconds of a request; requests in flight / rate; and its row."""
        load = trial.load
        first = self.problem.space.index[trial.config] * self.width
        if load is None:
            return 0.0, 0.0, first
        tokens = load.tokens
        if tokens is None:
            seconds = float(self.users[first]) / trial.samples_per_second
            return (load.percentile(limit.percentile) if limit.metric == ChatMetric.E2E else 0.0), seconds, first
        times = self.language.output_tokens if limit.metric == ChatMetric.TPOT else 1.0
        seconds = tokens.concurrency / max(tokens.requests_per_second, 1e-12)
        return tokens.seen(limit) * times, seconds, self._row(trial, tokens.concurrency)

    def _row(self, trial: Measurement, concurrency: float) -> int:
        """The row of the pace that is nearest to this many requests in flight."""
        first = self.problem.space.index[trial.config] * self.width
        apart = np.abs(np.log(self.users[first : first + self.width] / max(concurrency, 1e-9)))
        return first + int(apart.argmin())
