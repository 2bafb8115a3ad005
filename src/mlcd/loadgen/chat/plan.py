"""What a load test of a language model sends, and which limits its answers have to keep."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from mlcd.errors import BadInput

MOST_STREAMS = 4096
"""Streams at the same time: more need more than one process to read them in time."""
MOST_EXCHANGES = 1_000_000
MOST_TOKENS = 10_000_000
"""Of a prompt or an answer; far above every context that is served."""
PERCENTILES = (50, 95, 99)


class ChatMetric(StrEnum):
    """A time of one request.

    ttft  time to first token, from when the request was due
    tpot  time per output token after the first: the pace at which a reader sees the answer grow
    e2e   the whole request
    """

    TTFT = "ttft"
    TPOT = "tpot"
    E2E = "e2e"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatLimit:
    """The limit on one percentile of one metric."""

    metric: ChatMetric
    percentile: int
    seconds: float

    def __post_init__(self) -> None:
        if self.percentile not in PERCENTILES:
            raise BadInput(f"a limit is on p50, p95 or p99 (got p{self.percentile})")
        if not 0 < self.seconds < math.inf:
            raise BadInput(f"a limit on {self.metric} must be more than 0 s (got {self.seconds:g})")

    @property
    def name(self) -> str:
        """As in a job file: ttft_p99."""
        return f"{self.metric}_p{self.percentile}"

    def __str__(self) -> str:
        return f"{self.metric} p{self.percentile} within {self.seconds * 1000:g} ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request: how long its prompt and its answer are, in tokens.

    at_seconds  when it arrives, from the start of a trace; None: when the pattern says
    """

    input_tokens: int
    output_tokens: int
    at_seconds: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.input_tokens <= MOST_TOKENS or not 1 <= self.output_tokens <= MOST_TOKENS:
            raise BadInput(f"prompts and answers have 1 to {MOST_TOKENS:,} tokens")
        if self.at_seconds is not None and not 0 <= self.at_seconds < math.inf:
            raise BadInput(f"a request of a trace arrives at 0 s or later (got {self.at_seconds:g})")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatPlan:
    """One load test. One of `rate`, `concurrency` and a trace sets its pace; without any, it looks for the most.

    model          the name in the requests
    path           of the API: /v1/chat/completions, or /v1/completions for models without a chat template
    exchanges      lengths, taken in turn; with `at_seconds` in each, a trace: its arrivals are kept
    shared_tokens  how many tokens at the start of every prompt are the same in all: what a prefix cache can use
    seconds        of the whole test, warm-up included; a trace ends with its last request
    rate           requests that arrive in a second, as a Poisson process
    concurrency    requests in flight at any time; without a rate or a trace and with `search`, the most that is tried
    search         whether concurrency grows 1, 2, 4, ... while the limits are kept and tokens/s still grow
    open           whether a search offers rates, as a Poisson process, instead of requests in flight
    warm_up_seconds  of a trace: requests that arrive before do not count
    limits         all must be kept
    extra          further fields of every request, such as {"ignore_eos": true}
    cpus           processors the generator may use; empty: all that are available to it
    seed           of the arrivals and prompts
    further        addresses of further servers, which share the load
    processors     what the generator has, where that is a part of one
    """

    address: str
    model: str
    path: str = "/v1/chat/completions"
    exchanges: tuple[Exchange, ...] = (Exchange(input_tokens=128, output_tokens=64),)
    shared_tokens: int = 0
    seconds: float = 30.0
    rate: float | None = None
    concurrency: int = 1
    search: bool = False
    open: bool = False
    warm_up_seconds: float = 0.0
    limits: tuple[ChatLimit, ...] = ()
    extra: Mapping[str, object] = field(default_factory=dict)
    timeout_seconds: float = 120.0
    cpus: tuple[int, ...] = ()
    seed: int = 0
    further: tuple[str, ...] = ()
    processors: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.seconds < math.inf or not 0 < self.timeout_seconds < math.inf:
            raise BadInput("a load test and the wait for an answer must last more than 0 s")
        if self.rate is not None and not 0 < self.rate < math.inf:
            raise BadInput(f"a rate must be more than 0 requests/s (got {self.rate:g})")
        if not 1 <= self.concurrency <= MOST_STREAMS:
            raise BadInput(f"between 1 and {MOST_STREAMS:,} requests can be in flight (got {self.concurrency:,})")
        if not 1 <= len(self.exchanges) <= MOST_EXCHANGES:
            raise BadInput(f"a load test needs 1 to {MOST_EXCHANGES:,} lengths of prompts and answers")
        timed = sum(each.at_seconds is not None for each in self.exchanges)
        if timed not in (0, len(self.exchanges)):
            raise BadInput("either every request of a trace has its time of arrival, or none")
        if timed and (self.rate is not None or self.search):
            raise BadInput("a trace sets its own pace: give no rate, and no search")
        if self.search and self.rate is not None:
            raise BadInput("a rate cannot be given where the most is looked for")
        if not self.path.startswith("/") or any(c <= " " for c in self.path):
            raise BadInput(f"the path of the API must start with / and hold no blanks (got {self.path!r})")
        if not 0 <= self.shared_tokens <= min(each.input_tokens for each in self.exchanges):
            raise BadInput("the shared start of the prompts must not be longer than the shortest prompt")

    @property
    def is_trace(self) -> bool:
        """Whether the requests arrive at given times."""
        return self.exchanges[0].at_seconds is not None

    @property
    def is_chat(self) -> bool:
        """Whether requests are messages; else they are a prompt."""
        return self.path.rstrip("/").endswith("chat/completions")
