"""What an ask may spend, what a tell is charged, and what the default strategy looks for: the quick cases.

test_ask_tell.py has everything else.
"""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.synthetic import failed, make_problem, measured

import mlcd
from mlcd.asktell.prices import prices_of
from mlcd.errors import BadInput
from mlcd.ledger import Ledger
from mlcd.models.knob_gp import Columns, Observed, fit
from mlcd.problem import Problem, TrialPolicy
from mlcd.search.bayesian import Bayesian
from mlcd.space import Config
from mlcd.space.declared import space_of
from mlcd.trial.trial import FailureKind, History, Learned, Measurement
from mlcd.units import Usd

KNOBS: dict[str, Any] = {"size": ["small", "large"], "workers": range(1, 9)}


def over(**changed: Any) -> "mlcd.Search[Any]":
    given = {
        "knobs": KNOBS,
        "objective": "maximize",
        "usd_per_hour": 1.0,
        "trial_seconds": 3600.0,
        "strategy": "random",
    }
    return mlcd.Search(**{**given, **changed})


def test_a_round_is_authorised_together() -> None:
    search = over(budget=5, strategy="bayesian:start=9")
    assert len(search.ask(9)) == 5, "each trial may cost a dollar"
    assert search.remaining.usd == Usd(0)
    assert search.ask(9) == []


def test_open_asks_count_in_the_next_ask_too() -> None:
    search = over(budget=5)
    asked = [suggestion.config for _ in range(9) for suggestion in search.ask()]
    assert len(asked) == len(set(asked)) == 5
    assert search.open == tuple(asked)
    few = over(max_trials=3)
    assert len(few.ask(2)) == 2
    assert few.remaining.trials == 1
    assert len(few.ask(2)) == 1


def test_a_deadline_runs_on_the_callers_clock(tmp_path: Path) -> None:
    now = [100.0]
    search = over(deadline="3h", clock=lambda: now[0])
    (first,) = search.ask()
    search.tell(first, value=1, seconds=10)
    now[0] += 3600.0
    assert search.remaining.seconds == 2 * 3600.0
    again: mlcd.Search[Any] = mlcd.Search.load(search.save(tmp_path / "s"), clock=lambda: now[0] - 50.0)
    assert again.remaining.seconds == 2 * 3600.0
    now[0] += 3601.0
    assert search.ask() == again.ask() == [], "a trial of an hour does not fit any more"


def test_a_trial_costs_its_time_at_its_price() -> None:
    search = over(usd_per_hour={"small": 1, "large": 4})
    search.tell({"size": "large", "workers": 1}, value=1, seconds=1800)
    search.tell({"size": "large", "workers": 2}, value=1, seconds=1800, usd=7)
    assert [trial.usd for trial in search.history] == [Usd.of(2), Usd.of(7)]


def test_prices_of_nodes_add_up_and_those_of_a_function_are_whole() -> None:
    space = space_of({"nodes": [1, 4]})
    assert [price.dollars for price in prices_of(space, 2)[0]] == [2, 8]
    assert [price.dollars for price in prices_of(space, lambda _: 2)[0]] == [2, 2]


@pytest.mark.parametrize(("objective", "best"), [("maximize", 3.0), ("minimize", -2.0)])
def test_the_best_value_is_the_best(objective: str, best: float) -> None:
    search = over(objective=objective)
    for workers, value in enumerate((1.0, 3.0, -2.0), start=1):
        search.tell({"size": "small", "workers": workers}, value=value, seconds=1)
    assert search.best is not None
    assert search.best.value == best


def test_what_cannot_be_meant_is_refused() -> None:
    config: dict[str, str | int | float] = {"size": "small", "workers": 1}
    for told in (
        {"value": math.nan, "seconds": 1},
        {"value": 1, "seconds": 1e12},
        {"value": 1, "seconds": 1, "usd": 1e9},
    ):
        with pytest.raises(BadInput, match="tell"):
            over().tell(config, **told)


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e101])
def test_a_value_that_is_no_value_is_a_failure_to_be_told(value: float) -> None:
    with pytest.raises(BadInput, match=r"tell: value: must be a finite number.* with tell_failure"):
        over().tell({"size": "small", "workers": 1}, value=value, seconds=1)


