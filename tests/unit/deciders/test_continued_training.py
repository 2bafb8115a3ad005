"""A training that continues: where it may go once it has saved work, and what is said where none runs."""

from dataclasses import replace

import pytest
from tests.synthetic import SyntheticCloud, make_problem, make_run, measured

from mlcd.deciders.account import Account
from mlcd.deciders.watched import better_place, spot_watch, staying
from mlcd.run.attempt import Attempt, Ending
from mlcd.run.authorisation import Authorisation
from mlcd.run.run import SearchRun
from mlcd.run.step import Outcome, Role, Step
from mlcd.space import Config
from mlcd.units import ZERO, Usd

D = Config.deployment
SMALL, SMALLER, BIG = D("c5.small", 4), D("c5.small", 1), D("c5.big", 2)


def with_step(run: SearchRun, role: Role, config: Config, outcome: Outcome) -> SearchRun:
    step = Step(
        number=len(run.steps) + 1,
        round=len(run.steps) + 1,
        role=role,
        authorisation=Authorisation(choice=config, attempt=1, usd=Usd.of(5), seconds=5000.0),
        reason="",
        usd_per_hour=run.problem.price(config),
        started_seconds=0.0,
        started_at=0.0,
    )
    return run.with_started([step]).with_ended(step.number, outcome)


def account(*, reached_samples: float | None) -> Account:
    """After trials everywhere, and after an attempt on SMALL that saved so much; None: no attempt yet."""
    problem = replace(make_problem(), learning=("instance",))
    run = make_run(problem, SyntheticCloud(), "listed", run_id="run-1")
    for config in (SMALLER, SMALL, BIG):
        run = with_step(run, Role.TRIAL, config, measured(problem, config, 10.0))
    if reached_samples is not None:
        lost = Attempt(config=SMALL, seconds=9.0, usd=ZERO, ending=Ending.RESTARTED, reached_samples=reached_samples)
        run = with_step(run, Role.TRAINING, SMALL, lost)
    return Account(run=run, elapsed_seconds=0.0, remaining=problem)


@pytest.mark.parametrize(
    ("reached", "left"),
    [(None, {SMALLER, SMALL, BIG}), (0.0, {SMALLER, SMALL, BIG}), (100.0, {SMALLER, SMALL})],
)
def test_saved_work_continues_only_where_it_learns_as_before(reached: float | None, left: set[Config]) -> None:
    assert {trial.config for trial in account(reached_samples=reached).history.measured} == left


def test_without_a_training_there_is_nothing_to_stay_with_or_to_move() -> None:
    none = account(reached_samples=None)
    assert staying(none) is None
    assert better_place(none) is None
    assert spot_watch(none, 10.0, 0.0) is None
