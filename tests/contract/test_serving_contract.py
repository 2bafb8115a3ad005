"""What every strategy for serving promises, over a made-up GPU with models, latency limits and memory that runs out."""

import builtins
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from tests.serving_world import world
from tests.unmeasured import UNMEASURED

from mlcd.bench.serve.case import Bed, Case
from mlcd.errors import BadInput
from mlcd.goal import Goal, Objective, Slo
from mlcd.problem import Problem
from mlcd.search.registry import SERVING, strategy
from mlcd.search.strategy import Strategy
from mlcd.trial.plan import Remaining
from mlcd.trial.trial import Failure, FailureKind, History, Suggestion
from mlcd.units import Usd

TARGET = "bert-base"
NAMES = sorted(SERVING)
MADE = 8


@cache
def bed() -> Bed:
    return Bed(name="made up", known=world(), targets=(TARGET,))


@cache
def sources() -> object:
    return bed().sources(TARGET)


@cache
def case(slo_ms: float = 3.0) -> Case:
    found = Case.of(bed(), TARGET, slo_ms / 1000, noise=0.01, max_trials=MADE)
    assert found is not None
    return found


def make(name: str, seed: int = 1) -> Strategy:
    return strategy(name, seed=seed, known=sources(), target=bed().model(TARGET).target)  # type: ignore[arg-type]


def walk(chosen: Strategy, problem: Problem, *, count: int = 1) -> Iterator[tuple[History, tuple[Suggestion, ...]]]:
    history, remaining = History(), everything()
    for _ in range(MADE + 1):
        answer = chosen.suggest(problem, history, remaining, count)
        yield history, answer
        if not answer:
            return
        history = history.with_trials(*(case().trial(s.config, 1) for s in answer))
    pytest.fail(f"{chosen.name} did not come to an end")


def everything() -> Remaining:
    allowed = np.ones(len(case().problem.space), dtype=bool)
    allowed.flags.writeable = False
    return Remaining(usd=None, seconds=None, allowed=allowed)


GOALS = {
    "cheap": case().problem.goal,
    "fast": Goal(minimize=Objective.TIME, slo=Slo(seconds=0.003, percentile=99)),
    "rate": Goal(minimize=Objective.COST, rate=3000.0, slo=Slo(seconds=0.01, percentile=95)),
    "free": Goal(minimize=Objective.COST),
    "hopeless": Goal(minimize=Objective.COST, slo=Slo(seconds=1e-6)),
}


@cache
def problem_for(goal: str) -> Problem:
    base = case().problem
    return Problem(
        name=base.name,
        work_samples=base.work_samples,
        space=base.space,
        goal=GOALS[goal],
        usd_per_hour=base.usd_per_hour,
        trial=base.trial,
        max_trials=MADE,
        verify_seconds=60.0,
    )


@pytest.mark.parametrize("goal", GOALS)
@pytest.mark.parametrize("name", NAMES)
def test_stays_inside_the_space_repeats_nothing_and_ends(name: str, goal: str) -> None:
    problem, chosen = problem_for(goal), make(name)
    for history, answer in walk(chosen, problem, count=3):
        configs = [s.config for s in answer]
        assert len(set(configs)) == len(configs) <= 3
        assert not set(configs) & history.tried
        assert all(config in problem.space for config in configs)
        assert all(s.reason.strip() for s in answer)
    assert len(history) <= MADE
    assert chosen.ending(problem, history, everything()).strip(" .")
    assert chosen.suggest(problem, history, everything(), 1) == ()


