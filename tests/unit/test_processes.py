"""Processes of this machine that carry a lease's name."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mlcd.clouds import processes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")


def kernel_threads() -> list[int]:
    return [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/stat") if _is_kernels(path)]


def _is_kernels(stat: Path) -> bool:
    try:
        return stat.read_text().rpartition(")")[2].split()[1] == "2"  # a child of kthreadd
    except OSError:
        return False


def test_a_process_is_found_from_the_moment_it_was_started() -> None:
    """The system shows no environment during exec(): many of these processes are observed in that moment."""
    for number in range(20):
        tag = f"{processes.TAG}=mlcd-started-{number}".encode()
        with subprocess.Popen(["sleep", "60"], env={processes.TAG: f"mlcd-started-{number}"}) as started:
            try:
                assert tag in processes._variables(started.pid)
            finally:
                started.kill()


def test_what_has_no_environment_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def in_vain(_: float) -> None:
        raise AssertionError("it was waited for")

    with subprocess.Popen(["sleep", "60"], env={}) as bare, subprocess.Popen(["true"]) as ended:
        try:
            until = time.monotonic() + 60.0
            while processes._has_no_environment_yet(bare.pid) or processes.started_at(ended.pid):
                assert time.monotonic() < until
                time.sleep(0.01)
            monkeypatch.setattr(time, "sleep", in_vain)
            for pid in (bare.pid, ended.pid, *kernel_threads()):
                assert processes._variables(pid) == []
            processes._variables(1)  # which may be hidden from this user
            monkeypatch.undo()
        finally:
            bare.kill()
    assert processes._variables(ended.pid) == []  # it is gone


@pytest.mark.parametrize("take", [processes.tagged, lambda lease: processes.all_tagged().get(lease, [])])
def test_only_running_processes_carry_a_lease(take: Callable[[str], list[int]]) -> None:
    lease = f"mlcd-living-{os.getpid()}"
    with subprocess.Popen(["sleep", "60"], env={processes.TAG: lease}) as started:
        try:
            assert take(lease) == [started.pid]
        finally:
            started.kill()
    assert take(lease) == []
