"""A made-up GPU and models for tests of serving: operators by a roofline with launches, models as sums with quirks."""

import hashlib
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from mlcd.goal import Goal, Objective, Slo
from mlcd.known.tables import Known, KnownModel, OperatorCurve, OperatorUse, TargetModel
from mlcd.space import Config

Floats = NDArray[np.float64]

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
SMS = (16, 32, 64, 132)
PRECISIONS = ("fp32", "tf32", "fp16")

PEAK = {"fp32": 50e12, "tf32": 300e12, "fp16": 600e12}
BYTES_OF = {"fp32": 1.0, "tf32": 1.0, "fp16": 0.5}
BANDWIDTH = 4e12
LAUNCH = 6e-6
MEMORY_GIB = 20.0

CONFIGS = tuple(
    Config.of({"batch": batch, "sms": sms, "precision": precision})
    for batch, sms, precision in product(BATCHES, SMS, PRECISIONS)
)


@dataclass(frozen=True)
class Operator:
    """A call: name, shape, FLOPs and bytes for one item, weights read once, and how many threads an item gives."""

    name: str
    shape: str
    flops: float
    bytes: float
    weights: float = 0.0
    tiles: float = 8.0

    def seconds(self, config: Config) -> float:
        batch, sms, precision = float(config["batch"]), float(config["sms"]), str(config["precision"])
        filled = min(1.0, batch * self.tiles / sms)  # too few tiles leave SMs idle
        compute = batch * self.flops / (PEAK[precision] * sms / 132 * filled * 0.6)
        traffic = (batch * self.bytes + self.weights) * BYTES_OF[precision] / (BANDWIDTH * min(1.0, sms / 48))
        return LAUNCH + max(compute, traffic)


OPERATORS = {
    f"{name}-{size}": Operator(name, size, flops, moved, weights, tiles)
    for name, size, flops, moved, weights, tiles in [
        ("conv2d", "small", 5e7, 1.5e6, 2e5, 6.0),
        ("conv2d", "medium", 2.3e8, 3e6, 2.4e6, 10.0),
        ("conv2d", "large", 1.8e9, 1.2e7, 2.4e6, 40.0),
        ("depthwise", "small", 3e6, 2e6, 2e4, 8.0),
        ("depthwise", "medium", 1e7, 8e6, 4e4, 20.0),
        ("dense", "small", 2e6, 2e4, 8e6, 1.0),
        ("dense", "medium", 3e8, 1.5e6, 9e6, 16.0),
        ("dense", "large", 6e8, 3e6, 1.6e7, 24.0),
        ("attention", "medium", 1e8, 4e6, 0.0, 12.0),
        ("normalise", "small", 1e6, 2e6, 0.0, 8.0),
        ("normalise", "medium", 4e6, 8e6, 0.0, 20.0),
        ("recurrent", "small", 4e6, 1e5, 4e6, 1.0),
        ("embedding", "small", 0.0, 5e5, 0.0, 2.0),
    ]
}

RECIPES: dict[str, tuple[str, dict[str, int]]] = {
    "plain-16": ("plain", {"conv2d-large": 13, "dense-small": 3}),
    "plain-19": ("plain", {"conv2d-large": 16, "dense-small": 3}),
    "residual-18": ("residual", {"conv2d-medium": 20, "normalise-small": 20, "dense-small": 1}),
    "residual-50": ("residual", {"conv2d-medium": 40, "conv2d-small": 13, "normalise-small": 53, "dense-small": 1}),
    "residual-101": ("residual", {"conv2d-medium": 90, "conv2d-small": 13, "normalise-small": 103}),
    "dense-net": ("densenet", {"conv2d-small": 120, "normalise-medium": 121}),
    "mobile-1": ("mobile", {"depthwise-small": 13, "conv2d-small": 14, "normalise-small": 27}),
    "mobile-2": ("mobile", {"depthwise-medium": 17, "conv2d-small": 35, "normalise-small": 52}),
    "efficient": ("mobile", {"depthwise-medium": 26, "conv2d-small": 60, "normalise-medium": 60}),
    "bert-base": ("bert", {"dense-medium": 72, "attention-medium": 12, "normalise-small": 25}),
    "bert-large": ("bert", {"dense-large": 144, "attention-medium": 24, "normalise-medium": 49}),
    "roberta": ("bert", {"dense-medium": 74, "attention-medium": 12, "normalise-small": 26, "embedding-small": 3}),
    "lstm": ("recurrent", {"recurrent-small": 200, "dense-small": 1}),
    "gru": ("recurrent", {"recurrent-small": 120, "dense-small": 2, "embedding-small": 1}),
    "ranker": ("ranking", {"embedding-small": 26, "dense-small": 6}),
    "generator": ("generator", {"conv2d-large": 4, "conv2d-medium": 2, "normalise-medium": 4}),
}


def _chance(*what: object) -> np.random.Generator:
    digest = hashlib.sha256("|".join(map(str, what)).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "little"))


def usd_per_hour(config: Config) -> float:
    return 0.3 + 4.0 * float(config["sms"]) / 132


def model(name: str) -> KnownModel:
    """Sum of its operators, at least its launches from the host, with factors of its own, one a precision."""
    family, recipe = RECIPES[name]
    chance = _chance("model", name)
    own, of_batch = chance.normal(0.1, 0.15), chance.normal(0, 0.03)
    of_precision = dict(zip(PRECISIONS, chance.normal(0, 0.08, 3), strict=True))
    calls = sum(recipe.values())
    latency, memory = [], []
    for config in CONFIGS:
        gpu = sum(count * OPERATORS[key].seconds(config) for key, count in recipe.items())
        quirk = own + of_batch * np.log2(float(config["batch"])) + of_precision[str(config["precision"])]
        quirk += _chance("quirk", name, config).normal(0, 0.02)
        held = (
            sum(OPERATORS[key].bytes + OPERATORS[key].flops / 300 for key in recipe)
            * float(config["batch"])
            * 5
            / 2**30
        )
        room = MEMORY_GIB * float(config["sms"]) / 132
        latency.append(max(gpu * np.exp(quirk), calls * 9e-6) if held < room else np.inf)
        memory.append(held)
    reference = CONFIGS[0]
    parts = {key: count * OPERATORS[key].seconds(reference) for key, count in recipe.items()}
    uses = tuple(
        OperatorUse(
            operator=OPERATORS[key].name,
            shape=OPERATORS[key].shape,
            count=count,
            share=parts[key] / sum(parts.values()),
            flops=OPERATORS[key].flops * count,
            bytes=OPERATORS[key].bytes * count,
        )
        for key, count in recipe.items()
    )
    target = TargetModel(name=name, operators=uses)
    return KnownModel(target=target, family=family, latency_seconds=np.array(latency), memory_gib=np.array(memory))


@cache
def world() -> Known:
    """16 models, 13 operators, 96 configurations; the same object each time, so that what was worked out is kept."""
    curves = tuple(
        OperatorCurve(
            operator=operator.name,
            shape=operator.shape,
            flops=operator.flops,
            bytes=operator.bytes,
            seconds=np.array([operator.seconds(config) for config in CONFIGS]),
        )
        for operator in OPERATORS.values()
    )
    return Known(
        configs=CONFIGS,
        usd_per_hour=np.array([usd_per_hour(config) for config in CONFIGS]),
        models=tuple(model(name) for name in RECIPES),
        curves=curves,
        source="made up for tests",
        simulated=True,
    )


def cheapest(slo_ms: float) -> Goal:
    return Goal(minimize=Objective.COST, slo=Slo(seconds=slo_ms / 1000, percentile=50))
