"""Scavenger's modes and the parts of their models on six measured trainings."""

from functools import lru_cache
from pathlib import Path

from ablated.compare import Change, Outcome
from mlcd.bench.case import is_unseen
from mlcd.bench.scavenger.truth import load_truths
from papers.scavenger_models.ablation import Ablation, ablations

LOSSES = {
    "full": ("time", "full"),
    "universal": ("time", "universal, described"),
    "convergence": ("iterations", "p fitted"),
    "full:mode=partial": ("time", "partial"),
    "full:mode=universal": ("time", "universal, described"),
    "full:iterations=true": ("time", "full, true iterations"),
    "full:steps=true": ("time", "full, true step times"),
    "universal:described=off": ("time", "universal, blind"),
    "convergence:exponent=1": ("iterations", "p = 1 (McCandlish)"),
    "convergence:exponent=0.5": ("iterations", "p = 0.5 (Scavenger), in steps"),
    "convergence:noise=smallest": ("iterations", "noise of the smallest batch's training alone"),
}
"""Our text to (the quantity whose error is the loss, the change's name in papers.scavenger_models.ablation)."""

CHANGES = (
    Change(part="every K at three batches", text="full:mode=partial"),
    Change(part="any run of this job", text="full:mode=universal"),
    Change(part="true iterations (limit)", text="full:iterations=true"),
    Change(part="true step times (limit)", text="full:steps=true"),
    Change(part="description of the job", text="universal:described=off"),
    Change(part="fitted exponent of steps over batch", text="convergence:exponent=1"),
    Change(part="fitted exponent of steps over batch", text="convergence:exponent=0.5"),
    Change(part="convergence known, not noise alone", text="convergence:noise=smallest"),
)


def outcomes(text: str, change: Change, tables: Path, seeds: int) -> list[Outcome]:  # noqa: ARG001
    """Mean relative errors; deterministic."""
    of, name = LOSSES[text]
    return [
        Outcome(bed=of, workload=line.model, unseen=is_unseen(line.model), seed=0, loss=line.error)
        for line in _lines(tables / "pollux")
        if (line.of, line.change) == (of, name)
    ]


@lru_cache(maxsize=1)
def _lines(folder: Path) -> list[Ablation]:
    return ablations(load_truths(folder))
