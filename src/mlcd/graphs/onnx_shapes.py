"""The shape of every tensor of an ONNX graph, inferred node by node, with shape arithmetic evaluated.

ONNX's own inference over a whole graph fails where a Reshape's target is computed by nodes that it does not evaluate.
With every size given, such targets are constants, and each node can be inferred by itself.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MAX_EVALUATED = 4096
"""Largest constant that is evaluated, in numbers: shapes and indices are far smaller, weights far larger."""


class Shapes:
    """Types, sizes and small constants of the tensors of one graph, with every input's sizes given."""

    def __init__(self, graph: Any, opset: Mapping[str, int], inputs: Mapping[str, tuple[int, ...]]) -> None:
        """`graph` is an onnx.GraphProto; infers all its nodes."""
        from onnx import numpy_helper  # noqa: PLC0415

        self.values: dict[str, NDArray[Any]] = {}
        self.sizes: dict[str, tuple[int, ...]] = {}
        self.types: dict[str, Any] = {}
        self._opset = opset
        for tensor in graph.initializer:
            self._set(tensor.name, tensor.data_type, tuple(tensor.dims))
            if math.prod(tensor.dims) <= _MAX_EVALUATED and tensor.data_location == 0:
                self.values[tensor.name] = numpy_helper.to_array(tensor)
        for given in graph.input:
            if given.name in inputs:
                self._set(given.name, given.type.tensor_type.elem_type, inputs[given.name])
        for node in graph.node:
            self._follow(node)

    def _set(self, name: str, element: int, sizes: tuple[int, ...]) -> None:
        from onnx import helper  # noqa: PLC0415

        self.types[name] = helper.make_tensor_type_proto(element, sizes)
        self.sizes[name] = sizes

    def _follow(self, node: Any) -> None:
        """Types of the node's outputs, and their values where they are small and all inputs' values are known."""
        self._infer(node)
        if node.op_type == "Shape" and node.input[0] in self.sizes:
            start, end = (_attribute(node, name) for name in ("start", "end"))
            self._hold(node.output[0], np.array(self.sizes[node.input[0]][start or 0 : end], dtype=np.int64))
        elif all(not name or name in self.values for name in node.input):
            self._compute(node)

    def _infer(self, node: Any) -> None:
        from onnx import defs, numpy_helper, shape_inference  # noqa: PLC0415

        given = {name: self.types[name] for name in node.input if name in self.types}
        data = {name: numpy_helper.from_array(self.values[name], name) for name in node.input if name in self.values}
        try:
            schema = defs.get_schema(node.op_type, self._opset.get(node.domain, 1), node.domain)
            found = shape_inference.infer_node_outputs(
                schema, node, given, data, opset_imports=[_opset(domain, v) for domain, v in self._opset.items()]
            )
        except (defs.SchemaError, shape_inference.InferenceError, RuntimeError, ValueError, KeyError):
            found = {}  # a custom operator, or one without inference: assume the type of its first input
        for name in node.output:
            sizes = _sizes(found[name]) if name in found else None
            if sizes is not None:
                self._set(name, found[name].tensor_type.elem_type, sizes)
            elif name and node.input and node.input[0] in self.types and name not in self.types:
                first = self.types[node.input[0]].tensor_type.elem_type
                self._set(name, first, self.sizes[node.input[0]])

    def _compute(self, node: Any) -> None:
        """Run one node of shape arithmetic with ONNX's reference implementation."""
        from onnx import helper  # noqa: PLC0415
        from onnx.reference import ReferenceEvaluator  # noqa: PLC0415

        if any(math.prod(self.sizes.get(name, (_MAX_EVALUATED + 1,))) > _MAX_EVALUATED for name in node.output if name):
            return
        feeds = {name: self.values[name] for name in node.input if name}
        inputs = [helper.make_value_info(name, self.types[name]) for name in feeds]
        outputs = [helper.make_value_info(name, self.types[name]) for name in node.output if name in self.types]
        graph = helper.make_graph([node], "one", inputs, outputs)
        model = helper.make_model(graph, opset_imports=[_opset(domain, v) for domain, v in self._opset.items()])
        try:
            found = ReferenceEvaluator(model).run(None, feeds)
        except (NotImplementedError, RuntimeError, TypeError, ValueError, IndexError, KeyError):
            return  # no reference implementation: later sizes are inferred as far as possible
        for value, info in zip(found, outputs, strict=True):
            if isinstance(value, np.ndarray | np.generic):
                self._hold(info.name, np.asarray(value))

    def _hold(self, name: str, value: NDArray[Any]) -> None:
        from onnx import helper  # noqa: PLC0415

        self.values[name] = value
        self._set(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)


def _opset(domain: str, version: int) -> Any:
    from onnx import helper  # noqa: PLC0415

    return helper.make_opsetid(domain, version)


def _sizes(type_proto: Any) -> tuple[int, ...] | None:
    if not type_proto.HasField("tensor_type") or not type_proto.tensor_type.HasField("shape"):
        return None
    dims = type_proto.tensor_type.shape.dim
    return tuple(dim.dim_value for dim in dims) if all(dim.HasField("dim_value") for dim in dims) else None


def _attribute(node: Any, name: str) -> int | None:
    return next((int(attribute.i) for attribute in node.attribute if attribute.name == name), None)
