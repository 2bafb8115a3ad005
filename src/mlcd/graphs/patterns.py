"""Merges operators that were exported as several nodes, as a runtime does before it runs a model.

What exporters write (shape arithmetic, views, an activation in five nodes) depends on their version; the result of
these rules does not.
"""

from collections.abc import Callable, Mapping, Sequence

from mlcd.graphs.traced import Traced, TracedNode

VIEWS = frozenset(
    {"Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Dropout", "Shape", "Constant", "Cast", "Expand"}
)
"""Nodes that move no data, or almost none."""

_SCALERS = ("Div", "Mul", "Add", "Where", "Cast", "Sub")


def simplify(traced: Traced) -> None:
    """Apply all rules, in place."""
    for rule in _RULES:
        rule(traced)


def _drop_fixed(traced: Traced) -> None:
    """Drop nodes that depend on constants only: they are computed once."""
    remaining = []
    for node in traced.nodes:
        if all(not name or name in traced.fixed for name in node.inputs) or node.kind in ("Shape", "Size"):
            traced.fixed.update(node.outputs)
        else:
            remaining.append(node)
    traced.nodes = remaining


def _split_in_slices(traced: Traced) -> None:
    """Replace a node that splits a tensor by one slice per output."""
    nodes: list[TracedNode] = []
    for node in traced.nodes:
        if node.kind in ("Split", "Slice") and len(node.outputs) > 1:
            parts = [
                TracedNode(kind="Slice", name=node.name, inputs=node.inputs, outputs=(each,)) for each in node.outputs
            ]
            nodes.extend(parts)
        else:
            nodes.append(node)
    traced.nodes = nodes


def _drop_views(traced: Traced) -> None:
    traced.nodes = [node for node in traced.nodes if node.kind not in VIEWS]


def _fold_norms(traced: Traced) -> None:
    """Fold a batch normalisation that follows a convolution into its weights."""
    producers, consumers = traced.producers(), traced.consumers()
    for node in list(traced.nodes):
        before = producers.get(node.inputs[0]) if node.kind == "BatchNormalization" else None
        if before and before.kind in ("Conv", "ConvTranspose") and len(consumers[node.inputs[0]]) == 1:
            _absorb(traced, before, [node], into=node.inputs[0])


def _products_with_weights(traced: Traced) -> None:
    """Turn a MatMul with a matrix of weights into Gemm, with the Add of a bias that follows it."""
    for node in traced.nodes:
        weights = [name for name in node.inputs[:2] if name in traced.fixed and len(traced.sizes.get(name, ())) == 2]
        if node.kind == "MatMul" and weights:
            node.kind = "Gemm"
    consumers = traced.consumers()
    for node in list(traced.nodes):
        if node.kind != "Gemm":
            continue
        after = _only(consumers, node.outputs[0])
        if after and after.kind == "Add" and len(traced.changing(after)) == 1:
            _absorb(traced, node, [after], into=node.outputs[0])


def _gated(inner: str, name: str) -> Callable[[Traced], None]:
    """A rule that merges x * inner(x) into `name`."""

    def rule(traced: Traced) -> None:
        consumers = traced.consumers()
        for node in list(traced.nodes):
            after = _only(consumers, node.outputs[0]) if node.kind == inner else None
            if after and after.kind == "Mul" and set(after.inputs) == {node.inputs[0], node.outputs[0]}:
                _replace(traced, name, node.inputs[0], [node], after)

    return rule


def _gelu(traced: Traced) -> None:
    """Merge x/2 (1 + erf(x / sqrt 2)), with the factor 1/2 before, between or after."""
    producers, consumers = traced.producers(), traced.consumers()
    for erf in [node for node in traced.nodes if node.kind == "Erf"]:
        before, add = producers.get(erf.inputs[0]), _only(consumers, erf.outputs[0])
        if not before or before.kind not in ("Div", "Mul") or not add or add.kind != "Add":
            continue
        source = traced.changing(before)[0]
        last, gone = _only(consumers, add.outputs[0]), [before, erf, add]
        seen = False
        while last and last.kind == "Mul":
            others = [name for name in traced.changing(last) if name not in (gone[-1].outputs[0], source)]
            half = producers.get(others[0]) if others else None
            if half and half.kind == "Mul" and traced.changing(half) == [source]:
                gone.append(half)
                seen = True
            elif others:
                break
            seen = seen or source in last.inputs
            gone.append(last)
            after = _only(consumers, last.outputs[0])
            last = after if after and after.kind == "Mul" and len(traced.changing(after)) == 1 else None
        if seen:
            _replace(traced, "Gelu", source, gone[:-1], gone[-1])


def _recurrent_transposes(traced: Traced) -> None:
    """Merge the transposes around recurrent nodes: ONNX wants the time axis first."""
    producers, consumers = traced.producers(), traced.consumers()
    for node in [node for node in traced.nodes if node.kind in ("LSTM", "GRU", "RNN")]:
        before = producers.get(node.inputs[0])
        if before and before.kind == "Transpose" and len(consumers[node.inputs[0]]) == 1:
            node.inputs = (before.inputs[0], *node.inputs[1:])
            node.stands_for += before.stands_for
            traced.remove([before])
        after = _only(consumers, node.outputs[0])
        while after and (after.kind in VIEWS or after.kind == "Transpose"):
            if after.kind == "Transpose":
                node.stands_for += after.stands_for
                after.kind = "Identity"
            after = _only(consumers, after.outputs[0])


