"""Leases of this machine: what proves that a process is one's own, and what is only listed."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.synthetic import SyntheticCloud, make_problem, make_run

from mlcd.cli.main import run as mlcd
from mlcd.clouds import control_groups, local, local_leases, processes
from mlcd.clouds.control_groups import TrackingGroup
from mlcd.clouds.job import RELEASE_SECONDS, REPORT_SECONDS
from mlcd.clouds.lease_records import LeaseRecord, LeaseRecords
from mlcd.clouds.local import Local, LocalNodes, _environment
from mlcd.clouds.local_leases import HeldLease, LocalLeases
from mlcd.clouds.nodes import NodeOrder
from mlcd.clouds.processes import ProcessId
from mlcd.errors import ProviderError
from mlcd.platforms import descendants
from mlcd.problem import STOP_SECONDS
from mlcd.store.store import Store

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")

PATIENCE_SECONDS = 60.0
LEASE = f"mlcd-run-{os.getpid()}"
"""Its own in every test process: leases of the product have a random part, and `down` ends what carries the name."""
DAEMON = "cd {cwd} && (setsid env -i sleep 600.{mark} > /dev/null 2>&1 &) ; exit 0"
"""Forked twice, in a session of its own, without an environment: nothing but a control group connects it."""


def until(condition: Callable[[], object]) -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < give_up, "waited in vain"
        time.sleep(0.01)


def running(mark: str) -> list[int]:
    return [pid for pid in processes.all_pids() if processes.command_of(pid) == f"sleep 600.{mark}"]


@pytest.fixture
def mark(request: pytest.FixtureRequest) -> Iterator[str]:
    """Digits in the command line of what a test starts; ended with the test."""
    mark = f"{os.getpid()}{abs(hash(request.node.name)) % 10**6:06}"
    yield mark
    for pid in running(mark):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def stranger(mark: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A process of the same user that mlcd has nothing to do with."""
    with subprocess.Popen(["sleep", f"600.{mark}"], start_new_session=True) as process:
        yield process
        process.kill()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    monkeypatch.setenv("MLCD_HOME", str(home))
    return home


def parents_v1() -> tuple[Path, ...]:
    return control_groups._parents_v1()


def parents_v2() -> tuple[Path, ...]:
    return control_groups._parents_v2()


@pytest.fixture(params=["v1", "v2"])
def groups(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    parents = parents_v1() if request.param == "v1" else parents_v2()
    if not parents or not control_groups._can_join(parents):
        pytest.skip(f"no control groups of version {request.param[1:]} can be created here")
    monkeypatch.setattr(control_groups, "tracking_parents", lambda: parents)


@pytest.fixture
def no_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_groups, "tracking_parents", tuple)


def hold(home: Path, name: str = LEASE, run: str = "a-run") -> HeldLease:
    folder = home / "work" / run / "leases" / name
    folder.mkdir(parents=True)
    return LocalLeases(home, "local").hold(name, folder)


def start(held: HeldLease, script: str) -> "subprocess.Popen[bytes]":
    nowhere = subprocess.DEVNULL
    return held.start(["sh", "-c", script], env=dict(os.environ), stdin=nowhere, stdout=nowhere, stderr=nowhere)


GONE = ProcessId(pid=2**22, started="1")


def abandon(held: HeldLease) -> None:
    """As if the mlcd process that holds it had been killed."""
    held.leases.records.save(replace(held.record, owner=GONE))


def down(capsys: pytest.CaptureFixture[str], code: int) -> dict[str, Any]:
    assert mlcd(["down", "--on", "local", "-y", "-o", "json"]) == code
    data: dict[str, Any] = json.loads(capsys.readouterr().out)
    return data


# ---- what a job can write


