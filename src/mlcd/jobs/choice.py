"""What a job may choose from: the instance types and node counts it names, checked against what is offered."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase

from mlcd.catalog import Catalog, Instance, NotOffered, family_globs
from mlcd.catalog.places import at_place
from mlcd.clouds.replay import ReplayInstance, ReplayWorkload
from mlcd.errors import nearest
from mlcd.jobs.accelerators import FIELD as ACCELERATORS
from mlcd.jobs.accelerators import check_accelerators, with_accelerators
from mlcd.space import Config
from mlcd.space.placed import matches, plain_name
from mlcd.spec import NodeCounts, TrainSpec
from mlcd.spec.node import YamlNode
from mlcd.spec.place import PlacedSpec
from mlcd.spec.serve import ServeSpec

MOST_CONFIGURATIONS = 100_000
"""Upper limit of the space: one suggestion looks at every configuration, and the whole product stays within 1 GB."""

DEFAULT_CLOUD_NODES = NodeCounts(default=tuple(range(1, 51)))
_TYPES = "resources.instance_type"
_NAMES_LISTED = 8


@dataclass(frozen=True, kw_only=True)
class TypeOffer:
    """Types of the catalog with the node counts a job allows, and notes on what was excluded."""

    instances: tuple[Instance, ...]
    counts: NodeCounts
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class MeasuredTypes:
    """Rows of a measured table that a job allows, and notes on what was excluded."""

    configs: tuple[Config, ...]
    instances: Mapping[str, ReplayInstance]
    notes: tuple[str, ...] = ()


def offer(spec: TrainSpec, clouds: Sequence[str], catalog: Catalog) -> TypeOffer:
    """The types of `clouds` that the job may use; of several, under names that say where they are.

    Raises SpecError at the name or glob that does not fit.
    """
    named: dict[str, Instance] = {}
    chosen: dict[str, Instance] = {}
    no_spot: dict[str, None] = {}
    unfit: dict[str, str] = {}
    for position, pattern, found in _selected(spec, clouds, catalog):
        named.update((instance.name, instance) for instance in found)
        for instance in may_train(with_accelerators(spec, found), unfit):
            if instance.price(spot=spec.resources.only_spot) is not None:
                chosen[instance.name] = instance
            elif pattern == plain_name(instance.name):
                raise spec.error(
                    type_field(spec, position),
                    "has no spot market",
                    value=pattern,
                    allowed="use_spot: false, or a type that `mlcd catalog --spot` lists; a glob selects only those",
                )
            else:
                no_spot[instance.name] = None
    check_accelerators(spec, tuple(named.values()))
    if not chosen:
        raise spec.error(
            "resources.use_spot",
            f"no type has a spot market among {listed(no_spot)}",
            value=True,
            allowed="false, or types that `mlcd catalog --spot` lists",
        )
    counts = _checked_counts(spec, tuple(chosen))
    size = sum(len(counts.for_instance(name)) for name in chosen)
    if size > MOST_CONFIGURATIONS:
        raise spec.error(
            "num_nodes",
            f"{len(chosen)} instance types make {size:,} configurations: narrow num_nodes or {_TYPES}",
            allowed=f"at most {MOST_CONFIGURATIONS:,}",
        )
    notes = (f"excluded, no spot market: {listed(no_spot)}",) if no_spot else ()
    return TypeOffer(instances=tuple(chosen.values()), counts=counts, notes=(*notes, *unfit_notes(unfit, chosen)))


def _selected(
    spec: TrainSpec, clouds: Sequence[str], catalog: Catalog
) -> Iterator[tuple[int, str, tuple[Instance, ...]]]:
    """(position, pattern, types) of each pattern of the job, or of each cloud's defaults. Raises SpecError."""
    patterns = spec.resources.instance_type
    if patterns is None:
        for cloud in clouds:
            for pattern in ("*",) if spec.resources.accelerators else catalog.default_types(cloud):
                found = catalog.select((pattern,), cloud=cloud)
                yield 0, pattern, at_place(found, cloud) if len(clouds) > 1 else found
        return
    for position, pattern in enumerate(patterns):
        selected: list[Instance] = []
        missing: list[NotOffered] = []
        for cloud in clouds:
            try:
                found = catalog.select((pattern,), cloud=cloud)
            except NotOffered as error:
                missing.append(error)
            else:
                selected += at_place(found, cloud) if len(clouds) > 1 else found
        if not selected:
            first = next((error for error in missing if error.nearest), missing[0])
            problem = first.problem if len(clouds) == 1 else f"none of {', '.join(clouds)} has such a type"
            place = type_field(spec, position)
            raise spec.error(place, problem, value=pattern, allowed=first.allowed, nearest=first.nearest) from first
        yield position, pattern, tuple(selected)


def may_train(found: Sequence[Instance], unfit: dict[str, str]) -> tuple[Instance, ...]:
    """The types of `found`, which one pattern selected, that can train; the others are added to `unfit`, with why.

    If none can, the pattern was written for them (`t3.*`, `inf2.xlarge`), and all are returned.
    """
    fit = tuple(instance for instance in found if not instance.unfit_for_training)
    if not fit:
        return tuple(found)
    unfit.update((i.name, i.unfit_for_training) for i in found if i.unfit_for_training)
    return fit


