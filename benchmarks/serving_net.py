"""A builder of ONNX graphs with random but reproducible weights: one method per layer."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
IR_VERSION = 8


@dataclass
class Net:
    """A graph under construction. Methods add nodes and return the name of their output."""

    name: str
    nodes: list[Any] = field(default_factory=list)
    weights: list[Any] = field(default_factory=list)
    inputs: list[Any] = field(default_factory=list)
    channels: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        seed = int.from_bytes(hashlib.sha256(self.name.encode()).digest()[:8], "big")
        self.rng = np.random.default_rng(seed)

    def input(self, name: str, *sizes: int, integer: bool = False) -> str:
        kind = TensorProto.INT64 if integer else TensorProto.FLOAT
        self.inputs.append(helper.make_tensor_value_info(name, kind, ["batch", *sizes]))
        self.channels[name] = sizes[0]
        return name

    def constant(self, values: NDArray[Any]) -> str:
        name = f"weight_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def weight(self, *sizes: int, fan_in: int) -> str:
        return self.constant((self.rng.standard_normal(sizes) * np.sqrt(1.5 / fan_in)).astype(np.float32))

    def shape(self, *sizes: int) -> str:
        return self.constant(np.array(sizes, dtype=np.int64))

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        out = f"{kind.lower()}_{len(self.nodes)}"
        names = [out] if outputs == 1 else [f"{out}_{index}" for index in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, name=out, **attributes))
        return names[-1]

    def conv(
        self,
        x: str,
        filters: int,
        kernel: int = 3,
        *,
        stride: int = 1,
        groups: int = 1,
        norm: bool = True,
        act: str = "Relu",
    ) -> str:
        inside = self.channels[x] // groups
        w = self.weight(filters, inside, kernel, kernel, fan_in=inside * kernel * kernel)
        pad = kernel // 2
        x = self.op("Conv", x, w, self.zeros(filters), strides=[stride, stride], pads=[pad] * 4, group=groups)
        if norm:
            x = self.op(
                "BatchNormalization",
                x,
                self.ones(filters),
                self.zeros(filters),
                self.zeros(filters),
                self.ones(filters),
            )
        x = self.activate(x, act)
        self.channels[x] = filters
        return x

    def activate(self, x: str, act: str) -> str:
        if act == "Swish":
            return self.op("Mul", x, self.op("Sigmoid", x))
        return self.op(act, x) if act else x

    def zeros(self, size: int) -> str:
        return self.constant(np.zeros(size, dtype=np.float32))

    def ones(self, size: int) -> str:
        return self.constant(np.ones(size, dtype=np.float32))

    def add(self, x: str, y: str) -> str:
        out = self.op("Add", x, y)
        self.channels[out] = self.channels[x]
        return out

    def concat(self, *parts: str) -> str:
        out = self.op("Concat", *parts, axis=1)
        self.channels[out] = sum(self.channels[part] for part in parts)
        return out

    def pool(self, x: str, kernel: int = 2, *, stride: int = 2, kind: str = "MaxPool") -> str:
        pad = (kernel - 1) // 2
        out = self.op(kind, x, kernel_shape=[kernel, kernel], strides=[stride, stride], pads=[pad] * 4)
        self.channels[out] = self.channels[x]
        return out

    def head(self, x: str, classes: int) -> str:
        flat = self.op("Flatten", self.op("GlobalAveragePool", x), axis=1)
        return self.dense(flat, self.channels[x], classes)

    def dense(self, x: str, inside: int, outside: int, act: str = "") -> str:
        w = self.weight(inside, outside, fan_in=inside)
        return self.activate(self.op("Gemm", x, w, self.zeros(outside)), act)

    def rows(self, x: str, inside: int, outside: int) -> str:
        """A dense layer over the last axis of a sequence."""
        return self.op("Add", self.op("MatMul", x, self.weight(inside, outside, fan_in=inside)), self.zeros(outside))

    def embed(self, ids: str, rows: int, width: int) -> str:
        return self.op("Gather", self.weight(rows, width, fan_in=width), ids, axis=0)

    def layer_norm(self, x: str, width: int) -> str:
        return self.op("LayerNormalization", x, self.ones(width), self.zeros(width), axis=-1)

    def gelu(self, x: str) -> str:
        half, one, root = (self.constant(np.array(v, dtype=np.float32)) for v in (0.5, 1.0, np.sqrt(2)))
        inner = self.op("Add", self.op("Erf", self.op("Div", x, root)), one)
        return self.op("Mul", self.op("Mul", x, inner), half)

    def attention(self, x: str, width: int, heads: int, length: int) -> str:
        def split(part: str, order: list[int]) -> str:
            return self.op(
                "Transpose", self.op("Reshape", part, self.shape(0, length, heads, width // heads)), perm=order
            )

        q = split(self.rows(x, width, width), [0, 2, 1, 3])
        k = split(self.rows(x, width, width), [0, 2, 3, 1])
        v = split(self.rows(x, width, width), [0, 2, 1, 3])
        scale = self.constant(np.array(np.sqrt(width / heads), dtype=np.float32))
        weights = self.op("Softmax", self.op("Div", self.op("MatMul", q, k), scale), axis=-1)
        mixed = self.op("Transpose", self.op("MatMul", weights, v), perm=[0, 2, 1, 3])
        return self.rows(self.op("Reshape", mixed, self.shape(0, length, width)), width, width)

    def encoder(self, x: str, width: int, heads: int, length: int, layers: int) -> str:
        for _ in range(layers):
            x = self.layer_norm(self.op("Add", x, self.attention(x, width, heads, length)), width)
            inner = self.gelu(self.rows(x, width, 4 * width))
            x = self.layer_norm(self.op("Add", x, self.rows(inner, 4 * width, width)), width)
        return x

    def recurrent(self, x: str, kind: str, inside: int, hidden: int) -> str:
        """An LSTM or GRU over a batch of sequences: (batch, time, inside) to (batch, time, hidden)."""
        gates = {"LSTM": 4, "GRU": 3}[kind]
        steps = self.op("Transpose", x, perm=[1, 0, 2])
        w, r = (
            self.weight(1, gates * hidden, inside, fan_in=inside),
            self.weight(1, gates * hidden, hidden, fan_in=hidden),
        )
        bias = self.constant(np.zeros((1, 2 * gates * hidden), dtype=np.float32))
        out = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, [steps, w, r, bias], [out], name=out, hidden_size=hidden))
        return self.op("Transpose", self.op("Squeeze", out, self.shape(1)), perm=[1, 0, 2])

    def mean(self, x: str, axis: int) -> str:
        return self.op("ReduceMean", x, axes=[axis], keepdims=0)

    def save(self, folder: Path, output: str, *sizes: int) -> Path:
        self.nodes.append(helper.make_node("Identity", [output], ["output"], name="output"))
        found = helper.make_tensor_value_info("output", TensorProto.FLOAT, ["batch", *sizes])
        graph = helper.make_graph(self.nodes, self.name, self.inputs, [found], self.weights)
        opset = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=IR_VERSION, producer_name="mlcd")
        onnx.checker.check_model(model)
        path = folder / f"{self.name}.onnx"
        path.write_bytes(model.SerializeToString(deterministic=True))
        return path