def _layer_norms(traced: Traced) -> None:
    """Merge (x - mean) / sqrt(variance + e), times a weight and plus a bias, in up to nine nodes."""
    producers, consumers = traced.producers(), traced.consumers()
    for division in [node for node in traced.nodes if node.kind == "Div" and len(node.inputs) == 2]:
        chain = [producers.get(division.inputs[1])]
        for kinds in (("Sqrt",), ("Add",), ("ReduceMean",), ("Pow", "Mul")):
            node = chain[-1]
            if node is None or node.kind not in kinds:
                break
            chain.append(producers.get(traced.changing(node)[0]))
        centred = producers.get(division.inputs[0])
        if len(chain) != 5 or centred is None or centred.kind != "Sub" or chain[-1] is not centred:
            continue
        mean = producers.get(centred.inputs[1])
        gone = [node for node in (mean, *chain, centred) if node is not None]
        last = division
        for kind in ("Mul", "Add"):
            after = _only(consumers, last.outputs[0])
            if after and after.kind == kind and len(traced.changing(after)) == 1:
                gone.append(last)
                last = after
        _replace(traced, "LayerNormalization", centred.inputs[0], gone, last)


def _attention(traced: Traced) -> None:
    """Merge softmax(q k') v, with the nodes that scale and mask the scores."""
    producers, consumers = traced.producers(), traced.consumers()
    for softmax in [node for node in traced.nodes if node.kind == "Softmax"]:
        gone, scores = [softmax], producers.get(softmax.inputs[0])
        while scores and scores.kind in _SCALERS:
            gone.append(scores)
            candidates = [producers.get(name) for name in traced.changing(scores)]
            scores = next((node for node in candidates if node and node.kind in (*_SCALERS, "MatMul")), None)
        after = _only(consumers, softmax.outputs[0])
        while after and after.kind in ("Dropout", "Cast", "Identity"):
            gone.append(after)
            after = _only(consumers, after.outputs[0])
        if not scores or scores.kind != "MatMul" or not after or after.kind != "MatMul":
            continue
        gone.append(scores)
        queries, keys = traced.sizes[scores.inputs[0]], traced.sizes[scores.inputs[1]]
        options = {"text": (_product(queries[:-2]), queries[-2], keys[-1], queries[-1])}
        feeds = []
        for name in scores.inputs:
            source, scaling = _before_scaling(traced, name, producers, consumers)
            feeds.append(source)
            gone.extend(scaling)
        turned = producers.get(feeds[1])
        if turned and turned.kind == "Transpose" and all(node.kind != "Transpose" for node in scaling):
            # An exporter merged two transposes of the keys into one; take attention's own out of it again.
            traced.sizes[feeds[1]] = (*keys[:-2], keys[-1], keys[-2])
        values = next(name for name in after.inputs if name != gone[0].outputs[0])
        _replace(traced, "Attention", feeds[0], gone, after, extra=(feeds[1], values), options=options)


def _before_scaling(
    traced: Traced, name: str, producers: dict[str, TracedNode], consumers: dict[str, list[TracedNode]]
) -> tuple[str, list[TracedNode]]:
    """(the tensor that is scaled or transposed to become `name`, the nodes that do it)."""
    gone: list[TracedNode] = []
    before = producers.get(name)
    while before and _is_scale_or_transpose(traced, before) and len(consumers[name]) == 1:
        gone.append(before)
        name = traced.changing(before)[0]
        before = producers.get(name)
    return name, gone


def _is_scale_or_transpose(traced: Traced, node: TracedNode) -> bool:
    """Whether a node multiplies by a constant, or transposes the keys for the product: part of attention."""
    if node.kind in ("Mul", "Div"):
        return len(traced.changing(node)) == 1
    perm = list(node.options.get("perm", ()))
    return node.kind == "Transpose" and perm == [*range(len(perm) - 2), len(perm) - 1, len(perm) - 2]


def _product(sizes: tuple[int, ...]) -> int:
    found = 1
    for size in sizes:
        found *= size
    return found


def _only(consumers: dict[str, list[TracedNode]], name: str) -> TracedNode | None:
    """The only reader of a tensor; None where it has several or none."""
    found = consumers.get(name, [])
    return found[0] if len(found) == 1 else None


def _absorb(traced: Traced, node: TracedNode, gone: list[TracedNode], *, into: str) -> None:
    """Merge the nodes `gone`, which follow `node`, into it."""
    node.stands_for += tuple(name for each in gone for name in each.stands_for)
    traced.remove(gone)
    traced.rename(gone[-1].outputs[0], into)


def _replace(
    traced: Traced,
    kind: str,
    source: str,
    gone: list[TracedNode],
    last: TracedNode,
    *,
    extra: tuple[str, ...] = (),
    options: Mapping[str, Sequence[int]] | None = None,
) -> None:
    """Make `last` the one node that represents all of them."""
    last.stands_for = tuple(name for each in (*gone, last) for name in each.stands_for)
    last.kind, last.inputs, last.options = kind, (source, *extra), options or {}
    traced.remove(node for node in gone if node is not last)


_RULES: tuple[Callable[[Traced], None], ...] = (
    _drop_fixed,
    _fold_norms,
    _products_with_weights,
    _gelu,
    _gated("Sigmoid", "Swish"),
    _gated("HardSigmoid", "HardSwish"),
    _layer_norms,
    _attention,
    _recurrent_transposes,
    _split_in_slices,
    _drop_views,
)
