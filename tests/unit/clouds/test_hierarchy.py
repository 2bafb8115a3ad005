"""One contract for both versions of the control groups: on the kernel's own where it has them, and on made-up files."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mlcd.clouds import control_groups
from mlcd.clouds.control_groups import joining, mounts, pids_in, remove, tree_of
from mlcd.clouds.minicloud import cgroup, hierarchy
from mlcd.clouds.minicloud.hierarchy import (
    CONTROLLERS,
    CONTROLLERS_2,
    Hierarchy,
    Version1,
    Version2,
    mounted_controllers,
)

NODE = Path(f"mlcd-test-{os.getpid()}", "lease", "0")
PATIENCE_SECONDS = 30.0


def made_up_v1(root: Path) -> Hierarchy:
    for name in CONTROLLERS:
        (root / name).mkdir(parents=True)
    return Version1({name: root / name for name in CONTROLLERS})


def made_up_v2(root: Path) -> Hierarchy:
    """A folder is not a control group: what the kernel would put into each is put there when it is made."""
    root.mkdir()
    folder = root
    for name in ("", *NODE.parts):
        folder = folder / name
        folder.mkdir(exist_ok=True)
        (folder / "cgroup.subtree_control").write_text("")
    return Version2(root)


@pytest.fixture(params=["v1", "v2"])
def made_up(request: pytest.FixtureRequest, tmp_path: Path) -> Hierarchy:
    return (made_up_v1 if request.param == "v1" else made_up_v2)(tmp_path / "groups")


class TestOnMadeUpFiles:
    """What is written where, and read from where."""

    def test_limits_are_written_and_read_back(self, made_up: Hierarchy) -> None:
        made_up.create(NODE)
        assert made_up.limits(NODE) == (0.0, 0.0)
        made_up.limit(NODE, cpus=0.25, memory_gib=1.5)
        assert made_up.limits(NODE) == (0.25, 1.5)
        assert made_up.limits(NODE.with_name("gone")) == (0.0, 0.0)

    def test_a_node_that_is_gone_has_used_nothing(self, made_up: Hierarchy) -> None:
        assert (made_up.used_seconds(NODE), made_up.out_of_memory_kills(NODE)) == (0.0, 0)
        made_up.kill(NODE)


def test_version_2_writes_what_the_kernel_documents(tmp_path: Path) -> None:
    groups = made_up_v2(tmp_path / "groups")
    folder = tmp_path / "groups" / NODE
    (folder / "memory.swap.max").touch()
    groups.create(NODE)
    groups.limit(NODE, cpus=0.125, memory_gib=1.0)
    assert (folder / "cpu.max").read_text() == "2500 20000"
    assert (folder / "memory.max").read_text() == str(2**30)
    assert (folder / "memory.swap.max").read_text() == "0"
    assert (folder.parents[1] / "cpu.weight").read_text() == "10000"
    for parent in (folder.parent, folder.parents[1], folder.parents[2]):
        assert (parent / "cgroup.subtree_control").read_text() == "+memory", "the last of the two that it passes on"
    (folder / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    (folder / "memory.events").write_text("low 0\noom 2\noom_kill 3\noom_group_kill 0\n")
    (folder / "cpu.max").write_text("max 100000")
    (folder / "memory.max").write_text("max")
    assert (groups.used_seconds(NODE), groups.out_of_memory_kills(NODE)) == (2.5, 3)
    assert groups.limits(NODE) == (0.0, 0.0)


def test_version_2_kills_by_its_own_file_or_freezes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = made_up_v2(tmp_path / "groups")
    folder = tmp_path / "groups" / NODE
    seen: list[tuple[list[int], str]] = []
    monkeypatch.setattr(
        hierarchy, "kill_all", lambda pids: seen.append((list(pids), (folder / "cgroup.freeze").read_text()))
    )
    (folder / "cgroup.procs").write_text("7\n")
    (folder / "cgroup.freeze").write_text("0")
    groups.kill(NODE)
    assert seen == [([7], "1")]
    assert (folder / "cgroup.freeze").read_text() == "0"
    (folder / "cgroup.kill").touch()
    groups.kill(NODE)
    assert (folder / "cgroup.kill").read_text() == "1"
    assert len(seen) == 1


def test_version_2_comes_first_where_it_has_the_controllers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "unified"
    root.mkdir()
    lines = [
        f"cgroup2 {root} cgroup2 rw 0 0",
        *(f"cgroup {tmp_path}/{name} cgroup rw,{name} 0 0" for name in CONTROLLERS),
    ]
    (tmp_path / "mounts").write_text("\n".join(lines) + "\n")
    monkeypatch.setattr(control_groups, "_MOUNTS", tmp_path / "mounts")
    for controllers, version in (("", 1), ("hugetlb cpu", 1), ("cpuset cpu io memory pids", 2)):
        (root / "cgroup.controllers").write_text(controllers)
        hierarchy.hierarchy.cache_clear()
        assert hierarchy.hierarchy().version == version
    hierarchy.hierarchy.cache_clear()


# ---- on the kernel's own


def real_v1() -> Hierarchy | None:
    return Version1(mounted_controllers()) if set(mounted_controllers()) == set(CONTROLLERS) else None


def real_v2() -> Hierarchy | None:
    return next((Version2(root) for root, _ in mounts("cgroup2")), None)


@pytest.fixture(params=[real_v1, real_v2], ids=["v1", "v2"])
def groups(request: pytest.FixtureRequest) -> Iterator[Hierarchy]:
    """The kernel's groups of each version that it mounts here, with a node in them."""
    found = request.param()
    if found is None or os.geteuid() != 0:
        pytest.skip(f"no control groups of {request.param.__name__.removeprefix('real_')} here, or not root")
    try:
        yield found
    finally:
        found.kill(NODE)
        for root in found.roots:
            for below in sorted(tree_of(root / NODE.parts[0]), reverse=True):
                wait_for(lambda below=below: remove(below))  # type: ignore[misc]


