"""What is particular to HeterBO: how it starts, and what it learns from a round."""

from dataclasses import replace
from itertools import pairwise

from tests.synthetic import MACHINES, Machine, failed, make_problem, measured

from mlcd.goal import Goal, Objective
from mlcd.ledger import Ledger
from mlcd.problem import Problem
from mlcd.search.registry import strategy
from mlcd.space import Config, Space
from mlcd.trial.trial import FailureKind, History
from mlcd.units import Usd

D = Config.deployment
BUDGET = Goal(minimize=Objective.TIME, budget=Usd.of(500))
MANY = {f"t{i}": Machine(usd_per_hour=0.1 * (i + 1), speed=5.0 + 2 * i) for i in range(7)}


def asked(problem: Problem, history: History, count: int = 1, options: str = "") -> list[Config]:
    remaining = Ledger(problem=problem, history=history).remaining()
    return [s.config for s in strategy("heterbo" + options).suggest(problem, history, remaining, count)]


def with_kinds(problem: Problem, kinds: dict[str, str]) -> Problem:
    knobs = tuple(replace(knob, kinds=kinds) if knob.is_choice else knob for knob in problem.space.knobs)
    return replace(problem, space=Space(knobs, problem.space.configs))


def test_with_one_kind_it_starts_with_the_cheapest_and_the_median_priced_type() -> None:
    problem = make_problem(machines=MANY, goal=BUDGET)
    assert asked(problem, History()) == [D("t0", 1)]
    history = History((measured(problem, D("t0", 1), 5.0),))
    assert asked(problem, history) == [D("t4", 1)]  # the median of the remaining six


def test_it_starts_with_the_cheapest_type_of_every_kind() -> None:
    kinds = {"c5.small": "cpu", "c5.big": "cpu", "p2.one": "K80"}
    problem = with_kinds(make_problem(goal=BUDGET), kinds)
    assert asked(problem, History()) == [D("c5.small", 1)]
    history = History((measured(problem, D("c5.small", 1), 10.0),))
    assert asked(problem, history) == [D("p2.one", 1)]
    assert asked(problem, History(), count=2) == [D("c5.small", 1), D("p2.one", 1)]


def test_after_running_out_of_memory_a_type_is_tried_on_twice_the_nodes() -> None:
    problem = make_problem(machines={"c5.small": MACHINES["c5.small"]}, goal=BUDGET)
    history = History((failed(problem, D("c5.small", 3), FailureKind.OUT_OF_MEMORY),))
    assert asked(problem, history) == [D("c5.small", 6)]
    assert asked(problem, History((failed(problem, D("c5.small", 3), FailureKind.ERROR),))) == [D("c5.small", 4)]


def test_if_only_time_counts_a_round_tries_as_many_types_in_the_middle_of_their_range() -> None:
    problem = make_problem(machines=MANY)
    first = asked(problem, History(), count=4)
    assert {config.nodes for config in first} == {4}  # the geometric middle of 1..16
    assert [config.instance for config in first] == ["t0", "t1", "t2", "t3"]
    history = History(tuple(measured(problem, config, 20.0) for config in first))
    assert not {config.instance for config in asked(problem, history, count=4)} - set(MANY)
    more = History((*history.trials, measured(problem, D("t4", 8), 60.0), measured(problem, D("t5", 8), 70.0)))
    remaining = Ledger(problem=problem, history=more).remaining()
    reasons = {s.reason for s in strategy("heterbo").suggest(problem, more, remaining, 4)}
    assert "a first look at this type" not in reasons  # more types are known than run in parallel


def test_under_a_budget_a_round_is_not_filled_with_neighbours() -> None:
    problem = make_problem(counts=tuple(range(1, 65)), goal=Goal(minimize=Objective.TIME, budget=Usd.of(60)))
    history = History((measured(problem, D("c5.small", 1), 10.0), measured(problem, D("c5.small", 8), 70.0)))
    picks = asked(problem, history, count=4)
    assert picks
    for name in MACHINES:  # neighbours are equally informative, and each uses up budget
        nodes = sorted(config.nodes for config in picks if config.instance == name)
        assert all(b - a > 1 for a, b in pairwise(nodes))


def cheapest_in_time(hours: float) -> Problem:
    goal = Goal(minimize=Objective.COST, deadline_seconds=hours * 3600)
    machine = Machine(usd_per_hour=0.68, speed=10.0)
    return make_problem(machines={"one": machine}, counts=range(1, 51), goal=goal, work_samples=2.7e6)


def test_the_first_try_at_a_deadline_is_not_the_most_expensive_and_after_a_miss_it_is_safer() -> None:
    problem = cheapest_in_time(6)  # one node takes 75 h
    look = measured(problem, D("one", 1), 10.0)
    (first,) = asked(problem, History((look,)))
    assert 16 < first.nodes < 30  # what could just fit if the job scales well, not the largest available
    (second,) = asked(problem, History((look, measured(problem, first, 2.7e6 / (5.6 * 3600)))))  # 5.6 h: too long
    assert second.nodes > first.nodes


def test_after_a_miss_under_a_budget_the_next_try_is_not_close_to_it() -> None:
    goal = Goal(minimize=Objective.TIME, budget=Usd.of(75))
    machine = Machine(usd_per_hour=0.68, speed=10.0)
    problem = make_problem(machines={"one": machine}, counts=range(1, 51), goal=goal, work_samples=2.7e6)
    look = measured(problem, D("one", 1), 10.0)
    (first,) = asked(problem, History((look,)))
    assert first.nodes > 12  # a large first try: nothing was missed yet
    seconds = 75 / (first.nodes * 0.68) * 3600 * 0.93  # $70, with no margin remaining
    (second,) = asked(problem, History((look, measured(problem, first, 2.7e6 / seconds))))
    assert second.nodes < 0.75 * first.nodes


def test_a_configuration_that_may_still_fit_is_tried_even_at_a_high_price() -> None:
    problem = cheapest_in_time(7)
    looks = tuple(failed(problem, D("one", n), FailureKind.OUT_OF_MEMORY) for n in (1, 2, 4, 8))
    (shot,) = asked(problem, History((*looks, measured(problem, D("one", 16), 2.7e6 / (10.5 * 3600)))))
    assert shot.nodes > 24


def test_no_trial_is_suggested_that_leaves_no_time_to_train() -> None:
    problem = cheapest_in_time(0.2)
    assert asked(problem, History((measured(problem, D("one", 1), 10.0),))) == []


def test_the_reserve_can_be_switched_off_only_by_name() -> None:
    assert strategy("heterbo").guarded
    assert not strategy("heterbo:reserve=off").guarded


def test_a_trial_whose_work_counts_costs_less() -> None:
    kept, lost = (make_problem(keeps_work=keeps, work_samples=2e4) for keeps in (True, False))
    history = History((measured(lost, D("c5.small", 1), 10.0), measured(lost, D("c5.big", 1), 34.0)))
    remaining = Ledger(problem=lost, history=history).remaining()
    assert strategy("heterbo").suggest(kept, history, remaining, 1)
    assert not strategy("heterbo").suggest(lost, history, remaining, 1)
