"""`local` as a serving cloud: each configuration is a server on this machine, pinned to its own CPUs."""

import contextlib
import os
import re
import secrets
import select
import shlex
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from mlcd.clouds import processes
from mlcd.clouds.gpu_share import on_share
from mlcd.clouds.local import usable_cpus
from mlcd.clouds.local_leases import LocalLeases
from mlcd.clouds.nodes import PREFIX
from mlcd.clouds.provider import JobProgress, LeaseFailed, Order, Settled
from mlcd.clouds.serving.node_program import READY, NodeProgram, on_rented_node
from mlcd.clouds.serving.provider import Endpoint
from mlcd.clouds.shipping import PACKAGE
from mlcd.clouds.workspace import Workspace
from mlcd.gpus import Gpu, used_gib
from mlcd.home import job_environment, private_folder
from mlcd.memory import free_memory_bytes, ran_out_of_memory
from mlcd.server.options import Device, Precision, ServerOptions
from mlcd.server.quantise import quantised
from mlcd.server.tensors import TensorSpec
from mlcd.space import Config
from mlcd.trial.trial import FailureKind
from mlcd.untrusted import Fields, Malformed, last_line, last_lines, parse_json, printable

POLL_SECONDS = 0.1
MEMORY_SHARE = 0.9
"""Of the memory that is free when a server starts: one that takes more is ended."""
MEMORY_POLL_SECONDS = 0.25
ENDED_SECONDS = 3.0
"""How long it may take to learn how a server ended that no longer answers."""
LOOPBACK = "127.0.0.1"
_ASK_SECONDS = 2.0
_ONE_THREAD = {
    "OMP_WAIT_POLICY": "PASSIVE",
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
}
"""Variables of mlcd's server: it sets its threads itself."""
_LAST_WORDS_BYTES = 8000
_LINE_BYTES = 65536
"""Of a dead server's log: a traceback of PyTorch, and what other processes of the server said after it."""
_FIRST_LINE_BYTES = 1024
_KEEPER = Path(__file__).with_name("keeper.py")


GPU_SHARE = "gpu_share"
"""The knob that says how many percent of a GPU a server has; a configuration without it uses none."""


