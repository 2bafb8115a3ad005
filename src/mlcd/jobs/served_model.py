"""The model of a serving job: found, read, run a few times, and its operators listed with their share of the time."""

from dataclasses import dataclass
from pathlib import Path

from mlcd.errors import BadInput
from mlcd.graphs import Graph, read_onnx, time_shares
from mlcd.known import OperatorUse, TargetModel
from mlcd.loadgen import LoadInput
from mlcd.spec.serve import ServeSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A model that can be served here.

    inputs      of one request
    batch       the fixed size of the model's batch axis; None if it is open
    size_bytes  of its weights: about the memory of one copy
    target      its operators, for strategies that know other models
    """

    path: Path
    inputs: tuple[LoadInput, ...]
    batch: int | None
    size_bytes: float
    target: TargetModel


def model_file(spec: ServeSpec) -> Path:
    """The model's file, relative to the job file. Raises SpecError if there is none."""
    path = ((Path(spec.file).parent if spec.file else Path()) / spec.path("model", spec.model)).absolute()
    if not path.is_file():
        problem = "is a folder, not a model" if path.is_dir() else "there is no such file"
        raise spec.error("model", problem, value=spec.model, allowed="an ONNX file, relative to the job file")
    return path


def read_model(spec: ServeSpec) -> ServedModel:
    """The model, read and run with one item. Raises SpecError with the reason if that fails."""
    path = model_file(spec)
    try:
        graph = read_onnx(path, sizes=spec.sizes, name=spec.name)
        target = _target(path, graph)
    except BadInput as error:
        text = str(error).removeprefix(f"{path}: ").replace("e.g. --size", "as sizes in the job file or e.g. --size")
        raise spec.error("model", text, value=spec.model) from error
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
    shares = time_shares(path, graph)
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
