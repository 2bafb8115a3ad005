"""The parts of scavenger-goodput, by runs of the product on six measured trainings."""

from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

from ablated.compare import Change, Outcome
from mlcd.bench.case import is_unseen
from mlcd.bench.scavenger.score import BenchCase, train
from mlcd.bench.scavenger.truth import load_truths
from mlcd.goal import Objective

SEEDS = 1

CHANGES = (
    Change(part="growth of the noise", text="scavenger-goodput:noise=measured"),
    Change(part="noise, not the rule alone", text="scavenger-goodput:noise=off"),
    Change(part="a new plan while training", text="scavenger-goodput:replan=off"),
)


def outcomes(text: str, change: Change, tables: Path, seeds: int) -> list[Outcome]:  # noqa: ARG001
    """All time of a run for the least time, and all money of one for the least cost, over the best training's."""
    mode, _, option = text.removeprefix("scavenger-").partition(":")
    plain = mode if option in NOISES or not option else f"{mode}:{option}"
    found = []
    for name, truth in load_truths(tables / "pollux").items():
        seconds, usd = (min(map(of, truth.choices)) for of in (truth.seconds, truth.usd))
        for seed in range(seeds):
            with patch("mlcd.models.remaining.expected_noise", NOISES[option]) if option in NOISES else patch.dict({}):
                fast, cheap = (
                    train(BenchCase(truth=truth), plain, minimize, seed=seed).run
                    for minimize in (Objective.TIME, Objective.COST)
                )
            losses = {"time": fast.total_seconds / seconds, "cost": cheap.total_usd.dollars / usd}
            found += [
                Outcome(bed=bed, workload=name, unseen=is_unseen(name), seed=seed, loss=loss)
                for bed, loss in losses.items()
            ]
    return found


def _measured(seen: list[tuple[float, float]], **_: float) -> float | None:
    """The noise measured last, as if it did not grow."""
    return seen[-1][1] if seen else None


def _off(seen: list[tuple[float, float]], **_: float) -> float | None:  # noqa: ARG001
    """None: the learning-rate rule decides."""
    return None


NOISES: dict[str, Callable[..., float | None]] = {"noise=measured": _measured, "noise=off": _off}
