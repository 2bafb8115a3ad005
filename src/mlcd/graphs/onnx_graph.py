"""An ONNX file as its operators."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from mlcd.errors import BadInput
from mlcd.graphs.graph import Graph, GraphInput
from mlcd.graphs.naming import operators
from mlcd.graphs.onnx_shapes import Shapes
from mlcd.graphs.patterns import VIEWS
from mlcd.graphs.traced import Traced, TracedNode, item_sizes
from mlcd.memory import free_memory_bytes
from mlcd.untrusted import Malformed, weights_beside

_BATCH = 2
_DATATYPES = {1: "FP32", 2: "UINT8", 3: "INT8", 4: "UINT16", 5: "INT16", 6: "INT32", 7: "INT64", 9: "BOOL"}
_DATATYPES |= {10: "FP16", 11: "FP64", 12: "UINT32", 13: "UINT64"}
_OPTIONS = {
    "kernel_shape": "kernel",
    "strides": "stride",
    "group": "groups",
    "hidden_size": "hidden",
    "perm": "perm",
}


_QUANTISED: dict[str, tuple[str, tuple[int, ...]]] = {
    "ConvInteger": ("Conv", (0, 1)),
    "QLinearConv": ("Conv", (0, 3)),
    "MatMulInteger": ("MatMul", (0, 1)),
    "QLinearMatMul": ("MatMul", (0, 3)),
    "DynamicQuantizeMatMul": ("MatMul", (0, 1)),
    "DynamicQuantizeLSTM": ("LSTM", (0,)),
    "DynamicQuantizeLinear": ("Cast", (0,)),
    "QuantizeLinear": ("Cast", (0,)),
    "DequantizeLinear": ("Cast", (0,)),
}
"""Operators on 8-bit integers: the canonical name, and the positions of the tensors among the inputs."""


def read_onnx(path: Path, *, sizes: Mapping[str, int] | None = None, name: str = "") -> Graph:
    """The operators of the model in a file.

    The batch is axis 0 of every input and stays dynamic; every other dynamic axis needs a size, by its name in the
    file (`sizes`, which is `--size AXIS=N` on the command line). Raises BadInput for a file that is not ONNX, is cut
    off, does not fit in memory, has an axis without a size, or has no operators.
    """
    model = _load(path)
    try:
        return _graph(model, path, sizes or {}, name)
    except (LookupError, ArithmeticError, ValueError, TypeError, MemoryError, RecursionError) as error:
        # Its fields contradict each other in one of countless ways, which neither onnx nor this checks beforehand.
        what = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise BadInput(f"{path}: a damaged model ({what}); export the model again") from error


def _graph(model: Any, path: Path, sizes: Mapping[str, int], name: str) -> Graph:
    graph = model.graph
    opset = {_domain(entry.domain): entry.version for entry in model.opset_import}
    for node in graph.node:
        node.domain = _domain(node.domain)
    weights = {tensor.name for tensor in graph.initializer}
    inputs = [given for given in graph.input if given.name not in weights]
    if not graph.node or not inputs:
        raise BadInput(f"{path}: has no operators; export the model again")
    axes = {given.name: _axes(given, path, sizes) for given in inputs}
    _check_inputs(axes, path)
    fixed = next((found[0] for found in axes.values() if found and found[0] > 0), None)
    batches = (fixed, fixed) if fixed else (_BATCH, 2 * _BATCH)
    small, large = (
        Shapes(graph, opset, {name: (batch, *found[1:]) if found else () for name, found in axes.items()})
        for batch in batches
    )
    traced = Traced(
        nodes=[_node(node, index) for index, node in enumerate(graph.node)],
        sizes={key: _item(small.sizes[key], large.sizes.get(key), fixed) for key in small.sizes},
        fixed=weights,
    )
    traced.sizes |= {key: small.sizes[key] for key in weights}
    bounds = _bounds(traced, set(axes))
    return Graph(
        name=name or path.stem,
        inputs=tuple(
            GraphInput(
                name=given.name,
                datatype=_DATATYPES.get(given.type.tensor_type.elem_type, "BYTES"),
                sizes=tuple(axes[given.name][1:]),
                high=bounds.get(given.name),
            )
            for given in inputs
        ),
        operators=operators(traced),
        parameters_bytes=float(sum(_tensor_bytes(tensor) for tensor in graph.initializer)),
        fixed_batch=fixed,
    )


def _load(path: Path) -> Any:
    import onnx  # noqa: PLC0415
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # noqa: PLC0415

    if not path.is_file():
        raise BadInput(f"{path}: no such file; give the path of an ONNX model")
    free, size = free_memory_bytes(), path.stat().st_size
    if size > free:
        raise BadInput(
            f"{path}: the model is larger than memory ({size / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free);"
            " use a machine with more"
        )
    try:
        model = onnx.load(path, load_external_data=False)
    except (DecodeError, ValueError) as error:
        raise BadInput(f"{path}: {_diagnosis(path)}") from error
    if not model.HasField("graph") or model.ir_version == 0:
        raise BadInput(f"{path}: {_diagnosis(path)}")
    try:
        weights_beside(path)
    except Malformed as error:
        raise BadInput(str(error)) from error
    stored = _stored_bytes(model, path)
    if stored > free:
        raise BadInput(
            f"{path}: the model's weights are larger than memory ({stored / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are"
            " free); use a machine with more"
        )
    return model


def _stored_bytes(model: Any, path: Path) -> int:
    try:
        return sum(_tensor_bytes(tensor) for tensor in model.graph.initializer)
    except (KeyError, TypeError) as error:
        raise BadInput(f"{path}: a damaged model (weights of an unknown type); export the model again") from error


_NOT_MODELS = {
    ".gguf": "weights of a language model, not an ONNX file: mlcd init llm.yaml -t llamacpp",
    ".safetensors": "weights without their model, not an ONNX file; export the model with torch.onnx.export, or serve a"
    " language model's folder: mlcd init llm.yaml -t vllm",
    ".py": "a script, not an ONNX file; export the model with torch.onnx.export, or serve a server of your own:"
    " server.run in a job file",
}
"""Suffix of a file that is given instead of a model -> what it is, and what to do with it."""


def _diagnosis(path: Path) -> str:
    """Whether the file is cut off or not ONNX at all, as a message. A model is a list of fields with their lengths."""
    size = path.stat().st_size
    if path.suffix.lower() in _NOT_MODELS:
        return _NOT_MODELS[path.suffix.lower()]
    with path.open("rb") as file:
        if size == 0:
            return "the file is empty; export the model again"
        if file.read(1) != b"\x08":  # ir_version, which every exporter writes first
            return "not an ONNX file; export the model with torch.onnx.export, tf2onnx or the like"
        file.seek(0)
        while (tag := _varint(file)) is not None:
            if tag & 7 == 0:
                _varint(file)
            elif tag & 7 == 2 and (length := _varint(file)) is not None:
                if file.tell() + length > size:
                    missing = file.tell() + length - size
                    return f"the file is cut off: at least {missing} bytes are missing at its end; copy it again"
                file.seek(length, 1)
            else:
                break
    return "not an ONNX file, or a damaged one; export the model again"


def _varint(file: BinaryIO) -> int | None:
    found = shift = 0
    while byte := file.read(1):
        found |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return found
        shift += 7
    return None


def _check_inputs(axes: Mapping[str, tuple[int, ...]], path: Path) -> None:
    """Raises BadInput where one request would not fit in a quarter of the free memory: load tests hold several."""
    numbers = sum(math.prod(size or 1 for size in found) for found in axes.values())
    if 8 * numbers > free_memory_bytes() / 4:
        raise BadInput(f"{path}: one request has {numbers:,} numbers, too many for this machine's memory")


def _axes(given: Any, path: Path, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The sizes of an input; 0 for the batch where it is dynamic."""
    if not given.type.HasField("tensor_type") or not given.type.tensor_type.HasField("shape"):
        raise BadInput(f"{path}: input {given.name} is no tensor, or has no shape; export the model with input shapes")
    found = []
    for axis, dim in enumerate(given.type.tensor_type.shape.dim):
        if dim.HasField("dim_value") and dim.dim_value > 0:
            found.append(dim.dim_value)
        elif axis == 0:
            found.append(0)
        else:
            symbol = dim.dim_param or f"{given.name}.{axis}"
            if symbol not in sizes:
                raise BadInput(
                    f"{path}: input {given.name}: axis {axis} ({symbol}) has no size;"
                    f" give one, e.g. --size {symbol}=128"
                )
            found.append(sizes[symbol])
    return tuple(found)


