from dataclasses import replace

import pytest
from tests.report_samples import (
    SAMPLES,
    budget_run,
    choice_of,
    deadline_run,
    knee_run,
    no_limit_run,
    nothing_fits_run,
    with_attempts,
    with_choice,
    with_trials,
)

from mlcd.findings.account import account, keeps_reserve
from mlcd.findings.train import train_findings
from mlcd.goal import Goal, Objective
from mlcd.run.findings import Intervals, Receipt, RejectedConfig, RejectionReason
from mlcd.run.run import SearchRun
from mlcd.trial.plan import Plan
from mlcd.units import Usd


def rejected(run: SearchRun) -> tuple[RejectedConfig, ...]:
    return train_findings(run).rejected


def reasons(run: SearchRun) -> dict[str, RejectedConfig]:
    return {entry.subject: entry for entry in rejected(run)}


def measured_plans(run: SearchRun) -> tuple[Plan, ...]:
    return train_findings(run).measured


def receipt(run: SearchRun) -> Receipt:
    return train_findings(run).receipt


def has_reserve(run: SearchRun) -> bool:
    return keeps_reserve(run, account(run, guarded=True))


def known_intervals(run: SearchRun) -> Intervals:
    known = train_findings(run).choice_intervals
    assert known is not None
    return known


def test_every_configuration_but_the_choice_is_accounted_for() -> None:
    run = budget_run()
    assert sum(entry.configurations for entry in rejected(run)) == len(run.problem.space) - 1


def test_a_faster_deployment_over_the_budget_says_by_how_much() -> None:
    run = budget_run()
    entry = reasons(run)["26 x p2.xlarge"]
    assert entry.plan is not None
    total = run.search_usd + entry.plan.usd
    assert entry.reason is RejectionReason.OVER_BUDGET
    assert "less time, but would cost" in entry.text
    assert f"{total} with the search" in entry.text
    assert f"{total - Usd.of(85)} over the budget" in entry.text


def test_a_slower_deployment_says_by_how_much() -> None:
    run = budget_run()
    entry = reasons(run)["17 x p2.xlarge"]
    assert entry.reason is RejectionReason.SLOWER
    assert entry.plan is not None
    assert entry.text == f"takes {(entry.plan.seconds / choice_of(run).seconds - 1) * 100:.1f}% longer"
    assert reasons(run)["1 x p2.xlarge"].text == "takes 8.6 times as long"


def test_a_cheaper_deployment_after_the_deadline_says_how_late() -> None:
    entry = reasons(deadline_run())["1 x p2.xlarge"]
    assert entry.reason is RejectionReason.LATE
    assert entry.text.endswith("would end 18 h 21 min late")
    assert "cheaper, but" in entry.text


def test_a_broken_upper_bound_differs_from_a_broken_expectation() -> None:
    run = with_trials(budget_run(), budget_run().trials[:11])
    plan = next(p for p in measured_plans(run) if p.config.nodes == 26)
    budget = run.search_usd + plan.usd + Usd.of("0.5")
    lax = replace(run, problem=replace(run.problem, goal=replace(run.problem.goal, budget=budget)))
    assert "could cost up to" in reasons(lax)["26 x p2.xlarge"].text


def test_failures_carry_their_kind_and_message() -> None:
    entry = reasons(budget_run())["24 x c5.xlarge"]
    assert (entry.reason, entry.text) == (RejectionReason.FAILED, "out-of-memory: needs 9.1 GiB a node, 8 GiB there")


def test_unaffordable_configurations_are_named() -> None:
    entries = rejected(SAMPLES["infeasible"]())
    assert {entry.reason for entry in entries} == {RejectionReason.NOT_AFFORDABLE}
    assert entries[0].text == "not tried: a trial may cost $0.0482 or more, and $0.0100 is free"
    assert entries[0].subject == "all 150 of c5.xlarge, c5n.4xlarge and p2.xlarge"
    assert len(entries) == 1


def test_amounts_without_a_limit_are_omitted() -> None:
    run = SAMPLES["infeasible"]()
    goal = Goal(minimize=Objective.COST, deadline_seconds=60.0)
    (entry,) = rejected(replace(run, problem=replace(run.problem, goal=goal)))
    assert entry.text == "not tried: a trial may take 17 min or more, and 1 min is free"
    both = Goal(minimize=Objective.COST, budget=Usd.of(1000), deadline_seconds=60.0)
    (entry,) = rejected(replace(run, problem=replace(run.problem, goal=both)))
    assert "$" not in entry.text


def test_untried_types_have_one_entry_per_reason() -> None:
    run = budget_run()
    untried = [entry for entry in rejected(run) if entry.reason is RejectionReason.NOT_TRIED]
    assert [entry.subject for entry in untried] == ["138 other node counts of c5.xlarge, c5n.4xlarge and p2.xlarge"]
    assert untried[0].text == f"not tried: {run.stopped}"
    assert untried[0].instances == ("c5.xlarge", "c5n.4xlarge", "p2.xlarge")
    few = [entry for entry in rejected(with_trials(run, run.trials[7:])) if entry.reason is RejectionReason.NOT_TRIED]
    assert [entry.subject for entry in few] == [
        "94 other node counts of c5.xlarge and p2.xlarge",
        "all 50 of c5n.4xlarge",
    ]
    assert few[1].text.startswith(f"not tried: {run.stopped}; the model expects ")
    assert few[1].text.endswith(" x c5n.4xlarge"), "the best of them by the goal"


