"""How a model is served: what a user chooses, and what `mlcd serve` searches over."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

from mlcd.errors import BadInput
from mlcd.server.limits import Limits
from mlcd.server.tensors import TensorSpec, input_text


class Precision(StrEnum):
    """The arithmetic of a model.

    fp32        as the file has it
    int8        weights as 8-bit integers, by ONNX Runtime's dynamic quantisation
    tf32        products in tensor cores with a 10-bit mantissa, on a GPU
    bf16, fp16  weights and products in 16 bits, in PyTorch
    """

    FP32 = "fp32"
    INT8 = "int8"
    TF32 = "tf32"
    BF16 = "bf16"
    FP16 = "fp16"


class Device(StrEnum):
    """What runs the model: this machine's processors, or the first GPU that CUDA_VISIBLE_DEVICES leaves."""

    CPU = "cpu"
    CUDA = "cuda"


class Engine(StrEnum):
    """What reads and runs the file."""

    ONNX_RUNTIME = "onnxruntime"
    PYTORCH = "pytorch"


EXPORTED, SCRIPTED = (".pt2",), (".pt", ".ts", ".torchscript")
"""Suffixes of files by torch.export and by TorchScript."""
OFFERED = {
    (Engine.ONNX_RUNTIME, Device.CPU): (Precision.FP32, Precision.INT8),
    (Engine.ONNX_RUNTIME, Device.CUDA): (Precision.FP32, Precision.TF32),
    (Engine.PYTORCH, Device.CPU): (Precision.FP32, Precision.BF16),
    (Engine.PYTORCH, Device.CUDA): (Precision.FP32, Precision.TF32, Precision.BF16, Precision.FP16),
}
"""The precisions of each engine: ONNX Runtime does not quantise for GPUs, PyTorch is slow in fp16 on processors."""


def engine_of(model: Path) -> Engine:
    """The engine of a file, by its suffix; ONNX Runtime for every other suffix."""
    return Engine.PYTORCH if model.suffix.lower() in (*EXPORTED, *SCRIPTED) else Engine.ONNX_RUNTIME


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """One way to serve a model. Raises BadInput for values out of range.

    batch          the most items in one batch; requests wait for each other up to `delay_seconds`
    threads        of one run of the model (ONNX Runtime's or PyTorch's intra-op threads)
    replicas       batches that run at the same time
    device         what runs the model
    compiled       whether PyTorch compiles the model (torch.compile) before the server is ready
    inputs         of one item, for TorchScript files, which do not have them; axis 0 is the batch
    cpus           the processors the server may use; empty: all that are available to it
    sizes          of dynamic axes other than the batch, by name: the server warms up with them
    queue          requests that may wait; one more is answered 503
    request_bytes  the longest body that is accepted; a longer one is answered 413
    name           of the model in the URL; "" is the file's name without its suffix
    limits         on what clients may take of the server
    allowed_hosts  names besides localhost that clients may call a server that listens on loopback, as behind a proxy
    cache          where quantised models are kept; None is $MLCD_HOME/quantised, else ~/.mlcd/quantised
    """

    model: Path
    name: str = ""
    batch: int = 1
    threads: int = 1
    replicas: int = 1
    precision: Precision = Precision.FP32
    device: Device = Device.CPU
    compiled: bool = False
    inputs: tuple[TensorSpec, ...] = ()
    delay_seconds: float = 0.001
    host: str = "127.0.0.1"
    port: int = 0
    cpus: tuple[int, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    queue: int = 4096
    request_bytes: int = 64 * 2**20
    limits: Limits = field(default_factory=Limits)
    allowed_hosts: tuple[str, ...] = ()
    cache: Path | None = None

    def __post_init__(self) -> None:
        for option in ("batch", "threads", "replicas", "queue", "request_bytes"):
            if getattr(self, option) < 1:
                raise BadInput(f"--{option.replace('_', '-')}: must be 1 or more (got {getattr(self, option)})")
        if not 0 <= self.delay_seconds <= 10:
            raise BadInput(f"--delay-ms: must lie between 0 and 10000 (got {self.delay_seconds * 1000:g})")
        if not 0 <= self.port <= 65535:
            raise BadInput(f"--port: must lie between 0 and 65535, where 0 chooses a free one (got {self.port})")
        if any(size < 1 for size in self.sizes.values()):
            raise BadInput("--size: a size must be 1 or more")
        if self.request_bytes > self.limits.in_flight_bytes:
            raise BadInput(
                f"--in-flight-bytes: must be --request-bytes or more (got {self.limits.in_flight_bytes}, which is less"
                f" than {self.request_bytes})"
            )
        if "/" in self.model_name:
            raise BadInput(f"--name: must not contain a slash (got {self.name!r})")
        if self.precision not in (offered := OFFERED[self.engine, self.device]):
            allowed = ", ".join(offered)
            raise BadInput(f"--precision: {self.engine} on {self.device} has {allowed} (got {self.precision})")
        if self.compiled and self.engine is not Engine.PYTORCH:
            raise BadInput(f"--compile: for PyTorch's files alone ({', '.join((*EXPORTED, *SCRIPTED))})")

    @property
    def engine(self) -> Engine:
        """What reads and runs the file."""
        return engine_of(self.model)

    @property
    def model_name(self) -> str:
        """The model's name in the URL."""
        return self.name or self.model.stem

    def arguments(self) -> list[str]:
        """The equivalent command line of `python -m mlcd.server`."""
        found = [str(self.model), "--name", self.model_name, "--batch", str(self.batch), "--threads", str(self.threads)]
        found += ["--replicas", str(self.replicas), "--precision", self.precision.value]
        found += ["--device", self.device.value, *(["--compile"] if self.compiled else [])]
        for spec in self.inputs:
            found += ["--input", input_text(spec)]
        found += ["--delay-ms", f"{self.delay_seconds * 1000:g}", "--host", self.host, "--port", str(self.port)]
        found += ["--queue", str(self.queue), "--request-bytes", str(self.request_bytes), *self.limits.arguments()]
        for name in self.allowed_hosts:
            found += ["--allow-host", name]
        if self.cpus:
            found += ["--cpus", ",".join(str(cpu) for cpu in self.cpus)]
        for axis, size in self.sizes.items():
            found += ["--size", f"{axis}={size}"]
        return found + (["--cache", str(self.cache)] if self.cache else [])
