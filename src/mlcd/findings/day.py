"""Traffic that changes by the hour: replicas of the choice, the price of a day, and whether limits hold at changes."""

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import replace

from mlcd.goal import Goal
from mlcd.loadgen.chat.plan import ChatMetric
from mlcd.models.serving.replay import Curve, Replayed, Stage, replay
from mlcd.run.findings import Change, DayPlan, ServingChoice
from mlcd.run.run import SearchRun
from mlcd.trial.replicas import scaled_paces, settings_of
from mlcd.trial.trial import TokenPoint
from mlcd.units import Usd, latency_text

HOUR_SECONDS = 3600
MOST_CHANGES = 48
"""Changes that are replayed: those with the largest ratio of traffic."""
BEFORE_SECONDS, AFTER_SECONDS = 60.0, 600.0
"""What is simulated before and after a change; the latter counts."""
MOST_REQUESTS = 2_000
"""Of one simulated change: where more arrive, less time is simulated."""
NOTICE_SECONDS = 60.0
"""Until an autoscaler has seen that traffic grew: SkyServe averages requests over 60 s (its default), and HPA's
controller looks every 15 s at metrics that are 30 to 60 s old."""
MOST_USUAL = 1.1
"""A change breaks a limit where a percentile is beyond it and beyond so many times what the same traffic has later."""
SMOOTH_IN_FLIGHT = 32.0
"""Of a server whose times already include its own queue: as many in flight hardly ever wait below its rate."""
Times = tuple[float, float, float]


def day_plan(run: SearchRun, choice: ServingChoice) -> DayPlan | None:
    """Replicas for every hour of the job's profile; None where it has none.

    A replica is one server, also where the choice has several: an hour may need fewer, or more.
    """
    rates = run.serving.profile if run.serving is not None else ()
    if not rates:
        return None
    servers = choice.config.nodes
    choice = _of_one(choice, servers)
    capacity = choice.requests_per_second
    replicas = tuple(max(math.ceil(rate / capacity - 1e-9), 1) for rate in rates)
    start_seconds = _start_seconds(run, choice)
    price = run.problem.price(choice.config)
    return DayPlan(
        rates=rates,
        replicas=replicas,
        replica_requests_per_second=capacity,
        start_seconds=start_seconds,
        usd=_usd(price, paid_seconds(replicas, start_seconds) / servers),
        fixed_usd=_usd(price, max(replicas) * len(rates) * HOUR_SECONDS / servers),
        changes=_changes(run, choice, replicas, start_seconds),
        follow_seconds=NOTICE_SECONDS + start_seconds,
    )


def _of_one(choice: ServingChoice, servers: int) -> ServingChoice:
    """What each of the choice's servers holds; its configuration stays."""
    return replace(
        choice,
        requests_per_second=choice.requests_per_second / servers,
        measured_requests_per_second=choice.measured_requests_per_second / servers,
        front=scaled_paces(choice.front, 1 / servers),
    )


def paid_seconds(replicas: Sequence[int], start_seconds: float) -> float:
    """Seconds of all replicas over the profile, after whose last hour the first follows.

    A replica is started `start_seconds` before its hour, and is not stopped where it is needed again within that time.
    """
    hours, rest = divmod(start_seconds, HOUR_SECONDS)
    ahead = int(hours)
    total = 0.0
    count = len(replicas)
    for hour in range(count):
        soon = [replicas[(hour + at) % count] for at in range(ahead + 2)]
        total += (HOUR_SECONDS - rest) * max(soon[:-1]) + rest * max(soon)
    return total


def _usd(price: Usd, seconds: float) -> Usd:
    return Usd.of(f"{price.dollars * seconds / HOUR_SECONDS:.6f}")


def _start_seconds(run: SearchRun, choice: ServingChoice) -> float:
    """The longest that a server of the choice took to become ready; of any configuration, where it was not seen."""
    own = settings_of(choice.config)
    trials = [trial for trial in run.history.measured if settings_of(trial.config) == own] or run.history.measured
    return max((trial.startup_seconds for trial in trials), default=0.0)


def _changes(
    run: SearchRun, choice: ServingChoice, replicas: tuple[int, ...], start_seconds: float
) -> tuple[Change, ...]:
    rates = run.serving.profile if run.serving is not None else ()
    hours = range(len(rates))
    differ = [hour for hour in hours if rates[hour - 1] != rates[hour] or replicas[hour - 1] != replicas[hour]]
    differ.sort(key=lambda hour: -_ratio(rates[hour - 1], rates[hour]))
    follow_seconds = NOTICE_SECONDS + start_seconds
    latencies = _Latencies(run, choice)
    found = []
    for hour in sorted(differ[:MOST_CHANGES]):
        before, after = hour - 1, hour
        pair = (replicas[before], replicas[after])
        traffic = (rates[before], rates[after])
        usual = latencies.seen((rates[after],) * 2, (replicas[after],) * 2, late_seconds=0.0, seed=hour)
        on_time = latencies.seen(traffic, pair, late_seconds=0.0, seed=hour)
        late = latencies.seen(traffic, pair, late_seconds=follow_seconds, seed=hour)
        found.append(
            Change(
                hour=hour,
                rates=traffic,
                replicas=pair,
                broken=latencies.broken(on_time, usual),
                late_broken=latencies.broken(late, usual),
                wait_p99_seconds=_percentile([each.wait_seconds for each in on_time], 99),
            )
        )
    return tuple(found)


def _ratio(before: float, after: float) -> float:
    low, high = sorted((before, after))
    return high / low if low > 0 else math.inf


