"""Plug-ins: strategies, schedulers and clouds that other installed packages provide through entry points.

    [project.entry-points."mlcd.strategies"]
    greedy = "my_package.greedy:Greedy"

Entry points are read from the metadata of installed packages. A plug-in is imported only when its name is used.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from mlcd.errors import BadInput

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Given = TypeVar("Given")

STRATEGIES, SCHEDULERS, CLOUDS = "mlcd.strategies", "mlcd.schedulers", "mlcd.clouds"
"""The groups of entry points."""

_NOUNS = {STRATEGIES: "strategy", SCHEDULERS: "scheduler", CLOUDS: "cloud"}
_OBJECT = re.compile(r"python:[\w.]+:[\w.<>]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """An entry point of an installed package.

    package  its name and version
    target   `module:attribute`
    problem  why it cannot be used, in words; "" if it can
    """

    group: str
    name: str
    package: str
    target: str
    problem: str = ""

    @property
    def noun(self) -> str:
        """What it provides: strategy, scheduler or cloud."""
        return _NOUNS[self.group]


def plugins(group: str, *, built_in: Collection[str] = ()) -> tuple[Plugin, ...]:
    """The installed plug-ins of this group, ordered by name; nothing is imported.

    A plug-in with the name of a built-in, or of another package's plug-in, has a `problem`: it cannot be used.
    """
    points = _points(group)
    names = [point.name for point in points]
    found = []
    for point in points:
        problem = ""
        if point.name in built_in:
            problem = f"{_NOUNS[group]} {point.name!r} is built into mlcd; a plug-in must use another name"
        elif names.count(point.name) > 1:
            others = ", ".join(_package(p) for p in points if p.name == point.name)
            problem = f"more than one package offers a {_NOUNS[group]} {point.name!r}: {others}; uninstall all but one"
        found.append(Plugin(group=group, name=point.name, package=_package(point), target=point.value, problem=problem))
    return tuple(found)


def plugin_names(group: str, *, built_in: Collection[str] = ()) -> tuple[str, ...]:
    """The names that `load` accepts."""
    return tuple(found.name for found in plugins(group, built_in=built_in) if not found.problem)


def load(group: str, name: str, *, needs: Collection[str] = (), built_in: Collection[str] = ()) -> Any:
    """What the plug-in's entry point refers to, or None if no package offers `name`.

    needs     the attributes that the object must have

    Raises BadInput, which names the package, for a name in `built_in`, a name that two packages offer, a plug-in that
    cannot be imported, and a plug-in that lacks an attribute.
    """
    found = next((plugin for plugin in plugins(group, built_in=built_in) if plugin.name == name), None)
    if found is None:
        return None
    if found.problem:
        raise BadInput(f"plug-in package {found.package}: {found.problem}")
    point = next(point for point in _points(group) if point.name == name)
    try:
        loaded = point.load()
    except (Exception, SystemExit) as error:
        # Importing a third-party package may raise anything; it must not look like a bug in mlcd, or end it.
        raise _refusal(found, f"cannot be imported: {type(error).__name__}: {error}") from error
    if missing := [attribute for attribute in needs if not hasattr(loaded, attribute)]:
        lack = f"lacks {', '.join(missing)}"
        raise _refusal(found, f"{lack}; docs/plugins.md lists what a {found.noun} must have")
    return loaded


def load_class(group: str, name: str, *, needs: Collection[str], built_in: Collection[str]) -> Any:
    """As `load`, for a class created with a seed and options: a dataclass whose other fields are the options."""
    loaded = load(group, name, needs=needs, built_in=built_in)
    if loaded is not None and "seed" not in getattr(loaded, "__dataclass_fields__", {}):
        found = next(plugin for plugin in plugins(group) if plugin.name == name)
        raise _refusal(found, "must be a dataclass with a field seed")
    return loaded


def load_object(group: str, name: str, *, needs: Collection[str], built_in: Collection[str]) -> Any:
    """As `load`, for an object or a class; a class is instantiated without arguments."""
    loaded = load(group, name, needs=needs, built_in=built_in)
    if not isinstance(loaded, type):
        return loaded
    try:
        return loaded()
    except (Exception, SystemExit) as error:  # third-party code, as above
        found = next(plugin for plugin in plugins(group) if plugin.name == name)
        raise _refusal(found, f"cannot be instantiated: {type(error).__name__}: {error}") from error


def _refusal(found: Plugin, why: str) -> BadInput:
    return BadInput(f"plug-in package {found.package}: {found.noun} {found.name!r} ({found.target}) {why}")


def name_or_object(given: str | Given | None) -> tuple[str | None, Given | None]:
    """(name, object) of an argument that is either; the other is None. The object is checked where it is used."""
    return (given, None) if given is None or isinstance(given, str) else (None, given)


def check_methods(given: object | None, methods: Collection[str], *, argument: str) -> None:
    """Raises BadInput if the object lacks one of these methods; None passes."""
    missing = [] if given is None else [name for name in methods if not callable(getattr(given, name, None))]
    if missing:
        hint = "; pass an object, not the class" if isinstance(given, type) else ""
        raise BadInput(f"{argument}: {given!r} has no method {missing[0]}(){hint} (docs/plugins.md)")


def object_name(given: object) -> str:
    """`python:module:Class` of an object that is used instead of a name; the run is recorded with it."""
    cls = type(given)
    return f"python:{cls.__module__}:{cls.__qualname__}"


def is_object_name(text: str) -> bool:
    """Whether `text` has the form of `object_name`. Names with options differ: each option has an equals sign."""
    return _OBJECT.fullmatch(text) is not None


def object_missing(text: str, *, argument: str) -> str:
    """The message for a user who has the name of an object but not the object."""
    made = f"{argument}={text.rpartition(':')[2].rpartition('.')[2]}(...)"
    return f"{text} is an object that only Python can pass: mlcd.train(job, {made}), or mlcd.resume(run, {made})"


def check_object(recorded: str, given: object | None, *, argument: str) -> None:
    """Checks that a run recorded with `recorded` can continue with the object `given` (None: with a name).

    Raises BadInput if the run was started with an object and `given` is None or of another class, or if the run was
    started with a name and `given` is an object.
    """
    if is_object_name(recorded):
        if given is None:
            raise BadInput(
                f"{argument}: this run was started with an object: {object_missing(recorded, argument=argument)}"
            )
        if object_name(given) != recorded:
            what = f"this run was started with an object of {recorded}"
            raise BadInput(f"{argument}: {what}; it cannot continue with {object_name(given)}")
    elif given is not None:
        what = f"this run was started with {recorded!r}"
        raise BadInput(f"{argument}: {what}; it cannot continue with {object_name(given)}: omit {argument}")


def _points(group: str) -> "list[EntryPoint]":
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow to import and rarely needed

    # A package that is on the path twice (an editable install and its source) lists its entry points twice.
    found = {(point.name, _package(point), point.value): point for point in entry_points(group=group)}
    return [found[key] for key in sorted(found)]


def _package(point: "EntryPoint") -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else point.module
