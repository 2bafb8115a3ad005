from collections.abc import Mapping
from dataclasses import dataclass

Value = str | int | float


@dataclass(frozen=True, slots=True)
class Config:
    """One point of a space: a value for every knob, in the space's order. Hashable, so that it can be a key."""

    values: tuple[tuple[str, Value], ...]

    @classmethod
    def of(cls, values: Mapping[str, Value]) -> "Config":
        """A configuration from a mapping, in the mapping's order."""
        return cls(tuple(values.items()))

    @classmethod
    def deployment(cls, instance: str, nodes: int) -> "Config":
        """The paper's D(m, n): `nodes` machines of the type `instance`."""
        return cls((("instance", instance), ("nodes", nodes)))

    def __getitem__(self, knob: str) -> Value:
        for name, value in self.values:
            if name == knob:
                return value
        raise KeyError(knob)

    def as_dict(self) -> dict[str, Value]:
        """The values by knob, for JSON."""
        return dict(self.values)

    @property
    def instance(self) -> str:
        """The instance type m."""
        return str(self["instance"])

    @property
    def nodes(self) -> int:
        """The number of machines n; 1 if it is not a knob."""
        return int(dict(self.values).get("nodes", 1))

    def __str__(self) -> str:
        names = dict(self.values)
        parts = []
        if "instance" in names and "nodes" in names:
            parts.append(f"{names.pop('nodes')} x {names.pop('instance')}")
        parts += [f"{name}={value}" for name, value in names.items()]
        return ", ".join(parts)
