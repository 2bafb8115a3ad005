"""Made-up tables of language models in the form of llmpilot: a saturating server, slower for larger models."""

import csv
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

INSTANCES: Mapping[str, tuple[int, float, float]] = {
    "1xt4": (1, 2.2, 1.0),
    "1xa10": (1, 2.4, 2.2),
    "1xa100": (1, 4.1, 5.0),
    "2xa100": (2, 8.2, 8.0),
    "1xh100": (1, 12.3, 11.0),
}
"""GPUs, USD per hour, and relative speed."""
MODELS: Mapping[str, tuple[float, float]] = {
    "llama-7b": (6.7, 1.0),
    "bigcode__starcoder": (15.5, 1.0),
    "google__flan-t5-xl": (2.8, 2.0),
    "google__flan-t5-xxl": (11.1, 2.0),
}
"""Billions of parameters, and how much slower a step is than its size says."""
USERS = (1, 4, 16, 64)

Rate = Callable[[str, str, int], float]


def tokens_per_second(model: str, instance: str, users: int) -> float:
    """A step takes a fixed time and a time for each request; both shrink with the machine and grow with the model."""
    size, slower = MODELS[model]
    speed = INSTANCES[instance][2]
    step = slower * (0.004 + 0.006 * size / speed)
    return users / (step + users * 0.0006 * size / speed)


def write_tables(folder: Path, rate: Rate = tokens_per_second) -> Path:
    """A folder of tables; a model is left out of a type whose memory it does not fit into."""
    folder.mkdir(exist_ok=True)
    with (folder / "instances.csv").open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["instance", "gpus", "usd_per_hour"])
        lines.writerows([name, gpus, price] for name, (gpus, price, _) in INSTANCES.items())
    for model, (size, _) in MODELS.items():
        with (folder / f"{model}.csv").open("w", newline="") as file:
            lines = csv.writer(file)
            lines.writerow(["instance", "batch", "throughput", "p50_ms", "status"])
            for instance, (gpus, _, _) in INSTANCES.items():
                memory = {"t4": 16, "a10": 24, "a100": 40, "h100": 80}[instance.partition("x")[2]] * gpus
                if 2 * size > 0.85 * memory:
                    continue
                for users in USERS:
                    tokens = rate(model, instance, users)
                    lines.writerow([instance, users, f"{tokens:.6g}", f"{14000 * users / tokens:.6g}", "ok"])
    return folder


def disturbed(changed: str, seed: int = 1) -> Rate:
    """The same rates, but those of one model are anything."""
    rng = np.random.default_rng(seed)
    factors: dict[tuple[str, int], float] = {}

    def rate(model: str, instance: str, users: int) -> float:
        if model != changed:
            return tokens_per_second(model, instance, users)
        factor = factors.setdefault((instance, users), float(np.exp(rng.normal(0, 1.5))))
        return tokens_per_second(model, instance, users) * factor

    return rate
