"""The agent on every node: starts the job's processes, and ends them at the time limit or when mlcd is gone.

    python -m mlcd.platforms.agent FOLDER --lifeline=stdin|file|none [--rank R --addresses A,B,...] [--note-processes]

The agent is the node's dead-man's switch. It ends everything it started when the job's seconds are over, when its
lifeline breaks (its standard input is closed, or FOLDER/heartbeat no longer changes), or on SIGTERM. Where the system
supports it, the processes also die with the agent. It uses the standard library only.
"""

import argparse
import json
import os
import re
import select
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from stat import S_ISREG

from mlcd.platforms.descendants import Child, adopt_orphans, cpu_seconds, die_with_agent, end_all, started_below
from mlcd.platforms.placement import Placement, Process
from mlcd.platforms.registry import platform
from mlcd.untrusted import delete_tree, last_lines

HEARTBEAT_SECONDS = 60.0
"""A heartbeat file that has not changed for so long, by this node's own clock, means that mlcd is gone."""
HEARTBEAT_POLL_SECONDS = 1.0
"""The interval at which the heartbeat is looked at: on a network file system each look is a request."""
NOTES_FILE = "processes.json"
"""In the node's folder, with --note-processes: {"processes": [[pid, start], ...]}, the running processes of the job."""
NOTE_SECONDS = 0.5
POLL_SECONDS = 0.05
CANNOT_START = 126
"""The node's exit code when its job could not be started; the shell uses it for a command that cannot be run."""
EXIT_FILE_BYTES = 4096
"""Size of exit.json, reserved before the job starts."""

OUT_OF_MEMORY = re.compile(
    r"out of memory|OutOfMemoryError|MemoryError|bad_alloc|Cannot allocate memory|ResourceExhaustedError"
    r"|DefaultCPUAllocator: can't allocate|RESOURCE_EXHAUSTED|OOM when allocating|cudaErrorMemoryAllocation"
    r"|CU(?:DNN|BLAS)_STATUS_ALLOC_FAILED|CUDA_ERROR_OUT_OF_MEMORY|hipErrorOutOfMemory",
    re.IGNORECASE,
)


_OF_GPU = re.compile(r"CUDA|CU(?:DNN|BLAS)_|\bGPU\b|HIP|hipError|RESOURCE_EXHAUSTED|OOM when allocating", re.IGNORECASE)


@dataclass(frozen=True)
class Job:
    """The content of a lease's job.json.

    seconds        time limit of the whole lease; None without a limit
    samples        the work of the whole training; None where the job file does not give it
    base_samples   samples done in the checkpoint that the job continues from
    checkpoints    whether the job gets MLCD_CHECKPOINT_DIR
    noise          whether the job is to report its SGD noise
    learning_rate  for this batch, by the job's rule
    target         the metric at which the training is done, as JSON
    knobs          the chosen value of each knob, None where it does not apply; the job gets them as variables
    server_nodes   of a server: over how many nodes it is spread
    node_envs      of a server over several nodes: the variables of each of them
    """

    lease_id: str
    run: str
    setup: str = ""
    envs: Mapping[str, str] = field(default_factory=dict)
    platform: str = "command"
    topology: str = "ring"
    instance: str = ""
    port: int = 29500
    gpus: int = 0
    seconds: float | None = None
    batch: int | None = None
    samples: float | None = None
    base_samples: float = 0.0
    checkpoints: bool = False
    checkpoint_seconds: float = 60.0
    noise: bool = False
    learning_rate: float | None = None
    target: str = ""
    knobs: Mapping[str, str | int | float | None] = field(default_factory=dict)
    server_nodes: int = 1
    node_envs: Sequence[Mapping[str, str]] = ()

    def to_json(self) -> str:
        """The text of job.json."""
        return json.dumps(asdict(self), indent=2)


