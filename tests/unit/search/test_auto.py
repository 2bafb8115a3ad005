"""What auto optimises, and when it stops."""

from dataclasses import replace

import numpy as np
import pytest
from tests.synthetic import Machine, failed, make_problem, measured, true_trial

from mlcd.goal import Goal, Objective
from mlcd.ledger import Ledger
from mlcd.models.mixed_speed import BELIEFS, MixedModel, mixed_model
from mlcd.problem import Problem
from mlcd.search.auto_settings import AutoSettings
from mlcd.search.beside import after_a_trial
from mlcd.search.candidates import chance_to_run
from mlcd.search.choice_now import choice_now
from mlcd.search.net_value import Setting, net_values
from mlcd.search.registry import strategy
from mlcd.search.strategy import with_wishes
from mlcd.space import Config
from mlcd.trial.plan import Plan, Remaining, best_fitting
from mlcd.trial.trial import FailureKind, History
from mlcd.units import Usd

D = Config.deployment
FASTEST, CHEAPEST = Goal(minimize=Objective.TIME), Goal(minimize=Objective.COST)
DEADLINE = Goal(minimize=Objective.COST, deadline_seconds=6 * 3600)
BUDGET = Goal(minimize=Objective.TIME, budget=Usd.of(12))


def remaining_of(problem: Problem, history: History) -> Remaining:
    spent = Usd(sum(trial.usd.micros for trial in history))
    elapsed = sum(trial.seconds for trial in history)
    return Ledger(problem=problem, history=history, spent=spent, elapsed_seconds=elapsed).remaining()


def asked(problem: Problem, history: History, count: int = 1, options: str = "") -> list[Config]:
    return [
        s.config for s in strategy(f"auto{options}").suggest(problem, history, remaining_of(problem, history), count)
    ]


def setting_of(problem: Problem, history: History, **options: object) -> Setting:
    remaining = remaining_of(problem, history)
    settings = AutoSettings(**options)  # type: ignore[arg-type]  # the caller names AutoSettings' own fields
    return Setting(
        problem=problem,
        remaining=remaining,
        settings=settings,
        now=choice_now(problem, history, remaining, watched=settings.watched),
        runs=np.ones(len(problem.space)),
    )


def everything(problem: Problem) -> np.ndarray:
    return np.ones(len(problem.space), dtype=bool)


# ---- trials that end early


def test_auto_asks_for_trials_that_end_early_and_others_do_not() -> None:
    problem = make_problem()
    assert with_wishes(problem, strategy("auto")).trial.may_end_early
    assert not with_wishes(problem, strategy("auto:least-trial=1")).trial.may_end_early
    assert not with_wishes(problem, strategy("heterbo")).trial.may_end_early


# ---- when it stops


def test_no_look_is_made_that_costs_more_than_it_could_save() -> None:
    """One cheap GPU finishes for about a dollar: a trial of a machine at $30 an hour costs five."""
    machines = {
        "cheap": Machine(usd_per_hour=0.9, speed=500.0),
        "big": Machine(usd_per_hour=30.0, speed=4000.0),
        "huge": Machine(usd_per_hour=100.0, speed=9000.0),
    }
    problem = make_problem(machines=machines, counts=(1,), goal=CHEAPEST)
    assert asked(problem, History()) == [D("cheap", 1)]
    history = History((measured(problem, D("cheap", 1), 500.0),))
    assert Plan.of(problem, history.measured[0]).usd < Usd.of(2)
    assert asked(problem, history) == []


def test_a_job_that_is_shorter_than_a_trial_is_run_after_the_first_one() -> None:
    problem = make_problem(work_samples=1000.0)
    history = History((true_trial(problem, asked(problem, History())[0]),))
    assert asked(problem, history) == []
    assert "pay for itself" in strategy("auto").ending(problem, history, remaining_of(problem, history))


def test_a_long_job_is_searched_further_than_a_short_one() -> None:
    def trials(work_samples: float) -> int:
        problem, history = make_problem(work_samples=work_samples), History()
        while picks := asked(problem, history):
            history = history.with_trials(true_trial(problem, picks[0]))
        return len(history)

    assert trials(1e8) > trials(5e5) >= 1


