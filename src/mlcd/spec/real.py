"""Fields of jobs on real nodes: the platform, how progress is reported, which outputs are copied back."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from mlcd.platforms.registry import NAMES, TOPOLOGIES
from mlcd.spec.node import YamlNode
from mlcd.spec.quantity import line_of_text, price
from mlcd.spec.record import Field, FieldTable
from mlcd.units import Usd

PROGRESS_KEYS = ("samples", "steps", "rate")
"""What the named groups of a pattern, or the lines of a file, may report: samples so far, steps so far, samples/s."""
STEPS = "mlcd.steps"
_ENV = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PATTERN_FORM = "a regular expression with a group samples, steps or rate, such as 'samples/s: (?P<rate>[0-9.]+)'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """How the processes of a job find each other. `topology` None means the platform's first one."""

    name: str = "command"
    topology: str | None = None

    @property
    def chosen_topology(self) -> str:
        """The topology to use: the given one, or the platform's first."""
        return self.topology or TOPOLOGIES[self.name][0]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressRule:
    """How a job reports its progress: by `mlcd.steps` in its script, unless a pattern or a file is given.

    pattern  a regular expression over the output of node 0
    file     a file of JSON lines in the working folder
    """

    steps: str = STEPS
    pattern: str = ""
    file: str = ""


def platform(node: YamlNode, places: tuple[str, ...] = ()) -> Platform:
    """`{name: pytorch, topology: ring}`, or just the name."""
    if isinstance(node.value, str):
        return Platform(name=node.choice(NAMES, meant=_MEANT_PLATFORM))
    made = _PLATFORM(node, places)
    if made.topology is not None and made.topology not in TOPOLOGIES[made.name]:
        allowed = ", ".join(TOPOLOGIES[made.name])
        raise node.mapping()["topology"].error(f"is not a topology of {made.name}", allowed=allowed)
    return made


def progress(node: YamlNode, places: tuple[str, ...] = ()) -> ProgressRule:
    """One of `steps`, `pattern` and `file`."""
    if isinstance(node.value, str):
        return ProgressRule(steps=_steps(node))
    if len(node.mapping()) != 1:
        raise node.error("needs exactly one of steps, pattern and file", allowed=f"{{steps: {STEPS}}}")
    return _PROGRESS(node, places)


def relative_paths(node: YamlNode) -> tuple[str, ...]:
    """Paths below the working folder, without duplicates. One may stand without brackets."""
    paths: list[str] = []
    for item in node.items():
        path = item.line_of_text(allowed="a path in the working folder, such as model.pt")
        if item is node and ", " in path:
            raise node.error("several paths need brackets", nearest=f"[{path}]")
        if re.search(r"[*?]", path):
            problem = "is a pattern, and patterns are not expanded"
            raise item.error(problem, allowed="the name of a file, or of the folder that the files are in")
        if (
            path.startswith("~")
            or "://" in path
            or PurePosixPath(path).is_absolute()
            or ".." in PurePosixPath(path).parts
        ):
            raise item.error("must be inside the working folder", allowed="a relative path without ..")
        if PurePosixPath(path) in map(PurePosixPath, paths):
            raise item.error("is given twice")
        paths.append(path)
    return tuple(paths)


def prices(node: YamlNode) -> Mapping[str, Usd]:
    """USD per hour of one node, by instance type."""
    return {name: price(child) for name, child in node.mapping().items()}


def secret_names(node: YamlNode) -> tuple[str, ...]:
    """Names of variables whose values come from the environment. The job file is stored, so it must hold no secret."""
    if isinstance(node.value, Mapping):
        raise node.unshown("takes names only: values come from your environment", allowed="[HF_TOKEN, WANDB_API_KEY]")
    names = []
    for item in node.items():
        name = item.line_of_text(allowed="a variable name")
        if not _ENV.fullmatch(name):
            raise item.error("is not a valid variable name", allowed="letters, digits and _, no digit first")
        names.append(name)
    return tuple(dict.fromkeys(names))


def file_mounts(node: YamlNode) -> Mapping[str, str]:
    """Path on the nodes -> path on this machine."""
    return {target: child.line_of_text() for target, child in node.mapping().items()}


def _steps(node: YamlNode) -> str:
    return node.choice((STEPS,))


def _pattern(node: YamlNode) -> str:
    text = node.line_of_text(allowed=_PATTERN_FORM)
    try:
        names = re.compile(text).groupindex
    except re.error as error:
        raise node.error(f"is not a regular expression ({error})", allowed=_PATTERN_FORM) from error
    if not any(key in names for key in PROGRESS_KEYS):
        raise node.error("names none of the groups samples, steps and rate", allowed=_PATTERN_FORM)
    return text


def _file(node: YamlNode) -> str:
    return relative_paths(node)[0]


_MEANT_PLATFORM = {"torch": "pytorch", "tf": "tensorflow", "keras": "tensorflow", "bash": "command", "shell": "command"}


def _platform_name(node: YamlNode) -> str:
    return node.choice(NAMES, meant=_MEANT_PLATFORM)


_PLATFORM = FieldTable(
    make=Platform, fields={"name": Field(read=_platform_name, required=True), "topology": Field(read=line_of_text)}
)
_PROGRESS = FieldTable(
    make=ProgressRule,
    fields={"steps": Field(read=_steps), "pattern": Field(read=_pattern), "file": Field(read=_file)},
)
