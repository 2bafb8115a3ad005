"""The contract of every strategy (mlcd.search.strategy.Strategy)."""

import builtins
import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np
import pytest

from mlcd.goal import Goal, Objective
from mlcd.ledger import Ledger
from mlcd.problem import Problem
from mlcd.search.registry import strategy
from mlcd.search.strategy import Strategy
from mlcd.space import Config
from mlcd.testing.made import MACHINES, batched, failed, make_problem, true_trial, with_settings
from mlcd.trial.plan import Plan, Remaining, plans, tie
from mlcd.trial.trial import FailureKind, History, Suggestion, Trial
from mlcd.units import Usd

GOALS = {
    "fastest": Goal(minimize=Objective.TIME),
    "cheapest": Goal(minimize=Objective.COST),
    "knee": Goal(minimize=Objective.KNEE),
    "deadline": Goal(minimize=Objective.COST, deadline_seconds=6 * 3600),
    "budget": Goal(minimize=Objective.TIME, budget=Usd.of(12)),
    "both": Goal(minimize=Objective.TIME, budget=Usd.of(14), deadline_seconds=8 * 3600),
    "tight": Goal(minimize=Objective.COST, budget=Usd.of(8), deadline_seconds=7 * 3600),
    "hopeless": Goal(minimize=Objective.TIME, budget=Usd.of("0.5"), deadline_seconds=3600),
}

COUNTS = (1, 2, 4, 8, 16)


def fresh_problem(
    goal: str, *, batches: bool = False, settings: bool = False, counts: tuple[int, ...] = COUNTS
) -> Problem:
    """Three synthetic instance types under one of GOALS; with a global batch, or with settings, to choose."""
    problem = make_problem(goal=GOALS[goal], counts=counts)
    if settings:
        return with_settings(problem)
    return batched(problem) if batches else problem


@cache
def known_problem(goal: str, *, batches: bool = False, settings: bool = False) -> Problem:
    """The same object each time, so that fits of equal histories are cached across tests."""
    return fresh_problem(goal, batches=batches, settings=settings, counts=(1, 4, 16) if settings else COUNTS)


Outcome = Callable[[Problem, Config, int], Trial]


def succeeds(problem: Problem, config: Config, attempt: int) -> Trial:
    """Every trial measures the speed of the synthetic machines."""
    return true_trial(problem, config, attempt=attempt)


def fails_as(kind: FailureKind) -> Outcome:
    """Every trial fails in this way."""
    return lambda problem, config, attempt: failed(problem, config, kind, attempt=attempt)


def fails_now_and_then(problem: Problem, config: Config, attempt: int) -> Trial:
    """Two of five trials fail, with any kind of failure."""
    chance = random.Random(f"{config}|{attempt}")
    if chance.random() < 0.4:
        return failed(problem, config, chance.choice(list(FailureKind)), attempt=attempt)
    return true_trial(problem, config, attempt=attempt)


@dataclass(frozen=True, kw_only=True)
class SearchStep:
    """One question to a strategy and its answer."""

    history: History
    remaining: Remaining
    answer: tuple[Suggestion, ...]


def ledger_of(problem: Problem, history: History, *, guarded: bool) -> Ledger:
    """The account after these trials, run one after the other."""
    return Ledger(
        problem=problem,
        history=history,
        spent=Usd(sum(t.usd.micros for t in history)),
        elapsed_seconds=sum(t.seconds for t in history),
        guarded=guarded,
    )


def walk(chosen: Strategy, problem: Problem, *, outcome: Outcome = succeeds, count: int = 1) -> Iterator[SearchStep]:
    """The strategy's answers until it is done; fails if it takes more turns than there are configurations."""
    history = History()
    for _ in range(len(problem.space) + 2):
        remaining = ledger_of(problem, history, guarded=chosen.guarded).remaining()
        remaining.allowed.flags.writeable = False
        answer = chosen.suggest(problem, history, remaining, count)
        yield SearchStep(history=history, remaining=remaining, answer=answer)
        if not answer:
            return
        started = 0
        for suggestion in answer:
            ledger = ledger_of(problem, history, guarded=chosen.guarded)
            if ledger.remaining().allowed[problem.space.index[suggestion.config]]:
                history = history.with_trials(outcome(problem, suggestion.config, 1))
                started += 1
        if not started:
            return
    pytest.fail(f"{chosen.name} did not finish")


