"""Runs side by side, of one kind and of several."""

from typing import Any

from tests.report_kind_samples import serverless_run, serving_run
from tests.report_samples import SAMPLES, budget_run

from mlcd.findings import shown
from mlcd.run.run import Run
from mlcd.web.comparison import Fact, compared
from mlcd.web.records import run_now


def facts(*runs: Run[Any]) -> dict[str, Fact]:
    found = [shown(run) for run in runs]
    return {each.name: each for each in compared(found, [run_now(run, rows=1, live=False) for run in found])}


def test_least_time_and_money_are_marked() -> None:
    first, second = budget_run(), SAMPLES["infeasible"]()
    found = facts(first, second)
    assert found["Spent in all"].values == (str(first.spent), str(second.spent))
    assert found["Spent in all"].best == 1
    assert found["Its cost, expected"].best is None, "only one of them has a choice"
    same = facts(first, first)
    assert not any(each.differs for each in same.values())
    assert all(each.best is None for each in same.values())


def test_training_on_functions_has_no_search_that_was_cheapest() -> None:
    found = facts(serving_run(), serverless_run())
    for name in ("Cost of the search", "Time of the search"):
        assert found[name].values[1] == "-"
        assert found[name].best is None
    assert found["Kind"].values == ("serve", "serverless")
