"""Why another one was not chosen: asked by instance type, or by configuration of a server."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from markupsafe import escape
from tests.report_kind_samples import fallen_run, nothing_serves_run, serverless_run, serving_run
from tests.report_samples import SAMPLES, USD_PER_NODE_HOUR, budget_run, with_attempts

import mlcd
from mlcd.findings import shown
from mlcd.findings.more_budget import fleet_text
from mlcd.findings.what_if import MORE_USD, more_budget, what_if
from mlcd.goal import Goal, Objective, Slo
from mlcd.report.decisions import decisions
from mlcd.report.html import train_tables
from mlcd.report.serverless import instances_text
from mlcd.report.serving import headroom_text, serving_verdict
from mlcd.report.serving_html import serving_html
from mlcd.report.step_words import miss_text
from mlcd.report.verdict import verdict
from mlcd.report.wording import sentence
from mlcd.run.attempt import Ending
from mlcd.run.findings import RejectedConfig, RejectionReason, Untried, UntriedState
from mlcd.run.kind import Kind
from mlcd.run.run import Run, SearchRun
from mlcd.space import Config, Space
from mlcd.spec.template import template
from mlcd.trial.outcome import Status
from mlcd.units import Usd, chance_text, format_seconds
from mlcd.web.answer import tiles
from mlcd.web.records import run_now
from mlcd.web.why_not import FREE, MOST_ANSWERS, MOST_COUNTS, answer, caveats, compared, failure, reason, subjects
from mlcd.web.why_short import MOST_WORDS


def answers(run: Run[Any], subject: str) -> tuple[str, ...]:
    """All that is said: in short, then in full."""
    found = answer(run, subject)
    return (*found.short, *found.more)


def words(texts: Iterable[str]) -> int:
    return sum(len(text.split()) for text in texts)


def test_every_type_of_a_training_has_an_answer() -> None:
    for name, make in SAMPLES.items():
        run = shown(make())
        for instance in subjects(run):
            found = answer(run, instance)
            assert found.short, (name, instance)
            assert len(found.more) <= MOST_ANSWERS + 2, "how many more, and what is free"


def test_answer_comes_first_and_is_short() -> None:
    """A reader has it in half a minute: the decisive number in the first sentence, the rest where it is asked for."""
    for make in SAMPLES.values():
        run = shown(make())
        for instance in subjects(run):
            first, *lines = answer(run, instance).short
            assert words([first]) <= MOST_WORDS, first
            assert len(lines) <= 2
            assert words([first, *lines]) <= (60 if len(lines) > 1 else 50 if lines else 30), (first, lines)
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
    refused = with_findings(run, rejected=(), account=(account,))
    run = with_findings(run, rejected=(), account=(account,), untried=())
    assert any("skipped 4 x c5.xlarge" in line for line in answers(run, "c5.xlarge"))
    assert not any("skipped" in line for line in answers(run, "p2.xlarge"))
    assert not any("skipped" in line for line in answers(run, "xlarge"))
    assert any(
        each.state is UntriedState.REFUSED and each.config.instance == "p2.xlarge"
        for each in refused.train_findings.untried
    )
    mentioned = replace(account, skipped=("4 x p2.xlarge: its trial costs",))
    told = answers(with_findings(refused, account=(mentioned,)), "p2.xlarge")
    assert not any("After trial" in line for line in told), "its price at the end is told already"


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
    cheaper = replace(measured[0], text="7.2% cheaper, but would end late")
    assert f": {cheaper.subject} is 7.2% cheaper, but would end late" in with_rejected(run, cheaper)
    passed = replace(measured[0], reason=RejectionReason.PASSED_OVER)
    assert with_rejected(run, passed).startswith(f"What {run.strategy} chose: ")
    tied = with_rejected(run, replace(fitting, reason=RejectionReason.TIED, text="takes 1% less time, but $1 more"))
    assert tied.startswith("One of the fastest that fit, of 2 measured deployments: ")
    assert with_rejected(run) == "It is the only deployment that was measured."
    assert reason(shown(SAMPLES["infeasible"]())) == ""


def test_functions_are_explained_by_what_the_job_allows() -> None:
    run = serverless_run()
    most = "The scheduler (mpc) chose before each epoch; 2 of 4 ran on 100 x 1,769 MB"
    assert reason(shown(run)) == f"{most}: the most functions and the most memory that the job allows."
    within = replace(run, problem=replace(run.problem, functions=(1, 100, 200), memory_mb=(512, 1769, 3008)))
    assert reason(within) == f"{most}."
    assert reason(replace(run, steps=(), findings=None)) == ""


def with_rejected(run: SearchRun, *rejected: RejectedConfig) -> str:
    return reason(with_findings(run, rejected=rejected))


def test_type_that_was_not_tried_is_told_why_for_itself() -> None:
    """Not what is said of many types: of each reason, the one that came nearest; then why the search ended."""
    run = shown(budget_run())
    group = RejectedConfig(
        subject="all 9", reason=RejectionReason.NOT_TRIED, text="not tried", instances=("c5.xlarge", "p2.xlarge")
    )
    untried = [each for each in run.train_findings.untried if each.config.instance == "p2.xlarge"]
    states = {each.state for each in untried}
    assert UntriedState.REFUSED in states
    assert len(states) > 1
    chosen = f"{run.choice and run.choice.config} was chosen."
    found = answer(with_findings(run, rejected=(group,), account=()), "p2.xlarge")
    assert found.short[0] == chosen
    assert any("on the map: " in line for line in found.short)
    few = Space(run.problem.space.knobs, tuple({each.config for each in untried} | {run.choice.config}))  # type: ignore[union-attr]
    whole = with_findings(run, rejected=(), account=())
    prices = (run.problem.usd_per_hour[0],) * len(few)
    small = replace(whole, problem=replace(whole.problem, space=few, usd_per_hour=prices, stretch=()))
    assert not any("on the map" in line for line in answer(small, "p2.xlarge").short)
    refusals = sum(each.state is UntriedState.REFUSED for each in untried)
    assert any(f"{refusals} whose trial does not fit" in line for line in found.short)
    assert len(found.more) == len(states)
    for state in states:
        of_state = [each for each in untried if each.state is state]
        assert any(line.partition(":")[0].startswith(str(each.config)) for line in found.more for each in of_state)
        assert any(each.text.removeprefix("not tried; the model") in line for line in found.more for each in of_state)
    assert not any("all 9" in line for line in found.more)
    refused = with_findings(
        run, rejected=(group,), account=(), untried=tuple(u for u in untried if u.state is UntriedState.REFUSED)
    )
    (money,) = answer(refused, "p2.xlarge").more
    assert run.stopped not in money, "the money, not the end of the search"
    first = next(each for each in untried if each.state is UntriedState.REFUSED)
    assert money.startswith(f"{first.config} and "), "of one type, fewer nodes have the cheaper trial"
    assert "more of its type, whose trials cost no less: not tried, because its trial costs up to" in money
    assert f" kept to train on {run.choice and run.choice.config}" in money
    other = replace(refused, verdict=replace(run.verdict, choice=None))  # type: ignore[type-var]
    (short,) = answer(other, "p2.xlarge").short
    assert short.startswith(f"Not tried: a trial of {first.config}, the cheapest of {refusals}, costs up to $")
    assert short.endswith(" is free."), "what is kept is told in full only"
    old = tuple(replace(each, text=each.text.partition(" besides")[0]) for each in refused.train_findings.untried)
    assert answer(with_findings(refused, untried=old), "p2.xlarge").more[-1] == FREE, "which named no amount"
    unknown = with_findings(run, rejected=(group,), account=(), untried=())
    assert answers(unknown, "p2.xlarge") == (chosen, "All 9: not tried.")


def test_those_over_the_budget_are_not_called_late() -> None:
    """One group for each reason: over the budget, later than the deadline, both; each names its own nearest."""
    run = shown(budget_run())
    kept = replace(run.train_findings.receipt, cap_usd=Usd.of(100), cap_seconds=36_000.0)
    paid = replace(kept, search_usd=Usd.of(10), search_seconds=3600.0, earlier=(), beside_seconds=0.0)
    spare = [c for c in run.problem.space if c.instance == "p2.xlarge"][:4]
    values = [(36_000.0, 50.0), (18_000.0, 120.0), (14_400.0, 150.0), (72_000.0, 200.0)]
    untried = tuple(
        Untried(
            config=config,
            state=UntriedState.OVER_LIMIT,
            text=f"not tried; the model expects it{paid.over_text(seconds, Usd.of(usd))}",
            seconds=seconds,
            usd=Usd.of(usd),
        )
        for config, (seconds, usd) in zip(spare, values, strict=True)
    )
    assert untried[3].text.endswith("over the $90.00 left and later than the 9 h left")
    late, over, dearer, both = untried
    asked = with_findings(run, receipt=paid, rejected=(), account=(), untried=untried)
    _, told = answer(asked, "p2.xlarge").short
    assert told == ("Not tried, on the map: 2 expected over the budget; 1 over both limits; 1 too late.")
    assert answer(asked, "p2.xlarge").more == (
        f"{over.config} and 1 more of its type: {over.text}.",
        f"{both.config}: {both.text}.",
        f"{late.config}: {late.text}.",
    )
    other = replace(asked, verdict=replace(run.verdict, choice=None))  # type: ignore[type-var]
    assert answer(other, "p2.xlarge").short[0] == (
        f"Not tried: {over.config}, the cheapest of 2, is expected to cost $120.00, over the $90.00 left."
    )
    alone = with_findings(other, untried=(late,))
    assert answer(alone, "p2.xlarge").short == (
        f"Not tried: {late.config} is expected to take 10 h, later than the 9 h left.",
    )
    assert dearer.config != over.config


def test_best_of_those_tried_is_named_with_what_decides() -> None:
    run = shown(budget_run())
    measured = [each for each in run.train_findings.rejected if each.plan is not None]
    fitting = next(each for each in measured if each.reason is RejectionReason.SLOWER)
    assert fitting.config is not None
    instance = fitting.config.instance
    other = replace(run, verdict=replace(run.verdict, choice=None))  # type: ignore[type-var]
    (told,) = answer(with_findings(other, rejected=(fitting,), account=(), untried=()), instance).short
    assert told == f"{fitting.subject}, the only one tried, {fitting.text}."
    over = replace(fitting, reason=RejectionReason.OVER_BUDGET, subject="9 x it")
    (told,) = answer(with_findings(other, rejected=(over, fitting), account=(), untried=()), instance).short
    assert told == f"{fitting.subject}, the best of 2 tried, {fitting.text}.", "the best that fits"
    text = (
        "takes 64% longer, and would cost $227.14 with the search: $127.14 over the budget and would end 2 h 9 min late"
    )
    both = replace(over, text=text, subject="16 x p3.2xlarge, B = 512")
    found = answer(with_findings(other, rejected=(both,), account=(), untried=()), instance)
    assert found.short == (f"{both.subject} {text.partition(' and would end')[0]}.",), "cut between two limits"
    assert found.more == (f"{both.subject}: {text}.",)
    failed = replace(both, plan=None, reason=RejectionReason.FAILED, text=" ".join(["word"] * 40))
    found = answer(with_findings(other, rejected=(failed,), account=(), untried=()), instance)
    assert found.short[0].endswith("word ...")
    assert words(found.short) == MOST_WORDS + 1


def test_end_of_the_search_is_the_reason_of_those_that_could_have_been_tried() -> None:
    """The reason first, then what the model expects, beside the choice."""
    run = shown(budget_run())
    assert run.choice is not None
    one = next(each for each in run.train_findings.untried if each.config.instance != run.choice.config.instance)
    text = "not tried; the model expects 2 h (95%: 1 h to 4 h) and $50.00"
    expected = replace(one, state=UntriedState.PREDICTED, text=text, seconds=7200.0, usd=Usd.of(50))
    instance = one.config.instance
    found = answer(with_findings(run, rejected=(), account=(), untried=(expected,)), instance)
    takes = format_seconds(run.choice.seconds)
    assert run.choice.seconds > 7200.0
    assert found.short == (
        f"Not tried: {one.config} is expected to take 2 h; the choice takes {takes}.",
        f"The search ended: {run.stopped}.",
    )
    (told,) = found.more
    assert told == (
        f"{one.config}: not tried, because the search ended: {run.stopped}. {sentence(text.partition('; ')[2])},"
        f" against {takes} and {run.choice.usd} of the choice."
    )
    slow = replace(expected, seconds=run.choice.seconds * 2)
    assert len(answer(with_findings(run, rejected=(), account=(), untried=(slow,)), instance).short) == 1
    of_choice = answer(
        with_findings(run, rejected=(), account=(), untried=(replace(slow, config=_other(run)),)),
        run.choice.config.instance,
    )
    slower = format_seconds(run.choice.seconds * 2)
    assert of_choice.short[1] == f"1 other is expected to fit, but in {slower}."
    plain = replace(expected, state=UntriedState.NOT_TRIED, text="not tried")
    found = answer(with_findings(run, rejected=(), account=(), untried=(plain,)), instance)
    assert found.short == (f"Not tried: {one.config}, because the search ended: {run.stopped}.",)
    over = replace(expected, state=UntriedState.OVER_LIMIT, text=f"{text}, over the $9.00 left")
    *_, told = answers(with_findings(run, rejected=(), account=(), untried=(over,)), instance)
    assert told == f"{one.config}: {text}, over the $9.00 left."


def _other(run: SearchRun) -> Config:
    """One of the type that was chosen."""
    choice = run.choice
    assert choice is not None
    return next(c for c in run.problem.space if c.instance == choice.config.instance and c != choice.config)


def test_rival_that_counts_as_equal_is_no_reason() -> None:
    """It would not have been chosen with more budget either."""
    run = shown(budget_run())
    rival = next(each for each in run.train_findings.rejected if each.reason is RejectionReason.OVER_BUDGET)
    assert rival.subject in reason(run)
    noisy = replace(run, problem=replace(run.problem, noise=0.99))
    assert rival.subject not in reason(noisy)


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
        tried = tuple(each.subject for each in run.serve_findings.rejected)
        untried = run.serve_findings.untried_configs
        assert [each for each in subjects(run) if "=" in each] == [*tried, *(str(each.config) for each in untried)]
        for each in run.serve_findings.rejected:
            assert answers(run, each.subject)[0].lower() == f"{each.text}.".lower()
        for other in untried:
            (told,) = answers(run, str(other.config))
            assert told.startswith("Not tried")
    assert run.serve_findings.rejected[0].subject in reason(shown(serving_run()))


def test_what_cannot_be_asked_about_has_no_answer() -> None:
    """A server on this machine has no instance types."""
    for run in (serving_run(), budget_run()):
        assert answers(shown(run), "") == ()
        assert answers(shown(run), "p9.nothing") == ()


def test_untried_configurations_of_a_server_are_explained() -> None:
    whole = serving_run()
    cut = shown(replace(whole, steps=(*whole.trials[:2], *whole.steps[len(whole.trials) :]), findings=None))
    untried = cut.serve_findings.untried_configs
    assert len(untried) == 2
    for each in untried:
        assert str(each.config) in subjects(cut)
        (told,) = answers(cut, str(each.config))
        assert told == f"Not tried, because the search ended: {cut.stopped}."


def test_instance_types_of_a_server_are_explained() -> None:
    """With a training's findings: what is asked is in the space alone."""
    run = shown(budget_run())
    server = replace(run, header=replace(run.header, kind=Kind.SERVE))
    assert subjects(server)[: len(USD_PER_NODE_HOUR)] == tuple(USD_PER_NODE_HOUR)
    assert len(subjects(server)) > len(USD_PER_NODE_HOUR)
    assert answers(server, "p2.xlarge") == answers(run, "p2.xlarge")


