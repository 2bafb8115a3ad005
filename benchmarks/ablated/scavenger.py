"""The parts of scavenger-goodput, by runs of the product on six measured trainings."""

from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

from ablated.compare import Change, Outcome
from mlcd.bench.case import is_unseen
from mlcd.bench.scavenger.score import BenchCase, train
from mlcd.bench.scavenger.truth import load_truths
from mlcd.goal import Objective

SEEDS = 2

CHANGES = (
    Change(part="growth of the noise", text="scavenger-goodput:noise=measured"),
    Change(part="noise, not the rule alone", text="scavenger-goodput:noise=off"),
    Change(part="a new plan while training", text="scavenger-goodput:replan=off"),
    Change(part="more runs where the centre misfits", text="scavenger-goodput:more=0"),
    Change(part="three runs of the predicted best", text="scavenger-goodput:confirm=1"),
)


def outcomes(text: str, change: Change, tables: Path, seeds: int) -> list[Outcome]:  # noqa: ARG001
    """All time of a run for the least time, over the best training's."""
    mode, _, option = text.removeprefix("scavenger-").partition(":")
    found = []
    for name, truth in load_truths(tables / "pollux").items():
        best = min(truth.seconds(choice) for choice in truth.choices)
        for seed in range(seeds):
            with patch("mlcd.models.remaining.expected_noise", NOISES[option]) if option in NOISES else patch.dict({}):
                plain = mode if option in NOISES or not option else f"{mode}:{option}"
                made = train(BenchCase(truth=truth), plain, Objective.TIME, seed=seed)
            loss = made.run.total_seconds / best
            found.append(Outcome(bed="pollux", workload=name, unseen=is_unseen(name), seed=seed, loss=loss))
    return found


def _measured(seen: list[tuple[float, float]], **_: float) -> float | None:
    """The noise measured last, as if it did not grow."""
    return seen[-1][1] if seen else None


def _off(seen: list[tuple[float, float]], **_: float) -> float | None:  # noqa: ARG001
    """None: the learning-rate rule decides."""
    return None


NOISES: dict[str, Callable[..., float | None]] = {"noise=measured": _measured, "noise=off": _off}
