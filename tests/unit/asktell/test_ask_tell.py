"""`mlcd.Search` over declared knobs: the space, any objective, limits, saved state, and how it looks."""

import json
import math
import random
import sys
import time
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from ask_tell import HELD_OUT, SEEN, compared
from hypothesis import given, settings
from hypothesis import strategies as st

import mlcd
from mlcd.asktell import Best
from mlcd.asktell.prices import prices_of
from mlcd.asktell.state import MAX_FILE_BYTES
from mlcd.codec import to_json
from mlcd.errors import BadInput, MissingExtra
from mlcd.models.knob_gp import Columns, Observed, _Objective, fit
from mlcd.space import Config
from mlcd.space.declared import space_of
from mlcd.trial.plan import Plan
from mlcd.units import Usd

KNOBS: dict[str, Any] = {"instance": ["small", "large"], "workers": range(1, 9), "precision": ["fp32", "bf16"]}
JOB = {
    "name": "own",
    "resources": {"infra": "aws", "instance_type": ["c5.xlarge", "p3.2xlarge"]},
    "num_nodes": "1..8",
    "job": {"samples": 2e6},
    "goal": {"minimize": "time", "budget": "30 USD", "deadline": "8h"},
}


def score(config: Config) -> float:
    """From -32 to 4; best at large, 5 workers, bf16."""
    size = {"small": 0, "large": 3}[config.instance]
    return size + (config["precision"] == "bf16") - 2.0 * (float(config["workers"]) - 5) ** 2


def over(**changed: Any) -> "mlcd.Search[Any]":
    return mlcd.Search(**{"knobs": KNOBS, "objective": "maximize", **changed})


def throughput(**changed: Any) -> "mlcd.Search[Any]":
    given = {"objective": "time", "work_samples": 1e6, "trial_seconds": 300, "usd_per_hour": {"small": 0.5, "large": 2}}
    return over(**{**given, **changed})


# ---- the space


def test_all_combinations_are_in_order_and_where_excludes_some() -> None:
    asked: list[Config] = []

    def where(config: Config) -> bool:
        asked.append(config)
        return config["precision"] == "fp32" or config.instance == "large"

    search = over(where=where)
    assert len(asked) == 2 * 8 * 2
    assert len(search.problem.space) == 8 + 16
    search.ask(3)
    assert len(asked) == 2 * 8 * 2
    assert str(search.problem.space.configs[0]) == "instance=small, workers=1, precision=fp32"


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (range(1, 9), "count"),
        ([1e-4, 1e-2], "count"),
        (np.array([1, 2, 16]), "count"),
        (range(1, 8), "number"),
        ([0, 100], "number"),
        ([-1.0, 0.5], "number"),
        ([True, False], "option"),
        (["a", "b"], "option"),
        ([1, "auto"], "option"),
    ],
)
def test_numbers_are_ordered_and_wide_ones_are_on_a_logarithmic_scale(values: Any, kind: str) -> None:
    (knob,) = space_of({"x": values}).knobs
    features = knob.features
    assert ("count" if features is None else "number" if len(features[knob.values[0]]) == 1 else "option") == kind
    assert all(type(value) in (int, float, str, bool) for value in knob.values)


def test_with_a_nodes_knob_only_nodes_is_a_count() -> None:
    nodes, batch = space_of({"nodes": [1, 2], "batch": [1, 64]}).knobs
    assert not nodes.is_choice
    assert batch.features == {1: (0.0,), 64: (6.0,)}


