"""The model of a serving job: found, read, run once, and its operators listed."""

from dataclasses import dataclass
from pathlib import Path

from mlcd.errors import BadInput
from mlcd.known import Target
from mlcd.load import LoadInput
from mlcd.spec.serve import ServeSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A model that can be served here.

    inputs      of one request
    batch       the size that the model's batch axis is fixed at; None where it is open
    size_bytes  of its file: about what a copy of it takes in memory
    target      its operators, for strategies that know other models
    """

    path: Path
    inputs: tuple[LoadInput, ...]
    batch: int | None
    size_bytes: int
    target: Target | None


def model_file(spec: ServeSpec) -> Path:
    """The model's file, seen from the job file's own folder. Raises SpecError where there is none."""
    path = ((Path(spec.file).parent if spec.file else Path()) / Path(spec.model).expanduser()).absolute()
    if not path.is_file():
        problem = "is a folder, not a model" if path.is_dir() else "there is no such file"
        raise spec.error(
            "model", problem, value=spec.model, allowed="an ONNX file, seen from the job file's own folder"
        )
    return path


def read_model(spec: ServeSpec) -> ServedModel:
    """The model, loaded and run once with one item. Raises SpecError with the runtime's reason where that fails."""
    path = model_file(spec)
    try:
        return _read(spec, path)
    except BadInput as error:
        text = str(error).removeprefix(f"{path}: ").replace("--size ", "sizes in the job file or --size ")
        raise spec.error("model", text, value=spec.model) from error


def _read(spec: ServeSpec, path: Path) -> ServedModel:
    from mlcd.server.model import Model  # noqa: PLC0415 - ONNX Runtime is loaded for those who serve
    from mlcd.server.options import ServerOptions  # noqa: PLC0415

    batch = min(spec.knobs.batch or (1,))
    model = Model(ServerOptions(model=path, batch=batch, sizes=spec.sizes))
    fixed = {tensor.shape[0] for tensor in model.inputs} - {-1}
    return ServedModel(
        path=path,
        inputs=tuple(
            LoadInput(name=tensor.name, datatype=tensor.datatype, shape=(1, *model.item_shape(tensor)))
            for tensor in model.inputs
        ),
        batch=fixed.pop() if fixed else None,
        size_bytes=path.stat().st_size,
        target=_target(),
    )


def _target() -> Target | None:
    return None
