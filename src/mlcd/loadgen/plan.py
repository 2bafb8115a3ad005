"""What a load test sends, and how: MLPerf's scenarios under their names."""

import math
from dataclasses import dataclass
from enum import StrEnum

from mlcd.errors import BadInput


class Scenario(StrEnum):
    """How requests follow each other (MLPerf Inference, Reddi et al. 2020, section IV).

    single-stream  one request after another
    multi-stream   queries of several requests, one query after another; a query lasts until its last request is done
    server         Poisson arrivals, whatever the server does; latency counts from when a request was due
    offline        enough requests at the same time that the server is never idle
    """

    SINGLE_STREAM = "single-stream"
    MULTI_STREAM = "multi-stream"
    SERVER = "server"
    OFFLINE = "offline"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadInput:
    """One input of a request: random numbers of `shape`, whose first axis is the batch (1 for one item).

    high  whole numbers lie in [0, high): an embedding's indices must be less than its number of rows
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    high: int = 2

    def __post_init__(self) -> None:
        if any(size < 1 for size in self.shape) or self.high < 1:
            raise BadInput(f"input {self.name}: every size, and the upper bound of its numbers, must be 1 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """One load test.

    seconds      of the whole test, warm-up and search included
    slo_seconds  limit on `percentile` of the latencies; None: no limit
    rate         requests a second that arrive (server); None: search for the highest that keeps the limit
    concurrency  requests at the same time (offline), and the most that the search for a rate starts with
    together     requests of one query (multi-stream)
    cpus         processors the generator may use; empty: all that are available to it
    seed         of the arrivals and of the numbers sent
    further      addresses of further servers, which share the load
    processors   what the generator has, where that is a part of one
    path, body   of plain HTTP: where the requests go, and the JSON text of each; "": tensors, by `model` and `inputs`
    """

    address: str
    model: str
    inputs: tuple[LoadInput, ...]
    scenario: Scenario = Scenario.SERVER
    seconds: float = 10.0
    slo_seconds: float | None = None
    percentile: int = 99
    rate: float | None = None
    concurrency: int = 32
    together: int = 8
    cpus: tuple[int, ...] = ()
    seed: int = 0
    further: tuple[str, ...] = ()
    processors: float = 1.0
    path: str = ""
    body: str = ""

    def __post_init__(self) -> None:
        if not (0 < self.seconds < math.inf):
            raise BadInput(f"a load test must last more than 0 s (got {self.seconds:g})")
        if self.slo_seconds is not None and not (0 < self.slo_seconds < math.inf):
            raise BadInput(f"a latency limit must be more than 0 s (got {self.slo_seconds:g})")
        if self.rate is not None and not (0 < self.rate < math.inf):
            raise BadInput(f"a rate must be more than 0 requests/s (got {self.rate:g})")
        if not 0 < self.processors <= 1:
            raise BadInput(f"the generator has more than 0 and at most 1 processor (got {self.processors:g})")
        if self.percentile not in (50, 95, 99):
            raise BadInput(f"a latency limit must be on p50, p95 or p99 (got p{self.percentile})")
        if not 1 <= self.concurrency <= MOST_CONNECTIONS or not 1 <= self.together <= MOST_CONNECTIONS:
            raise BadInput(f"between 1 and {MOST_CONNECTIONS} requests can be in flight at the same time")
        if self.scenario is Scenario.SERVER and self.rate is None and self.slo_seconds is None:
            raise BadInput("the server scenario needs a rate, or a latency limit to search for one")


MOST_CONNECTIONS = 800
"""select() handles 1,024 files. It is used for its timeouts in microseconds; those of epoll and poll are in ms."""
