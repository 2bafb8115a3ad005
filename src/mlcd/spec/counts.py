"""Node counts: `1..50`, `[1, 2, 4, 8]`, `4`, or one of these for each glob of instance types."""

from mlcd.spec.choices import Choices
from mlcd.spec.node import YamlNode
from mlcd.spec.train import NodeCounts

_COUNTS = Choices(
    form="a range such as 1..50, a list such as [1, 2, 4, 8], or a whole number",
    most=100_000,
    unit="nodes",
    not_one="is not a number of nodes",
    empty="must not be empty",
    nested="must not be a mapping",
)


def node_counts(node: YamlNode) -> NodeCounts:
    """One set of counts for all instance types, or counts by glob with a `default`, which is required."""
    if not isinstance(node.value, dict):
        return NodeCounts(default=_COUNTS(node))
    given = dict(node.mapping())
    default = given.pop("default", None)
    if default is None:
        raise node.error("has globs but no default", allowed='a mapping such as {default: 1..50, "c5.*": 1..100}')
    return NodeCounts(
        default=_COUNTS(default), by_glob=tuple((glob, _COUNTS(counts)) for glob, counts in given.items())
    )
