"""The spot market in a job file: `resources.use_spot`, and what is known of its interruptions (`search.spot`)."""

from collections.abc import Mapping
from dataclasses import dataclass

from mlcd.space.placed import matches
from mlcd.spec.node import FLAG_WORDS, Bounds, YamlNode
from mlcd.spec.quantity import number
from mlcd.spec.record import Field, FieldTable

ANY = "any"
MOST_PER_HOUR = 60.0
_PER_HOUR = Bounds(least=0, most=MOST_PER_HOUR)
_FORM = "interruptions of one node an hour such as 0.05, or by type such as {g5.xlarge: 0.1, default: 0.02}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotSettings:
    """What the user knows of spot nodes.

    interruptions_per_hour  of one node, by glob of its type, the first match counts
    save_seconds            how long the training takes to save a checkpoint; None: not known
    """

    interruptions_per_hour: tuple[tuple[str, float], ...] = ()
    save_seconds: float | None = None

    def per_hour(self, instance: str) -> float | None:
        """Interruptions of one node of this type an hour; None if the user does not say."""
        return next((rate for glob, rate in self.interruptions_per_hour if matches(instance, glob)), None)


def use_spot(node: YamlNode) -> bool | str:
    """`true`, `false` or `any`."""
    value = node.filled().value
    if isinstance(value, bool) or value == ANY:
        return value if isinstance(value, bool) else ANY
    word = value.lower() if isinstance(value, str) else ""
    near = ANY if word in ("any", "auto", "both", "either", "mixed") else FLAG_WORDS.get(word, "")
    raise node.error("must be true, false or any", nearest=near)


def _per_hour(node: YamlNode) -> tuple[tuple[str, float], ...]:
    if isinstance(node.value, Mapping):
        given = {name: child.number(_PER_HOUR) for name, child in node.mapping().items()}
        if not given:
            raise node.error("must not be empty", allowed=_FORM)
        default = [("*", given.pop("default"))] if "default" in given else []
        return (*given.items(), *default)
    if isinstance(node.value, str | bool) or node.value is None:
        raise node.error("is not a rate", allowed=_FORM)
    return (("*", node.number(_PER_HOUR)),)


SPOT = FieldTable(
    make=SpotSettings,
    fields={
        "interruptions_per_hour": Field(read=_per_hour),
        "save_seconds": Field(read=number(above=0, most=86_400, unit="seconds")),
    },
    meant={"rate": "interruptions_per_hour", "interruptions": "interruptions_per_hour", "save": "save_seconds"},
)