def test_choice_of_a_server_is_explained_against_the_next_best() -> None:
    run = shown(serving_run())
    found = run.serve_findings
    first = found.rejected[0]
    tested = f"of {len(found.rejected) + 1} load-tested configurations. Next best: {first.subject}: {first.text}."
    assert reason(run).endswith(tested)

    def with_rejected(*rejected: RejectedConfig) -> str:
        assert run.findings is not None
        return reason(replace(run, findings=replace(run.findings, serve=replace(found, rejected=rejected))))

    assert with_rejected(replace(first, reason=RejectionReason.DEARER)).startswith(
        "The cheapest within the limits, of 2"
    )
    assert with_rejected(replace(first, reason=RejectionReason.TIED)).startswith(
        "One of the cheapest within the limits"
    )
    broken = replace(first, reason=RejectionReason.BREAKS_SLO, text="p99 1 s over the limit")
    assert with_rejected(broken, replace(first, reason=RejectionReason.FAILED)) == (
        f"It is the only one of 3 load-tested configurations within the limits. Nearest: {first.subject}: p99 1 s over"
        " the limit."
    )
    assert with_rejected() == "It is the only configuration that was load-tested."


def test_memory_and_numbers_of_functions_are_explained(tmp_path: Path) -> None:
    run = mlcd.serverless(template(kind="serverless"), home=tmp_path).record
    asked = subjects(run)
    assert {"1,769 MB", "3,008 MB", "1 function", "64 functions"} <= set(asked)
    assert len(asked) <= 3 + MOST_COUNTS
    count, expected = answers(run, "3,008 MB")
    used = [each for each in run.epochs if each.fleet.memory_mb == 3008]
    assert count == f"{len(used)} of {len(run.epochs)} epochs ran with 3,008 MB."
    assert expected == fleet_text(run, memory_mb=3008)
    assert answers(run, "1 function") == (
        f"None of {len(run.epochs)} epochs ran with 1 function.",
        fleet_text(run, functions=1),
    )
    assert answers(run, "p3.2xlarge") == ()
    assert subjects(replace(run, status=Status.RUNNING)) == ()


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


