"""The result of a load test."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadStep:
    """One rate of the search for the highest.

    kept     whether the latency limit was kept, without errors; one late request does not break a short step
    stopped  whether it ended early because the limit was already broken; its percentiles are lower bounds
    """

    rate: float
    seconds: float
    requests: int
    errors: int
    p50_seconds: float
    p99_seconds: float
    kept: bool
    stopped: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """The result of a load test, in its last and longest part (`seconds` is of that part).

    requests_per_second  answered without error, whether the limit was kept or not
    offered_per_second   the rate that was sent (server); None for closed loops, where the server sets the pace
    kept                 whether the latency limit was kept without errors; True where there was none
    relative_error       of requests_per_second: spread over parts of the test, or half of the search's last interval
    processor_share      of one processor, used by the generator itself
    saturated            why the generator, not the server, may have limited the result; "" where it did not
    apart                whether the generator had processors that the server could not use
    steps                the rates that were tried, in order
    """

    scenario: str
    requests_per_second: float
    offered_per_second: float | None
    kept: bool
    requests: int
    errors: int
    p50_seconds: float
    p95_seconds: float
    p99_seconds: float
    seconds: float
    total_seconds: float
    relative_error: float
    processor_share: float
    saturated: str
    apart: bool = False
    first_error: str = ""
    steps: tuple[LoadStep, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Plain values; a percentile of no requests, which is infinite here, becomes null."""
        found = asdict(self)
        found["steps"] = [_without_infinity(step) for step in found["steps"]]
        return _without_infinity(found)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "LoadResult":
        """The opposite of `as_json`."""
        steps = tuple(LoadStep(**_with_infinity(step)) for step in value["steps"])
        return cls(**{**_with_infinity(value), "steps": steps})


def _without_infinity(value: dict[str, Any]) -> dict[str, Any]:
    return {name: None if each == math.inf else each for name, each in value.items()}


def _with_infinity(value: dict[str, Any]) -> dict[str, Any]:
    return {n: math.inf if each is None and n.startswith("p") else each for n, each in value.items()}


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile of sorted values: the smallest that at least `percent` % do not exceed."""
    return ordered[max(math.ceil(percent / 100 * len(ordered) - 1e-9), 1) - 1]