class Agent:
    """One node's agent; `run` returns the node's exit code."""

    def __init__(
        self, folder: Path, placement: Placement, job: Job, lifeline: str, *, notes_processes: bool = False
    ) -> None:
        self.folder, self.placement, self.job, self.lifeline = folder, placement, job, lifeline
        self.own = folder / f"node-{placement.rank}"
        self.log = self.own / "log.txt"
        self.ends_at = None if job.seconds is None else time.monotonic() + job.seconds
        self.reason = self.reason_kind = ""
        self.cpu_seconds = 0.0
        self._cut = threading.Event()
        self._heartbeat = Heartbeat(folder / "heartbeat")
        self._notes = _Notes(self.own / NOTES_FILE) if notes_processes else None

    def run(self) -> int:
        """Run the setup, then the platform's processes until the essential ones have ended."""
        self.own.mkdir(parents=True, exist_ok=True)
        (self.own / "address").write_text(self.placement.own_address)
        (self.own / "agent.pid").write_text(str(os.getpid()))
        adopt_orphans()
        self._reserve_exit_file()
        signal.signal(signal.SIGTERM, lambda *_: self._end("it was asked to end", kind="killed"))
        if self.lifeline == "stdin":
            threading.Thread(target=self._watch_stdin, daemon=True).start()
        try:
            code, kind, message = self._run_job()
        except OSError as error:  # no bash, no disk space for the log, too many processes
            end_all(())
            code, kind, message = CANNOT_START, "job-failed", f"node {self.placement.rank} cannot run the job: {error}"
        if self.reason:
            code, kind, message = code or 143, self.reason_kind, f"node {self.placement.rank}: {self.reason}"
        self._write_exit(code, kind, message)
        return code

    # ---- running

    def _run_job(self) -> tuple[int, str, str]:
        """(exit code, kind, message) of the setup if it fails, else of the processes."""
        code = self._setup()
        if self.reason:
            return code, "", ""
        if code:
            return code, "job-failed", f"setup ended with {_code_text(code)}"
        code, message = self._processes()
        kind = self._kind(code) if code and not self.reason else ""
        if kind == "out-of-memory":
            short = [line for line in last_lines(self.log) if is_out_of_memory(line)]
            message += "; the GPU's memory ran out" if any(map(is_of_gpu, short)) else "; memory ran out"
        return code, kind, message

    def _setup(self) -> int:
        if not self.job.setup.strip():
            return 0
        env = self._environment(Process(role="setup"))
        command = ["bash", "-c", self.job.setup]
        if network := env.get("MLCD_SETUP_NETWORK"):  # nodes without internet access download through the host
            command = ["nsenter", f"--net={network}", *command]
        child = self._start(command, env, self.log)
        return self._wait([(Process(role="setup"), child)])[0]

    def _processes(self) -> tuple[int, str]:
        started: list[tuple[Process, Child]] = []
        for process in platform(self.job.platform)(self.placement):
            log = self.log if process.role == "worker" or process.essential else self.own / f"{process.role}.txt"
            started.append((process, self._start_run(process, log)))
        code, role = self._wait(started)
        return code, f"the {role} of node {self.placement.rank} ended with {_code_text(code)}" if code else ""

    def _start_run(self, process: Process, log: Path) -> Child:
        env = self._environment(process)
        command = process.command or (*process.prefix, "bash", "-c", self.job.run)
        words = [] if process.command or process.prefix else _plain_python(self.job.run)
        socket = env.get("MLCD_WARM_SOCKET")
        if words and socket:
            from mlcd.platforms.warm import WarmFailed, run_warm  # noqa: PLC0415 - only where workers are kept warm

            with suppress(WarmFailed):  # the worker is gone: a new process takes longer to start but does the same
                return run_warm(socket, argv=words, env=dict(env), cwd=str(self._cwd()), log=str(log))
        return self._start(command, env, log)

    def _start(self, command: Sequence[str], env: Mapping[str, str], log: Path) -> Child:
        with log.open("ab") as out:
            return subprocess.Popen(  # noqa: S603 - the user's own command, on the user's own node
                command,
                cwd=self._cwd(),
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_agent if sys.platform == "linux" else None,  # noqa: PLW1509 - one prctl, no locks
            )

    def _cwd(self) -> Path:
        return self.folder / "workdir"

    def _environment(self, process: Process) -> dict[str, str]:
        place, job = self.placement, self.job
        env = {
            **{name: value for name, value in os.environ.items() if name not in ("MLCD_HOME", "MLCD_STORE")},
            "MLCD_CHECKPOINT_SECONDS": str(job.checkpoint_seconds),  # the job file may override it
            **job.envs,
            **(job.node_envs[place.rank % job.server_nodes] if job.node_envs else {}),
            **_variables(job.knobs),
            "MLCD_LEASE": job.lease_id,
            "MLCD_RANK": str(place.rank),
            "MLCD_NUM_NODES": str(place.nodes),
            "MLCD_NODES": ",".join(place.addresses),
            "MLCD_HEAD": place.head,
            "MLCD_PORT": str(place.port),
            "MLCD_TOPOLOGY": place.topology,
            "MLCD_ROLE": process.role,
            "MLCD_INSTANCE": job.instance,
            "MLCD_PROGRESS_FILE": str(self.folder / "progress.jsonl"),
            "MLCD_STOP_FILE": str(self.folder / "stop"),
            "SKYPILOT_NODE_RANK": str(place.rank),
            "SKYPILOT_NODE_IPS": "\n".join(place.addresses),
            "SKYPILOT_NUM_NODES": str(place.nodes),
            "SKYPILOT_NUM_GPUS_PER_NODE": str(place.gpus),
            "PYTHONUNBUFFERED": "1",
            **process.env,
        }
        if job.batch is not None:
            env["MLCD_BATCH"] = str(job.batch)
        if job.samples is not None:
            env["MLCD_SAMPLES"] = str(job.samples)
        if job.noise:
            env["MLCD_NOISE"] = "1"
        if job.learning_rate is not None:
            env["MLCD_LEARNING_RATE"] = repr(job.learning_rate)
        if job.target:
            env["MLCD_TARGET"] = job.target
        if job.knobs:
            env["MLCD_KNOBS"] = json.dumps(dict(job.knobs))
        if job.checkpoints:
            env["MLCD_CHECKPOINT_DIR"] = str(self.folder / "checkpoint")
        return env

    # ---- watching

    def _wait(self, started: Sequence[tuple[Process, Child]]) -> tuple[int, str]:
        """Wait until the essential processes have ended, one has failed, or time is over; then end everything.

        Returns (exit code, role of the process that failed). A node without essential processes runs until it is ended
        from outside.
        """
        while True:
            codes = [(process, child.poll()) for process, child in started]
            failed = next(((code, process.role) for process, code in codes if code), None)
            if failed and (self.folder / "stop").exists():
                failed = None if any(code == 0 for _, code in codes) else failed  # they lost the worker that saved
            essential = [code for process, code in codes if process.essential]
            over = self.reason or self._is_over()
            if failed or over or (essential and all(code == 0 for code in essential)):
                self.cpu_seconds += cpu_seconds()
                end_all([child for _, child in started])
                return failed or (0, "")
            if self._notes is not None:
                self._notes.update()
            self._cut.wait(POLL_SECONDS)

    def _is_over(self) -> bool:
        if self.ends_at is not None and time.monotonic() >= self.ends_at:
            self._end(f"its {self.job.seconds:.0f} s were over", kind="ended")
        if self.lifeline == "file" and self._heartbeat.silent_seconds() > HEARTBEAT_SECONDS:
            self._end("it lost contact with mlcd", kind="killed")
        return bool(self.reason)

    def _watch_stdin(self) -> None:
        while os.read(0, 4096):
            select.select([0], [], [])
        self._end("it lost contact with mlcd", kind="killed")

    def _end(self, reason: str, *, kind: str) -> None:
        if not self.reason:
            self.reason_kind, self.reason = kind, reason
        self._cut.set()

    # ---- how it ended

    def _kind(self, code: int) -> str:
        if any(map(is_out_of_memory, last_lines(self.log))):
            return "out-of-memory"
        return "killed" if code in (-signal.SIGKILL, 128 + signal.SIGKILL) else "job-failed"

    def _reserve_exit_file(self) -> None:
        """Reserve the bytes of exit.json, so that it can be written on a disk that the job has filled."""
        self._part.write_bytes(b" " * EXIT_FILE_BYTES)

    def _write_exit(self, code: int, kind: str, message: str) -> None:
        data = {"code": code, "kind": kind, "message": message[: EXIT_FILE_BYTES // 8], "cpu_seconds": self.cpu_seconds}
        text = json.dumps(data).encode()
        try:
            self._fill_reserved(text)
            self._part.replace(self.own / "exit.json")
        except OSError:  # the job has deleted or replaced it, or its folder: start afresh
            self._remove(self.own, unless_folder=True)
            self.own.mkdir(parents=True, exist_ok=True)
            for left in (self._part, self.own / "exit.json"):
                self._remove(left)
            self._part.write_bytes(text)
            self._part.replace(self.own / "exit.json")

    def _fill_reserved(self, text: bytes) -> None:
        flags = os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        with open(os.open(self._part, flags), "wb", closefd=True) as file:  # noqa: PTH123 - of a descriptor
            if not S_ISREG(os.fstat(file.fileno()).st_mode):
                raise FileExistsError(f"{self._part} is no longer a file")
            file.write(text)

    def _remove(self, path: Path, *, unless_folder: bool = False) -> None:
        if not (unless_folder and path.is_dir() and not path.is_symlink()):
            delete_tree(path, below=self.folder)

    @property
    def _part(self) -> Path:
        return self.own / "exit.json.part"


def is_out_of_memory(line: str) -> bool:
    """Whether a line of a log says that memory ran out: of PyTorch, TensorFlow, JAX, CUDA or the system."""
    return OUT_OF_MEMORY.search(line) is not None


def is_of_gpu(line: str) -> bool:
    """Whether such a line is about the memory of a GPU."""
    return _OF_GPU.search(line) is not None


class Heartbeat:
    """Tells for how long a file has not changed, by one clock: this machine's, which cannot be set.

    The file's time is written by another machine, or by a file server, whose clocks may differ by hours. It is compared
    only with the time that the same file had before, and so is the content.
    """

    def __init__(self, file: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.file, self._clock = file, clock
        self._seen: tuple[int, ...] | None = None
        self._changed_at = self._looked_at = clock()

    def silent_seconds(self) -> float:
        """Seconds since the last change was seen, at first since this object was made; looks once a second."""
        now = self._clock()
        if self._seen is None or now - self._looked_at >= HEARTBEAT_POLL_SECONDS:
            self._looked_at = now
            seen = self._look()
            if seen is not None and seen != self._seen:
                self._seen, self._changed_at = seen, now
        return now - self._changed_at

    def _look(self) -> tuple[int, ...] | None:
        """What changes with every touch; None where the file cannot be opened now."""
        try:
            # Opened, because a network file system may answer stat() from its cache.
            descriptor = os.open(self.file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            found = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        return found.st_ino, found.st_mtime_ns, found.st_size


class _Notes:
    """Notes the job's processes where no control group keeps track of them.

    If mlcd and this agent are killed at once, `mlcd down` lists the noted ones that still run. The job can write the
    file too, so it proves nothing.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self._noted: list[tuple[int, str]] = []
        self._next_at = 0.0

    def update(self) -> None:
        """Look, at most every NOTE_SECONDS, and write where something changed."""
        if time.monotonic() < self._next_at:
            return
        self._next_at = time.monotonic() + NOTE_SECONDS
        noted = sorted(started_below())
        if noted != self._noted:
            self._noted = noted
            part = self.file.with_name(f"{NOTES_FILE}.part")
            with suppress(OSError):  # a full disk: the processes are not noted, then
                part.write_text(json.dumps({"processes": noted}))
                part.replace(self.file)


def _variables(knobs: Mapping[str, str | int | float | None]) -> dict[str, str]:
    """Each knob that applies, under its own name and in capitals; flags are `true` and `false`."""
    given = {name: value for name, value in knobs.items() if value is not None}
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}
    return {**{name.upper(): text for name, text in texts.items()}, **texts}


def _plain_python(run: str) -> list[str]:
    """The words of a command that is just `python FILE ARGS`; empty for anything that needs a shell."""
    try:
        words = shlex.split(run)
    except ValueError:
        return []
    simple = not re.search(r"[$`|&;<>(){}*?\n]", run.strip())
    is_python = len(words) > 1 and words[0] in ("python", "python3") and words[1].endswith(".py")
    return words if simple and is_python else []


def _code_text(code: int) -> str:
    number = -code if code < 0 else code - 128
    if 0 < number < 65 and (code < 0 or code > 128):
        try:
            return f"signal {signal.Signals(number).name}"
        except ValueError:
            pass
    return f"exit code {code}"


def _placement(job: Job, rank: int | None, addresses: str) -> Placement:
    """From the command line, else from the variables of Slurm or SkyPilot."""
    env = os.environ
    if rank is None:
        rank = int(env.get("MLCD_RANK") or env.get("SLURM_PROCID") or env.get("SKYPILOT_NODE_RANK") or 0)
    known = addresses or env.get("MLCD_ADDRESSES") or ",".join(env.get("SKYPILOT_NODE_IPS", "").split())
    places = tuple(filter(None, known.split(","))) or ("127.0.0.1",)
    return Placement(
        rank=rank,
        addresses=places,
        port=job.port,
        topology=job.topology,
        gpus=job.gpus,
        server_nodes=job.server_nodes,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The agent's program."""
    parser = argparse.ArgumentParser(prog="mlcd.platforms.agent")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--lifeline", choices=("stdin", "file", "none"), default="none")
    parser.add_argument("--rank", type=int)
    parser.add_argument("--addresses", default="")
    parser.add_argument("--note-processes", action="store_true")
    given = parser.parse_args(arguments)
    job = Job(**json.loads((given.folder / "job.json").read_text()))
    placement = _placement(job, given.rank, given.addresses)
    return Agent(given.folder, placement, job, given.lifeline, notes_processes=given.note_processes).run()


if __name__ == "__main__":
    sys.exit(main())