@pytest.mark.parametrize(
    ("knobs", "problem"),
    [
        ({}, "knobs: nothing to choose from"),
        ({"x": []}, "knobs: x: has no values"),
        ({"x": [1, 1.0]}, r"knobs: x: repeats a value \(got 1.0\)"),
        ({"x": "abc"}, r"knobs: x: must have several values \(got 'abc'\)"),
        ({"x": 3}, r"knobs: x: must have several values \(got 3\)"),
        ({"x": [None, "a"]}, "knobs: x: is not a value to choose"),
        ({"x": [math.nan]}, r"knobs: x: is not a value to choose \(got nan\)"),
        ({"x": [math.inf]}, "knobs: x: is not a value to choose"),
        ({"x": [2**80]}, "knobs: x: is not a value to choose"),
        ({"x": [[1]]}, "knobs: x: is not a value to choose"),
        ({3: [1]}, "knobs: a name must be text"),
        ({" ": [1]}, "knobs: a name must be text"),
        ({"nodes": [1, 1.5]}, "knobs: nodes: must be whole numbers"),
        ({"nodes": ["two"]}, "knobs: nodes: must be whole numbers"),
        ({"nodes": [0, 1]}, "knobs: nodes: must be whole numbers"),
        ({k: range(50) for k in "abcd"}, r"knobs: 6,250,000 combinations are too many.*at most 200,000"),
    ],
)
def test_knobs_that_cannot_be_searched(knobs: Any, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        mlcd.Search(knobs=knobs, objective="maximize")


def test_a_space_that_is_too_large_is_refused_before_it_is_made() -> None:
    began = time.process_time()
    with pytest.raises(BadInput, match="too many"):
        mlcd.Search(
            knobs={k: range(10**4) for k in "abcde"}, objective="maximize", where=lambda _: pytest.fail("asked")
        )
    assert time.process_time() - began < 5


def test_a_where_that_excludes_everything_is_refused() -> None:
    with pytest.raises(BadInput, match="where: excludes all 32 combinations"):
        over(where=lambda _: False)


# ---- prices


@pytest.mark.parametrize(
    ("price", "dollars"),
    [
        (0.5, 0.5),
        ("0.50 USD", 0.5),
        (Usd("0.5"), 0.5),
        ({"small": 0.5, "large": 2}, 0.5),
        (lambda config: 0.1 * float(config["workers"]), 0.1),
        (np.float64(0.5), 0.5),
    ],
)
def test_a_price_is_a_number_a_mapping_or_a_function(price: Any, dollars: float) -> None:
    prices, counted = prices_of(space_of(KNOBS), price)
    assert counted
    assert prices[0].dollars == dollars


@pytest.mark.parametrize("nothing", [None, 0, {"small": 0, "large": None}, lambda _: 0.0])
def test_without_prices_money_is_not_counted(nothing: Any) -> None:
    search = over(usd_per_hour=nothing)
    (first,) = search.ask()
    search.tell(first, value=1)
    assert search.history.trials[0].usd == 0
    assert search.remaining.usd is None
    with pytest.raises(BadInput, match="tell: usd: money is not counted"):
        search.tell(first, value=1, usd=3)
    with pytest.raises(BadInput, match="budget: needs usd_per_hour"):
        over(usd_per_hour=nothing, budget=3, trial_seconds=9)
    with pytest.raises(BadInput, match="objective: cost: needs usd_per_hour"):
        throughput(usd_per_hour=nothing, objective="cost")


def test_a_price_of_one_node_counts_for_each_of_them() -> None:
    space = space_of({"instance": ["a", "b"], "nodes": [1, 4]})
    assert [p.dollars for p in prices_of(space, {"a": 1, "b": 2})[0]] == [1, 4, 2, 8]
    assert [p.dollars for p in prices_of(space, 1)[0]] == [1, 4, 1, 4]
    assert [p.dollars for p in prices_of(space, lambda _: 1)[0]] == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("price", "problem"),
    [
        (-1, "usd_per_hour: money must be a finite number, not negative"),
        (Usd("-1"), "usd_per_hour: must not be negative"),
        (math.nan, "usd_per_hour: money must be a finite"),
        ("cheap", "usd_per_hour: not an amount of money"),
        (True, "usd_per_hour: not an amount of money"),
        ([1], "usd_per_hour: not an amount of money"),
        ({"small": 1}, "usd_per_hour: must have one price for each configuration, and has none of its values"),
        ({"small": 1, "large": 1, "fp32": 1}, "and has 2 of its values"),
        ({"small": 0, "large": 1}, r"usd_per_hour: is \$0 for instance=small"),
        (lambda _: "cheap", "usd_per_hour: not an amount of money"),
    ],
)
def test_invalid_prices_are_refused(price: Any, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        over(usd_per_hour=price)


# ---- a custom value


@pytest.mark.parametrize("sign", [1, -1])
def test_the_best_of_any_number_is_found_and_given_back_exactly(sign: int) -> None:
    search = over(objective="maximize" if sign > 0 else "minimize", max_trials=16)
    assert search.best is None
    told = {}
    while suggestions := search.ask():
        for suggestion in suggestions:
            told[suggestion.config] = sign * score(suggestion.config) * 1e-18 + sign * 1e-30
            search.tell(suggestion, value=told[suggestion.config])
    best = search.best
    assert isinstance(best, Best)
    assert best.config.as_dict() == {"instance": "large", "workers": 5, "precision": "bf16"}
    assert best.value == told[best.config]
    assert len(told) == 16


def test_the_limits_hold_for_trials_without_a_reserve() -> None:
    search = over(usd_per_hour={"small": 1, "large": 10}, trial_seconds=360, budget="3 USD", deadline="2h")
    while suggestions := search.ask(2):
        for suggestion in suggestions:
            search.tell(suggestion, value=score(suggestion.config), seconds=360)
    remaining = search.remaining
    assert remaining.usd is not None
    assert remaining.seconds is not None
    assert remaining.seconds >= 0
    assert 0 <= remaining.usd < Usd("0.1")  # not even the cheapest fits any more
    assert search.best is not None


@pytest.mark.parametrize("strategy", ["bayesian", "random", "exhaustive", "bayesian:start=2"])
@pytest.mark.parametrize("seed", range(3))
def test_no_ask_exceeds_the_limits_whatever_is_told(strategy: str, seed: int) -> None:
    chance = random.Random(seed)
    budget, deadline = chance.choice([1, 3]), chance.choice([1, 3])
    search = over(
        usd_per_hour={"small": 1, "large": 7},
        trial_seconds=600,
        budget=budget,
        deadline=f"{deadline}h",
        strategy=strategy,
        seed=seed,
    )
    waiting: list[Any] = []
    for _ in range(80):
        waiting += search.ask(chance.randint(1, 3))
        if not waiting:
            break
        worst = sum(search.problem.price(s.config).for_seconds(600).micros for s in waiting)
        assert sum(trial.usd.micros for trial in search.history) + worst <= budget * 1_000_000
        assert len({s.config for s in waiting}) == len(waiting)
        suggestion = waiting.pop(chance.randrange(len(waiting)))
        if chance.random() < 0.2:
            search.tell_failure(suggestion, kind=chance.choice(["out-of-memory", "lost", "hang"]), seconds=60)
        else:
            search.tell(suggestion, value=chance.uniform(-1, 1), seconds=chance.uniform(1, 600))
    else:
        pytest.fail("no end")
    assert search.remaining.usd is not None
    assert search.remaining.usd >= 0
    assert search.remaining.seconds is not None
    assert search.remaining.seconds >= 0


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e101, None, "1", True])
def test_invalid_values_are_refused(value: Any) -> None:
    search = over()
    (first,) = search.ask()
    with pytest.raises(BadInput, match="tell: value: must be a"):
        search.tell(first, value=value)
    assert search.open == (first.config,)


