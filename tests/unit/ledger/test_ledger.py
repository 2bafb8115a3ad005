import pytest
from tests.synthetic import failed, make_problem, measured

from mlcd.goal import Goal, Objective
from mlcd.ledger import Ledger
from mlcd.problem import Problem
from mlcd.run.authorisation import Authorisation, Refusal
from mlcd.space import Config
from mlcd.trial.plan import Plan
from mlcd.trial.trial import History
from mlcd.units import MOST_USD, ZERO, Usd

SMALL, BIG = Config.deployment("c5.small", 1), Config.deployment("p2.one", 16)


def limited(*, usd: str | None = None, hours: float | None = None) -> Problem:
    goal = Goal(
        minimize=Objective.TIME,
        budget=None if usd is None else Usd.of(usd),
        deadline_seconds=None if hours is None else hours * 3600,
    )
    return make_problem(goal=goal)


def authorised(problem: Problem, config: Config) -> Authorisation:
    answer = Ledger(problem=problem, history=History()).authorise(config)
    assert isinstance(answer, Authorisation)
    return answer


def test_without_limits_everything_is_allowed() -> None:
    problem = limited()
    ledger = Ledger(problem=problem, history=History())
    remaining = ledger.remaining()
    assert (remaining.usd, remaining.seconds) == (None, None)
    assert remaining.allowed.all()
    assert ledger.incumbent() is None


def test_a_trial_is_authorised_at_its_worst_case() -> None:
    problem = limited(usd="100")
    answer = authorised(problem, BIG)
    # 600 s + 5 x 60 s, half as much again, 120 s of watchdog
    assert answer.seconds == 900 * 1.5 + 120
    assert answer.usd == problem.price(BIG).for_seconds(answer.seconds)
    assert answer.attempt == 1


def test_a_retry_has_the_next_attempt() -> None:
    problem = limited()
    history = History((failed(problem, SMALL), failed(problem, SMALL, attempt=2)))
    answer = Ledger(problem=problem, history=history).authorise(SMALL)
    assert isinstance(answer, Authorisation)
    assert answer.attempt == 3


def test_money_is_enough_to_the_micro_dollar() -> None:
    worst = authorised(limited(), BIG).usd
    exactly = make_problem(goal=Goal(minimize=Objective.TIME, budget=worst))
    short = make_problem(goal=Goal(minimize=Objective.TIME, budget=worst - Usd(1)))
    assert isinstance(Ledger(problem=exactly, history=History()).authorise(BIG), Authorisation)
    refusal = Ledger(problem=short, history=History()).authorise(BIG)
    assert isinstance(refusal, Refusal)
    assert refusal.choice == BIG
    assert refusal.reason == f"a trial may take {worst} and 24 min 30 s; {worst - Usd(1)} left"


def test_time_is_enough_to_the_second() -> None:
    seconds = authorised(limited(), BIG).seconds
    for deadline, allowed in ((seconds, True), (seconds - 0.001, False)):
        problem = make_problem(goal=Goal(minimize=Objective.TIME, deadline_seconds=deadline))
        answer = Ledger(problem=problem, history=History()).authorise(BIG)
        assert isinstance(answer, Authorisation) == allowed


def test_the_incumbents_worst_case_is_reserved() -> None:
    free = limited()
    history = History((measured(free, SMALL, 100.0),))
    reserve = Plan.of(free, history.measured[0])
    worst = authorised(free, BIG)
    for extra, allowed in ((0, True), (-1, False)):
        budget = reserve.worst_usd + worst.usd + Usd(extra)
        problem = make_problem(goal=Goal(minimize=Objective.TIME, budget=budget))
        ledger = Ledger(problem=problem, history=history)
        answer = ledger.authorise(BIG)
        assert isinstance(answer, Authorisation) == allowed
        if isinstance(answer, Refusal):
            assert "are kept to train on 1 x c5.small" in answer.reason
    for slack, allowed in ((0.001, True), (-0.001, False)):
        deadline = reserve.worst_seconds + worst.seconds + slack
        problem = make_problem(goal=Goal(minimize=Objective.TIME, deadline_seconds=deadline))
        answer = Ledger(problem=problem, history=history).authorise(BIG)
        assert isinstance(answer, Authorisation) == allowed
        if isinstance(answer, Refusal):
            assert "min left" in answer.reason or "s left" in answer.reason


def test_a_measured_deployment_that_does_not_fit_reserves_nothing() -> None:
    problem = limited(usd="5")
    history = History((measured(problem, SMALL, 10.0),))  # 2e6 samples at 10/s on $0.17/h: over $9
    ledger = Ledger(problem=problem, history=history, spent=history.trials[0].usd)
    assert ledger.incumbent() is None
    assert isinstance(ledger.authorise(SMALL), Authorisation)


