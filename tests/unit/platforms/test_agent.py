"""The agent on its own, without a cloud: what it runs, when it ends it, and what it reports at the end."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from mlcd.clouds import processes
from mlcd.clouds.nodes import agent_command
from mlcd.platforms import agent as agent_module
from mlcd.platforms.agent import NOTES_FILE, Heartbeat, Job, _code_text, _placement, _plain_python

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")
PATIENCE_SECONDS = 60.0


class Node:
    """One agent in its own folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.lease_id = folder, f"mlcd-agent-{os.getpid()}-{name[:60]}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(
        self,
        run: str,
        *,
        lifeline: str = "stdin",
        env: Mapping[str, str] | None = None,
        code: str = "",
        flags: Sequence[str] = (),
        **job: Any,
    ) -> None:
        (self.folder / "workdir").mkdir(parents=True, exist_ok=True)
        (self.folder / "job.json").write_text(Job(lease_id=self.lease_id, run=run, **job).to_json())
        command = [*agent_command(self.folder, 0, ["127.0.0.1"], lifeline=lifeline), *flags]
        if code:
            command = [sys.executable, "-c", code, *command[3:]]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, env={**os.environ, **(env or {}), processes.TAG: self.lease_id}
        )

    def wait(self) -> dict[str, Any]:
        assert self.process is not None
        self.process.wait(PATIENCE_SECONDS)
        data: dict[str, Any] = json.loads((self.folder / "node-0" / "exit.json").read_text())
        return data

    @property
    def log(self) -> str:
        return (self.folder / "node-0" / "log.txt").read_text()

    def says(self, text: str) -> None:
        until(lambda: (self.folder / "node-0" / "log.txt").exists() and text in self.log)

    @property
    def running(self) -> list[int]:
        return processes.tagged(self.lease_id)


def until(condition: Callable[[], object]) -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < give_up, "waited in vain"
        time.sleep(0.02)


@pytest.fixture
def node(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Node]:
    node = Node(tmp_path, "".join(c for c in request.node.name if c.isalnum()))
    yield node
    if node.process is not None:
        node.process.kill()
        node.process.wait()
    processes.end(node.running)


def test_runs_setup_then_the_job_and_reports_success(node: Node) -> None:
    node.start("cat made; echo rank $MLCD_RANK of $MLCD_NUM_NODES", setup="echo by setup > made")
    end = node.wait()
    assert (end["code"], end["kind"], end["message"]) == (0, "", "")
    assert node.log == "by setup\nrank 0 of 1\n"
    assert node.running == []


MEET = """
import os, urllib.request
url = "http://%(HOROVOD_GLOO_RENDEZVOUS_ADDR)s:%(HOROVOD_GLOO_RENDEZVOUS_PORT)s/global/0" % os.environ
urllib.request.urlopen(urllib.request.Request(url, b"here", method="PUT"))
print(urllib.request.urlopen(url).read().decode(), os.environ["HOROVOD_RANK"], os.environ["MLCD_ROLE"])
"""


def test_mxnets_ring_worker_meets_others_at_the_rendezvous_which_ends_with_it(node: Node) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    wrong = {"PYTHONPATH": "/nowhere", "PYTHONHOME": ""}  # the job's own: mlcd's process does not mind
    node.start(
        "python meet.py", platform="mxnet", topology="ring", port=port, envs=wrong, setup=f"echo '{MEET}' > meet.py"
    )
    assert node.wait()["code"] == 0, node.log
    assert node.log == "here 0 worker\n"
    assert node.running == []


def test_checkpoint_settings_of_the_job_file_reach_the_job(node: Node) -> None:
    node.start(
        "echo $MLCD_CHECKPOINT_SECONDS $MLCD_CHECKPOINT_DIR $MLCD_BATCH $MLCD_SAMPLES $MLCD_RANK",
        envs={"MLCD_CHECKPOINT_SECONDS": "7", "MLCD_RANK": "99"},
        checkpoints=True,
        batch=32,
        samples=100.0,
    )
    node.wait()
    assert node.log.split() == ["7", str(node.folder / "checkpoint"), "32", "100.0", "0"]


@pytest.mark.parametrize(
    ("run", "kind", "message"),
    [
        ("echo no luck >&2; exit 3", "job-failed", "the worker of node 0 ended with exit code 3"),
        ("kill -9 $$", "killed", "the worker of node 0 ended with signal SIGKILL"),
        ("bash -c 'kill -9 $$'; exit $?", "killed", "the worker of node 0 ended with signal SIGKILL"),
        ("echo 'CUDA out of memory. Tried to allocate'; exit 1", "out-of-memory", "ended with exit code 1"),
        ("python -c 'raise MemoryError'", "out-of-memory", "ended with exit code 1"),
    ],
)
def test_a_job_that_fails(node: Node, run: str, kind: str, message: str) -> None:
    node.start(run)
    end = node.wait()
    assert end["code"] != 0
    assert end["kind"] == kind
    assert message in end["message"]


