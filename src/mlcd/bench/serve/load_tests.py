"""A search in a table of language models whose trials are load tests as `mlcd serve` makes them.

A load test goes through the table's requests in flight on one instance type and keeps the best within the limit. So a
configuration is an instance type, and a trial shows all paces of it.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from mlcd.bench.serve.case import REQUESTS, VERIFY_SECONDS, Bed, Case, measured_rows, normal, space_of
from mlcd.goal import Goal, Objective
from mlcd.known.tables import Floats, Known, KnownModel
from mlcd.loadgen.chat.plan import ChatLimit, ChatMetric
from mlcd.problem import Problem, TrialPolicy
from mlcd.space import Config
from mlcd.trial.trial import Load, Measurement, TokenLoad, TokenPoint, Trial
from mlcd.units import Usd


@dataclass(frozen=True, kw_only=True, eq=False)
class LoadTestCase(Case):
    """A target under a limit on the median latency of requests; `rows` are those of the best pace of each type.

    Where no pace of a type keeps the limit, that is the first pace.
    """

    @classmethod
    def of(cls, bed: Bed, name: str, slo_seconds: float, *, noise: float, max_trials: int) -> "LoadTestCase | None":
        """See Case."""
        known, target = bed.known, bed.model(name)
        instances = tuple(dict.fromkeys(known.configs[row].instance for row in measured_rows(target)))
        rows = np.array([_best_row(known, target, instance, slo_seconds) for instance in instances], dtype=np.intp)
        values = known.per_dollar(target, slo_seconds)[rows]
        if not values.any():
            return None
        types = by_type(known, slo_seconds)
        places = [types.configs.index(Config.of({"instance": instance})) for instance in instances]
        problem = Problem(
            name=name,
            work_samples=REQUESTS,
            space=space_of(types, tuple(places)),
            goal=Goal(
                minimize=Objective.COST,
                token_limits=(ChatLimit(metric=ChatMetric.E2E, percentile=50, seconds=slo_seconds),),
            ),
            usd_per_hour=tuple(Usd.of(price) for price in known.usd_per_hour[rows]),
            trial=TrialPolicy(seconds=bed.trial_seconds, extra_seconds_per_3_nodes=0.0, watchdog_seconds=0.0),
            max_trials=max_trials,
            noise=noise,
            verify_seconds=VERIFY_SECONDS,
        )
        return cls(
            bed=bed, target=target, slo_seconds=slo_seconds, problem=problem, rows=rows, values=values, noise=noise
        )

    def knowledge(self, sources: Known) -> Known:
        """The best pace of every model and type within the limit, and all paces."""
        return by_type(sources, self.slo_seconds)

    def trial(self, config: Config, seed: int) -> Trial:
        """All paces of the type, each with noise, and the best of those that keep the limit; else the first."""
        known, target = self.bed.known, self.target
        lengths = known.lengths
        tokens = 1.0 if lengths is None else lengths.output_tokens
        front: list[tuple[float, float, float, bool]] = []
        for row in _rows_of(known, target, config.instance):
            factor = math.exp(self.noise * normal(seed, target.name, row))
            latency = float(target.request_seconds[row]) * factor
            rate = float(known.batches[row] / target.latency_seconds[row]) / factor
            front.append((float(known.batches[row]), rate, latency, latency <= self.slo_seconds))
        kept = [point for point in front if point[3]]
        users, rate, latency, _ = max(kept, key=lambda point: point[1]) if kept else front[0]
        seconds = self.problem.trial.seconds
        three = (latency, latency, latency)
        return Measurement(
            config=config,
            attempt=1,
            samples_per_second=rate,
            relative_error=self.noise,
            iterations=1,
            startup_seconds=0.0,
            seconds=seconds,
            usd=self.problem.price(config).for_seconds(seconds),
            load=Load(
                p50_seconds=latency,
                p95_seconds=latency,
                p99_seconds=latency,
                requests=1,
                tokens=TokenLoad(
                    concurrency=users,
                    requests_per_second=rate,
                    good_per_second=rate,
                    input_tokens_per_second=0.0 if lengths is None else rate * lengths.input_tokens,
                    output_tokens_per_second=rate * tokens,
                    input_tokens=0.0 if lengths is None else lengths.input_tokens,
                    output_tokens=tokens,
                    ttft=three,
                    tpot=three,
                    e2e=three,
                    front=tuple(
                        TokenPoint(
                            concurrency=pace,
                            output_tokens_per_second=held * tokens,
                            ttft_p95=0.0,
                            tpot_p95=0.0,
                            kept=ok,
                        )
                        for pace, held, _, ok in front
                    ),
                ),
            ),
        )


@lru_cache(maxsize=64)
def by_type(known: Known, slo_seconds: float) -> Known:
    """The tables with a row for each instance type: its best pace within the limit. All paces are kept beside it."""
    instances = tuple(dict.fromkeys(config.instance for config in known.configs))
    prices = {config.instance: price for config, price in zip(known.configs, known.usd_per_hour, strict=True)}
    return replace(
        known,
        configs=tuple(Config.of({"instance": instance}) for instance in instances),
        usd_per_hour=np.array([prices[instance] for instance in instances]),
        models=tuple(_by_type(known, model, instances, slo_seconds) for model in known.models),
        users=tuple(sorted({int(users) for users in known.batches})),
        paces=known,
    )


def _by_type(known: Known, model: KnownModel, instances: tuple[str, ...], slo_seconds: float) -> KnownModel:
    """Seconds between two requests at the best pace; nan where the model was not measured on the type."""
    seconds: Floats = np.full(len(instances), np.nan)
    latency = np.full(len(instances), np.nan)
    for place, instance in enumerate(instances):
        if _rows_of(known, model, instance):
            row = _best_row(known, model, instance, slo_seconds)
            seconds[place] = model.latency_seconds[row] / known.batches[row]
            latency[place] = model.request_seconds[row]
    return replace(model, latency_seconds=seconds, p50_seconds=latency, memory_gib=np.full(len(instances), np.nan))


def _rows_of(known: Known, model: KnownModel, instance: str) -> list[int]:
    return [int(row) for row in measured_rows(model) if known.configs[row].instance == instance]


def _best_row(known: Known, model: KnownModel, instance: str, slo_seconds: float) -> int:
    rates = known.throughput(model, slo_seconds)
    return max(_rows_of(known, model, instance), key=lambda row: float(rates[row]))