@pytest.mark.parametrize("value", [0, -1e100, 1e100, 5e-324, -5e-324, np.float32(3)])
def test_any_finite_value_can_be_told(value: Any) -> None:
    for objective in ("maximize", "minimize"):
        search = over(objective=objective)
        for suggestion, told in zip(search.ask(3), (value, 1.0, value), strict=True):
            search.tell(suggestion, value=told)
        for suggestion in search.ask(3):
            search.tell(suggestion, value=value)
        assert search.ask()
        best = search.best
        assert best is not None
        assert best.value in (float(value), 1.0)


def test_conflicting_arguments_are_refused() -> None:
    for name, wrong in (("samples_per_second", 1), ("relative_error", 0.1), ("startup_seconds", 1)):
        with pytest.raises(BadInput, match=f"tell: {name}: only for throughput; with objective maximize give value"):
            over().tell(
                Config((("instance", "small"), ("workers", 1), ("precision", "fp32"))), value=1, **{name: wrong}
            )
    with pytest.raises(BadInput, match="tell: value: only for objective maximize or minimize"):
        mlcd.Search(JOB).tell({"instance": "c5.xlarge", "nodes": 1}, value=1, seconds=1)
    with pytest.raises(BadInput, match="work_samples: only for objective time, cost or knee"):
        over(work_samples=5)
    with pytest.raises(BadInput, match="noise: only for objective time, cost or knee"):
        over(noise=0.1)
    with pytest.raises(BadInput, match="work_samples: objective time needs the number of samples"):
        over(objective="time", trial_seconds=3)
    with pytest.raises(BadInput, match="trial_seconds: objective time needs the longest time"):
        over(objective="time", work_samples=3)
    with pytest.raises(BadInput, match="trial_seconds: deadline needs the longest time"):
        over(deadline="3h")
    with pytest.raises(BadInput, match="knobs: conflict with job"):
        over(job=JOB)
    with pytest.raises(BadInput, match="goal: only for a job"):
        over(goal="time")
    with pytest.raises(BadInput, match="job: give a job, or knobs and an objective"):
        mlcd.Search()  # type: ignore[call-overload]
    with pytest.raises(BadInput, match=r"objective: is not one of the choices \(got 'maximise'\).*did you mean 'maxim"):
        over(objective="maximise")


