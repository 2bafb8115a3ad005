"""Statistics of the H200's tables: noise, whether one configuration suits all models, how good the others' mean is.

`python benchmarks/serve_device/findings.py`: reads the shipped tables only, needs no GPU and no torch.
"""

import csv
import gzip
from collections import Counter
from importlib.resources import files

import numpy as np

from mlcd.known import Known
from mlcd.known.h200 import h200
from mlcd.known.tables import Floats

LIMITS = ((0.01, "10 ms"), (0.03, "30 ms"), (0.1, "100 ms"), (np.inf, "none"))


def noise(table: str, name: tuple[str, ...], column: str) -> str:
    """Median and 95th percentile of |second / first - 1| over the repeated points."""
    first: dict[tuple[str, ...], float] = {}
    second: dict[tuple[str, ...], float] = {}
    with gzip.open(str(files("mlcd.known") / "data" / f"h200-{table}.csv.gz"), "rt") as lines:
        for row in csv.DictReader(lines):
            if row["status"] == "ok":
                key = (*(row[part] for part in name), row["precision"], row["sms"], row["batch"])
                (first if row["round"] == "0" else second)[key] = float(row[column])
    gaps = np.array([abs(second[key] / first[key] - 1.0) for key in second if key in first])
    if not len(gaps):
        return f"{table}: {len(first)} points, none repeated"
    p50, p95, most = 100 * np.quantile(gaps, [0.5, 0.95, 1.0])
    spread = f"{p50:.2f}% (median), {p95:.1f}% (p95), {most:.0f}% (most)"
    return f"{table}: {len(first)} points, {len(gaps)} repeated: differ by {spread}"


def relative(known: Known, slo_seconds: float) -> Floats:
    """(models, configurations) items per dollar relative to the model's best, for models that can be served at all."""
    values: Floats = np.array([known.per_dollar(model, slo_seconds) for model in known.models])
    values = values[values.max(axis=1) > 0]
    best: Floats = values.max(axis=1, keepdims=True)
    return values / best


def line(known: Known, slo_seconds: float, label: str) -> str:
    """One row of the table."""
    score = relative(known, slo_seconds)
    near = (score >= 0.95).mean(axis=0)
    top = int(near.argmax())
    others = (score.sum(axis=0) - score) / (len(score) - 1)
    firsts = score[np.arange(len(score)), others.argmax(axis=1)]
    bests = Counter(int(best) for best in score.argmax(axis=1))
    config = known.configs[top]
    return (
        f"| {label} | {len(score)} | {len(bests)} | {near[top]:.0%} by {config['sms']} SMs, batch {config['batch']}, "
        f"{config['precision']} | {firsts.mean():.3f} | {firsts.min():.3f} |"
    )


def main() -> None:
    known = h200()
    print(noise("models", ("model",), "median_ms"))
    print(noise("operators", ("operator", "shape"), "microseconds"))
    print(
        "| limit | models it can be held for | different bests | most within 5% of their best by one configuration "
        "| first trial by the others' mean | worst |"
    )
    print("|---|---|---|---|---|---|")
    for slo_seconds, label in LIMITS:
        print(line(known, slo_seconds, label))
    weight = {model.name: sum(use.share for use in model.target.operators) for model in known.models}
    have = {(curve.operator, curve.shape) for curve in known.curves}
    covered = {m.name: sum(u.share for u in m.target.operators if (u.operator, u.shape) in have) for m in known.models}
    mean = np.mean([covered[name] / weight[name] for name in weight])
    least = min(covered, key=lambda name: covered[name])
    print(f"{len(known.curves)} operators; they carry {mean:.0%} of a model's time on average,")
    print(f"{covered[least]:.0%} at least ({least})")


if __name__ == "__main__":
    main()
