"""The seam between load tests and whatever serves a model: order a server, wait until it is ready, give it back."""

from dataclasses import dataclass
from typing import Protocol

from mlcd.clouds.provider import Cloud, Lease, Order


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a server answers.

    address        of its Open Inference Protocol, without a path
    model          the name it serves the model under
    client_cpus    processors that a client on this machine may use; the server's own are not among them where there
                   are others
    shares_cpus    whether client and server have to share processors
    """

    address: str
    model: str
    client_cpus: tuple[int, ...] = ()
    shares_cpus: bool = False


class ServerLease(Lease, Protocol):
    """A server on its nodes. `progress` ends once it is ready; leaving the context ends it, whatever happened."""

    def __enter__(self) -> "ServerLease": ...

    @property
    def endpoint(self) -> Endpoint:
        """Where it answers. Raises RuntimeError before it is ready."""
        ...

    def check(self) -> None:
        """Raises LeaseFailed when the server has died."""
        ...

    def memory_gib(self) -> float | None:
        """The most that its processes have taken so far, where that can be told."""
        ...


class ServingCloud(Cloud, Protocol):
    """Somewhere a model can be served."""

    def lease(self, order: Order) -> ServerLease:
        """Order the nodes and start the server there. Raises LeaseFailed, ProviderError."""
        ...