def test_a_setup_that_fails(node: Node) -> None:
    node.start("echo never", setup="exit 4")
    end = node.wait()
    assert (end["kind"], end["message"]) == ("job-failed", "setup ended with exit code 4")
    assert not (node.folder / "node-0" / "log.txt").read_text()


def test_a_job_that_cannot_start_is_reported(node: Node) -> None:
    node.start("echo never", env={"PATH": "/nowhere"})
    end = node.wait()
    assert end["kind"] == "job-failed"
    assert end["message"].startswith("node 0 cannot run the job: [Errno 2] No such file or directory: 'bash'")


def _seconds_over(node: Node) -> None:
    return


def _told(node: Node) -> None:
    assert node.process is not None
    node.process.terminate()


def _mlcd_died(node: Node) -> None:
    assert node.process is not None
    assert node.process.stdin is not None
    node.process.stdin.close()


@pytest.mark.parametrize(
    ("cause", "seconds", "kind", "message"),
    [
        (_seconds_over, 2.0, "ended", "node 0: its 2 s were over"),
        (_told, None, "killed", "node 0: it was asked to end"),
        (_mlcd_died, None, "killed", "node 0: it lost contact with mlcd"),
    ],
)
def test_everything_ends_with_the_agent(
    node: Node, cause: Callable[[Node], None], seconds: float | None, kind: str, message: str
) -> None:
    # A job that heeds no signal, with a grandchild that has left its session and its parent.
    deaf = "trap '' TERM; (setsid bash -c \"trap '' TERM; echo below; sleep 600; sleep 600\" &) ; echo up; sleep 600"
    node.start(f"{deaf}; sleep 600", seconds=seconds)
    node.says("below")
    cause(node)
    end = node.wait()
    assert (end["kind"], end["message"]) == (kind, message)
    assert end["code"] != 0
    assert node.running == []


def test_a_node_asked_to_end_during_setup_never_runs_the_job(node: Node) -> None:
    node.start("echo never", setup="echo up; sleep 600")
    node.says("up")
    _told(node)
    assert node.wait()["message"] == "node 0: it was asked to end"
    assert node.log == "up\n"


IMPATIENT = """\
import sys
from mlcd.platforms import agent
agent.HEARTBEAT_SECONDS, agent.HEARTBEAT_POLL_SECONDS = 2.0, 0.1
sys.exit(agent.main(sys.argv[1:]))
"""


@pytest.mark.parametrize("hours_off", [-1, 1])
def test_a_heartbeat_that_no_longer_changes_ends_the_job(node: Node, hours_off: int) -> None:
    """Whatever this node's clock says about the times that mlcd's machine writes."""
    beats = iter(range(10**6))

    def beat() -> None:
        at = time.time() + 3600 * hours_off + next(beats)
        os.utime(node.folder / "heartbeat", (at, at))

    (node.folder / "heartbeat").touch()
    beat()
    node.start("for i in $(seq 40); do echo line $i; sleep 0.1; done; sleep 600", lifeline="file", code=IMPATIENT)

    def has_run_long() -> bool:
        beat()
        return (node.folder / "node-0" / "log.txt").exists() and "line 40" in node.log  # twice the limit

    until(has_run_long)
    assert node.process is not None
    assert node.process.poll() is None
    assert node.wait()["message"] == "node 0: it lost contact with mlcd"


@pytest.mark.parametrize("seconds_off", [-3600.0, 0.0, 3600.0])
def test_a_heartbeat_is_as_old_as_its_last_change(tmp_path: Path, seconds_off: float) -> None:
    file, now = tmp_path / "heartbeat", 1000.0
    heartbeat = Heartbeat(file, clock=lambda: now)
    now += 50.0
    assert heartbeat.silent_seconds() == 50.0  # not there yet
    file.touch()
    os.utime(file, (0, time.time() + seconds_off))
    now += 5.0
    assert heartbeat.silent_seconds() == 0.0
    now += 61.0
    assert heartbeat.silent_seconds() == 61.0
    os.utime(file, (0, time.time() + seconds_off - 1800.0))  # the file server's clock was set back: a change
    now += 1.0
    assert heartbeat.silent_seconds() == 0.0
    file.unlink()
    now += 30.0
    assert heartbeat.silent_seconds() == 30.0


def test_without_a_lifeline_it_continues_alone(node: Node) -> None:
    node.start("sleep 1; echo done", lifeline="none")
    _mlcd_died(node)
    assert node.wait()["code"] == 0
    assert node.log == "done\n"


