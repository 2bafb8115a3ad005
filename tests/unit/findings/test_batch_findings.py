"""Findings of a chosen batch, and of rejected configurations where little was tried or the limits are close."""

from dataclasses import replace

import pytest
from tests.report_samples import (
    BUDGET,
    DEADLINE,
    SEARCH,
    batches_run,
    black_box_run,
    budget_run,
    choice_of,
    deadline_run,
    record,
    untried_choice_run,
    with_attempts,
    with_choice,
    with_trials,
)

from mlcd.findings.account import account, keeps_reserve
from mlcd.findings.batches import batch_findings, batch_tradeoff, paid_by
from mlcd.findings.receipt import intervals
from mlcd.findings.train import train_findings
from mlcd.goal import Goal, Objective
from mlcd.run.findings import BatchFindings, RejectionReason, TargetState
from mlcd.run.run import SearchRun
from mlcd.trial.plan import Plan
from mlcd.units import Usd


def untold(run: SearchRun) -> SearchRun:
    """The run before anything was tried or chosen."""
    return with_choice(replace(run, steps=()), None)


def found(run: SearchRun) -> BatchFindings:
    findings = batch_findings(run, replace(run.problem, work_samples=50_000.0, work_known=True))
    assert findings is not None
    return findings


def test_nothing_is_drawn_before_anything_was_tried() -> None:
    run = untold(batches_run())
    findings = found(run)
    assert findings.instance == "m.small"
    assert (findings.as_paid.curves, findings.as_paid.front) == ((), ())
    assert findings.as_paid.preferred is None


def test_one_run_is_shown_and_not_yet_a_law() -> None:
    run = batches_run()
    findings = found(with_choice(replace(run, steps=run.trials[:1]), None))
    (curve,) = findings.as_paid.curves
    assert (curve.batch, curve.predicted) == (64, ())
    assert [point.workers for point in curve.measured] == [1]
    assert findings.as_paid.preferred == (1, 64)


@pytest.mark.parametrize("strategy", ["scavenger-goodput", "scavenger-full:grid=true", "random"])
def test_the_curves_are_those_of_the_strategys_model(strategy: str) -> None:
    run = batches_run(told=False)
    findings = found(replace(run, header=replace(run.header, strategy=strategy)))
    assert [curve.batch for curve in findings.as_paid.curves] == [64, 128, 256, 512]
    assert all(len(curve.predicted) == 4 for curve in findings.as_paid.curves)
    assert findings.as_paid.preferred == (4, 512), "what was chosen"


def test_a_target_is_unknown_expected_or_met() -> None:
    run = replace(batches_run(), steps=batches_run().trials[:1])
    assert found(run).target is TargetState.EXPECTED
    unknown = batch_findings(run, run.problem)
    assert unknown is not None
    assert (unknown.target, unknown.target_samples, unknown.per_million) == (TargetState.UNKNOWN, None, True)
    easy = replace(run.problem, target=replace(run.problem.target, value=0.5))  # type: ignore[type-var]
    assert found(replace(run, problem=easy)).target is TargetState.MET
    assert found(replace(run, problem=replace(run.problem, target=None))).target is None
    allowed = replace(run.problem, work_samples=1000.0, work_known=True)
    assert found(replace(run, problem=allowed)).target is TargetState.ALLOWED


def test_the_policy_is_read_from_the_prices() -> None:
    assert not paid_by(batches_run().problem).is_by_memory
    by_memory = paid_by(black_box_run().problem)
    assert by_memory.is_by_memory
    assert by_memory.fixed == pytest.approx(0.4, abs=1e-3)
    assert not paid_by(budget_run().problem).is_by_memory, "no batch, no share of memory"


def test_where_all_nodes_hold_the_same_the_price_is_by_node() -> None:
    problem = black_box_run().problem
    same = tuple(config for config in problem.space if int(config["batch"]) == 128 * config.nodes)
    assert len(same) > 1
    space = replace(problem.space, configs=same)
    level = replace(problem, space=space, usd_per_hour=tuple(problem.price(config) for config in same))
    assert not paid_by(level).is_by_memory