def _domain(name: str) -> str:
    """The domain's canonical name: ONNX's own domain has two."""
    return "" if name == "ai.onnx" else name


def _item(small: tuple[int, ...], large: tuple[int, ...] | None, fixed: int | None) -> tuple[int, ...]:
    if fixed:
        return small[1:] if small[:1] == (fixed,) else small
    if large is None or len(large) != len(small):
        return small
    return item_sizes(small, large, _BATCH)


def _node(node: Any, index: int) -> TracedNode:
    options: dict[str, list[int]] = {}
    for attribute in node.attribute:
        if attribute.name in _OPTIONS:
            options[_OPTIONS[attribute.name]] = list(attribute.ints) or [attribute.i]
        elif attribute.name == "direction":
            options["directions"] = [2 if attribute.s == b"bidirectional" else 1]
    kind, order = _QUANTISED.get(node.op_type, (node.op_type, ()))
    if kind in ("LSTM", "GRU", "RNN"):
        options.setdefault("directions", [1])
    return TracedNode(
        kind=kind,
        name=node.name or f"{node.op_type}#{index}",
        inputs=tuple(node.input[place] for place in order) or tuple(node.input),
        outputs=tuple(node.output),
        options=options,
    )


def _bounds(traced: Traced, inputs: set[str]) -> dict[str, int]:
    """By input: the number of rows of the smallest table that it indexes."""
    producers = traced.producers()
    found: dict[str, int] = {}
    for node in traced.nodes:
        if node.kind != "Gather" or node.inputs[0] not in traced.fixed:
            continue
        source = node.inputs[1]
        while source in producers and producers[source].kind in VIEWS:
            source = producers[source].inputs[0]
        if source in inputs and traced.sizes.get(node.inputs[0]):
            found[source] = min(found.get(source, 2**31), traced.sizes[node.inputs[0]][0])
    return found


def _tensor_bytes(tensor: Any) -> int:
    from onnx import helper  # noqa: PLC0415

    return int(math.prod(tensor.dims) * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)
