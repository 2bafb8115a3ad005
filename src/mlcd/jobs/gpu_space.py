"""The configurations of a server on a GPU of this machine, and the price of each per hour."""

from itertools import product

from mlcd.clouds.gpu_share import WHOLE
from mlcd.clouds.gpu_types import gpu_price
from mlcd.clouds.local import USD_PER_CPU_HOUR, usable_cpus
from mlcd.clouds.serving.local import GPU_SHARE, cores_of
from mlcd.gpus import Gpu, can_share, find_gpus
from mlcd.jobs.choice import check_size
from mlcd.jobs.served_model import ServedModel
from mlcd.server.options import OFFERED, Device, Engine, engine_of
from mlcd.space import Config, Knob, Space, Value
from mlcd.spec.serve import ServeSpec
from mlcd.units import Usd

BATCHES = (1, 4, 16, 64)
SHARES = (12, 25, 50, 100)
"""Percent; about the shares of the shipped tables (16, 32, 64 and 132 of 132 multiprocessors)."""
LOG2_BITS = {"fp32": 5.0, "tf32": 4.25, "bf16": 4.0, "fp16": 4.0, "int8": 3.0}


def gpu_for(spec: ServeSpec, model: ServedModel) -> Gpu | None:
    """The GPU that the model is served on; None: the processors. Raises SpecError where one is asked for in vain."""
    wanted = spec.knobs.gpu_share is not None
    if engine_of(model.path) is Engine.ONNX_RUNTIME and not wanted:
        return None
    found = find_gpus()
    if not found and wanted:
        problem = "this machine has no NVIDIA GPU that its driver tells"
        raise spec.error("knobs.gpu_share", problem, allowed="no gpu_share: then the processors serve")
    if wanted and engine_of(model.path) is Engine.ONNX_RUNTIME and not _onnx_has_cuda():
        problem = "this ONNX Runtime was built without CUDA"
        raise spec.error("knobs.gpu_share", problem, allowed="onnxruntime-gpu in place of onnxruntime, or no gpu_share")
    return found[0] if found else None


def gpu_usd_per_hour(spec: ServeSpec, gpu: Gpu) -> tuple[Usd, str]:
    """(USD per hour of the whole GPU, a note on where that is from): the job's price, else the catalog's lowest."""
    return gpu_price(gpu, spec.resources.prices)


def gpu_work(spec: ServeSpec, model: ServedModel, gpu: Gpu) -> tuple[Space, tuple[Usd, ...], tuple[str, ...]]:
    """The space, the price of each configuration, and notes. Raises SpecError."""
    notes: list[str] = []
    if spec.knobs.threads not in (None, (1,)):
        raise spec.error("knobs.threads", "is for processors; this model is served on a GPU", allowed="no threads")
    shares = spec.knobs.gpu_share or SHARES
    if not can_share():
        if spec.knobs.gpu_share not in (None, (WHOLE,)):
            problem = "shares of a GPU need nvidia-cuda-mps-control, which is not installed"
            raise spec.error("knobs.gpu_share", problem, allowed=f"[{WHOLE}]")
        shares = (WHOLE,)
        notes.append("nvidia-cuda-mps-control is not installed: the whole GPU is the only share")
    batches = (model.batch,) if model.batch is not None else spec.knobs.batch or BATCHES
    if model.batch is not None and spec.knobs.batch not in (None, batches):
        problem = f"the model's batch axis is fixed at {model.batch}"
        raise spec.error("knobs.batch", problem, value=list(spec.knobs.batch or ()), allowed=f"{model.batch}")
    values: dict[str, tuple[Value, ...]] = {
        "batch": batches,
        GPU_SHARE: shares,
        "replicas": spec.knobs.replicas or (1,),
        "precision": offered_precisions(spec, model, Device.CUDA),
        "compile": _compiled(spec, model),
    }
    size = 1
    for each in values.values():
        size *= len(each)
    check_size(spec, "knobs", size, narrow="knobs.batch, gpu_share or precision", most=5000)
    configs = tuple(Config(tuple(zip(values, each, strict=True))) for each in product(*values.values()))
    knobs = tuple(
        Knob(name=name, values=each, features=_features(name, each))
        if name in _CHOICES
        else Knob(name=name, values=each)
        for name, each in values.items()
    )
    whole, note = gpu_usd_per_hour(spec, gpu)
    notes += [note] if note else []
    cpus = len(usable_cpus())
    prices = tuple(_price(spec, whole, int(each[GPU_SHARE]), cores_of(each, cpus)) for each in configs)
    return Space(knobs, configs), prices, tuple(notes)


_CHOICES = ("precision", "compile")


def _features(name: str, values: tuple[Value, ...]) -> dict[Value, tuple[float, ...]]:
    if name == "precision":
        return {value: (LOG2_BITS[str(value)],) for value in values}
    return {value: (float(value == "on"),) for value in values}


def offered_precisions(spec: ServeSpec, model: ServedModel, device: Device) -> tuple[str, ...]:
    """The precisions to choose from. Raises SpecError for one that the engine does not have on this device."""
    engine = engine_of(model.path)
    offered = tuple(precision.value for precision in OFFERED[engine, device])
    for precision in spec.knobs.precision or ():
        if precision not in offered:
            where = "a GPU" if device is Device.CUDA else "processors"
            problem = f"is not what {engine} offers on {where}"
            raise spec.error("knobs.precision", problem, value=precision, allowed=", ".join(offered))
    return spec.knobs.precision or offered


def refuse_gpu_knobs(spec: ServeSpec) -> None:
    """Raises SpecError for what only a model on a GPU can choose."""
    if spec.knobs.gpu_share is not None:
        raise spec.error("knobs.gpu_share", "this model is served on processors", allowed="no gpu_share")
    if spec.knobs.compile not in (None, ("off",)):
        raise spec.error("knobs.compile", "is for PyTorch's files on a GPU", allowed="no compile")


def gpu_share_price(whole: Usd, percent: int, host: Usd) -> Usd:
    """USD per hour of the host's part and so many percent of a GPU."""
    return Usd.of(str(round(host.dollars + whole.dollars * percent / WHOLE, 6)))


def _compiled(spec: ServeSpec, model: ServedModel) -> tuple[str, ...]:
    found = spec.knobs.compile or ("off",)
    if "on" in found and model.path.suffix.lower() != ".pt2":
        raise spec.error("knobs.compile", "torch.compile needs a file of torch.export", allowed="a .pt2 file, or [off]")
    return found


def _price(spec: ServeSpec, whole: Usd, percent: int, cores: int) -> Usd:
    host = spec.resources.prices.get(f"local.{cores}") or Usd.of(str(round(USD_PER_CPU_HOUR * cores, 6)))
    return gpu_share_price(whole, percent, host)


def _onnx_has_cuda() -> bool:
    import onnxruntime  # noqa: PLC0415

    return "CUDAExecutionProvider" in onnxruntime.get_available_providers()
