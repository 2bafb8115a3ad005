"""The seam between the profiler and whatever runs a job: order nodes, watch progress, finish, release."""

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from mlcd.space import Config
from mlcd.trial.trial import FailureKind


class Purpose(StrEnum):
    """What nodes are leased for. Simulated noise is on trials only; the final run takes the true mean."""

    TRIAL = "trial"
    RUN = "run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is wanted of a cloud.

    seconds  the most that was authorised: real nodes end themselves soon after, heard from or not
    run_id   whose it is; everything started bears this name
    noise_scale  of the job's gradients as known so far: a learning rate may follow it
    """

    config: Config
    attempt: int = 1
    purpose: Purpose = Purpose.TRIAL
    seconds: float = math.inf
    run_id: str = ""
    noise_scale: float | None = None


@dataclass(frozen=True, slots=True)
class JobProgress:
    """How far a job is: `samples` processed in this lease, `seconds` after the nodes were ordered."""

    seconds: float
    samples: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What is left of a lease once its job was ended.

    seconds          from the order until the nodes were given back: what is paid for
    reached_samples  how far the whole training is by the last checkpoint brought home; 0 where there is none
    utilisation      share of the nodes' processors that was used, where the cloud can tell
    total_samples    the work of the whole training, where the job itself says so
    """

    seconds: float
    reached_samples: float = 0.0
    utilisation: float | None = None
    total_samples: float | None = None


class LeaseFailed(Exception):
    """The nodes or the job on them failed, `seconds` after the order; `billed` is False where no node was had.

    `reached_samples` is as in Settled: what a checkpoint saved before the failure is not lost.
    """

    def __init__(
        self, kind: FailureKind, message: str, *, seconds: float, billed: bool = True, reached_samples: float = 0.0
    ) -> None:
        super().__init__(message)
        self.kind, self.message, self.seconds, self.billed = kind, message, seconds, billed
        self.reached_samples = reached_samples


class Lease(AbstractContextManager["Lease"], Protocol):
    """Nodes that run the job. Leaving the context releases them, whatever happened."""

    def progress(self) -> Iterator[JobProgress]:
        """The job's progress, in rising order of seconds: without end where it is simulated, else until it succeeded.

        Yields at least every few seconds of the cloud's time even when no sample was processed, so that the watcher
        can end a hang. Raises LeaseFailed when the job or its nodes fail.
        """
        ...

    def finish(self, at: JobProgress) -> Settled:
        """End the job after its last progress `at`: let it save, bring home what it has, give the nodes back."""
        ...


class Cloud(Protocol):
    """Somewhere a job can run.

    name       as in `resources.infra`
    simulated  whether time and money there are not real; said in every result
    noise      relative deviation between two runs of one configuration, as far as the cloud knows it
    """

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def simulated(self) -> bool: ...  # noqa: D102
    @property
    def noise(self) -> float: ...  # noqa: D102

    def lease(self, order: Order) -> Lease:
        """Order the nodes and start the job there. Raises LeaseFailed, ProviderError."""
        ...


class KnownTruth(Protocol):
    """A simulated cloud can tell what it would take forever to measure; for benchmarks only, never for a search."""

    def true_samples_per_second(self, config: Config) -> float | None:
        """The mean speed, or None where the job cannot run."""
        ...
