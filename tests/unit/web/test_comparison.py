"""Runs side by side, of one kind and of several."""

from dataclasses import replace
from typing import Any

from tests.report_kind_samples import serverless_run, serving_run
from tests.report_samples import SAMPLES, budget_run

from mlcd.findings import shown
from mlcd.problem import Blueprint
from mlcd.run.run import Run
from mlcd.units import format_seconds
from mlcd.web.comparison import Fact, compared, verdict
from mlcd.web.records import run_now


def facts(*runs: Run[Any]) -> dict[str, Fact]:
    found = [shown(run) for run in runs]
    return {each.name: each for each in compared(found, [run_now(run, rows=1, live=False) for run in found])}


def test_least_time_and_money_are_marked() -> None:
    first, second = budget_run(), SAMPLES["infeasible"]()
    found = facts(first, second)
    assert found["Spent in all"].values == (str(first.spent), str(second.spent))
    assert found["Spent in all"].best == (1,)
    assert found["Its cost, expected"].best == (), "only one of them has a choice"
    same = facts(first, first)
    assert not any(each.differs for each in same.values())
    assert all(each.best == () for each in same.values())


def test_training_on_functions_has_no_search_that_was_cheapest() -> None:
    found = facts(serving_run(), serverless_run())
    for name in ("Cost of the search", "Time of the search"):
        assert found[name].values[1] == "-"
        assert found[name].best == ()
    assert found["Kind"].values == ("serve", "serverless")


def test_training_has_what_it_took_beside_what_was_expected() -> None:
    run = budget_run()
    paid = shown(run).train_findings.receipt
    found = facts(run, SAMPLES["infeasible"]())
    assert found["Its cost, actual"].values == (str(paid.run_usd), "-")
    assert found["Its time, actual"].values == (format_seconds(paid.run_seconds or 0.0), "-")
    assert "Its cost, actual" not in facts(serving_run(), serverless_run())


def test_least_of_different_kinds_is_not_marked() -> None:
    found = facts(budget_run(), serving_run())
    assert found["Spent in all"].differs
    assert all(each.best == () for each in found.values())


def test_equal_least_values_are_all_marked() -> None:
    first, second = budget_run(), SAMPLES["infeasible"]()
    found = facts(second, first, second)
    assert found["Spent in all"].best == (0, 2)
    assert found["Time in all"].best == (0, 2)


def told(*runs: Run[Any]) -> tuple[str, ...]:
    found = [shown(run) for run in runs]
    return verdict(found, [run_now(run, rows=1, live=False) for run in found])


def test_verdict_says_what_was_chosen_and_what_took_least() -> None:
    first = budget_run()
    assert first.choice is not None
    chose, time, money = told(first, first)
    assert chose == f"Both chose {first.choice.config}."
    assert time == f"Least time, search included: equal, {format_seconds(first.total_seconds)}."
    assert money == f"Least money, search included: equal, {first.spent}."
    other = SAMPLES["no-limit"]()
    second = replace(other, header=replace(other.header, run_id="other"))
    chose, time, money = told(first, second)
    assert chose == f"{first.run_id} chose {first.choice.config}, other chose {second.choice and second.choice.config}."
    rows = facts(first, second)
    for line, fact in ((time, rows["Time in all"]), (money, rows["Spent in all"])):
        (best,) = fact.best
        names = (first.run_id, "other")
        assert line.endswith(f": {names[best]}, {fact.values[best]}; next: {names[1 - best]}, {fact.values[1 - best]}.")


def test_verdict_compares_only_what_is_comparable() -> None:
    first, failed, server = budget_run(), SAMPLES["infeasible"](), serving_run()
    assert told(first, failed)[1:] == (f"Not done: {failed.run_id}.",)
    longer = replace(first, problem=replace(first.problem, work_samples=2 * first.problem.work_samples))
    assert told(first, longer)[1:] == ("Their work differs: their times and costs do not compare.",)
    networks = [
        replace(first, problem=replace(first.problem, blueprint=network))
        for network in (
            Blueprint(flops_per_sample=1e9, parameter_bytes=size, batch=512, machines={}) for size in (1e6, 2e6)
        )
    ]
    assert told(*networks)[1:] == told(first, longer)[1:]
    assert told(networks[0], networks[0])[1].startswith("Least time")
    assert told(server, serverless_run())[1:] == ("They are of different kinds: their times and costs do not compare.",)
    assert told(server, server)[1:] == (
        f"Least money a request: equal, {shown(server).serve_findings.choice.usd_per_million}.",  # type: ignore[union-attr]
    )
