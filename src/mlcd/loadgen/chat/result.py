"""The result of a load test of a language model."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from mlcd.loadgen.chat.plan import PERCENTILES, ChatLimit, ChatMetric

Percentiles = Mapping[str, float]
"""p50, p95 and p99 in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatStep:
    """What was measured at one pace.

    concurrency        requests in flight, on average over the time
    rate               requests/s offered; None in closed loops, where the server sets the pace
    ttft, tpot, e2e    percentiles of the requests that were answered; see ChatMetric
    gaps               percentiles of the times between two pieces of an answer
    input_tokens       a second, of prompts that were answered
    output_tokens      a second, of answers that came within the time
    good_per_second    requests/s that kept every limit by themselves: goodput
    kept               whether the percentiles kept every limit, without errors
    stopped            whether it ended early because a limit was already broken; its percentiles are lower bounds
    """

    concurrency: float
    rate: float | None
    seconds: float
    requests: int
    errors: int
    requests_per_second: float
    good_per_second: float
    input_tokens_per_second: float
    output_tokens_per_second: float
    ttft: Percentiles
    tpot: Percentiles
    e2e: Percentiles
    gaps: Percentiles
    kept: bool
    stopped: bool = False

    @property
    def good_share(self) -> float:
        """Of the requests that ended, how many kept every limit by themselves."""
        return min(self.good_per_second / self.requests_per_second, 1.0) if self.requests_per_second > 0 else 0.0

    @property
    def good_tokens_per_second(self) -> float:
        """Output tokens a second of the requests that kept every limit by themselves."""
        return self.output_tokens_per_second * self.good_share

    def seen(self, limit: ChatLimit) -> float:
        """The percentile that the limit is on, in seconds."""
        of: Percentiles = getattr(self, str(limit.metric))
        return of[f"p{limit.percentile}"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A prompt and its answer, with the tokens that the server counted: for a check against the tokenizer."""

    prompt: str
    answer: str
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatResult:
    """The result of a load test: the chosen step (the best that kept the limits, or the only one) and all steps.

    relative_error    of the chosen step's output tokens/s, from parts of its time
    tokens_from       "usage" where the server counted tokens; "pieces" where it did not and pieces were counted
    input_tokens, output_tokens  means of one request, as counted
    processor_share   of one processor, used by the generator itself
    saturated         why the generator, not the server, may have limited the result; "" where it did not
    samples           prompts and answers whose tokens the server counted
    """

    chosen: ChatStep
    steps: tuple[ChatStep, ...]
    total_seconds: float
    relative_error: float
    tokens_from: str
    input_tokens: float
    output_tokens: float
    processor_share: float
    saturated: str = ""
    first_error: str = ""
    samples: tuple[Sample, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Plain values; a percentile of no requests, which is infinite here, becomes null."""
        found: dict[str, Any] = _finite(asdict(self))
        return found

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "ChatResult":
        """The opposite of `as_json`."""
        given = {
            **value,
            "chosen": _step(value["chosen"]),
            "steps": tuple(map(_step, value["steps"])),
            "samples": tuple(Sample(**sample) for sample in value["samples"]),
        }
        return cls(**given)


def percentiles(values: list[float]) -> dict[str, float]:
    """Nearest-rank percentiles of the values; infinite where there are none."""
    ordered = sorted(values)
    if not ordered:
        return {f"p{percent}": math.inf for percent in PERCENTILES}
    return {
        f"p{percent}": ordered[max(math.ceil(percent / 100 * len(ordered) - 1e-9), 1) - 1] for percent in PERCENTILES
    }


def _step(value: dict[str, Any]) -> ChatStep:
    given = {field.name: value[field.name] for field in fields(ChatStep)}
    for name in (*ChatMetric, "gaps"):
        given[name] = {p: math.inf if seconds is None else seconds for p, seconds in value[name].items()}
    return ChatStep(**given)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if value == math.inf else value
