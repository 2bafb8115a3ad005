"""What a machine lacks to run minicloud, found by trying each facility once."""

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache

from mlcd.clouds.minicloud.cgroup import Group, end_groups
from mlcd.clouds.minicloud.hierarchy import CONTROLLERS, hierarchy, mounted_controllers
from mlcd.clouds.minicloud.network import CommandFailed, find_command, limit, remove_network, run_command
from mlcd.clouds.minicloud.record import link_tag, machine_lock, namespace_name
from mlcd.clouds.nodes import PREFIX

_PACKAGES = {"ip": "iproute2", "tc": "iproute2", "nsenter": "util-linux"}


@cache
def missing() -> tuple[str, ...]:
    """What this machine lacks, one sentence each, with the fix; empty when nodes can be leased here.

    Takes about a tenth of a second on the first call in a process, and cleans up after itself.
    """
    if sys.platform != "linux":
        return (f"minicloud needs Linux (this is {sys.platform}); use `--on local`",)
    lacks = [
        f"the command `{name}` is missing: install it with `apt install {package}`"
        for name, package in _PACKAGES.items()
        if find_command(name) is None
    ]
    if os.geteuid() != 0:
        lacks.append("minicloud needs root: run mlcd with sudo, or use `--on local`")
    not_mounted = [name for name in CONTROLLERS if name not in mounted_controllers()]
    if hierarchy().version == 1 and not_mounted:
        lacks.append(
            "control groups: version 2 has no controllers cpu and memory here, and version 1 is not mounted for "
            f"{', '.join(not_mounted)}: mount version 2 (`mount -t cgroup2 none /sys/fs/cgroup`), or version 1 "
            f"(`mount -t cgroup -o {not_mounted[0]} none /sys/fs/cgroup/{not_mounted[0]}`)"
        )
    if lacks:
        return tuple(lacks)
    with machine_lock():  # else another mlcd would take the probe for an abandoned lease, and end it
        return tuple(_probe(f"{PREFIX}probe-{os.getpid()}"))


def _probe(lease_id: str) -> Iterator[str]:
    try:
        yield from _probe_groups(Group(lease_id, "0"))
        yield from _probe_network(namespace_name(lease_id, 0), link_tag(lease_id))
    finally:
        end_groups(lease_id)
        with suppress(CommandFailed):  # what could not be created cannot be removed
            remove_network(lease_id)


def _probe_groups(group: Group) -> Iterator[str]:
    try:
        group.create(cpus=0.1, memory_gib=1.0)
    except OSError as error:
        yield (
            f"control groups cannot be created or limited ({error.strerror}: {error.filename}): mlcd must be allowed "
            "to write below /sys/fs/cgroup (in a container: --privileged --cgroupns=host)"
        )


def _probe_network(space: str, tag: str) -> Iterator[str]:
    steps = (
        ("network namespaces cannot be created", ("ip", "netns", "add", space)),
        ("bridges cannot be created", ("ip", "link", "add", tag, "type", "bridge")),
        (
            "links between namespaces (veth) cannot be created",
            ("ip", "link", "add", f"{tag}-0", "type", "veth", "peer", "name", "eth0", "netns", space),
        ),
        ("bandwidth cannot be limited (tc tbf: kernel module sch_tbf)", ("tc", *limit(f"{tag}-0", 100))),
        ("a namespace cannot be entered", ("nsenter", f"--net=/run/netns/{space}", "true")),
    )
    for problem, command in steps:
        try:
            run_command(*command)
        except CommandFailed as error:
            yield f"{problem}: {error}"
            return  # the later steps need this one
