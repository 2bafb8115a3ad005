"""Platforms by name: the processes of a node, and the topologies of each."""

from collections.abc import Callable
from difflib import get_close_matches

from mlcd.platforms import command, mxnet, pytorch, server, tensorflow
from mlcd.platforms.placement import Placement, Process

Processes = Callable[[Placement], tuple[Process, ...]]

_PLATFORMS: dict[str, tuple[Processes, tuple[str, ...]]] = {
    "pytorch": (pytorch.processes, pytorch.TOPOLOGIES),
    "tensorflow": (tensorflow.processes, tensorflow.TOPOLOGIES),
    "mxnet": (mxnet.processes, mxnet.TOPOLOGIES),
    "command": (command.processes, command.TOPOLOGIES),
}

NAMES = tuple(_PLATFORMS)
"""The platforms that a training may name."""
SERVER = "server"
"""The platform of `mlcd serve`."""
TOPOLOGIES = {name: topologies for name, (_, topologies) in _PLATFORMS.items()}
"""The topologies of each platform; the first is the default."""


class UnknownPlatform(ValueError):
    """There is no such platform; the text lists the platforms and suggests the nearest name."""

    def __init__(self, name: str) -> None:
        near = get_close_matches(name, NAMES, n=1, cutoff=0.6)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        super().__init__(f"unknown platform {name!r}; allowed: {', '.join(NAMES)}{hint}")


def platform(name: str) -> Processes:
    """The function that gives a node's processes. Raises UnknownPlatform with the nearest name."""
    if name == SERVER:
        return server.processes
    if name not in _PLATFORMS:
        raise UnknownPlatform(name)
    return _PLATFORMS[name][0]
