"""A PyTorch module as its operators, through torch.export. The only file of this room that imports torch."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mlcd.errors import BadInput
from mlcd.graphs.graph import Graph, GraphInput
from mlcd.graphs.naming import operators
from mlcd.graphs.traced import Sizes, Traced, TracedNode, item_sizes
from mlcd.untrusted import Malformed, only_weights

_BATCH = 2
_DATATYPES = {"float32": "FP32", "float64": "FP64", "float16": "FP16", "int64": "INT64", "int32": "INT32"}
_DATATYPES |= {"int16": "INT16", "int8": "INT8", "uint8": "UINT8", "bool": "BOOL"}

_NAMES = {
    "relu": "Relu",
    "leaky_relu": "LeakyRelu",
    "prelu": "PRelu",
    "elu": "Elu",
    "hardtanh": "Clip",
    "relu6": "Clip",
    "clamp": "Clip",
    "hardswish": "HardSwish",
    "hardsigmoid": "HardSigmoid",
    "silu": "Swish",
    "gelu": "Gelu",
    "mish": "Mish",
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "softmax": "Softmax",
    "log_softmax": "LogSoftmax",
    "softplus": "Softplus",
    "batch_norm": "BatchNormalization",
    "layer_norm": "LayerNormalization",
    "group_norm": "GroupNormalization",
    "instance_norm": "InstanceNormalization",
    "add": "Add",
    "sub": "Sub",
    "rsub": "Sub",
    "mul": "Mul",
    "div": "Div",
    "neg": "Neg",
    "pow": "Pow",
    "sqrt": "Sqrt",
    "rsqrt": "Sqrt",
    "exp": "Exp",
    "log": "Log",
    "erf": "Erf",
    "abs": "Abs",
    "sin": "Sin",
    "cos": "Cos",
    "where": "Where",
    "masked_fill": "Where",
    "cat": "Concat",
    "concat": "Concat",
    "stack": "Concat",
    "transpose": "Transpose",
    "permute": "Transpose",
    "numpy_T": "Transpose",
    "t": "Transpose",
    "select": "Slice",
    "slice": "Slice",
    "split": "Slice",
    "split_with_sizes": "Slice",
    "chunk": "Slice",
    "narrow": "Slice",
    "pad": "Pad",
    "constant_pad_nd": "Pad",
    "mean": "ReduceMean",
    "sum": "ReduceSum",
    "amax": "ReduceMax",
    "amin": "ReduceMin",
    "argmax": "ArgMax",
    "topk": "TopK",
    "cumsum": "CumSum",
    "matmul": "MatMul",
    "bmm": "MatMul",
    "mm": "MatMul",
    "linear": "Gemm",
    "scaled_dot_product_attention": "Attention",
    "pixel_shuffle": "DepthToSpace",
    **dict.fromkeys(
        ("upsample_nearest2d", "upsample_bilinear2d", "upsample_bicubic2d", "upsample_nearest1d"), "Resize"
    ),
    **dict.fromkeys(
        ("view", "reshape", "flatten", "unflatten", "unsqueeze", "squeeze", "contiguous", "clone", "alias", "detach"),
        "Reshape",
    ),
    **dict.fromkeys(
        (
            "dropout",
            "feature_dropout",
            "alpha_dropout",
            "to",
            "type_as",
            "_to_copy",
            "lift_fresh_copy",
            "_assert_tensor_metadata",
            "_assert_scalar",
            "sym_size",
        ),
        "Identity",
    ),
    **dict.fromkeys(("expand", "expand_as", "broadcast_to"), "Expand"),
}


def read_torch(module: Any, example: Any, *, name: str = "") -> Graph:
    """The operators of a module in evaluation mode.

    example  a tensor or tuple of tensors with one item each: axis 0 is the batch
    The module is exported with two and with four items, to find the axes that depend on the batch. Raises BadInput
    where it cannot be exported.
    """
    examples = example if isinstance(example, tuple) else (example,)
    small, large = (_export(module, examples, batch) for batch in (_BATCH, 2 * _BATCH))
    traced = _trace(small, large)
    return Graph(
        name=name or type(module).__name__,
        inputs=tuple(
            GraphInput(
                name=argument,
                datatype=_DATATYPES[str(tensor.dtype).removeprefix("torch.")],
                sizes=tuple(tensor.shape[1:]),
                high=_bound(traced, argument),
            )
            for argument, tensor in zip(small.graph_signature.user_inputs, examples, strict=True)
        ),
        operators=operators(traced),
        parameters_bytes=float(sum(p.numel() * p.element_size() for p in module.parameters())),
    )


def read_pt2(path: Path, *, name: str, sizes: Mapping[str, int] | None = None) -> Graph:
    """The operators of a file of torch.export; see `read_program`. Raises BadInput."""
    import torch  # noqa: PLC0415

    try:
        with only_weights(path, "torch.export", passed=(BadInput,)), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # PyTorch's own, about buffers that nobody writes to
            return read_program(torch.export.load(path), name=name, sizes=sizes)
    except Malformed as error:
        raise BadInput(str(error)) from error


def read_program(program: Any, *, name: str, sizes: Mapping[str, int] | None = None) -> Graph:
    """The operators of an exported program, whose first axes are the batch.

    sizes  of other open axes, by `INPUT.AXIS`
    Raises BadInput where an axis has no size.
    """
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    names = [argument for argument in program.graph_signature.user_inputs if argument in nodes]
    shapes = {argument: tuple(nodes[argument].meta["val"].shape) for argument in names}
    symbols = _symbols(name, shapes, sizes or {})
    batches = {axes[0] for axes in shapes.values() if axes and isinstance(axes[0], int)}

    def at(batch: int) -> Callable[[Any], Sizes]:
        return lambda value: tuple(_sized(size, symbols, batch) for size in value.shape)

    traced = _trace(program, program, at(_BATCH), at(2 * _BATCH))
    return Graph(
        name=name,
        inputs=tuple(
            GraphInput(
                name=argument,
                datatype=_DATATYPES[str(nodes[argument].meta["val"].dtype).removeprefix("torch.")],
                sizes=tuple(_sized(size, symbols, 1) for size in shapes[argument][1:]),
                high=_bound(traced, argument),
            )
            for argument in names
        ),
        operators=operators(traced),
        parameters_bytes=float(sum(p.numel() * p.element_size() for p in program.state_dict.values())),
        fixed_batch=next(iter(batches), None),
    )


def _symbols(name: str, shapes: Mapping[str, Sequence[Any]], sizes: Mapping[str, int]) -> dict[Any, int]:
    """The value of every open axis but the batch, by its symbol. Raises BadInput."""
    batch = {str(axes[0].node.expr) for axes in shapes.values() if axes and not isinstance(axes[0], int)}
    found: dict[Any, int] = {}
    for argument, axes in shapes.items():
        for axis, size in enumerate(axes):
            if isinstance(size, int) or str(size.node.expr) in batch:
                continue
            key = f"{argument}.{axis}"
            if key not in sizes:
                raise BadInput(f"{name}: axis {axis} of {argument} has no size; give one, e.g. --size {key}=128")
            found[size.node.expr] = sizes[key]
    return found


def _sized(size: Any, symbols: Mapping[Any, int], batch: int) -> int:
    """A size as a number: every symbol that is not known is the batch."""
    if isinstance(size, int):
        return size
    expression = size.node.expr
    return int(expression.subs({symbol: symbols.get(symbol, batch) for symbol in expression.free_symbols}))


def _export(module: Any, examples: Sequence[Any], batch: int) -> Any:
    import torch  # noqa: PLC0415

    try:
        tensors = tuple(tensor.repeat(batch, *[1] * (tensor.dim() - 1)) for tensor in examples)
        with torch.no_grad():
            return torch.export.export(module.eval(), tensors)
    except (RuntimeError, TypeError, ValueError, AssertionError, NotImplementedError, AttributeError) as error:
        first = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise BadInput(f"{type(module).__name__}: torch.export fails: {first}; give an ONNX file instead") from error


def _whole(value: Any) -> Sizes:
    return tuple(value.shape)


def _trace(
    small: Any, large: Any, small_sizes: Callable[[Any], Sizes] = _whole, large_sizes: Callable[[Any], Sizes] = _whole
) -> Traced:
    """The calls, with the sizes of one item: from two programs, or from one whose sizes depend on the batch."""
    nodes, pairs = list(small.graph.nodes), list(large.graph.nodes)
    if len(nodes) != len(pairs):
        raise BadInput("the module's graph depends on the batch size; give an ONNX file instead")
    signature = small.graph_signature
    fixed = {
        *signature.inputs_to_parameters,
        *signature.inputs_to_buffers,
        *signature.inputs_to_lifted_tensor_constants,
    }
    traced = Traced(nodes=[], sizes={}, fixed=fixed)
    for node, pair in zip(nodes, pairs, strict=True):
        for index, (one, two) in enumerate(zip(_tensors(node), _tensors(pair), strict=True)):
            key = node.name if index == 0 else f"{node.name}.{index}"
            whole = node.name in fixed
            few, many = small_sizes(one), large_sizes(two)
            traced.sizes[key] = few if whole else item_sizes(few, many, _BATCH)
        if node.op == "call_function":
            traced.nodes.extend(_calls(node, traced))
    return traced


def _tensors(node: Any) -> list[Any]:
    value = node.meta.get("val")
    values = value if isinstance(value, tuple | list) else [value]
    return [each for each in values if hasattr(each, "shape")]


def _arguments(node: Any) -> dict[str, Any]:
    """By the schema's names, with defaults."""
    schema = node.target._schema.arguments
    found = {argument.name: argument.default_value for argument in schema if argument.has_default_value()}
    found |= {argument.name: value for argument, value in zip(schema, node.args, strict=False)}
    return found | dict(node.kwargs)