class _Latencies:
    """What requests of a simulated queue would have seen, by what was measured of one replica of the choice."""

    def __init__(self, run: SearchRun, choice: ServingChoice) -> None:
        self.goal: Goal = run.problem.goal
        self.load, self.points = choice.load, _points(choice)
        self.rng = random.Random(run.seed)  # noqa: S311
        self.curve = _curve(choice, self.points)

    def seen(
        self, rates: tuple[float, float], replicas: tuple[int, int], *, late_seconds: float, seed: int
    ) -> list[Replayed]:
        """The requests that arrive after the change."""
        busiest = max(*rates, 1e-9)
        after = min(AFTER_SECONDS, max(MOST_REQUESTS / busiest, 1.0))
        before = min(BEFORE_SECONDS, after / 4)
        change = Stage(begin_seconds=before, requests_per_second=rates[1], replicas=replicas[1])
        stages = [Stage(begin_seconds=0.0, requests_per_second=rates[0], replicas=replicas[0]), change]
        if late_seconds > 0 and replicas[1] > replicas[0]:
            late = Stage(begin_seconds=before, requests_per_second=rates[1], replicas=replicas[0])
            follows = Stage(begin_seconds=before + late_seconds, requests_per_second=rates[1], replicas=replicas[1])
            stages = [stages[0], late, *([follows] if late_seconds < after else [])]
        found = replay(self.curve, stages, end_seconds=before + after, seed=seed)
        return [each for each in found if each.arrived_seconds >= before]

    def broken(self, requests: Sequence[Replayed], usual: Sequence[Replayed]) -> tuple[str, ...]:
        """The limits that these requests break because of the change, in words.

        usual  requests of the same traffic long after the change: the verification has measured that such traffic
               keeps the limits, so what the simulation says of it beyond a limit is its own error
        """
        limits: list[tuple[str, int, float, ChatMetric | None]] = [
            (f"{limit.metric} p{limit.percentile}", limit.percentile, limit.seconds, limit.metric)
            for limit in self.goal.token_limits
        ]
        slo = self.goal.slo
        if slo is not None:
            limits.append((f"p{slo.percentile}", slo.percentile, slo.seconds, None))
        found = []
        for name, percentile, seconds, metric in limits:
            seen = _percentile([self._time(metric, each) for each in requests], percentile)
            base = _percentile([self._time(metric, each) for each in usual], percentile)
            if seen > max(seconds, MOST_USUAL * base):
                found.append(f"{name} {latency_text(seen)}")
        return tuple(found)

    def _time(self, metric: ChatMetric | None, request: Replayed) -> float:
        """One time of a request: drawn from what was measured with as many in flight, and its wait.

        metric  None: of a server that is no language model, as its verification measured it
        """
        if metric is None or not self.points:
            load = self.load
            times = (load.p50_seconds, load.p95_seconds, load.p99_seconds)
            return request.wait_seconds + _drawn(times, self.rng.random())
        times = self._measured(metric, request.in_flight)
        drawn = _drawn(times, self.rng.random())
        if metric is ChatMetric.TPOT:
            return drawn
        if metric is ChatMetric.TTFT:
            return request.wait_seconds + drawn
        return request.wait_seconds + request.service_seconds * (drawn / times[0] if times[0] > 0 else 1.0)

    def _measured(self, metric: ChatMetric, in_flight: float) -> Times:
        """p50, p95 and p99 of a metric with so many in flight: of the next pace that was measured with as many."""
        above = [point for point in self.points if point.concurrency >= in_flight - 0.5]
        point = above[0] if above else self.points[-1]
        if metric is ChatMetric.TTFT:
            return point.ttft_p50, point.ttft_p95, point.ttft_p99
        if metric is ChatMetric.TPOT:
            return point.tpot_p50, point.tpot_p95, point.tpot_p99
        return point.e2e_p50, point.e2e_p95, point.e2e_p99


def _points(choice: ServingChoice) -> list[TokenPoint]:
    """The paces at which a language model's limits were kept, by requests in flight; the last at a pace counts."""
    latest = {round(point.concurrency): point for point in choice.front if point.kept and point.concurrency > 0}
    return [latest[at] for at in sorted(latest)]


def _curve(choice: ServingChoice, points: Sequence[TokenPoint]) -> Curve:
    """Requests a second of one replica by requests in flight.

    Of servers whose paces were not measured one by one: the measured rate, and no wait below it.
    """
    tokens = choice.load.tokens
    rising: list[tuple[float, float]] = []
    for point in points:
        rate = point.output_tokens_per_second / max(tokens.output_tokens, 1.0) if tokens is not None else 0.0
        if rate > (rising[-1][1] if rising else 0.0) and point.concurrency > (rising[-1][0] if rising else 0.0):
            rising.append((point.concurrency, rate))
    if not rising:
        rising = [(SMOOTH_IN_FLIGHT, choice.measured_requests_per_second)]
    in_flight, rates = zip(*rising, strict=True)
    return Curve(in_flight=in_flight, requests_per_second=rates, most_in_flight=max(round(in_flight[-1]), 1))


def _drawn(times: Times, chance: float) -> float:
    """The time of which a share `chance` is quicker: linear between p50, p95 and p99, and no quicker than p50."""
    places = ((0.5, times[0]), (0.95, times[1]), (0.99, times[2]))
    for (low, below), (high, above) in itertools.pairwise(places):
        if chance <= high:
            return below + (above - below) * max(chance - low, 0.0) / (high - low)
    return times[2]


def _percentile(values: Sequence[float], percent: int) -> float:
    ordered = sorted(values)
    return ordered[max(math.ceil(percent / 100 * len(ordered) - 1e-9), 1) - 1] if ordered else 0.0
