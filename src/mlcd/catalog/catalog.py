"""The catalog: every instance type that can be chosen, and how to pick from it by name, glob or named set."""

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from mlcd.catalog.instance import Instance
from mlcd.catalog.sets import POPULAR, cloud_of
from mlcd.errors import CatalogError, nearest


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """Instance types and prices as of `date`.

    notes    where the numbers come from, a sentence each
    sets     named sets -> names; made from the packaged snapshot, so that a user's rows do not change them
    popular  by cloud, the types a person takes without thinking, in order of preference
    """

    date: datetime.date
    instances: tuple[Instance, ...]
    notes: tuple[str, ...] = ()
    sets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    popular: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: POPULAR)

    @property
    def clouds(self) -> tuple[str, ...]:
        """The clouds in it, in order."""
        return tuple(dict.fromkeys(i.cloud for i in self.instances))

    def age_days(self, today: datetime.date) -> int:
        """How old the prices are."""
        return (today - self.date).days

    def for_cloud(self, cloud: str) -> dict[str, Instance]:
        """The types of one cloud by name. Raises CatalogError for a cloud that is not here."""
        found = {i.name: i for i in self.instances if i.cloud == cloud}
        if not found:
            hint = nearest(cloud, self.clouds)
            raise CatalogError(
                f"the catalog has no cloud {cloud!r}; allowed: {', '.join(self.clouds)}"
                + (f"; did you mean {hint!r}?" if hint else "")
            )
        return found

    def select(self, patterns: Iterable[str], *, cloud: str) -> tuple[Instance, ...]:
        """The types of `cloud` that the patterns name, each once, in the patterns' order.

        A pattern is an exact name, a glob (`c5.*`) or a named set (`aws-62`). Raises CatalogError, with the nearest
        right name, for a pattern that names nothing.
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
                raise CatalogError(f"the named set {pattern!r} is of {cloud_of(pattern)}, not of {cloud}")
            return self.sets[pattern]
        if matched := tuple(name for name in known if fnmatchcase(name, pattern)):
            return matched
        sets = tuple(name for name in self.sets if cloud_of(name) == cloud)
        is_glob = any(mark in pattern for mark in "*?[")
        hint = nearest(pattern, (*known, *sets, *(_family_globs(known) if is_glob else ())))
        what = "no instance type matches" if is_glob else "unknown instance type"
        raise CatalogError(
            f"{what} {pattern!r} of {cloud}; allowed: a name, a glob such as {_family_globs(known)[0]!r},"
            f" or a named set ({', '.join(sets)})" + (f"; did you mean {hint!r}?" if hint else "")
        )


def _family_globs(names: Iterable[str]) -> tuple[str, ...]:
    """`c5.*` and the like: every prefix up to the last separator, as a glob."""
    prefixes: dict[str, None] = {}
    for name in names:
        cut = max(name.rfind("."), name.rfind("-"))
        prefixes[name[: cut + 1] + "*"] = None
    return tuple(prefixes)