def _inputs(node: Any) -> tuple[str, ...]:
    import torch  # noqa: PLC0415

    found: list[str] = []
    torch.fx.map_arg((node.args, node.kwargs), lambda each: found.append(each.name))
    return tuple(found)


def _calls(node: Any, traced: Traced) -> list[TracedNode]:
    """The node under ONNX's name; a recurrent one as one node per layer, as in ONNX."""
    if not hasattr(node.target, "_schema"):  # one of several outputs
        source, index = node.args if len(node.args) == 2 else (node.args[0], 0)
        key = source.name if index == 0 else f"{source.name}.{index}"
        return [TracedNode(kind="Identity", name=node.name, inputs=(key,), outputs=(node.name,))]
    aten = node.target._schema.name.split("::")[1].rstrip("_")
    given = _arguments(node)
    if aten in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
        return _recurrent(node, aten, given, traced)
    if aten in _SPECIAL:
        return [_SPECIAL[aten](node, given)]
    kind = _NAMES.get(aten, "".join(part.capitalize() for part in aten.strip("_").split("_")))
    options = {"perm": _perm(aten, given, node)} if kind == "Transpose" else {}
    outputs = (node.name, *(f"{node.name}.{index}" for index in range(1, len(_tensors(node)))))
    return [TracedNode(kind=kind, name=node.name, inputs=_inputs(node), outputs=outputs, options=options)]


