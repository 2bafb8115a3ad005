"""How a language model is loaded: more requests in flight while the limits are kept; then the promised rate."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mlcd.clouds.serving.provider import ServerLease
from mlcd.errors import MlcdError
from mlcd.loadgen.chat import ChatLimit, ChatPlan, ChatResult, ChatStep, Exchange, measure_chat
from mlcd.loadgen.chat.plan import MOST_STREAMS
from mlcd.profiler.load import Held, Seen
from mlcd.space import Config
from mlcd.trial.trial import Load, TokenLoad, TokenPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTest:
    """How the server is loaded. Rates are in requests a second.

    exchanges    lengths of prompts and answers, taken in turn
    concurrency  the most requests in flight that are tried, on each server
    limits       all must be kept
    extra        further fields of every request
    headroom     the share of the measured rate that is kept free when the choice is verified
    verify_seconds  how long the verification takes; 0: no verification
    """

    exchanges: tuple[Exchange, ...]
    concurrency: int = 64
    limits: tuple[ChatLimit, ...] = ()
    path: str = "/v1/chat/completions"
    shared_tokens: int = 0
    extra: Mapping[str, object] = field(default_factory=dict)
    headroom: float = 0.3
    verify_seconds: float = 60.0
    seed: int = 0

    def find(self, lease: ServerLease, config: Config, *, seconds: float, seed: int) -> Seen:  # noqa: ARG002
        """See ServerTest: at the concurrency with the most output tokens a second within the limits.

        Tokens are counted where requests are too few: a request's share of a short test is large.
        """
        result = self._run(lease, seconds=seconds, seed=seed, rate=None)
        rate = max(result.chosen.output_tokens_per_second / max(result.output_tokens, 1.0), 1e-9)
        return Seen(rate=rate, relative_error=result.relative_error, load=_load(result))

    def hold(self, lease: ServerLease, config: Config, *, seconds: float, seed: int, rate: float) -> Held:  # noqa: ARG002
        """See ServerTest: requests arrive at random."""
        result = self._run(lease, seconds=seconds, seed=seed, rate=rate)
        return Held(rate=rate, load=_load(result), fault=self._fault(result, rate))

    def _run(self, lease: ServerLease, *, seconds: float, seed: int, rate: float | None) -> ChatResult:
        place = lease.endpoint
        plan = ChatPlan(
            address=place.address,
            model=place.model,
            path=self.path,
            exchanges=self.exchanges,
            shared_tokens=self.shared_tokens,
            seconds=seconds,
            rate=rate,
            concurrency=min(self.concurrency * len(place.addresses), MOST_STREAMS),
            search=rate is None,
            limits=self.limits,
            extra=self.extra,
            timeout_seconds=max(10.0, seconds),
            cpus=place.client_cpus,
            seed=seed,
            further=place.further,
        )
        try:
            return measure_chat(plan)
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
                allowed = f"over the {limit.seconds * 1000:.3g} ms allowed"
                return f"{name} of {at * 1000:.3g} ms at {rate:.4g} requests/s, {allowed}"
        if seen.stopped:
            return f"a limit was broken at {rate:.4g} requests/s"
        return ""


def _load(result: ChatResult) -> Load:
    """What was seen, in the form of a trial. Raises MlcdError where no request was answered."""
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
        ),
    )


def _three(of: Mapping[str, float]) -> tuple[float, float, float]:
    """p50, p95 and p99; 0 where every answer had one token, which has no pace."""
    found = [of[name] if of[name] < float("inf") else 0.0 for name in ("p50", "p95", "p99")]
    return found[0], found[1], found[2]


def _point(step: ChatStep) -> TokenPoint:
    ttft, tpot = _three(step.ttft), _three(step.tpot)
    return TokenPoint(
        concurrency=step.concurrency,
        output_tokens_per_second=step.output_tokens_per_second,
        ttft_p95=ttft[1],
        tpot_p95=tpot[1],
        kept=step.kept,
    )
