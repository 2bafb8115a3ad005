"""Data and refusals of places in the account of a run."""

from dataclasses import replace

from tests.synthetic import failed, make_problem, measured
from tests.unit.deciders.test_deciders import BUDGET, SPEED, A, C, add, new_run

from mlcd.deciders.account import Accounts, available
from mlcd.problem import DataMove, Problem
from mlcd.run.attempt import Attempt, Ending
from mlcd.run.step import Role
from mlcd.space import Config
from mlcd.trial.plan import Plan
from mlcd.trial.trial import Failure, FailureKind, History
from mlcd.units import Usd

MOVED = Usd.of(7)
D = Config.deployment


def beside() -> Problem:
    return replace(make_problem(goal=BUDGET), beside=True, moves={"": DataMove(usd=MOVED)})


def test_the_rest_of_a_training_has_its_data_until_its_first_stretch_has_paid_for_it() -> None:
    problem = beside()
    run = add(new_run(problem), Role.TRIAL, A, measured(problem, A, SPEED[A]))
    plan = Plan.of(problem, measured(problem, A, SPEED[A]))
    assert plan.moved_usd == MOVED
    assert plan.usd == problem.price(A).for_seconds(plan.seconds) + MOVED
    begun = Accounts().at(add(run, Role.TRAINING, A, None), 1000.0).training
    assert begun is not None
    assert begun.worst_usd > MOVED
    assert begun.moved_usd == MOVED
    seconds = 900.0
    paid = problem.price(A).for_seconds(seconds) + MOVED
    stretch = Attempt(config=A, seconds=seconds, usd=paid, ending=Ending.CONTINUED, reached_samples=1000.0)
    rest = Accounts().at(add(run, Role.TRAINING, A, stretch), 2000.0).training
    assert rest is not None
    assert rest.moved_usd == Usd(0)
    assert rest.usd == problem.price(A).for_seconds(rest.seconds)


def test_a_move_counts_the_data_again() -> None:
    problem = beside()
    run = add(
        add(new_run(problem), Role.TRIAL, A, measured(problem, A, SPEED[A])),
        Role.TRIAL,
        C,
        measured(problem, C, SPEED[C]),
    )
    stretch = Attempt(config=A, seconds=900.0, usd=MOVED, ending=Ending.CONTINUED, reached_samples=1000.0)
    account = Accounts().at(add(run, Role.TRAINING, A, stretch), 3000.0)
    moved = Plan.of(account.remaining, next(trial for trial in account.restarting.measured if trial.config == C))
    assert moved.moved_usd == MOVED


def test_what_a_cloud_no_longer_gives_counts_as_failed() -> None:
    problem = make_problem(goal=BUDGET)
    trial = measured(problem, A, SPEED[A])
    here, there = replace(trial, config=D("m (here)", 4)), replace(trial, config=D("m (there)", 4))
    few, other = replace(trial, config=D("m (here)", 2)), replace(trial, config=D("n (here)", 8))
    history = History((here, there, few, other))

    def left(*attempts: Attempt, of: History = history) -> list[str]:
        return [str(each.config) for each in available(of, attempts).measured]

    assert left() == ["4 x m (here)", "4 x m (there)", "2 x m (here)", "8 x n (here)"]
    refused = Attempt(config=here.config, seconds=5.0, usd=Usd(0), ending=Ending.MOVED, refused=FailureKind.REFUSED)
    assert left(refused) == ["4 x m (there)"]
    assert left(replace(refused, refused=FailureKind.CAPACITY)) == ["4 x m (there)", "2 x m (here)", "8 x n (here)"]
    by_trial = replace(failed(problem, A), config=D("k (there)", 1), kind=FailureKind.REFUSED)
    assert left(of=History((*history, by_trial))) == ["4 x m (here)", "2 x m (here)", "8 x n (here)"]
    gone = available(history, (refused,)).trials[0]
    assert isinstance(gone, Failure)
    assert (gone.kind, gone.usd, gone.attempt) == (FailureKind.REFUSED, here.usd, here.attempt)  # it stays paid
