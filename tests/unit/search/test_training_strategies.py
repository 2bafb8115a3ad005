"""What HeterBO and its rivals optimise, and when they stop."""

from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr
from tests.synthetic import MACHINES, Machine, make_problem, measured

from mlcd.errors import BadInput
from mlcd.goal import Goal, Objective
from mlcd.ledger import Ledger
from mlcd.models.speed import speed_model
from mlcd.problem import Problem
from mlcd.search.heterbo import PAPER
from mlcd.search.paleo import Paleo
from mlcd.search.registry import strategy
from mlcd.space import Config
from mlcd.trial.plan import Remaining
from mlcd.trial.trial import History
from mlcd.units import HOUR, Usd

D = Config.deployment
ONE = {"one": Machine(usd_per_hour=0.68, speed=10.0, drag=0.02)}
FASTEST = Goal(minimize=Objective.TIME)


def single(goal: Goal = FASTEST, nodes: int = 64) -> Problem:
    """One type; a single node takes 75 h."""
    return make_problem(machines=ONE, counts=range(1, nodes + 1), goal=goal, work_samples=2.7e6)


def trials(problem: Problem, speeds: Mapping[int, float], *, error: float = 0.02) -> History:
    """A measurement of each number of nodes of the first type."""
    name = problem.space.configs[0].instance
    return History(tuple(measured(problem, D(name, n), speed, error=error) for n, speed in speeds.items()))


def remaining(problem: Problem, history: History, *, guarded: bool = True) -> Remaining:
    return Ledger(
        problem=problem,
        history=history,
        spent=Usd(sum(trial.usd.micros for trial in history)),
        elapsed_seconds=sum(trial.seconds for trial in history),
        guarded=guarded,
    ).remaining()


def asked(text: str, problem: Problem, history: History) -> list[int]:
    """The numbers of nodes that the strategy would try next."""
    chosen = strategy(text)
    left = remaining(problem, history, guarded=chosen.guarded)
    return [suggestion.config.nodes for suggestion in chosen.suggest(problem, history, left, 1)]


# ---- HeterBO


def test_the_preset_is_what_the_paper_describes() -> None:
    made = strategy("heterbo:paper")
    assert made.settings == PAPER  # type: ignore[attr-defined]
    assert (PAPER.start, PAPER.acquisition) == ("all", "tei")
    assert PAPER.price
    assert PAPER.prune
    assert PAPER.gate
    assert PAPER.reserve
    assert ndtr(PAPER.bound_sigmas) == pytest.approx(0.95, abs=1e-3)


def test_options_after_a_preset_change_single_settings_and_a_preset_comes_first() -> None:
    settings = strategy("heterbo:paper,prune=off").settings  # type: ignore[attr-defined]
    assert (settings.start, settings.acquisition, settings.prune) == ("all", "tei", False)
    with pytest.raises(BadInput, match="heterbo has no option 'paper'; allowed: paper, start=, "):
        strategy("heterbo:prune=off,paper")
    with pytest.raises(BadInput, match="convbo has no option 'paper'"):
        strategy("convbo:paper")


def test_the_paper_starts_with_a_single_node_of_every_type() -> None:
    problem = make_problem(goal=Goal(minimize=Objective.TIME, budget=Usd.of(500)))
    history, started = History(), []
    for _ in MACHINES:
        (suggestion,) = strategy("heterbo:paper").suggest(problem, history, remaining(problem, history), 1)
        started.append(suggestion.config)
        history = history.with_trials(measured(problem, suggestion.config, 10.0))
    assert set(started) == {D(name, 1) for name in MACHINES}


@pytest.mark.parametrize("text", ["heterbo", "heterbo:paper"])
def test_after_a_decline_more_nodes_are_not_tried(text: str) -> None:
    problem = single()
    history = trials(problem, {1: 10.0, 8: 70.0, 10: 60.0})
    assert asked(text, problem, history) == [9]
    (beyond,) = asked(f"{text}{',' if ':' in text else ':'}prune=off", problem, history)
    assert beyond > 10


def test_the_gate_ends_the_search_where_even_the_upper_bound_does_not_pay() -> None:
    problem = single()
    history = trials(problem, {1: 10.0, 4: 38.0, 5: 30.0})
    assert asked("heterbo:paper", problem, history) == []
    assert asked("heterbo:paper,gate=off", problem, history) == [3]