@pytest.mark.parametrize(
    "changed", [{"work_samples": 1e300}, {"usd_per_hour": 1e15}, {"trial_seconds": 1e200}, {"trial_seconds": 4e8}]
)
def test_numbers_out_of_range_are_refused_by_name(changed: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=f"{next(iter(changed))}: is out of range"):
        throughput(**changed)


@pytest.mark.parametrize(
    "told",
    [
        {"samples_per_second": 1e-200},
        {"relative_error": 1e300},
        {"startup_seconds": math.nan},
        {"seconds": 1e12},
        {"usd": 1e9},
    ],
)
def test_numbers_out_of_range_cannot_be_told(told: dict[str, Any]) -> None:
    search = throughput()
    (first,) = search.ask()
    with pytest.raises(BadInput, match=f"tell: {next(iter(told))}: is out of range"):
        search.tell(first, **{"samples_per_second": 1, "seconds": 60, **told})
    assert search.open == (first.config,)


def test_seconds_are_needed_where_something_counts() -> None:
    search = over(trial_seconds=60, deadline="1h")
    (first,) = search.ask()
    with pytest.raises(BadInput, match="tell: seconds: must be a number"):
        search.tell(first, value=1)
    with pytest.raises(BadInput, match="tell_failure: seconds: must be a number"):
        search.tell_failure(first, kind="hang")


def test_a_failure_turns_the_search_away() -> None:
    """Everything at large fails: the model learns it from a few."""
    search = over(max_trials=16)
    failed = 0
    while suggestions := search.ask():
        for suggestion in suggestions:
            if suggestion.config.instance == "large":
                failed += 1
                search.tell_failure(suggestion, kind="job-failed")
            else:
                search.tell(suggestion, value=score(suggestion.config))
    assert search.best is not None
    assert search.best.config.as_dict() == {"instance": "small", "workers": 5, "precision": "bf16"}
    assert failed <= 8


def test_running_out_of_memory_rules_out_larger_batches() -> None:
    search = over(knobs={"batch": [1, 2, 4, 8, 16, 32], "depth": [1, 2]}, max_trials=12)
    search.tell_failure({"batch": 4, "depth": 1}, kind="out-of-memory")
    asked = []
    while suggestions := search.ask():
        asked += [s.config for s in suggestions]
        for suggestion in suggestions:
            search.tell(suggestion, value=1)
    assert sorted(c["batch"] for c in asked if c["depth"] == 1) == [1, 2]
    assert len([c for c in asked if c["depth"] == 2]) == 6


def test_mappings_and_booleans_can_be_told() -> None:
    search = over(knobs={"amp": [True, False], "x": [1, 2]})
    search.tell({"x": 2, "amp": True}, value=3)
    assert search.best == Best(config=Config((("amp", True), ("x", 2))), value=3.0)
    with pytest.raises(BadInput, match="is not one of the search's 4 configurations"):
        search.tell({"x": 3, "amp": True}, value=3)
    with pytest.raises(BadInput, match=r"allowed: a suggestion, its config, or \{'amp': ..., 'x': ...\}"):
        search.tell(3, value=3)  # type: ignore[arg-type]


