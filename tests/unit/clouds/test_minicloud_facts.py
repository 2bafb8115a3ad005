"""What can be tested of the minicloud without creating a node."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlcd.clouds import control_groups
from mlcd.clouds.minicloud import MiniCloud, cgroup, cloud, facilities, hierarchy, missing, network, record
from mlcd.clouds.minicloud.network import CommandFailed, find_command, free_subnet, limit
from mlcd.clouds.minicloud.record import (
    LeaseRecord,
    lease_of_namespace,
    link_tag,
    namespace_name,
    read_records,
    unproved_records,
)
from mlcd.clouds.minicloud.types import instance_types
from mlcd.errors import ProviderError


@pytest.fixture(autouse=True)
def uncached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(record, "REGISTRY", tmp_path / "registry")
    missing.cache_clear()
    hierarchy.hierarchy.cache_clear()
    yield
    missing.cache_clear()
    hierarchy.hierarchy.cache_clear()


def test_types_are_shares_times_bandwidths() -> None:
    small = {i.name: i for i in instance_types(2)}
    assert {name: (i.vcpus, i.network_gbps, i.usd_per_hour.dollars) for name, i in small.items()} == {
        "m.small": (0.125, 0.1, 1.0),
        "m.large": (0.25, 0.1, 1.8),
        "n.small": (0.125, 0.4, 1.3),
        "n.large": (0.25, 0.4, 2.4),
    }
    big = {i.name: i for i in instance_types(4)}
    assert big.keys() - small.keys() == {"m.xlarge", "n.xlarge", "m.2xlarge", "n.2xlarge"}
    for share in {i.vcpus for i in big.values()}:
        m, n = sorted((i for i in big.values() if i.vcpus == share), key=lambda i: i.network_gbps)
        assert m.usd_per_hour < n.usd_per_hour, "bandwidth costs"


@pytest.mark.parametrize(("cores", "gib", "nodes"), [(2, 64.0, 6), (4, 64.0, 14), (2, 4.0, 2), (0.5, 64.0, 0)])
def test_most_nodes_leaves_room_for_the_machine(
    monkeypatch: pytest.MonkeyPatch, cores: float, gib: float, nodes: int
) -> None:
    monkeypatch.setattr("mlcd.clouds.minicloud.cloud.missing", tuple)
    monkeypatch.setattr("mlcd.clouds.minicloud.types.machine_cores", lambda: cores)
    monkeypatch.setattr("mlcd.clouds.minicloud.types.machine_memory_gib", lambda: gib)
    assert MiniCloud().most_nodes("m.large") == nodes


def test_an_unknown_type_is_refused_with_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlcd.clouds.minicloud.cloud.missing", tuple)
    with pytest.raises(ProviderError, match=r"no type 'm.smal'.*did you mean 'm.small'"):
        MiniCloud().most_nodes("m.smal")


def test_other_systems_are_told_to_use_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlcd.clouds.minicloud.facilities.sys.platform", "darwin")
    (lack,) = missing()
    assert "needs Linux" in lack
    with pytest.raises(ProviderError, match="needs Linux"):
        MiniCloud().offer()


def test_each_missing_command_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facilities, "find_command", lambda name: None if name in ("tc", "nsenter") else name)
    lacks = "; ".join(missing())
    assert "`tc` is missing: install it with `apt install iproute2`" in lacks
    assert "`nsenter` is missing: install it with `apt install util-linux`" in lacks
    assert "`ip`" not in lacks


def test_missing_root_and_control_groups_are_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("mlcd.clouds.minicloud.facilities.os.geteuid", lambda: 1000)
    mounts = tmp_path / "mounts"
    mounts.write_text("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\ncgroup /groups/cpu cgroup rw,cpu,cpuacct 0 0\n")
    monkeypatch.setattr(control_groups, "_MOUNTS", mounts)
    lacks = "; ".join(missing())
    assert "needs root" in lacks
    assert "version 1 is not mounted for memory:" in lacks


def test_what_the_kernel_refuses_is_named_and_the_probe_is_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("".join(f"cgroup {tmp_path}/{name} cgroup rw,{name} 0 0\n" for name in hierarchy.CONTROLLERS))
    monkeypatch.setattr(control_groups, "_MOUNTS", mounts)
    monkeypatch.setattr("mlcd.clouds.minicloud.facilities.os.geteuid", lambda: 0)
    monkeypatch.setattr(facilities, "find_command", lambda name: name)
    removed: list[str] = []

    def refuse(*command: str) -> str:
        if command[0] == "tc":
            raise CommandFailed("Specified qdisc kind is unknown.")
        return ""

    monkeypatch.setattr(facilities, "run_command", refuse)
    monkeypatch.setattr(facilities, "remove_network", removed.append)
    monkeypatch.setattr(facilities, "end_groups", removed.append)
    (lack,) = [lack for lack in missing() if "tbf" in lack]
    assert "bandwidth cannot be limited" in lack
    assert "Specified qdisc kind is unknown." in lack
    assert removed == [f"mlcd-probe-{os.getpid()}"] * 2


def test_nothing_remains_where_nothing_can_be_created(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(control_groups, "_MOUNTS", tmp_path / "none")
    monkeypatch.setattr(network, "_LINKS", tmp_path / "none")
    monkeypatch.setattr(network, "NAMESPACES", tmp_path / "none")
    assert MiniCloud().leftovers() == ()


def test_names_are_derived_from_the_lease_and_can_be_mapped_back() -> None:
    lease_id = "mlcd-" + "a-run.with-a-long-name" * 5
    assert len(f"{link_tag(lease_id)}-999") <= 15, "what the kernel takes for a link"
    assert link_tag(lease_id) != link_tag(lease_id + "x")
    assert lease_of_namespace(namespace_name(lease_id, 12)) == lease_id
    assert lease_of_namespace("blue") is None


@pytest.mark.parametrize("bad", ["mlcd-", "other-1", "mlcd-a/b", "mlcd-..", "mlcd-a b", "mlcd-" + "a" * 200])
def test_a_name_that_cannot_be_a_file_is_refused(bad: str) -> None:
    with pytest.raises(ValueError, match="lease_id: must be"):
        LeaseRecord(lease_id=bad, instance="m.small", count=1, subnet=0, folder="")


def test_a_record_knows_whether_its_owner_runs() -> None:
    mine = LeaseRecord(lease_id="mlcd-mine", instance="m.small", count=2, subnet=7, folder="/lease")
    mine.save()
    assert read_records() == {"mlcd-mine": mine}
    assert mine.owned
    assert mine.address(0) == "10.77.7.2"
    later = LeaseRecord(
        lease_id="mlcd-later", instance="m.small", count=2, subnet=8, folder="", owner_started="another time"
    )
    assert not later.owned, "the number was given to another process"
    record.forget("mlcd-mine")
    record.forget("mlcd-mine")
    assert read_records() == {}


def test_a_lease_whose_record_is_not_proved_may_be_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody ends it unasked, and the others are not affected."""
    ended: list[str] = []
    monkeypatch.setattr(cloud, "leases_with_groups", lambda: {"mlcd-torn", "mlcd-forged", "mlcd-gone"})
    monkeypatch.setattr(cloud, "leases_with_network", set)
    monkeypatch.setattr(cloud, "end_lease", ended.append)
    dead = LeaseRecord(lease_id="mlcd-forged", instance="", count=1, subnet=7, folder="", owner_pid=0, owner_started="")
    dead.save()
    forged = record.REGISTRY / "mlcd-forged.json"
    forged.write_text(forged.read_text().replace('"subnet": 7', '"subnet": 8'))
    (record.REGISTRY / "mlcd-torn.json").write_text("{")
    assert read_records() == {}
    assert unproved_records().keys() == {"mlcd-forged", "mlcd-torn"}
    assert {x.lease_id: x.owned for x in MiniCloud().leftovers()} == {
        "mlcd-forged": True,
        "mlcd-torn": True,
        "mlcd-gone": False,
    }
    assert [(x.lease_id, x.what) for x in MiniCloud().unproved()] == [
        ("mlcd-forged", str(forged)),
        ("mlcd-torn", str(record.REGISTRY / "mlcd-torn.json")),
    ]
    cloud.end_abandoned()
    assert ended == ["mlcd-gone"]


