"""A model between its file and its operators: nodes with ONNX's names, and the sizes of one item of every tensor."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

Sizes = tuple[int, ...]


@dataclass(slots=True, kw_only=True, eq=False)
class TracedNode:
    """One call. `options` has what the grammar needs beyond sizes: kernel, stride, groups, hidden, directions, perm."""

    kind: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    options: Mapping[str, Sequence[int]] = field(default_factory=dict)
    stands_for: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.stands_for = self.stands_for or (self.name,)


@dataclass(slots=True, kw_only=True)
class Traced:
    """The nodes in the order they run.

    sizes     of every tensor: per item where the batch multiplies it, else its own
    fixed     tensors that are the same in every request: weights, constants and what depends on those only
    """

    nodes: list[TracedNode]
    sizes: dict[str, Sizes]
    fixed: set[str]

    def producers(self) -> dict[str, TracedNode]:
        """By tensor: the node that computes it."""
        return {name: node for node in self.nodes for name in node.outputs}

    def consumers(self) -> dict[str, list[TracedNode]]:
        """By tensor: the nodes that read it."""
        found: dict[str, list[TracedNode]] = {}
        for node in self.nodes:
            for name in node.inputs:
                found.setdefault(name, []).append(node)
        return found

    def changing(self, node: TracedNode) -> list[str]:
        """The node's inputs that differ from request to request."""
        return [name for name in node.inputs if name and name not in self.fixed]

    def remove(self, gone: Iterable[TracedNode]) -> None:
        """Remove nodes; the caller must have given the readers of their outputs another tensor (`rename`)."""
        ids = {id(node) for node in gone}
        self.nodes = [node for node in self.nodes if id(node) not in ids]

    def rename(self, old: str, new: str) -> None:
        """Make every reader of `old` read `new`."""
        for node in self.nodes:
            if old in node.inputs:
                node.inputs = tuple(new if name == old else name for name in node.inputs)


def item_sizes(small: Sizes, large: Sizes, batch: int) -> Sizes:
    """The sizes of one item, from those with `batch` items and with twice as many.

    An axis that doubles is the batch, either alone (then it is dropped) or merged with another axis (then it is divided
    down to one item).
    """
    found = []
    for one, two in zip(small, large, strict=True):
        if two == 2 * one and one % batch == 0:
            if one > batch:
                found.append(one // batch)
        else:
            found.append(one)
    return tuple(found)