def test_a_lease_file_of_a_job_cannot_end_a_stranger(
    home: Path, stranger: "subprocess.Popen[bytes]", capsys: pytest.CaptureFixture[str]
) -> None:
    folder = home / "work" / "a-run" / "leases" / "mlcd-forged-1"
    folder.mkdir(parents=True)
    itself = [stranger.pid, processes.started_at(stranger.pid)]
    (folder / "lease.json").write_text(json.dumps({"cloud": "local", "owner": [2**22, "1"], "agents": [itself]}))
    said = down(capsys, 1)
    assert stranger.poll() is None
    assert said["found"] == []
    (listed,) = said["unproved"]
    assert listed["pid"] == stranger.pid
    assert "of an earlier version of mlcd, without a proof" in listed["reason"]
    stranger.kill()
    stranger.wait()
    assert down(capsys, 0)["unproved"] == []  # nothing that it names runs


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _text(text: str | bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())

    return write


BAD_FILES: dict[str, Callable[[Path], None]] = {
    "fifo": _fifo,
    "folder": Path.mkdir,
    "link": lambda path: path.symlink_to("/dev/zero"),
    "empty": _text(""),
    "null": _text("null"),
    "list": _text("[]"),
    "no agents": _text('{"cloud": "local"}'),
    "agents of the wrong type": _text('{"cloud": "local", "owner": null, "agents": [3, [1], [null, null], "x"]}'),
    "NaN": _text('{"cloud": "local", "owner": [NaN, "1"], "agents": [[1e400, "1"]]}'),
    "many digits": _text('{"cloud": "local", "agents": [[' + "9" * 5000 + ', "1"]]}'),
    "deep": _text("[" * 100_000),
    "huge": _text('{"cloud": "' + "x" * 10**6 + '"}'),
    "not text": _text(b"\xff\x00"),
}


def test_bad_lease_files_of_jobs_are_no_hindrance(
    home: Path, no_groups: None, capsys: pytest.CaptureFixture[str]
) -> None:
    held = hold(home)
    _text("null")(Path(held.record.folder) / "lease.json")
    for number, make in enumerate(BAD_FILES.values()):
        other = home / "work" / "b-run" / "leases" / f"mlcd-run-2-{number}"
        other.mkdir(parents=True)
        make(other / "lease.json")
    started = start(held, "sleep 600")
    abandon(held)
    assert [row["lease"] for row in down(capsys, 0)["found"]] == [LEASE]
    assert started.wait() == -signal.SIGTERM


# ---- mlcd's own records


def test_bad_records_are_reported_and_the_others_are_ended(
    home: Path, no_groups: None, capsys: pytest.CaptureFixture[str]
) -> None:
    held = hold(home)
    started = start(held, "sleep 600")
    abandon(held)
    files = [home / "leases" / f"mlcd-a-{kind.replace(' ', '-')}.json" for kind in BAD_FILES]
    for file, make in zip(files, BAD_FILES.values(), strict=True):
        make(file)
    said = down(capsys, 1)
    assert started.wait() == -signal.SIGTERM
    assert [(row["lease"], row["ended"]) for row in said["found"]] == [(LEASE, True)]
    assert {(row["what"], row["pid"]) for row in said["unproved"]} == {(str(file), None) for file in files}
    with_record = hold(home, "mlcd-run-3")  # and a run on this machine goes on
    with_record.leases.end_abandoned()
    with_record.close()


def test_a_run_on_this_machine_names_the_records_that_it_skips(home: Path) -> None:
    (home / "leases").mkdir(parents=True)
    bad = home / "leases" / "mlcd-bad.json"
    bad.write_text("{")
    (note,) = Local(home).notes
    assert note.startswith(f"{bad}: is not JSON")