def created(groups: Hierarchy) -> bool:
    """Create the node; whether it has limits: a kernel whose controllers are all version 1's has groups without any."""
    if groups.version == 2 and not set(CONTROLLERS_2) <= set(
        (groups.roots[0] / "cgroup.controllers").read_text().split()
    ):
        (groups.roots[0] / NODE).mkdir(parents=True)
        return False
    groups.create(NODE)
    return True


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.01)


def pids(groups: Hierarchy) -> set[int]:
    return {pid for root in groups.roots for below in tree_of(root / NODE) for pid in pids_in(below)}


def start(groups: Hierarchy, script: str) -> "subprocess.Popen[bytes]":
    files = [str(root / NODE / "cgroup.procs") for root in groups.roots]
    return subprocess.Popen(joining(files, ["/bin/sh", "-c", script]), start_new_session=True)


class TestOnTheKernel:
    """The same on both versions."""

    def test_what_forks_is_found_and_killed(self, groups: Hierarchy) -> None:
        created(groups)
        first = start(groups, "sleep 600 & setsid sleep 600 & wait")
        wait_for(lambda: len(pids(groups)) == 3)
        groups.kill(NODE)
        assert first.wait(PATIENCE_SECONDS) == -signal.SIGKILL
        wait_for(lambda: not pids(groups))

    def test_what_is_stopped_or_below_is_killed_too(self, groups: Hierarchy) -> None:
        created(groups)
        first = start(groups, "kill -STOP $$")
        below = [root / NODE / "of-the-job" for root in groups.roots]
        for folder in below:
            folder.mkdir()
            wait_for(lambda: first.pid in pids(groups))
            (folder / "cgroup.procs").write_text(str(first.pid))
        if groups.version == 2:
            (below[0] / "cgroup.freeze").write_text("1")
        groups.kill(NODE)
        assert first.wait(PATIENCE_SECONDS) == -signal.SIGKILL

    def test_the_time_of_processes_is_counted(self, groups: Hierarchy) -> None:
        created(groups)
        assert groups.used_seconds(NODE) < 0.1
        start(groups, "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done").wait(PATIENCE_SECONDS)
        assert groups.used_seconds(NODE) > 0.01

    def test_a_node_that_needs_too_much_memory_is_told(self, groups: Hierarchy) -> None:
        if not created(groups):
            pytest.skip("the memory controller belongs to version 1 on this machine")
        groups.limit(NODE, cpus=None, memory_gib=1 / 64)
        assert groups.limits(NODE) == (0.0, 1 / 64)
        hungry = start(groups, "exec python3 -c 'x = bytearray(10**8); print(len(x))'")
        assert hungry.wait(PATIENCE_SECONDS) == -signal.SIGKILL
        assert groups.out_of_memory_kills(NODE) >= 1

    def test_a_quota_slows_a_node_down(self, groups: Hierarchy) -> None:
        """A tenth of a core for a second is a tenth of a second of its time: asked of the kernel's own count."""
        if not created(groups):
            pytest.skip("the cpu controller belongs to version 1 on this machine")
        groups.limit(NODE, cpus=0.1, memory_gib=None)
        busy = start(groups, "while :; do :; done")
        began = time.monotonic()
        wait_for(lambda: groups.used_seconds(NODE) > 0.2)
        passed = time.monotonic() - began
        groups.kill(NODE)
        busy.wait(PATIENCE_SECONDS)
        assert passed > 1.0, "at full speed this takes 0.2 s"


def test_a_whole_lease_is_created_counted_and_ended_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    found = hierarchy.hierarchy()
    if os.geteuid() != 0 or not found.roots or (found.version == 1 and real_v1() is None):
        pytest.skip("no control groups here, or not root")
    monkeypatch.setattr(cgroup, "FAMILY", f"mlcd-test-{os.getpid()}")
    lease = f"mlcd-test-{os.getpid()}-lease"
    two = [cgroup.Group(lease, str(rank)) for rank in range(2)]
    for group in two:
        group.create(cpus=0.25, memory_gib=0.5)
    try:
        assert (cgroup.allocated_cores(), cgroup.allocated_gib()) == (0.5, 1.0)
        assert cgroup.groups_of(lease) == tuple(two)
        process = subprocess.Popen(joining(two[1].task_files, ["sleep", "600"]))
        wait_for(lambda: two[1].pids() == {process.pid})
    finally:
        cgroup.end_groups(lease)
    assert process.wait(PATIENCE_SECONDS) == -signal.SIGKILL
    assert cgroup.groups_of(lease) == ()
    assert not any(folder.exists() for group in two for folder in group.folders)