def test_nothing_fits_yet_and_every_chance_is_taken() -> None:
    problem = make_problem(goal=BUDGET)
    slow = History((measured(problem, D("c5.small", 1), 5.0),))
    assert best_fitting(problem, slow, remaining_of(problem, slow)) is None
    assert asked(problem, slow)


def test_limits_far_out_of_reach_end_the_search() -> None:
    problem = make_problem(goal=Goal(minimize=Objective.TIME, deadline_seconds=5 * 3600), work_samples=1e12)
    history = History((true_trial(problem, D("c5.small", 1)), true_trial(problem, D("p2.one", 4))))
    assert asked(problem, history) == []


# ---- what it optimises


@pytest.mark.parametrize("goal", [FASTEST, CHEAPEST, DEADLINE, BUDGET])
def test_net_value_is_the_expected_saving_less_the_price(goal: Goal) -> None:
    problem = make_problem(goal=goal, work_samples=1e6)
    history = History((true_trial(problem, D("c5.big", 2)), true_trial(problem, D("p2.one", 1))))
    setting = setting_of(problem, history, scarcity=0.0, watched=False)
    assert setting.now is not None
    model = mixed_model(problem, history, BELIEFS[:1])
    got = net_values(setting, model, everything(problem))
    k = setting.now.value
    scale = goal.scale(problem.dollars_per_second)
    z = np.linspace(-8, 8, 20001)
    weight = np.exp(-(z**2) / 2) / np.exp(-(z**2) / 2).sum()
    for row in (0, 9, 20):
        seconds = np.exp(model.log_seconds[0, row] + np.sqrt(model.variance[0, row]) * z)
        trial = problem.planned_trial_seconds[row]
        worst = seconds * np.exp(4.753424 * problem.noise)  # z of the default assurance, 0.999999
        fits = np.ones_like(z, dtype=bool)
        if setting.remaining.seconds is not None:
            fits &= worst <= setting.remaining.seconds - trial
        if setting.remaining.usd is not None:
            fits &= (worst + trial) * problem.dollars_per_second[row] <= setting.remaining.usd.dollars
        saving = float((weight * np.where(fits, np.maximum(k - seconds * scale[row], 0.0), 0.0)).sum())
        price = goal.value(trial, trial * problem.dollars_per_second[row])
        assert got.net[row] + price == pytest.approx(saving, rel=0.02, abs=1e-3 * k)


def test_work_that_is_kept_counts_against_the_price() -> None:
    problem = make_problem(work_samples=1e6)
    kept = replace(problem, keeps_work=True)
    history = History((true_trial(problem, D("c5.big", 2)),))
    model = mixed_model(problem, history)
    thrown_net = net_values(setting_of(problem, history), model, everything(problem)).net
    kept_net = net_values(setting_of(kept, history), model, everything(problem)).net
    fast = problem.space.index[D("p2.one", 8)]
    assert kept_net[fast] > thrown_net[fast] + 0.5 * problem.planned_trial_seconds[fast]


def beside(problem: Problem, history: History, restart_seconds: float) -> tuple[Setting, MixedModel]:
    """A training runs on the first trial's deployment; as auto asks about it."""
    training = Plan.of(problem, history.measured[0])
    problem = replace(problem, beside=True, restart_seconds=restart_seconds)
    remaining = replace(remaining_of(problem, history), training=training)
    problem, history, remaining = after_a_trial(problem, history, remaining)
    setting = Setting(
        problem=problem,
        remaining=remaining,
        settings=AutoSettings(scarcity=0.0),
        now=choice_now(problem, history, remaining, watched=True),
        runs=np.ones(len(problem.space)),
    )
    return setting, mixed_model(problem, history)


def test_beside_a_training_a_trial_takes_no_time_but_money() -> None:
    problem = make_problem(work_samples=1e6)
    history = History((true_trial(problem, D("c5.small", 2)),))
    free = net_values(*beside(problem, history, 0.0), everything(problem))
    assert (free.net >= 0).all()  # nothing is lost by a trial that brings nothing
    paid = net_values(*beside(replace(problem, goal=CHEAPEST), history, 0.0), everything(problem))
    assert (paid.net < 0).any()


