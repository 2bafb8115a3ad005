"""Offline knowledge as values: models by their operators, their measured latencies, and the operators' own curves."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mlcd.known.gpus import Machine
from mlcd.known.language_models import LanguageModel, TokenLengths
from mlcd.space import Config

Floats = NDArray[np.float64]
OperatorShape = tuple[str, str]
"""An operator's canonical name and its shape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorUse:
    """One operator of a model: all its calls with one shape.

    operator  its canonical name, the same for graphs from ONNX and from PyTorch
    shape     its sizes for one item, as text; equal texts mean equal work
    share     share of the model's running time in the reference configuration; the shares of a model sum to at most 1
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
            raise ValueError("an operator must be used at least once, with a share between 0 and 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetModel:
    """A model to serve. Only its operators were measured, in one run.

    language  a language model's sizes; None for other models, and where they are not known
    """

    name: str
    operators: tuple[OperatorUse, ...]
    language: LanguageModel | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class KnownModel:
    """A model that was measured in every configuration, in the order of `Known.configs`.

    latency_seconds  (N,) of one batch, with all replicas busy; infinite where memory ran out, nan where not measured
    p50_seconds      (N,) median latency of a request, where it was measured apart: a language model's requests join and
                     leave a running batch; None: that of the batch
    """

    target: TargetModel
    family: str
    latency_seconds: Floats
    memory_gib: Floats
    p50_seconds: Floats | None = None

    @property
    def name(self) -> str:
        """The model's name."""
        return self.target.name

    @property
    def request_seconds(self) -> Floats:
        """(N,) the latency that a limit is on."""
        return self.latency_seconds if self.p50_seconds is None else self.p50_seconds


@dataclass(frozen=True, kw_only=True, eq=False)
class OperatorCurve:
    """One operator of one shape, measured alone in every configuration: seconds per batch, as for models."""

    operator: str
    shape: str
    flops: float
    bytes: float
    seconds: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class Known:
    """All offline measurements on one kind of machine.

    configs       (N) every configuration, with a `batch` knob: items per batch
    usd_per_hour  (N,) the price of each
    source        what was measured, where and when, in words
    simulated     whether the numbers are simulated, not measured
    chosen        names of models -> the operators that would have been chosen for measuring, had these models been the
                  only ones; None: all that they use, and all that no model uses
    machines      the GPUs of each instance type, as far as they are known
    lengths       of the requests, if the models are language models
    users         requests in flight that one load test goes through; empty where `batch` is a knob, or is not known
    paces         the same models at each number of requests in flight, where a load test goes through them
    """

    configs: tuple[Config, ...]
    usd_per_hour: Floats
    models: tuple[KnownModel, ...]
    curves: tuple[OperatorCurve, ...]
    source: str
    simulated: bool
    chosen: Callable[[frozenset[str]], frozenset[OperatorShape]] | None = None
    machines: Mapping[str, Machine] = field(default_factory=dict)
    lengths: TokenLengths | None = None
    users: tuple[int, ...] = ()
    paces: "Known | None" = None

    def __post_init__(self) -> None:
        size = (len(self.configs),)
        arrays = [self.usd_per_hour, *(m.latency_seconds for m in self.models), *(c.seconds for c in self.curves)]
        if any(array.shape != size for array in arrays):
            raise ValueError("every configuration needs a price and a row in every table")

    @cached_property
    def batches(self) -> Floats:
        """(N,) items per batch; 1 if `batch` is not a knob."""
        return np.array([float(dict(config.values).get("batch", 1)) for config in self.configs])

    @cached_property
    def replicas(self) -> Floats:
        """(N,) copies of the model that serve in parallel; 1 if `replicas` is not a knob."""
        return np.array([float(dict(config.values).get("replicas", 1)) for config in self.configs])

    def without(self, *names: str) -> "Known":
        """What would be known if these models had never been measured, for leave-one-out evaluation.

        Their latencies go, and so do the curves of operators that were measured on their account: those that no
        remaining model uses, and those that `chosen` would not have chosen for the remaining models alone.
        """
        kept = tuple(model for model in self.models if model.name not in names)
        if len(kept) == len(self.models):
            return self
        dropped = _used(self.models) - _used(kept)
        chosen = self.chosen(frozenset(model.name for model in kept)) if self.chosen is not None else None
        curves = tuple(
            curve
            for curve in self.curves
            if (shape := (curve.operator, curve.shape)) not in dropped and (chosen is None or shape in chosen)
        )
        paces = None if self.paces is None else self.paces.without(*names)
        return replace(self, models=kept, curves=curves, paces=paces)

    def throughput(self, model: KnownModel, slo_seconds: float = np.inf) -> Floats:
        """(N,) items per second, with each replica's batches in sequence; 0 if the limit is broken or it failed."""
        with np.errstate(invalid="ignore"):
            kept = model.request_seconds <= slo_seconds
            return np.where(kept, self.batches * self.replicas / model.latency_seconds, 0.0)

    def per_dollar(self, model: KnownModel, slo_seconds: float = np.inf) -> Floats:
        """(N,) items per dollar: the objective of a search for cheap serving."""
        return self.throughput(model, slo_seconds) * 3600.0 / self.usd_per_hour


def _used(models: tuple[KnownModel, ...]) -> frozenset[OperatorShape]:
    return frozenset((use.operator, use.shape) for model in models for use in model.target.operators)
