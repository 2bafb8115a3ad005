"""One lease of an engine's nodes with an agent on each: ordered, watched for how nodes end, given back.

What runs on the nodes is the subclass's: a training (clouds/job.py) or servers (clouds/serving/on_nodes.py).
"""

import contextlib
import secrets
import socket
import time
from abc import ABC, abstractmethod
from random import SystemRandom
from typing import Self

from mlcd.clouds.exits import NodeExit, read_exit
from mlcd.clouds.nodes import PREFIX, NodeEngine, NodeOrder, Nodes, NodesState
from mlcd.clouds.provider import LeaseFailed, Order
from mlcd.clouds.reading import wall_clock
from mlcd.clouds.workspace import Workspace
from mlcd.errors import ProviderError
from mlcd.home.envs import forget_in_lease
from mlcd.platforms.placement import PORTS
from mlcd.trial.trial import FailureKind
from mlcd.untrusted import Malformed, NotJson, last_line

POLL_SECONDS = 0.05
OTHER_EXITS_SECONDS = 1.0
"""How long to wait for the other nodes' exits after one failed: the first to end is often not the cause."""
HALF_EXIT_SECONDS = 5.0
"""How long an exit.json may be half-written: it is renamed when it is complete, but network file systems cache."""

_FAILURE_OF_EXIT = {
    "out-of-memory": FailureKind.OUT_OF_MEMORY,
    "killed": FailureKind.LOST,
    "ended": FailureKind.HANG,
    "job-failed": FailureKind.ERROR,
}
_LIKELY_CAUSE_ORDER = ("out-of-memory", "killed", "ended", "job-failed")
"""Kinds of exit, most likely cause first: when several nodes failed, a process that lost its peer fails too."""


class NodeLease(ABC):
    """Nodes from the order to the release, and the folder that is shared with them (mlcd.clouds.nodes)."""

    def __init__(self, engine: NodeEngine, order: Order, space: Workspace) -> None:
        self.engine, self.order, self.space = engine, order, space
        self.lease_id = f"{PREFIX}{space.run_id[-40:].lower()}-{secrets.token_hex(3)}"
        self.folder = space.lease(self.lease_id)
        self.nodes: Nodes | None = None
        self._half_exits: dict[int, float] = {}
        """Nodes whose exit.json is half-written -> since when."""
        self._began = self._began_at = 0.0

    def __enter__(self) -> Self:
        self._began, self._began_at = time.monotonic(), wall_clock()
        try:
            self._prepare_folder()
            self.nodes = self.engine.start(
                NodeOrder(
                    lease_id=self.lease_id,
                    instance=self.order.config.instance,
                    count=self.node_count,
                    seconds=self.order.seconds,
                    folder=self.folder,
                    spot=self.order.config.is_spot,
                )
            )
        except LeaseFailed as failed:
            forget_in_lease(self.folder)
            raise self._failed(failed.kind, failed.message, billed=failed.billed) from failed
        except ProviderError as error:
            forget_in_lease(self.folder)
            raise self._refused(error, billed=False) from error
        except (OSError, Malformed) as error:
            forget_in_lease(self.folder)
            problem = f"the lease's folder cannot be written: {getattr(error, 'strerror', None) or error}"
            raise self._failed(FailureKind.LAUNCH, problem, billed=False) from error
        return self

    @property
    def node_count(self) -> int:
        """How many nodes are leased: those of the configuration."""
        return self.order.config.nodes

    @abstractmethod
    def _prepare_folder(self) -> None:
        """Create the lease's folder with all that the nodes need. Raises OSError, Malformed."""

    @abstractmethod
    def _failed(self, kind: FailureKind, message: str, *, billed: bool = True) -> LeaseFailed:
        """The error of this lease, for the caller to raise."""

    @property
    def elapsed_seconds(self) -> float:
        """Seconds since the order."""
        return time.monotonic() - self._began

    def _state_of(self, nodes: Nodes) -> NodesState:
        try:
            return nodes.state()
        except LeaseFailed as failed:
            raise self._failed(failed.kind, failed.message, billed=failed.billed) from failed
        except ProviderError as error:
            raise self._refused(error, billed=True) from error

    def _refused(self, error: ProviderError, *, billed: bool) -> LeaseFailed | ProviderError:
        """What to raise where the cloud cannot be used: a failure of this lease alone if there are other places."""
        if getattr(self.engine, "has_others", False) is not True:
            return error
        return self._failed(FailureKind.REFUSED, str(error), billed=billed)

    def _check_exits(self, nodes: Nodes) -> None:
        """Raises LeaseFailed with the likely cause where a node has failed; Malformed, OSError."""
        if not any(end.code for end in self._exits().values()):
            return
        until = time.monotonic() + OTHER_EXITS_SECONDS
        while time.monotonic() < until and len(self._exits()) < self.node_count:
            time.sleep(POLL_SECONDS)
        self._state_of(nodes)  # the engine reports out of memory more precisely than the process that was killed
        failed_ends = [end for end in self._exits().values() if end.code]
        end = min(
            failed_ends,
            key=lambda e: (
                _LIKELY_CAUSE_ORDER.index(e.kind) if e.kind in _LIKELY_CAUSE_ORDER else len(_LIKELY_CAUSE_ORDER)
            ),
        )
        raise self._failed(_FAILURE_OF_EXIT.get(end.kind, FailureKind.ERROR), self._exit_message(end))

    def _exit_message(self, end: NodeExit) -> str:
        """The node's exit message, with the last line of its output where the job itself failed."""
        last = last_line(self.folder / f"node-{end.rank}" / "log.txt")
        return f"{end.message}: {last}" if last and end.kind not in ("ended", "killed") else end.message

    def _exits(self) -> dict[int, NodeExit]:
        """How nodes ended, by rank. Raises Malformed, OSError."""
        found = {}
        for rank in range(self.node_count):
            try:
                end = read_exit(self.folder, rank, below=self.space.home)
            except NotJson:
                since = self._half_exits.setdefault(rank, time.monotonic())
                if time.monotonic() - since >= HALF_EXIT_SECONDS:
                    raise
                continue
            if end is not None:
                found[rank] = end
        return found


def free_ports() -> int:
    """The first of PORTS consecutive ports that are free on this machine; jobs on other machines use the same."""
    random = SystemRandom()
    for _ in range(50):
        port = random.randrange(20_000, 32_000)  # below the range that systems use for outgoing connections
        with contextlib.ExitStack() as stack:
            try:
                for number in range(port, port + PORTS):
                    probe = stack.enter_context(socket.socket())
                    probe.bind(("127.0.0.1", number))
            except OSError:
                continue
        return port
    raise ProviderError(f"no {PORTS} consecutive free ports were found on this machine")
