"""Node counts: `1..50`, `[1, 2, 4, 8]`, `4`, or one of these for each glob of instance types."""

import re

from mlcd.spec.node import Bounds, Node
from mlcd.spec.train import NodeCounts

MOST_NODES = 100_000
_FORMS = "a range such as 1..50, a list such as [1, 2, 4, 8], or a whole number"
_RANGE = re.compile(r"\s*([0-9]{1,9})\s*\.\.\s*([0-9]{1,9})\s*")
_MEANT_RANGE = re.compile(r"\s*([0-9]{1,9})\s*(?:-|:|\.\.\.|…|to)\s*([0-9]{1,9})\s*")
_NODES = Bounds(least=1, most=MOST_NODES)


def node_counts(node: Node) -> NodeCounts:
    """The counts for all instance types, or by glob with a `default`, which must be there."""
    if not isinstance(node.value, dict):
        return NodeCounts(default=_counts(node))
    given = dict(node.mapping())
    default = given.pop("default", None)
    if default is None:
        raise node.error("has globs but no default", allowed='a mapping such as {default: 1..50, "c5.*": 1..100}')
    return NodeCounts(
        default=_counts(default), by_glob=tuple((glob, _counts(counts)) for glob, counts in given.items())
    )


def _counts(node: Node) -> tuple[int, ...]:
    """Node counts, sorted, at least one, each once."""
    value = node.filled().value
    if isinstance(value, str):
        return _range(node, value)
    if isinstance(value, tuple) and not value:
        raise node.error("must not be empty", allowed=_FORMS)
    if isinstance(value, dict):
        raise node.error("must not be a mapping", allowed=_FORMS)
    counts: set[int] = set()
    for item in node.items():
        count = item.whole(_NODES)
        if count in counts:
            raise item.error("is given twice")
        counts.add(count)
    return tuple(sorted(counts))


def _range(node: Node, text: str) -> tuple[int, ...]:
    match = _RANGE.fullmatch(text)
    if match is None:
        meant = _MEANT_RANGE.fullmatch(text)
        right = f"{meant[1]}..{meant[2]}" if meant else ""
        raise node.error("is not a number of nodes", allowed=_FORMS, nearest=right)
    first, last = int(match[1]), int(match[2])
    if first > last:
        raise node.error("is an empty range", allowed=_FORMS, nearest=f"{last}..{first}")
    if first not in _NODES or last not in _NODES:
        raise node.error("is out of range", allowed=f"from 1 to {MOST_NODES:,} nodes")
    return tuple(range(first, last + 1))
