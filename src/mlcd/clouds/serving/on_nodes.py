"""Servers on leased nodes: each configuration is an instance type, the server's settings, and how many nodes it has.

Nodes are leased as those of a training are (clouds/node_lease.py): by an engine, with an agent on each, which ends the
server when its time is over or mlcd is gone. Every node runs one server, or several nodes do (`NodeProgram.nodes`: the
first of them answers), and the load is shared among the servers. It comes
from this machine, or from one node more of the same lease (mlcd.loadgen.node).
"""

import http.client
import math
import re
import secrets
import shlex
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, TracebackType

from mlcd.clouds.local import usable_cpus
from mlcd.clouds.node_lease import NodeLease, free_ports
from mlcd.clouds.nodes import Closable, MeasuresMemory, NodeEngine, Nodes, NodesState, Tunnelled
from mlcd.clouds.provider import JobProgress, LeaseFailed, Order, Settled
from mlcd.clouds.serving.local import ENDED_SECONDS, ServersHere, is_ready
from mlcd.clouds.serving.node_program import NodeProgram
from mlcd.clouds.serving.provider import Endpoint
from mlcd.clouds.shipping import PACKAGE
from mlcd.clouds.workspace import Workspace, copy_workdir, link_or_copy
from mlcd.errors import ProviderError
from mlcd.home import private_folder, write_private
from mlcd.home.envs import forget_in_lease
from mlcd.loadgen.node import READY as GENERATOR_READY
from mlcd.loadgen.node import TOKEN_VARIABLE
from mlcd.loadgen.remote import RemoteGenerator
from mlcd.platforms.agent import Job
from mlcd.platforms.registry import SERVER
from mlcd.trial.trial import FailureKind
from mlcd.untrusted import Malformed, check_way, copy_tree, delete_tree, hidden, last_line, read_bytes

NOTHING: Mapping[str, str] = MappingProxyType({})
POLL_SECONDS = 0.2
WAY_REQUESTS, WAY_TIMEOUT_SECONDS, WAY_BYTES = 5, 5.0, 65_536
"""How the way to a server that is far away is measured."""
_ADDRESS = re.compile(rb"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?")
_ADDRESS_BYTES = 254


class NodeServing:
    """A cloud of servers on an engine's nodes.

    program       says how a configuration's server is started
    is_here       whether the nodes are parts of this machine, so that servers and load generator share its processors
    shares_files  whether nodes have this machine's files; what a server needs is copied to others
    secrets       values that servers get from elsewhere (SkyPilot): only to keep them out of messages
    load_processors  processors of a node by its type, where one node more sends the load; None: this machine does
    """

    simulated = False

    def __init__(
        self,
        engine: NodeEngine,
        program: ServersHere,
        *,
        noise: float,
        is_here: bool,
        shares_files: bool = True,
        secrets: Mapping[str, str] = NOTHING,
        load_processors: Mapping[str, float] | None = None,
    ) -> None:
        self.engine, self.program, self.noise, self.is_here = engine, program, noise, is_here
        self.home, self.shares_files, self.secrets = program.home, shares_files, secrets
        self.load_processors = load_processors

    @property
    def name(self) -> str:
        """The engine's."""
        return self.engine.name

    @property
    def outlives_mlcd(self) -> bool:
        """Whether nodes go on without mlcd until their time is over; the engine says so."""
        return getattr(self.engine, "outlives_mlcd", False) is True

    def lease(self, order: Order) -> "NodeServers":
        """Starts nothing until the lease is entered. Raises ProviderError."""
        return NodeServers(self, order)

    def close(self) -> None:
        """Close what the engine keeps between leases."""
        if isinstance(self.engine, Closable):
            self.engine.close()