def test_running_trials_commit_the_sum_of_money_and_the_longest_time() -> None:
    problem = limited(usd="100", hours=10)
    opened = (authorised(problem, SMALL), authorised(problem, BIG))
    ledger = Ledger(problem=problem, history=History(), spent=Usd.of(3), elapsed_seconds=100.0, open=opened)
    assert ledger.committed == opened[0].usd + opened[1].usd
    assert ledger.usd_left == Usd.of(97) - ledger.committed
    assert ledger.seconds_left == 36_000 - 100 - opened[1].seconds


def test_the_budget_must_cover_the_sum_of_parallel_trials() -> None:
    worst = authorised(limited(), BIG).usd
    problem = make_problem(goal=Goal(minimize=Objective.TIME, budget=worst + worst - Usd(1)))
    first = authorised(problem, BIG)
    second = Ledger(problem=problem, history=History(), open=(first,)).authorise(BIG)
    assert isinstance(second, Refusal)


def test_a_short_trial_in_parallel_with_a_long_one_must_keep_the_reserve_after_the_long_one() -> None:
    free = limited()
    history = History((measured(free, SMALL, 100.0),))
    reserve, long = Plan.of(free, history.measured[0]), authorised(free, BIG)
    deadline = reserve.worst_seconds + long.seconds - 1
    problem = make_problem(goal=Goal(minimize=Objective.TIME, deadline_seconds=deadline))
    short = Config.deployment("c5.small", 2)
    assert isinstance(Ledger(problem=problem, history=history).authorise(short), Authorisation)
    beside = Ledger(problem=problem, history=History(history.trials), open=(long,))
    assert beside.incumbent() is None


def test_the_run_is_authorised_at_its_upper_bound() -> None:
    problem = limited(usd="10", hours=100)
    plan = Plan.of(problem, measured(problem, SMALL, 20.0))
    ledger = Ledger(problem=problem, history=History())
    answer = ledger.authorise_run(plan)
    assert isinstance(answer, Authorisation)
    assert (answer.usd, answer.seconds) == (plan.worst_usd, plan.worst_seconds)
    assert plan.worst_usd > plan.usd
    poor = Ledger(problem=problem, history=History(), spent=Usd.of(10) - plan.worst_usd + Usd(1))
    assert isinstance(poor.authorise_run(plan), Refusal)
    late = Ledger(problem=problem, history=History(), elapsed_seconds=360_000 - plan.worst_seconds + 1)
    assert isinstance(late.authorise_run(plan), Refusal)


def test_an_unguarded_rival_sees_the_whole_limit_and_no_refusal() -> None:
    problem = limited(usd="10", hours=1)
    ledger = Ledger(problem=problem, history=History(), spent=Usd.of(50), elapsed_seconds=1e6, guarded=False)
    remaining = ledger.remaining()
    assert (remaining.usd, remaining.seconds, remaining.guarded) == (Usd.of(10), 3600, False)
    assert remaining.allowed.all()
    assert isinstance(ledger.authorise(BIG), Authorisation)
    plan = Plan(config=SMALL, seconds=3500, usd=Usd.of(9), worst_seconds=9999, worst_usd=Usd.of(99))
    assert isinstance(ledger.authorise_run(plan), Authorisation)


def test_the_best_fitting_plan_is_the_incumbent() -> None:
    problem = limited(usd="60")
    slow, fast = measured(problem, SMALL, 20.0), measured(problem, BIG, 2000.0)
    dear = measured(problem, Config.deployment("p2.one", 12), 50.0)
    ledger = Ledger(problem=problem, history=History((slow, fast, dear)))
    incumbent = ledger.incumbent()
    assert incumbent is not None
    assert incumbent.config == BIG
    assert ledger.spent == ZERO


@pytest.mark.parametrize(
    "bad",
    [
        {"minimize": Objective.TIME, "deadline_seconds": 0.0},
        {"minimize": Objective.TIME, "budget": ZERO},
    ],
)
def test_impossible_goals_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="must"):
        Goal(**bad)  # type: ignore[arg-type]


def test_nothing_starts_next_to_a_trial_that_may_last_past_the_deadline() -> None:
    problem = limited(hours=1)
    assert isinstance(Ledger(problem=problem, history=History()).authorise(SMALL), Authorisation)
    endless = Authorisation(choice=BIG, attempt=1, usd=ZERO, seconds=3601.0)
    assert isinstance(Ledger(problem=problem, history=History(), open=(endless,)).authorise(SMALL), Refusal)


def test_without_a_budget_no_more_is_spent_than_the_books_can_hold() -> None:
    problem = limited()
    plan = Plan.of(problem, measured(problem, SMALL, 20.0))
    room = authorised(problem, SMALL).usd
    for spent, allowed in ((MOST_USD - room, True), (MOST_USD - room + Usd(1), False)):
        answer = Ledger(problem=problem, history=History(), spent=spent).authorise(SMALL)
        assert isinstance(answer, Authorisation) == allowed
    for spent, allowed in ((MOST_USD - plan.worst_usd, True), (MOST_USD - plan.worst_usd + Usd(1), False)):
        answer = Ledger(problem=problem, history=History(), spent=spent).authorise_run(plan)
        assert isinstance(answer, Authorisation) == allowed
