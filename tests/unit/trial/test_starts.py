"""Trials are planned for as long as this run's trials took to start."""

from dataclasses import replace

import pytest
from tests.synthetic import failed, make_problem, measured

from mlcd.goal import Goal, Objective
from mlcd.ledger import Ledger
from mlcd.problem import Problem, TrialPolicy
from mlcd.run.authorisation import Authorisation, Refusal
from mlcd.space import Config
from mlcd.trial.plan import Plan
from mlcd.trial.starts import with_known_start
from mlcd.trial.trial import History
from mlcd.units import Usd

SMALL, BIG = Config.deployment("c5.small", 1), Config.deployment("p2.one", 1)
EARLY = TrialPolicy(least_share=0.15)  # 10 minutes; 90 s after the first sample


def started(problem: Problem, *seconds: float) -> History:
    """Trials that took so long to start."""
    trial = measured(problem, SMALL, 100.0)
    return History(tuple(replace(trial, attempt=n, startup_seconds=s) for n, s in enumerate(seconds, start=1)))


def test_a_known_start_and_the_least_time_after_it_are_planned() -> None:
    known = replace(EARLY, start_seconds=150.0)
    assert known.planned_seconds(1) == 150 + 90
    assert known.planned_seconds(7) == 150 + 0.15 * 720
    assert known.worst_seconds(1) == 240 * 1.5 + 120
    assert known.at_full_length == EARLY


def test_no_trial_is_planned_longer_than_without_a_known_start() -> None:
    assert replace(EARLY, start_seconds=5000.0).planned_seconds(1) == EARLY.planned_seconds(1) == 600


def test_data_is_moved_besides_the_start() -> None:
    assert replace(EARLY, start_seconds=100.0, moving_seconds=60.0).planned_seconds(1) == 100 + 60 + 90


@pytest.mark.parametrize("policy", [TrialPolicy(), TrialPolicy(least_share=0.15, extension=0.0)])
def test_trials_that_never_end_early_are_planned_as_before(policy: TrialPolicy) -> None:
    assert replace(policy, start_seconds=10.0).planned_seconds(1) == 600
    problem = make_problem(trial=policy)
    assert with_known_start(problem, started(problem, 100.0)) is problem


def test_the_slowest_start_counts_with_a_margin_in_whole_steps() -> None:
    problem = make_problem(trial=EARLY)
    assert with_known_start(problem, History((failed(problem, SMALL),))) is problem
    assert with_known_start(problem, started(problem, 30.0, 101.0)).trial.start_seconds == 130  # 1.25 x 101 = 126.25


def test_a_start_is_not_negative() -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        TrialPolicy(start_seconds=-1.0)


# ---- what is authorised


def case(budget: Usd) -> tuple[Problem, History]:
    problem = make_problem(trial=EARLY, goal=Goal(minimize=Objective.TIME, budget=budget), work_samples=1e5)
    history = started(problem, 100.0)
    return with_known_start(problem, history), history


def ask(budget: Usd) -> tuple[Problem, Authorisation | Refusal]:
    problem, history = case(budget)
    return problem, Ledger(problem=problem, history=history).authorise(BIG)


def amounts() -> tuple[Usd, Usd, Usd]:
    """The reserve, a short trial at its worst, and one of the full length."""
    problem, history = case(Usd.of(1000))
    reserve = Plan.of(problem, history.measured[0]).worst_usd
    price = problem.price(BIG)
    return reserve, price.for_seconds((130 + 90) * 1.5 + 120), price.for_seconds(600 * 1.5 + 120)


def test_a_trial_may_take_its_full_time_where_the_limits_have_room() -> None:
    reserve, _, full = amounts()
    _, answer = ask(reserve + full)
    assert isinstance(answer, Authorisation)
    assert (answer.seconds, answer.usd) == (600 * 1.5 + 120, full)


def test_a_shorter_trial_is_authorised_where_the_full_time_does_not_fit() -> None:
    reserve, short, full = amounts()
    for budget in (reserve + short, reserve + full - Usd(1)):
        _, answer = ask(budget)
        assert isinstance(answer, Authorisation)
        assert (answer.seconds, answer.usd) == ((130 + 90) * 1.5 + 120, short)


def test_no_trial_is_authorised_that_takes_of_the_reserve() -> None:
    reserve, short, _ = amounts()
    problem, answer = ask(reserve + short - Usd(1))
    assert isinstance(answer, Refusal)
    assert not Ledger(problem=problem, history=started(problem, 100.0)).remaining().allowed[problem.space.index[BIG]]


# ---- what the profiler does with it


@pytest.mark.parametrize("authorised", [1020.0, 700.0, 450.0, 300.0])
@pytest.mark.parametrize("start", [None, 60.0, 130.0, 400.0])
def test_a_trial_takes_what_was_authorised_and_no_more(authorised: float, start: float | None) -> None:
    rules = replace(EARLY, start_seconds=start).within(authorised, 1)
    assert rules.worst_seconds(1) == pytest.approx(authorised)
    assert rules.planned_seconds(1) <= replace(EARLY, start_seconds=start).planned_seconds(1)
    assert rules.may_end_early


def test_rules_that_were_authorised_as_they_are_stay() -> None:
    known = replace(EARLY, start_seconds=130.0)
    assert known.within(known.worst_seconds(1), 1) is known
    exact = TrialPolicy(extension=0.0)
    assert exact.within(1.0, 1) is exact, "trials that take exactly their time are not authorised for less"