def test_beside_a_training_money_that_would_save_time_counts_as_time() -> None:
    problem = make_problem(work_samples=1e6)
    setting, model = beside(problem, History((true_trial(problem, D("c5.small", 2)),)), 0.0)
    free = net_values(setting, model, everything(problem)).net
    dear = replace(setting, remaining=replace(setting.remaining, seconds_per_usd=100.0))
    price = problem.planned_trial_seconds * problem.dollars_per_second * 100
    assert net_values(dear, model, everything(problem)).net == pytest.approx(free - price)


def test_beside_a_training_the_gain_is_on_the_work_that_is_left_less_a_restart() -> None:
    problem = make_problem(work_samples=1e6)
    history = History((true_trial(problem, D("c5.small", 2)),))
    row = problem.space.index[D("p2.one", 1)]  # a trial takes as long as on one node
    thrown = net_values(
        setting_of(problem, history, scarcity=0.0), mixed_model(problem, history), everything(problem)
    ).net[row]
    trial, training = problem.planned_trial_seconds[row], Plan.of(problem, history.measured[0]).seconds
    gains = [net_values(*beside(problem, history, s), everything(problem)).net[row] for s in (0.0, 600.0, 1e6)]
    assert gains[0] == pytest.approx((thrown + trial) * (1 - trial / training), rel=0.02)
    assert gains[1] < gains[0]
    assert gains[2] < 0.01 * gains[0]


def test_cheap_unlikely_trials_come_before_expensive_likely_ones() -> None:
    """By index, a small chance at a tenth of the price is tried first; by net value, the larger gain."""
    machines = {
        "small": Machine(usd_per_hour=0.1, speed=1.0),
        "large": Machine(usd_per_hour=6.0, speed=50.0),
    }
    problem = make_problem(machines=machines, counts=(1, 2, 4, 8, 16), work_samples=2e6, goal=DEADLINE)
    history = History((measured(problem, D("small", 1), 2.0),))
    first = {order: asked(problem, history, options=f":order={order}")[0] for order in ("pandora", "net")}
    price = {order: problem.price(config) for order, config in first.items()}
    assert price["pandora"] < price["net"]


def test_limits_say_nothing_about_the_rest_of_a_job() -> None:
    """They are for all of the work; where trials keep theirs, a problem is the rest."""
    problem = make_problem(goal=BUDGET, work_samples=1e6)
    history = History((true_trial(problem, D("c5.small", 1)),))
    chosen, remaining = strategy("auto"), remaining_of(problem, history)
    blind = strategy("auto:level=off")
    expected = {}
    for kept in (False, True):
        asked_about = replace(problem, keeps_work=kept)
        expected[kept] = [each.suggest(asked_about, history, remaining, 1)[0].expected for each in (chosen, blind)]
    assert expected[True][0] == expected[True][1]
    assert expected[False][0] != expected[False][1]


# ---- watched trainings, failures


def watched_case() -> tuple[Problem, History]:
    """Under $12: a cheap fallback that is slow, and a fast one of $10.90 as measured, $12.57 at its upper bound."""
    machines = {
        "slow": Machine(usd_per_hour=0.5, speed=40.0),
        "fast": Machine(usd_per_hour=10.9, speed=600.0),
        "other": Machine(usd_per_hour=2.0, speed=100.0),
    }
    problem = make_problem(machines=machines, counts=(1, 2, 4), goal=BUDGET, work_samples=1e6)
    problem = replace(problem, noise=0.03, watched=True)
    slow = measured(problem, D("slow", 1), 1e6 / (16 * 3600))
    fast = measured(problem, D("fast", 1), 1e6 / 3600)
    return problem, History(tuple(replace(trial, usd=Usd(0), relative_error=0.03) for trial in (slow, fast)))


