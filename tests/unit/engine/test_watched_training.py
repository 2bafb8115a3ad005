"""A training that is watched beside its search: moved when something better fits, and back when it is too slow."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.synthetic import Listed, Machine, SyntheticCloud, driven, make_engine, make_problem, stored, timeless

from mlcd.clouds.provider import Cloud, Lease, Order
from mlcd.clouds.wrappers import SlowerRun, Wrapped
from mlcd.deciders.account import Accounts
from mlcd.deciders.watched import seconds_per_usd
from mlcd.goal import Goal, Objective
from mlcd.problem import STOP_SECONDS, Problem, TrialPolicy
from mlcd.run.attempt import Ending
from mlcd.run.run import SearchRun
from mlcd.run.step import Role, Step
from mlcd.space import Config
from mlcd.store.store import Store
from mlcd.trial.outcome import Status
from mlcd.trial.plan import plans
from mlcd.units import Usd

MACHINES = {
    "cheap": Machine(usd_per_hour=1.0, speed=10.0),  # the whole work: 10 h and $10
    "quick": Machine(usd_per_hour=3.0, speed=25.0),  # 4 h and $12
}
CHEAP, QUICK = (Config.deployment(name, 1) for name in MACHINES)
WORK = 360_000.0
TRIAL = TrialPolicy(seconds=300.0, extra_seconds_per_3_nodes=0.0, extension=0.0, watchdog_seconds=0.0)
RESTART = 60.0
LOOK = RESTART + 300.0 + STOP_SECONDS


class Differing(Wrapped):
    """Says that two runs of one deployment differ: upper bounds are 15% above what is measured. Trials are exact."""

    noise = 0.03

    def __init__(self) -> None:
        super().__init__(SyntheticCloud(MACHINES))


@pytest.fixture
def store() -> Iterator[Store]:
    with Store(None) as opened:
        yield opened


def problem(budget: str, **others: Any) -> Problem:
    made: dict[str, Any] = {"noise": 0.03, "trial": TRIAL, "beside": True, "restart_seconds": RESTART, **others}
    goal = Goal(minimize=Objective.TIME, budget=Usd.of(budget))
    return make_problem(watched=True, machines=MACHINES, counts=(1,), work_samples=WORK, goal=goal, **made)


def run_of(store: Store, configs: tuple[Config, ...], of: Problem, *, cloud: Cloud | None = None) -> SearchRun:
    chosen = Listed(configs=configs)
    return driven(make_engine(of, cloud or Differing(), store, chosen=chosen), store)


def trainings(run: SearchRun) -> list[Step]:
    return [step for step in run.steps if step.role is Role.TRAINING]


def check_books(run: SearchRun) -> None:
    assert run.problem.goal.budget is not None
    assert run.total_usd == Usd(sum(s.outcome.usd.micros for s in run.steps if s.outcome is not None))
    assert run.total_usd <= run.problem.goal.budget
    assert run.total_seconds == pytest.approx(run.step_seconds)
    for step in run.steps:
        assert step.outcome is not None
        assert step.outcome.usd <= step.authorised_usd


def test_a_look_at_the_training_frees_money_for_another_trial(store: Store) -> None:
    """The upper bound from the trial, 15% more than expected, leaves nothing for a trial; the training's own does."""
    run = run_of(store, (CHEAP, QUICK), problem("11.75"))
    assert [(step.round, step.role, step.config) for step in run.steps[:4]] == [
        (1, Role.TRIAL, CHEAP),
        (2, Role.TRAINING, CHEAP),
        (3, Role.TRIAL, QUICK),
        (3, Role.TRAINING, CHEAP),
    ]
    look = run.steps[1].final
    assert (look.ending, look.seconds) == (Ending.CONTINUED, LOOK)
    assert run.status is Status.DONE
    check_books(run)


