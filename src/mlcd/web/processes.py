"""Starts, stops and resumes runs: each is an `mlcd` process of its own, as from a terminal.

The job file is data on its standard input. A run that was started here goes on when the page's server ends.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlcd.errors import BadInput, MlcdError
from mlcd.run.header import is_run_of
from mlcd.run.kind import Kind
from mlcd.spec.infra import infras_of
from mlcd.store.store import Store
from mlcd.untrusted import on_one_line

BEGIN_SECONDS = 60.0
"""How long a new run may take until it is recorded; then what it wrote so far is the answer."""
DRY_RUN_SECONDS = 60.0
MOST_TEXT = 4_000
"""Characters of a process's messages that are shown."""
FILE = "job.yaml"
"""What messages call the text of a job file that the page was given."""
FREE_CLOUDS = ("sim/", "replay/", "local", "minicloud", "lithops/localhost")
"""Where nobody is charged; other clouds need --allow-spend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Processes:
    """The `mlcd` processes that the page may start.

    home         where runs are kept
    folder       where they run: paths in a job file are relative to it
    allow_spend  whether clouds that charge may be used
    """

    home: Path
    folder: Path
    allow_spend: bool = False

    def check_cloud(self, cloud: str) -> None:
        """Raises BadInput for a cloud that charges, unless that is allowed."""
        if not self.allow_spend and not is_free(cloud):
            raise BadInput(
                f"{cloud} charges real money, and this page may not spend any: start it with `mlcd ui --allow-spend`,"
                " or start the run from a terminal"
            )

    def start(self, kind: Kind, name: str, text: str, *, seed: int) -> str:
        """Start a run of the job that `text` describes, and return its name. Raises BadInput with what it said."""
        with Store(self.home) as store:
            before = set(store.runs_of_job(name))
        process = self._begun([str(kind), "-", f"--seed={seed}", "--yes"], text)
        errors = _Collected(process)
        deadline = time.monotonic() + BEGIN_SECONDS
        while time.monotonic() < deadline:
            with Store(self.home, reading=True) as store:
                new = [run_id for run_id in store.runs_of_job(name) if run_id not in before and is_run_of(run_id, name)]
            if new:
                return new[-1]
            if process.poll() is not None:
                raise BadInput(errors.text() or f"mlcd {kind} ended with code {process.returncode}")
            time.sleep(0.05)
        raise MlcdError(f"the run has not begun after {BEGIN_SECONDS:g} s: {errors.text()}")

    def resume(self, run_id: str) -> None:
        """Continue a run. Raises BadInput where it cannot be, with what was said about it."""
        with Store(self.home, reading=True) as store:
            if store.status(run_id).is_final:
                raise BadInput(f"{run_id} has ended: there is nothing to resume")
            if store.is_live(run_id):
                raise BadInput(f"{run_id} is running")
        process = self._begun(["resume", run_id], "")
        errors = _Collected(process)
        deadline = time.monotonic() + BEGIN_SECONDS
        while time.monotonic() < deadline:
            with Store(self.home, reading=True) as store:
                if store.is_live(run_id) or store.status(run_id).is_final:
                    return
            if process.poll() is not None:
                raise BadInput(errors.text() or f"mlcd resume ended with code {process.returncode}")
            time.sleep(0.05)

    def stop(self, run_id: str) -> None:
        """End a run as Ctrl-C does: its nodes are given back, what was paid is recorded, and it can be resumed.

        Raises BadInput where no process works on it.
        """
        with Store(self.home, reading=True) as store:
            owner, live = store.owner(run_id), store.is_live(run_id)
        if not live:
            raise BadInput(f"{run_id} is not running; what it may have left is ended by: mlcd down {run_id}")
        if owner is None or owner == os.getpid():
            raise BadInput(f"which process runs {run_id} is not known: press Ctrl-C where it was started")
        try:
            os.kill(owner, signal.SIGINT)
        except OSError as error:
            raise BadInput(f"{run_id} runs in process {owner}, which cannot be ended: {error.strerror}") from error

    def dry_run(self, kind: Kind, text: str, *, seed: int = 0) -> dict[str, Any]:
        """What `mlcd KIND - --dry-run -o json` prints. Raises BadInput with its message."""
        process = self._begun([str(kind), "-", f"--seed={seed}", "--dry-run", "-o", "json"], text)
        try:
            out, err = process.communicate(timeout=DRY_RUN_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise BadInput(f"the dry run took longer than {DRY_RUN_SECONDS:g} s and was ended") from None
        with suppress(ValueError):
            found = json.loads(out)
            if isinstance(found, dict):
                return found
        message = re.sub(r"^-(?=:)", FILE, _message(err))  # the job file is the command's standard input
        raise BadInput(message or f"mlcd {kind} --dry-run ended with code {process.returncode}")

    def _begun(self, arguments: list[str], text: str) -> "subprocess.Popen[bytes]":
        environment = {**os.environ, "MLCD_HOME": str(self.home), "NO_COLOR": "1", "COLUMNS": "200"}
        process = subprocess.Popen(  # noqa: S603 - this program, with names that were checked
            [sys.executable, "-m", "mlcd", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            env=environment,
            start_new_session=True,  # Ctrl-C ends the page and not the run
        )
        with suppress(BrokenPipeError):
            process.stdin.write(text.encode())  # type: ignore[union-attr]
            process.stdin.close()  # type: ignore[union-attr]
        process.stdin = None
        return process


def is_free(cloud: str) -> bool:
    """Whether nobody is charged for what runs there; of several clouds, on none of them."""
    return all(
        any(each == free or (free.endswith("/") and each.startswith(free)) for free in FREE_CLOUDS)
        for each in infras_of(cloud)
    )


class _Collected:
    """What a process writes, read so that it never waits; the end of its messages is kept."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._last = b""
        self._threads = [
            threading.Thread(target=self._read, args=(stream, is_kept), daemon=True)
            for stream, is_kept in ((process.stderr, True), (process.stdout, False))
        ]
        for thread in self._threads:
            thread.start()
        threading.Thread(target=process.wait, daemon=True).start()

    def _read(self, stream: Any, is_kept: bool) -> None:
        while more := stream.read1(65536):
            if is_kept:
                self._last = (self._last + more)[-4 * MOST_TEXT :]

    def text(self) -> str:
        """The message that it ended with."""
        self._threads[0].join(1.0)
        return _message(self._last)


def _message(err: bytes) -> str:
    """The last message of mlcd, without its name."""
    lines = [line for line in err.decode(errors="replace").splitlines() if line.strip()]
    own = [line for line in lines if line.startswith("mlcd: ")]
    return on_one_line((own or lines or [""])[-1].removeprefix("mlcd: "))[:MOST_TEXT]
