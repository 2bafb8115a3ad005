"""Every decision of each decider, and that it depends on nothing but the run and the clock."""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.synthetic import FASTEST, Listed, SyntheticCloud, failed, make_problem, make_run, measured

from mlcd.catalog.functions import function_prices
from mlcd.deciders.account import Accounts
from mlcd.deciders.decision import Conclude, Decision, End, Start
from mlcd.deciders.epochs import LEAST_TIMEOUT_SECONDS, MOST_FAILURES, TIMEOUT_FACTOR, EpochDecider, first_fleet
from mlcd.deciders.search import SearchDecider
from mlcd.deciders.training import TrainingDecider
from mlcd.deciders.verification import MOST_VERIFICATIONS, VerificationDecider, failed_verifications
from mlcd.engine.serving import FAILED_RATE_FACTOR
from mlcd.errors import BadInput
from mlcd.functions import FunctionProblem
from mlcd.goal import Goal, Objective
from mlcd.models.speed import speed_model
from mlcd.problem import Problem, Target
from mlcd.run.attempt import Attempt, Ending
from mlcd.run.authorisation import Authorisation, Choice
from mlcd.run.header import Header
from mlcd.run.kind import Kind
from mlcd.run.run import EpochRun, Run, SearchRun
from mlcd.run.step import Outcome, Role, Step
from mlcd.run.verdict import PlainInstance, Verdict
from mlcd.search.registry import strategy
from mlcd.space import Config
from mlcd.trial.epoch import Epoch, FailedEpoch, Fleet, Phase, RemainingEpochs
from mlcd.trial.outcome import Status
from mlcd.trial.plan import Plan, Remaining
from mlcd.trial.trial import Expectation, FailureKind, History, Learned, Suggestion
from mlcd.units import HOUR, ZERO, Usd

D = Config.deployment
A, B, C = D("c5.small", 1), D("c5.small", 4), D("c5.big", 2)
SPEED = {A: 12.0, B: 40.0, C: 66.0}
BUDGET = Goal(minimize=Objective.TIME, budget=Usd.of(60))


def new_run(problem: Problem) -> SearchRun:
    return make_run(problem, SyntheticCloud(), "listed", run_id="run-1")


def add(run: Run[Any], role: Role, choice: Choice, outcome: Outcome | None) -> Run[Any]:
    """The run with one more step, which starts when the last one has ended."""
    trials = [step for step in run.steps if step.authorisation.choice == choice and step.role is role]
    price = run.problem.price(choice) if isinstance(choice, Config) else None
    step = Step(
        number=len(run.steps) + 1,
        round=len(run.steps) + 1,
        role=role,
        authorisation=Authorisation(choice=choice, attempt=len(trials) + 1, usd=Usd.of(5), seconds=5000.0),
        reason="",
        usd_per_hour=price,
        started_seconds=run.step_seconds,
        started_at=run.step_seconds,
    )
    started = run.with_started([step])
    return started if outcome is None else started.with_ended(step.number, outcome)


def tried(run: SearchRun, *configs: Config) -> SearchRun:
    for config in configs:
        run = add(run, Role.TRIAL, config, measured(run.problem, config, SPEED[config]))
    return run


def decided(run: SearchRun, config: Config) -> SearchRun:
    """The run once its search has ended with this choice."""
    (trial,) = [trial for trial in run.history.measured if trial.config == config]
    return replace(run, verdict=Verdict(stopped="enough", choice=Plan.of(run.problem, trial)))


def trained(run: SearchRun, config: Config, ending: Ending, *, seconds: float = 600.0, **others: Any) -> SearchRun:
    usd = run.problem.price(config).for_seconds(seconds)
    return add(run, Role.TRAINING, config, Attempt(config=config, seconds=seconds, usd=usd, ending=ending, **others))


def search(configs: Sequence[Config] = (A, B, C), **others: Any) -> SearchDecider:
    given: dict[str, Any] = {"strategy": Listed(configs=tuple(configs)), "aftermath": TrainingDecider(), **others}
    return SearchDecider(**given)


def ask(decider: Any, run: Run[Any], elapsed_seconds: float | None = None) -> Decision:
    """The decision, asked for twice and of a copy: the same each time, and the run is unchanged."""
    now = run.step_seconds if elapsed_seconds is None else elapsed_seconds
    before = copy.deepcopy(run)
    decision: Decision = decider.next(run, now)
    assert decider.next(run, now) == decision
    assert copy.deepcopy(decider).next(before, now) == decision
    assert run == before
    return decision


def started(decision: Decision) -> list[Choice]:
    assert isinstance(decision, Start), decision
    return [request.authorisation.choice for request in decision.requests]


# ---- purity, with the strategies that users run


