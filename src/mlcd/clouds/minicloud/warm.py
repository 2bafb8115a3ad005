"""Warm workers: one process that has imported PyTorch stays alive between trials; the nodes' processes fork from it.

Importing PyTorch takes about 2.4 s of a core, thus 19 s on a node with an eighth of a core, in every trial.
"""

import os
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from mlcd.clouds.minicloud.cgroup import Group
from mlcd.clouds.minicloud.leased import end_lease, in_groups
from mlcd.clouds.minicloud.record import REGISTRY, LeaseRecord, machine_lock
from mlcd.clouds.nodes import PREFIX
from mlcd.errors import ProviderError
from mlcd.home import job_environment

MODULES = ("numpy", "torch", "torch._dynamo")
"""Modules to import, where installed. PyTorch loads torch._dynamo when the first optimizer is created."""
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


class WarmWorkers:
    """The worker of one mlcd process. It has a record and a control group like a lease, and ends with mlcd."""

    def __init__(self, modules: Sequence[str] = MODULES) -> None:
        self._modules = tuple(modules)
        self._process: subprocess.Popen[bytes] | None = None
        self._lease_id = ""
        self._lock = threading.Lock()

    def socket(self) -> str:
        """The path of the worker's socket; starts the worker if it does not run. Raises ProviderError."""
        with self._lock:
            if not self._answers():
                self._close()
                self._start()
            return str(_socket(self._lease_id))

    def close(self) -> None:
        """End the worker and all its processes; idempotent."""
        with self._lock:
            self._close()

    def _answers(self) -> bool:
        if self._process is None:
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            return connection.connect_ex(str(_socket(self._lease_id))) == 0

    def _start(self) -> None:
        self._lease_id = f"{PREFIX}warm-{os.getpid()}-{secrets.token_hex(3)}"
        group = Group(self._lease_id, "worker")
        with machine_lock():
            LeaseRecord(lease_id=self._lease_id, instance="", count=0, subnet=None, folder="").save()
            group.create()
        path = str(_socket(self._lease_id))
        self._process = subprocess.Popen(  # noqa: S603 - our own worker
            in_groups(group, [sys.executable, "-m", "mlcd.platforms.warm_server", path, *self._modules]),
            stdin=subprocess.PIPE,  # its lifeline
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**job_environment(), **_ONE_THREAD, "MLCD_LEASE": self._lease_id},
            cwd="/",
            start_new_session=True,
        )
        if self._process.stdout is None or self._process.stdout.readline() != b"ready\n":
            _, errors = self._process.communicate()
            self._close()
            lines = errors.decode(errors="replace").strip().splitlines()
            raise ProviderError(f"the warm worker did not start: {lines[-1] if lines else 'no output'}")

    def _close(self) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        end_lease(self._lease_id)
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def _socket(lease_id: str) -> Path:
    return REGISTRY / f"{lease_id}.sock"
