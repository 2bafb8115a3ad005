"""Why another one was not chosen: asked by instance type, or by configuration of a server."""

from dataclasses import replace

from tests.report_kind_samples import fallen_run, nothing_serves_run, serverless_run, serving_run
from tests.report_samples import SAMPLES, USD_PER_NODE_HOUR, budget_run, with_attempts

from mlcd.findings import shown
from mlcd.findings.what_if import MORE_USD, more_budget, what_if
from mlcd.run.findings import RejectedConfig, RejectionReason, UntriedState
from mlcd.run.run import SearchRun
from mlcd.trial.outcome import Status
from mlcd.units import Usd
from mlcd.web.why_not import FREE, MOST_ANSWERS, answers, failure, reason, subjects


def test_every_type_of_a_training_has_an_answer() -> None:
    for name, make in SAMPLES.items():
        run = shown(make())
        for instance in subjects(run):
            found = answers(run, instance)
            assert found, (name, instance)
            assert len(found) <= MOST_ANSWERS + 2, "how many more, and what is free"
    assert subjects(shown(budget_run())) == tuple(USD_PER_NODE_HOUR)


def test_answers_are_the_reasons_of_the_report() -> None:
    run = shown(budget_run())
    assert run.choice is not None
    instance = run.choice.config.instance
    assert answers(run, instance)[0] == f"{run.choice.config} was chosen."
    for each in run.train_findings.rejected:
        if each.config is None or each.config.instance == instance:
            continue
        told = answers(run, each.config.instance)
        if len(told) <= MOST_ANSWERS:
            assert any(each.text in line for line in told)
    assert answers(run, "c5.xlargest") == ()
    assert answers(run, "c5.xlarge") != answers(run, "c5n.4xlarge")


def test_what_was_skipped_for_its_price_is_told_of_its_own_type_only() -> None:
    run = shown(budget_run())
    account = replace(run.train_findings.account[0], skipped=("4 x c5.xlarge and 3 more of its type: its trial costs",))
    run = with_findings(run, rejected=(), account=(account,))
    assert any("skipped 4 x c5.xlarge" in line for line in answers(run, "c5.xlarge"))
    assert not any("skipped" in line for line in answers(run, "p2.xlarge"))
    assert not any("skipped" in line for line in answers(run, "xlarge"))


def test_choice_is_explained_against_the_next_best() -> None:
    run = shown(budget_run())
    measured = [each for each in run.train_findings.rejected if each.plan is not None]
    told = reason(run)
    assert told.startswith(f"The fastest that fits, of {len(measured) + 1} measured deployments: ")
    fitting = next(each for each in measured if each.reason is RejectionReason.SLOWER)
    assert f"{fitting.subject} {fitting.text}" in told
    assert measured[0].reason is RejectionReason.OVER_BUDGET, "the sample has a faster one that is over the budget"
    assert f"{measured[0].subject} {measured[0].text}" in told
    assert with_rejected(run, *measured[1:], measured[0]).count("over the budget") == 0, "only where it is better"
    passed = replace(measured[0], reason=RejectionReason.PASSED_OVER)
    assert with_rejected(run, passed).startswith(f"What {run.strategy} chose: ")
    tied = with_rejected(run, replace(fitting, reason=RejectionReason.TIED, text="takes 1% less time, but $1 more"))
    assert tied.startswith("One of the fastest that fit, of 2 measured deployments: ")
    assert with_rejected(run) == "It is the only deployment that was measured."
    assert reason(shown(SAMPLES["infeasible"]())) == ""


def test_functions_are_explained_by_what_the_job_allows() -> None:
    run = serverless_run()
    most = "mpc chose for each epoch; 2 of 4 ran on 100 x 1,769 MB"
    assert reason(shown(run)) == f"{most}: the most functions and the most memory that the job allows."
    within = replace(run, problem=replace(run.problem, functions=(1, 100, 200), memory_mb=(512, 1769, 3008)))
    assert reason(within) == f"{most}."
    assert reason(replace(run, steps=(), findings=None)) == ""


def with_rejected(run: SearchRun, *rejected: RejectedConfig) -> str:
    return reason(with_findings(run, rejected=rejected))


