"""The seam between the profiler and whatever runs a job: lease nodes, watch progress, release."""

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


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is: `samples` processed in all, `seconds` after the nodes were ordered."""

    seconds: float
    samples: float


class LeaseFailed(Exception):
    """The nodes or the job on them failed, `seconds` after the order; `billed` is False where no node was had."""

    def __init__(self, kind: FailureKind, message: str, *, seconds: float, billed: bool = True) -> None:
        super().__init__(message)
        self.kind, self.message, self.seconds, self.billed = kind, message, seconds, billed


class Lease(AbstractContextManager["Lease"], Protocol):
    """Nodes that run the job. Leaving the context releases them, whatever happened."""

    def progress(self) -> Iterator[Progress]:
        """The job's progress from its first sample on, in rising order of seconds, without end.

        Yields at least every few seconds of the cloud's time even when no sample was processed, so that the watcher
        can end a hang. Raises LeaseFailed when the job or its nodes fail.
        """
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

    def lease(self, config: Config, *, attempt: int, purpose: Purpose) -> Lease:
        """Order the nodes of `config` and start the job there. Raises LeaseFailed, ProviderError."""
        ...


class KnownTruth(Protocol):
    """A simulated cloud can tell what it would take forever to measure; for benchmarks only, never for a search."""

    def true_samples_per_second(self, config: Config) -> float | None:
        """The mean speed, or None where the job cannot run."""
        ...
