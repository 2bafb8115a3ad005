"""Accelerators by name and number a node: `H100`, `H100:8`."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mlcd.catalog.instance import Instance
from mlcd.errors import nearest

MOST_PER_NODE = 1024
_FORM = re.compile(r"([A-Za-z][A-Za-z0-9 ._-]{0,39})(?:\s*:\s*([0-9]{1,4}))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """A kind of accelerator; `count` is how many a node must have, None any number.

    A name covers its variants, which follow it after a dash: A100 is A100 and A100-80GB. Case does not matter.
    """

    name: str
    count: int | None = None

    def __post_init__(self) -> None:
        if not self.name or (self.count is not None and not 1 <= self.count <= MOST_PER_NODE):
            raise ValueError(f"an accelerator has a name and a count of 1 to {MOST_PER_NODE}")

    def fits(self, instance: Instance) -> bool:
        """Whether a node of this type has them."""
        if not instance.accelerators or instance.accelerator is None or not self._is_named(instance.accelerator):
            return False
        return self.count is None or instance.accelerators == self.count

    def _is_named(self, name: str) -> bool:
        wanted, known = self.name.casefold(), name.casefold()
        return known == wanted or known.startswith(f"{wanted}-")

    def __str__(self) -> str:
        return self.name if self.count is None else f"{self.name}:{self.count}"


def parse_accelerator(text: str) -> Accelerator | None:
    """`H100` or `H100:8`; None for a text that has neither form."""
    match = _FORM.fullmatch(text.strip())
    if match is None:
        return None
    count = None if match[2] is None else int(match[2])
    return (
        None
        if count is not None and not 1 <= count <= MOST_PER_NODE
        else Accelerator(name=match[1].strip(), count=count)
    )


def accelerators_of(instances: Iterable[Instance]) -> tuple[str, ...]:
    """The accelerators of these types as `NAME:COUNT`, without duplicates, in order."""
    return tuple(dict.fromkeys(f"{i.accelerator}:{i.accelerators}" for i in instances if i.accelerators))


def nearest_accelerator(text: str, instances: Sequence[Instance]) -> str:
    """The accelerator of these types that `text` most likely means: another count, or another name; "" for none."""
    wanted = parse_accelerator(text)
    offered = accelerators_of(instances)
    if wanted is not None:
        same = [i for i in instances if Accelerator(name=wanted.name).fits(i)]
        if same and wanted.count is not None:
            near = min(same, key=lambda i: abs(i.accelerators - (wanted.count or 0)))
            return f"{near.accelerator}:{near.accelerators}"
    known = offered if ":" in text else tuple(name.partition(":")[0] for name in offered)
    by_case = {name.casefold(): name for name in known}
    found = nearest(text.casefold(), tuple(by_case))
    return by_case[found] if found else ""
