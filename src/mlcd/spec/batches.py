"""A job's settings for the global batch: the allowed batches, the learning-rate rule, and the target."""

import json
import math
from dataclasses import dataclass
from enum import StrEnum

from mlcd.spec.choices import Choices
from mlcd.spec.node import YamlNode
from mlcd.spec.quantity import line_of_text, number, whole
from mlcd.spec.record import Field, FieldTable

_LOWER_IS_BETTER = ("loss", "error", "perplexity", "wer", "rmse", "mae", "mse")
_BATCHES = Choices(form="whole numbers such as [64, 128, 256]", most=10**9, ranges=False, empty="must not be empty")
_MOST_BATCHES = 64


class RateRule(StrEnum):
    """How the learning rate at batch B follows from the base rate, which is right at batch B0.

    linear    base B/B0 (Goyal et al. 2017)
    sqrt      base sqrt(B/B0)
    adascale  base (phi/B0 + 1)/(phi/B + 1), the gain of AdaScale (Johnson et al. 2020) at the noise measured so far;
              base while no noise has been measured
    fixed     base
    """

    LINEAR = "linear"
    SQRT = "sqrt"
    ADASCALE = "adascale"
    FIXED = "fixed"

    @property
    def decay(self) -> float | None:
        """The exponent d: a sample at batch B counts for (B0/B)^d. None where the measured noise decides instead."""
        return {RateRule.LINEAR: 0.0, RateRule.SQRT: 0.5, RateRule.FIXED: 1.0}.get(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningRate:
    """The learning rate `base` is right at the batch `at_batch`; `rule` gives the rate at other batches."""

    base: float
    at_batch: int
    rule: RateRule = RateRule.LINEAR

    def at(self, batch: int, noise_scale: float | None = None) -> float:
        """The learning rate for this batch. `noise_scale` is phi in samples, None where it is not known."""
        ratio = batch / self.at_batch
        if self.rule is RateRule.LINEAR:
            return self.base * ratio
        if self.rule is RateRule.SQRT:
            return self.base * math.sqrt(ratio)
        if self.rule is RateRule.ADASCALE and noise_scale is not None:
            if math.isinf(noise_scale):
                return self.base * ratio
            return self.base * (noise_scale / self.at_batch + 1) / (noise_scale / batch + 1)
        return self.base


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSpec:
    """The value of a metric at which the training is done. `better` None means: judge by the metric's name."""

    metric: str
    value: float
    better: str | None = None

    @property
    def higher(self) -> bool:
        """Whether a higher metric is better; False for losses and errors."""
        if self.better is not None:
            return self.better == "higher"
        return not any(word in self.metric.lower() for word in _LOWER_IS_BETTER)

    def to_json(self) -> str:
        """The form that the job's processes read."""
        return json.dumps({"metric": self.metric, "value": self.value, "higher": self.higher})

    def __str__(self) -> str:
        return f"{self.metric} {'>=' if self.higher else '<='} {self.value:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pricing:
    """How workers are paid for: by the node, or by the memory that a worker of B/K samples needs.

    By memory, a worker costs the node's price x (fixed + (1 - fixed) x its samples / samples of the largest worker).
    `fixed` is the share that the model and the framework take at any batch; the rest grows with the samples.
    """

    by: str = "per-node"
    fixed: float = 0.5

    @property
    def is_by_memory(self) -> bool:
        """Whether the price depends on the batch."""
        return self.by == "memory-proportional"

    def share_of_price(self, samples: float, largest: float) -> float:
        """The share of a node's price for a worker with `samples` of the batch; the largest worker has `largest`."""
        return self.fixed + (1 - self.fixed) * samples / largest if self.is_by_memory else 1.0


def batches(node: YamlNode) -> tuple[int, ...]:
    """One batch or several, without duplicates, in ascending order."""
    values = _BATCHES(node)
    if len(values) > _MOST_BATCHES:
        raise node.error(f"lists {len(values)} batches", allowed=f"at most {_MOST_BATCHES}")
    return values


def pricing(node: YamlNode, places: tuple[str, ...] = ()) -> Pricing:
    """`per-node`, `memory-proportional`, or `{by: memory-proportional, fixed: 0.3}`."""
    if isinstance(node.value, str):
        return Pricing(by=_by(node))
    return _PRICING(node, places)


def _by(node: YamlNode) -> str:
    return node.choice(("per-node", "memory-proportional"), meant={"memory": "memory-proportional", "node": "per-node"})


def _rule(node: YamlNode) -> RateRule:
    return RateRule(node.choice(tuple(RateRule), meant={"none": "fixed", "constant": "fixed", "root": "sqrt"}))


def _better(node: YamlNode) -> str:
    return node.choice(("higher", "lower"))


_PRICING = FieldTable(
    make=Pricing, fields={"by": Field(read=_by, required=True), "fixed": Field(read=number(above=0, most=1.0))}
)
LEARNING_RATE = FieldTable(
    make=LearningRate,
    fields={
        "base": Field(read=number(above=0, most=1e6), required=True),
        "at_batch": Field(read=whole(least=1, most=10**9), required=True),
        "rule": Field(read=_rule),
    },
)
TARGET = FieldTable(
    make=TargetSpec,
    fields={
        "metric": Field(read=line_of_text, required=True),
        "value": Field(read=number(), required=True),
        "better": Field(read=_better),
    },
)
