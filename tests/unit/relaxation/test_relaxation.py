import re
from dataclasses import replace

import pytest
from tests.synthetic import failed, make_problem, measured

from mlcd.goal import Goal, Objective
from mlcd.ledger import Ledger
from mlcd.problem import Problem, TrialPolicy
from mlcd.relaxation import relaxations
from mlcd.space import Config
from mlcd.trial.plan import best_fitting, plans
from mlcd.trial.trial import History
from mlcd.units import MOST_USD, Usd

SMALL, FAST = Config.deployment("c5.small", 1), Config.deployment("p2.one", 16)


def problem_with(*, usd: str | None = None, hours: float | None = None) -> Problem:
    goal = Goal(
        minimize=Objective.TIME,
        budget=None if usd is None else Usd.of(usd),
        deadline_seconds=None if hours is None else hours * 3600,
    )
    return make_problem(goal=goal)


def ledger_of(problem: Problem) -> Ledger:
    history = History((measured(problem, SMALL, 10.0), measured(problem, FAST, 150.0)))
    spent = Usd(sum(t.usd.micros for t in history))
    return Ledger(problem=problem, history=history, spent=spent, elapsed_seconds=sum(t.seconds for t in history))


def relaxed(problem: Problem, *, budget: Usd | None, seconds: float | None) -> Problem:
    goal = Goal(
        minimize=Objective.TIME,
        budget=problem.goal.budget if budget is None else budget,
        deadline_seconds=problem.goal.deadline_seconds if seconds is None else seconds,
    )
    return make_problem(goal=goal)


def check_they_help(problem: Problem) -> None:
    """With any one of the relaxed limits something measured fits, and with the old ones nothing does."""
    ledger = ledger_of(problem)
    assert ledger.incumbent() is None
    answers = relaxations(ledger)
    assert answers
    for answer in answers:
        wider = ledger_of(relaxed(problem, budget=answer.budget, seconds=answer.deadline_seconds))
        assert best_fitting(wider.problem, wider.history, wider.remaining()) is not None
        assert "would fit with" in answer.text
        for limit in (answer.budget, answer.deadline_seconds):
            if isinstance(limit, Usd):
                tight = relaxed(problem, budget=limit - Usd(10_001), seconds=answer.deadline_seconds)
                assert ledger_of(tight).incumbent() is None
            elif limit is not None:
                tight = relaxed(problem, budget=answer.budget, seconds=limit - (3601 if limit > 47 * 3600 else 61))
                assert ledger_of(tight).incumbent() is None


@pytest.mark.parametrize("samples", [s * 200_000 for s in range(150, 175)])
def test_the_deadline_that_is_printed_suffices(samples: int) -> None:
    """From two days on, the text was rounded to the nearest hour: half of the time to less than the run needs."""
    problem = replace(problem_with(hours=2), work_samples=float(samples))
    (answer,) = relaxations(ledger_of(problem))
    said = re.search(r"a deadline of (\d+) d(?: (\d+) h)?$", answer.text)
    assert said, answer.text
    hours = int(said[1]) * 24 + int(said[2] or 0)
    wider = ledger_of(replace(problem, goal=replace(problem.goal, deadline_seconds=hours * 3600.0)))
    assert best_fitting(wider.problem, wider.history, wider.remaining()) is not None


def test_the_limit_that_was_too_small_is_relaxed() -> None:
    check_they_help(problem_with(usd="8"))
    check_they_help(problem_with(hours=2))
    check_they_help(problem_with(usd="12", hours=5))


def test_both_limits_when_neither_alone_would_help() -> None:
    problem = problem_with(usd="5", hours=1)
    (answer,) = relaxations(ledger_of(problem))
    assert answer.budget is not None
    assert answer.deadline_seconds is not None
    assert " and a deadline of " in answer.text
    check_they_help(problem)


def test_money_is_rounded_up_to_the_cent_and_time_to_the_minute() -> None:
    for problem in (problem_with(usd="8"), problem_with(hours=2)):
        for answer in relaxations(ledger_of(problem)):
            assert answer.budget is None or answer.budget.micros % 10_000 == 0
            assert answer.deadline_seconds is None or answer.deadline_seconds % 60 == 0


def test_without_trials_it_names_the_price_of_one_trial() -> None:
    for problem, money, time in (
        (problem_with(usd="0.01"), True, False),
        (problem_with(hours=0.1), False, True),
        (problem_with(usd="0.01", hours=0.1), True, True),
    ):
        (answer,) = relaxations(Ledger(problem=problem, history=History()))
        assert (answer.budget is not None, answer.deadline_seconds is not None) == (money, time)
        assert "one trial of 1 x c5.small alone may need" in answer.text


def test_if_all_trials_failed_within_the_limits_nothing_is_relaxed() -> None:
    problem = problem_with(usd="50")
    history = History((failed(problem, SMALL),))
    assert plans(problem, history) == ()
    assert relaxations(Ledger(problem=problem, history=history)) == ()


def test_work_beyond_what_mlcd_plans_is_a_mistake_in_the_job() -> None:
    endless = make_problem(work_samples=1e30)
    (answer,) = relaxations(ledger_of(endless))
    assert "beyond what mlcd plans" in answer.text
    assert "check job.samples and job.epochs" in answer.text
    assert (answer.budget, answer.deadline_seconds) == (None, None)


def test_a_trial_beyond_what_mlcd_plans_is_a_mistake_in_the_trials_settings() -> None:
    dear = make_problem(trial=TrialPolicy(seconds=1e17))
    (answer,) = relaxations(Ledger(problem=dear, history=History()))
    assert f"alone may cost more than {MOST_USD}: check search.trial and num_nodes" in answer.text