def test_a_tie_names_its_tie_breaker() -> None:
    run = budget_run()
    plans = {plan.config.nodes: plan for plan in measured_plans(run) if plan.config.instance == "p2.xlarge"}
    noisy = replace(run.problem, noise=0.03)
    entry = reasons(with_choice(replace(run, problem=noisy), plans[17]))["20 x p2.xlarge"]
    assert entry.reason is RejectionReason.TIED
    assert entry.text == f"takes 1.3% less time, within 3% of it, but costs {plans[20].usd - plans[17].usd} more"
    pairs = [
        (plan, each)
        for plan in measured_plans(run)
        for each in reasons(with_choice(run, plan)).values()
        if each.reason is RejectionReason.SLOWER and each.plan is not None and each.plan.usd > plan.usd
    ]
    assert pairs
    for plan, each in pairs:
        assert each.plan is not None
        assert each.text.endswith(f" and costs {each.plan.usd - plan.usd} more")
    late = replace(noisy, goal=Goal(minimize=Objective.COST, deadline_seconds=20 * 3600.0))
    slow = reasons(with_choice(replace(run, problem=late), plans[8]))["1 x p2.xlarge"]
    assert slow.reason is not RejectionReason.TIED
    knee = replace(noisy, goal=Goal(minimize=Objective.KNEE))
    assert "within 6.1% of it, but" in reasons(with_choice(replace(run, problem=knee), plans[8]))["14 x p2.xlarge"].text


def test_a_better_configuration_outside_a_tie_was_passed_over() -> None:
    run = budget_run()
    plans = {plan.config.nodes: plan for plan in measured_plans(run) if plan.config.instance == "p2.xlarge"}
    entry = reasons(with_choice(run, plans[8]))["20 x p2.xlarge"]
    assert entry.reason is RejectionReason.PASSED_OVER


def test_the_knee_compares_time_times_cost() -> None:
    assert reasons(knee_run())["8 x p2.xlarge"].reason is RejectionReason.WORSE_KNEE


def test_both_broken_limits_are_named() -> None:
    text = reasons(nothing_fits_run())["8 x p2.xlarge"].text
    assert "over the budget and would end" in text


def test_the_front_is_what_brute_force_finds() -> None:
    run = budget_run()
    plans = measured_plans(run)
    expected = {
        p.config
        for p in plans
        if not any(
            (q.seconds <= p.seconds and q.usd <= p.usd) and (q.seconds < p.seconds or q.usd < p.usd) for q in plans
        )
    }
    front = train_findings(run).pareto
    assert {p.config for p in front} == expected
    assert [p.seconds for p in front] == sorted(p.seconds for p in front)


def test_the_receipt_adds_up() -> None:
    run = budget_run()
    paid = receipt(run)
    assert paid.run_usd is not None
    assert paid.search_usd + paid.run_usd == paid.total_usd == run.total_usd
    assert paid.left_usd == Usd.of(85) - run.total_usd
    assert paid.total_seconds == pytest.approx(run.total_seconds)
    first = paid.savings[0]
    assert first.usd == first.naive.plan.usd - run.total_usd
    assert (paid.trials, paid.failed, paid.run_is_predicted) == (12, 2, False)


def test_a_run_that_was_not_trained_is_predicted() -> None:
    paid = receipt(with_attempts(budget_run()))
    assert paid.run_is_predicted
    assert paid.run_usd == choice_of(budget_run()).usd


def test_intervals_hold_the_prediction_and_lie_under_the_bound() -> None:
    run = budget_run()
    choice = choice_of(run)
    known = known_intervals(run)
    assert known.seconds[0] < choice.seconds < known.seconds[1] < choice.worst_seconds
    assert known.usd[0] < choice.usd < known.usd[1] < choice.worst_usd


def test_the_interval_of_an_untried_choice_comes_from_its_bound() -> None:
    tried, untried = budget_run(), with_trials(budget_run(), ())
    assert known_intervals(untried).seconds == pytest.approx(known_intervals(tried).seconds)


def test_the_account_is_the_ledgers() -> None:
    run = budget_run()
    steps = train_findings(run).account
    assert has_reserve(run)
    assert steps[-1].spent == run.search_usd
    assert steps[-1].reserved == choice_of(run).worst_usd
    assert all(step.spent + step.reserved <= Usd.of(85) for step in steps)


def test_a_strategy_without_a_reserve_is_shown_without_one() -> None:
    run = budget_run()
    tight = replace(run, problem=replace(run.problem, goal=replace(run.problem.goal, budget=Usd.of(60))))
    assert not has_reserve(tight)
    assert {step.reserved for step in train_findings(tight).account} == {Usd(0)}
    assert has_reserve(no_limit_run())
