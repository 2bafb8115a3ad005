"""A trial that did all of the work and left the outputs ends the run: nothing is trained again."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pytest
from tests.synthetic import QUICK_TRIALS, Listed, Machine, SyntheticCloud, driven, make_engine, make_problem

from mlcd.clouds.provider import JobProgress, Lease, Order, Purpose, Settled
from mlcd.events import Event, SearchEnded
from mlcd.findings.of_run import shown
from mlcd.goal import Goal, Objective
from mlcd.problem import Problem
from mlcd.report.as_json import record_json
from mlcd.report.html import html_report
from mlcd.report.verdict import verdict
from mlcd.run.run import SearchRun
from mlcd.run.verdict import Naive
from mlcd.space import Config
from mlcd.store.store import Store
from mlcd.trial.outcome import Status
from mlcd.units import Usd

MACHINES = {"a": Machine(usd_per_hour=1.0, speed=10.0), "b": Machine(usd_per_hour=1.0, speed=8.0)}
A, B = Config.deployment("a", 1), Config.deployment("b", 1)
WORK = 600.0  # a minute on a; a trial may take longer
KINDS: dict[str, dict[str, Any]] = {"thrown": {}, "kept": {"keeps_work": True}, "beside": {"beside": True}}


class _Job:
    """A trial's lease whose job ends by itself, with all of its work done or with half of it."""

    def __init__(self, *, is_finished: Any, reached: float) -> None:
        self.is_finished, self.reached = is_finished, reached

    def __enter__(self) -> "_Job":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def progress(self) -> Iterator[JobProgress]:
        for second in range(1, 61):
            yield JobProgress(float(second), 10.0 * second)

    def finish(self, at: JobProgress) -> Settled:
        return Settled(seconds=at.seconds + 1, is_finished=self.is_finished, reached_samples=self.reached)


class ShortJobs(SyntheticCloud):
    """A cloud that looks real, where the job is over before a trial is."""

    def __init__(self, *, is_finished: Any = True, saved: float = 0.0) -> None:
        super().__init__(MACHINES, simulated=False)
        self.is_finished, self.saved = is_finished, saved
        self.purposes: list[Purpose] = []

    def reached_samples(self, run_id: str) -> float:
        return self.saved

    def lease(self, order: Order) -> Lease:
        self.purposes.append(order.purpose)
        return _Job(is_finished=self.is_finished, reached=self.saved)


def problem(**others: Any) -> Problem:
    given = {"goal": Goal(minimize=Objective.TIME, budget=Usd.of(3)), "trial": QUICK_TRIALS, **others}
    return make_problem(machines=MACHINES, counts=(1,), work_samples=WORK, **given)


def train(cloud: ShortJobs, given: Problem, *, search_only: bool = False) -> tuple[SearchRun, list[Event]]:
    events: list[Event] = []
    with Store(None) as store:
        engine = make_engine(given, cloud, store, chosen=Listed(configs=(A, B), guarded=True), observer=events.append)
        engine.search_only = search_only
        return shown(driven(engine, store)), events


@pytest.mark.parametrize("work", KINDS)
def test_a_trial_that_did_all_of_the_work_ends_the_run(work: str) -> None:
    cloud = ShortJobs(saved=0.0 if work == "thrown" else WORK)
    run, events = train(cloud, problem(**KINDS[work]))
    assert (run.status, cloud.purposes) == (Status.DONE, [Purpose.TRIAL])
    assert run.stopped == "the trials did all of the work"
    assert run.choice is not None
    assert (run.choice.config, run.choice.seconds) == (A, 61.0)
    assert [event.is_done for event in events if isinstance(event, SearchEnded)] == [True]


def test_its_receipt_has_no_training_and_says_why() -> None:
    run, _ = train(ShortJobs(), problem())
    text = verdict(run)
    assert "The trials did all of the work: no training was needed" in text
    assert "predicted" not in text.split("Receipt")[1].split("Savings")[0]
    assert run.train_findings.receipt.run_usd is None
    assert run.train_findings.receipt.total_usd == run.spent == run.search_usd
    assert run.train_findings.done_share == 1.0
    assert "over nodes" not in text, "a plot of one number of nodes says nothing"
    assert "no training was needed" in html_report(run)
    assert run.verdict is not None
    assert run.choice is not None
    own = Naive(label="cheapest type", plan=run.choice, measured=True)
    beside = shown(replace(run, findings=None, verdict=replace(run.verdict, naive=(own,))))
    for answer in (" ".join(verdict(beside).split()), html_report(beside)):
        assert "Shorter trials (search.trial.minutes, now " in answer
        assert "also what was chosen; the search, which did the training too, took " in answer
    found = record_json(run)
    assert isinstance(found, dict)
    assert (found["status"], found["training"], found["exit_code"]) == ("done", None, 0)


def test_a_trial_that_did_not_finish_is_followed_by_the_training() -> None:
    cloud = ShortJobs(is_finished=False)
    train(cloud, problem())
    assert Purpose.RUN in cloud.purposes


def test_a_search_only_run_that_is_done_is_done() -> None:
    run, _ = train(ShortJobs(), problem(), search_only=True)
    assert run.status is Status.DONE


def test_a_cloud_that_says_something_else_is_not_believed() -> None:
    run, _ = train(ShortJobs(is_finished="yes"), problem())
    assert run.status is Status.ALL_FAILED
    assert "is_finished: should be bool" in run.history.failures[0].message


def test_a_faster_one_is_told_that_the_work_was_done_elsewhere() -> None:
    """It was told "not what exhaustive chose", as if the strategy had preferred the slower one."""

    class Slow(_Job):
        def progress(self) -> Iterator[JobProgress]:
            yield JobProgress(1.0, 0.0)
            yield JobProgress(450.0, 10 * WORK)

    class Steady(_Job):
        def progress(self) -> Iterator[JobProgress]:
            for second in range(1, 300):
                yield JobProgress(float(second), 20.0 * second)

    class SecondFinishes(ShortJobs):
        def lease(self, order: Order) -> Lease:
            self.purposes.append(order.purpose)
            if order.config == B:
                return cast(Lease, Slow(is_finished=True, reached=0.0))
            return cast(Lease, Steady(is_finished=False, reached=0.0))

    trials = replace(QUICK_TRIALS, seconds=60.0, extension=9.0)
    given = replace(problem(trial=trials), work_samples=10 * WORK)
    with Store(None) as store:
        run = shown(driven(make_engine(given, SecondFinishes(), store, chosen=Listed(configs=(A, B))), store))
    assert run.choice is not None
    assert run.choice.config == B
    why = {each.config: each.text for each in run.train_findings.rejected}
    assert why[A].endswith("less time, but the last trial had done the rest of the work elsewhere")