def test_the_job_dies_with_a_killed_agent(node: Node) -> None:
    node.start("exec sleep 600")
    until(lambda: len(node.running) == 2)
    assert node.process is not None
    node.process.kill()
    until(lambda: not node.running)


def test_the_jobs_processes_are_noted_where_no_group_knows_them(node: Node) -> None:
    node.start("(setsid env -i sleep 600 &); echo up; sleep 600", flags=["--note-processes"])
    node.says("up")
    file = node.folder / "node-0" / NOTES_FILE

    def noted() -> list[str]:
        try:
            pairs = json.loads(file.read_text())["processes"]
        except FileNotFoundError:
            return []
        return [processes.command_of(pid) for pid, start in pairs if processes.is_alive(pid, start)]

    until(lambda: noted().count("sleep 600") == 2)
    assert node.process is not None
    _told(node)
    node.wait()
    assert noted() == []


def test_exit_file_needs_no_disk_space_at_the_end(node: Node) -> None:
    node.start("echo up; sleep 600")
    node.says("up")
    kept = node.folder / "node-0" / "exit.json.part"
    assert kept.stat().st_size == agent_module.EXIT_FILE_BYTES  # overwritten in place: works on a full disk
    inode = kept.stat().st_ino
    _told(node)
    node.wait()
    assert (node.folder / "node-0" / "exit.json").stat().st_ino == inode


@pytest.mark.parametrize(
    "harm",
    [
        "rm -rf ../node-0",
        "rm -rf ../../lease",
        "rm ../node-0/exit.json.part; ln -s $PWD/../victim ../node-0/exit.json.part",
        "rm ../node-0/exit.json.part; mkfifo ../node-0/exit.json.part",
        "mkdir -p ../node-0/exit.json/full",
        "mv ../node-0 ../old; ln -s $PWD/.. ../node-0; ln -s $PWD/../victim ../exit.json.part",
        "mv ../node-0 ../old; echo file > ../node-0",
    ],
)
def test_how_it_ended_is_written_whatever_the_job_did_to_the_file(node: Node, harm: str) -> None:
    victim = node.folder.with_name(f"{node.folder.name}-victim")
    victim.write_text("untouched")
    node.folder = node.folder / "lease"
    node.start(harm.replace("$PWD/../victim", str(victim)) + "; exit 3")
    found = node.wait()
    assert found["code"] == 3
    assert victim.read_text() == "untouched"
    assert not (node.folder / "node-0").is_symlink()
    assert not (node.folder / "node-0" / "exit.json").is_symlink()


def test_a_log_of_any_size_is_searched_at_its_end_only(node: Node) -> None:
    node.start("echo out of memory; truncate -s 1T ../node-0/log.txt; exit 3")  # a hole
    assert node.wait()["kind"] == "job-failed"


def test_processor_time_is_counted(node: Node) -> None:
    node.start("python -c 'import time\nuntil = time.process_time() + 0.5\nwhile time.process_time() < until: pass'")
    assert node.wait()["cpu_seconds"] >= 0.5


@pytest.mark.parametrize(
    ("run", "plain"),
    [
        ("python train.py", True),
        ("python3 train.py --lr 0.1 'a b'", True),
        ("python -m train", False),
        ("python train.py | tee log", False),
        ("python train.py > log", False),
        ("LR=1 python train.py", False),
        ("python train.py 'a", False),
        ("bash train.sh", False),
    ],
)
def test_only_a_plain_script_may_run_in_a_warm_worker(run: str, plain: bool) -> None:
    assert bool(_plain_python(run)) is plain


@pytest.mark.parametrize(
    ("env", "rank", "addresses"),
    [
        ({}, 0, ("127.0.0.1",)),
        ({"SLURM_PROCID": "2", "MLCD_ADDRESSES": "a,b,c"}, 2, ("a", "b", "c")),
        ({"SKYPILOT_NODE_RANK": "1", "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2\n"}, 1, ("10.0.0.1", "10.0.0.2")),
    ],
)
def test_placement_is_read_from_the_variables(
    env: dict[str, str], rank: int, addresses: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MLCD_RANK", "SLURM_PROCID", "SKYPILOT_NODE_RANK", "MLCD_ADDRESSES", "SKYPILOT_NODE_IPS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    place = _placement(Job(lease_id="x", run="true"), None, "")
    assert (place.rank, place.addresses) == (rank, addresses)


def test_exit_codes_in_words() -> None:
    assert _code_text(3) == "exit code 3"
    assert _code_text(-signal.SIGTERM) == "signal SIGTERM"
    assert _code_text(128 + signal.SIGKILL) == "signal SIGKILL"
    assert _code_text(255) == "exit code 255"
    assert _code_text(128 + 33) == "exit code 161"  # no signal has this number
