"""One load test of a language model, from its plan to its result."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from mlcd.errors import BadInput
from mlcd.loadgen.chat.plan import ChatLimit, ChatMetric, ChatPlan, Exchange
from mlcd.loadgen.chat.prompts import PROBE_WORDS, Prompts
from mlcd.loadgen.chat.result import ChatResult, ChatStep, Sample, percentiles
from mlcd.loadgen.chat.wire import ChatWire, Stream
from mlcd.loadgen.phases import LoadPhase, begin_phase, end_phase, open_loop, poisson_arrivals
from mlcd.loadgen.wire import Done, server_place

_WARM_UP_SHARE = 0.1
"""Of a step's time: requests that were sent in it do not count."""
_WARM_UP_STREAMS = 4
"""Requests in flight before arrivals that wait for nobody: a server's first ones load what the others find loaded."""
_LEAST_REQUESTS = 4
_GROWTH = 1.05
"""A step up in concurrency that brings less than this factor in tokens/s is the last."""
_CONFIRM_SHARE = 0.3
"""Of the test's time, for the chosen concurrency alone: the best of several noisy steps was probably lucky."""
_SATURATED_SHARE = 0.85
"""Of one processor: a generator that used more may have set the result."""
_PARTS = 5
_BEHIND, _BEHIND_SHARE = 2.0, 0.05
"""A server falls behind whose last answers take so many times as long as its first, by this share of the test's time.
With 1.1 times what it can do, a server is late by 9% of the time at the end."""
_PROBE_TOKENS = 16
"""Of the answers that are compared with the tokenizer."""
_RATES = 4
"""Rates that a search with random arrivals halves its way through: 1/16 of what the server can do is left between."""
_CAPACITY_SHARE = 0.15
"""Of such a search's time, with the most requests in flight: what the server can do at all."""


def generate_chat(plan: ChatPlan) -> ChatResult:
    """Run the load test in this process. Raises BadInput for a malformed address, or where no request is answered."""
    return _Generator(plan, *server_place(plan.address)).run()


