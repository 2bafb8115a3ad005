"""What is told of a training that continues from its trials: the whole work and the rest are kept apart."""

from typing import Any

import pytest
from tests.synthetic import Listed, driven, make_engine
from tests.unit.engine.test_finished_trial import WORK, A, B, ShortJobs, problem

from mlcd.findings.of_run import shown
from mlcd.report.as_json import record_json
from mlcd.report.html import html_report
from mlcd.report.verdict import verdict
from mlcd.run.run import SearchRun
from mlcd.store.store import Store


def half_done(**others: Any) -> SearchRun:
    """A run whose one trial, on A at 10 samples/s, saved half of the work."""
    cloud = ShortJobs(is_finished=False, saved=WORK / 2)
    naive = (("the cheapest type", B), ("the most expensive type", A))
    with Store(None) as store:
        chosen = Listed(configs=(A,), guarded=True)
        return shown(
            driven(make_engine(problem(keeps_work=True, **others), cloud, store, chosen=chosen, naive=naive), store)
        )


def test_savings_compare_with_all_of_the_work() -> None:
    naive = {each.plan.config: each.plan.seconds for each in half_done().naive}
    assert naive[A] == pytest.approx(WORK / 10, rel=0.1), "all of the work, not the half that was left"
    assert naive[B] > WORK / 2 / 10


def test_the_prediction_says_that_it_is_for_the_rest() -> None:
    run = half_done()
    assert run.choice is not None
    assert run.choice.seconds == pytest.approx(WORK / 2 / 10, rel=0.1)
    text = verdict(run)
    assert "for the remaining 50% of the training" in text
    assert "remaining" in text.split("Top 1")[1].splitlines()[0]
    assert "for the remaining 50% of the training" in html_report(run)


def test_a_training_that_is_done_has_reached_all_of_its_samples() -> None:
    found = record_json(half_done())
    assert isinstance(found, dict)
    assert isinstance(found["training"], dict)
    assert found["training"]["reached_samples"] >= WORK
