"""How Slurm's output is interpreted for a lease; without a cluster, from recorded output."""

import math
import os
import stat
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mlcd.clouds.lease_records import LeaseRecord, LeaseRecords, home_of
from mlcd.clouds.nodes import NodeOrder, NodesState
from mlcd.clouds.processes import ProcessId
from mlcd.clouds.provider import LeaseFailed
from mlcd.clouds.slurm import Slurm
from mlcd.clouds.slurm import engine as slurm_engine
from mlcd.clouds.slurm import job as slurm_job
from mlcd.clouds.slurm import nodes as slurm_nodes
from mlcd.clouds.slurm.commands import SlurmUnreachable
from mlcd.clouds.slurm.engine import missing
from mlcd.clouds.slurm.nodes import SlurmNodes
from mlcd.clouds.slurm.partitions import parse_gpus, parse_minutes, parse_partitions
from mlcd.clouds.slurm.script import batch_script, submission, time_limit
from mlcd.errors import ProviderError
from mlcd.trial.trial import FailureKind
from mlcd.units import Usd

SINFO = """\
debug|up|d0|8|16000|idle|1-infinite|30:00|(null)
debug|up|d1|8|16000|down*|1-infinite|30:00|(null)
gpu|up|g0|64|512000|mixed|1-2|2-00:00:00|gpu:a100:4(S:0-1)
gpu|up|g1|64|512000|allocated|1-2|2-00:00:00|gpu:a100:4(S:0-1)
gpu|up|g2|32|512000|drained|1-2|2-00:00:00|gpu:a100:2(S:0)
old|down|o0|4|8000|idle|1-infinite|infinite|(null)
"""


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Fake Slurm commands on PATH that print what the test wants and record their arguments."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def write(name: str, answer: str = "", error: str = "", code: int = 0) -> None:
        (folder / f"{name}.out").write_text(answer)
        (folder / f"{name}.err").write_text(error)
        program = folder / name
        program.write_text(
            f'#!/bin/sh\necho "$*" >> {folder}/{name}.calls\n'
            f"cat {folder}/{name}.out; cat {folder}/{name}.err >&2; exit {code}\n"
        )
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    for name in ("sbatch", "squeue", "scancel", "scontrol"):
        write(name)
    write("sinfo", SINFO)
    return write


@pytest.fixture
def calls(tmp_path: Path) -> Callable[[str], str]:
    def read(name: str) -> str:
        file = tmp_path / "bin" / f"{name}.calls"
        return file.read_text() if file.exists() else ""

    return read


@pytest.fixture
def order(tmp_path: Path) -> NodeOrder:
    folder = tmp_path / "lease it's 100%"
    folder.mkdir()
    return NodeOrder(lease_id="mlcd-run-1a2b", instance="gpu", count=2, seconds=90.0, folder=folder)


