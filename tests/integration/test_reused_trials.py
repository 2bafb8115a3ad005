"""Trials of the same job in earlier runs: reused at no price, with today's prices, unless --fresh."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import mlcd
from mlcd.jobs.earlier_runs import EarlierRuns, earlier_runs, is_same_job, reuse_notes
from mlcd.jobs.train import prepare
from mlcd.spec import TrainSpec, spec_from_mapping
from mlcd.store.store import Store
from mlcd.trial.trial import FailureKind

JOB: dict[str, Any] = {
    "name": "small",
    "resources": {"infra": "sim/aws", "instance_type": ["c5.xlarge", "c5.4xlarge", "p3.2xlarge"]},
    "num_nodes": "1..4",
    "job": {"model": "resnet152", "samples": 50000, "epochs": 10},
    "goal": {"minimize": "time", "budget": "40 USD"},
    "search": {"max_trials": 4},
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def changed(**changes: Any) -> dict[str, Any]:
    made = {**JOB}
    for name, value in changes.items():
        made[name] = {**made[name], **value} if isinstance(value, Mapping) and name in made else value
    return made


def spec(**changes: Any) -> TrainSpec:
    return spec_from_mapping(changed(**changes))


CHEAPEST = {"goal": {"minimize": "cost", "budget": None}}


def test_trials_under_another_goal_are_known_and_cost_nothing(home: Path) -> None:
    first = mlcd.train(JOB)
    second = mlcd.train(changed(**CHEAPEST), reuse=True)
    with Store(home, reading=True) as store:
        before, after = store.load(first.run_id), store.load(second.run_id)
    assert [each.trial.config for each in after.header.reused] == [trial.config for trial in before.history]
    assert {each.run_id for each in after.header.reused} == {first.run_id}
    assert not {step.config for step in after.trials} & before.history.tried
    assert after.spent.micros == sum(step.outcome.usd.micros for step in after.steps if step.outcome is not None)
    cold = mlcd.train(changed(**CHEAPEST), reuse=False)
    assert second.receipt.total_usd <= cold.receipt.total_usd
    assert second.receipt.trials < cold.receipt.trials
    assert f"reused from {first.run_id}" in second.explain()
    listed = json.loads(second.to_json())["reused"]
    assert [(each["run_id"], each["catalog_date"]) for each in listed] == [
        (first.run_id, before.catalog_date) for _ in before.history
    ]
    assert json.loads(cold.to_json())["reused"] == []
    assert "reused" not in cold.explain()
    assert mlcd.resume(second.run_id).to_json() == second.to_json()


def test_what_is_reused_is_not_reused_twice(home: Path) -> None:
    first = mlcd.train(JOB)
    mlcd.train(changed(**CHEAPEST), reuse=True)
    found = earlier_runs(home, "sim/aws", spec(), prepare(spec()).problem).reused
    with Store(home, reading=True) as store:
        own = [trial.config for trial in store.load(first.run_id).history]
    configs = [each.trial.config for each in found]
    assert len(set(configs)) == len(configs)
    assert set(own) <= set(configs)
    assert [each.run_id for each in found if each.trial.config in own] == [first.run_id] * len(own)


def test_a_simulated_job_reuses_nothing_unless_asked(home: Path) -> None:
    first = mlcd.train(JOB)
    assert mlcd.train(JOB).receipt == first.receipt
    assert mlcd.train(JOB, reuse=False).receipt == first.receipt
    assert mlcd.train(JOB, reuse=True).receipt.trials == 0  # it knows what the first run knew when it stopped
    assert home.exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "other"},
        {"job": {"model": "alexnet"}},
        {"job": {"batch": 64}},
        {"run": "python train.py"},
        {"setup": "pip install x"},
        {"workdir": "."},
    ],
)
def test_another_job_is_not_the_same(changes: dict[str, Any]) -> None:
    assert not is_same_job(spec(), spec(**changes))


@pytest.mark.parametrize(
    "changes",
    [CHEAPEST, {"num_nodes": "1..9"}, {"search": {"max_trials": 9}}, {"resources": {"instance_type": ["c5.xlarge"]}}],
)
def test_the_same_job_may_have_other_goals_limits_and_types(changes: dict[str, Any]) -> None:
    assert is_same_job(spec(), spec(**changes))


def test_only_configurations_of_the_space_and_what_tells_something_are_taken(home: Path) -> None:
    job = changed(job={"model": "bert-large", "samples": 1e5, "epochs": 1})
    first = mlcd.train(job)
    with Store(home, reading=True) as store:
        failures = store.load(first.run_id).history.failures
    assert any(failure.kind is FailureKind.OUT_OF_MEMORY for failure in failures)
    narrow = spec_from_mapping({**job, "num_nodes": 1})
    found = earlier_runs(home, "sim/aws", narrow, prepare(narrow).problem).reused
    assert found
    assert all(each.trial.config.nodes == 1 for each in found)
    assert any(each.trial.config == failures[0].config for each in found) == (failures[0].config.nodes == 1)
    assert earlier_runs(home, "sim/gcp", narrow, prepare(narrow).problem) == EarlierRuns()
    assert earlier_runs(home / "nothing", "sim/aws", narrow, prepare(narrow).problem) == EarlierRuns()


def test_the_note_tells_age_and_prices(home: Path) -> None:
    mlcd.train(JOB)
    found = earlier_runs(home, "sim/aws", spec(), prepare(spec()).problem)
    (note,) = reuse_notes(found, datetime.now(UTC))
    assert "less than a day old" in note
    assert found.reused[0].catalog_date in note
    assert "--fresh" in note
    (note,) = reuse_notes(found, datetime.now(UTC) + timedelta(days=9))
    assert "up to 9 days old" in note
    assert reuse_notes(EarlierRuns(), datetime.now(UTC)) == ()


def test_other_jobs_on_the_same_types_shift_what_is_expected() -> None:
    other = changed(name="other", job={"model": "inception-v3"}, search={"max_trials": 8, "strategy": "random"})
    first = mlcd.train(other)
    asked = spec(search={"strategy": "auto:other-jobs=on"})
    found = prepare(asked, reuse=True)
    assert found.reused == ()
    assert len(found.problem.similar) == len(found.problem.space)
    assert any(found.problem.similar)
    assert first.run_id in found.notes[-1]
    assert prepare(asked).problem.similar == prepare(asked, reuse=False).problem.similar == ()
    elsewhere = spec(resources={"instance_type": ["r5.large"]}, search={"strategy": "auto:other-jobs=on"})
    assert prepare(elsewhere, reuse=True).problem.similar == ()
    few = changed(name="few", job={"model": "inception-v3"}, search={"max_trials": 3})
    mlcd.train(few)
    assert "few" not in prepare(asked, reuse=True).notes[-1]


def test_auto_ignores_other_jobs_unless_asked() -> None:
    mlcd.train(changed(name="other", job={"model": "inception-v3"}, search={"max_trials": 8, "strategy": "random"}))
    found = prepare(spec(search={"strategy": "auto"}), reuse=True)
    assert found.problem.similar == ()
    assert not any("a little like" in note for note in found.notes)
    assert any(prepare(spec(search={"strategy": "heterbo"}), reuse=True).problem.similar)
