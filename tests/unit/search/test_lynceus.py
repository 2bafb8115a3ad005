"""Lynceus: what it imagines of later trials, what it takes first, and when it stops."""

import numpy as np
import pytest
from scipy.special import ndtr
from tests.synthetic import make_problem, measured

from mlcd.errors import BadInput
from mlcd.goal import Goal, Objective
from mlcd.ledger import Ledger
from mlcd.models.speed import speed_model
from mlcd.problem import Problem
from mlcd.search.lynceus import NODES, Lynceus, _State
from mlcd.search.registry import strategy
from mlcd.space import Config
from mlcd.trial.plan import best_fitting
from mlcd.trial.trial import History
from mlcd.units import Usd

D = Config.deployment
SIZE, ERROR = 5, 0.1


def state(*, log_cap: float = np.inf, log_best: float = 0.0, prices: tuple[float, ...] = (1.0,) * SIZE) -> _State:
    rng = np.random.default_rng(3)
    root = rng.normal(size=(SIZE, SIZE))
    return _State(
        rows=np.arange(SIZE),
        mean=rng.normal(size=SIZE) * 0.3,
        covariance=root @ root.T / SIZE,
        log_cap=np.full(SIZE, log_cap),
        log_best=log_best,
        prices=np.array(prices),
        error=ERROR,
    )


