"""Knobs, spot and several clouds at random: no budget is broken, no book is wrong, limits at their promised rate.

benchmarks/choice_protocols.py makes 10,000 of these protocols and keeps the record.
"""

from importlib import import_module

import pytest

choice_protocols = import_module("benchmarks.choice_protocols")  # a script, not a module that mypy knows

NUMBERS = [pytest.param(range(50), id="50"), pytest.param(range(50, 2000), id="2000", marks=pytest.mark.extra)]


@pytest.mark.parametrize("numbers", NUMBERS)
def test_limits_hold_whatever_is_chosen_together(numbers: range) -> None:
    """What can happen is seen among them: else they would prove little."""
    rows = [choice_protocols.run_one(0, number) for number in numbers]
    found = choice_protocols.summary(rows)
    assert found["overspent"] == []
    assert found["wrong"] == {}
    assert found["by_assurance"]["0.999999"]["numbers"] == []
    for level in ("0.9", "0.99"):
        row = found["by_assurance"][level]
        assert row["broken"] <= max(2, 2 * (1 - float(level)) * row["trained"]), row
    assert min(found["status"]["done"], found["status"]["nothing-fits"]) > len(rows) // 10, found
    assert min(found["with_all_three"], found["seen"]["used_spot"], found["seen"]["data_paid"]) > len(rows) // 10, found
    assert min(found["interruptions"], *found["seen"].values()) > 0, found


def test_what_is_wrong_in_a_run_is_noticed() -> None:
    """A budget below what the run took, and knobs that it never had."""
    problem, cloud, strategy, _, knobs = choice_protocols.protocol(0, 18)
    run = choice_protocols.run_search(problem, cloud, strategy, seed=18)
    assert knobs == choice_protocols.Settings()
    assert list(choice_protocols._wrong(run, knobs)) == []
    other = choice_protocols.Settings((choice_protocols.KNOBS[0],))
    with pytest.raises(KeyError):
        list(choice_protocols._wrong(run, other))
    spent = choice_protocols._money(run)
    goal = choice_protocols.replace(problem.goal, budget=choice_protocols.Usd(spent.micros // 2))
    poorer = choice_protocols.replace(run, problem=choice_protocols.replace(run.problem, goal=goal))
    assert "a round was authorised more than was left" in list(choice_protocols._wrong(poorer, knobs))