def _perm(aten: str, given: dict[str, Any], node: Any) -> list[int]:
    rank = len(node.meta["val"].shape)
    if aten == "permute":
        return [axis % rank for axis in given["dims"]]
    order = list(range(rank))
    one, two = (given.get("dim0", 0) % rank, given.get("dim1", 1) % rank) if rank > 1 else (0, 0)
    order[one], order[two] = order[two], order[one]
    return order


def _list(value: Any, count: int) -> list[int]:
    values = [value] if isinstance(value, int) else list(value or [])
    return values * count if len(values) == 1 else values


def _convolution(node: Any, given: dict[str, Any]) -> TracedNode:
    axes = len(given["weight"].meta["val"].shape) - 2
    turned = "transpose" in node.target._schema.name or bool(given.get("transposed"))
    return TracedNode(
        kind="ConvTranspose" if turned else "Conv",
        name=node.name,
        inputs=_inputs(node),
        outputs=(node.name,),
        options={"stride": _list(given["stride"], axes), "groups": [given["groups"]]},
    )


def _pool(kind: str) -> Callable[[Any, dict[str, Any]], TracedNode]:
    def call(node: Any, given: dict[str, Any]) -> TracedNode:
        axes = len(given["self"].meta["val"].shape) - 2
        kernel = _list(given["kernel_size"], axes)
        options = {"kernel": kernel, "stride": _list(given.get("stride"), axes) or kernel}
        return TracedNode(kind=kind, name=node.name, inputs=_inputs(node), outputs=(node.name,), options=options)

    return call


