"""The model of a serving job: found, read, run a few times, and its operators listed with their share of the time."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mlcd.errors import BadInput
from mlcd.graphs import Graph, Operator, read_onnx, read_pt2, time_shares
from mlcd.known import OperatorUse, TargetModel
from mlcd.loadgen import LoadInput
from mlcd.server.options import SCRIPTED, Engine, engine_of
from mlcd.spec.serve import ServeSpec
from mlcd.untrusted import Malformed, entries


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A model that can be served here.

    inputs      of one request
    batch       the fixed size of the model's batch axis; None if it is open
    size_bytes  of its weights: about the memory of one copy
    target      its operators, for strategies that know other models; None where the file does not tell them
    """

    path: Path
    inputs: tuple[LoadInput, ...]
    batch: int | None
    size_bytes: float
    target: TargetModel | None


def model_file(spec: ServeSpec) -> Path:
    """The model's file, relative to the job file. Raises SpecError if there is none."""
    path = ((Path(spec.file).parent if spec.file else Path()) / spec.path("model", spec.model)).absolute()
    if not path.is_file():
        problem = "is a folder, not a model" if path.is_dir() else "there is no such file"
        allowed = "an ONNX, .pt2 or .pt file, relative to the job file"
        if path.suffix not in {".onnx", ".pt2", ".pt"}:
            allowed += "; a language model by its name: `mlcd init llm.yaml -t vllm`"
        raise spec.error("model", problem, value=spec.model, allowed=allowed)
    return path


def read_model(spec: ServeSpec) -> ServedModel:
    """The model, read and run with one item. Raises SpecError with the reason if that fails."""
    path = model_file(spec)
    if engine_of(path) is Engine.PYTORCH:
        return read_torch_model(spec, path)
    try:
        graph = read_onnx(path, sizes=spec.sizes, name=spec.name)
        target = _target(path, graph)
    except BadInput as error:
        text = str(error).removeprefix(f"{path}: ").replace("e.g. --size", "as sizes in the job file or e.g. --size")
        raise spec.error("model", text, value=spec.model) from error
    return _served(path, graph, target)


def is_scripted(path: Path) -> bool:
    """Whether the file is an archive of TorchScript: those have code, checkpoints do not."""
    try:
        return any("/code/" in name for name in entries(path))
    except (OSError, Malformed):
        return False


def read_torch_model(spec: ServeSpec, path: Path) -> ServedModel:
    """A file of PyTorch, read and not run. Raises SpecError with the reason if that fails."""
    if path.suffix.lower() in SCRIPTED:
        if not is_scripted(path):
            problem = "not a TorchScript file; a checkpoint has no model: load it, then torch.export.save the model"
            raise spec.error("model", problem, value=spec.model, allowed="torch.export (.pt2), TorchScript or ONNX")
        if not spec.inputs:
            problem = "TorchScript does not tell its inputs"
            raise spec.error("inputs", problem, allowed="inputs: {image: FP32:3x224x224}, in the model's order")
        inputs = tuple(
            LoadInput(name=given.name, datatype=given.datatype, shape=(1, *given.shape[1:])) for given in spec.inputs
        )
        return ServedModel(path=path, inputs=inputs, batch=None, size_bytes=float(path.stat().st_size), target=None)
    try:
        graph = read_pt2(path, sizes=spec.sizes, name=spec.name)
    except BadInput as error:
        raise spec.error("model", str(error).removeprefix(f"{path}: "), value=spec.model) from error
    seconds = {operator: _gpu_seconds(operator) for operator in graph.operators}
    total = sum(seconds.values()) or 1.0
    return _served(path, graph, _uses(graph, {operator: spent / total for operator, spent in seconds.items()}))


_GPU_FLOPS, _GPU_BYTES, _GPU_CALL_SECONDS = 4e14, 3e12, 2e-6
"""What large operators reach on an H200, a second, and what the smallest call takes (benchmarks/serve_device.md): for
shares of a model's time before it has run. Only their ratios count."""


def _gpu_seconds(operator: Operator) -> float:
    return max(operator.flops / _GPU_FLOPS, operator.bytes / _GPU_BYTES, _GPU_CALL_SECONDS * operator.count)


def _served(path: Path, graph: Graph, target: TargetModel) -> ServedModel:
    return ServedModel(
        path=path,
        inputs=tuple(
            LoadInput(
                name=given.name,
                datatype=given.datatype,
                shape=(graph.fixed_batch or 1, *given.sizes),
                high=given.high or 2,
            )
            for given in graph.inputs
        ),
        batch=graph.fixed_batch,
        size_bytes=max(graph.parameters_bytes, float(path.stat().st_size)),
        target=target,
    )


def _target(path: Path, graph: Graph) -> TargetModel:
    return _uses(graph, time_shares(path, graph))


def _uses(graph: Graph, shares: Mapping[Operator, float]) -> TargetModel:
    return TargetModel(
        name=graph.name,
        operators=tuple(
            OperatorUse(
                operator=operator.name,
                shape=operator.shape,
                count=operator.count,
                share=min(share, 1.0),
                flops=operator.flops,
                bytes=operator.bytes,
            )
            for operator, share in shares.items()
        ),
    )
