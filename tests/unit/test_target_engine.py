"""A search whose training ends at a target: when it stops, and what it answers where no end can be told."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.synthetic import SyntheticCloud, batched, make_engine, make_problem, true_trial

from mlcd.clouds.reading import Reading
from mlcd.engine.engine import Engine
from mlcd.engine.training import Training
from mlcd.engine.watch import Watch
from mlcd.events import Warned
from mlcd.goal import Goal, Objective
from mlcd.problem import Problem, Target
from mlcd.store.store import StartedTrial, Store
from mlcd.trial.outcome import Status
from mlcd.trial.trial import Learned, Measurement, Trial

TARGET = Target(metric="accuracy", value=0.9)


def asked(*, deadline_seconds: float | None = None) -> Problem:
    goal = Goal(minimize=Objective.TIME, deadline_seconds=deadline_seconds)
    problem = batched(make_problem(goal=goal, counts=(1, 2, 4)))
    return replace(problem, target=TARGET, work_known=False, work_samples=1.0)


def learning(monkeypatch: pytest.MonkeyPatch, values: Sequence[float]) -> None:
    """Every trial reports these accuracies."""

    def trial_of(self: Engine, started: StartedTrial) -> Trial:
        trial = true_trial(self.problem, started.authorisation.config)
        assert isinstance(trial, Measurement)
        return replace(trial, learned=tuple(Learned(1000.0 * i, value) for i, value in enumerate(values, start=1)))

    monkeypatch.setattr(Engine, "_measure", trial_of)


def test_the_search_ends_when_a_trial_has_met_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    learning(monkeypatch, (0.5, 0.8, 0.92))
    with Store(None) as store:
        record = make_engine(asked(), SyntheticCloud(), store, "scavenger-full").run()
    assert len(record.rows) == 1
    assert "target was met" in record.stopped
    assert record.status is Status.DONE


def test_where_no_end_can_be_told_nothing_is_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    learning(monkeypatch, (0.1, 0.1, 0.1, 0.1, 0.1, 0.1))
    with Store(None) as store:
        record = make_engine(asked(deadline_seconds=360_000.0), SyntheticCloud(), store, "scavenger-partial").run()
    assert record.status is Status.NOTHING_FITS
    assert "give job.epochs" in record.stopped
    assert record.choice is None
    assert record.relaxations == (), "no limit would have helped"


@pytest.mark.parametrize(("accuracy", "warned"), [(0.89, 1), (0.91, 0)])
def test_a_job_that_ends_before_its_target_is_told_of(accuracy: float, warned: int) -> None:
    told: list[object] = []
    with Store(None) as store:
        engine = make_engine(asked(), SyntheticCloud(), store, "scavenger-full", observer=told.append)
        training = Training(
            accounts=engine._accounts, record=store.record("run-1"), observer=told.append, stop=engine._stop
        )
        heard = [
            Reading(seconds=1.0, samples=1000.0, metrics={"accuracy": accuracy}),
            Reading(seconds=2.0, warning="the checkpoint could not be saved"),
        ]
        training._check_end(Watch(work=1.0, seconds_left=1.0), heard)
    texts = [event.text for event in told if isinstance(event, Warned)]
    assert texts[0] == "the training: the checkpoint could not be saved"
    assert len(texts) == 1 + warned