@pytest.mark.parametrize("text", ["heterbo", "random", "convbo-budget", "cherrypick", "exhaustive"])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_the_same_run_and_clock_get_the_same_decision(text: str, count: int) -> None:
    run = tried(new_run(make_problem(goal=BUDGET)), *(A, B, C)[:count])
    ask(SearchDecider(strategy=strategy(text, seed=3), aftermath=TrainingDecider(), parallel=2), run)


def test_a_decider_decides_the_same_after_another_run() -> None:
    """What it keeps between two calls is only a cache."""
    one, other = new_run(make_problem(goal=BUDGET)), new_run(make_problem(goal=FASTEST, work_samples=1e4))
    poor = new_run(make_problem(goal=Goal(minimize=Objective.TIME, budget=Usd(1))))
    used = SearchDecider(strategy=strategy("heterbo"), aftermath=TrainingDecider())
    for run in (tried(other, A), tried(one, A), tried(one, A, B), tried(poor, A)):
        fresh = SearchDecider(strategy=strategy("heterbo"), aftermath=TrainingDecider())
        assert used.next(run, run.step_seconds) == fresh.next(run, run.step_seconds)


# ---- the search


def test_a_search_starts_what_its_strategy_suggests_and_the_ledger_allows() -> None:
    decision = ask(search(), new_run(make_problem(goal=BUDGET)))
    assert isinstance(decision, Start)
    (request,) = decision.requests
    problem = make_problem(goal=BUDGET)
    row = problem.space.index[A]
    assert (request.role, request.reason, request.usd_per_hour) == (Role.TRIAL, "listed", problem.price(A))
    assert request.authorisation == Authorisation(
        choice=A,
        attempt=1,
        usd=Usd(int(problem.worst_trial_micros[row])),
        seconds=float(problem.worst_trial_seconds[row]),
    )


def test_parallel_trials_are_authorised_together() -> None:
    free = make_problem()
    pair = (D("p2.one", 16), D("p2.one", 12))
    worst = sum(int(free.worst_trial_micros[free.space.index[config]]) for config in pair)
    for short, count in ((0, 2), (1, 1)):
        problem = make_problem(goal=Goal(minimize=Objective.TIME, budget=Usd(worst - short)))
        assert len(started(ask(search(pair, parallel=2), new_run(problem)))) == count


def test_trials_that_continue_each_other_run_one_at_a_time() -> None:
    problem = replace(make_problem(), work_known=False, target=Target(metric="accuracy", value=0.9))
    assert len(started(ask(search(parallel=3), new_run(problem)))) == 1
    assert len(started(ask(search(parallel=3), new_run(make_problem())))) == 3


def test_transient_failures_are_retried_first() -> None:
    problem = make_problem()
    run = add(new_run(problem), Role.TRIAL, B, failed(problem, B, FailureKind.LAUNCH))
    decision = ask(search(), run)
    assert started(decision) == [B]
    assert isinstance(decision, Start)
    assert decision.requests[0].authorisation.attempt == 2
    lasting = add(new_run(problem), Role.TRIAL, B, failed(problem, B, FailureKind.ERROR))
    assert started(ask(search(), lasting)) == [A]


@pytest.mark.parametrize(
    ("make", "stopped"),
    [
        (lambda: tried(new_run(make_problem()), A, B, C), "the list is at its end"),
        (lambda: tried(new_run(make_problem(max_trials=2)), A, B), "the limit of 2 trials is reached"),
        (lambda: tried(new_run(make_problem(max_trials=1)), A), "the limit of 1 trial is reached"),
    ],
)
def test_a_search_that_is_over_is_concluded_with_a_choice(make: Callable[[], SearchRun], stopped: str) -> None:
    run = make()
    decision = ask(search(naive=(("cheapest", A), ("untried", D("p2.one", 2)))), run)
    assert isinstance(decision, Conclude)
    verdict = decision.verdict
    assert (verdict.stopped, verdict.search_seconds) == (stopped, run.step_seconds)
    assert verdict.choice is not None
    assert verdict.choice.config == max(run.history.tried, key=lambda config: SPEED[config])
    assert [(naive.label, naive.measured) for naive in verdict.naive] == [("cheapest", True), ("untried", False)]
    assert verdict.relaxations == ()
    assert started(ask(search(), replace(run, verdict=verdict))) == [verdict.choice.config]


