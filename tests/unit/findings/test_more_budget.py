"""What $20 more would bring: of each kind of run. What it would choose of what was measured: test_why_not.py."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.report_kind_samples import infeasible_serverless_run, nothing_serves_run, serverless_run, serving_run
from tests.report_samples import budget_run
from tests.ui_page import JOB

import mlcd
from mlcd.findings import shown
from mlcd.findings.more_budget import NO_BUDGET, _equal_text, fleet_choices, fleet_text, more_budget_text
from mlcd.findings.what_if import NOTHING_BETTER, what_if
from mlcd.goal import Objective
from mlcd.run.run import EpochRun, SearchRun
from mlcd.spec.template import template
from mlcd.trial.outcome import Status
from mlcd.units import Usd, percent_text


def with_budget(run: SearchRun, budget: Usd | None, *, tests: int = 4) -> SearchRun:
    """The run with another budget, and only its first load tests."""
    goal = replace(run.problem.goal, budget=budget)
    steps = (*run.trials[:tests], *run.steps[len(run.trials) :])
    return replace(run, problem=replace(run.problem, goal=goal), steps=steps)


def test_server_whose_every_configuration_was_tested_gets_nothing() -> None:
    assert more_budget_text(shown(serving_run())) == "$20.00 more: nothing. Every configuration was load-tested."


def test_server_is_told_how_many_load_tests_the_budget_kept_away() -> None:
    run = with_budget(serving_run(), Usd.of(1), tests=2)
    assert "$20.00 more: nothing. The budget kept no load test from being made" in more_budget_text(run)
    assert run.stopped in more_budget_text(run)
    spent = Usd(sum(step.outcome.usd.micros for step in run.trials if step.outcome is not None))
    tight = with_budget(serving_run(), spent, tests=2)
    assert more_budget_text(tight).startswith("$20.00 more: load tests of 2 of 2 untried configurations")


def test_training_is_told_how_many_more_trials_could_start(tmp_path: Path) -> None:
    job = {**JOB, "goal": {"minimize": "time", "budget": "100 USD"}}
    run = mlcd.train(job, home=tmp_path).record
    budget = run.problem.goal.budget
    assert budget is not None
    told = more_budget_text(run)
    tries = r"The search could try [0-9]+ more configurations; what they would bring is not known\.$"
    assert re.search(tries, told), told
    assert "No better deployment was measured" not in told
    ample = replace(run, problem=replace(run.problem, goal=replace(run.problem.goal, budget=Usd.of(10**5))))
    assert more_budget_text(ample).endswith("No better deployment was measured.")


def test_goal_without_a_budget_was_not_limited_by_money() -> None:
    assert more_budget_text(with_budget(serving_run(), None)) == NO_BUDGET
    assert more_budget_text(nothing_serves_run()) == NO_BUDGET


def test_before_the_end_nothing_is_said() -> None:
    assert more_budget_text(replace(serving_run(), verdict=None)) == ""
    assert more_budget_text(replace(serverless_run(), status=Status.RUNNING)) == ""
    assert more_budget_text(infeasible_serverless_run()) == "", "nothing was trained that a model could learn from"


def functions(budget: Usd, minimize: Objective = Objective.TIME) -> EpochRun:
    made = serverless_run()
    return replace(
        made, problem=replace(made.problem, goal=replace(made.problem.goal, budget=budget, minimize=minimize))
    )


def test_functions_are_told_what_a_dearer_fleet_would_bring(tmp_path: Path) -> None:
    """A budget that only a slow fleet fits; the model, which has seen this run, knows a faster one."""
    short, ample = (
        mlcd.serverless(template(kind="serverless").replace("3 USD", budget), home=tmp_path).record
        for budget in ("0.2 USD", "3 USD")
    )
    told = more_budget_text(short)
    assert told.startswith("$20.00 more: about ")
    assert ", instead of " in told
    assert more_budget_text(ample).startswith("$20.00 more: nothing. $2.")
    assert "no more expensive choice of functions and memory is expected to be faster" in more_budget_text(ample)


def test_other_functions_are_told_what_a_whole_training_would_take(tmp_path: Path) -> None:
    run = mlcd.serverless(template(kind="serverless"), home=tmp_path).record
    counts, sizes = fleet_choices(run)
    assert (counts[0], counts[-1]) == (1, 64)
    assert sizes == (1024, 1769, 3008)
    best = fleet_text(run, memory_mb=3008)
    assert re.fullmatch(
        r"It is the best that the model expects: .+ for \$[0-9.]+ on 64 x 3008 MB for a whole training\.",
        best.replace("3,008", "3008"),
    )
    few = fleet_text(run, functions=1)
    assert re.search(r"expects .* on 1 x 3,?008 MB, against .* on 64 x 3,?008 MB\.$", few), few
    assert fleet_text(run, memory_mb=1024).startswith("No training starts with less than 1,504 MB")
    poor = replace(run, problem=replace(run.problem, goal=replace(run.problem.goal, budget=Usd(1))))
    assert fleet_text(poor, functions=1) == "The model expects none of them to reach the target within the limits."
    cheap = replace(run.problem.goal, minimize=Objective.COST)
    assert "on 64 x" not in fleet_text(replace(run, problem=replace(run.problem, goal=cheap)), functions=1)
    hurry = replace(cheap, deadline_seconds=600.0)
    assert "none of them" in fleet_text(replace(run, problem=replace(run.problem, goal=hurry)), functions=1)
    going = replace(run, status=Status.RUNNING)
    assert (fleet_choices(going), fleet_text(going, functions=1)) == (((), ()), "")


def test_deployment_that_counts_as_equal_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A faster one over the budget, within the noise of the choice: more budget would not choose it."""
    run = shown(budget_run())
    choice = run.choice
    assert choice is not None
    found = what_if(run, budget=run.problem.goal.budget, next_trial=False)
    noise = replace(run, problem=replace(run.problem, noise=0.99))
    best = min((each.plan for each in found.options if not each.fits), key=lambda plan: plan.seconds)
    assert best.seconds < choice.seconds
    share = percent_text(1 - best.seconds / choice.seconds)
    told = f"nothing. {best.config} would be only {share} faster: differences below 99% count as equal."
    assert _equal_text(noise, choice, found) == told
    assert _equal_text(run, choice, found) == "", "much faster"
    fitting = tuple(each for each in found.options if each.fits)
    assert _equal_text(noise, choice, replace(found, options=fitting)) == ""
    ample = replace(run, problem=replace(run.problem, goal=replace(run.problem.goal, budget=Usd.of(10**5))))
    assert more_budget_text(ample) == f"$20.00 more: {NOTHING_BETTER}"
    monkeypatch.setattr("mlcd.findings.more_budget._equal_text", lambda *_: "nothing. Another is equal.")
    assert more_budget_text(ample) == "$20.00 more: nothing. Another is equal."


def test_functions_whose_cost_is_minimised_need_no_more() -> None:
    told = more_budget_text(functions(Usd.of(1), Objective.COST))
    assert told.startswith("$20.00 more: nothing. The least cost was the goal")


def test_functions_that_missed_their_target_are_told_whether_it_would_suffice() -> None:
    run = functions(Usd.of(1))
    missed = replace(run, problem=replace(run.problem, target_loss=0.01), status=Status.NOTHING_FITS)
    assert missed.verdict is not None
    for needed, says in (
        (5, "the target, probably. A budget of about $5.00"),
        (50, "not the target. A budget of about $50"),
    ):
        ended = replace(missed, verdict=replace(missed.verdict, smallest_budget=Usd.of(needed)))
        assert says in more_budget_text(ended)
    ended = replace(missed, verdict=replace(missed.verdict, smallest_budget=None))
    assert "nothing. Money did not end it" in more_budget_text(ended)
