"""Settings of a program as a job declares them: their values, when each applies, and which combinations cannot be."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from mlcd.space.config import UNSET, Value, value_text
from mlcd.space.declared import space_of
from mlcd.space.space import RISES, Knob

INSTANCE, NODES = "instance_type", "num_nodes"
MACHINE_WORDS = (INSTANCE, NODES)
"""What a condition may name beside settings: the instance type, by globs, and for trainings the number of nodes."""

MEMORY_BY_NAME = {
    **dict.fromkeys(("micro_batch", "micro_batch_size", "per_device_train_batch_size", "train_micro_batch"), RISES),
}
"""Settings that are known by their names to need more memory the larger they are."""


@dataclass(frozen=True, slots=True)
class Condition:
    """Holds where each named setting has one of its values; one that does not apply has none."""

    allowed: tuple[tuple[str, tuple[Value, ...]], ...]

    def holds(self, values: Mapping[str, Value]) -> bool:
        """Whether it holds for settings by name, with the instance type and the number of nodes among them."""
        for name, allowed in self.allowed:
            value = values.get(name, UNSET)
            if name == INSTANCE:
                if not any(fnmatchcase(str(value), str(glob)) for glob in allowed):
                    return False
            elif value not in allowed:
                return False
        return True

    @property
    def names(self) -> tuple[str, ...]:
        """What it depends on."""
        return tuple(name for name, _ in self.allowed)

    def __str__(self) -> str:
        return ", ".join(f"{name}: {'|'.join(map(value_text, allowed))}" for name, allowed in self.allowed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One declared knob.

    changes_learning  whether it changes how much a sample teaches the model, and not only the speed
    memory            how a worker's memory changes along its values: `rises`, `falls`, or "" if that is not known
    when              where it applies; None: everywhere
    per_node          of a server over several nodes: whether each node has a value of its own
    """

    name: str
    values: tuple[Value, ...]
    changes_learning: bool = False
    memory: str = ""
    when: Condition | None = None
    per_node: bool = False


@dataclass(frozen=True, slots=True)
class Settings:
    """The declared knobs of a job in the order of the file, and the combinations that it excludes."""

    knobs: tuple[Setting, ...] = ()
    exclude: tuple[Condition, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.knobs)

    @property
    def names(self) -> tuple[str, ...]:
        """The knobs' names."""
        return tuple(knob.name for knob in self.knobs)

    @property
    def values(self) -> dict[str, tuple[Value, ...]]:
        """The values of each knob by its name."""
        return {knob.name: knob.values for knob in self.knobs}

    @property
    def learning(self) -> tuple[str, ...]:
        """The names of those that change learning."""
        return tuple(knob.name for knob in self.knobs if knob.changes_learning)

    @property
    def combinations(self) -> int:
        """The number of combinations before conditions."""
        size = 1
        for knob in self.knobs:
            size *= len(knob.values)
        return size

    def on_each_node(self, nodes: int) -> "Settings":
        """The same for a server over so many nodes: a knob per node is one knob for each, `NAME_0`, `NAME_1`, ..."""
        knobs: list[Setting] = []
        for knob in self.knobs:
            names = [of_node(knob.name, rank) for rank in range(nodes)] if knob.per_node else [knob.name]
            knobs += (replace(knob, name=name) for name in names)
        return replace(self, knobs=tuple(knobs))

    def rows(self, instance: str, nodes: int) -> list[tuple[Value, ...]]:
        """Every combination that may be chosen on this deployment, each with a value for every knob, in order."""
        rows: list[dict[str, Value]] = [{INSTANCE: instance, NODES: nodes}]
        for knob in in_order_of_conditions(self.knobs):
            rows = [
                {**row, knob.name: value}
                for row in rows
                for value in (knob.values if knob.when is None or knob.when.holds(row) else (UNSET,))
            ]
        kept = [row for row in rows if not any(condition.holds(row) for condition in self.exclude)]
        return [tuple(row[name] for name in self.names) for row in kept]

    @property
    def depends_on_machine(self) -> bool:
        """Whether a condition names the instance type or the number of nodes."""
        conditions = [*self.exclude, *(knob.when for knob in self.knobs if knob.when is not None)]
        return any(word in condition.names for condition in conditions for word in MACHINE_WORDS)

    def space_knobs(self, rows: Sequence[tuple[Value, ...]]) -> tuple[Knob, ...]:
        """The knobs of a space with these combinations: of each the values that occur, with features for models."""
        found = []
        for at, knob in enumerate(self.knobs):
            memory = knob.memory or MEMORY_BY_NAME.get(knob.name.lower(), "")
            found.append(replace(_occurring(knob, {row[at] for row in rows}), is_setting=True, memory=memory))
        return tuple(found)

    def server_knobs(self, rows: Sequence[tuple[Value, ...]]) -> tuple[Knob, ...]:
        """The same for a server, whose knobs are all that its space has: numbers that span much are counts."""
        found = []
        for at, knob in enumerate(self.knobs):
            seen = {row[at] for row in rows}
            (plain,) = space_of({knob.name: [value for value in knob.values if value in seen] or [UNSET]}).knobs
            found.append(_occurring(knob, seen) if UNSET in seen else plain)
        return tuple(found)


def of_node(name: str, rank: int) -> str:
    """What the knob `name` of one node is called."""
    return f"{name}_{rank}"


def in_order_of_conditions(knobs: Sequence[Setting]) -> list[Setting]:
    """The knobs so that each comes after those that its condition names. Raises CircularConditions."""
    left, done = list(knobs), [*MACHINE_WORDS]
    ordered: list[Setting] = []
    while left:
        ready = [knob for knob in left if knob.when is None or all(name in done for name in knob.when.names)]
        if not ready:
            raise CircularConditions(tuple(knob.name for knob in left))
        ordered += ready
        done += [knob.name for knob in ready]
        left = [knob for knob in left if knob not in ready]
    return ordered


class CircularConditions(ValueError):
    """Conditions that depend on each other; `names` are the knobs."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        super().__init__(f"the conditions of {', '.join(names)} depend on each other")


def _occurring(knob: Setting, seen: Collection[Value]) -> Knob:
    """The knob with the values that occur. One that does not apply is, to a model, in the middle of the values."""
    values = tuple(value for value in knob.values if value in seen)
    plain = _plain(knob.name, values or (UNSET,))
    if UNSET not in seen or not values:
        return plain
    features = plain.features or {}
    middle = tuple(sum(column) / len(values) for column in zip(*features.values(), strict=True))
    return replace(plain, values=(*values, UNSET), features={**features, UNSET: middle})


def _plain(name: str, values: tuple[Value, ...]) -> Knob:
    """Numbers by their place, on a logarithmic scale where they span much; flags as 0 and 1; others one by one."""
    if all(isinstance(value, bool) for value in values):
        return Knob(name=name, values=values, features={value: (float(value),) for value in values})
    beside_nodes = space_of({name: values, "nodes": (1,)})  # with nodes, no other knob is a count
    return beside_nodes.knobs[0]