@pytest.mark.parametrize("goal", [FASTEST, Goal(minimize=Objective.COST)])
def test_a_job_that_is_shorter_than_a_trial_is_simply_run(goal: Goal) -> None:
    problem = make_problem(goal=goal)
    rate = problem.dollars_per_second[problem.space.index[A]] if goal.minimize is Objective.COST else 1.0
    prices = goal.values(problem.planned_trial_seconds, problem.planned_trial_seconds * problem.dollars_per_second)
    trial = float(np.delete(prices, problem.space.index[A]).min())
    longest = trial / rate * SPEED[A]  # samples that A trains in what the cheapest or shortest trial takes
    short, long = (make_problem(goal=goal, work_samples=longest * factor) for factor in (0.9, 1.1))
    over = ask(search((A, B)), tried(new_run(short), A))
    assert isinstance(over, Conclude)
    assert over.verdict.choice is not None
    assert "no more than another trial" in over.verdict.stopped
    assert started(ask(search((A, B)), tried(new_run(long), A))) == [B]
    assert started(ask(search((A, B), guarded=False), tried(new_run(short), A))) == [B]  # a rival does as it likes
    beside = new_run(replace(short, beside=True))
    assert "no more than another trial" not in str(ask(search((A, B)), tried(beside, A)))


def test_a_trial_says_what_its_strategy_expects() -> None:
    problem = make_problem()
    expectation = Expectation(samples_per_second=problem.work_samples / 7200, deviation=math.log(2) / 1.96)

    class Expecting(Listed):
        def suggest(self, *args: Any, **others: Any) -> tuple[Suggestion, ...]:
            found = Listed.suggest(self, *args, **others)
            return tuple(replace(each, expected=expectation) for each in found)

    decision = ask(search(strategy=Expecting(configs=(A,))), new_run(problem))
    assert isinstance(decision, Start)
    usd = problem.price(A).for_seconds(7200)
    assert decision.requests[0].reason == f"listed; expected 2 h (1 h .. 4 h) and {usd} there"


@pytest.mark.parametrize(
    ("chance", "told"),
    [
        (0.12, "; fits the limits with probability 12%"),
        (0.001, "; fits the limits with probability under 1%"),
        (1.0, ""),
        (None, ""),
    ],
)
def test_a_trial_that_may_not_fit_says_how_likely_it_does(chance: float | None, told: str) -> None:
    """Else nobody sees why a training that is expected to cost more than the budget was worth a look."""
    problem = make_problem(goal=BUDGET)
    expectation = Expectation(samples_per_second=problem.work_samples / 7200, deviation=math.log(2) / 1.96)

    class Expecting(Listed):
        def suggest(self, *args: Any, **others: Any) -> tuple[Suggestion, ...]:
            found = Listed.suggest(self, *args, **others)
            return tuple(replace(each, expected=expectation, chance=chance) for each in found)

    decision = ask(search(strategy=Expecting(configs=(A,))), new_run(problem))
    assert isinstance(decision, Start)
    assert decision.requests[0].reason.startswith(f"listed{told}; expected 2 h (1 h .. 4 h)")
    unlimited = ask(search(strategy=Expecting(configs=(A,))), new_run(make_problem()))
    assert isinstance(unlimited, Start)
    assert "probability" not in unlimited.requests[0].reason, "there is nothing to fit"


@pytest.mark.parametrize("name", ["auto", "heterbo"])
def test_strategies_say_how_likely_a_trial_fits(name: str) -> None:
    problem = make_problem(goal=BUDGET)
    firsts = {config.instance: config for config in reversed(problem.space.configs)}.values()
    history = History(tuple(measured(problem, config, 12.0) for config in firsts))
    remaining = Remaining(usd=Usd.of(60), seconds=None, allowed=np.ones(len(problem.space), dtype=bool))
    (found, *_) = strategy(name).suggest(problem, history, remaining, 1)
    assert found.chance is not None
    assert 0 < found.chance <= 1
    poor, *_ = strategy(name).suggest(problem, history, replace(remaining, usd=Usd.of(30)), 1)
    assert poor.chance is None or poor.config != found.config or poor.chance < found.chance


def test_a_refused_trial_concludes_the_search_with_the_reason() -> None:
    class Rash(Listed):
        def suggest(self, problem: Problem, history: Any, remaining: Any, count: int) -> Any:
            return Listed.suggest(self, problem, history, replace(remaining, allowed=remaining.allowed | True), count)

    problem = make_problem(goal=Goal(minimize=Objective.TIME, budget=Usd(1)))
    run = new_run(problem)
    decision = ask(search(strategy=Rash(configs=(A,))), run)
    assert isinstance(decision, Conclude)
    assert decision.verdict.stopped.startswith("a trial of 1 x c5.small was refused: a trial may take")
    assert decision.verdict.relaxations
    assert ask(search(), replace(run, verdict=decision.verdict)) == End(status=Status.INFEASIBLE)


@pytest.mark.parametrize(
    ("outcome", "status"), [("none", Status.INFEASIBLE), ("failed", Status.ALL_FAILED), ("slow", Status.NOTHING_FITS)]
)
def test_a_search_without_a_choice_ends_the_run(outcome: str, status: Status) -> None:
    problem = make_problem(goal=Goal(minimize=Objective.COST, budget=Usd.of(2)))
    run = new_run(problem)
    if outcome == "failed":
        run = add(run, Role.TRIAL, A, failed(problem, A))
    elif outcome == "slow":
        run = tried(run, A)
    run = replace(run, verdict=Verdict(stopped="enough"))
    assert ask(search(), run) == End(status=status)