def _adaptive_pool(kind: str) -> Callable[[Any, dict[str, Any]], TracedNode]:
    def call(node: Any, given: dict[str, Any]) -> TracedNode:
        source, target = given["self"].meta["val"].shape[2:], _tensors(node)[0].shape[2:]
        if all(size == 1 for size in target):
            return TracedNode(kind=f"Global{kind}", name=node.name, inputs=_inputs(node), outputs=(node.name,))
        kernel = [one // two for one, two in zip(source, target, strict=True)]
        options = {"kernel": kernel, "stride": kernel}
        return TracedNode(kind=kind, name=node.name, inputs=_inputs(node), outputs=(node.name,), options=options)

    return call


def _addmm(node: Any, given: dict[str, Any]) -> TracedNode:
    return TracedNode(
        kind="Gemm", name=node.name, inputs=(given["mat1"].name, given["mat2"].name), outputs=(node.name,)
    )


def _embedding(node: Any, given: dict[str, Any]) -> TracedNode:
    inputs = (given["weight"].name, given["indices"].name)
    return TracedNode(kind="Gather", name=node.name, inputs=inputs, outputs=(node.name,))


def _recurrent(node: Any, aten: str, given: dict[str, Any], traced: Traced) -> list[TracedNode]:
    kind = {"lstm": "LSTM", "gru": "GRU"}.get(aten, "RNN")
    both = 2 if given["bidirectional"] else 1
    hidden = given["params"][1].meta["val"].shape[-1]
    source = given["input"].name
    outputs = (node.name, *(f"{node.name}.{index}" for index in range(1, len(_tensors(node)))))
    found = []
    for layer in range(given["num_layers"]):
        last = layer == given["num_layers"] - 1
        out = outputs if last else (f"{node.name}.layer{layer}",)
        traced.sizes[out[0]] = (*traced.sizes[source][:-1], hidden * both)
        options = {"hidden": [hidden], "directions": [both]}
        found.append(TracedNode(kind=kind, name=f"{node.name}.{layer}", inputs=(source,), outputs=out, options=options))
        source = out[0]
    return found


def _bound(traced: Traced, argument: str) -> int | None:
    found = [traced.sizes[n.inputs[0]][0] for n in traced.nodes if n.kind == "Gather" and n.inputs[1] == argument]
    return min(found, default=None)


_SPECIAL: dict[str, Callable[[Any, dict[str, Any]], TracedNode]] = {
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "convolution"), _convolution),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _convolution),
    **dict.fromkeys(("max_pool1d", "max_pool2d", "max_pool3d"), _pool("MaxPool")),
    **dict.fromkeys(("avg_pool1d", "avg_pool2d", "avg_pool3d"), _pool("AveragePool")),
    **dict.fromkeys(("adaptive_avg_pool1d", "adaptive_avg_pool2d"), _adaptive_pool("AveragePool")),
    **dict.fromkeys(("adaptive_max_pool1d", "adaptive_max_pool2d"), _adaptive_pool("MaxPool")),
    "addmm": _addmm,
    "embedding": _embedding,
}
