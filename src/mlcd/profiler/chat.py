"""How a language model is loaded: more requests in flight while the limits are kept; then the promised rate."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from mlcd.clouds.serving.provider import ServerLease
from mlcd.errors import MlcdError
from mlcd.loadgen.chat import ChatLimit, ChatPlan, ChatResult, ChatStep, Exchange, measure_chat
from mlcd.loadgen.chat.plan import MOST_STREAMS
from mlcd.loadgen.chat.trace import busiest_stretch
from mlcd.profiler.load import WARM_UP_SHARE, Held, Seen
from mlcd.profiler.token_check import counted_text
from mlcd.space import Config
from mlcd.trial.trial import Load, TokenLoad, TokenPoint
from mlcd.units import latency_text, speed_text


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTest:
    """How the server is loaded. Rates are in requests a second.

    exchanges    lengths of prompts and answers, taken in turn
    concurrency  the most requests in flight that are tried, on each server
    trace        recorded requests with their arrivals, for the verification; empty: they arrive at random
    is_open      whether the search offers rates at which requests arrive at random, instead of so many in flight
    limits       all must be kept
    extra        further fields of every request
    folder       of the model, with its tokenizer; None: there is none here
    headroom     the share of the measured rate that is kept free when the choice is verified
    verify_seconds  how long the verification takes; 0: no verification
    """

    exchanges: tuple[Exchange, ...]
    trace: tuple[Exchange, ...] = ()
    is_open: bool = False
    concurrency: int = 64
    limits: tuple[ChatLimit, ...] = ()
    path: str = "/v1/chat/completions"
    shared_tokens: int = 0
    extra: Mapping[str, object] = field(default_factory=dict)
    folder: Path | None = None
    headroom: float = 0.3
    verify_seconds: float = 60.0
    seed: int = 0

    def find(self, lease: ServerLease, config: Config, *, seconds: float, seed: int) -> Seen:  # noqa: ARG002
        """See ServerTest: with the most output tokens a second of requests within the limits (goodput).

        Tokens are counted where requests are too few: a request's share of a short test is large.
        """
        plan = self._plan(lease, self.exchanges, seconds=seconds, seed=seed)
        result = self._run(lease, replace(plan, search=True, open=self.is_open))
        seen = result.chosen
        rate = seen.good_tokens_per_second / max(result.output_tokens, 1.0)
        if seen.rate is not None:
            rate = min(seen.rate * seen.good_share, seen.rate)
        return Seen(rate=max(rate, 1e-9), relative_error=result.relative_error, load=self._load(result))

    def hold(self, lease: ServerLease, config: Config, *, seconds: float, seed: int, rate: float) -> Held:  # noqa: ARG002
        """See ServerTest: requests arrive at random, or as in the busiest stretch of the trace, played at the rate."""
        if not self.trace:
            plan = replace(self._plan(lease, self.exchanges, seconds=seconds, seed=seed), rate=rate)
        else:
            warm_up_seconds = WARM_UP_SHARE * seconds
            kept_seconds = seconds - warm_up_seconds
            stretch = busiest_stretch(self.trace, rate=rate, seconds=kept_seconds, warm_up_seconds=warm_up_seconds)
            plan = self._plan(lease, stretch, seconds=seconds, seed=seed)
            plan = replace(plan, warm_up_seconds=warm_up_seconds)
        result = self._run(lease, plan)
        return Held(rate=rate, load=self._load(result), fault=self._fault(result, rate))

    def _plan(self, lease: ServerLease, exchanges: tuple[Exchange, ...], *, seconds: float, seed: int) -> ChatPlan:
        place = lease.endpoint
        return ChatPlan(
            address=place.address,
            model=place.model,
            path=self.path,
            exchanges=exchanges,
            shared_tokens=self.shared_tokens,
            seconds=seconds,
            concurrency=min(self.concurrency * len(place.addresses), MOST_STREAMS),
            limits=self.limits,
            extra=self.extra,
            timeout_seconds=max(10.0, seconds),
            cpus=place.client_cpus,
            seed=seed,
            further=place.further,
            processors=place.generator_processors,
        )

    def _run(self, lease: ServerLease, plan: ChatPlan) -> ChatResult:
        try:
            return measure_chat(plan, lease.endpoint.generator)
        finally:
            lease.memory_gib()
            lease.check()

    def _fault(self, result: ChatResult, rate: float) -> str:
        """Why a verification failed; "" if it passed."""
        seen = result.chosen
        if seen.errors:
            return f"{seen.errors:,} of {seen.requests:,} requests failed: {result.first_error}"
        for limit in self.limits:
            at = seen.seen(limit)
            if at > limit.seconds:
                name = f"{limit.metric} p{limit.percentile}"
                allowed = f"over the {latency_text(limit.seconds)} allowed"
                return f"{name} of {latency_text(at)} at {speed_text(rate)} requests/s, {allowed}"
        if seen.stopped:
            return f"a limit was broken at {rate:.4g} requests/s"
        if not seen.kept:
            return f"answers take ever longer at {rate:.4g} requests/s: the server does not hold it"
        return ""

    def _load(self, result: ChatResult) -> Load:
        """What was seen, in the form of a trial. Raises MlcdError where no request was answered."""
        return _load(result, counted_text(result.samples, result.tokens_from, self.folder))


def _load(result: ChatResult, counted: str) -> Load:
    seen = result.chosen
    if seen.requests == seen.errors:
        raise MlcdError(f"no request was answered: {result.first_error or 'no reason given'}")
    ttft, tpot, e2e = (_three(of) for of in (seen.ttft, seen.tpot, seen.e2e))
    return Load(
        p50_seconds=e2e[0],
        p95_seconds=e2e[1],
        p99_seconds=e2e[2],
        requests=seen.requests,
        errors=seen.errors,
        saturated=result.saturated,
        generator_share=result.processor_share,
        tokens=TokenLoad(
            concurrency=seen.concurrency,
            requests_per_second=seen.requests_per_second,
            good_per_second=seen.good_per_second,
            input_tokens_per_second=seen.input_tokens_per_second,
            output_tokens_per_second=seen.output_tokens_per_second,
            input_tokens=result.input_tokens,
            output_tokens=result.output_tokens,
            ttft=ttft,
            tpot=tpot,
            e2e=e2e,
            front=tuple(_point(step) for step in result.steps),
            gaps=_three(seen.gaps),
            counted=counted,
        ),
    )


def _three(of: Mapping[str, float]) -> tuple[float, float, float]:
    """p50, p95 and p99; 0 where every answer had one token, which has no pace."""
    found = [of[name] if of[name] < float("inf") else 0.0 for name in ("p50", "p95", "p99")]
    return found[0], found[1], found[2]


def _point(step: ChatStep) -> TokenPoint:
    ttft, tpot, e2e = _three(step.ttft), _three(step.tpot), _three(step.e2e)
    return TokenPoint(
        concurrency=step.concurrency,
        output_tokens_per_second=step.output_tokens_per_second,
        ttft_p95=ttft[1],
        tpot_p95=tpot[1],
        kept=step.kept,
        requests_per_second=step.requests_per_second,
        good_per_second=step.good_per_second,
        ttft_p50=ttft[0],
        ttft_p99=ttft[2],
        tpot_p50=tpot[0],
        tpot_p99=tpot[2],
        e2e_p50=e2e[0],
        e2e_p95=e2e[1],
        e2e_p99=e2e[2],
    )