def test_a_plan_that_was_not_measured_or_does_not_fit_is_not_chosen() -> None:
    run = tried(new_run(make_problem(goal=BUDGET)), A)
    for config, worst in ((B, 1), (A, 61)):
        answer = Plan(config=config, seconds=10, usd=Usd.of(1), worst_seconds=10, worst_usd=Usd.of(worst))
        decider = search(strategy=Listed(configs=(A,), answer=answer))
        decision = ask(decider, run)
        assert isinstance(decision, Conclude)
        assert decision.verdict.choice is None
        rash = search(strategy=Listed(configs=(A,), answer=answer, guarded=False))
        unguarded = ask(rash, run)
        assert isinstance(unguarded, Conclude)
        assert unguarded.verdict.choice == answer


def test_an_untried_naive_choice_takes_what_the_model_predicts_with_interruptions() -> None:
    run = tried(new_run(make_problem(stretch=(2.0,) * 24)), A, C)
    decider = SearchDecider(strategy=Listed(configs=()), aftermath=TrainingDecider(), naive=[("four nodes", B)])
    decision = decider.next(run, run.step_seconds)
    model = speed_model(run.problem, run.history)
    assert isinstance(decision, Conclude)
    assert model is not None
    (naive,) = decision.verdict.naive
    assert (naive.plan.config, naive.measured) == (B, False)
    assert naive.plan.seconds == pytest.approx(math.exp(model.log_seconds[run.problem.space.index[B]]))


def test_a_job_that_does_not_report_its_work_cannot_continue() -> None:
    run = tried(new_run(replace(make_problem(), work_known=False, work_samples=1.0)), A)
    with pytest.raises(BadInput, match=r"give job\.samples"):
        search().next(run, run.step_seconds)


def test_a_target_that_a_trial_met_ends_the_search() -> None:
    problem = replace(make_problem(), target=Target(metric="accuracy", value=0.9))
    trial = replace(measured(problem, A, SPEED[A]), learned=(Learned(1000.0, 0.95),))
    decision = ask(search(), add(new_run(problem), Role.TRIAL, A, trial))
    assert isinstance(decision, Conclude)
    assert decision.verdict.stopped == "the target was met in a trial"


def test_trials_in_flight_are_counted_and_not_suggested_again() -> None:
    """For drivers that let steps overlap, such as ask/tell."""
    run = add(new_run(make_problem(goal=BUDGET)), Role.TRIAL, A, None)
    decision = search().next(run, 0.0)
    assert started(decision) == [B]
    assert search().money(run, 0.0).left == Usd.of(55)
    full = add(new_run(make_problem(max_trials=1)), Role.TRIAL, A, None)
    assert isinstance(search().next(full, 0.0), Conclude)


def test_a_failed_trial_that_is_being_repeated_is_not_repeated_again() -> None:
    run = new_run(make_problem())
    run = add(run, Role.TRIAL, A, failed(run.problem, A, FailureKind.LAUNCH))
    decider = SearchDecider(strategy=Listed(configs=(B, C)), aftermath=TrainingDecider(), parallel=3)
    assert [request.authorisation.config for request in decider.round(run, 0.0, 3)[0]] == [A, B, C]
    again = add(run, Role.TRIAL, A, None)
    assert [request.authorisation.config for request in decider.round(again, 0.0, 3)[0]] == [B, C]


def test_time_that_a_step_in_flight_has_used_is_not_counted_twice() -> None:
    goal = Goal(minimize=Objective.TIME, deadline_seconds=6000.0)
    run = add(new_run(make_problem(goal=goal)), Role.TRIAL, A, None)
    for elapsed in (0.0, 1000.0, 4999.0):
        assert search().money(run, elapsed).seconds_left == pytest.approx(1000.0)  # it may take 5000 s
    assert search().money(run, 5500.0).seconds_left == pytest.approx(500.0)


# ---- the training


def chosen(problem: Problem | None = None) -> SearchRun:
    return decided(tried(new_run(problem or make_problem(goal=BUDGET)), A, B, C), C)


def test_the_choice_is_trained_with_its_upper_bound_authorised() -> None:
    run = chosen()
    decision = ask(search(), run)
    assert isinstance(decision, Start)
    (request,) = decision.requests
    assert run.choice is not None
    assert (request.role, request.usd_per_hour) == (Role.TRAINING, run.problem.price(C))
    assert request.authorisation == Authorisation(
        choice=C, attempt=1, usd=run.choice.worst_usd, seconds=run.choice.worst_seconds
    )