def test_type_that_was_not_tried_is_told_why_for_itself() -> None:
    """Not the reason of a group of many types: for each state, the one that came nearest; then why the search ended."""
    run = shown(budget_run())
    group = RejectedConfig(
        subject="all 9", reason=RejectionReason.NOT_TRIED, text="not tried", instances=("c5.xlarge", "p2.xlarge")
    )
    untried = [each for each in run.train_findings.untried if each.config.instance == "p2.xlarge"]
    states = {each.state for each in untried}
    assert UntriedState.REFUSED in states
    assert len(states) > 1
    chosen, *told, free = answers(with_findings(run, rejected=(group,), account=()), "p2.xlarge")
    assert free == FREE
    assert chosen == f"{run.choice and run.choice.config} was chosen."
    assert len(told) == len(states) + 1
    for state in states:
        of_state = [each for each in untried if each.state is state]
        assert any(line.partition(":")[0].startswith(str(each.config)) for line in told for each in of_state), state
        assert any(each.text in line for line in told for each in of_state), state
    assert told[-1] == f"The search ended: {run.stopped}."
    assert not any("all 9" in line for line in told)
    refused = with_findings(
        run, rejected=(group,), account=(), untried=tuple(u for u in untried if u.state is UntriedState.REFUSED)
    )
    _, money, *_ = answers(refused, "p2.xlarge")
    assert answers(refused, "p2.xlarge") == (chosen, money, FREE), "the money, not the end of the search"
    first = next(each for each in untried if each.state is UntriedState.REFUSED)
    assert money.startswith(f"{first.config} and "), "of one type, fewer nodes have the cheaper trial"
    assert "more of its type, whose trials cost no less: not tried: its trial costs up to" in money
    unknown = with_findings(run, rejected=(group,), account=(), untried=())
    assert answers(unknown, "p2.xlarge") == (chosen, "All 9: not tried.")


def with_findings(run: SearchRun, **changed: object) -> SearchRun:
    assert run.findings is not None
    return replace(run, findings=replace(run.findings, train=replace(run.train_findings, **changed)))  # type: ignore[arg-type]


def test_failed_run_says_what_failed() -> None:
    failed = (Status.RUN_FAILED, Status.ALL_FAILED, Status.OVERRAN, Status.OUTPUT_MISSING)
    for name, make in SAMPLES.items():
        run = make()
        assert bool(failure(run)) == (run.status in failed), name
    missing = SAMPLES["output-missing"]()
    assert missing.final is not None
    silent = replace(missing.final, message="", missing_outputs=("model.pt",))
    assert failure(with_attempts(missing, silent)).endswith(": it did not leave model.pt")
    assert failure(serverless_run()) == ""
    lost = replace(serverless_run(), status=Status.RUN_FAILED)
    assert failure(lost) == "Epoch 3 on 50 x 512 MB: 3 functions ran out of memory"


def test_configurations_of_a_server_are_explained() -> None:
    for make in (serving_run, fallen_run, nothing_serves_run):
        run = shown(make())
        assert subjects(run) == tuple(each.subject for each in run.serve_findings.rejected)
        for each in run.serve_findings.rejected:
            assert answers(run, each.subject)[0].lower() == f"{each.text}.".lower()
    assert run.serve_findings.rejected[0].subject in reason(shown(serving_run()))
    assert subjects(shown(serverless_run())) == ()


def test_more_budget_is_told_with_what_it_brings() -> None:
    run = shown(budget_run())
    budget = run.problem.goal.budget
    assert budget is not None
    found = what_if(run, budget=budget, next_trial=False)
    step = next((each for each in found.steps if each.budget > budget), None)
    assert step is not None
    told = more_budget(found)
    assert told.startswith(f"{MORE_USD} more: {step.plan.config} instead, ")
    far = replace(step, budget=budget + MORE_USD + Usd.of("1"))
    told_far = more_budget(replace(found, steps=(far,)))
    assert told_far.startswith(f"{MORE_USD} more: nothing. From $21.00 more on: {step.plan.config} instead, ")
    assert " faster, for " in told
    assert what_if(run, budget=step.budget, next_trial=False).choice == step.plan
    assert "more: nothing. No better deployment was measured." in more_budget(
        what_if(run, budget=Usd.of(10**6), next_trial=False)
    )
    assert more_budget(what_if(run, next_trial=False)) == ""
    assert more_budget(what_if(replace(run, status=Status.RUNNING), budget=Usd.of("0.01"), next_trial=False)) == ""
