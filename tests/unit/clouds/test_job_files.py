"""A lease whose job writes what it likes into its folder ends, is charged, and says which file is wrong."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from mlcd.catalog import Instance
from mlcd.clouds import job as jobs
from mlcd.clouds import node_lease
from mlcd.clouds.exits import NodeExit, read_exit
from mlcd.clouds.job import JobCloud, JobLease, RealJob
from mlcd.clouds.local import Local, LocalNodes, usable_cpus
from mlcd.clouds.nodes import Leftover, NodeOrder, NodesState, create_stop_file
from mlcd.clouds.provider import JobProgress, LeaseFailed, Order, Purpose
from mlcd.problem import TrialPolicy
from mlcd.profiler.measure import measure
from mlcd.space import Config
from mlcd.spec.real import ProgressRule
from mlcd.trial.trial import Failure, FailureKind
from mlcd.units import Usd
from mlcd.untrusted import Malformed

ONE = Config.deployment("fake.1", 1)
RATE = ProgressRule(pattern=r"(?P<rate>[0-9]+) samples/s")
SECRET = "private"


class FakeNodes:
    """Nodes whose job is the test: it writes the files."""

    def __init__(self, engine: "FakeEngine", order: NodeOrder) -> None:
        self.engine, self.order, self.released = engine, order, False
        engine.act(order.folder)

    def state(self) -> NodesState:
        return NodesState.RUNNING

    def ask_to_stop(self) -> None:
        create_stop_file(self.order.folder)
        with suppress(OSError):
            (self.order.folder / "node-0" / "exit.json").write_text('{"code": 0, "cpu_seconds": 1}')

    def used_seconds(self) -> float | None:
        return None

    def release(self) -> None:
        self.engine.released += 1


class FakeEngine:
    """Starts nothing; `act` is what its job does with the lease's folder."""

    name, noise = "fake", 0.1

    def __init__(self, act: Callable[[Path], object]) -> None:
        self.act, self.released = act, 0

    def offer(self) -> tuple[Instance, ...]:
        hourly = Usd.of("1")
        return (Instance(cloud="fake", name="fake.1", vcpus=1, memory_gib=1, network_gbps=1, usd_per_hour=hourly),)

    def most_nodes(self, instance: str) -> int | None:
        return 1

    def start(self, order: NodeOrder) -> FakeNodes:
        return FakeNodes(self, order)

    def leftovers(self) -> tuple[Leftover, ...]:
        return ()

    def end(self, leftover: Leftover) -> None:
        """Nothing is left."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text(SECRET)
    return tmp_path / "home"


def lease(home: Path, act: Callable[[Path], object], **job: object) -> JobLease:
    given = {"run": "true", "checkpoints": True, "outputs": ("model",), **job}
    purpose = given.pop("purpose", Purpose.TRIAL)
    cloud = JobCloud(FakeEngine(act), RealJob(**given), home=home)  # type: ignore[arg-type]
    return JobLease(cloud, Order(config=ONE, purpose=purpose, seconds=60.0, run_id="run"))  # type: ignore[arg-type]


def lines(*lines: object) -> Callable[[Path], object]:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    return lambda folder: (folder / "progress.jsonl").write_text(text)


def failure(made: JobLease) -> LeaseFailed:
    with pytest.raises(LeaseFailed) as failed, made:
        for _ in made.progress():
            pass
    return failed.value


def write(name: str, content: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(content)


BAD_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a line": (lines([1]), "progress.jsonl: line 1: should be a mapping"),
    "a FIFO": (lambda folder: os.mkfifo(folder / "progress.jsonl"), "progress.jsonl: should be a regular file"),
    "exit null": (write("node-0/exit.json", "null"), "exit.json: should be a mapping, is null"),
    "exit type": (write("node-0/exit.json", '{"code": "0"}'), "exit.json: code should be an integer"),
    "exit FIFO": (lambda folder: os.mkfifo(folder / "node-0" / "exit.json"), "exit.json: should be a regular file"),
    "exit garbage": (write("node-0/exit.json", '{"co'), "exit.json: is not JSON"),
    "exit message": (
        write("node-0/exit.json", '{"code": 1, "kind": "killed", "message": "\\u001b[2J went"}'),
        "\ufffd[2J went",
    ),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_a_malformed_file_ends_the_lease_and_is_named(home: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_lease, "HALF_EXIT_SECONDS", 0.2)
    act, problem = BAD_FILES[kind]
    made = lease(home, act)
    failed = failure(made)
    assert problem in failed.message
    assert failed.billed
    assert 0 < failed.seconds < 60
    assert made.cloud.engine.released == 1  # type: ignore[attr-defined]


def test_an_exit_that_is_half_written_may_become_whole(home: Path) -> None:
    made = lease(home, write("node-0/exit.json", '{"co'))
    with made:
        points = made.progress()
        next(points)
        (made.folder / "progress.jsonl").write_text(json.dumps({"time": time.time(), "samples": 5}) + "\n")
        assert next(points).samples in (0.0, 5.0)
        (made.folder / "node-0" / "exit.json").write_text('{"code": 0}')
        assert list(points)[-1].samples == 5.0


def test_a_measured_trial_with_a_malformed_checkpoint_is_a_charged_failure(home: Path) -> None:
    """It was never charged, and every resume failed the same way."""

    def act(folder: Path) -> None:
        mark = folder / "checkpoint" / "step-5" / "mlcd.json"
        mark.parent.mkdir(parents=True)
        mark.write_text('{"samples": null}')
        rows = [{"time": time.time() + at / 100, "samples": at} for at in range(200)]
        lines(*rows)(folder)

    cloud = JobCloud(FakeEngine(act), RealJob(run="true", checkpoints=True), home=home)
    warned: list[str] = []
    policy = TrialPolicy(seconds=0.5, watchdog_seconds=6.0)
    for _ in range(2):
        found = measure(
            cloud, ONE, attempt=1, policy=policy, usd_per_hour=Usd.of("1"), run_id="run", warned=warned.append
        )
        assert isinstance(found, Failure)
        assert (found.kind, found.usd > Usd(0)) == (FailureKind.ERROR, True)
        assert "step-5/mlcd.json: samples should be a number, is null" in found.message
        assert cloud.reached_samples("run") == 0.0
    assert sum("this checkpoint is not used" in text for text in warned) == 2  # each lease's once


def test_a_training_with_a_malformed_checkpoint_is_not_lost(home: Path) -> None:
    def act(folder: Path) -> None:
        checkpoint = folder / "checkpoint" / "step-5"
        checkpoint.mkdir(parents=True)
        (checkpoint / "mlcd.json").write_text('{"samples": 5}')
        (checkpoint / "stolen").symlink_to(folder.parents[3].parent / "secret" / "key")
        (folder / "workdir" / "model").write_text("weights")

    made = lease(home, act, purpose=Purpose.RUN)
    with made:
        next(made.progress())
        settled = made.finish(JobProgress(0.0, 0.0))
    assert settled.reached_samples == 0.0
    assert (made.space.outputs / "model").read_text() == "weights"
    (warning,) = [reading.warning for reading in made.heard]
    assert "stolen: is a link out of" in warning


@pytest.mark.parametrize("kind", ["link", "way", "workdir", "fifo"])
def test_an_output_that_leads_out_is_not_taken(home: Path, kind: str) -> None:
    secret = home.parent / "secret"

    def act(folder: Path) -> None:
        workdir = folder / "workdir"
        if kind == "link":
            (workdir / "key").symlink_to(secret / "key")
        elif kind == "way":
            (workdir / "out").symlink_to(secret)
        elif kind == "workdir":
            workdir.rename(folder / "old")
            workdir.symlink_to(secret)
        else:
            os.mkfifo(workdir / "key")

    name = "out/key" if kind == "way" else "key"
    made = lease(home, act, purpose=Purpose.RUN, outputs=(name,))
    with made:
        next(made.progress())
        made.finish(JobProgress(0.0, 0.0))
    assert not (made.space.outputs / name).exists()
    assert any(f"the output {name} is not taken" in reading.warning for reading in made.heard)
    assert (secret / "key").read_text() == SECRET


def test_a_lease_folder_that_became_a_link_is_neither_read_nor_deleted(home: Path) -> None:
    other = home.parent / "other"

    def act(folder: Path) -> None:
        for name in ("workdir", "checkpoint/step-9", "node-0"):
            (other / name).mkdir(parents=True)
        (other / "checkpoint" / "step-9" / "mlcd.json").write_text('{"samples": 9}')
        (other / "node-0" / "exit.json").write_text('{"code": 0}')
        folder.rename(folder.with_name("old"))
        folder.symlink_to(other)

    failed = failure(lease(home, act))
    assert "is reached through a link" in failed.message
    assert failed.reached_samples == 0.0
    assert (other / "workdir").exists()
    assert (other / "checkpoint" / "step-9" / "mlcd.json").exists()


def test_points_are_thinned_and_never_fall(home: Path) -> None:
    began = time.time()

    def act(folder: Path) -> None:
        rows = [{"time": began + at / 10_000, "samples": at} for at in range(10_000)]
        rows += [{"time": began - 1e9, "samples": 3}, {"time": began + 1e12, "samples": 10_001}]
        lines(*rows)(folder)
        (folder / "node-0" / "exit.json").write_text('{"code": 0}')

    made = lease(home, act)
    with made:
        points = list(made.progress())
    assert len(points) < 100
    assert points[-1].samples == 10_001
    assert [p.samples for p in points] == sorted(p.samples for p in points)
    assert all(a.seconds < b.seconds for a, b in pairwise(points))
    assert points[-1].seconds <= made.elapsed_seconds
    assert any("samples went back from 9999 to 3" in reading.warning for reading in made.heard)


@pytest.mark.skipif(sys.platform != "linux", reason="resource limits")
@pytest.mark.parametrize("rule", ["steps", "pattern"])
def test_a_gigabyte_takes_no_memory(tmp_path: Path, rule: str) -> None:
    """In a process whose data may not grow beyond 300 MiB; the file is a hole and the end of it."""
    code = f"""