# ---- throughput


@pytest.mark.parametrize("strategy", [None, "heterbo", "bayesian"])
@pytest.mark.parametrize("objective", ["time", "cost", "knee"])
def test_known_work_is_planned_and_reserved(strategy: str | None, objective: str) -> None:
    def speed(config: Config) -> float:
        base = {"small": 20.0, "large": 70.0}[config.instance] * (1.4 if config["precision"] == "bf16" else 1)
        return float(base * float(config["workers"]) ** 0.6)

    search = throughput(objective=objective, strategy=strategy, budget="20 USD", deadline="12h")
    while suggestions := search.ask():
        for suggestion in suggestions:
            search.tell(suggestion, samples_per_second=speed(suggestion.config), seconds=280, startup_seconds=30)
        best, remaining = search.best, search.remaining
        if best is not None:
            assert remaining.usd is not None
            assert remaining.seconds is not None
            assert best.worst_usd <= remaining.usd
            assert best.worst_seconds <= remaining.seconds
    best = search.best
    assert isinstance(best, Plan)
    least = min(search.problem.goal.value(1e6 / speed(c), 1e6 / speed(c) * search.problem.price(c).dollars / 3600)
                for c in search.problem.space)  # fmt: skip
    assert best.value(search.problem) < 1.25 * least
    assert len(search.history) < 20


def test_the_default_is_heterbo_for_throughput_unless_the_space_is_large() -> None:
    large = {"a": range(1, 60), "b": range(1, 60), "c": [1, 2]}
    assert "strategy" not in repr(throughput())
    assert throughput()._run.strategy == "heterbo"
    assert throughput(knobs=large, usd_per_hour=1)._run.strategy == "bayesian"
    assert over()._run.strategy == "bayesian"
    with pytest.raises(BadInput, match="strategy: heterbo takes too much memory"):
        throughput(knobs=large, usd_per_hour=1, strategy="heterbo")
    with pytest.raises(BadInput, match="strategy: heterbo predicts throughput"):
        over(strategy="heterbo")
    with pytest.raises(BadInput, match="strategy: unknown strategy 'convbo'; allowed: bayesian, heterbo, random"):
        over(strategy="convbo")
    with pytest.raises(BadInput, match="strategy: bayesian has no option"):
        over(strategy="bayesian:steps=3")


# ---- the model


@pytest.mark.parametrize("trials", [1, 2, 12])
def test_the_gradient_of_the_model_is_that_of_its_objective(trials: int) -> None:
    columns = Columns.of(space_of({"x": range(1, 9), "y": [0, 1, 5], "z": ["a", "b", "c"]}))
    rng = np.random.default_rng(trials)
    rows = rng.choice(72, size=trials, replace=False)
    seen = Observed(rows=rows, values=rng.normal(size=trials), errors=np.full(trials, 0.1))
    objective = _Objective(columns, seen, seen.values, seen.errors)
    theta = objective.mode + rng.normal(size=len(objective.mode)) * 0.3
    _, gradient = objective(theta)
    for k in range(len(theta)):
        step = np.eye(len(theta))[k] * 1e-5
        assert gradient[k] == pytest.approx((objective(theta + step)[0] - objective(theta - step)[0]) / 2e-5, abs=1e-5)


def test_the_model_fits_observations_and_is_uncertain_elsewhere() -> None:
    columns = Columns.of(space_of({"x": range(40)}))
    rows = np.array([0, 8, 16, 24, 39])
    values = np.sin(rows / 7.0) * 1e6 + 5e9
    model = fit(columns, Observed(rows=rows, values=values, errors=np.zeros(5)))
    mean, variance = model.predict(np.arange(40))
    assert np.abs(mean[rows] - values).max() < 2e5
    assert np.sqrt(variance[[4, 12, 20, 31]]).min() > np.sqrt(variance[rows]).max()
    assert model.predict(np.arange(0))[0].shape == (0,)


