from collections.abc import Mapping
from dataclasses import dataclass

Value = str | int | float

UNSET = "unset"
"""The value of a setting in configurations where it does not apply."""

MARKET, ON_DEMAND, SPOT = "market", "on-demand", "spot"
"""The knob of how nodes are bought, and its values."""

DEPLOYMENT = ("instance", "nodes", "batch", MARKET)
"""Knobs of the deployment; in a training, every other one is a setting of the script."""


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

    @property
    def of_node(self) -> "Config":
        """What is set on each node: the configuration without the instance type and the number of nodes."""
        return Config(tuple((name, value) for name, value in self.values if name not in ("instance", "nodes")))

    @property
    def is_spot(self) -> bool:
        """Whether its nodes are of the spot market, where that is chosen: they may be taken away."""
        return any(name == MARKET and value == SPOT for name, value in self.values)

    @property
    def machine(self) -> "Config":
        """The same machines and settings, however they are bought: those of one machine have one speed."""
        if all(name != MARKET for name, _ in self.values):
            return self
        return Config(tuple(item for item in self.values if item[0] != MARKET))

    @property
    def settings(self) -> dict[str, Value]:
        """The settings of the script that apply, by name."""
        return {name: value for name, value in self.values if name not in DEPLOYMENT and value != UNSET}

    def __str__(self) -> str:
        names = dict(self.values)
        parts = []
        if "instance" in names and "nodes" in names:
            bought = f" ({names.pop(MARKET)})" if MARKET in names else ""
            parts.append(f"{names.pop('nodes')} x {names.pop('instance')}{bought}")
        parts += [f"{name}={value_text(value)}" for name, value in names.items() if value != UNSET]
        return ", ".join(parts)


def value_text(value: Value) -> str:
    """A value as job files and environment variables have it: `true`, not `True`."""
    return str(value).lower() if isinstance(value, bool) else str(value)
