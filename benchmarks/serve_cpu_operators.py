"""One call of an operator as a separate model, and the seconds that ONNX Runtime takes for a batch of it."""

import os
import statistics
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper

from mlcd.graphs import Graph, Operator, read_onnx, time_shares
from mlcd.loadgen import split_cores
from mlcd.server.quantise import quantised

COVER = 0.97
"""The operators that make up this share of a model's time are measured on their own."""
QUANTISED = ("Conv", "Gemm", "MatMul", "Gather", "LSTM", "Attention", "ConvTranspose")
"""Operators that 8-bit weights change; the others are the same in both precisions."""
LEAST_RUNS = 3
_PROBES = (3, 5)


@dataclass(frozen=True, kw_only=True)
class Timed:
    """Seconds of a batch, with every replica busy."""

    seconds: float
    runs: int


class Runner:
    """A model in ONNX Runtime as the server has it: one session for replicas of one thread, else one each."""

    def __init__(self, path: Path, *, threads: int, replicas: int) -> None:
        self.cpus = split_cores(threads * replicas).server
        os.sched_setaffinity(0, self.cpus)
        self.replicas = replicas
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        count = 1 if threads == 1 else replicas
        self.sessions = [
            onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]) for _ in range(count)
        ]

    def time(self, feeds: dict[str, Any], *, seconds: float) -> Timed:
        """Run for about `seconds`; the median of all batches of all replicas, without the first two.

        A mean would include stalls from other load on the machine.
        """
        spent: list[list[float]] = [[] for _ in range(self.replicas)]

        def work(replica: int) -> None:
            session = self.sessions[replica % len(self.sessions)]
            for _ in range(2):
                session.run(None, feeds)
            until = time.perf_counter() + seconds
            while len(spent[replica]) < LEAST_RUNS or time.perf_counter() < until:
                begun = time.perf_counter()
                session.run(None, feeds)
                spent[replica].append(time.perf_counter() - begun)

        others = [threading.Thread(target=work, args=(replica,)) for replica in range(1, self.replicas)]
        for thread in others:
            thread.start()
        work(0)
        for thread in others:
            thread.join()
        every = [taken for some in spent for taken in some]
        return Timed(seconds=statistics.median(every), runs=len(every))


def feeds_of(graph: Graph, batch: int) -> dict[str, Any]:
    """Random numbers for a batch of a whole model."""
    rng = np.random.default_rng(0)
    found = {}
    for given in graph.inputs:
        shape = (batch, *given.sizes)
        if given.datatype == "FP32":
            found[given.name] = rng.standard_normal(shape).astype(np.float32)
        else:
            found[given.name] = rng.integers(0, given.high or 2, size=shape).astype(given.datatype.lower())
    return found


@dataclass(frozen=True, kw_only=True)
class Single:
    """One call of an operator as a model.

    inputs  by name: its type, its sizes, and which axis is the batch (None: it has none)
    """

    operator: Operator
    path: Path
    inputs: dict[str, tuple[Any, tuple[int, ...], int | None]]

    def feeds(self, batch: int) -> dict[str, Any]:
        """Random numbers for a batch."""
        rng, found = np.random.default_rng(0), {}
        for name, (kind, sizes, axis) in self.inputs.items():
            shape = [batch if at == axis else size for at, size in enumerate(sizes)]
            whole = np.issubdtype(kind, np.integer)
            found[name] = (rng.integers(0, 2, size=shape) if whole else rng.standard_normal(shape)).astype(kind)
        return found


def key_operators(path: Path) -> tuple[Graph, dict[Operator, float]]:
    """The model's graph, and its operators with their shares of the time."""
    graph = read_onnx(path)
    return graph, time_shares(path, graph, runs=10)


def covering(shares: dict[Operator, float]) -> list[Operator]:
    """The fewest operators that make up COVER of the time."""
    found, total = [], 0.0
    for operator in sorted(shares, key=lambda each: -shares[each]):
        if total >= COVER:
            break
        found.append(operator)
        total += shares[operator]
    return found


def singles(path: Path, graph: Graph, wanted: list[Operator], folder: Path) -> list[Single]:
    """Each wanted operator of the model as a separate file; skips those that cannot be extracted."""
    model = onnx.load(path)
    by_name = {node.name: node for node in model.graph.node}
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    cuts = {}
    for operator in wanted:
        one = operator.nodes[: max(len(operator.nodes) // operator.count, 1)]
        nodes = [node for node in model.graph.node if node.name in one and node.name in by_name]
        made = {name for node in nodes for name in node.output}
        inside = {name for node in nodes for name in node.input}
        given = sorted(name for name in inside - made if name and name not in weights)
        outputs = sorted(made - inside) or sorted(made)
        if nodes and given:
            cuts[operator] = (nodes, given, outputs, [weights[name] for name in sorted(inside) if name in weights])
    tensors = sorted({name for _, given, _, _ in cuts.values() for name in given})
    seen = _sizes(model, graph, tensors)
    found: list[Single] = []
    for operator, (nodes, given, outputs, held) in cuts.items():
        if any(name not in seen for name in given):
            continue
        inputs = {name: seen[name] for name in given}
        target = folder / f"{path.stem}-{len(found)}-{operator.name}.onnx"
        _write(target, model, nodes, inputs, outputs, held)
        found.append(Single(operator=operator, path=target, inputs=inputs))
    return found


def _sizes(model: Any, graph: Graph, tensors: list[str]) -> dict[str, tuple[Any, tuple[int, ...], int | None]]:
    """By running the model with two batches: a tensor's type and sizes, and the axis that grew."""
    own = {given.name for given in graph.inputs}
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    probe.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in tensors if name not in own)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(probe.SerializeToString(), options, providers=["CPUExecutionProvider"])
    asked = [name for name in tensors if name not in own]
    looks = []
    for batch in _PROBES:
        feeds = feeds_of(graph, batch)
        values = dict(zip(asked, session.run(asked, feeds), strict=True)) if asked else {}
        looks.append({**feeds, **values})
    found = {}
    for name in tensors:
        small, large = looks[0][name], looks[1][name]
        grown = [axis for axis, (a, b) in enumerate(zip(small.shape, large.shape, strict=True)) if a != b]
        if len(grown) <= 1:
            found[name] = (small.dtype, tuple(small.shape), grown[0] if grown else None)
    return found


def _write(target: Path, model: Any, nodes: list[Any], inputs: Any, outputs: list[str], held: list[Any]) -> None:
    given = [
        helper.make_tensor_value_info(
            name,
            helper.np_dtype_to_tensor_dtype(kind),
            ["batch" if at == axis else size for at, size in enumerate(sizes)],
        )
        for name, (kind, sizes, axis) in inputs.items()
    ]
    made = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph(nodes, "single", given, made, held)
    inferred = onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    )
    target.write_bytes(inferred.SerializeToString())


def in_precision(path: Path, precision: str, cache: Path) -> Path:
    """The file of a model in a precision."""
    return path if precision == "fp32" else quantised(path, cache)