def test_a_choice_that_no_longer_fits_ends_the_run() -> None:
    goal = Goal(minimize=Objective.TIME, deadline_seconds=20 * HOUR)
    run = chosen(make_problem(goal=goal))
    assert started(ask(search(), run)) == [C]
    assert ask(search(), run, 19 * HOUR) == End(status=Status.NOTHING_FITS)


@pytest.mark.parametrize("ending", [Ending.RESTARTED, Ending.LOST])
def test_after_a_restart_or_a_loss_it_continues_on_the_same_configuration(ending: Ending) -> None:
    run = trained(decided(chosen(), B), B, ending, reached_samples=5e5)
    decision = ask(search(), run)
    assert started(decision) == [B], "although C is faster by the measurements"
    assert isinstance(decision, Start)
    whole = run.choice
    assert whole is not None
    assert decision.requests[0].authorisation.attempt == 2
    assert decision.requests[0].authorisation.seconds < whole.worst_seconds, "part of the work is done"
    again = trained(run, B, ending, reached_samples=6e5)
    third = ask(search(), again)
    assert isinstance(third, Start)
    assert third.requests[0].authorisation.attempt == 3


def test_after_a_restart_that_does_not_fit_it_moves_to_a_configuration_that_fits() -> None:
    problem = make_problem(goal=Goal(minimize=Objective.TIME, budget=Usd.of(30)))
    run = trained(chosen(problem), C, Ending.RESTARTED, seconds=60 * HOUR, reached_samples=1.9e6)
    spent = run.spent
    dear = replace(problem, goal=Goal(minimize=Objective.TIME, budget=spent + Usd.of(1)))
    decision = ask(search(), replace(run, problem=dear))
    assert isinstance(decision, Start)
    assert decision.requests[0].authorisation.usd <= Usd.of(1)
    none = replace(problem, goal=Goal(minimize=Objective.TIME, budget=spent + Usd(10)))
    assert ask(search(), replace(run, problem=none)) == End(status=Status.NOTHING_FITS)


def test_after_a_move_it_continues_at_the_destination() -> None:
    run = chosen()
    plan = Plan.of(run.problem, next(t for t in run.history.measured if t.config == A))
    moved = trained(run, C, Ending.MOVED, next_plan=plan, samples_per_second=60.0)
    assert started(ask(search(), moved)) == [A]
    stale = replace(plan, worst_usd=Usd.of(100))
    again = trained(run, C, Ending.MOVED, next_plan=stale, samples_per_second=60.0)
    assert started(ask(search(), again)) == [A], "it is planned anew for what is left"
    dear = Plan.of(run.problem, next(t for t in run.history.measured if t.config == C))
    back = trained(run, A, Ending.MOVED, next_plan=dear, samples_per_second=60.0)
    tight = Goal(minimize=Objective.TIME, budget=back.spent + Usd.of("1.80"))
    left = replace(back, problem=replace(back.problem, goal=tight))
    assert started(ask(search(), left)) == [A], "the destination no longer fits"
    slow = trained(run, C, Ending.MOVED, samples_per_second=0.1)
    assert started(ask(search(), slow)) == [B], "the speed that the training measured counts"


@pytest.mark.parametrize(
    ("ending", "status"),
    [(Ending.DONE, Status.DONE), (Ending.FAILED, Status.RUN_FAILED), (Ending.STOPPED, Status.OVERRAN)],
)
def test_an_attempt_that_is_not_restarted_ends_the_run(ending: Ending, status: Status) -> None:
    assert ask(search(), trained(chosen(), C, ending)) == End(status=status)


def test_a_training_that_broke_a_limit_overran() -> None:
    run = trained(chosen(), C, Ending.DONE)
    over = replace(run.problem, goal=Goal(minimize=Objective.TIME, budget=run.spent - Usd(1)))
    assert ask(search(), replace(run, problem=over)) == End(status=Status.OVERRAN)
    within = replace(run.problem, goal=Goal(minimize=Objective.TIME, budget=run.spent))
    assert ask(search(), replace(run, problem=within)) == End(status=Status.DONE)
    late = replace(run.problem, goal=Goal(minimize=Objective.TIME, deadline_seconds=run.step_seconds))
    assert ask(search(), replace(run, problem=late)) == End(status=Status.DONE)
    assert ask(search(), replace(run, problem=late), run.step_seconds + 1) == End(status=Status.OVERRAN)


def test_attempts_that_were_restarted_are_charged() -> None:
    run = trained(chosen(), C, Ending.RESTARTED, seconds=3600.0)
    account = Accounts().at(run, run.step_seconds)
    assert account.ledger.spent == run.search_usd + run.problem.price(C)


# ---- the verification


