"""From nodes to operators: each node gets its canonical name and text, and equal ones are counted together."""

import math
from collections.abc import Callable

from mlcd.graphs.grammar import KNOWN, text, work
from mlcd.graphs.graph import Operator
from mlcd.graphs.patterns import simplify
from mlcd.graphs.traced import Traced, TracedNode

_SYNONYMS = {"Sum": "Add", "Upsample": "Resize", "GatherElements": "Gather", "Split": "Slice", "QuickGelu": "Swish"}
_BY_INPUT = (
    "GlobalAveragePool",
    "GlobalMaxPool",
    "ReduceMean",
    "ReduceSum",
    "ReduceMax",
    "ReduceMin",
    "ArgMax",
    "TopK",
)


def operators(traced: Traced) -> tuple[Operator, ...]:
    """The operators, those with the most work first. Simplifies `traced` in place."""
    simplify(traced)
    found: dict[tuple[str, str, bool], list[TracedNode]] = {}
    for node in traced.nodes:
        found.setdefault(_canonical(node, traced), []).append(node)
    uses = []
    for (name, shape, known), nodes in found.items():
        flops, bytes_ = work(name if known else "", shape)
        uses.append(
            Operator(
                name=name,
                shape=shape,
                count=len(nodes),
                flops=flops * len(nodes),
                bytes=bytes_ * len(nodes),
                known=known,
                nodes=tuple(name for node in nodes for name in node.stands_for),
            )
        )
    return tuple(sorted(uses, key=lambda use: (-use.flops, -use.bytes, use.name, use.shape)))


def _canonical(node: TracedNode, traced: Traced) -> tuple[str, str, bool]:
    """(name, text, whether it is in the grammar); if not, the text is the size of the output, as far as known."""
    kind = _SYNONYMS.get(node.kind, node.kind)
    source, target = _in(node, traced) if node.inputs else (), _out(node, traced)
    if rule := _RULES.get(kind):
        try:
            return *rule(node, traced), True
        except (IndexError, KeyError, ValueError):  # sizes that could not be inferred
            return kind, text(target), False
    if kind == "ReduceMean" and len(source) == 3 and math.prod(target) == source[0] and target[:1] == source[:1]:
        kind = "GlobalAveragePool"
    return kind, text(source if kind in _BY_INPUT else target), kind in KNOWN


def _in(node: TracedNode, traced: Traced, index: int = 0) -> tuple[int, ...]:
    return traced.sizes.get(node.inputs[index], ())


def _out(node: TracedNode, traced: Traced) -> tuple[int, ...]:
    return next((traced.sizes[name] for name in node.outputs if name in traced.sizes), ())


def _convolution(node: TracedNode, traced: Traced) -> tuple[str, str]:
    kernel = traced.sizes[node.inputs[1]][2:]
    stride, groups = node.options.get("stride") or [1] * len(kernel), node.options.get("groups") or [1]
    sizes = f"{text(_in(node, traced))}>{text(_out(node, traced))}"
    return node.kind, f"{sizes} k{text(kernel)} s{text(stride)} g{groups[0]}"


def _pool(node: TracedNode, traced: Traced) -> tuple[str, str]:
    kernel = node.options["kernel"]
    stride = node.options.get("stride") or [1] * len(kernel)
    sizes = f"{text(_in(node, traced))}>{text(_out(node, traced))}"
    return node.kind, f"{sizes} k{text(kernel)} s{text(stride)}"


def _gemm(node: TracedNode, traced: Traced) -> tuple[str, str]:
    """Rows of an item times weights; the columns are the output's last axis, the inner size the weights' other one."""
    columns = _out(node, traced)[-1] if _out(node, traced) else 1
    matrices = [traced.sizes[name] for name in node.inputs[:2] if len(traced.sizes.get(name, ())) == 2]
    inner = math.prod(matrices[-1]) // columns if matrices else (_in(node, traced) or (1,))[-1]
    return "Gemm", text((max(1, math.prod(_out(node, traced)) // columns), inner, columns))


def _matmul(node: TracedNode, traced: Traced) -> tuple[str, str]:
    left, right, out = _in(node, traced), _in(node, traced, 1), _out(node, traced)
    rows = left[-2] if len(left) > 1 else 1
    columns = right[-1] if len(right) > 1 else 1
    return "MatMul", text((max(1, math.prod(out) // (rows * columns)), rows, left[-1] if left else 1, columns))


def _attention(node: TracedNode, traced: Traced) -> tuple[str, str]:
    if "text" in node.options:
        return "Attention", text(node.options["text"])
    queries, keys = _in(node, traced), _in(node, traced, 1)
    return "Attention", text((math.prod(queries[:-2]), queries[-2], keys[-2], queries[-1]))


def _recurrent(node: TracedNode, traced: Traced) -> tuple[str, str]:
    steps, width = _in(node, traced)[-2:]
    (hidden,), (both,) = node.options["hidden"], node.options["directions"]
    return node.kind, f"{steps}x{width}>{hidden} l1 d{both}"


def _gather(node: TracedNode, traced: Traced) -> tuple[str, str]:
    """A look-up in a table of weights; other selections with constant indices are slices."""
    if node.inputs[0] not in traced.fixed:
        return "Slice", text(_out(node, traced))
    table = traced.sizes[node.inputs[0]]
    return "Gather", f"{max(1, math.prod(_out(node, traced)) // max(table[-1], 1))}>{text(table)}"


def _resize(node: TracedNode, traced: Traced) -> tuple[str, str]:
    return "Resize", f"{text(_in(node, traced))}>{text(_out(node, traced))}"


_RULES: dict[str, Callable[[TracedNode, Traced], tuple[str, str]]] = {
    "Conv": _convolution,
    "ConvTranspose": _convolution,
    "MaxPool": _pool,
    "AveragePool": _pool,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Attention": _attention,
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _recurrent),
    "Gather": _gather,
    "Resize": _resize,
}
