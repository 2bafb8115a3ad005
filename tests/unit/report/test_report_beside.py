"""Reports of runs whose training runs beside their trials: each lease is one training, and time counts once."""

import re
from dataclasses import replace
from typing import Any

import pytest
from jsonschema import validate
from tests.rendered import html_of, json_of, picture_names, picture_of, verdict_of
from tests.synthetic import Machine, OneFirst, SyntheticCloud, driven, make_engine, make_problem

from mlcd.findings import shown
from mlcd.goal import Goal, Objective
from mlcd.problem import TrialPolicy
from mlcd.report.as_json import schema
from mlcd.run.run import SearchRun
from mlcd.space import Config
from mlcd.store.store import Store
from mlcd.trial.outcome import Status
from mlcd.units import Usd, format_seconds

MACHINES = {
    "slow": Machine(usd_per_hour=1.0, speed=10.0),
    "even": Machine(usd_per_hour=1.0, speed=10.0),
    "fast": Machine(usd_per_hour=4.0, speed=20.0),
}
SLOW, EVEN, FAST = (Config.deployment(name, 1) for name in MACHINES)


@pytest.fixture(scope="module")
def moved() -> SearchRun:
    problem = make_problem(
        machines=MACHINES,
        counts=(1,),
        work_samples=72_000.0,
        goal=Goal(minimize=Objective.TIME, budget=Usd.of(20), deadline_seconds=20_000.0),
        trial=TrialPolicy(seconds=300.0, extra_seconds_per_3_nodes=0.0, extension=0.0, watchdog_seconds=0.0),
        noise=0.0,
        beside=True,
        restart_seconds=100.0,
    )
    with Store(None) as store:
        chosen = OneFirst(configs=(SLOW, EVEN, FAST), at_once=1)
        return driven(make_engine(problem, SyntheticCloud(MACHINES), store, chosen=chosen, parallel=2), store)


def receipt(run: SearchRun) -> dict[str, Any]:
    found: Any = json_of(run)["receipt"]
    return dict(found)


def test_the_receipt_counts_the_time_beside_the_search_once(moved: SearchRun) -> None:
    paid = receipt(moved)
    trainings = sum(each["seconds"] for each in paid["earlier"]) + paid["run_seconds"]
    assert paid["beside_seconds"] == 600.0
    assert paid["total_seconds"] == pytest.approx(paid["search_seconds"] + trainings - 600.0)
    assert paid["total_seconds"] == pytest.approx(moved.step_seconds)
    assert paid["left_seconds"] == pytest.approx(20_000 - moved.step_seconds)
    money = paid["search_usd"] + sum(each["usd"] for each in paid["earlier"]) + paid["run_usd"]
    assert paid["total_usd"] == pytest.approx(money)
    assert paid["total_usd"] == moved.spent.dollars


def test_stretches_on_the_same_nodes_are_one_training(moved: SearchRun) -> None:
    (earlier,) = receipt(moved)["earlier"]
    assert (earlier["ending"], earlier["instance"], earlier["seconds"]) == ("moved", "slow", 600.0)


def test_text_and_page_name_the_move_and_the_time_beside(moved: SearchRun) -> None:
    total = format_seconds(moved.total_seconds)
    for text in (verdict_of(moved), re.sub(r"<[^>]+>", " ", html_of(moved))):
        assert "moved off 1 x slow" in text
        assert "of which beside the search" in text.lower()
        assert total in text


def test_the_json_fits_its_schema(moved: SearchRun) -> None:
    found = json_of(moved)
    validate(found, schema())
    settings: Any = found["settings"]
    assert (settings["work"], settings["restart_seconds"]) == ("beside", 100.0)


def test_every_picture_can_be_drawn(moved: SearchRun) -> None:
    assert all(picture_of(moved, kind).startswith("<svg") for kind in picture_names(moved))


@pytest.mark.parametrize("steps", range(7))
def test_a_run_that_is_under_way_can_be_shown(moved: SearchRun, steps: int) -> None:
    """After any number of its steps: `mlcd show` while it runs, or after it was killed."""
    under_way = replace(moved, steps=moved.steps[:steps], status=Status.RUNNING, verdict=None, findings=None)
    assert "Not finished" in verdict_of(under_way)
    validate(json_of(under_way), schema())
    assert html_of(under_way)


def test_the_account_reserves_what_the_training_may_still_take(moved: SearchRun) -> None:
    """After each trial, what is spent and reserved is what the ledger saw: the reserve shrinks with the work."""
    steps = shown(moved).train_findings.account
    assert [step.trial for step in steps] == [step.number for step in moved.trials]
    assert steps[2].reserved < steps[1].reserved == steps[0].reserved  # the first stretch was in flight then
    assert all(step.incumbent is not None for step in steps)