def test_caveats_of_a_server_are_those_of_its_text() -> None:
    made = serving_run()
    last = made.attempts[-1]
    assert last.load is not None
    saturated = replace(last, load=replace(last.load, saturated="the load generator sent 1 in 100 requests 20 ms late"))
    fell = replace(last, ending=Ending.MOVED, message="p99 of 75 ms at 300 requests/s, over the 50 ms allowed")
    run = shown(with_attempts(made, fell, saturated))
    assert run.findings is not None
    run = replace(run, findings=replace(run.findings, serve=replace(run.serve_findings, untried=3)))
    doubt, failed, untried, note = caveats(run)
    assert doubt == "The true rate may be higher: the load generator sent 1 in 100 requests 20 ms late."
    assert failed == f"A verification at a higher rate failed before: {fell.message}."
    assert untried == f"3 of {len(run.problem.space)} configurations were not tried."
    assert run.serving is not None
    assert note.lower() == run.serving.notes[0].lower()
    text, page = serving_verdict(run), serving_html(run)
    assert doubt in text
    assert "; a verification at a higher rate failed before" in text
    assert untried in text
    assert all(str(escape(each)) in page for each in (doubt, failed, untried))
    assert headroom_text(run) in text
    assert headroom_text(run).endswith(" is kept as headroom")
    assert headroom_text(run) in tiles(run, run_now(run, rows=1, live=False), "")[1].small
    assert caveats(shown(budget_run())) == ()
    assert caveats(replace(run, status=Status.RUNNING)) == ()