import resource, sys, time
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
from mlcd.spec.real import ProgressRule
from tests.unit.clouds.test_job_files import lease, failure
def act(folder):
    for name in ("progress.jsonl", "node-0/log.txt"):
        with (folder / name).open("wb") as file:
            file.truncate(2**30)
            file.seek(0, 2)
            file.write(b"\\n" + b"x" * 2**20)
    (folder / "node-0" / "exit.json").write_text('{{"code": 1, "kind": "job-failed", "message": "ended"}}')
resource.setrlimit(resource.RLIMIT_DATA, (300 * 2**20,) * 2)
rule = ProgressRule(pattern="(?P<steps>[0-9]+)") if {rule!r} == "pattern" else ProgressRule()
print(failure(lease(Path({str(tmp_path)!r}), act, progress=rule)).message[:20])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("ended: xxxx"), done.stderr[-2000:]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('{"code": 1e3}', "code should be an integer"),
        ('{"code": 9999999999}', "code should be between"),
        ('{"code": 0, "kind": 5}', "kind should be a string"),
        ('{"code": 0, "message": "%s"}' % ("x" * 5000), "message has 5,000 characters"),
        ('{"code": 0, "cpu_seconds": -1}', "cpu_seconds should be between"),
        ('{"code": 0, "cpu_seconds": 1e300}', "cpu_seconds should be between"),
    ],
)
def test_how_a_node_ended_is_a_checked_value(tmp_path: Path, content: str, problem: str) -> None:
    (tmp_path / "node-0").mkdir()
    assert read_exit(tmp_path, 0) is None
    (tmp_path / "node-0" / "exit.json").write_text(content)
    with pytest.raises(Malformed, match=problem):
        read_exit(tmp_path, 0)
    (tmp_path / "node-0" / "exit.json").write_text('{"code": -9, "kind": "killed", "message": "m", "cpu_seconds": 2}')
    assert read_exit(tmp_path, 0) == NodeExit(rank=0, code=-9, kind="killed", message="m", cpu_seconds=2.0)