def verified(run: SearchRun, config: Config, ending: Ending) -> SearchRun:
    """A verification; one that failed leaves the choice with part of its rate."""
    rate = SPEED[config] * FAILED_RATE_FACTOR if ending is Ending.MOVED else None
    usd = run.problem.price(config).for_seconds(70.0)
    outcome = Attempt(config=config, seconds=70.0, usd=usd, ending=ending, samples_per_second=rate)
    return add(run, Role.VERIFICATION, config, outcome)


def serving(goal: Goal = BUDGET) -> SearchRun:
    problem = replace(make_problem(goal=goal), verify_seconds=100.0)
    return decided(tried(new_run(problem), A, B, C), C)


VERIFYING = search(aftermath=VerificationDecider(seconds=60.0), guarded=True)


def test_the_choice_is_verified_and_recommended_if_it_passes() -> None:
    run = serving()
    decision = ask(VERIFYING, run)
    assert isinstance(decision, Start)
    (request,) = decision.requests
    assert (request.role, request.authorisation.choice, request.authorisation.seconds) == (Role.VERIFICATION, C, 100.0)
    assert ask(VERIFYING, verified(run, C, Ending.DONE)) == End(status=Status.DONE)


def test_without_a_verification_what_was_measured_is_recommended() -> None:
    assert ask(search(aftermath=VerificationDecider(seconds=0.0)), serving()) == End(status=Status.DONE)


def test_a_choice_that_fails_is_replaced_by_the_next_best() -> None:
    run = verified(serving(), C, Ending.MOVED)
    assert started(ask(VERIFYING, run)) == [C], "nine tenths of its rate are still the best"
    for _ in range(MOST_VERIFICATIONS - 2):
        run = verified(run, C, Ending.MOVED)
        assert isinstance(ask(VERIFYING, run), Start)
    assert failed_verifications(run) == MOST_VERIFICATIONS - 1
    assert ask(VERIFYING, verified(run, C, Ending.DONE)) == End(status=Status.DONE)
    assert ask(VERIFYING, verified(run, C, Ending.MOVED)) == End(status=Status.NOTHING_FITS)


def test_verifications_that_mlcd_lost_are_repeated() -> None:
    run = serving()
    for _ in range(MOST_VERIFICATIONS + 1):
        run = verified(run, C, Ending.LOST)
        assert started(ask(VERIFYING, run)) == [C]
    assert failed_verifications(run) == 0
    decision = ask(VERIFYING, run)
    assert isinstance(decision, Start)
    assert decision.requests[0].authorisation.attempt == MOST_VERIFICATIONS + 2


def test_a_verification_that_does_not_fit_ends_the_run() -> None:
    goal = Goal(minimize=Objective.TIME, deadline_seconds=5 * HOUR)
    assert ask(VERIFYING, serving(goal), 5 * HOUR - 99.0) == End(status=Status.NOTHING_FITS)
    fallen = verified(serving(goal), C, Ending.MOVED)
    assert ask(VERIFYING, fallen, 5 * HOUR - 99.0) == End(status=Status.NOTHING_FITS)
    assert isinstance(ask(VERIFYING, fallen, 5 * HOUR - 101.0), Start)


# ---- epochs on functions

NOTHING = Phase(mean_seconds=0.0, max_seconds=0.0)
FLEET = Fleet(4, 512)


def function_problem(**changes: Any) -> FunctionProblem:
    base: dict[str, Any] = {
        "name": "t",
        "functions": (1, 2, 4, 8),
        "memory_mb": (512, 1024),
        "samples": 1000,
        "batch": 100,
        "model_bytes": 4,
        "target_loss": 0.2,
        "max_epochs": 20,
        "goal": Goal(minimize=Objective.TIME, budget=Usd.of(1)),
        "prices": function_prices(),
        "repeat_share": 0.25,
    }
    return FunctionProblem(**{**base, **changes})


class Wants:
    """A scheduler that wants one fleet, or none."""

    name: ClassVar[str] = "wants"

    def __init__(self, fleet: Fleet | None = FLEET, smallest: Usd | None = None) -> None:
        self.fleet, self.smallest = fleet, smallest
        self.asked: list[RemainingEpochs] = []

    def decide(self, problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs) -> Fleet | None:
        self.asked.append(remaining)
        return self.fleet

    def ending(self, problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs) -> str:
        return "nothing is left to try"

    def smallest_budget(
        self, problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs
    ) -> Usd | None:
        return self.smallest


def epoch_run(problem: FunctionProblem | None = None, *outcomes: Epoch | FailedEpoch) -> EpochRun:
    header = Header(
        run_id="run-1",
        created="",
        kind=Kind.SERVERLESS,
        cloud="sim/lambda",
        simulated=True,
        strategy="wants",
        seed=0,
        version="0",
        catalog_date="",
    )
    run: EpochRun = Run(header=header, problem=problem or function_problem())
    for outcome in outcomes:
        run = add(run, Role.EPOCH, outcome.fleet, outcome)
    return run


