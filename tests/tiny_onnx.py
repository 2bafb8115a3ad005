"""ONNX files for tests: a small, fast network, and files that cannot be served."""

from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

WIDTH = 16


def write_mlp(path: Path, *, width: int = WIDTH) -> Path:
    """Two dense layers with a dynamic batch axis."""
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.standard_normal((width, width)).astype(np.float32), f"w{layer}") for layer in (0, 1)
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["h"], name="first"),
        helper.make_node("Relu", ["h"], ["r"], name="relu"),
        helper.make_node("MatMul", ["r", "w1"], ["y"], name="second"),
    ]
    return _save(path, nodes, weights, ["batch", width])


def write_exported(path: Path, *, width: int = WIDTH) -> Path:
    """A dense layer as PyTorch's exporter writes it: a transposed weight whose shape is noted too."""
    weights = np.random.default_rng(0).standard_normal((2 * width, width)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w"], ["y"], name="dense", transB=1)],
        "exported",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", width])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 2 * width])],
        [numpy_helper.from_array(weights, "w")],
        value_info=[helper.make_tensor_value_info("w", TensorProto.FLOAT, [2 * width, width])],
    )
    path.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    )
    return path


def write_odd(path: Path) -> Path:
    """A network with an unknown operator."""
    return _save(path, [helper.make_node("Frobnicate", ["x"], ["y"], name="odd", domain="example")], [], ["batch", 4])


def write_open(path: Path) -> Path:
    """A network whose second axis is dynamic too."""
    return _save(path, [helper.make_node("Relu", ["x"], ["y"], name="relu")], [], ["batch", "length"])


def _save(path: Path, nodes: list[Any], weights: list[Any], sizes: list[str | int]) -> Path:
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, sizes)],
        weights,
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("example", 1)]
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())
    return path