def test_the_stop_file_is_not_written_through_what_a_job_put_there(tmp_path: Path) -> None:
    create_stop_file(tmp_path)
    create_stop_file(tmp_path)  # again
    assert (tmp_path / "stop").is_file()
    for make in (lambda path: path.symlink_to(tmp_path / "made"), os.mkfifo):
        (tmp_path / "stop").unlink()
        make(tmp_path / "stop")
        with pytest.raises(OSError):  # noqa: PT011 - which one depends on the system
            create_stop_file(tmp_path)
    assert not (tmp_path / "made").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")
def test_an_agent_that_its_job_has_stopped_is_ended_at_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It took 10 s, which nobody had authorised. Whoever forgets to continue it waits here for minutes."""
    monkeypatch.setattr("mlcd.clouds.local.AGENT_END_SECONDS", 300.0)
    cloud = JobCloud(Local(home, cpus=usable_cpus()[:1]), RealJob(run="kill -STOP $PPID; sleep 600"), home=home)
    with JobLease(cloud, Order(config=Config.deployment("local.1", 1), seconds=600.0, run_id="run")) as made:
        assert isinstance(made.nodes, LocalNodes)
        (agent,) = made.nodes.agents
        while Path(f"/proc/{agent.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.02)
    assert agent.poll() is not None
    assert cloud.engine.leftovers() == ()


# ---- the wall clock is set while a job runs


@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
def test_a_wall_clock_that_is_set_during_a_lease_credits_no_samples(
    home: Path, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    """Rates become samples by the time between two lines: an hour forward was an hour's work for nothing."""
    made = lease(
        home,
        lambda folder: (folder / "node-0" / "log.txt").write_text("100 samples/s\n"),
        progress=RATE,
        checkpoints=False,
    )
    shift = 0.0
    monkeypatch.setattr(node_lease, "wall_clock", lambda: time.time() + shift)
    points: list[JobProgress] = []
    with made:
        for point in made.progress():
            points.append(point)
            if len(points) == 1:
                continue
            shift = jump
            with (made.folder / "node-0" / "log.txt").open("a") as log:
                log.write("100 samples/s\n")
            if len(points) > 4:
                break
    assert points[-1].samples <= 100 * points[-1].seconds + 1e-6
    assert points[-1].samples > 0
    assert all(a.seconds <= b.seconds and a.samples <= b.samples for a, b in pairwise(points))