def conditioned(beliefs: _State, at: list[int], values: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of all after values measured at some, by the textbook's formula."""
    among = beliefs.covariance[np.ix_(at, at)] + ERROR**2 * np.eye(len(at))
    gain = np.linalg.solve(among, beliefs.covariance[at]).T
    mean = beliefs.mean + gain @ (np.array(values) - beliefs.mean[at])
    return mean, np.diag(beliefs.covariance - gain @ beliefs.covariance[at])


def test_beliefs_after_imagined_trials_are_those_after_real_ones() -> None:
    beliefs = state()
    after = beliefs.after_each()
    second = np.array([[(x + 1 + j) % SIZE for j in range(3)] for x in range(SIZE)])
    last = beliefs.after_two(after, second)
    for x in range(SIZE):
        for j in range(3):
            first_value = beliefs.mean[x] + np.sqrt(beliefs.variance[x] + ERROR**2) * NODES[j]
            mean, variance = conditioned(beliefs, [x], [first_value])
            assert after.mean[x, j] == pytest.approx(mean)
            assert after.variance[x, 0] == pytest.approx(np.maximum(variance, 1e-12))
            assert not after.open[x, 0, x]
            at = int(second[x, j])
            for k in range(3):
                value = mean[at] + np.sqrt(variance[at] + ERROR**2) * NODES[k]
                both = conditioned(beliefs, [x, at], [first_value, value])
                assert last.mean[x, j, k] == pytest.approx(both[0])
                assert last.variance[x, j, 0] == pytest.approx(np.maximum(both[1], 1e-12))
                assert last.log_best[x, j, k] == pytest.approx(min(0.0, first_value, value))
            assert set(np.flatnonzero(last.open[x, j, 0])) == set(range(SIZE)) - {x, at}


def test_an_outcome_that_does_not_fit_is_no_best() -> None:
    assert (state(log_cap=-9.0).after_each().log_best == 0.0).all()


def test_a_path_is_worth_its_discounted_improvements_for_its_prices() -> None:
    beliefs = state(prices=(1.0, 2.0, 3.0, 4.0, 5.0))
    gain = beliefs.gains(beliefs.mean, beliefs.variance, np.array(0.0))
    assert Lynceus(horizon=0)._worth(beliefs, gain) == pytest.approx(gain / beliefs.prices)
    found = Lynceus(horizon=1, discount=0.5)._worth(beliefs, gain)
    for x in range(SIZE):
        reward, price = gain[x], beliefs.prices[x]
        for weight, node in zip((1 / 6, 2 / 3, 1 / 6), NODES, strict=True):
            value = beliefs.mean[x] + np.sqrt(beliefs.variance[x] + ERROR**2) * node
            mean, variance = conditioned(beliefs, [x], [value])
            then = beliefs.gains(mean, np.maximum(variance, 1e-12), np.array(min(0.0, value)))
            others = [y for y in range(SIZE) if y != x]
            best = max(others, key=lambda y: then[y] / beliefs.prices[y])
            reward += 0.5 * weight * then[best]
            price += 0.5 * weight * beliefs.prices[best]
        assert found[x] == pytest.approx(reward / price)
    assert Lynceus(horizon=2, discount=0.0)._worth(beliefs, gain) == pytest.approx(gain / beliefs.prices)


# ---- searches


def history(problem: Problem, *nodes: int, scale: float = 10.0) -> History:
    return History(tuple(measured(problem, D("c5.small", n), scale * n**0.9) for n in nodes))


def ledger(problem: Problem, past: History) -> Ledger:
    return Ledger(problem=problem, history=past, spent=Usd(sum(t.usd.micros for t in past)))


def test_without_looking_ahead_the_improvement_for_its_price_decides() -> None:
    problem = make_problem(goal=Goal(minimize=Objective.COST, deadline_seconds=1e9))
    past = history(problem, 1, 2, 8)
    remaining = ledger(problem, past).remaining()
    (found,) = strategy("lynceus:horizon=0,threshold=0").suggest(problem, past, remaining, 1)
    model = speed_model(problem, past)
    assert model is not None
    mean = model.log_seconds + np.log(problem.dollars_per_second)
    incumbent = best_fitting(problem, past, remaining)
    assert incumbent is not None
    best = np.log(incumbent.value(problem))
    deviation = np.sqrt(model.variance)
    d = (best - mean) / deviation
    gain = np.exp(best) * ndtr(d) - np.exp(mean + model.variance / 2) * ndtr(d - deviation)
    gain = gain / (problem.planned_trial_seconds * problem.dollars_per_second)
    gain[[problem.space.index[c] for c in past.tried]] = 0.0
    assert found.config == problem.space.configs[int(gain.argmax())], "the deadline is far, so all fit"


def test_it_stops_when_no_improvement_is_large_enough() -> None:
    problem = make_problem()
    past = History(tuple(measured(problem, c, 10.0 * c.nodes**0.9) for c in problem.space.configs[:-1]))
    remaining = ledger(problem, past).remaining()
    assert strategy("lynceus:threshold=0.9").suggest(problem, past, remaining, 1) == ()
    assert "under 90% of the best" in strategy("lynceus:threshold=0.9").ending(problem, past, remaining)
    assert len(strategy("lynceus:threshold=0").suggest(problem, past, remaining, 1)) == 1


def test_while_nothing_fits_it_goes_on() -> None:
    problem = make_problem(goal=Goal(minimize=Objective.COST, deadline_seconds=7200.0), work_samples=1e9)
    past = history(problem, 1, 2, 4)
    remaining = ledger(problem, past).remaining()
    assert len(strategy("lynceus:threshold=0.9").suggest(problem, past, remaining, 1)) == 1


def test_the_start_is_spread_and_the_steps_are_counted() -> None:
    problem = make_problem()
    remaining = ledger(problem, History()).remaining()
    first = strategy("lynceus:start=3").suggest(problem, History(), remaining, 8)
    assert len({s.config for s in first}) == 3
    past = history(problem, 1, 2, 8)
    assert strategy("lynceus:steps=3,threshold=0").suggest(problem, past, remaining, 1) == ()
    assert "all 3 trials" in strategy("lynceus:steps=3").ending(problem, past, remaining)


@pytest.mark.parametrize("option", ["horizon=3", "discount=1.5", "start=0", "threshold=-1"])
def test_options_are_checked(option: str) -> None:
    with pytest.raises(BadInput, match="must be"):
        strategy(f"lynceus:{option}")
