"""How a model is served: what a user chooses, and what `mlcd serve` searches over."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

from mlcd.errors import BadInput
from mlcd.server.limits import Limits


class Precision(StrEnum):
    """The arithmetic of the weights: as the file has them, or 8-bit integers by dynamic quantisation."""

    FP32 = "fp32"
    INT8 = "int8"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """One way to serve a model. Raises BadInput for values out of range.

    batch          the most items in one batch; requests wait for each other up to `delay_seconds`
    threads        of one run of the model (ONNX Runtime's intra-op threads)
    replicas       batches that run at the same time
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

    @property
    def model_name(self) -> str:
        """The model's name in the URL."""
        return self.name or self.model.stem

    def arguments(self) -> list[str]:
        """The equivalent command line of `python -m mlcd.server`."""
        found = [str(self.model), "--name", self.model_name, "--batch", str(self.batch), "--threads", str(self.threads)]
        found += ["--replicas", str(self.replicas), "--precision", self.precision.value]
        found += ["--delay-ms", f"{self.delay_seconds * 1000:g}", "--host", self.host, "--port", str(self.port)]
        found += ["--queue", str(self.queue), "--request-bytes", str(self.request_bytes), *self.limits.arguments()]
        for name in self.allowed_hosts:
            found += ["--allow-host", name]
        if self.cpus:
            found += ["--cpus", ",".join(str(cpu) for cpu in self.cpus)]
        for axis, size in self.sizes.items():
            found += ["--size", f"{axis}={size}"]
        return found + (["--cache", str(self.cache)] if self.cache else [])