def test_values_of_envs_are_forgotten_although_the_results_cannot_be_fetched(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = lease(home, lambda folder: (folder / "workdir" / "model").write_text("m"), envs={"KEY": SECRET})

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", str(home))

    monkeypatch.setattr(JobLease, "_fetch_output", full)
    made.order = replace(made.order, purpose=Purpose.RUN)
    with made:
        assert SECRET in (made.folder / "job.json").read_text()
    assert SECRET not in (made.folder / "job.json").read_text()
    assert made.cloud.engine.released == 1  # type: ignore[attr-defined]
    assert (made.folder / "workdir" / "model").exists()  # nobody else has it
    (said,) = [reading.warning for reading in made.heard]
    assert "No space left on device; results were not fetched" in said


def test_a_job_that_writes_faster_than_it_is_read_is_reported_all_the_same(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "REPORT_SECONDS", 0.05)
    made = lease(home, lambda _folder: None)

    class Flood:
        behind = True

        def __init__(self) -> None:
            self.calls = 0

        def new_readings(self) -> list[object]:
            self.calls += 1
            assert self.calls < 10**7
            return []

    source = Flood()
    with made:
        points = made._points(source)  # type: ignore[arg-type]
        assert [next(points).samples for _ in range(3)] == [0.0, 0.0, 0.0]
    assert source.calls > 3  # without a pause between two readings