def test_a_trial_of_the_paper_needs_slack_for_the_training_after_it() -> None:
    history = trials(single(), {1: 10.0, 8: 70.0})
    (free,) = asked("heterbo:paper", single(), history)
    for usd in (65, 75, 100):
        problem = single(Goal(minimize=Objective.TIME, budget=Usd.of(usd)))
        left = remaining(problem, history).usd
        model = speed_model(problem, history)
        assert left is not None
        assert model is not None
        (nodes,) = asked("heterbo:paper", problem, history)
        row = problem.space.index[D("one", nodes)]
        seconds = problem.planned_trial_seconds[row] + np.exp(model.log_seconds[row])
        assert seconds * problem.dollars_per_second[row] <= left.dollars
        assert nodes < free


def test_while_nothing_has_slack_the_paper_counts_on_the_upper_end_of_the_interval() -> None:
    problem = single(Goal(minimize=Objective.COST, deadline_seconds=6 * HOUR))
    history = trials(problem, {1: 10.0})
    model, left = speed_model(problem, history), remaining(problem, history)
    assert model is not None
    assert left.seconds is not None
    longest = left.seconds - problem.planned_trial_seconds
    assert (np.exp(model.log_seconds) > longest).all()  # nothing is expected to fit
    (nodes,) = asked("heterbo:paper", problem, history)
    row = problem.space.index[D("one", nodes)]
    assert np.exp(model.log_seconds - PAPER.bound_sigmas * np.sqrt(model.variance))[row] <= longest[row]


def test_the_price_of_a_trial_keeps_the_paper_from_large_clusters() -> None:
    history = trials(single(), {1: 10.0})
    (priced,), (free,) = (asked(f"heterbo:paper,price={word}", single(), history) for word in ("on", "off"))
    assert priced < free


# ---- ConvBO and CherryPick


def scores(problem: Problem, history: History) -> "tuple[NDArray[np.float64], NDArray[np.float64], float]":
    """(mean, deviation) of ln value in the goal's unit at every configuration, and the least measured value."""
    model = speed_model(problem, history)
    assert model is not None
    mean = model.log_seconds + np.log(problem.goal.scale(problem.dollars_per_second))
    rows = [problem.space.index[trial.config] for trial in history.measured]
    seconds = np.array([problem.work_samples / trial.samples_per_second for trial in history.measured])
    return mean, np.sqrt(model.variance), float((seconds * problem.goal.scale(problem.dollars_per_second[rows])).min())


@pytest.mark.parametrize("goal", [FASTEST, Goal(minimize=Objective.COST)])
def test_convbo_tries_what_its_acquisition_ranks_first(goal: Goal) -> None:
    problem = make_problem(goal=goal)
    history = trials(problem, {1: 10.0, 4: 36.0, 12: 80.0})
    mean, deviation, least = scores(problem, history)
    z = (np.log(least) - mean) / deviation
    saving = least * ndtr(z) - np.exp(mean + deviation**2 / 2) * ndtr(z - deviation)
    expected = {"ucb": 2 * deviation - mean, "poi": z, "ei": saving}
    chosen = set()
    for name, score in expected.items():
        for config in history.tried:
            score[problem.space.index[config]] = -np.inf
        text = strategy(f"convbo:threshold=0,acquisition={name}")
        (suggestion,) = text.suggest(problem, history, remaining(problem, history, guarded=False), 1)
        assert suggestion.config == problem.space.configs[int(score.argmax())]
        chosen.add(suggestion.config)
    assert len(chosen) > 1  # the case tells the acquisitions apart


def test_convbo_stops_at_a_small_expected_improvement_or_after_its_trials() -> None:
    problem = single(nodes=12)
    curve = {n: 10.0 * n / (1 + 0.3 * (n - 1)) for n in (1, 3, 6, 9, 12)}
    history = trials(problem, curve, error=0.001)
    assert asked("convbo:threshold=0", problem, history)
    assert asked("convbo:threshold=0.5", problem, history) == []
    assert asked("convbo:threshold=0,steps=5", problem, history) == []
    assert asked("convbo:threshold=0.5", problem, trials(problem, {1: 10.0, 2: 19.0}))


def test_cherrypick_tries_what_is_likely_to_keep_the_deadline() -> None:
    """The cheapest of this type is one node, which takes 75 h; 10 nodes fit."""
    history = trials(single(), {16: 120.0, 32: 160.0, 48: 170.0})
    free = single(Goal(minimize=Objective.COST))
    problem = single(Goal(minimize=Objective.COST, deadline_seconds=9 * HOUR))
    (tempting,), (likely,) = asked("cherrypick", free, history), asked("cherrypick", problem, history)
    model = speed_model(problem, history)
    assert model is not None
    seconds = np.exp(model.log_seconds)
    assert seconds[problem.space.index[D("one", tempting)]] > 18 * HOUR
    assert seconds[problem.space.index[D("one", likely)]] < 1.2 * 9 * HOUR


