"""What would be decided under other limits, from what was measured."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.ui_page import JOB

import mlcd
from mlcd.errors import BadInput
from mlcd.findings.what_if import what_if
from mlcd.units import Usd


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> mlcd.Result:
    return mlcd.train(JOB, home=tmp_path_factory.mktemp("home"), seed=1)


def test_same_limits_give_the_same_choice(result: mlcd.Result) -> None:
    found = what_if(result.record, budget=result.record.problem.goal.budget)
    assert result.best is not None
    assert found.choice is not None
    assert found.choice.config == result.best.config
    assert found.spent_usd == result.record.search_usd
    assert "the same choice" in found.text
    assert found.total_usd == found.spent_usd + found.choice.usd
    assert found.total_seconds == found.spent_seconds + found.choice.seconds


def test_every_answer_fits_its_limits_at_the_upper_bound(result: mlcd.Result) -> None:
    for dollars in (30, 60, 90, 120, 150, 200, 400, 1000):
        found = what_if(result.record, budget=Usd.of(dollars), next_trial=False)
        if found.choice is not None:
            assert found.spent_usd + found.choice.worst_usd <= Usd.of(dollars)
        else:
            assert found.ways_out


def test_steps_say_where_the_choice_changes(result: mlcd.Result) -> None:
    steps = what_if(result.record, next_trial=False).steps
    assert len(steps) >= 2
    for step in steps:
        at = what_if(result.record, budget=step.budget, next_trial=False).choice
        below = what_if(result.record, budget=step.budget - Usd(1), next_trial=False).choice
        assert at == step.plan
        assert below != at


def test_weight_goes_from_cheapest_to_fastest(result: mlcd.Result) -> None:
    found = [
        what_if(result.record, time_weight=weight, next_trial=False).choice for weight in (0.0, 0.25, 0.5, 0.75, 1.0)
    ]
    plans = [plan for plan in found if plan is not None]
    assert len(plans) == 5
    assert [plan.seconds for plan in plans] == sorted((plan.seconds for plan in plans), reverse=True)
    assert [plan.usd for plan in plans] == sorted(plan.usd for plan in plans)
    assert plans[0] != plans[-1]


def test_next_trial_is_authorised_within_the_limits(result: mlcd.Result) -> None:
    found = what_if(result.record, budget=Usd.of(2000))
    assert found.next_trial is not None or found.stopped
    none = what_if(result.record, budget=found.spent_usd + Usd(1))
    assert none.next_trial is None
    assert none.stopped


def test_limits_that_cannot_be_are_refused(result: mlcd.Result) -> None:
    with pytest.raises(BadInput, match="weight"):
        what_if(result.record, time_weight=1.5)
    with pytest.raises(BadInput, match="budget"):
        what_if(result.record, budget=Usd(0))
    with pytest.raises(BadInput, match="deadline"):
        what_if(result.record, deadline_seconds=0)


def test_python_reads_amounts_as_job_files_do(result: mlcd.Result) -> None:
    assert mlcd.what_if(result, budget="300 USD", deadline="6h").goal.deadline_seconds == 6 * 3600
    with pytest.raises(BadInput, match="budget"):
        mlcd.what_if(result, budget="much")
    with pytest.raises(BadInput, match="deadline"):
        mlcd.what_if(result, deadline="soon")
    with pytest.raises(BadInput, match="run"):
        mlcd.what_if(7)  # type: ignore[arg-type]


def test_run_that_has_measured_nothing(result: mlcd.Result) -> None:
    bare = replace(result.record, steps=(), verdict=None, findings=None)
    found = what_if(bare, budget=Usd.of(300))
    assert found.choice is None
    assert found.options == ()


def test_without_a_choice_there_are_no_totals(result: mlcd.Result) -> None:
    found = what_if(result.record, budget=Usd(1), next_trial=False)
    assert (found.choice, found.total_usd, found.total_seconds) == (None, None, None)


def test_strategy_that_is_not_here_suggests_no_trial(result: mlcd.Result) -> None:
    other = replace(result.record, header=replace(result.record.header, strategy="from-a-plug-in"))
    found = what_if(other, budget=Usd.of(2000))
    assert (found.next_trial, found.stopped) == (None, "the strategy from-a-plug-in is not known here")


def test_other_kinds_are_refused(tmp_path: Path) -> None:
    from mlcd.spec.template import template

    served = mlcd.serverless(template(kind="serverless"), home=tmp_path)
    with pytest.raises(BadInput, match="trainings on nodes"):
        mlcd.what_if(served)  # type: ignore[arg-type]


def test_says_what_the_next_better_choice_needs(result: mlcd.Result) -> None:
    steps = what_if(result.record, next_trial=False).steps
    below = what_if(result.record, budget=steps[-1].budget - Usd.of(1), next_trial=False)
    assert f"With $1.00 more budget: {steps[-1].plan.config}, " in below.text
    assert "More budget would change nothing" in what_if(result.record, budget=steps[-1].budget, next_trial=False).text


def test_strategy_that_refuses_the_goal_suggests_no_trial(result: mlcd.Result, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> object:
        raise BadInput("needs a budget")

    monkeypatch.setattr("mlcd.deciders.search.SearchDecider.round", refuse)
    found = what_if(result.record, budget=Usd.of(2000))
    assert (found.next_trial, found.stopped) == (None, "needs a budget")
