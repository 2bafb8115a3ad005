"""What other jobs showed, as a prior: it counts before the first trials, and gives way to what is measured."""

from dataclasses import replace

import numpy as np
import pytest
from tests.synthetic import MACHINES, make_problem, true_trial

from mlcd.models.mixed_speed import mixed_model
from mlcd.models.similar import FEWEST_MEASUREMENTS, similar_speeds
from mlcd.models.speed import speed_model
from mlcd.problem import Problem
from mlcd.space import Config
from mlcd.trial.trial import History

D = Config.deployment
PROBLEM = make_problem()
HISTORY = History(
    tuple(true_trial(PROBLEM, D(name, n)) for name in MACHINES for n in (1, 4, 16))  # the whole curve of every type
)
TRUE = np.log([MACHINES[c.instance].samples_per_second(c.nodes) or np.nan for c in PROBLEM.space])


def errors(problem: Problem, history: History) -> float:
    """Mean square error of ln speed, apart from its level."""
    model = speed_model(problem, history)
    assert model is not None
    away = model.log_speed - TRUE
    return float(np.var(away))


def test_a_job_like_it_helps_from_the_first_trial() -> None:
    informed = replace(PROBLEM, similar=similar_speeds(PROBLEM, [(PROBLEM, HISTORY)]))
    one = History((true_trial(PROBLEM, D("c5.small", 1)),))
    assert errors(informed, one) < 0.7 * errors(PROBLEM, one)
    mixed, cold = (mixed_model(problem, one) for problem in (informed, PROBLEM))
    assert np.var(mixed.mean + TRUE) < np.var(cold.mean + TRUE)


def test_a_job_unlike_it_gives_way_to_what_is_measured() -> None:
    misled = replace(PROBLEM, similar=tuple(-x for x in similar_speeds(PROBLEM, [(PROBLEM, HISTORY)])))
    assert errors(misled, HISTORY) < 1.2 * errors(PROBLEM, HISTORY) + 1e-3


def test_levels_do_not_count_and_several_jobs_are_averaged() -> None:
    faster = History(tuple(replace(t, samples_per_second=100 * t.samples_per_second) for t in HISTORY.measured))
    one = similar_speeds(PROBLEM, [(PROBLEM, HISTORY)])
    assert similar_speeds(PROBLEM, [(PROBLEM, HISTORY), (PROBLEM, HISTORY)]) == pytest.approx(one)
    assert similar_speeds(PROBLEM, [(PROBLEM, faster)]) == pytest.approx(one, abs=0.02)
    assert np.mean(one) == pytest.approx(0.0, abs=1e-9)


def test_what_was_not_searched_or_hardly_measured_says_nothing() -> None:
    assert similar_speeds(PROBLEM, []) == ()
    assert similar_speeds(PROBLEM, [(PROBLEM, History(HISTORY.trials[: FEWEST_MEASUREMENTS - 1]))]) == ()
    some = {name: machine for name, machine in MACHINES.items() if name != "p2.one"}
    smaller = make_problem(machines=some)
    seen = History(tuple(t for t in HISTORY if t.config in smaller.space))
    found = similar_speeds(PROBLEM, [(smaller, seen)])
    assert all((x == 0) == (c.instance == "p2.one") for x, c in zip(found, PROBLEM.space, strict=True))
    other = make_problem(machines={"other": MACHINES["c5.big"]})
    assert similar_speeds(other, [(PROBLEM, HISTORY)]) == ()


def test_a_problem_refuses_a_prior_of_another_size() -> None:
    with pytest.raises(ValueError, match="similar"):
        replace(PROBLEM, similar=(0.1,))