def epoch(number: int, loss: float, *, seconds: float = 10.0, fleet: Fleet = FLEET, usd: Usd = ZERO) -> Epoch:
    return Epoch(
        number=number,
        fleet=fleet,
        loss=loss,
        seconds=seconds,
        usd=usd,
        fetch=NOTHING,
        compute=NOTHING,
        update=NOTHING,
        calls=fleet.functions,
    )


def failure(number: int = 1, *, lost: bool = False, hopeless: bool = False, usd: Usd = ZERO) -> FailedEpoch:
    return FailedEpoch(
        number=number, fleet=FLEET, seconds=5.0, usd=usd, message="calls died", lost=lost, hopeless=hopeless
    )


def ended(decision: Decision) -> tuple[Status, str]:
    assert isinstance(decision, End), decision
    assert decision.verdict is not None
    return decision.status, decision.verdict.stopped


def test_an_epoch_starts_on_the_fleet_of_the_scheduler() -> None:
    decision = ask(EpochDecider(scheduler=Wants()), epoch_run())
    assert isinstance(decision, Start)
    (request,) = decision.requests
    assert (request.role, request.usd_per_hour) == (Role.EPOCH, None)
    authorisation = request.authorisation
    assert (authorisation.choice, authorisation.attempt) == (FLEET, 1)
    assert authorisation.usd <= Usd.of(1)
    assert first_fleet(function_problem(), Wants()) == FLEET


def test_every_epoch_is_authorised_within_what_remains() -> None:
    run = epoch_run(None, epoch(1, 0.9, usd=Usd.of("0.3")), failure(2, usd=Usd.of("0.5")))
    decision = ask(EpochDecider(scheduler=Wants()), run)
    assert isinstance(decision, Start)
    assert decision.requests[0].authorisation.usd <= Usd.of("0.2")
    assert decision.requests[0].authorisation.attempt == 3
    money = EpochDecider(scheduler=Wants()).money(run, run.step_seconds)
    assert (money.spent, money.left, money.reserved) == (Usd.of("0.8"), Usd.of("0.2"), ZERO)


@pytest.mark.parametrize(
    ("fleet", "factor"), [(FLEET, 1.0), (Fleet(2, 512), 2.0), (Fleet(8, 1024), 1.0), (Fleet(1, 512), 4.0)]
)
def test_an_epoch_is_stopped_at_its_timeout(fleet: Fleet, factor: float) -> None:
    problem = function_problem(goal=Goal(minimize=Objective.TIME, budget=Usd.of(1000)))
    decider = EpochDecider(scheduler=Wants(fleet))
    slow = ask(decider, epoch_run(problem, epoch(1, 0.9, seconds=100.0), epoch(2, 0.8, seconds=5.0)))
    assert isinstance(slow, Start)
    assert slow.requests[0].authorisation.seconds == pytest.approx(TIMEOUT_FACTOR * 100.0 * factor)
    quick = ask(decider, epoch_run(problem, epoch(1, 0.9, seconds=0.5)))
    assert isinstance(quick, Start)
    assert quick.requests[0].authorisation.seconds == pytest.approx(LEAST_TIMEOUT_SECONDS)
    first = ask(decider, epoch_run(problem))
    assert isinstance(first, Start)
    assert first.requests[0].authorisation.seconds > 3600, "before the first epoch its time is unknown"


def test_the_target_ends_it_with_a_comparison() -> None:
    instance = PlainInstance(name="c5", usd_per_hour=Usd.of(1), seconds=1.0, usd=Usd.of(1))
    run = epoch_run(None, epoch(1, 0.5), epoch(2, 0.2))
    compared: list[int] = []

    def compare(epochs: tuple[Epoch, ...]) -> Sequence[PlainInstance]:
        compared.append(len(epochs))
        return [instance]

    decision = ask(EpochDecider(scheduler=Wants(), compare=compare), run)
    assert ended(decision) == (Status.DONE, "the loss of 0.2 has reached 0.2")
    assert isinstance(decision, End)
    assert decision.verdict is not None
    assert decision.verdict.instances == (instance,)
    assert set(compared) == {2}
    late = function_problem(goal=Goal(minimize=Objective.TIME, budget=Usd.of(1), deadline_seconds=20.0))
    assert ended(ask(EpochDecider(scheduler=Wants()), replace(run, problem=late)))[0] is Status.DONE
    assert ended(ask(EpochDecider(scheduler=Wants()), replace(run, problem=late), 20.1))[0] is Status.OVERRAN


