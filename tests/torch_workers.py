"""PyTorch workers, forked from one process that has imported PyTorch: the import alone would take each seconds.

with TorchWorkers() as workers:
    said = workers.run("print(__import__('os').environ['RANK'])", [{"RANK": "0"}, {"RANK": "1"}], folder=folder)
"""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

PATIENCE_SECONDS = 240.0
"""Timeout for workers; no assertion depends on it."""

HOST = """
import atexit, json, os, sys, traceback
import torch, torch._dynamo, mlcd.torch  # the second is what the first optimizer of a process imports
for line in sys.stdin:
    pids = []
    for worker in json.loads(line):
        pids.append(os.fork())
        if pids[-1] == 0:
            for number, file in enumerate((os.devnull, worker["out"], worker["err"])):
                os.dup2(os.open(file, os.O_RDWR), number)
            os.environ.clear()
            os.environ.update(worker["env"])
            os.chdir(worker["folder"])
            sys.argv[1:] = worker["arguments"]
            code, names = 0, {"__name__": "__main__"}
            try:
                exec(worker["script"], names)
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
            except BaseException:
                traceback.print_exc()
                code = 1
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)  # one rendezvous store in four of a forked process waits for ever where it is destroyed
    print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]), flush=True)
"""


class TorchWorkers:
    """The process that forks them; the end of the `with` block ends it with all its processes."""

    def __enter__(self) -> Self:
        self._files = tempfile.TemporaryDirectory(prefix="mlcd-torch-")
        self._host = subprocess.Popen(
            [sys.executable, "-c", HOST],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},  # has an effect only where PyTorch is imported
        )
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._host.communicate(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self._host.pid, signal.SIGKILL)
            self._host.communicate()
        self._files.cleanup()

    def run(
        self, script: str, environments: Sequence[Mapping[str, str]], *, folder: Path, arguments: Sequence[str] = ()
    ) -> list[str]:
        """The output of one worker per environment, each running the script; all of them must succeed."""
        workers: list[dict[str, Any]] = []
        for number, env in enumerate(environments):
            paths = {name: Path(self._files.name) / f"{name}-{number}" for name in ("out", "err")}
            for path in paths.values():
                path.write_text("")
            files = {name: str(path) for name, path in paths.items()}
            given = {"script": script, "arguments": list(arguments), "env": dict(env), "folder": str(folder)}
            workers.append({**given, **files})
        assert self._host.stdin is not None
        assert self._host.stdout is not None
        self._host.stdin.write(json.dumps(workers) + "\n")
        self._host.stdin.flush()
        answered, _, _ = select.select([self._host.stdout], [], [], PATIENCE_SECONDS)
        if not answered:
            os.killpg(self._host.pid, signal.SIGKILL)
        codes = json.loads(self._host.stdout.readline() or "[]")
        said = [(Path(worker["out"]).read_text(), Path(worker["err"]).read_text()) for worker in workers]
        assert codes == [0] * len(workers), said
        return [out for out, _ in said]
