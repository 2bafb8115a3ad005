"""The interface between load tests and whatever serves a model: order a server, wait until ready, give it back."""

from dataclasses import dataclass
from typing import Protocol

from mlcd.clouds.provider import Cloud, Lease, Order
from mlcd.gpus import Gpu, used_gib
from mlcd.loadgen.process import Generator, run_generator


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a server answers.

    address        of its Open Inference Protocol, without a path
    model          the name it serves the model under
    further        addresses of further servers like it, one for each further node: they share the load
    client_cpus    CPUs that a client on this machine may use; without the server's own where there are others
    shares_cpus    whether client and server have to share CPUs
    gpu            of this machine that it uses; None: none
    gpu_pids       the server's processes
    gpu_gib_before  GPU memory in use before it started
    generator        sends the load: on this machine, or on a node of its own
    generator_processors  what it has there, where that is a part of one
    network_seconds  from this machine to the servers and back, where they are far; None: they are not
    """

    address: str
    model: str
    client_cpus: tuple[int, ...] = ()
    shares_cpus: bool = False
    further: tuple[str, ...] = ()
    gpu: Gpu | None = None
    gpu_pids: tuple[int, ...] = ()
    gpu_gib_before: float = 0.0
    network_seconds: float | None = None
    generator: Generator = run_generator
    generator_processors: float = 1.0

    @property
    def addresses(self) -> tuple[str, ...]:
        """Of all servers, which share the load."""
        return (self.address, *self.further)

    def gpu_memory_gib(self) -> float | None:
        """GPU memory that the server takes now; None without a GPU of this machine, or where its driver is silent."""
        if self.gpu is None:
            return None
        own = used_gib(self.gpu, self.gpu_pids)
        if own is not None:
            return own
        whole = used_gib(self.gpu)
        return None if whole is None else max(whole - self.gpu_gib_before, 0.0)


class ServerLease(Lease, Protocol):
    """A server on its nodes. `progress` ends once the server is ready; leaving the context ends the server."""

    def __enter__(self) -> "ServerLease": ...

    @property
    def endpoint(self) -> Endpoint:
        """Where it answers. Raises RuntimeError before it is ready."""
        ...

    def check(self) -> None:
        """Raises LeaseFailed when the server has died."""
        ...

    def memory_gib(self) -> float | None:
        """The most memory its processes have used so far; None where that cannot be measured."""
        ...


class ServingCloud(Cloud, Protocol):
    """Somewhere a model can be served."""

    def lease(self, order: Order) -> ServerLease:
        """Order the nodes and start the server there. Raises LeaseFailed, ProviderError."""
        ...
