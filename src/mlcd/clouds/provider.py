"""The interface between the profiler and whatever runs a job: order nodes, watch progress, finish, release."""

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from mlcd.space import Config
from mlcd.transformer import Transformer
from mlcd.trial.node_metrics import NodeMetrics
from mlcd.trial.trial import FailureKind


class Purpose(StrEnum):
    """What nodes are leased for. Simulated noise applies to trials only; the final run has the true mean speed."""

    TRIAL = "trial"
    RUN = "run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A request for nodes with the job on them.

    seconds      the most that was authorised: real nodes end themselves soon after, even if mlcd is gone
    run_id       the run that orders; everything started carries this name
    noise_scale  the noise scale of the job's gradients as known so far; a learning rate may depend on it
    checkpoint_seconds  training between two checkpoints, against interruptions; None: as the job file says
    continues    whether the job continues from the run's checkpoint, and what it saves is kept; else it starts afresh
    """

    config: Config
    attempt: int = 1
    purpose: Purpose = Purpose.TRIAL
    seconds: float = math.inf
    run_id: str = ""
    noise_scale: float | None = None
    checkpoint_seconds: float | None = None
    continues: bool = True


@dataclass(frozen=True, slots=True)
class JobProgress:
    """A job's progress: `samples` processed in this lease, `seconds` after the nodes were ordered."""

    seconds: float
    samples: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The result of a lease whose job was ended.

    seconds          from the order until the nodes were given back: the time that is paid for
    reached_samples  samples of the whole training covered by the last checkpoint fetched; 0 where there is none
    utilisation      share of the nodes' CPU time that was used; None where the cloud cannot measure it
    total_samples    the work of the whole training, where the job itself reports it
    node_metrics     what the cloud's own monitoring measured on the nodes; None where it has nothing
    missing_outputs  outputs of the job file that a training which ended by itself did not leave
    kept_folder      where the node's files are kept because of that
    transformer      the sizes of the trained model, where the job itself reports them
    is_finished      whether the job of a trial did all of the work by itself and left its outputs, which are fetched
    """

    seconds: float
    reached_samples: float = 0.0
    utilisation: float | None = None
    total_samples: float | None = None
    node_metrics: NodeMetrics | None = None
    missing_outputs: tuple[str, ...] = ()
    kept_folder: str = ""
    is_finished: bool = False
    transformer: Transformer | None = None


class LeaseFailed(Exception):
    """The nodes or the job on them failed, `seconds` after the order; `billed` is False where no node was obtained.

    A lease that has processed a sample had nodes, and is charged whatever it says.

    `reached_samples` is as in Settled: work that was checkpointed before the failure is not lost.
    """

    def __init__(
        self, kind: FailureKind, message: str, *, seconds: float, billed: bool = True, reached_samples: float = 0.0
    ) -> None:
        super().__init__(message)
        self.kind, self.message, self.seconds, self.billed = kind, message, seconds, billed
        self.reached_samples = reached_samples


class Lease(AbstractContextManager["Lease"], Protocol):
    """Nodes that run the job. Leaving the context releases them, whatever happened.

    The engine checks every value (mlcd.engine.checked) and bounds every call (mlcd.engine.watchdog). A lease that says
    NaN, runs backwards, stands still or raises anything but LeaseFailed and MlcdErrors has failed. On a real cloud at
    least the time that passed by the engine's clock is charged; what has not returned 10 minutes after the order's
    seconds is abandoned.
    """

    def progress(self) -> Iterator[JobProgress]:
        """The job's progress, in increasing order of seconds: endless where simulated, else until the job succeeds.

        Yields at least every few seconds of the cloud's time even when no sample was processed, so that the watcher
        can end a job that hangs. Raises LeaseFailed when the job or its nodes fail.
        """
        ...

    def finish(self, at: JobProgress) -> Settled:
        """End the job after its last progress `at`: let it save, fetch its results, give the nodes back."""
        ...


@runtime_checkable
class KnowsItsWork(Protocol):
    """A lease whose job says how much work there is."""

    def has_done_all(self) -> bool:
        """Whether the job has reported all of its work: it is silent because it writes its results."""
        ...


class Cloud(Protocol):
    """Somewhere a job can run.

    name       as in `resources.infra`
    simulated  whether time and money there are not real; every result states it
    noise      relative standard deviation between two runs of one configuration, as far as the cloud knows it
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
    """A simulated cloud that can report its true mean speeds; for benchmarks only, never for a search."""

    def true_samples_per_second(self, config: Config) -> float | None:
        """The mean speed, or None where the job cannot run."""
        ...