def test_wide_numbers_are_on_a_logarithmic_scale() -> None:
    assert space_of({"x": [1, 8]}).knobs[0].features is None
    assert space_of({"x": [1, 7]}).knobs[0].features == {1: (1.0,), 7: (7.0,)}


@pytest.mark.parametrize(("format_", "workers"), [(2, 1), (1, 2)])
def test_another_format_and_another_configurations_outcome_are_refused(
    tmp_path: Path, format_: int, workers: int
) -> None:
    search = over()
    search.tell({"size": "small", "workers": 1}, value=1, seconds=1)
    path = search.save(tmp_path / "s")
    mlcd.Search.load(path)
    data = json.loads(path.read_text())
    data["format"] = format_
    data["steps"][0]["outcome"]["measurement"]["config"]["workers"] = workers
    path.write_text(json.dumps(data))
    with pytest.raises(BadInput, match=r"format 2|the outcome is of"):
        mlcd.Search.load(path)


# ---- the default strategy


def scored(problem: Problem, values: dict[Config, float]) -> tuple[Measurement, ...]:
    trials = []
    for config, value in values.items():
        trial = measured(problem, config, 1.0)
        assert isinstance(trial, Measurement)
        trials.append(replace(trial, relative_error=0.0, learned=(Learned(samples=0.0, metric=value),)))
    return tuple(trials)


def knob_problem() -> Problem:
    return over(knobs={"x": range(9)}, strategy="bayesian").problem


def asked(problem: Problem, history: History, *, start: int = 1) -> list[Any]:
    remaining = Ledger(problem=problem, history=history).remaining()
    return [s.config["x"] for s in Bayesian(start=start).suggest(problem, history, remaining, 1)]


def at(x: int) -> Config:
    return Config((("x", x),))


def test_start_trials_are_far_apart() -> None:
    problem = knob_problem()
    assert asked(problem, History(scored(problem, {at(0): 1.0})), start=3) == [8]
    assert asked(problem, History(scored(problem, {at(0): 1.0, at(8): 1.0})), start=3) == [4]


def test_it_looks_where_values_rise_and_not_where_trials_failed() -> None:
    problem = knob_problem()
    rising = {at(x): float(x) for x in (0, 2, 4, 6)}
    assert asked(problem, History(scored(problem, rising)))[0] in (7, 8)
    broken = tuple(failed(problem, at(x), FailureKind.OUT_OF_MEMORY) for x in (7, 5))
    assert asked(problem, History((*scored(problem, rising), *broken)))[0] in (3, 1), "8 is next to a failure"


def test_a_trial_must_pay_for_itself() -> None:
    def suggested(trial_seconds: float) -> int:
        problem = replace(make_problem(work_samples=2e4), trial=TrialPolicy(seconds=trial_seconds))
        trials = [measured(problem, config, 20.0 * config.nodes**0.5) for config in problem.space.configs[::5]]
        history = History(tuple(trials))
        remaining = Ledger(problem=problem, history=history).remaining()
        return len(Bayesian(start=1).suggest(problem, history, remaining, 1))

    assert suggested(1e-3) == 1
    assert suggested(3600.0) == 0, "the whole training takes less than this trial"


def test_the_model_knows_the_errors_and_the_unit_of_its_values() -> None:
    columns = Columns.of(space_of({"x": range(40)}))
    rows = np.array([0, 13, 26, 39])
    values = np.array([0.0, 1.0, 0.5, 2.0])

    def deviation(unit: float, error: float) -> float:
        seen = Observed(rows=rows, values=unit * values, errors=np.full(4, unit * error))
        return float(np.sqrt(fit(columns, seen).predict(np.array([13]))[1][0]) / unit)

    assert deviation(1.0, 0.5) > 2 * deviation(1.0, 0.0)
    assert deviation(1000.0, 0.1) == pytest.approx(deviation(1.0, 0.1), rel=1e-3)


def test_counts_are_compared_by_their_ratio() -> None:
    columns = Columns.of(space_of({"x": [1, 2, 4, 8, 16]}))
    assert columns.numbers[:, 0].tolist() == pytest.approx([0.0, 0.25, 0.5, 0.75, 1.0])
