"""The catalog: every instance type that can be chosen, selected by name, glob or named set."""

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from mlcd.catalog.instance import Instance
from mlcd.catalog.sets import DEFAULT_SETS, POPULAR, cloud_of
from mlcd.errors import CatalogError, SpecError, nearest


class NotOffered(CatalogError):
    """A name that the catalog does not have. The parts of the message let a caller add file and line."""

    def __init__(self, problem: str, *, value: str, allowed: str, nearest: str = "") -> None:
        self.problem, self.value, self.allowed, self.nearest = problem, value, allowed, nearest
        super().__init__(str(SpecError(problem, value=value, allowed=allowed, nearest=nearest)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """Instance types and prices as of `date`.

    notes    where the numbers come from, one sentence each
    sets     named sets -> names; built from the packaged snapshot, so a user's rows do not change them
    popular  by cloud, the types that people take by default, in order of preference
    """

    date: datetime.date
    instances: tuple[Instance, ...]
    notes: tuple[str, ...] = ()
    sets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    popular: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: POPULAR)

    @property
    def clouds(self) -> tuple[str, ...]:
        """The clouds in the catalog, in order."""
        return tuple(dict.fromkeys(i.cloud for i in self.instances))

    def age_days(self, today: datetime.date) -> int:
        """Age of the prices in days."""
        return (today - self.date).days

    def for_cloud(self, cloud: str) -> dict[str, Instance]:
        """The types of one cloud by name. Raises NotOffered for a cloud that the catalog does not have."""
        found = {i.name: i for i in self.instances if i.cloud == cloud}
        if not found:
            hint = nearest(cloud, self.clouds)
            raise NotOffered("the catalog has no such cloud", value=cloud, allowed=", ".join(self.clouds), nearest=hint)
        return found

    def default_types(self, cloud: str) -> tuple[str, ...]:
        """The patterns for a job that names no types: the current GPUs and CPUs, or every type of another cloud."""
        return tuple(name for kind in DEFAULT_SETS if self.sets.get(name := f"{cloud}-{kind}")) or ("*",)

    def select(self, patterns: Iterable[str], *, cloud: str) -> tuple[Instance, ...]:
        """The types of `cloud` that match the patterns, without duplicates, in the order of the patterns.

        A pattern is an exact name, a glob (`c5.*`) or a named set (`aws-62`). Raises NotOffered, with the nearest
        valid name, for a pattern that matches nothing.
        """
        known = self.for_cloud(cloud)
        chosen: dict[str, Instance] = {}
        for pattern in patterns:
            names = self._names(pattern, known, cloud)
            chosen.update((name, known[name]) for name in names if name not in chosen)
        return tuple(chosen.values())

    def _names(self, pattern: str, known: Mapping[str, Instance], cloud: str) -> tuple[str, ...]:
        if pattern in known:
            return (pattern,)
        if pattern in self.sets:
            if cloud_of(pattern) != cloud:
                raise self._other_cloud(pattern, cloud)
            return self.sets[pattern]
        if matched := tuple(name for name in known if fnmatchcase(name, pattern)):
            return matched
        sets = tuple(name for name in self.sets if cloud_of(name) == cloud)
        is_glob = any(mark in pattern for mark in "*?[")
        hint = nearest(pattern, (*known, *sets, *(family_globs(known) if is_glob else ())))
        what = f"no instance type of {cloud} matches" if is_glob else f"unknown instance type of {cloud}"
        raise NotOffered(
            what,
            value=pattern,
            allowed=f"a name, a glob such as {family_globs(known)[0]!r}"
            + (f", or a named set ({', '.join(sets)})" if sets else ""),
            nearest=hint,
        )

    def _other_cloud(self, name: str, cloud: str) -> NotOffered:
        sets = tuple(known for known in self.sets if cloud_of(known) == cloud)
        same = name.replace(cloud_of(name), cloud, 1)
        return NotOffered(
            f"is a named set of {cloud_of(name)}, not of {cloud}",
            value=name,
            allowed=", ".join((*sets, "*")),
            nearest=same if same in sets else "",
        )


def family_globs(names: Iterable[str]) -> tuple[str, ...]:
    """`c5.*` and the like: every prefix up to the last separator, as a glob."""
    prefixes: dict[str, None] = {}
    for name in names:
        cut = max(name.rfind("."), name.rfind("-"))
        prefixes[name[: cut + 1] + "*"] = None
    return tuple(prefixes)
