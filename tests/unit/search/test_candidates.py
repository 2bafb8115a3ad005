from typing import Any

import numpy as np
import pytest
from tests.synthetic import failed, make_problem, measured

import mlcd
from mlcd.problem import Problem
from mlcd.search.candidates import open_rows, rising_rows
from mlcd.search.heterbo_settings import HeterBOSettings
from mlcd.search.stopping import ledger_ended_it, suggest_in_time
from mlcd.space import Config
from mlcd.trial.plan import Remaining
from mlcd.trial.trial import FailureKind, History, Suggestion
from mlcd.units import Usd

PROBLEM = make_problem()
COUNTS = (1, 2, 3, 4, 6, 8, 12, 16)
D = Config.deployment


def remaining(allowed: bool = True) -> Remaining:
    return Remaining(usd=Usd.of(5), seconds=9.0, allowed=np.full(len(PROBLEM.space), allowed))


def counts_of(mask: "np.ndarray[tuple[int], np.dtype[np.bool_]]", instance: str) -> set[int]:
    return {c.nodes for c, ok in zip(PROBLEM.space, mask, strict=True) if ok and c.instance == instance}


def test_at_first_everything_allowed_is_open() -> None:
    assert open_rows(PROBLEM, History(), remaining()).all()
    assert not open_rows(PROBLEM, History(), remaining(False)).any()


def test_tried_configurations_are_closed_and_arguments_stay_unchanged() -> None:
    asked = remaining()
    history = History((measured(PROBLEM, D("c5.big", 4), 9.0), failed(PROBLEM, D("p2.one", 2), FailureKind.HANG)))
    mask = open_rows(PROBLEM, history, asked)
    assert mask.sum() == len(mask) - 2
    assert counts_of(mask, "c5.big") == set(COUNTS) - {4}
    assert asked.allowed.all()


@pytest.mark.parametrize(
    ("kind", "still_open"),
    [
        (FailureKind.OUT_OF_MEMORY, {6, 8, 12, 16}),
        (FailureKind.ERROR, {6, 8, 12, 16}),
        (FailureKind.CAPACITY, {1, 2, 3}),
        (FailureKind.LAUNCH, {1, 2, 3, 6, 8, 12, 16}),
        (FailureKind.INTERRUPTED, {1, 2, 3, 6, 8, 12, 16}),
        (FailureKind.HANG, {1, 2, 3, 6, 8, 12, 16}),
        (FailureKind.LOST, {1, 2, 3, 6, 8, 12, 16}),
    ],
)
def test_a_failure_rules_out_configurations_that_must_also_fail(kind: FailureKind, still_open: set[int]) -> None:
    mask = open_rows(PROBLEM, History((failed(PROBLEM, D("c5.big", 4), kind),)), remaining())
    assert counts_of(mask, "c5.big") == still_open
    assert counts_of(mask, "c5.small") == set(COUNTS)


def rising(*points: tuple[int, float], error: float = 0.01) -> set[int]:
    history = History(tuple(measured(PROBLEM, D("c5.big", n), speed, error=error) for n, speed in points))
    mask = rising_rows(PROBLEM, history, HeterBOSettings())
    assert counts_of(mask, "c5.small") == set(COUNTS)
    return counts_of(mask, "c5.big")


def test_beyond_the_peak_nothing_is_tried() -> None:
    assert rising((4, 100.0), (8, 80.0)) == {1, 2, 3, 4, 6, 8}
    assert rising((8, 80.0), (4, 100.0)) == {1, 2, 3, 4, 6, 8}  # whichever was measured first


def test_a_rise_a_gap_or_an_uncertain_decline_prunes_nothing() -> None:
    assert rising((1, 100.0), (12, 80.0)) == set(COUNTS)  # too far apart: the peak may lie between
    assert rising((4, 100.0), (8, 120.0)) == set(COUNTS)
    assert rising((4, 100.0), (8, 97.0), error=0.05) == set(COUNTS)
    assert rising((4, 100.0)) == set(COUNTS)


def test_only_neighbours_are_compared() -> None:
    assert rising((2, 100.0), (4, 130.0), (6, 110.0)) == {1, 2, 3, 4, 6}


def test_a_rival_that_keeps_limits_ends_at_the_first_refusal() -> None:
    picks = tuple(Suggestion(config=PROBLEM.space.configs[i], reason="r") for i in (0, 1, 2))
    seen: list[bool] = []

    def suggest(problem: Problem, history: History, remaining: Remaining, count: int) -> tuple[Suggestion, ...]:
        seen.append(bool(remaining.allowed.all()))
        return picks[:count]

    allowed = np.ones(len(PROBLEM.space), dtype=bool)
    allowed[1] = False
    narrowed = Remaining(usd=None, seconds=None, allowed=allowed)
    history = History((measured(PROBLEM, PROBLEM.space.configs[3], 5.0),))
    asked: dict[str, Any] = {"problem": PROBLEM, "remaining": narrowed, "count": 3}
    assert suggest_in_time(suggest, 1, history=history, **asked) == picks[:1]
    assert (
        suggest_in_time(suggest, 2, history=history, **asked) == picks
    )  # still in its start, which uses only allowed trials
    assert seen == [True, False]
    assert ledger_ended_it(suggest, PROBLEM, history, narrowed)
    assert not ledger_ended_it(lambda *_: (), PROBLEM, history, narrowed)


def test_without_a_number_of_nodes_a_failure_says_nothing_of_others() -> None:
    problem = mlcd.Search(knobs={"batch": [1, 8, 64]}, objective="maximize").problem
    small, middle, large = problem.space.configs
    free = Remaining(usd=None, seconds=None, allowed=np.ones(3, dtype=bool))
    for kind in FailureKind:
        mask = open_rows(problem, History((failed(problem, middle, kind),)), free)
        assert [bool(mask[problem.space.index[config]]) for config in (small, middle, large)] == [True, False, True]