def test_the_training_moves_as_soon_as_something_better_fits_the_rest(store: Store) -> None:
    """$12 for the whole work on `quick` is too much at first, with a margin; after some of it on `cheap`, it fits."""
    run = run_of(store, (CHEAP, QUICK), problem("12.3"))
    first, last = run.attempts
    assert (first.config, first.ending, last.config, last.ending) == (CHEAP, Ending.MOVED, QUICK, Ending.DONE)
    assert 0.1 < first.reached_samples / WORK < 0.5
    assert run.total_usd.dollars > 11.5
    check_books(run)


def test_a_deployment_that_is_only_likely_to_fit_is_tried_with_a_fallback(store: Store) -> None:
    """At its upper bound `quick` does not fit, as measured it does; a look there says that it does."""
    run = run_of(store, (CHEAP, QUICK), problem("13.2"))
    assert {attempt.config for attempt in run.attempts} == {QUICK}
    assert trainings(run)[0].final.seconds == LOOK
    check_books(run)


class SlowQuick(SlowerRun):
    """Trainings on `quick` are slower than its trials."""

    def lease(self, order: Order) -> Lease:
        return super().lease(order) if order.config == QUICK else self.inner.lease(order)


def test_it_leaves_a_deployment_that_turns_out_too_slow_for_the_fallback(store: Store) -> None:
    run = run_of(store, (CHEAP, QUICK), problem("13.2"), cloud=SlowQuick(Differing(), share=0.2))
    first, second, *_ = run.attempts
    assert (first.config, first.ending, first.seconds) == (QUICK, Ending.MOVED, LOOK)
    assert second.config == CHEAP
    assert run.status is Status.DONE
    check_books(run)


def test_after_the_search_nobody_looks(store: Store) -> None:
    """The last stretch fits at its upper bound: the search ends only then."""
    run = run_of(store, (CHEAP, QUICK), problem("13.2"))
    last = trainings(run)[-1]
    assert run.verdict is not None
    assert last.started_seconds >= run.verdict.search_seconds
    assert last.final.seconds <= last.authorised_seconds


@pytest.mark.parametrize("budget", ["11.75", "12.3", "13.2"])
@pytest.mark.parametrize("killed_at", range(2, 8))
def test_a_watched_run_killed_anywhere_resumes_to_the_same_answer(store: Store, budget: str, killed_at: int) -> None:
    searched = problem(budget)
    whole = run_of(store, (CHEAP, QUICK), searched)

    class Killed(BaseException):
        pass

    class Mortal(Differing):
        count = 0

        def lease(self, order: Order) -> Lease:
            Mortal.count += 1
            if Mortal.count == killed_at:
                raise Killed
            return super().lease(order)

    with Store(None) as other:
        chosen = Listed(configs=(CHEAP, QUICK))
        engine = make_engine(searched, Mortal(), other, chosen=chosen)
        try:
            engine.drive()
        except Killed:
            make_engine(searched, Mortal(), other, chosen=chosen, add=False).drive()
        resumed = stored(other)
    assert timeless(resumed.steps) == timeless(whole.steps)
    assert resumed.total_usd == whole.total_usd
    assert resumed.total_seconds == whole.total_seconds


def test_money_is_worth_the_time_that_it_saves_on_a_faster_deployment(store: Store) -> None:
    """After a look, the rest fits on `cheap` only: a dollar more would let a part of it run on `quick`."""
    run = run_of(store, (CHEAP, QUICK), problem("12.3"))
    steps = run.steps[:3]
    assert [step.role for step in steps] == [Role.TRIAL, Role.TRIAL, Role.TRAINING]
    account = Accounts().at(replace(run, verdict=None, steps=steps), 960.0)
    stay = account.training
    assert stay is not None
    there = next(plan for plan in plans(account.remaining, account.restarting) if plan.config == QUICK)
    rate = (stay.seconds - there.seconds) / (there.usd.dollars - stay.usd.dollars)
    assert seconds_per_usd(account, stay) == pytest.approx(rate)
    assert rate > 3600
    rich = Accounts().at(replace(run, verdict=None, steps=steps, problem=problem("100")), 960.0)
    assert rich.training is not None
    assert seconds_per_usd(rich, rich.training) == 0.0