@dataclass(kw_only=True)
class _Step:
    """The requests of one pace: times are of those sent from `begun` on, tokens and requests a second of `all`."""

    begun: float
    ended: float = 0.0
    rate: float | None = None
    streams: list[Stream] = field(default_factory=list)
    all: list[Stream] = field(default_factory=list)
    area: float = 0.0
    processor_seconds: float = 0.0
    stopped: bool = False
    is_open: bool = False
    """Whether requests arrive whatever the server does."""

    @property
    def answered(self) -> list[Stream]:
        return [each for each in self.streams if not each.error]

    def times(self, metric: ChatMetric) -> list[float]:
        """The metric's times of the requests that were answered."""
        if metric is ChatMetric.TTFT:
            return [each.ttft_seconds for each in self.answered]
        if metric is ChatMetric.E2E:
            return [each.e2e_seconds for each in self.answered]
        return [tpot for each in self.answered if (tpot := each.tpot_seconds) is not None]

    def tokens_between(self, begun: float, ended: float) -> float:
        """Output tokens from `begun` to `ended`: a stream's come evenly from its first to its last piece."""
        total = 0.0
        for each in self.all:
            span = each.last - each.first
            if span <= 0:
                total += each.output_tokens if begun <= each.first < ended else 0
                continue
            overlap = min(each.last, ended) - max(each.first, begun)
            total += each.output_tokens * max(overlap, 0.0) / span
        return total

    def spread(self) -> float:
        """The relative standard error of the output tokens/s, from equal parts of the time."""
        width = (self.ended - self.begun) / _PARTS
        if width <= 0 or len(self.answered) < _LEAST_REQUESTS:
            return 1.0
        counts = [self.tokens_between(self.begun + i * width, self.begun + (i + 1) * width) for i in range(_PARTS)]
        mean = sum(counts) / _PARTS
        variance = sum((count - mean) ** 2 for count in counts) / (_PARTS - 1)
        return float((variance / _PARTS) ** 0.5 / mean) if mean > 0 else 1.0

    def falls_behind(self) -> bool:
        """Whether requests that arrive at given times wait ever longer: those of the last fifth against the first."""
        if not self.is_open or len(self.answered) < _LEAST_REQUESTS * _PARTS:
            return False
        times = [each.e2e_seconds for each in sorted(self.answered, key=lambda each: each.intended)]
        fifth = len(times) // _PARTS
        first, last = sorted(times[:fifth])[fifth // 2], sorted(times[-fifth:])[fifth // 2]
        return last > _BEHIND * first and last - first > _BEHIND_SHARE * (self.ended - self.begun)

    def result(self, limits: tuple[ChatLimit, ...]) -> ChatStep:
        """What was measured, in the form of the result."""
        seconds = max(self.ended - self.begun, 1e-9)
        done = [each for each in self.all if not each.error and self.begun <= each.finished <= self.ended]
        found = {metric: percentiles(self.times(metric)) for metric in ChatMetric}
        errors = sum(bool(each.error) for each in self.streams)
        kept = bool(self.answered) and not errors and not self.stopped
        # An answer of one token has no pace to keep.
        kept = kept and all(
            not self.times(limit.metric) or found[limit.metric][f"p{limit.percentile}"] <= limit.seconds
            for limit in limits
        )
        kept = kept and (bool(limits) or not self.falls_behind())  # a limit would have been broken by that
        return ChatStep(
            concurrency=self.area / seconds,
            rate=self.rate,
            seconds=seconds,
            requests=len(self.streams),
            errors=errors,
            requests_per_second=len(done) / seconds,
            good_per_second=sum(keeps(each, limits) for each in done) / seconds,
            input_tokens_per_second=sum(each.input_tokens for each in done) / seconds,
            output_tokens_per_second=self.tokens_between(self.begun, self.ended) / seconds,
            ttft=found[ChatMetric.TTFT],
            tpot=found[ChatMetric.TPOT],
            e2e=found[ChatMetric.E2E],
            gaps=percentiles([gap for each in self.answered for gap in each.gaps]),
            kept=kept,
            stopped=self.stopped,
        )


def keeps(stream: Stream, limits: tuple[ChatLimit, ...]) -> bool:
    """Whether this request by itself kept every limit."""
    if stream.error:
        return False
    seen = {
        ChatMetric.TTFT: stream.ttft_seconds,
        ChatMetric.TPOT: stream.tpot_seconds or 0.0,
        ChatMetric.E2E: stream.e2e_seconds,
    }
    return all(seen[limit.metric] <= limit.seconds for limit in limits)


class _Generator:
    def __init__(self, plan: ChatPlan, host: str, port: int) -> None:
        self.plan, self.place = plan, (host, port)
        self.prompts = Prompts(plan, f"{host}:{port}")
        most = plan.seconds + plan.timeout_seconds
        self.wire = ChatWire(
            host,
            port,
            self.prompts.requests(),
            timeout_seconds=plan.timeout_seconds,
            most_seconds=most,
            further=[server_place(address) for address in plan.further],
        )
        self.begun = time.perf_counter()
        self.samples: list[Sample] = []

    def run(self) -> ChatResult:
        plan = self.plan
        try:
            self._calibrate()
            if plan.is_trace:
                arrivals = [each.at_seconds for each in plan.exchanges if each.at_seconds is not None]
                return self._result([self._open(sorted(arrivals), rate=None, warm_up_seconds=plan.warm_up_seconds)])
            if plan.rate is not None:
                self._closed(_WARM_UP_STREAMS, _WARM_UP_SHARE * plan.seconds, least=1)
                seconds = self._left()
                arrivals = poisson_arrivals(plan.rate, seconds, plan.seed)
                return self._result([self._open(arrivals, rate=plan.rate, warm_up_seconds=_WARM_UP_SHARE * seconds)])
            if plan.search and plan.open:
                return self._halve()
            if plan.search:
                return self._result(self._climb())
            return self._result([self._closed(plan.concurrency, self._left())])
        finally:
            self.wire.close()

    def _left(self) -> float:
        return max(self.plan.seconds - (time.perf_counter() - self.begun), 0.1)

    def _calibrate(self) -> None:
        """Two short requests: they warm the server up, and tell how many tokens a word makes."""
        seen = []
        for words in PROBE_WORDS:
            tokens = min(_PROBE_TOKENS, max(each.output_tokens for each in self.plan.exchanges[:_PROBE_TOKENS]))
            text, request = self.prompts.probe(words, output_tokens=tokens)
            wire = ChatWire(
                *self.place,
                iter([(request, Exchange(input_tokens=words, output_tokens=tokens))]),
                timeout_seconds=self.plan.timeout_seconds,
                most_seconds=self.plan.timeout_seconds,
                keeps_text=True,
            )
            try:
                wire.send(time.perf_counter())
                ended: list[Stream] = []
                while wire.under_way:
                    ended += wire.wait(0.1)
            finally:
                wire.close()
            if ended[0].error:
                raise BadInput(
                    f"{self.plan.address}{self.plan.path} does not answer as OpenAI's API does: {ended[0].error}"
                )
            if ended[0].counted:
                seen.append((words, ended[0].input_tokens))
                counts = {"input_tokens": ended[0].input_tokens, "output_tokens": ended[0].output_tokens}
                self.samples.append(Sample(prompt=text, answer=ended[0].text, **counts))
        if len(seen) == len(PROBE_WORDS):
            self.prompts.calibrate(seen)

    def _closed(self, concurrency: int, seconds: float, *, least: int = _LEAST_REQUESTS) -> _Step:
        """Keep `concurrency` requests in flight for `seconds` and until `least` count: those after its first share."""
        phase = begin_phase()
        counted_from = phase.begun + _WARM_UP_SHARE * seconds
        until = phase.begun + seconds
        step = _Step(begun=counted_from)
        area = None
        for _ in range(concurrency):
            self.wire.send(time.perf_counter())
        while self.wire.under_way:
            for done in self.wire.wait(0.1):
                self._take(step, done)
                wanted = done.finished < until or len(step.streams) + self.wire.under_way < least
                if done.error.startswith("cannot connect"):
                    time.sleep(0.01)
                if wanted:
                    self.wire.send(time.perf_counter())
            now = time.perf_counter()
            if area is None and now >= counted_from:
                area, step.begun = self.wire.area(), now
            if not step.ended and now >= until and len(step.streams) >= least:
                step.ended, step.area = now, self.wire.area() - (area or 0.0)
        if not step.ended:
            step.ended, step.area = time.perf_counter(), self.wire.area() - (area or 0.0)
        step.processor_seconds = end_phase(phase).processor_seconds
        return step

    def _open(
        self, arrivals: list[float], *, rate: float | None, warm_up_seconds: float, seconds: float | None = None
    ) -> _Step:
        """Requests at given times, whatever the server does; those that arrive after the warm-up count."""
        phase: LoadPhase = begin_phase()
        step = _Step(begun=phase.begun + warm_up_seconds, rate=rate, is_open=True)
        before = self.wire.area()
        is_lost = _lost(step, self.plan.limits, sum(at >= warm_up_seconds for at in arrivals))
        open_loop(self.wire, arrivals, phase, take=lambda done: self._take(step, done), is_lost=is_lost)
        step.stopped = phase.stopped
        last = phase.begun + (seconds or (self.plan.seconds if rate is not None else arrivals[-1]))
        step.ended = phase.ended if phase.stopped else max(phase.ended, min(last, time.perf_counter()))
        step.area = self.wire.area() - before
        step.processor_seconds = end_phase(phase).processor_seconds
        return step

    def _take(self, step: _Step, done: Done) -> None:
        assert isinstance(done, Stream)  # noqa: S101 - of a ChatWire
        step.all.append(done)
        if done.intended >= step.begun:
            step.streams.append(done)

    def _climb(self) -> list[_Step]:
        """Concurrency 1, 2, 4, ... while limits are kept and tokens/s grow; then between, and longer at the best."""
        plan, steps = self.plan, {}
        levels = [2**i for i in range(int(math.log2(plan.concurrency)) + 1)]
        if levels[-1] < plan.concurrency:
            levels.append(plan.concurrency)
        budget = (1 - _CONFIRM_SHARE) * self._left()
        each = budget / (len(levels) + 1)
        best = 0.0
        broken = None
        for level in levels:
            step = steps[level] = self._closed(level, each)
            seen = step.result(plan.limits)
            if not seen.kept:
                broken = level
                break
            if seen.good_tokens_per_second < _GROWTH * best:
                break
            best = max(best, seen.good_tokens_per_second)
        kept = [level for level, step in steps.items() if step.result(plan.limits).kept]
        if (
            broken is not None
            and kept
            and broken - kept[-1] > 1
            and self._left() > _CONFIRM_SHARE * plan.seconds + each
        ):
            between = round(math.sqrt(broken * kept[-1]))
            steps[between] = self._closed(between, each)
        found = list(steps.values())
        chosen = _best(found, plan.limits)
        level = next(level for level, step in steps.items() if step is chosen)
        if chosen.result(plan.limits).kept and self._left() > each / 2:
            found.append(self._closed(level, self._left()))
        return found

    def _halve(self) -> ChatResult:
        """Rates at which requests arrive at random, between none and what the server can do; longer at the best."""
        plan = self.plan
        full = self._closed(plan.concurrency, _CAPACITY_SHARE * self._left())
        answered = full.answered
        mean = sum(each.output_tokens for each in answered) / len(answered) if answered else 0.0
        if not mean:
            return self._result([full])
        low, high = 0.0, full.tokens_between(full.begun, full.ended) / max(full.ended - full.begun, 1e-9) / mean
        each_seconds = (1 - _CONFIRM_SHARE) * self._left() / _RATES
        steps: dict[float, _Step] = {}
        for at in range(_RATES):
            rate = (low + high) / 2
            step = steps[rate] = self._offer(rate, each_seconds, seed=plan.seed + at)
            if step.result(plan.limits).kept:
                low = rate
            else:
                high = rate
        found = list(steps.values())
        if low > 0 and self._left() > each_seconds / 2:
            steps[low] = self._offer(low, self._left(), seed=plan.seed + _RATES)
            found.append(steps[low])
        kept = [rate for rate, step in steps.items() if step.result(plan.limits).kept]
        return self._result(found, steps[max(kept, default=min(steps))])

    def _offer(self, rate: float, seconds: float, *, seed: int) -> _Step:
        """Random arrivals at a rate."""
        arrivals = poisson_arrivals(rate, seconds, seed)
        return self._open(arrivals, rate=rate, warm_up_seconds=_WARM_UP_SHARE * seconds, seconds=seconds)

    def _result(self, steps: list[_Step], chosen: _Step | None = None) -> ChatResult:
        limits = self.plan.limits
        chosen = chosen or _best(steps, limits)
        streams = [each for step in steps for each in step.answered]
        if not streams:
            first = next((each.error for step in steps for each in step.streams if each.error), "no reason given")
            raise BadInput(f"no request was answered: {first}")
        busy = max(step.processor_seconds / max(step.ended - step.begun, 1e-9) for step in steps)
        late = [each.sent - each.intended for each in chosen.answered]
        return ChatResult(
            chosen=chosen.result(limits),
            steps=tuple(step.result(limits) for step in steps),
            total_seconds=time.perf_counter() - self.begun,
            relative_error=chosen.spread(),
            tokens_from="usage" if all(each.counted for each in streams) else "pieces",
            input_tokens=sum(each.input_tokens for each in streams) / len(streams),
            output_tokens=sum(each.output_tokens for each in streams) / len(streams),
            processor_share=busy,
            saturated=_saturation(busy, late, self.plan.processors),
            first_error=next((each.error for step in steps for each in step.streams if each.error), ""),
            samples=tuple(self.samples),
        )


def _lost(step: _Step, limits: tuple[ChatLimit, ...], requests: int) -> Callable[[], bool]:
    """Whether more requests are late on a limit than its percentile allows, so that the rest cannot change it."""
    seen = 0
    over = dict.fromkeys(limits, 0)
    allowed = {limit: requests - -(-requests * limit.percentile // 100) for limit in limits}

    def is_lost() -> bool:
        nonlocal seen
        for stream in step.streams[seen:]:
            for limit in limits:
                over[limit] += not keeps(stream, (limit,))
        seen = len(step.streams)
        return any(over[limit] > allowed[limit] for limit in limits)

    return is_lost


def _best(steps: list[_Step], limits: tuple[ChatLimit, ...]) -> _Step:
    """The step with the most output tokens/s (goodput) among those that kept the limits; if none did, the first.

    The last step at a concurrency is the longest and confirms or refutes the earlier ones.
    """
    latest: dict[int, _Step] = {}
    for step in steps:
        latest[round(step.area / max(step.ended - step.begun, 1e-9))] = step
    kept = [step for step in latest.values() if step.result(limits).kept]
    return max(kept, key=lambda s: s.result(limits).good_tokens_per_second, default=steps[0])


def _saturation(processor_share: float, late: list[float], processors: float) -> str:
    if processor_share > _SATURATED_SHARE * processors:
        return f"the load generator used {processor_share:.0%} of a processor"
    if late and (worst := percentiles(late)["p99"]) > 0.01:
        return f"the load generator sent 1 in 100 requests {worst * 1000:.0f} ms late or more"
    return ""