@pytest.mark.parametrize("name", ["branin", "pipeline"])
def test_the_default_beats_random_search_on_seeds_of_its_own(name: str) -> None:
    pairs = compared(SEEN[name], range(2000, 2006))
    assert pairs.better >= 4
    assert pairs.worse <= 1


@pytest.mark.parametrize("name", ["serving", "options only"])
def test_the_default_beats_random_search_on_functions_that_were_held_out(name: str) -> None:
    pairs = compared(HELD_OUT[name], range(2000, 2006))
    assert pairs.better >= 4
    assert pairs.worse <= 1


# ---- its state


def random_steps(search: "mlcd.Search[Any]", chance: random.Random, steps: int) -> list[Any]:
    """Asks, tells and fails at random; every answer in turn."""
    answers: list[Any] = []
    for _ in range(steps):
        if chance.random() < 0.6 or not search.open:
            answers.append(search.ask(chance.randint(1, 3)))
            continue
        config = chance.choice(search.open)
        seconds = chance.uniform(1, 300)
        if chance.random() < 0.25:
            search.tell_failure(config, kind=chance.choice(["lost", "out-of-memory", "no-capacity"]), seconds=seconds)
        elif search.best is None or isinstance(search.best, Plan):
            number = {"samples_per_second": chance.uniform(1, 1e3)}
            if not search.problem.work_samples > 1:
                number = {"value": chance.uniform(-9, 9)}
            search.tell(config, seconds=seconds, **number)
        else:
            search.tell(config, seconds=seconds, value=chance.uniform(-9, 9))
        answers.append((search.best, search.remaining, search.open))
    return answers


MADE: dict[str, Callable[[int], "mlcd.Search[Any]"]] = {
    "job": lambda seed: mlcd.Search(JOB, seed=seed),
    "bayesian": lambda seed: over(
        seed=seed, usd_per_hour={"small": 1, "large": 3}, trial_seconds=300, budget=4, deadline="3h"
    ),
    "random": lambda seed: over(seed=seed, strategy="random", where=lambda c: c["workers"] != 3),
    "throughput": lambda seed: throughput(seed=seed, budget="50 USD"),
}


@pytest.mark.parametrize("name", MADE)
@given(seed=st.integers(0, 2**32), before=st.integers(0, 14))
@settings(max_examples=6, deadline=None)
def test_a_loaded_search_answers_as_the_one_that_was_saved(
    tmp_path_factory: pytest.TempPathFactory, name: str, seed: int, before: int
) -> None:
    path = tmp_path_factory.mktemp("saved") / "search.json"
    search = MADE[name](seed)
    random_steps(search, random.Random(seed), before)
    assert search.save(path) == path
    again: mlcd.Search[Any] = mlcd.Search.load(path)
    assert (again.open, again.history, again.best, again.remaining) == (
        search.open,
        search.history,
        search.best,
        search.remaining,
    )
    assert repr(again) == repr(search)
    waiting, answer = set(again.open), again.ask(2)
    assert answer == search.ask(2)
    assert not waiting & {suggestion.config for suggestion in answer}
    assert random_steps(again, random.Random(seed + 1), 6) == random_steps(search, random.Random(seed + 1), 6)
    assert list(path.parent.iterdir()) == [path]


def test_a_clock_continues_where_it_was_saved(tmp_path: Path) -> None:
    now = [100.0]
    search = over(trial_seconds=60, deadline="1h", clock=lambda: now[0])
    (first,) = search.ask()
    now[0] += 1000
    search.tell(first, value=1, seconds=50)
    search.save(tmp_path / "a")
    with pytest.raises(BadInput, match="clock: this search runs on a clock"):
        mlcd.Search.load(tmp_path / "a")
    again: mlcd.Search[Any] = mlcd.Search.load(tmp_path / "a", clock=lambda: now[0] - 7e6)
    assert again.remaining == search.remaining
    assert again.remaining.seconds == 2600
    now[0] += 600
    assert again.remaining.seconds == 2000


