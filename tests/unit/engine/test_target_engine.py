"""A search whose training ends at a target: when it stops, and its answer if the end cannot be predicted."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.synthetic import SyntheticCloud, batched, driven, make_engine, make_problem, make_run, true_trial

from mlcd.clouds.provider import Cloud
from mlcd.clouds.reading import Reading
from mlcd.engine.performer import Situation
from mlcd.engine.undone import undone_work
from mlcd.goal import Goal, Objective
from mlcd.problem import Problem, Target
from mlcd.run.step import Step
from mlcd.store.store import Store
from mlcd.trial.outcome import Status
from mlcd.trial.trial import Learned, Measurement, Trial

TARGET = Target(metric="accuracy", value=0.9)


def asked(*, deadline_seconds: float | None = None) -> Problem:
    goal = Goal(minimize=Objective.TIME, deadline_seconds=deadline_seconds)
    problem = batched(make_problem(goal=goal, counts=(1, 2, 4)))
    return replace(problem, target=TARGET, work_known=False, work_samples=1.0)


def learning(monkeypatch: pytest.MonkeyPatch, values: Sequence[float]) -> None:
    """Every trial reports these accuracies."""

    def trial_of(_cloud: Cloud, step: Step, situation: Situation[Problem]) -> Trial:
        trial = true_trial(situation.run.problem, step.config)
        assert isinstance(trial, Measurement)
        return replace(trial, learned=tuple(Learned(1000.0 * i, value) for i, value in enumerate(values, start=1)))

    monkeypatch.setattr("mlcd.engine.on_nodes.measure_trial", trial_of)


def test_the_search_ends_when_a_trial_has_met_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    learning(monkeypatch, (0.5, 0.8, 0.92))
    with Store(None) as store:
        record = driven(make_engine(asked(), SyntheticCloud(), store, "scavenger-full"), store)
    assert len(record.trials) == 1
    assert "target was met" in record.stopped
    assert record.status is Status.DONE


def test_without_a_predicted_end_nothing_is_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    learning(monkeypatch, (0.1, 0.1, 0.1, 0.1, 0.1, 0.1))
    with Store(None) as store:
        engine = make_engine(asked(deadline_seconds=360_000.0), SyntheticCloud(), store, "scavenger-partial")
        record = driven(engine, store)
    assert record.status is Status.NOTHING_FITS
    assert "give job.epochs" in record.stopped
    assert record.choice is None
    assert record.relaxations == (), "no limit would have helped"


@pytest.mark.parametrize(("accuracy", "warned"), [(0.89, True), (0.91, False)])
def test_a_job_that_ends_before_its_target_gives_a_warning(accuracy: float, warned: bool) -> None:
    run = make_run(asked(), SyntheticCloud(), "scavenger-full", run_id="run-1")
    heard = [Reading(seconds=1.0, samples=1000.0, metrics={"accuracy": accuracy})]
    assert ("before its target" in undone_work(run, 1.0, heard, "")) is warned