def cores_of(config: Config, most: int) -> int:
    """The CPUs a configuration uses and is charged for: threads x replicas, at most `most`.

    With a GPU: one for each replica, which hands it batches, and one for requests.
    """
    if GPU_SHARE in config.as_dict():
        return min(int(config["replicas"]) + 1, most)
    return min(int(config["threads"]) * int(config["replicas"]), most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a configuration's server is started, and how it is known to be ready.

    cores    CPUs that it is pinned to
    gpu      the GPU that it uses; None: none
    address  where it will answer; "": its first line of output says so
    model    the name in requests to that address
    ready    the path that answers 200 there when it is ready
    """

    command: list[str]
    env: Mapping[str, str]
    cores: int
    address: str = ""
    model: str = ""
    ready: str = "/"
    gpu: Gpu | None = None


class ServersHere(ABC):
    """Servers on this machine, one for each lease: nominal prices, real seconds."""

    name = "local"
    simulated = False

    def __init__(self, *, home: Path, noise: float, cpus: tuple[int, ...] | None = None) -> None:
        self.home, self.noise = home, noise
        self.cpus = usable_cpus() if cpus is None else cpus
        self.leases = LocalLeases(home, self.name)
        self._swept = False

    @abstractmethod
    def launch(self, config: Config, *, host: str = LOOPBACK, port: int = 0) -> Launch:
        """How the server of a configuration is started. Port 0: a free one."""

    @abstractmethod
    def on_node(self, config: Config, *, shares_files: bool = True) -> NodeProgram:
        """How the same server is started on a node, with or without the files of this machine. Raises BadInput."""

    def lease(self, order: Order) -> "LocalServer":
        """Start the server. The first lease ends what killed mlcd processes left running: it would use these CPUs."""
        if not self._swept:
            self._swept = True
            self.leases.end_abandoned()
        return LocalServer(self, order)


class LocalServing(ServersHere):
    """A model served by mlcd's own server.

    inputs  of a TorchScript file
    gpu     for configurations with a share of it
    """

    def __init__(
        self,
        model: Path,
        *,
        home: Path,
        noise: float,
        sizes: Mapping[str, int] | None = None,
        cpus: tuple[int, ...] | None = None,
        inputs: tuple[TensorSpec, ...] = (),
        gpu: Gpu | None = None,
    ) -> None:
        super().__init__(home=home, noise=noise, cpus=cpus)
        self.model, self.sizes, self.inputs, self.gpu = model, sizes or {}, inputs, gpu

    def options(self, config: Config, *, port: int = 0, host: str = LOOPBACK) -> ServerOptions:
        """The options of a configuration's server."""
        values = config.as_dict()
        return ServerOptions(
            model=self.model,
            batch=int(config["batch"]),
            threads=int(values.get("threads", 1)),
            device=Device.CUDA if GPU_SHARE in values else Device.CPU,
            compiled=values.get("compile") == "on",
            inputs=self.inputs,
            replicas=int(config["replicas"]),
            precision=Precision(str(config["precision"])),
            sizes=self.sizes,
            cache=self.home / "quantised",
            host=host,
            port=port,
        )

    def launch(self, config: Config, *, host: str = LOOPBACK, port: int = 0) -> Launch:
        """See ServersHere: the server tells its port."""
        options = self.options(config, port=port, host=host)
        command, env = [sys.executable, "-m", "mlcd.server", *options.arguments()], self.environment()
        gpu = self.gpu if options.device is Device.CUDA else None
        if gpu is not None:
            command, env = on_share(command, env, gpu=gpu, percent=int(config[GPU_SHARE]))
        return Launch(command=command, env=env, cores=cores_of(config, len(self.cpus)), ready=READY, gpu=gpu)

    def on_node(self, config: Config, *, shares_files: bool = True) -> NodeProgram:
        """See ServersHere. The model is quantised here, once, and not on every node."""
        options = self.options(config)
        made = quantised(options.model, options.cache) if options.precision is Precision.INT8 else None
        if not shares_files:
            return on_rented_node(options, made, env=_ONE_THREAD)
        arguments = shlex.join([sys.executable, "-m", "mlcd.server", *options.arguments()])
        return NodeProgram(
            run=f'exec {arguments} --host "$HOST" --port "$PORT"',
            env={"PYTHONPATH": str(PACKAGE.parent), **_ONE_THREAD},
            model=options.model_name,
            ready=READY,
        )

    def environment(self) -> dict[str, str]:
        """The server's variables: one thread for numerical libraries, and not where mlcd keeps its records."""
        return {**job_environment(), **_ONE_THREAD, "PYTHONUNBUFFERED": "1"}


class LocalServer:
    """One server, its keeper and its folder."""

    def __init__(self, cloud: ServersHere, order: Order) -> None:
        self.cloud, self.order = cloud, order
        run = order.run_id or "serve"
        self.lease_id = f"{PREFIX}{run[-40:].lower()}-{secrets.token_hex(3)}"
        self.folder = Workspace(cloud.home, run).lease(self.lease_id)
        self._started = time.monotonic()
        self._endpoint: Endpoint | None = None
        self._output = b""
        self._peak_gib = 0.0
        self._launch = cloud.launch(order.config)
        self._gpu_gib_before = (used_gib(self._launch.gpu) or 0.0) if self._launch.gpu else 0.0
        self._most_gib = free_memory_bytes() * MEMORY_SHARE / 2**30
        self._took_too_much, self._over = False, threading.Event()
        self._watcher = threading.Thread(target=self._watch_memory, daemon=True)
        self.own_cpus, rest = cloud.cpus[: self._launch.cores], cloud.cpus[self._launch.cores :]
        self._client_cpus, self._shares = (rest or cloud.cpus), not rest
        try:
            private_folder(self.folder)
            self._held = cloud.leases.hold(self.lease_id, self.folder)
            with (self.folder / "log.txt").open("ab") as log:
                self._keeper = self._held.start(
                    [sys.executable, "-I", str(_KEEPER), str(order.seconds), *self._launch.command],
                    stdin=subprocess.PIPE,
                    stdout=log if self._launch.address else subprocess.PIPE,
                    stderr=log,
                    env=dict(self._launch.env),
                )
            if hasattr(os, "sched_setaffinity"):
                os.sched_setaffinity(self._keeper.pid, self.own_cpus)  # before it has started the server
        except OSError as error:
            if (held := getattr(self, "_held", None)) is not None:
                held.close()
            raise LeaseFailed(FailureKind.LAUNCH, f"the server did not start: {error}", seconds=0.0) from error
        self._watcher.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    @property
    def elapsed_seconds(self) -> float:
        """Seconds since the order."""
        return time.monotonic() - self._started

    @property
    def endpoint(self) -> Endpoint:
        """See ServerLease."""
        if self._endpoint is None:
            raise RuntimeError("the server is not ready")
        return self._endpoint

    def progress(self) -> Iterator[JobProgress]:
        """Yields every POLL_SECONDS until the server is ready."""
        while self._endpoint is None:
            self.check()
            if self._launch.address:
                self._ask()
            else:
                self._read_output()
            self.memory_gib()
            yield JobProgress(self.elapsed_seconds, 0.0)

    def finish(self, at: JobProgress) -> Settled:  # noqa: ARG002 - a server has nothing to save
        """End the server."""
        self.memory_gib()
        self.release()
        return Settled(seconds=self.elapsed_seconds)

    def check(self) -> None:
        """See ServerLease."""
        if self._took_too_much:
            text = (
                f"the server took {self._peak_gib:.1f} GiB of memory; {self._most_gib / MEMORY_SHARE:.1f} GiB were free"
            )
            raise LeaseFailed(FailureKind.OUT_OF_MEMORY, text, seconds=self.elapsed_seconds)
        code = self._keeper.poll()
        if code is None and self._endpoint is not None and not is_ready(self._endpoint.address + self._launch.ready):
            with contextlib.suppress(subprocess.TimeoutExpired):  # it may have ended just now
                code = self._keeper.wait(ENDED_SECONDS)
        if code is None:
            return
        last = last_line(self.folder / "log.txt", most_characters=2000)
        text = last.removeprefix("mlcd.server: ") or f"ended with code {code}"
        said = last_lines(self.folder / "log.txt", most_bytes=_LAST_WORDS_BYTES)
        exhausted = code in (137, -9) or any(ran_out_of_memory(line) for line in said)
        if exhausted and not ran_out_of_memory(text):
            words = next((line.strip() for line in reversed(said) if ran_out_of_memory(line)), text)
            text = printable(words, most_characters=2000)
        kind = FailureKind.OUT_OF_MEMORY if exhausted else FailureKind.ERROR
        raise LeaseFailed(kind, f"the server ended: {text[:300]}", seconds=self.elapsed_seconds)

    def memory_gib(self) -> float | None:
        """See ServerLease: the resident memory of all its processes, sampled at each call."""
        sizes = [processes.resident_gib(pid) for pid in self._held.pids() if pid != self._keeper.pid]
        self._peak_gib = max(self._peak_gib, sum(sizes))
        return self._peak_gib or None

    def release(self) -> None:
        """End every process of the lease. Raises ProviderError naming what cannot be ended."""
        self._over.set()
        self._watcher.join()
        with contextlib.suppress(OSError):
            if self._keeper.stdin:
                self._keeper.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._keeper.wait(timeout=10)
        try:
            self._held.close()
        finally:
            self._keeper.poll()
            if self._keeper.stdout:
                self._keeper.stdout.close()

    def _watch_memory(self) -> None:
        """Kill a server that takes nearly all of the memory that was free, before the system kills something else."""
        while not self._over.wait(MEMORY_POLL_SECONDS):
            if (self.memory_gib() or 0.0) > self._most_gib:
                self._took_too_much = True
                processes.end(self._held.pids(), grace_seconds=0.0)
                return

    def _at(self, address: str, model: str) -> Endpoint:
        return Endpoint(
            address=address,
            model=model,
            client_cpus=self._client_cpus,
            shares_cpus=self._shares,
            gpu=self._launch.gpu,
            gpu_pids=tuple(self._held.pids()) if self._launch.gpu else (),
            gpu_gib_before=self._gpu_gib_before,
        )

    def _ask(self) -> None:
        """Ask the server's address whether it is ready."""
        until = time.monotonic() + POLL_SECONDS
        if is_ready(self._launch.address + self._launch.ready):
            self._endpoint = self._at(self._launch.address, self._launch.model)
            return
        time.sleep(max(until - time.monotonic(), 0.0))

    def _read_output(self) -> None:
        """Read the server's output: its first line of JSON has the address."""
        out = self._keeper.stdout
        assert out is not None  # noqa: S101 - it was opened as a pipe
        if not select.select([out], [], [], POLL_SECONDS)[0]:
            return
        self._output += os.read(out.fileno(), 65536)
        *lines, rest = self._output.split(b"\n")
        self._output = rest[-_LINE_BYTES:]
        for line in lines:
            with contextlib.suppress(Malformed):
                data = Fields(parse_json(line))
                self._endpoint = self._at(data.text("address"), data.text("model"))


def is_ready(url: str) -> bool:
    """Whether the server at `url` answers 200 within a second or two.

    Asked directly, whatever proxy the environment names; nothing is followed, and only the first line is read.
    """
    place = urllib.parse.urlsplit(url)
    target = f"{place.path or '/'}{'?' if place.query else ''}{place.query}"
    until = time.monotonic() + _ASK_SECONDS
    answer = b""
    try:
        with socket.create_connection((place.hostname or "", place.port or 80), timeout=_ASK_SECONDS) as asked:
            head = f"GET {target} HTTP/1.1\r\nHost: {place.netloc}\r\nConnection: close\r\n\r\n"
            asked.sendall(head.encode())
            while b"\n" not in answer and len(answer) < _FIRST_LINE_BYTES:
                asked.settimeout(max(until - time.monotonic(), 0.001))
                data = asked.recv(_FIRST_LINE_BYTES)
                if not data:
                    break
                answer += data
    except (OSError, ValueError):
        return False
    return re.match(rb"HTTP/1\.[01] 200\b", answer) is not None
