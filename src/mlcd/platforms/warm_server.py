"""A warm worker: imports PyTorch once, then forks itself for every requested process of a job.

    python -m mlcd.platforms.warm_server SOCKET MODULE...

Imports those of the modules that are installed, prints `ready` on its standard output, and serves SOCKET (see
mlcd.platforms.warm). It ends, with all its processes, when its standard input is closed, because mlcd is gone then.

It stays single-threaded, because a fork copies the calling thread only: a lock that another thread held would never be
released in the child. What a module does on import (above all, reading environment variables) happens once, with the
worker's environment.
"""

import atexit
import builtins
import ctypes
import gc
import importlib
import importlib.util
import json
import os
import selectors
import signal
import socket
import sys
import threading
import traceback
import types
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

_CLONE_NEWNET = 0x40000000
_PR_SET_PDEATHSIG = 1
_POLL_SECONDS = 0.02
_MAX_REQUEST_BYTES = 2**22


@dataclass
class _Client:
    """A connection, the part of its request read so far, and the process forked for it."""

    connection: socket.socket
    read: bytes = b""
    pid: int | None = None


@dataclass
class Server:
    """The worker itself. `serve` returns in the forked processes only, with their request."""

    listener: socket.socket
    clients: list[_Client] = field(default_factory=list)
    ending: set[int] = field(default_factory=set)

    def serve(self) -> dict[str, Any]:
        """Answer requests until standard input is closed; then exit the process."""
        self.selector = selectors.DefaultSelector()
        self.selector.register(0, selectors.EVENT_READ)
        self.selector.register(self.listener, selectors.EVENT_READ)
        while True:
            busy = self.ending or any(client.pid is not None for client in self.clients)
            for key, _ in self.selector.select(_POLL_SECONDS if busy else None):
                if key.fd == 0:
                    if not os.read(0, 4096):
                        self._end()
                elif key.fileobj is self.listener:
                    self._accept()
                elif (request := self._read(key.data)) is not None:
                    return request
            self._reap()

    def _accept(self) -> None:
        connection, _ = self.listener.accept()
        client = _Client(connection)
        self.clients.append(client)
        self.selector.register(connection, selectors.EVENT_READ, client)

    def _read(self, client: _Client) -> dict[str, Any] | None:
        """The request, in the process that was forked for it; None in the worker."""
        try:
            received = client.connection.recv(65536)
        except ConnectionResetError:
            received = b""
        client.read += received
        if not received or len(client.read) > _MAX_REQUEST_BYTES:
            self._drop(client)  # the client is gone: its process ends too
            return None
        if client.pid is not None or not client.read.endswith(b"\n"):
            return None
        request: dict[str, Any] = json.loads(client.read)
        pid = os.fork()
        if pid == 0:
            self._close_all()
            return request
        _set_group(pid)
        client.pid = pid
        _answer(client, {"pid": pid})
        return None

    def _reap(self) -> None:
        self.ending = {pid for pid in self.ending if not os.waitpid(pid, os.WNOHANG)[0]}
        for client in list(self.clients):
            if client.pid is not None:
                done, status = os.waitpid(client.pid, os.WNOHANG)
                if done:
                    client.pid = None
                    _answer(client, {"code": os.waitstatus_to_exitcode(status)})
                    self._drop(client)

    def _drop(self, client: _Client) -> None:
        self.selector.unregister(client.connection)
        client.connection.close()
        self.clients.remove(client)
        if client.pid is not None:
            _kill_group(client.pid)
            self.ending.add(client.pid)  # not waited for: others are served meanwhile

    def _end(self) -> None:
        for client in list(self.clients):
            self._drop(client)
        Path(self.listener.getsockname()).unlink(missing_ok=True)
        sys.exit(0)

    def _close_all(self) -> None:
        self.selector.close()
        self.listener.close()
        for client in self.clients:
            client.connection.close()


def _answer(client: _Client, answer: dict[str, int]) -> None:
    try:
        client.connection.sendall(json.dumps(answer).encode() + b"\n")
    except (BrokenPipeError, ConnectionResetError):  # `_read` notices that the client is gone
        return


def _set_group(pid: int) -> None:
    """Parent and child both call it, so that the group exists before either may signal it."""
    try:
        os.setpgid(pid, pid)
    except (PermissionError, ProcessLookupError):
        return


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def become(request: dict[str, Any]) -> str:
    """Set up a forked process as the request says; returns the script to run."""
    _set_group(0)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    _redirect(request["log"])
    for group in request["groups"]:
        Path(group).write_text("0")
    namespace = os.open(request["network"], os.O_RDONLY)
    if libc.setns(namespace, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "cannot enter the node's network", request["network"])
    os.close(namespace)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = request["argv"][1:]
    script = Path(sys.argv[0])
    extra = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path not in sys.path]
    sys.path[:1] = [str(script.resolve().parent), *extra]
    importlib.invalidate_caches()
    _reset_shared_state()
    return str(Path.cwd() / script)


def _redirect(log: str) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(output)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, write_through=True)  # type: ignore[union-attr]


def _reset_shared_state() -> None:
    """Reset state that forked processes would share and new ones would not."""
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        numpy_random.seed()
    if (torch := sys.modules.get("torch")) is not None:
        torch.random.default_generator.seed()
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or 1))


def run_script(script: str) -> NoReturn:
    """Run it as `python SCRIPT` does, and end the process with its exit code.

    Nothing that the script made is destroyed, neither its module nor its exception: that would copy the pages shared
    with the worker (a second on a small node), and PyTorch may block forever in the destructor of a
    DistributedDataParallel, which waits for a thread that waits for Python's lock.
    """
    module = types.ModuleType("__main__")
    module.__file__ = script
    module.__dict__["__builtins__"] = builtins
    kept = [sys.modules["__main__"], module]
    sys.modules["__main__"] = module
    try:
        exec(compile(Path(script).read_bytes(), script, "exec"), module.__dict__)  # noqa: S102 - the user's own script
    except SystemExit as end:
        _exit(_code_of(end), kept)
    except BaseException:  # print it, as Python does for an uncaught exception
        sys.excepthook(*sys.exc_info())
        _exit(1, kept)
    _exit(0, kept)


def _exit(code: int, _kept: list[types.ModuleType]) -> NoReturn:
    """Wait for the script's threads, run its exit handlers, and end."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _code_of(end: SystemExit) -> int:
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code & 0xFF
    sys.stderr.write(f"{end.code}\n")
    return 1


def warm_up(modules: Sequence[str]) -> None:
    """Import those that are installed. Exits with a message where one of them started threads."""
    for name in modules:
        if importlib.util.find_spec(name.partition(".")[0]) is not None:
            importlib.import_module(name)
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads != 1:
        sys.exit(f"a warm worker must have one thread; importing {', '.join(modules)} started more (got {threads})")
    gc.collect()
    gc.freeze()  # garbage collection would copy the pages that forked processes share


def main() -> None:
    """The entry point of the worker, and of every process that it forks."""
    path, *modules = sys.argv[1:]
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    old = os.umask(0o177)  # anyone who can connect can run code as this user
    listener.bind(path)
    os.umask(old)
    warm_up(modules)
    listener.listen(128)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    request = Server(listener).serve()
    try:
        script = become(request)
    except OSError:
        traceback.print_exc()
        os._exit(1)
    run_script(script)


if __name__ == "__main__":
    main()