def saved(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    search = over(usd_per_hour=1, trial_seconds=60, budget=5)
    for suggestion in search.ask(3)[:2]:
        search.tell(suggestion, value=score(suggestion.config), seconds=50)
    path = search.save(tmp_path / "search.json")
    return path, json.loads(path.read_text())


def at(data: Any, path: str) -> tuple[Any, Any]:
    *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    for part in way:
        data = data[part]
    return data, last


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("steps.0.number", 2),
        ("steps.0.number", "x"),
        ("steps.0.role", "training"),
        ("steps.0.role", "walk"),
        ("steps.0.started_seconds", "nan"),
        ("steps.0.started_seconds", -1),
        ("steps.0.authorisation.seconds", "inf"),
        ("steps.0.authorisation.usd", -5),
        ("steps.0.authorisation.choice", {"config": {"instance": "huge", "workers": 1, "precision": "fp32"}}),
        ("steps.0.authorisation.choice", {"config": {"instance": ["small"], "workers": 1, "precision": "fp32"}}),
        ("steps.0.authorisation.choice", {"fleet": {"functions": 1, "memory_mb": 1}}),
        ("steps.0.outcome.measurement.samples_per_second", -1),
        ("steps.0.outcome.measurement.seconds", "nan"),
        ("steps.0.outcome.measurement.learned", []),
        ("steps.0.outcome.measurement.learned.0.metric", "nan"),
        ("steps.0.outcome.measurement.config.workers", 8.5),
        ("steps.0.outcome", {"attempt": {}}),
        ("steps", 5),
        ("steps", None),
        ("problem", []),
        ("problem.max_trials", 0),
        ("problem.noise", 7),
        ("problem.usd_per_hour", [1]),
        ("problem.usd_per_hour.0", -1),
        ("problem.trial.seconds", "inf"),
        ("problem.trial.extension", "nan"),
        ("problem.space.configs", []),
        ("problem.space.configs.0", [1]),
        ("problem.space.configs.0.0", {"a": 1}),
        ("problem.space.knobs.0.values", [[1], [2]]),
        ("problem.space.knobs.1.values.0", math.inf),
        ("problem.space.knobs.0.features.0", ["nan", 0]),
        ("problem.space.knobs.0.name", "nodes"),
        ("problem.verify_seconds", None),
        ("problem.verify_seconds", 5),
        ("problem.work_known", False),
        ("problem.stretch", [1.0] * 32),
        ("problem.target", {"metric": "a", "value": 1}),
        ("problem.goal.rate", 5),
        ("problem.usd_per_hour.0", 10**30),
        ("problem.trial.extension", 1e308),
        ("problem.work_samples", 1e308),
        ("problem.goal.budget", 10**400),
        ("steps.0.outcome.measurement.relative_error", 1e308),
        ("steps.0.outcome.measurement.startup_seconds", "nan"),
        ("problem.goal.deadline_seconds", "nan"),
        ("problem.goal.minimize", "fun"),
        ("problem.goal.budget", "much"),
        ("objective", "pleasure"),
        ("header.strategy", "os.system"),
        ("header.strategy", "python:os:system"),
        ("header.strategy", 5),
        ("header.seed", -1),
        ("header.kind", "serve"),
        ("clock_seconds", "nan"),
        ("format", 2),
        ("format", "1"),
        ("format", True),
    ],
)
def test_a_file_that_was_changed_is_refused(tmp_path: Path, path: str, value: Any) -> None:
    file, data = saved(tmp_path)
    inside, last = at(data, path)
    inside[last] = value
    file.write_text(json.dumps(data))
    with pytest.raises(BadInput):
        mlcd.Search.load(file)


@pytest.mark.parametrize("missing", ["format", "header", "problem", "steps", "objective", "counts_money"])
def test_a_file_that_lacks_a_field_is_refused_by_its_name(tmp_path: Path, missing: str) -> None:
    file, data = saved(tmp_path)
    del data[missing]
    file.write_text(json.dumps(data))
    with pytest.raises(BadInput, match=rf"search\.json: is not a saved search.*{missing}"):
        mlcd.Search.load(file)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"null", b"[]", b"3", b"\xff\xfe", b"[" * 100_000, b'{"format":' + b"9" * 5000 + b"}", b"\x80\x04."],
    ids=lambda content: repr(content[:12]),
)
def test_a_file_that_is_no_search_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "search.json"
    file.write_bytes(content)
    with pytest.raises(BadInput, match=r"search\.json: "):
        mlcd.Search.load(file)


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    file, _ = saved(tmp_path)
    whole = file.read_bytes()
    for end in range(0, len(whole.rstrip()), 97):
        file.write_bytes(whole[:end])
        with pytest.raises(BadInput, match="damaged"):
            mlcd.Search.load(file)