def unfit_notes(unfit: Mapping[str, str], chosen: Iterable[str]) -> tuple[str, ...]:
    """A note for each reason why types were excluded that no other pattern chose."""
    left = {name: why for name, why in unfit.items() if name not in set(chosen)}
    return tuple(
        f"excluded, {why}: {listed(name for name, each in left.items() if each == why)} (name a type to use it)"
        for why in dict.fromkeys(left.values())
    )


def check_size(spec: PlacedSpec, field: str, size: int, *, narrow: str, most: int = MOST_CONFIGURATIONS) -> None:
    """Raises SpecError at `field` if the space would be too large; `size` is known before it is built.

    narrow  what to change
    """
    if size > most:
        problem = f"makes {size:,} configurations: narrow {narrow}"
        raise spec.error(field, problem, allowed=f"at most {most:,}")


def measured(spec: TrainSpec, workload: ReplayWorkload, catalog: Catalog) -> MeasuredTypes:
    """The rows of `workload` for the job: all, or those of the types and node counts it names. Raises SpecError."""
    if spec.resources.use_spot:
        problem = "a measured table has no spot prices and no interruptions"
        raise spec.error("resources.use_spot", problem, value=spec.resources.use_spot, allowed="false")
    if spec.resources.accelerators:
        problem = "a measured table names types, not accelerators"
        raise spec.error(ACCELERATORS, problem, allowed="resources.instance_type")
    names = _measured_types(spec, workload, catalog)
    counts = None if spec.num_nodes is None else _checked_counts(spec, names)
    rows = [config for config in workload.seconds if config.instance in names]
    configs = tuple(c for c in rows if counts is None or c.nodes in counts.for_instance(c.instance))
    if not configs:
        known = sorted({config.nodes for config in rows})
        raise spec.error(
            "num_nodes", "none of these node counts was measured", allowed=listed([str(n) for n in known], 20)
        )
    left = {config.instance for config in configs}
    missing = [name for name in names if name not in left]
    notes = (f"excluded, never measured on these node counts: {listed(missing)}",) if missing else ()
    instances = {name: instance for name, instance in workload.instances.items() if name in left}
    return MeasuredTypes(configs=configs, instances=instances, notes=notes)


def check_prices(spec: TrainSpec | ServeSpec, names: Sequence[str]) -> None:
    """Raises SpecError for a price of a type that is not offered: what was meant would have another price.

    A job that `--on` moved may keep the prices of the types that its file names.
    """
    if "on" in dict(spec.overrides):
        return
    for name in spec.resources.prices:
        if name not in names and name not in map(plain_name, names):
            raise spec.error(
                f"resources.prices.{name}",
                f"{spec.resources.infra} has no such type",
                allowed=listed(names),
                nearest=nearest(name, names),
            )


def listed(names: Iterable[str], most: int = _NAMES_LISTED) -> str:
    """`a, b, c and 4 more`."""
    every = list(names)
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more


def _measured_types(spec: TrainSpec, workload: ReplayWorkload, catalog: Catalog) -> tuple[str, ...]:
    known = tuple(workload.instances)
    if spec.resources.instance_type is None:
        return known
    chosen: dict[str, None] = {}
    for position, pattern in enumerate(spec.resources.instance_type):
        members = catalog.sets.get(pattern, ())
        found = [name for name in known if name == pattern or name in members or fnmatchcase(name, pattern)]
        if not found:
            raise spec.error(
                type_field(spec, position),
                f"matches no instance type that {workload.name} was measured on",
                value=pattern,
                allowed=listed(known),
                nearest=nearest(pattern, known),
            )
        chosen.update(dict.fromkeys(found))
    return tuple(name for name in known if name in chosen)


def _checked_counts(spec: TrainSpec, names: Sequence[str]) -> NodeCounts:
    """The job's node counts. Raises SpecError for a glob that matches none of `names`."""
    counts = spec.num_nodes or DEFAULT_CLOUD_NODES
    for glob, _ in counts.by_glob:
        if not any(matches(name, glob) for name in names):
            raise spec.error(
                YamlNode(value=None, path="num_nodes").child_path(glob),
                "matches none of the available instance types",
                value=glob,
                allowed=f"a name or a glob of {listed(names)}, or default",
                nearest=_nearest_glob(glob, names),
            )
    return counts


def _nearest_glob(glob: str, names: Sequence[str]) -> str:
    """The name or family glob most similar to `glob`. Family names are short, so a lower similarity suffices."""
    families = family_globs(names)
    close = get_close_matches(glob, families, n=1, cutoff=0.5)
    return nearest(glob, (*names, *families, "default")) or (close[0] if close else "")


def type_field(spec: PlacedSpec, position: int) -> str:
    """The dotted name of an element; of the whole field if it is not a list or is missing."""
    item = f"{_TYPES}[{position}]"
    return item if item in spec.places else _TYPES
