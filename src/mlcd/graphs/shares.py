"""Where the time goes: ONNX Runtime's own profile of the model on this CPU."""

import json
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from mlcd.errors import BadInput
from mlcd.graphs.grammar import fields
from mlcd.graphs.graph import Graph, GraphInput, Operator

_NUMPY = {"FP32": "float32", "FP64": "float64", "FP16": "float16", "BOOL": "bool"}
_PARTS = {
    "FusedConv": "Conv",
    "NhwcFusedConv": "Conv",
    "FusedGemm": "Gemm",
    "FusedMatMul": "MatMul",
    "MatMulNBits": "Gemm",
    "BiasGelu": "Gelu",
    "FastGelu": "Gelu",
    "QuickGelu": "Swish",
    "SkipLayerNormalization": "LayerNormalization",
    "ReorderInput": "Conv",
    "ReorderOutput": "Conv",
}
"""ONNX Runtime's names for the nodes that it creates, and the operator whose work they do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    """A node of ONNX Runtime's optimised graph, and its seconds in one run."""

    node: str
    kind: str
    sizes: tuple[int, ...]
    seconds: float


def time_shares(path: Path, graph: Graph, *, batch: int = 1, threads: int = 1, runs: int = 5) -> dict[Operator, float]:
    """The share of the model's running time that each operator takes; they add up to 1.

    The model runs `runs` times after two warm-up runs. A node's time counts for the operator that it represents; that
    of nodes that ONNX Runtime fused counts for the operators of that kind, in proportion to their work. Time in views
    and shape arithmetic is ignored. Raises BadInput where the model does not run.
    """
    seconds = dict.fromkeys(graph.operators, 0.0)
    owners = {node: operator for operator in graph.operators for node in operator.nodes}
    for event in _profile(path, graph.inputs, graph.fixed_batch or batch, threads, runs):
        mine = [owners[event.node]] if event.node in owners else _alike(event, graph.operators)
        work = sum(_work(operator) for operator in mine)
        for operator in mine:
            seconds[operator] += event.seconds * _work(operator) / work
    total = sum(seconds.values())
    if total <= 0:
        raise BadInput(f"{path}: ONNX Runtime's profile has no time in any operator of the model")
    return {operator: spent / total for operator, spent in seconds.items()}


def _alike(event: _Event, operators: Sequence[Operator]) -> list[Operator]:
    """The operators that a node created by ONNX Runtime may represent: of its kind and, if possible, of its size."""
    kind = _PARTS.get(event.kind, event.kind)
    found = [operator for operator in operators if operator.name == kind]
    if kind == "MatMul" and not found:
        found = [operator for operator in operators if operator.name in ("Gemm", "Attention")]
    if kind in ("Conv", "ConvTranspose"):
        return [each for each in found if tuple(fields(each.shape)[1]) == event.sizes] or found
    return found


def _work(operator: Operator) -> float:
    """Proportional to the seconds on a processor that computes ten FLOPs while it moves one byte."""
    return max(operator.flops, 10 * operator.bytes, 1.0)


def _profile(path: Path, inputs: tuple[GraphInput, ...], batch: int, threads: int, runs: int) -> list[_Event]:
    import onnxruntime  # noqa: PLC0415
    from onnxruntime.capi import onnxruntime_pybind11_state as state  # noqa: PLC0415

    feeds = {given.name: _numbers(given, batch) for given in inputs}
    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 4  # errors are raised; logging would repeat them
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder) / "profile")
        try:
            session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
            for _ in range(2 + runs):
                session.run(None, feeds)
        except (
            state.EPFail,
            state.EngineError,
            state.Fail,
            state.InvalidArgument,
            state.InvalidGraph,
            state.InvalidProtobuf,
            state.NoModel,
            state.NoSuchFile,
            state.NotImplemented,
            state.RuntimeException,
            RuntimeError,
            ValueError,
        ) as error:
            raise BadInput(f"{path}: does not run: {_first_line(error)}") from error
        return _events(json.loads(Path(session.end_profiling()).read_text()))


def _first_line(error: Exception) -> str:
    """ONNX Runtime's message, without its codes and the file's name, which our message already has."""
    first = next(iter(str(error).strip().splitlines()), type(error).__name__)
    first = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", first)
    first = re.sub(r"^Load model from .*? failed: ?(Fatal error: )?", "", first)
    unknown = re.match(r"(?P<name>\S+?)\(-?\d+\) is not a registered function/op", first)
    return f"ONNX Runtime has no operator {unknown['name']}" if unknown else first


def _events(profile: list[dict[str, Any]]) -> list[_Event]:
    """One per node, with the median of its times without the warm-up runs; a median is robust to other load."""
    times: dict[str, list[float]] = {}
    about: dict[str, dict[str, Any]] = {}
    for event in profile:
        name = str(event.get("name", ""))
        if event.get("cat") == "Node" and name.endswith("_kernel_time"):
            times.setdefault(name, []).append(float(event["dur"]) / 1e6)
            about[name] = event.get("args", {})
    return [
        _Event(
            node=name.removesuffix("_kernel_time"),
            kind=str(about[name].get("op_name", "")),
            sizes=_output_sizes(about[name]),
            seconds=median(spent[2:] or spent),
        )
        for name, spent in times.items()
    ]


def _output_sizes(about: dict[str, Any]) -> tuple[int, ...]:
    """Sizes of one item: without the first axis."""
    for tensor in about.get("output_type_shape", ()):
        for sizes in tensor.values():
            return tuple(sizes[1:])
    return ()


def _numbers(given: GraphInput, batch: int) -> Any:
    import numpy as np  # noqa: PLC0415

    rng, shape = np.random.default_rng(0), (batch, *given.sizes)
    if given.datatype in _NUMPY:
        return rng.standard_normal(shape).astype(_NUMPY[given.datatype])
    return rng.integers(0, given.high or 2, size=shape).astype(given.datatype.lower())