def test_what_was_measured_is_beside_what_was_expected() -> None:
    run = shown(serving_run(Goal(minimize=Objective.COST, slo=Slo(seconds=0.001))))
    missed = {each.config: each.text for each in run.serve_findings.rejected if "over the limit" in each.text}
    steps = [step for step in run.trials if step.config in missed]
    assert steps
    told = [line.text for line in decisions(run)]
    for step in steps:
        text = miss_text(run, step)
        assert missed[step.config].startswith(text)
        assert any(f" requests/s, {text}" in line for line in told)
        assert f"measured: {text}" in serving_html(run)


def test_expected_chances_are_never_certain() -> None:
    assert [chance_text(chance) for chance in (0.0, 0.004, 0.5, 0.994, 0.996, 1.0)] == [
        "<1%",
        "<1%",
        "50%",
        "99%",
        ">99%",
        ">99%",
    ]


def test_what_a_training_would_have_taken_otherwise_is_that_of_its_text() -> None:
    run = shown(budget_run())
    question, answer = compared(run)
    assert question == "What did the search save?"
    naive = run.train_findings.receipt.savings[0].naive
    assert f"{naive.plan.config} ({naive.label}" in answer
    first = answer.removesuffix(".").split(": ")[1].split("; with ")[0]
    assert " ".join(first.split()) in " ".join(verdict(run).split())
    assert any(table.title == "Compared with not searching" for table in train_tables(run))
    functions = shown(serverless_run())
    assert compared(functions) == ("Is a plain instance better, as estimated?", instances_text(functions))
    assert instances_text(functions)
    assert compared(shown(serving_run()))[1] == ""
    assert compared(replace(run, status=Status.RUNNING)) == ("", "")