@pytest.mark.parametrize("name", NAMES)
def test_never_suggests_what_the_ledger_refuses(name: str) -> None:
    problem, chosen = problem_for("cheap"), make(name)
    rng = np.random.default_rng(7)
    history = History()
    for turn in range(5):
        mask = rng.random(len(problem.space)) < 0.2
        answer = chosen.suggest(problem, history, Remaining(usd=None, seconds=None, allowed=mask), 1 + turn % 3)
        assert all(mask[problem.space.index[s.config]] for s in answer)
        history = history.with_trials(*(case().trial(s.config, 1) for s in answer))
    nothing = Remaining(usd=Usd(0), seconds=0.0, allowed=np.zeros(len(problem.space), dtype=bool))
    assert chosen.suggest(problem, history, nothing, 2) == ()


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_does_not_depend_on_what_was_asked_before(name: str) -> None:
    asked = list(walk(make(name), problem_for("cheap")))
    for history, answer in reversed(asked):
        assert make(name).suggest(problem_for("cheap"), history, everything(), 1) == answer


@pytest.mark.parametrize("name", NAMES)
def test_is_pure(name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    problem, chosen = problem_for("cheap"), make(name)
    history = list(walk(chosen, problem))[2][0]

    def forbidden(*args: object, **kwargs: object) -> object:
        raise AssertionError("a strategy reads no clock, no file and no environment")

    for clock in ("time", "monotonic", "perf_counter", "time_ns", "sleep"):
        monkeypatch.setattr(time, clock, forbidden)
    monkeypatch.setattr(builtins, "open", forbidden)
    monkeypatch.setattr(os, "getenv", forbidden)
    chosen.suggest(problem, history, everything(), 2)
    chosen.recommend(problem, history, everything())
    monkeypatch.undo()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("kind", [FailureKind.OUT_OF_MEMORY, FailureKind.ERROR, FailureKind.HANG])
@pytest.mark.parametrize("name", NAMES)
def test_survives_trials_that_all_fail(name: str, kind: FailureKind) -> None:
    problem, chosen, history = problem_for("cheap"), make(name), History()
    for _ in range(MADE):
        answer = chosen.suggest(problem, history, everything(), 1)
        if not answer:
            break
        failure = Failure(config=answer[0].config, attempt=1, kind=kind, message="", seconds=1.0, usd=Usd(1))
        assert answer[0].config not in history.tried
        history = history.with_trials(failure)
    assert len(history) >= 1
    assert chosen.recommend(problem, history, everything()) is None


@pytest.mark.parametrize("name", NAMES)
def test_recommends_only_what_was_measured_and_kept_the_limits(name: str) -> None:
    problem, chosen = problem_for("cheap"), make(name)
    for history, _ in walk(chosen, problem):
        plan = chosen.recommend(problem, history, everything())
        kept = {trial.config for trial in history.measured if trial.meets(problem.goal)}
        assert (plan is None) == (not kept)
        assert plan is None or plan.config in kept


@pytest.mark.parametrize("name", sorted({"falcon", "falcon-transfer", "source-mean"} & set(NAMES)))
def test_a_strategy_that_needs_other_models_is_refused_without_them(name: str) -> None:
    with pytest.raises(BadInput, match=rf"search\.strategy: {name} needs .*`mlcd serve`.*heterbo"):
        strategy(name)


@pytest.mark.parametrize("name", ["falcon", "falcon-transfer"])
def test_fields_passed_by_mlcd_are_not_options(name: str) -> None:
    with pytest.raises(BadInput, match=f"{name} has no option 'known=x'"):
        make(f"{name}:known=x")


_ASK = """
from tests.contract.test_serving_contract import *
for name in NAMES:
    print(name, [[str(s.config) for s in answer] for _, answer in walk(make(name), problem_for("cheap"), count=2)])
"""


def test_answers_are_the_same_in_any_process() -> None:
    root = Path(__file__).resolve().parents[2]

    def ask(hash_seed: str) -> str:
        environment = {**os.environ, **UNMEASURED, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(root)}
        done = subprocess.run(
            [sys.executable, "-c", _ASK], env=environment, cwd=root, capture_output=True, text=True, check=True
        )
        return done.stdout

    first = ask("1")
    assert first.count("\n") == len(NAMES)
    assert ask("2") == first
