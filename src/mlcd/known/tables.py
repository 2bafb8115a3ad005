"""Offline knowledge as values: models by their operators, their measured latencies, and the operators' own curves."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mlcd.space import Config

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorUse:
    """One operator of a model, all its calls of one shape together.

    operator  its canonical name, the same whether the graph came from ONNX or from PyTorch
    shape     its sizes for one item, as text; equal texts are equal work
    share     of the model's running time in the reference configuration; the shares of a model add up to 1 at most
    flops, bytes  of all these calls, for one item
    """

    operator: str
    shape: str
    count: int
    share: float
    flops: float
    bytes: float

    def __post_init__(self) -> None:
        if self.count < 1 or not 0 <= self.share <= 1 + 1e-9 or min(self.flops, self.bytes) < 0:
            raise ValueError("an operator is used at least once, and takes a share between 0 and 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetModel:
    """A model to be served, of which nothing was measured but its operators in one run."""

    name: str
    operators: tuple[OperatorUse, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class KnownModel:
    """A model that was measured in every configuration, in the order of `Known.configs`.

    latency_seconds  (N,) of one batch, all replicas at work; infinite where memory ran out, nan where not measured
    """

    target: TargetModel
    family: str
    latency_seconds: Floats
    memory_gib: Floats

    @property
    def name(self) -> str:
        """The model's."""
        return self.target.name


@dataclass(frozen=True, kw_only=True, eq=False)
class OperatorCurve:
    """One operator of one shape, measured by itself in every configuration: seconds of a batch, as for models."""

    operator: str
    shape: str
    flops: float
    bytes: float
    seconds: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class Known:
    """All that was measured beforehand on one kind of machine.

    configs       (N) every configuration, with a `batch` knob: items a batch
    usd_per_hour  (N,) the price of each
    source        what was measured, where and when, in words; simulated says whether it was measured at all
    """

    configs: tuple[Config, ...]
    usd_per_hour: Floats
    models: tuple[KnownModel, ...]
    curves: tuple[OperatorCurve, ...]
    source: str
    simulated: bool

    def __post_init__(self) -> None:
        size = (len(self.configs),)
        arrays = [self.usd_per_hour, *(m.latency_seconds for m in self.models), *(c.seconds for c in self.curves)]
        if any(array.shape != size for array in arrays):
            raise ValueError("every configuration needs a price and a row in every table")

    @cached_property
    def batches(self) -> Floats:
        """(N,) items a batch."""
        return np.array([float(config["batch"]) for config in self.configs])

    @cached_property
    def replicas(self) -> Floats:
        """(N,) copies of the model that serve side by side; 1 where that is nothing to choose."""
        return np.array([float(dict(config.values).get("replicas", 1)) for config in self.configs])

    def without(self, *names: str) -> "Known":
        """The same, had these models never been measured: for judging by leaving one out."""
        return replace(self, models=tuple(model for model in self.models if model.name not in names))

    def throughput(self, model: KnownModel, slo_seconds: float = np.inf) -> Floats:
        """(N,) items a second, a replica's batches one after another; 0 where one breaks the limit, or failed."""
        latency = model.latency_seconds
        with np.errstate(invalid="ignore"):
            return np.where(latency <= slo_seconds, self.batches * self.replicas / latency, 0.0)

    def per_dollar(self, model: KnownModel, slo_seconds: float = np.inf) -> Floats:
        """(N,) items a dollar: what a search for cheap serving maximises."""
        return self.throughput(model, slo_seconds) * 3600.0 / self.usd_per_hour