def test_no_points_have_no_front() -> None:
    assert batch_tradeoff(()).front == ()


def test_a_deadline_too_is_kept_by_a_reserve() -> None:
    run = deadline_run()
    assert keeps_reserve(run, account(run, guarded=True))
    tight = replace(run, problem=replace(run.problem, goal=replace(run.problem.goal, deadline_seconds=3600.0)))
    assert not keeps_reserve(tight, account(tight, guarded=True))


def test_an_untried_plan_that_is_its_own_bound_has_no_intervals() -> None:
    run = untried_choice_run()
    plan = choice_of(run)
    assert intervals(run, run.problem, plan) is not None
    sure = replace(plan, worst_seconds=plan.seconds)
    assert intervals(run, run.problem, sure) is None


@pytest.mark.parametrize(("minimize", "text"), [(Objective.TIME, "as fast"), (Objective.KNEE, "as good")])
def test_one_that_is_as_good_as_the_choice_says_so(minimize: Objective, text: str) -> None:
    search = (("p2.xlarge", 8, 300.0, "a"), ("c5n.4xlarge", 8, 300.0, "a"))
    run = record(Goal(minimize=minimize), chosen=("p2.xlarge", 8), search=search)
    if minimize is Objective.KNEE:  # as cheap, too: the same type twice would be one configuration
        level = tuple(Usd.of(1) * config.nodes for config in run.problem.space)
        problem = replace(run.problem, usd_per_hour=level)
        trials = [step.trial for step in run.trials]
        plan = Plan.of(problem, trials[0])  # type: ignore[arg-type]
        run = with_choice(replace(run, problem=problem), plan)
    (entry,) = [each for each in train_findings(run).rejected if each.subject == "8 x c5n.4xlarge"]
    assert (entry.reason, entry.text) == (RejectionReason.TIED, f"{text}, and no better otherwise")


def test_a_bound_that_ends_late_is_told_from_an_expectation_that_does() -> None:
    run = with_choice(with_attempts(record(DEADLINE, chosen=("p2.xlarge", 14), search=SEARCH[9:10])), None)
    (plan,) = train_findings(run).measured
    deadline = run.search_seconds + (plan.seconds + plan.worst_seconds) / 2
    close = replace(run, problem=replace(run.problem, goal=replace(DEADLINE, deadline_seconds=deadline)))
    entry = train_findings(close).rejected[0]
    assert (entry.subject, entry.reason) == ("14 x p2.xlarge", RejectionReason.LATE)
    assert entry.text.startswith("could end ")


def test_one_configuration_that_was_not_tried_is_named() -> None:
    run = untold(budget_run())
    problem = run.problem
    one = replace(
        problem, space=replace(problem.space, configs=problem.space.configs[:1]), usd_per_hour=problem.usd_per_hour[:1]
    )
    (entry,) = train_findings(replace(run, problem=one)).rejected
    assert entry.subject == "1 x c5.xlarge"
    assert entry.text == f"not tried: {run.stopped}"


def test_what_is_kept_for_the_incumbent_is_named_where_a_trial_cannot_be_paid_beside_it() -> None:
    run = with_choice(with_attempts(record(BUDGET, chosen=("p2.xlarge", 20))), None)
    few = with_trials(run, run.trials[:4])
    plan = next(plan for plan in train_findings(few).measured if str(plan.config) == "8 x p2.xlarge")
    budget = few.search_usd + plan.worst_usd + Usd.of("0.01")
    tight = replace(few, problem=replace(few.problem, goal=Goal(minimize=Objective.TIME, budget=budget)))
    texts = [each.text for each in train_findings(tight).rejected if each.reason is RejectionReason.NOT_AFFORDABLE]
    assert texts
    kept = f"$0.0100 is free besides {plan.worst_usd} kept to train on 8 x p2.xlarge"
    assert all(kept in text for text in texts)