class NodeServers(NodeLease):
    """The servers of one lease, one on each node.

    While they run, a thread looks after the nodes: it keeps the engine's heartbeat going during a load test, and sees
    when a server ends and how much memory the servers take.
    """

    def __init__(self, cloud: NodeServing, order: Order) -> None:
        super().__init__(cloud.engine, order, Workspace(cloud.home, order.run_id or "serve"))
        self.cloud = cloud
        self._program: NodeProgram | None = None
        self._port = 0
        self._endpoint: Endpoint | None = None
        self._token = secrets.token_hex(16)
        self._ready: dict[int, str] = {}
        """Nodes whose server answers -> its address."""
        self._peak_gib = 0.0
        self._failure: LeaseFailed | ProviderError | None = None
        self._failed_now, self._over = threading.Event(), threading.Event()
        self._watcher: threading.Thread | None = None

    def __enter__(self) -> "NodeServers":
        super().__enter__()
        self._watcher = threading.Thread(target=self._watch, args=(self.nodes,), daemon=True)
        self._watcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    @property
    def node_count(self) -> int:
        """The servers' nodes, and one more that sends the load where that is asked for: the last."""
        return self.order.config.nodes + (self.cloud.load_processors is not None)

    @property
    def endpoint(self) -> Endpoint:
        """See ServerLease."""
        if self._endpoint is None:
            raise RuntimeError("the servers are not ready")
        return self._endpoint

    def progress(self) -> Iterator[JobProgress]:
        """Yields every POLL_SECONDS until the server on every node is ready."""
        while self._endpoint is None:
            self.check()
            self._ask()
            yield JobProgress(self.elapsed_seconds, 0.0)
            self._over.wait(POLL_SECONDS)

    def finish(self, at: JobProgress) -> Settled:  # noqa: ARG002 - a server has nothing to save
        """End the servers and give the nodes back."""
        self.release()
        return Settled(seconds=self.elapsed_seconds)

    def check(self) -> None:
        """See ServerLease: also raises what the engine could not do.

        A server that no longer answers may have ended just now: then wait for what its agent says.
        """
        if self._program is not None and self._endpoint is not None and self._failure is None:
            ready = self._program.ready
            if not all(is_ready(address + ready) for address in self._endpoint.addresses):
                self._failed_now.wait(ENDED_SECONDS)
        if self._failure is not None:
            raise self._failure

    def memory_gib(self) -> float | None:
        """See ServerLease: of the node that has used most; None where the engine cannot measure it."""
        return self._peak_gib or None

    def release(self) -> None:
        """End every server and give the nodes back. Raises ProviderError naming what cannot be ended."""
        self._over.set()
        if self._watcher is not None:
            self._watcher.join()
        nodes, self.nodes = self.nodes, None
        try:
            if nodes is not None:
                nodes.release()
        finally:
            forget_in_lease(self.folder)
            delete_tree(self.folder / "workdir", below=self.cloud.home)

    # ---- inside

    def _prepare_folder(self) -> None:
        config = self.order.config
        shares_files = self.cloud.shares_files
        program = self.cloud.program.on_node(config.of_node, shares_files=shares_files)
        self._program, self._port = program, free_ports()
        private_folder(self.folder)
        copy_workdir(program.folder, self.folder / "workdir")
        for place, source in program.files.items():
            link_or_copy(source, self._free_place(place))
        for place, source in program.copies.items():
            copy_tree(source.resolve(), self._free_place(place))
        for rank in range(self.node_count):
            (self.folder / f"node-{rank}").mkdir()
        job = Job(
            lease_id=self.lease_id,
            run=program.run if self.cloud.load_processors is None else self._or_generator(program.run),
            setup=program.setup,
            envs={**program.env, **({} if self.cloud.load_processors is None else {TOKEN_VARIABLE: self._token})},
            platform=SERVER,
            instance=config.instance,
            port=self._port,
            server_nodes=program.nodes,
            node_envs=program.node_env,
            seconds=self.order.seconds if self.order.seconds < float("inf") else None,
        )
        write_private(self.folder / "job.json", job.to_json())

    def _free_place(self, name: str) -> Path:
        """A place in the copy of the user's folder. What that has there, maybe a link out of it, is not written to.

        Raises Malformed where it is reached through a link.
        """
        place = self.folder / "workdir" / name
        check_way(place, below=self.folder)
        delete_tree(place, below=self.folder)
        return place

    def _or_generator(self, run: str) -> str:
        """For the shell of every node: the load generator on the last, `run` on the others."""
        command = shlex.join([sys.executable, "-m", "mlcd.loadgen.node"])
        return (
            f'if [ "$MLCD_RANK" = {self.order.config.nodes} ]; then\n'
            f'PYTHONPATH={shlex.quote(str(PACKAGE.parent))} exec {command} --host "$HOST" --port "$PORT"\n'
            f"fi\nunset {TOKEN_VARIABLE}\n{run}"
        )

    def _watch(self, nodes: Nodes) -> None:
        """Look after the nodes until the lease is over or a server has ended."""
        while not self._over.wait(POLL_SECONDS):
            try:
                state = self._state_of(nodes)
                self._check_exits(nodes)
                if state is NodesState.ENDED or self._exits():
                    raise self._failed(FailureKind.ERROR, self._ended_text())
                if isinstance(nodes, MeasuresMemory):
                    self._peak_gib = max(self._peak_gib, nodes.memory_gib(self.order.config.nodes))
            except (LeaseFailed, ProviderError) as failure:
                self._failure = failure
            except (Malformed, OSError) as error:
                self._failure = self._failed(FailureKind.ERROR, str(error))
            if self._failure is not None:
                self._failed_now.set()
                return

    def _ended_text(self) -> str:
        """Why a server that ended with success is a failure all the same."""
        rank = min(self._exits(), default=0)
        last = last_line(self.folder / f"node-{rank}" / "log.txt")
        what = "server" if rank < self.order.config.nodes else "load generator"
        return f"the {what} of node {rank} ended by itself{': ' + last if last else ''}"

    def _ask(self) -> None:
        """Ask the servers that were not ready yet whether they are."""
        program, count = self._program, self.order.config.nodes
        processors = self.cloud.load_processors
        assert program is not None  # noqa: S101 - the lease was entered
        heads = range(0, count, program.nodes)
        for rank in (*heads, *range(count, self.node_count)):
            if rank in self._ready:
                continue
            host = self._address(rank)
            if host is None:
                return
            place = self._place(rank, host)
            ready = program.ready if rank < count else GENERATOR_READY
            if place is None or not is_ready(f"http://{place}{ready}"):
                return
            self._ready[rank] = f"http://{place}"
        addresses = [self._ready[rank] for rank in heads]
        found = Endpoint(
            address=addresses[0],
            further=tuple(addresses[1:]),
            model=program.model,
            client_cpus=usable_cpus() if processors is None else (),
            shares_cpus=self.cloud.is_here and processors is None,
            network_seconds=_longest_way(addresses, program.ready) if isinstance(self.nodes, Tunnelled) else None,
        )
        if processors is not None:
            generator = RemoteGenerator(place=self._ready[count].removeprefix("http://"), token=self._token)
            own = min(processors[self.order.config.instance], 1.0)
            found = replace(found, generator=generator, generator_processors=own)
        self._endpoint = found

    def _place(self, rank: int, host: str) -> str | None:
        """`HOST:PORT` where this machine reaches the server of node `rank`; None before it can."""
        port = self._port + rank
        if not isinstance(self.nodes, Tunnelled):
            return f"{host}:{port}"
        try:
            return self.nodes.reach(rank, host, port)
        except OSError as error:
            raise self._failed(FailureKind.LOST, f"no way to node {rank}: {error.strerror or error}") from error

    def _address(self, rank: int) -> str | None:
        """Where node `rank` is reached; None before its agent runs. Raises LeaseFailed for what is no address."""
        file = self.folder / f"node-{rank}" / "address"
        try:
            text = read_bytes(file, most_bytes=_ADDRESS_BYTES, below=self.cloud.home).strip()
        except FileNotFoundError:
            return None
        except (OSError, Malformed) as error:
            raise self._failed(FailureKind.ERROR, str(error)) from error
        if not text:
            return None  # it is being written
        if not _ADDRESS.fullmatch(text):
            raise self._failed(FailureKind.ERROR, f"{file}: is not an address")
        return text.decode()

    def _failed(self, kind: FailureKind, message: str, *, billed: bool = True) -> LeaseFailed:
        said = hidden(message, self.cloud.secrets)  # it is recorded, shown, and sent on in reports
        return LeaseFailed(kind, said, seconds=self.elapsed_seconds, billed=billed)


def _longest_way(addresses: Sequence[str], path: str) -> float | None:
    """Seconds to the farthest of the servers and back, with what its readiness takes; None where one is silent."""
    found = [_way_seconds(address, path) for address in addresses]
    return max((each for each in found if each is not None), default=None) if None not in found else None


def _way_seconds(address: str, path: str) -> float | None:
    """The shortest of WAY_REQUESTS requests on one connection: the first also opens it."""
    host, _, port = address.removeprefix("http://").partition(":")
    asked = http.client.HTTPConnection(host, int(port), timeout=WAY_TIMEOUT_SECONDS)
    shortest = math.inf
    try:
        for _ in range(WAY_REQUESTS):
            began = time.monotonic()
            asked.request("GET", path)
            asked.getresponse().read1(WAY_BYTES)
            shortest = min(shortest, time.monotonic() - began)
    except (OSError, http.client.HTTPException):
        return shortest if shortest < math.inf else None
    finally:
        asked.close()
    return shortest