def all_answers(steps: list[SearchStep]) -> list[tuple[str, ...]]:
    """What was suggested at each step."""
    return [tuple(str(s.config) for s in step.answer) for step in steps]


class StrategyContract:
    """Each test holds for every strategy and every set of options.

    text                 fixture: the strategy as a user writes it, `NAME[:OPTION=VALUE,...]`
    make                 makes the strategy from `text` and a seed; override it for a strategy without a name
    chooses_batch        whether its problems have a batch to choose
    has_settings         whether its problems have knobs of the script to choose
    needs_trials         False for a strategy that recommends configurations that were never measured
    knee_by_product      False for a strategy whose knee is not the smallest product of time and cost
    """

    chooses_batch: ClassVar[bool] = False
    has_settings: ClassVar[bool] = False
    needs_trials: ClassVar[bool] = True
    knee_by_product: ClassVar[bool] = True

    @pytest.fixture
    def text(self) -> str:
        raise NotImplementedError

    def make(self, text: str, seed: int = 0) -> Strategy:
        return strategy(text, seed=seed)

    def fresh(self, goal: str) -> Problem:
        counts = (1, 4, 16) if self.has_settings else COUNTS
        return fresh_problem(goal, batches=self.chooses_batch, settings=self.has_settings, counts=counts)

    def known(self, goal: str) -> Problem:
        return known_problem(goal, batches=self.chooses_batch, settings=self.has_settings)

    @pytest.fixture(params=["fastest", "knee", "both", "budget", "hopeless"])
    def problem(self, request: pytest.FixtureRequest) -> Problem:
        return self.known(request.param)

    def test_describes_itself(self, text: str) -> None:
        chosen = self.make(text)
        assert chosen.name.strip() == chosen.name != ""
        assert isinstance(chosen.guarded, bool)

    @pytest.mark.parametrize("count", [1, 3])
    def test_stays_inside_the_space_repeats_nothing_and_ends(self, text: str, problem: Problem, count: int) -> None:
        chosen = self.make(text, 1)
        steps = list(walk(chosen, problem, count=count))
        assert not steps[-1].answer or not ledger_of(problem, steps[-1].history, guarded=True).remaining().allowed.all()
        for step in steps:
            configs = [s.config for s in step.answer]
            assert len(configs) <= count
            assert len(set(configs)) == len(configs)
            for suggestion in step.answer:
                assert suggestion.config in problem.space
                assert suggestion.config not in step.history.tried
                assert suggestion.reason.strip()

    def test_never_suggests_what_the_ledger_refuses(self, text: str, problem: Problem) -> None:
        chosen = self.make(text, 1)
        if not chosen.guarded:
            pytest.skip("ignores limits")
        rng = np.random.default_rng(7)
        history = History()
        for turn in range(8):
            remaining = ledger_of(problem, history, guarded=True).remaining()
            mask = remaining.allowed & (rng.random(len(problem.space)) < 0.4)
            narrowed = Remaining(usd=remaining.usd, seconds=remaining.seconds, allowed=mask)
            answer = chosen.suggest(problem, history, narrowed, 1 + turn % 4)
            assert all(mask[problem.space.index[s.config]] for s in answer)
            free = np.flatnonzero(remaining.allowed & ~np.isin(np.arange(len(mask)), _rows(problem, history)))
            if not len(free):
                return
            history = history.with_trials(true_trial(problem, problem.space.configs[int(rng.choice(free))]))

    def test_nothing_allowed_means_done(self, text: str, problem: Problem) -> None:
        chosen = self.make(text)
        for history in (History(), _some_history(problem)):
            none = Remaining(usd=Usd(0), seconds=0.0, allowed=np.zeros(len(problem.space), dtype=bool))
            if chosen.guarded:
                assert chosen.suggest(problem, history, none, 2) == ()

    def test_the_same_question_gets_the_same_answer(self, text: str) -> None:
        def ask() -> list[tuple[str, ...]]:
            return all_answers(list(walk(self.make(text, 1), self.fresh("both"), count=2)))

        random.seed(1)
        np.random.seed(1)
        first = ask()
        random.seed(2)
        np.random.seed(2)
        states = random.getstate(), _global_state()
        assert ask() == first
        assert states == (random.getstate(), _global_state())

    def test_an_answer_does_not_depend_on_what_was_asked_before(self, text: str) -> None:
        problem = self.known("budget")
        asked_in_order = list(walk(self.make(text, 1), problem))
        again = self.fresh("budget")
        for step in reversed(asked_in_order):
            assert self.make(text, 1).suggest(again, step.history, step.remaining, 1) == step.answer

    def test_is_pure(self, text: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        list(walk(self.make(text, 1), self.known("both")))  # triggers late imports
        problem = self.fresh("both")
        chosen = self.make(text)
        history = _some_history(problem)
        before = history.trials
        remaining = ledger_of(problem, history, guarded=chosen.guarded).remaining()
        remaining.allowed.flags.writeable = False

        def forbidden(*args: object, **kwargs: object) -> object:
            raise AssertionError("a strategy reads no clock, no file and no environment")

        for clock in ("time", "monotonic", "perf_counter", "time_ns", "sleep"):
            monkeypatch.setattr(time, clock, forbidden)
        monkeypatch.setattr(builtins, "open", forbidden)
        monkeypatch.setattr(os, "open", forbidden)
        monkeypatch.setattr(os, "getenv", forbidden)
        chosen.suggest(problem, history, remaining, 2)
        chosen.recommend(problem, history, remaining)
        monkeypatch.undo()
        assert history.trials is before
        assert history == _some_history(problem)
        assert capfd.readouterr() == ("", "")

    @pytest.mark.parametrize("kind", list(FailureKind))
    def test_survives_trials_that_all_fail(self, text: str, kind: FailureKind) -> None:
        problem = self.known("both")
        chosen = self.make(text, 1)
        steps = list(walk(chosen, problem, outcome=fails_as(kind), count=2))
        last = steps[-1]
        if self.needs_trials:
            assert len(last.history) >= 1
            assert chosen.recommend(problem, last.history, last.remaining) is None

    def test_survives_failures_among_successes(self, text: str, problem: Problem) -> None:
        for step in walk(self.make(text, 1), problem, outcome=fails_now_and_then, count=2):
            assert not {s.config for s in step.answer} & step.history.tried

    def test_an_empty_answer_means_done(self, text: str, problem: Problem) -> None:
        last = list(walk(self.make(text, 1), problem))[-1]
        if not last.answer:
            for count in (1, 4):
                assert self.make(text, 1).suggest(problem, last.history, last.remaining, count) == ()
            assert self.make(text, 1).ending(problem, last.history, last.remaining).strip(" .")

    def test_recommends_what_was_measured_and_fits(self, text: str, problem: Problem) -> None:
        chosen = self.make(text, 1)
        for step in walk(chosen, problem):
            plan = chosen.recommend(problem, step.history, step.remaining)
            if not self.needs_trials:
                assert plan is None or step.remaining.fits(plan)
                continue
            fitting = [p for p in plans(problem, step.history) if step.remaining.fits(p)]
            assert (plan is None) == (not fitting)
            if plan is not None:
                assert plan in fitting
                if self.knee_by_product or problem.goal.minimize is not Objective.KNEE:
                    assert plan.value(problem) <= min(p.value(problem) for p in fitting) * (1 + tie(problem))
                _check_guarantee(chosen, problem, step, plan)

    def test_works_with_a_space_of_one_configuration(self, text: str) -> None:
        problem = make_problem(machines={"c5.small": MACHINES["c5.small"]}, counts=(1,), sizes=False)
        problem = batched(problem, (64,)) if self.chooses_batch else problem
        steps = list(walk(self.make(text), problem, count=3))
        assert len(steps[-1].history) <= 1


def _check_guarantee(chosen: Strategy, problem: Problem, step: SearchStep, plan: Plan) -> None:
    if not chosen.guarded:
        return
    ledger = ledger_of(problem, step.history, guarded=True)
    if problem.goal.budget is not None:
        assert ledger.spent + plan.worst_usd <= problem.goal.budget
    if problem.goal.deadline_seconds is not None:
        assert ledger.elapsed_seconds + plan.worst_seconds <= problem.goal.deadline_seconds + 1e-6


def _global_state() -> tuple[object, str]:
    return random.getstate(), repr(np.random.get_state(legacy=True))


def _rows(problem: Problem, history: History) -> list[int]:
    return [problem.space.index[config] for config in history.tried]


def _some_history(problem: Problem) -> History:
    configs = problem.space.configs
    picks = [configs[0], configs[2], configs[6], configs[11]]
    return History(
        (*(true_trial(problem, config) for config in picks), failed(problem, configs[10], FailureKind.OUT_OF_MEMORY))
    )