def test_cherrypick_tries_what_is_likely_to_keep_the_budget() -> None:
    history = trials(single(), {1: 10.0, 4: 38.0, 8: 72.0})
    problem = single(Goal(minimize=Objective.TIME, budget=Usd.of(56)))
    (tempting,), (likely,) = asked("cherrypick", single(), history), asked("cherrypick", problem, history)
    assert likely < tempting


def test_cherrypick_stops_at_a_small_expected_improvement_after_its_least_trials() -> None:
    problem = single(nodes=12)
    curve = {n: 10.0 * n / (1 + 0.3 * (n - 1)) for n in (1, 3, 5, 7, 9, 12)}
    history = trials(problem, curve, error=0.001)
    assert asked("cherrypick", problem, history) == []
    assert asked("cherrypick:least=7", problem, history)
    assert asked("cherrypick:threshold=0", problem, history)
    assert asked("cherrypick:threshold=0,steps=6", problem, history) == []
    rising = trials(problem, {n: 10.0 * n for n in (1, 2, 3, 4, 5, 6)})
    assert asked("cherrypick:threshold=0.05", problem, rising)  # 12 nodes may be twice as fast


@pytest.mark.parametrize(
    "text",
    [
        "heterbo:gate=off,price=off,prune=off",
        "heterbo:paper,gate=off,price=off,prune=off",
        "convbo:threshold=0",
        "convbo:threshold=0,acquisition=ucb",
        "cherrypick:threshold=0",
    ],
)
def test_only_an_untried_configuration_is_suggested_however_promising_the_tried_ones(text: str) -> None:
    """Noisy trials leave the tried ones a large expected improvement; the untried one is the slowest."""
    problem = single(nodes=8)
    history = trials(problem, {n: 10.0 * n for n in range(2, 9)}, error=0.5)
    assert asked(text, problem, history) in ([1], [])
    if "convbo" in text or "cherrypick" in text:
        assert asked(text, problem, history) == [1]


# ---- Paleo


def test_paleo_adds_the_exchange_of_gradients_to_the_computation() -> None:
    problem = make_problem()
    speed = Paleo(compute=0.5, network=0.8).samples_per_second(problem)
    peak, bandwidth = MACHINES["c5.small"].speed * 4e9, 1.25e9
    for nodes in (1, 4, 16):
        compute = 512 * 1e9 / (nodes * peak * 0.5)
        exchange = 2 * (nodes - 1) / nodes * 1e8 / (bandwidth * 0.8)
        found = speed[problem.space.index[D("c5.small", nodes)]]
        assert found == pytest.approx(512 / (compute + exchange), rel=1e-9)


PUBLIC_PALEO_MS = {
    "one-to-all": {2: 127.2, 5: 508.8, 8: 890.4, 30: 3688.8},
    "tree": {2: 127.2, 5: 381.6, 8: 381.6, 30: 636.0},
    "butterfly": {2: 63.6, 5: 190.8, 8: 190.8, 30: 318.0},
}
"""Milliseconds to exchange 95.4 MB over 20 Gbit/s at 60% of its peak: `all_reduce` of paleo/comm.py, commit 984bbf5 of
TalwalkarLab/paleo."""


@pytest.mark.parametrize("topology", PUBLIC_PALEO_MS)
def test_paleo_exchanges_gradients_in_the_time_that_its_public_code_computes(topology: str) -> None:
    public = PUBLIC_PALEO_MS[topology]
    transfers = Paleo(topology=topology)._transfers(np.array(list(public)))  # type: ignore[arg-type]
    assert 1000 * transfers * 95.4e6 / (0.6 * 20e9 / 8) == pytest.approx(list(public.values()))


def test_paleo_takes_more_nodes_the_less_an_exchange_costs() -> None:
    problem = single()
    nodes = []
    for topology in ("one-to-all", "tree", "butterfly", "ring"):
        chosen = strategy(f"paleo:topology={topology}")
        plan = chosen.recommend(problem, History(), remaining(problem, History(), guarded=False))
        assert plan is not None
        nodes.append(plan.config.nodes)
    assert nodes == sorted(nodes)
    assert nodes[0] < nodes[-1]


def test_paleo_makes_no_trial_and_keeps_the_budget_by_its_own_formula() -> None:
    goal = Goal(minimize=Objective.TIME, budget=Usd.of(45))
    for problem, within in ((single(), False), (single(goal), True)):
        left = remaining(problem, History(), guarded=False)
        assert strategy("paleo").suggest(problem, History(), left, 3) == ()
        plan = strategy("paleo").recommend(problem, History(), left)
        assert plan is not None
        assert (plan.usd <= Usd.of(45)) is within