def test_subnets_do_not_overlap_leases_or_routes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    route = tmp_path / "route"
    head = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n"
    monkeypatch.setattr(network, "_ROUTES", route)
    route.write_text(head + "eth0 00000000 0100A8C0 3 0 0 0 00000000 0 0 0\n")
    assert free_subnet([]) == 0, "the default route overlaps everything and hinders nothing"
    assert free_subnet([0, 1, None, 3]) == 2
    route.write_text(head + "eth0 00004D0A 00000000 1 0 0 0 00FEFFFF 0 0 0\n")  # 10.77.0.0/23
    assert free_subnet([]) == 2
    route.write_text(head + "eth0 00004D0A 00000000 1 0 0 0 0000FFFF 0 0 0\n")  # 10.77.0.0/16
    with pytest.raises(ProviderError, match=r"no network of 10.77.0.0/16 is free"):
        free_subnet([])


def test_a_limit_lets_the_largest_packet_pass() -> None:
    words = limit("eth0", 400)
    assert "400mbit" in words
    assert int(words[words.index("burst") + 1]) > 65536


def test_commands_are_found_in_the_administrators_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert find_command("certainly-not-a-command") is None
    with pytest.raises(CommandFailed, match="'certainly-not-a-command' was not found"):
        network.run_command("certainly-not-a-command")


def test_a_command_of_the_system_that_hangs_is_a_failed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "_COMMAND_SECONDS", 0.05)
    with pytest.raises(CommandFailed, match=r"`sleep 60` did not end within 0.05 s"):
        network.run_command("sleep", "60")


def test_groups_that_another_mlcd_removes_meanwhile_are_gone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / cgroup.FAMILY / "mlcd-a-1" / "0"
    folder.mkdir(parents=True)
    is_dir = Path.is_dir

    def is_there_and_is_removed(path: Path) -> bool:
        found = is_dir(path)
        for each in (folder, *folder.parents[:2]):
            each.rmdir() if is_dir(each) else None
        return found

    with monkeypatch.context() as patched:
        patched.setattr(cgroup, "hierarchy", lambda: hierarchy.Version1({"cpu": tmp_path}))
        patched.setattr(Path, "is_dir", is_there_and_is_removed)
        assert cgroup.leases_with_groups() <= {"mlcd-a-1"}
        assert cgroup.groups_of("mlcd-a-1") == ()
        cgroup.end_groups("mlcd-a-1")
