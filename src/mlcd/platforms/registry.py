"""Platforms by name: what a node runs for each, and which topologies it has."""

from collections.abc import Callable
from difflib import get_close_matches

from mlcd.platforms import command, mxnet, pytorch, tensorflow
from mlcd.platforms.placement import Placement, Process

Processes = Callable[[Placement], tuple[Process, ...]]

_PLATFORMS: dict[str, tuple[Processes, tuple[str, ...]]] = {
    "pytorch": (pytorch.processes, pytorch.TOPOLOGIES),
    "tensorflow": (tensorflow.processes, tensorflow.TOPOLOGIES),
    "mxnet": (mxnet.processes, mxnet.TOPOLOGIES),
    "command": (command.processes, command.TOPOLOGIES),
}

NAMES = tuple(_PLATFORMS)
TOPOLOGIES = {name: topologies for name, (_, topologies) in _PLATFORMS.items()}
"""The topologies of each platform; the first is the one taken where none is named."""


class UnknownPlatform(ValueError):
    """There is no such platform, or it has no such topology; the text says what is allowed.

    `field` is `name` or `topology`, `allowed` what it may be and `nearest` what may have been meant, or "".
    """

    def __init__(self, problem: str, *, field: str, value: str, allowed: tuple[str, ...]) -> None:
        self.problem, self.field, self.value, self.allowed = problem, field, value, allowed
        self.nearest = next(iter(get_close_matches(value, allowed, n=1, cutoff=0.6)), "")
        hint = f"; did you mean {self.nearest!r}?" if self.nearest else ""
        super().__init__(f"{problem} {value!r}; allowed: {', '.join(allowed)}{hint}")


def platform(name: str) -> Processes:
    """The function that says what a node runs. Raises UnknownPlatform with the nearest name."""
    if name not in _PLATFORMS:
        raise UnknownPlatform("unknown platform", field="name", value=name, allowed=NAMES)
    return _PLATFORMS[name][0]


def topology(name: str, wanted: str | None = None) -> str:
    """`wanted` where the platform has it, its first topology where none is wanted. Raises UnknownPlatform."""
    platform(name)
    allowed = TOPOLOGIES[name]
    if wanted is None:
        return allowed[0]
    if wanted not in allowed:
        raise UnknownPlatform(f"{name} has no topology", field="topology", value=wanted, allowed=allowed)
    return wanted
