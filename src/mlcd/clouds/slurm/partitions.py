"""The partitions of a cluster, as `sinfo` describes them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from mlcd.clouds.slurm.commands import ask, rows
from mlcd.errors import ProviderError

_FORMAT = "%R|%a|%N|%c|%m|%T|%s|%l|%G"
_FLAGS = "*~#!%$@^-+"
_UNUSABLE_STATES = ("down", "drain", "fail", "error", "inval", "unk", "maint", "future", "perfctrs", "blocked")
"""Prefixes of the states of nodes that accept no job now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One partition. CPUs, memory and GPUs are those of its smallest node: what every node has.

    usable       nodes that accept jobs, now or once they are free
    most         the most nodes of one job; None without a limit
    max_minutes  the longest run of a job; None without a limit
    mixed        whether its nodes differ
    """

    name: str
    is_up: bool
    usable: int
    cpus: int
    memory_mib: int
    gpus: int = 0
    gpu: str = ""
    most: int | None = None
    max_minutes: int | None = None
    mixed: bool = False

    @property
    def most_nodes(self) -> int:
        """The most nodes that one job can have."""
        return self.usable if self.most is None else min(self.usable, self.most)


@dataclass(frozen=True, slots=True)
class _Node:
    partition: str
    is_up: bool
    cpus: int
    memory_mib: int
    gpus: int
    gpu: str
    is_usable: bool
    most: int | None
    max_minutes: int | None


def read_partitions() -> dict[str, Partition]:
    """Every partition visible to this user, by name. Raises ProviderError."""
    return parse_partitions(ask("sinfo", "--noheader", "--Node", f"--format={_FORMAT}"))


def parse_partitions(output: str) -> dict[str, Partition]:
    """Partitions from a line for each node of each partition. Raises ProviderError for a line it cannot read."""
    by_name: dict[str, list[_Node]] = {}
    for row in rows(output, _FORMAT.count("|") + 1, "sinfo"):
        try:
            node = _node(row)
        except ValueError as error:
            raise ProviderError(f"mlcd cannot read what Slurm's sinfo answered: {'|'.join(row)!r} ({error})") from error
        by_name.setdefault(node.partition, []).append(node)
    return {name: _partition(name, nodes) for name, nodes in by_name.items()}


def _partition(name: str, nodes: Sequence[_Node]) -> Partition:
    smallest = min(nodes, key=lambda node: (node.gpus, node.cpus, node.memory_mib))
    return Partition(
        name=name,
        is_up=nodes[0].is_up,
        usable=sum(node.is_usable for node in nodes),
        cpus=min(node.cpus for node in nodes),
        memory_mib=min(node.memory_mib for node in nodes),
        gpus=smallest.gpus,
        gpu=smallest.gpu,
        most=nodes[0].most,
        max_minutes=nodes[0].max_minutes,
        mixed=len({(node.cpus, node.memory_mib, node.gpus, node.gpu) for node in nodes}) > 1,
    )


def _node(row: Sequence[str]) -> _Node:
    name, up, _, cpus, memory, state, size, limit, gres = row
    gpus, gpu = parse_gpus(gres)
    is_usable = "*" not in state and not state.rstrip(_FLAGS).lower().startswith(_UNUSABLE_STATES)
    most = size.rpartition("-")[2]
    return _Node(
        partition=name,
        is_up=up == "up",
        cpus=_positive(cpus),
        memory_mib=_positive(memory),
        gpus=gpus,
        gpu=gpu,
        is_usable=is_usable,
        most=None if most == "infinite" else _positive(most),
        max_minutes=parse_minutes(limit),
    )


def parse_gpus(gres: str) -> tuple[int, str]:
    """(count, type) of `gpu:a100:4(S:0-1),shard:8`; (0, "") without any. Raises ValueError."""
    count, kind = 0, ""
    for item in re.split(r",(?![^(]*\))", gres):
        fields = item.partition("(")[0].split(":")
        if fields[0] != "gpu":
            continue
        if fields[-1].isdigit():
            count += int(fields.pop())
        else:
            count += 1
        kind = kind or (fields[1] if len(fields) > 1 else "gpu")
    return count, kind if count else ""


def parse_minutes(limit: str) -> int | None:
    """Whole minutes of `30:00`, `4:00:00`, `2-00:00:00`; None for `infinite`. Raises ValueError."""
    if limit in ("infinite", "n/a", "UNLIMITED"):
        return None
    days, _, clock = limit.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    if not 2 <= len(parts) <= 3:
        raise ValueError(f"not a time limit: {limit!r}")
    hours, minutes, _ = [0] * (3 - len(parts)) + parts
    return (int(days or 0) * 24 + hours) * 60 + minutes


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(f"{text!r} is less than 1")
    return number