def test_max_epochs_ends_the_run() -> None:
    run = epoch_run(function_problem(max_epochs=2), epoch(1, 0.4), epoch(2, 0.5))
    status, stopped = ended(ask(EpochDecider(scheduler=Wants()), run))
    assert (status, stopped) == (
        Status.NOTHING_FITS,
        "the limit of 2 epochs is reached; the lowest loss was 0.4",
    )
    part = replace(FLEET, share=0.5)
    half = epoch_run(function_problem(max_epochs=1), epoch(1, 0.4, fleet=part))
    assert started(ask(EpochDecider(scheduler=Wants(part)), half)) == [part], "parts count by their share"


def test_failures_in_a_row_end_it_and_a_completed_epoch_resets_the_count() -> None:
    decider = EpochDecider(scheduler=Wants())
    for count in range(1, MOST_FAILURES):
        assert isinstance(ask(decider, epoch_run(None, *[failure()] * count)), Start)
    status, stopped = ended(ask(decider, epoch_run(None, *[failure()] * MOST_FAILURES)))
    assert (status, stopped) == (Status.ALL_FAILED, "3 epochs failed one after another; the last: calls died")
    after = epoch_run(None, epoch(1, 0.9), *[failure(2)] * MOST_FAILURES)
    assert ended(ask(decider, after))[0] is Status.NOTHING_FITS
    between = epoch_run(None, failure(), failure(), epoch(1, 0.9), failure(2), failure(2), epoch(2, 0.8), failure(3))
    assert isinstance(ask(decider, between), Start)


def test_epochs_that_mlcd_itself_lost_do_not_count_as_failures() -> None:
    scheduler = Wants()
    lost = epoch_run(None, *[failure(lost=True)] * (MOST_FAILURES + 2))
    assert isinstance(ask(EpochDecider(scheduler=scheduler), lost), Start)
    assert all(remaining.failed == () for remaining in scheduler.asked)
    mixed = epoch_run(None, failure(), failure(), failure(lost=True), failure(), failure())
    assert isinstance(ask(EpochDecider(scheduler=Wants()), mixed), Start), "one that mlcd lost resets the count"
    paid = epoch_run(None, failure(lost=True, usd=Usd.of("0.25")))
    assert EpochDecider(scheduler=Wants()).money(paid, 5.0).left == Usd.of("0.75"), "and is still charged"


def test_a_model_that_cannot_be_trained_ends_it_at_once() -> None:
    decision = ask(EpochDecider(scheduler=Wants()), epoch_run(None, epoch(1, 0.9), failure(2, hopeless=True)))
    assert ended(decision) == (Status.RUN_FAILED, "the model cannot be trained: calls died")
    mended = epoch_run(None, failure(1, hopeless=True), epoch(1, 0.9))
    assert isinstance(ask(EpochDecider(scheduler=Wants()), mended), Start)


@pytest.mark.parametrize(
    ("outcomes", "status"),
    [((), Status.INFEASIBLE), ((epoch(1, 0.9),), Status.NOTHING_FITS), ((failure(),), Status.ALL_FAILED)],
)
@pytest.mark.parametrize("fleet", [None, Fleet(8, 1024)])
def test_if_nothing_more_can_start_it_ends_before_the_target(
    outcomes: tuple[Epoch | FailedEpoch, ...], status: Status, fleet: Fleet | None
) -> None:
    problem = function_problem(goal=Goal(minimize=Objective.TIME, budget=Usd(1)))
    decision = ask(EpochDecider(scheduler=Wants(fleet, smallest=Usd.of(7))), epoch_run(problem, *outcomes))
    found, stopped = ended(decision)
    assert found is status
    refused = "an epoch of 8 x 1,024 MB was refused: an epoch of 8 x 1,024 MB that takes"
    assert stopped.startswith("nothing is left to try" if fleet is None else refused)
    assert isinstance(decision, End)
    assert decision.verdict is not None
    assert decision.verdict.smallest_budget == Usd.of(7)


def test_a_budget_that_was_enough_is_not_called_too_small() -> None:
    decision = ask(EpochDecider(scheduler=Wants(None, smallest=Usd.of("0.5"))), epoch_run())
    assert isinstance(decision, End)
    assert decision.verdict is not None
    assert decision.verdict.smallest_budget is None


def test_epochs_have_no_incumbent() -> None:
    assert EpochDecider(scheduler=Wants()).incumbent(epoch_run(), 0.0) is None


def test_a_decision_to_start_names_a_step() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Start(requests=())


def test_the_reserve_is_reported_until_the_training_begins() -> None:
    run = tried(new_run(make_problem(goal=BUDGET)), A, C)
    money = search().money(run, run.step_seconds)
    incumbent = search().incumbent(run, run.step_seconds)
    assert incumbent is not None
    assert incumbent.config == C
    assert money.reserved == incumbent.worst_usd
    assert money.left == Usd.of(60) - run.spent - money.reserved
    assert math.isclose(money.reserved_seconds, incumbent.worst_seconds)