def test_a_file_that_has_no_leases_name_names_no_group(
    home: Path, groups: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """`unified/NAME` may be anybody's control group."""
    parent = control_groups.tracking_parents()[0]
    other = TrackingGroup((parent / "anybodys",))
    other.create()
    (home / "leases").mkdir(parents=True)
    for name in ("anybodys", ""):
        (home / "leases" / f"{name}.json").write_text("{}")
    try:
        with subprocess.Popen(
            control_groups.joining(other.task_files, ["sh", "-c", "echo up; exec sleep 600"]), stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"up\n"
            assert [row["pid"] for row in down(capsys, 1)["unproved"]] == [None]
            assert process.poll() is None
            process.kill()
    finally:
        other.end()


def test_no_name_of_a_file_reaches_the_terminal_as_an_escape(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "leases").mkdir(parents=True)
    (home / "leases" / "mlcd-\x1b[2J.json").write_text("{}")
    said = _text_of(capsys)
    assert "[2J.json: record is missing" in said
    assert "\x1b" not in said


def test_a_folder_of_records_that_cannot_be_read_is_reported(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home.mkdir()
    (home / "leases").touch()
    (row,) = down(capsys, 1)["unproved"]
    assert row["what"] == str(home / "leases")
    assert "Not a directory" in row["reason"]


def _other_pid(record: dict[str, Any], pid: int) -> None:
    record["agents"] = [{"pid": pid, "started": processes.started_at(pid), "session": os.getsid(pid)}]


@pytest.mark.parametrize("how", ["changed", "copied", "made without the key", "of another home", "without the key"])
def test_a_record_that_is_not_proved_ends_nothing(
    how: str,
    home: Path,
    tmp_path: Path,
    stranger: "subprocess.Popen[bytes]",
    no_groups: None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    held = hold(home)
    itself = LeaseRecord(
        lease_id=LEASE,
        cloud="local",
        folder=held.record.folder,
        owner=ProcessId(pid=2**22, started="1"),
        agents=(ProcessId.of(stranger.pid),),
        began_ticks=0,
    )
    file = home / "leases" / f"{LEASE}.json"
    if how in ("changed", "made without the key"):
        data = json.loads(file.read_text())
        _other_pid(data["record"], stranger.pid)
        data["record"]["owner"]["pid"] = 2**22
        if how == "made without the key":
            data["proof"] = ""
        file.write_text(json.dumps(data))
    elif how == "copied":  # one lease's proved record under another lease's name
        LeaseRecords(home).save(itself)
        file = file.rename(file.with_name("mlcd-run-2.json"))
    elif how == "of another home":
        LeaseRecords(tmp_path / "other").save(itself)
        file.write_bytes((tmp_path / "other" / "leases" / f"{LEASE}.json").read_bytes())
    else:
        LeaseRecords(home).save(itself)
        (home / "leases" / "key").unlink()
    said = down(capsys, 1)
    assert stranger.poll() is None
    assert said["found"] == []
    assert [row["what"] for row in said["unproved"]] in ([str(file)], [str(home / "leases" / "key")])
    LocalLeases(home, "local").end_abandoned()
    assert stranger.poll() is None
    assert "Not proved: " in _text_of(capsys)


def _text_of(capsys: pytest.CaptureFixture[str]) -> str:
    assert mlcd(["down", "--on", "local", "-y"]) == 1
    return capsys.readouterr().err


def test_records_and_key_are_private(home: Path) -> None:
    old = os.umask(0)
    try:
        hold(home)
    finally:
        os.umask(old)
    assert (home / "leases").stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o077 for file in (home / "leases").iterdir() if file.suffix != ".lock"} == {0}


@pytest.mark.parametrize("damage", [b"", b"x" * 64, b"a" * 65])
def test_a_damaged_key_hinders_no_new_lease(home: Path, damage: bytes) -> None:
    old = hold(home)
    (home / "leases" / "key").write_bytes(damage)
    new = hold(home, "mlcd-run-2")
    proved, unproved = LeaseRecords(home).all()
    assert [record.lease_id for record in proved] == ["mlcd-run-2"]
    assert list(unproved) == [LEASE]
    for held in (old, new):
        held.close()


def test_records_in_a_folder_of_another_user_end_nothing(
    home: Path, mark: str, no_groups: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    held = hold(home)
    started = start(held, f"exec sleep 600.{mark}")
    abandon(held)
    until(lambda: running(mark))
    with monkeypatch.context() as as_other:
        as_other.setattr(os, "geteuid", lambda: os.getuid() + 1)
        said = down(capsys, 1)
    assert started.poll() is None
    assert said["found"] == []
    assert any("belongs to another user" in row["reason"] for row in said["unproved"])
    held.close()


def test_the_job_is_told_neither_the_home_nor_the_key(home: Path) -> None:
    hold(home)
    env = _environment(1)
    key = (home / "leases" / "key").read_text()
    assert "MLCD_HOME" not in env
    assert not [name for name, value in env.items() if key in value or str(home) in value]


# ---- what proves that a process is the lease's


def test_a_later_process_with_the_same_pid_is_not_the_agent(
    home: Path, stranger: "subprocess.Popen[bytes]", no_groups: None, capsys: pytest.CaptureFixture[str]
) -> None:
    held = hold(home)
    right = ProcessId.of(stranger.pid)
    for wrong in (replace(right, started=str(int(right.started) - 1)), replace(right, session=right.session + 1)):
        held.leases.records.save(
            replace(held.record, owner=ProcessId(pid=2**22, started="1"), agents=(wrong,), began_ticks=2**62)
        )
        assert down(capsys, 0)["found"] == []
    assert stranger.poll() is None


def test_the_name_alone_is_no_proof(home: Path, mark: str, no_groups: None, capsys: pytest.CaptureFixture[str]) -> None:
    """A process that carries the lease's name and started before the lease did is another one's."""
    early = subprocess.Popen(["sleep", f"600.{mark}"], env={processes.TAG: LEASE})
    ticks = processes.ticks_now()
    until(lambda: processes.ticks_now() > ticks + 2)
    held = hold(home)
    late = start(held, "sleep 600")
    abandon(held)
    down(capsys, 0)
    assert late.wait() == -signal.SIGTERM
    assert early.poll() is None
    early.kill()
    early.wait()


@pytest.mark.skipif(os.getuid() != 0, reason="starts a process of another user, which needs root")
def test_another_users_process_with_the_name_is_listed_only(
    home: Path, no_groups: None, capsys: pytest.CaptureFixture[str]
) -> None:
    held = hold(home)
    with subprocess.Popen(["sleep", "600"], env={processes.TAG: LEASE}, user=65534) as other:
        abandon(held)
        until(lambda: processes.user_of(other.pid) == 65534 and processes.tagged(LEASE))
        (row,) = down(capsys, 1)["unproved"]
        assert other.poll() is None
        assert row["pid"] == other.pid
        assert "another user started it" in row["reason"]
        other.kill()


def test_a_record_of_another_machine_or_boot_names_no_process(
    home: Path, stranger: "subprocess.Popen[bytes]", no_groups: None, capsys: pytest.CaptureFixture[str]
) -> None:
    held = hold(home)
    dead = ProcessId(pid=2**22, started="1")
    elsewhere = replace(
        held.record, owner=dead, agents=(ProcessId.of(stranger.pid),), host="other", machine="other boot pid:[1]"
    )
    held.leases.records.save(elsewhere)
    assert down(capsys, 0)["found"] == []
    assert stranger.poll() is None
    held.leases.end_abandoned()
    assert held.leases.records.get(LEASE) == elsewhere  # it may be in use there
    rebooted = replace(elsewhere, host=held.record.host, machine=f"{held.record.host} another-boot pid:[1]")
    held.leases.records.save(rebooted)
    held.leases.end_abandoned()
    assert held.leases.records.get(LEASE) is None


def test_what_a_running_mlcd_holds_is_in_use(home: Path, no_groups: None) -> None:
    held = hold(home)
    start(held, "sleep 600")
    assert [found.owned for found in held.leases.leftovers()] == [True]
    held.leases.end_abandoned()
    assert len(held.leases.leftovers()) == 1
    held.close()
    assert held.leases.leftovers() == ()
    assert held.leases.records.get(LEASE) is None


# ---- daemons without an environment, mlcd and agent killed at once


def test_a_group_finds_what_left_its_session_and_its_environment(
    home: Path, mark: str, groups: None, capsys: pytest.CaptureFixture[str]
) -> None:
    held = hold(home)
    agent = start(held, DAEMON.format(cwd="/", mark=mark) + "; sleep 600")
    until(lambda: running(mark))
    abandon(held)
    agent.kill()
    agent.wait()
    # what started the daemon may take a moment to end
    until(lambda: [(one.what, one.owned) for one in held.leases.leftovers()] == [("1 process of a-run", False)])
    said = down(capsys, 0)
    assert [row["ended"] for row in said["found"]] == [True]
    assert running(mark) == []
    assert not [folder for folder in map(Path, held.record.groups) if folder.exists()]
    assert held.leases.records.get(LEASE) is None


def test_nothing_of_a_killed_lease_stays_when_its_processes_ended_themselves(
    home: Path, groups: None, capsys: pytest.CaptureFixture[str]
) -> None:
    held = hold(home)
    start(held, "true").wait()
    abandon(held)
    assert down(capsys, 0)["found"] == []
    assert not [folder for folder in map(Path, held.record.groups) if folder.exists()]
    assert held.leases.records.get(LEASE) is None


def test_a_deleted_run_leaves_neither_processes_nor_records(home: Path, mark: str, groups: None) -> None:
    with Store(home) as store:
        store.add(make_run(make_problem(), SyntheticCloud(), "auto", run_id="a-run"), spec={})
    held, other = hold(home), hold(home, f"{LEASE}-2", run="b-run")
    started = start(held, f"exec sleep 600.{mark}")
    abandon(held)
    abandon(other)
    until(lambda: running(mark))
    assert mlcd(["runs", "rm", "a-run", "--force", "-y"]) == 0
    assert started.wait(PATIENCE_SECONDS) == -signal.SIGTERM
    assert held.leases.records.get(LEASE) is None
    assert not [folder for folder in map(Path, held.record.groups) if folder.exists()]
    assert other.leases.records.get(f"{LEASE}-2") is not None, "another run's is not touched"
    other.close()


def test_what_a_deleted_run_may_have_left_is_named(
    home: Path, mark: str, no_groups: None, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store(home) as store:
        store.add(make_run(make_problem(), SyntheticCloud(), "auto", run_id="a-run"), spec={})
    held = hold(home)
    start(held, DAEMON.format(cwd=held.record.folder, mark=mark)).wait()
    until(lambda: running(mark))
    (pid,) = running(mark)
    abandon(held)
    assert mlcd(["runs", "rm", "a-run", "--force", "-y"]) == 0
    assert f"May belong to a-run, and was not ended: pid {pid} (sleep 600.{mark})" in capsys.readouterr().err
    assert running(mark) == [pid]
    assert held.leases.records.all() == ([], {}), "its folder is gone: nothing connects it with the run any more"


def test_the_record_of_a_deleted_run_goes_although_its_process_was_still_ending(
    home: Path, no_groups: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(home) as store:
        store.add(make_run(make_problem(), SyntheticCloud(), "auto", run_id="a-run"), spec={})
    held = hold(home)
    abandon(held)
    LeaseRecords(home).save(replace(held.record, lease_id=f"{LEASE}-s", cloud="slurm", owner=GONE))
    ending = iter([(os.getpid(), "is still ending")])
    suspects = local_leases.suspects
    monkeypatch.setattr(local_leases, "suspects", lambda *given: [*suspects(*given), *ending])
    assert mlcd(["runs", "rm", "a-run", "--force", "-y"]) == 0
    assert held.leases.records.all() == ([], {})


def test_a_pid_that_a_stranger_has_got_meanwhile_is_not_killed(stranger: "subprocess.Popen[bytes]") -> None:
    with subprocess.Popen(["sleep", "600"]) as member:
        control_groups.kill_members(
            {stranger.pid, member.pid, os.getpid(), 2**22 - 1}, lambda: {member.pid, os.getpid()}
        )
        assert member.wait(PATIENCE_SECONDS) == -signal.SIGKILL
    assert stranger.poll() is None


def test_an_agent_signals_no_later_process_with_the_pid_of_one_of_its_own(stranger: "subprocess.Popen[bytes]") -> None:
    start = processes.started_at(stranger.pid)
    descendants._signal(stranger.pid, signal.SIGKILL, f"{int(start) - 1}")
    assert descendants._with_starts()[stranger.pid] == start
    assert descendants._running({stranger.pid: start, os.getpid(): "1"}) == {stranger.pid: start}
    assert stranger.poll() is None
    descendants._signal(stranger.pid, signal.SIGKILL, start)
    assert stranger.wait(PATIENCE_SECONDS) == -signal.SIGKILL


@pytest.mark.parametrize("code", [errno.ENOENT, errno.ENODEV])
def test_a_group_that_another_process_removes_meanwhile_is_gone(
    code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise OSError(code, os.strerror(code))  # before and after the file was opened

    (tmp_path / "cgroup.procs").touch()
    monkeypatch.setattr(Path, "read_text", refuse)
    monkeypatch.setattr(Path, "write_text", refuse)
    control_groups.write_if_exists(tmp_path / "cgroup.procs", "0")
    assert control_groups.pids_in(tmp_path) == set()


def test_a_group_ends_what_is_paused_and_what_made_groups_of_its_own(home: Path, mark: str, groups: None) -> None:
    held = hold(home)
    assert held.group is not None
    agent = start(held, DAEMON.format(cwd="/", mark=mark))
    agent.wait()
    until(lambda: running(mark))
    (pid,) = running(mark)
    os.kill(pid, signal.SIGSTOP)
    for folder in held.group.folders:
        (folder / "below").mkdir()
        (folder / "below" / "cgroup.procs").write_text(str(pid))
    assert held.pids() == [pid]
    held.close()
    assert running(mark) == []
    assert not [folder for folder in held.group.folders if folder.exists()]


def test_a_group_ends_what_its_job_has_frozen(home: Path, mark: str, groups: None) -> None:
    """A frozen process of version 1 does not even die of SIGKILL."""
    held = hold(home)
    assert held.group is not None
    start(held, DAEMON.format(cwd="/", mark=mark)).wait()
    until(lambda: running(mark))
    frozen = [
        (folder / name).write_text(word)
        for folder in held.group.folders
        for name, word in (("freezer.state", "FROZEN"), ("cgroup.freeze", "1"))
        if (folder / name).exists()
    ]
    assert frozen
    held.close()
    assert running(mark) == []


def test_a_group_counts_the_time_of_ended_processes(home: Path, groups: None) -> None:
    held = hold(home)
    busy = "import time\nuntil = time.process_time() + 0.2\nwhile time.process_time() < until: pass"
    agent = start(held, f"exec {sys.executable} -S -c '{busy}'")
    assert agent.wait() == 0
    used = held.used_seconds()
    assert used is not None
    assert used >= 0.2
    held.close()
    assert held.used_seconds() is None


@pytest.mark.parametrize("where", ["folder", "session", "noted"])
def test_without_groups_what_may_be_the_leases_is_listed_and_not_ended(
    where: str, home: Path, mark: str, no_groups: None, capsys: pytest.CaptureFixture[str]
) -> None:
    held = hold(home)
    assert held.group is None
    script = DAEMON.format(cwd=held.record.folder if where == "folder" else "/", mark=mark)
    if where == "session":
        script = script.replace("setsid ", "")
    agent = start(held, script)
    agent.wait()
    until(lambda: running(mark))
    (pid,) = running(mark)
    if where == "noted":
        notes = Path(held.record.folder) / "node-0" / "processes.json"
        notes.parent.mkdir()
        notes.write_text(json.dumps({"processes": [[pid, processes.started_at(pid)], [1, "no"]]}))
    abandon(held)
    said = down(capsys, 1)
    assert said["found"] == []
    assert [(row["run"], row["pid"]) for row in said["unproved"]] == [("a-run", pid)]
    assert f"May belong to a-run: pid {pid} (sleep 600.{mark}): it " in _text_of(capsys)
    held.leases.end_abandoned()
    assert running(mark) == [pid]
    os.kill(pid, signal.SIGKILL)
    until(lambda: not running(mark))
    assert down(capsys, 0)["unproved"] == []
    held.leases.end_abandoned()
    assert held.leases.records.get(LEASE) is None


def test_groups_that_cannot_be_created_are_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    control_groups.tracking_parents.cache_clear()
    monkeypatch.setattr(control_groups, "_MOUNTS", tmp_path / "none")
    assert TrackingGroup.named("mlcd-x") is None
    control_groups.tracking_parents.cache_clear()
    mounts = tmp_path / "mounts"
    mounts.write_text(f"cgroup2 {tmp_path} cgroup2 ro 0 0\ncgroup {tmp_path} cgroup rw,freezer 0 0\n")
    monkeypatch.setattr(control_groups, "_MOUNTS", mounts)  # plain folders: what is written there moves no process
    (tmp_path / "mlcd-probe-0").mkdir()
    monkeypatch.setattr(os, "getpid", lambda: 0)
    (tmp_path / "mlcd-probe-0" / "cgroup.procs").mkdir()
    assert TrackingGroup.named("mlcd-x") is None
    control_groups.tracking_parents.cache_clear()


# ---- ending


def test_only_the_process_that_was_meant_gets_the_signal(stranger: "subprocess.Popen[bytes]") -> None:
    assert processes._send(stranger.pid, signal.SIGKILL, "another start")
    time.sleep(0.1)
    assert stranger.poll() is None
    assert processes.end([stranger.pid]) == []
    assert stranger.wait() == -signal.SIGTERM


def test_a_process_that_may_not_be_ended_is_named(
    stranger: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_send", lambda *_: False)
    assert processes.end([stranger.pid]) == [stranger.pid]


def test_a_job_that_starts_processes_as_fast_as_they_end_is_not_waited_for(
    home: Path, stranger: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time one looks, another one runs; and one cannot be ended."""
    rounds = 0

    def found(*_: object) -> list[int]:
        nonlocal rounds
        rounds += 1
        assert rounds < 1000, "it would never return"
        time.sleep(0.01)
        return [2**22 + rounds, stranger.pid]

    monkeypatch.setattr(local_leases, "END_SECONDS", 0.1)
    monkeypatch.setattr(local_leases, "proved", found)
    monkeypatch.setattr(processes, "end", lambda alive, **_: alive[1:])
    with pytest.raises(ProviderError, match=rf"cannot end the processes {stranger.pid}$"):
        local_leases.end_processes(hold(home).record)


def test_what_resists_the_agents_is_killed_at_once(home: Path, mark: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A budget keeps time back for one request to end and the kill after it, not for a second request."""
    monkeypatch.setattr(local, "AGENT_END_SECONDS", 0.1)
    folder = home / "work" / "a-run" / "leases" / LEASE
    (folder / "node-0").mkdir(parents=True)
    order = NodeOrder(lease_id=LEASE, instance="local.1", count=1, folder=folder, seconds=60.0)
    nodes = Local(home).start(order)
    assert isinstance(nodes, LocalNodes)
    start(nodes.held, f"trap '' TERM; sleep 600.{mark} & wait; wait")
    until(lambda: running(mark))
    waited: list[float] = []
    end = processes.end

    def recorded(pids: list[int], *, grace_seconds: float) -> list[int]:
        waited.append(grace_seconds)
        return end(pids, grace_seconds=grace_seconds)

    monkeypatch.setattr(processes, "end", recorded)
    nodes.release()
    assert not running(mark)
    assert set(waited) == {0.0}


def test_the_end_of_a_training_that_resists_fits_into_what_its_budget_keeps_back() -> None:
    """Noticed a report late, asked to save, then ended by force: half as much time again, for a busy machine."""
    assert local.AGENT_END_SECONDS > descendants.TERM_GRACE_SECONDS
    assert RELEASE_SECONDS >= 1.5 * local.AGENT_END_SECONDS
    assert STOP_SECONDS >= REPORT_SECONDS + RELEASE_SECONDS