def test_a_watched_training_counts_as_the_choice_while_a_way_back_fits() -> None:
    problem, history = watched_case()
    remaining = remaining_of(problem, history)
    plain = choice_now(problem, history, remaining, watched=False)
    now = choice_now(problem, history, remaining, watched=True)
    assert plain is not None
    assert now is not None
    assert plain.plan.config == now.plan.config == D("slow", 1)
    assert now.value < 0.5 * plain.value  # most likely it runs on the fast one
    assert now.later is not None
    dear, medium, cheap = (problem.space.index[D(*each)] for each in (("fast", 2), ("other", 1), ("slow", 1)))
    assert np.isinf(now.later[dear])  # its trial costs more than what is left beyond $10.90
    assert now.value < now.later[cheap] < now.later[medium] < plain.value, "the more a trial costs, the less likely"


def test_a_trial_that_gives_up_a_watched_choice_pays_for_that() -> None:
    problem, history = watched_case()
    setting, model = setting_of(problem, history, scarcity=0.0), mixed_model(problem, history)
    assert setting.now is not None
    free = replace(setting, now=replace(setting.now, later=None))
    row = problem.space.index[D("fast", 2)]
    given_up = net_values(setting, model, everything(problem)).net[row]
    assert given_up < net_values(free, model, everything(problem)).net[row]


def test_after_failures_without_a_reason_smaller_deployments_are_less_likely_to_run() -> None:
    problem = make_problem(goal=BUDGET)
    small, large = (problem.space.index[D(name, 1)] for name in ("c5.small", "p2.one"))
    history = History((failed(problem, D("c5.big", 1), FailureKind.ERROR),))
    chance = chance_to_run(problem, history)
    assert chance[small] < 0.5 < chance[large]
    ran = history.with_trials(true_trial(problem, D("c5.small", 1)))
    assert (chance_to_run(problem, ran) == 1).all()
    assert (chance_to_run(problem, History((failed(problem, D("c5.big", 1), FailureKind.LAUNCH),))) == 1).all()


# ---- first looks and rounds


def test_without_a_limit_the_first_look_is_at_what_is_expected_to_be_best() -> None:
    assert asked(make_problem(goal=FASTEST), History())[0].nodes == 16
    assert asked(make_problem(goal=CHEAPEST), History()) == [D("c5.small", 1)]


def test_after_a_failure_the_first_look_is_elsewhere() -> None:
    problem = make_problem(goal=CHEAPEST)
    history = History((failed(problem, D("c5.small", 1), FailureKind.OUT_OF_MEMORY),))
    assert asked(problem, history) != [D("c5.small", 1)]
    assert asked(problem, history)


@pytest.mark.parametrize("goal", [FASTEST, BUDGET])
def test_a_round_has_different_trials(goal: Goal) -> None:
    problem = make_problem(goal=goal)
    first = asked(problem, History(), count=4)
    assert len(set(first)) == len(first) > 1
    history = History(tuple(true_trial(problem, config) for config in first))
    second = asked(problem, history, count=4)
    assert not set(first) & set(second)


def test_beside_others_of_its_round_a_trial_costs_only_what_it_takes_longer() -> None:
    problem = make_problem(work_samples=2e6)
    history = History((true_trial(problem, D("c5.small", 2)),))
    assert len(asked(problem, history, count=6)) > 1


def test_under_a_budget_a_round_takes_little_of_what_is_left_for_the_search() -> None:
    problem = make_problem(goal=Goal(minimize=Objective.TIME, budget=Usd.of(60)), work_samples=2e6)
    history = History((true_trial(problem, D("c5.small", 1)),))
    remaining = remaining_of(problem, history)
    reserve = best_fitting(problem, history, remaining)
    assert reserve is not None
    assert remaining.usd is not None
    free = (remaining.usd - reserve.worst_usd).dollars
    prices = problem.planned_trial_seconds * problem.dollars_per_second
    sizes = []
    for share in (0.0, 0.05, 100.0):
        _, *others = asked(problem, history, count=6, options=f":round-share={share}")
        assert sum(prices[problem.space.index[config]] for config in others) <= share * free
        sizes.append(len(others))
    assert sizes[0] == 0 < sizes[-1]


def test_a_setting_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="deadline_runs must be at least 1"):
        AutoSettings(deadline_runs=0.5)
