"""How much of a long run is shown: every picture has a bounded number of marks, every table of rows, whatever ran."""

from collections.abc import Callable, Sequence
from typing import TypeVar

MOST_MARKS = 240
"""Trials, deployments or epochs in one picture."""
MOST_LABELS = 80
"""Texts next to marks: each is compared with every mark."""
MOST_NAMED = 20
"""Names in one sentence."""
MOST_ROWS = 1_000
"""Rows of a table on a page."""
MOST_LINES = 200
"""Rows of a table of text."""

_Item = TypeVar("_Item")


def thinned(
    items: Sequence[_Item], most: int = MOST_MARKS, *, keep: Callable[[_Item], bool] = lambda _: False
) -> list[_Item]:
    """At most `most` of the items, in their order: the first, the last and evenly spaced ones between.

    keep  names items that are among them, up to half of `most`
    """
    count = len(items)
    if count <= most:
        return list(items)
    wanted = [at for at, item in enumerate(items) if keep(item)][: most // 2]
    room = most - len(wanted)
    chosen = {*wanted, *(round(step * (count - 1) / (room - 1)) for step in range(room))}
    return [items[at] for at in sorted(chosen)]


def ends(items: Sequence[_Item], most: int) -> list[_Item]:
    """The first and the last ones, `most` in all."""
    return list(items) if len(items) <= most else [*items[: most - most // 2], *items[len(items) - most // 2 :]]


def left_out_text(count: int, most: int, noun: str, run_id: str) -> str:
    """What `ends` left out and where it is; "" if nothing."""
    if count <= most:
        return ""
    where = f"`mlcd show {run_id} -o json` has all"
    return f"The first {most - most // 2:,} and the last {most // 2:,} of {count:,} {noun}; {where}."


def drawn_text(drawn: int, count: int, noun: str) -> str:
    """`400 of 10,000 trials drawn`; "" if all are."""
    return f"{drawn:,} of {count:,} {noun} drawn" if drawn < count else ""


def listed(names: Sequence[str], most: int = MOST_NAMED, separator: str = ", ") -> str:
    """`a, b and 4 more`."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return separator.join(names[:most]) + more