def test_a_file_that_is_too_large_or_not_there_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "search.json"
    with pytest.raises(BadInput, match="cannot be read"):
        mlcd.Search.load(file)
    with pytest.raises(BadInput, match="cannot be read"):
        mlcd.Search.load(tmp_path)
    with file.open("wb") as stream:
        stream.truncate(MAX_FILE_BYTES + 1)  # sparse: it takes no room
    with pytest.raises(BadInput, match="too large for a saved search"):
        mlcd.Search.load(file)
    for wrong in (None, 3, b"x"):
        with pytest.raises(BadInput, match="path: must be a path"):
            mlcd.Search.load(wrong)  # type: ignore[arg-type]
        with pytest.raises(BadInput, match="path: must be a path"):
            over().save(wrong)  # type: ignore[arg-type]


def test_a_search_that_cannot_be_written_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, data = saved(tmp_path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        over().save(file)
    assert json.loads(file.read_text()) == data
    assert list(tmp_path.iterdir()) == [file]


def test_unknown_keys_are_ignored_and_names_survive(tmp_path: Path) -> None:
    search = over(knobs={'<b>"é': ["a\nb", "inf", "nan"], "x": [0.1, 1e-300]})
    (first,) = search.ask()
    search.tell(first, value=0.1 + 0.2)
    file = search.save(tmp_path / "a")
    data = json.loads(file.read_text())
    file.write_text(json.dumps({**data, "later": [1]}))
    again: mlcd.Search[Any] = mlcd.Search.load(file)
    assert to_json(again.problem) == to_json(search.problem)
    assert again.best == search.best == Best(config=first.config, value=0.1 + 0.2)


# ---- how it looks


def test_repr_describes_the_search() -> None:
    search = over(max_trials=9)
    assert repr(search) == (
        "<Search search: maximize, 32 configurations of instance, workers, precision; "
        "0 of 9 trials told, 0 open; best: none yet>"
    )
    first, _ = search.ask(2)
    search.tell(first, value=2.5)
    assert repr(search).endswith(f"1 of 9 trials told, 1 open; best: {first.config} (2.5)>")
    job = repr(mlcd.Search(JOB))
    assert job.startswith("<Search own: fastest within 8 h for at most $30.00, 16 configurations of instance, nodes; ")


def test_a_notebook_shows_a_table_without_running_what_is_in_it() -> None:
    search = over(knobs={"<script>": ["<img src=x>", "b"]})
    (first,) = search.ask()
    search.tell_failure(first, kind="hang", message="<i>")
    search.ask()
    html = search._repr_html_()
    assert "<script>" not in html
    assert "<img" not in html
    assert html.count("<tr>") == 3
    assert "<td>hang</td>" in html
    assert "<td>open</td>" in html
    assert "<table>" not in over()._repr_html_()


def test_a_frame_has_a_row_per_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    search = throughput()
    (first,) = search.ask()
    search.tell(first, samples_per_second=50, seconds=3600)
    search.ask()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match=r"to_frame\(\) needs the extra 'frame' \(pandas not installed\): \S+"):
        search.to_frame()
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=lambda rows: rows, __spec__=object()))
    rows: list[Mapping[str, Any]] = search.to_frame()
    assert [row["state"] for row in rows] == ["measured", "open"]
    assert rows[0]["config.workers"] == first.config["workers"]
    assert (rows[0]["samples_per_second"], rows[0]["seconds"]) == (50.0, 3600.0)
    assert rows[0]["usd"] == search.problem.price(first.config).dollars
    assert rows[1]["seconds"] is None
    assert [list(row) for row in rows] == [list(rows[0])] * 2
    numbers = count(1)
    assert all(row["number"] == next(numbers) for row in rows)
    own = over()
    own.tell(own.ask()[0], value=-3)
    (row,) = own.to_frame()
    assert row["value"] == -3
    assert "usd" not in row