@pytest.fixture
def nodes(order: NodeOrder, commands: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> SlurmNodes:
    monkeypatch.setattr(slurm_nodes, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(slurm_nodes, "FILES_SECONDS", 0.0)
    return SlurmNodes(order, "17", is_limited_by_partition=False)


def wrote(nodes: SlurmNodes, rank: int, code: int | None = None) -> None:
    own = nodes.order.folder / f"node-{rank}"
    own.mkdir(exist_ok=True)
    (own / "agent.pid").write_text("1")
    if code is not None:
        (own / "exit.json").write_text(f'{{"code": {code}, "kind": "", "message": "", "cpu_seconds": 1.5}}')


def failed(nodes: SlurmNodes) -> LeaseFailed:
    with pytest.raises(LeaseFailed) as error:
        nodes.state()
    return error.value


# ---- partitions


def test_partitions_are_read_from_sinfo() -> None:
    found = parse_partitions(SINFO)
    debug, gpu = found["debug"], found["gpu"]
    assert (debug.usable, debug.most_nodes, debug.max_minutes, debug.gpus) == (1, 1, 30, 0)
    assert (gpu.usable, gpu.most_nodes, gpu.max_minutes) == (2, 2, 2880)
    assert (gpu.cpus, gpu.gpus, gpu.gpu, gpu.mixed) == (32, 2, "a100", True)  # what every node has
    assert not found["old"].is_up


@pytest.mark.parametrize(
    "line", ["debug|up|d0|8", "debug|up|d0|many|16000|idle|1-infinite|30:00|(null)", "d|up|d0|8|1|idle|1-2|soon|(null)"]
)
def test_a_line_that_cannot_be_read_is_refused(line: str) -> None:
    with pytest.raises(ProviderError, match="cannot read what Slurm's sinfo answered"):
        parse_partitions(line)


@pytest.mark.parametrize(
    ("gres", "expected"),
    [
        ("(null)", (0, "")),
        ("gpu:2", (2, "gpu")),
        ("gpu", (1, "gpu")),
        ("gpu:h100:8(S:0-1)", (8, "h100")),
        ("craynetwork:1,gpu:v100:4(S:0,2)", (4, "v100")),
    ],
)
def test_gpus_are_read_from_gres(gres: str, expected: tuple[int, str]) -> None:
    assert parse_gpus(gres) == expected


def test_time_limits_are_read() -> None:
    assert [parse_minutes(text) for text in ("infinite", "30:00", "4:00:00", "2-01:30:00")] == [None, 30, 240, 2970]


# ---- the offer


def test_an_offer_has_the_users_prices_and_the_catalogs_gpus(commands: Callable[..., None]) -> None:
    engine = Slurm({"gpu": Usd.of("2.5"), "old": Usd.of(1), "typo": Usd.of(1)})
    (gpu,) = engine.offer()
    assert (gpu.name, gpu.usd_per_hour, gpu.accelerator, gpu.accelerators) == ("gpu", Usd.of("2.5"), "a100", 2)
    assert gpu.accelerator_tflops == 312
    notes = " ".join(engine.notes)
    assert "no partition 'typo'" in notes
    assert "old is skipped" in notes
    assert "several sizes" in notes
    assert "skipped, because they have no price: debug" in notes
    with pytest.raises(ProviderError, match="no partition can be used"):
        Slurm({"old": Usd.of(1)}).offer()
    with pytest.raises(ProviderError, match="more than"):
        Slurm({"gpu": Usd.of(0)}).offer()


def test_a_missing_slurm_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "sbatch" in missing()
    with pytest.raises(ProviderError, match="sinfo is not on PATH"):
        Slurm({"gpu": Usd.of(1)}).offer()
    with pytest.raises(ProviderError, match="squeue is not on PATH"):
        Slurm({}).leftovers()


# ---- the order


def test_the_time_limit_is_at_most_the_partitions() -> None:
    assert time_limit(90.0, None) == "3"
    assert time_limit(7200.0, 30) == "30"
    assert time_limit(math.inf, 30) == "30"
    assert time_limit(math.inf, None) == "UNLIMITED"


def test_whole_nodes_are_requested(order: NodeOrder) -> None:
    words = submission(order, parse_partitions(SINFO)["gpu"])
    assert {"--exclusive", "--nodes=2", "--partition=gpu", "--gres=gpu:2", "--time=3", "--no-requeue"} <= set(words)
    assert f"--output={order.folder}%/slurm.out" in words  # a % in the path is escaped
    assert words[-1] == f"{order.folder}/slurm.sh"


def test_the_script_quotes_the_folder(order: NodeOrder) -> None:
    script = batch_script(order, agent=order.folder / "agent-1")
    assert "'\"'\"'s 100%' --lifeline=file" in script
    assert f"{sys.executable} -m mlcd.platforms.agent" in script
    assert "'\"'\"'s 100%/agent-1'${PYTHONPATH:+:$PYTHONPATH}" in script


def test_the_job_does_not_see_mlcds_own_allocation(
    commands: Callable[..., None], order: NodeOrder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands("sbatch", "17\n")
    (tmp_path / "bin" / "sbatch").write_text(f"#!/bin/sh\nenv > {tmp_path}/env\necho '17;cluster'\n")
    for name in ("SLURM_JOB_ID", "SLURM_CONF", "MLCD_RANK"):
        monkeypatch.setenv(name, "7")
    assert Slurm({}).start(order).job_id == "17"
    seen = (tmp_path / "env").read_text()
    assert "SLURM_CONF=7" in seen
    assert "SLURM_JOB_ID" not in seen
    assert "MLCD_RANK" not in seen


@pytest.mark.parametrize(
    "sentence",
    [
        "Requested node configuration is not available",
        "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
        "Node count specification invalid",
    ],
)
def test_a_refusal_for_lack_of_nodes_is_a_capacity_failure(
    commands: Callable[..., None], order: NodeOrder, sentence: str
) -> None:
    commands("sbatch", error=f"sbatch: error: Batch job submission failed: {sentence}\n", code=1)
    with pytest.raises(LeaseFailed) as refused:
        Slurm({}).start(order)
    assert (refused.value.kind, refused.value.billed) == (FailureKind.CAPACITY, False)
    assert refused.value.message == f"Slurm refused 2 x gpu: {sentence}"


def test_any_other_refusal_carries_slurms_own_message(commands: Callable[..., None], order: NodeOrder) -> None:
    said = "Invalid account or account/partition combination specified"
    commands("sbatch", error=f"sbatch: error: Batch job submission failed: {said}\n", code=1)
    with pytest.raises(ProviderError, match=f"Slurm's sbatch failed: {said}"):
        Slurm({}).start(order)


def test_a_job_that_may_have_been_submitted_is_cancelled(
    commands: Callable[..., None], order: NodeOrder, calls: Callable[[str], str], tmp_path: Path
) -> None:
    commands(
        "sbatch", error="sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n", code=1
    )
    squeue = tmp_path / "bin" / "squeue"
    squeue.write_text(  # the job is listed until it is cancelled
        f"#!/bin/sh\ntest -e {tmp_path}/bin/scancel.calls || echo '23|PENDING|mlcd-run-1a2b|/x'\n"
    )
    with pytest.raises(SlurmUnreachable, match="Socket timed out"):
        Slurm({}).start(order)
    assert calls("scancel") == "23\n"


# ---- the state of a job


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("NODE_FAIL", FailureKind.LOST),
        ("PREEMPTED", FailureKind.INTERRUPTED),
        ("OUT_OF_MEMORY", FailureKind.OUT_OF_MEMORY),
        ("TIMEOUT", FailureKind.HANG),
        ("BOOT_FAIL", FailureKind.LAUNCH),
        ("CANCELLED", FailureKind.LOST),
    ],
)
def test_slurms_reason_for_an_end_takes_precedence(
    commands: Callable[..., None], nodes: SlurmNodes, state: str, kind: FailureKind
) -> None:
    wrote(nodes, 0, code=143)
    wrote(nodes, 1, code=143)
    commands("squeue", f"{state}|None\n")
    error = failed(nodes)
    assert (error.kind, error.billed) == (kind, True)
    assert "job 17" in error.message


def test_a_partitions_time_limit_is_an_interruption(commands: Callable[..., None], nodes: SlurmNodes) -> None:
    cut = SlurmNodes(nodes.order, "17", is_limited_by_partition=True)
    commands("squeue", "TIMEOUT|TimeLimit\n")
    assert failed(cut).kind is FailureKind.INTERRUPTED


def test_a_waiting_job_is_starting_and_one_that_never_starts_is_a_capacity_failure(
    commands: Callable[..., None], nodes: SlurmNodes
) -> None:
    for reason in ("Resources", "Priority", "QOSGrpNodeLimit", "AssocMaxJobsLimit", "QOSMaxJobsPerUserLimit"):
        commands("squeue", f"PENDING|{reason}\n")
        assert nodes.state() is NodesState.STARTING
        assert nodes.waits_for == reason
    for reason in ("PartitionTimeLimit", "QOSMaxNodePerJobLimit", "JobHeldAdmin", "launch failed requeued held"):
        commands("squeue", f"PENDING|{reason}\n")
        error = failed(nodes)
        assert (error.kind, error.billed) == (FailureKind.CAPACITY, False)
        assert reason in error.message


def test_waiting_half_of_the_authorised_time_is_a_capacity_failure(
    commands: Callable[..., None], nodes: SlurmNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands("squeue", "PENDING|Resources\n")
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 0.4 * nodes.order.seconds)
    assert nodes.state() is NodesState.STARTING
    monkeypatch.setattr(time, "monotonic", lambda: now + 0.6 * nodes.order.seconds)
    error = failed(nodes)
    assert (error.kind, error.billed) == (FailureKind.CAPACITY, False)
    assert "Resources" in error.message
    commands("squeue", "RUNNING|None\n")
    assert nodes.state() is NodesState.STARTING  # it started after all, before it was released


def test_nodes_are_running_once_every_agent_runs(commands: Callable[..., None], nodes: SlurmNodes) -> None:
    commands("squeue", "RUNNING|None\n")
    wrote(nodes, 0)
    assert nodes.state() is NodesState.STARTING
    wrote(nodes, 1)
    assert nodes.state() is NodesState.RUNNING
    assert nodes.used_seconds() is None
    wrote(nodes, 0, code=0)
    assert nodes.state() is NodesState.RUNNING
    wrote(nodes, 1, code=0)
    assert nodes.state() is NodesState.ENDED
    assert nodes.used_seconds() == 3.0


def test_a_job_that_ended_without_exit_files(commands: Callable[..., None], nodes: SlurmNodes) -> None:
    commands("squeue", "FAILED|NonZeroExitCode\n")
    (nodes.order.folder / "slurm.out").write_text(
        "slurmstepd: error: execve(): /x/python: No such file or directory\n"
        "srun: error: n0: task 0: Exited with exit code 2\n"
    )
    error = failed(nodes)
    assert error.kind is FailureKind.LAUNCH
    assert "execve(): /x/python" in error.message
    wrote(nodes, 0, code=1)
    commands("squeue", error="slurm_load_jobs error: Invalid job id specified\n", code=1)
    error = failed(nodes)
    assert error.kind is FailureKind.LOST
    assert "node 1 left no exit.json" in error.message


def test_an_unreachable_controller_is_tolerated_for_a_while(
    commands: Callable[..., None], nodes: SlurmNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands("squeue", "RUNNING|None\n")
    wrote(nodes, 0)
    wrote(nodes, 1)
    assert nodes.state() is NodesState.RUNNING
    commands("squeue", error="slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n", code=1)
    assert nodes.state() is NodesState.RUNNING
    monkeypatch.setattr(slurm_nodes, "CONTROLLER_LOST_SECONDS", 0.0)
    assert failed(nodes).kind is FailureKind.LOST


# ---- its end


def test_a_job_that_stays_listed_is_killed_and_then_reported(
    commands: Callable[..., None], nodes: SlurmNodes, calls: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_job, "CANCEL_SECONDS", 0.0)
    monkeypatch.setattr(slurm_job, "KILL_SECONDS", 0.0)
    commands("squeue", "COMPLETING\n")
    with pytest.raises(ProviderError, match="still lists job 17"):
        nodes.release()
    assert calls("scancel") == "17\n--signal=KILL --full 17\n"
    commands("squeue", error="slurm_load_jobs error: Invalid job id specified\n", code=1)
    nodes.release()
    assert nodes.state() is NodesState.ENDED


def test_leftovers_are_jobs_with_mlcds_prefix(commands: Callable[..., None], order: NodeOrder) -> None:
    commands("sbatch", "5\n")
    Slurm({}).start(order)
    commands("squeue", f"4|RUNNING|mlcd-a-1|/no/such\n5|RUNNING|mlcd-b|{order.folder}\n6|PENDING|mine|/home/me\n")
    found = [(remaining.lease_id, remaining.what, remaining.owned) for remaining in Slurm({}).leftovers()]
    assert found == [("mlcd-a-1", "job 4 (running)", False), ("mlcd-b", "job 5 (running)", True)]
    assert not (order.folder / "lease.json").exists()  # the job could write it
    gone = ProcessId(pid=2**22, started="1")
    records = LeaseRecords(home_of(order.folder))
    records.save(LeaseRecord(lease_id="mlcd-b", cloud="slurm", folder=str(order.folder), owner=gone))
    assert [remaining.owned for remaining in Slurm({}).leftovers()] == [False, False]


@pytest.mark.parametrize("hours_off", [-1, 0, 1])
@pytest.mark.parametrize("runs", [True, False], ids=["mlcd runs", "mlcd is gone"])
def test_a_lease_of_another_machine_is_in_use_while_its_heartbeat_changes(
    commands: Callable[..., None], order: NodeOrder, monkeypatch: pytest.MonkeyPatch, hours_off: int, runs: bool
) -> None:
    """Whatever the clocks of the two machines and of the file server say."""
    commands("sbatch", "5\n")
    Slurm({}).start(order)
    mine = LeaseRecords(home_of(order.folder)).get(order.lease_id)
    assert mine is not None
    gone = ProcessId(pid=2**22, started="1")
    elsewhere = replace(mine, host="other", machine="other", owner=gone)
    LeaseRecords(home_of(order.folder)).save(elsewhere)
    commands("squeue", f"5|RUNNING|{order.lease_id}|{order.folder}\n")
    heartbeat, observed = order.folder / "heartbeat", []
    stale = 7200.0 if not runs else 0.0
    os.utime(heartbeat, ns=(0, time.time_ns() + int((3600 * hours_off - stale) * 1e9)))

    sleep = time.sleep

    def observe(seconds: float) -> None:
        if seconds != slurm_engine.OBSERVED_SECONDS:  # waiting for a command
            sleep(seconds)
            return
        observed.append(seconds)
        if runs:
            os.utime(heartbeat, ns=(0, heartbeat.stat().st_mtime_ns + 10**9))

    monkeypatch.setattr("mlcd.clouds.slurm.engine.time.sleep", observe)
    assert [remaining.owned for remaining in Slurm({}).leftovers()] == [runs]
    assert bool(observed) is not (runs and hours_off == 0)
    assert sorted(path.name for path in order.folder.glob("heartbeat*")) == ["heartbeat"]


def test_the_age_of_a_heartbeat_is_taken_by_the_clock_of_its_file_system(
    commands: Callable[..., None], order: NodeOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file server whose clock is three hours ahead of this machine's."""
    touch = Path.touch

    def touched(path: Path, *given: Any, **named: Any) -> None:
        touch(path, *given, **named)
        os.utime(path, (0, time.time() + 3 * 3600))

    monkeypatch.setattr(Path, "touch", touched)
    commands("sbatch", "5\n")
    Slurm({}).start(order)
    monkeypatch.setattr(slurm_engine, "OBSERVED_SECONDS", 0.0)
    commands("squeue", f"5|RUNNING|{order.lease_id}|{order.folder}\n")
    (home_of(order.folder) / "leases" / f"{order.lease_id}.json").unlink()
    assert [remaining.owned for remaining in Slurm({}).leftovers()] == [True]


def test_a_lease_whose_record_is_not_proved_is_in_use_while_its_heartbeat_is_fresh(
    commands: Callable[..., None], order: NodeOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands("sbatch", "5\n")
    Slurm({}).start(order)
    monkeypatch.setattr(slurm_engine, "OBSERVED_SECONDS", 0.0)
    commands("squeue", f"5|RUNNING|{order.lease_id}|{order.folder}\n")
    (home_of(order.folder) / "leases" / f"{order.lease_id}.json").write_text('{"proof": 1}')
    assert [remaining.owned for remaining in Slurm({}).leftovers()] == [True]
    os.utime(order.folder / "heartbeat", (0, 0))
    assert [remaining.owned for remaining in Slurm({}).leftovers()] == [False]


def test_records_are_forgotten_with_their_leases(
    commands: Callable[..., None], order: NodeOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands("sbatch", "5\n")
    records = LeaseRecords(home_of(order.folder))
    gone = ProcessId(pid=2**22, started="1")
    records.save(LeaseRecord(lease_id="mlcd-killed", cloud="slurm", folder="", owner=gone))
    records.save(LeaseRecord(lease_id="mlcd-other", cloud="local", folder="", owner=gone))
    nodes = Slurm({}).start(order)
    assert [record.lease_id for record in records.all()[0]] == ["mlcd-other", order.lease_id]
    commands("squeue", "")
    commands("scancel", "")
    nodes.release()
    assert [record.lease_id for record in records.all()[0]] == ["mlcd-other"]
