"""Every strategy, and the options that change how it searches, against the one contract."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.contract.strategy_contract import StrategyContract, all_answers, problem_for, walk
from tests.synthetic import make_problem

from mlcd.search.registry import STRATEGIES, strategy
from mlcd.trial.plan import Left


class TestHeterBO(StrategyContract):
    @pytest.fixture(
        params=[
            "heterbo",
            "heterbo:start=all",
            "heterbo:acquisition=tei",
            "heterbo:acquisition=tei-literal",
            "heterbo:prune=off,gate=off",
            "heterbo:acquisition=net,start=2,price=off",
            "heterbo:acquisition=pandora",
            "heterbo:reserve=off",
        ]
    )
    def text(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)


class TestConvBO(StrategyContract):
    @pytest.fixture(params=["convbo", "convbo:acquisition=ucb", "convbo:acquisition=poi", "convbo:target=speed"])
    def text(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)


class TestConvBOBudget(StrategyContract):
    @pytest.fixture
    def text(self) -> str:
        return "convbo-budget"


class TestCherryPick(StrategyContract):
    @pytest.fixture(params=["cherrypick", "cherrypick:types=c5.*"])
    def text(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)


class TestCherryPickBudget(StrategyContract):
    @pytest.fixture
    def text(self) -> str:
        return "cherrypick-budget"


class TestRandom(StrategyContract):
    @pytest.fixture(params=["random", "random:steps=3"])
    def text(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)


class TestExhaustive(StrategyContract):
    @pytest.fixture(params=["exhaustive", "exhaustive:points=7"])
    def text(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)


class TestPaleo(StrategyContract):
    @pytest.fixture
    def text(self) -> str:
        return "paleo"


class TestScavengerPartial(StrategyContract):
    @pytest.fixture(params=["scavenger-partial", "scavenger-partial:more=0,confirm=1"])
    def text(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)


class TestScavengerFull(StrategyContract):
    @pytest.fixture
    def text(self) -> str:
        return "scavenger-full"


class TestScavengerUniversal(StrategyContract):
    @pytest.fixture
    def text(self) -> str:
        return "scavenger-universal"


class TestScavengerGoodput(StrategyContract):
    @pytest.fixture
    def text(self) -> str:
        return "scavenger-goodput"


def test_every_strategy_has_the_contract() -> None:
    tested = {cls.__name__.removeprefix("Test").lower() for cls in StrategyContract.__subclasses__()}
    assert tested == {name.replace("-", "") for name in STRATEGIES}


@pytest.mark.parametrize(("text", "trials"), [("random:steps=3", 3), ("exhaustive:points=7", 7), ("exhaustive", 24)])
def test_a_stated_number_of_trials_is_made(text: str, trials: int) -> None:
    last = list(walk(strategy(text), make_problem(), count=2))[-1]
    assert len(last.history) == trials


def test_types_excluded_by_experience_are_never_tried() -> None:
    for step in walk(strategy("cherrypick:types=c5.b*+p2.*"), make_problem()):
        assert all(s.config.instance in ("c5.big", "p2.one") for s in step.answer)


def test_the_seed_matters_where_chance_does() -> None:
    def path(seed: int) -> list[tuple[str, ...]]:
        return all_answers(list(walk(strategy("random", seed=seed), make_problem())))

    assert path(1) != path(2)


@pytest.mark.parametrize("name", ["convbo", "cherrypick"])
def test_a_budgeted_rival_wants_the_same_and_ends_when_it_is_refused(name: str) -> None:
    problem = problem_for("fastest")
    plain, kept = strategy(name, seed=1), strategy(f"{name}-budget", seed=1)
    step = next(s for s in walk(plain, problem) if len(s.history) == 4)
    assert step.answer
    everything = np.ones(len(problem.space), dtype=bool)
    assert kept.suggest(problem, step.history, Left(usd=None, seconds=None, allowed=everything), 1) == step.answer
    refused = everything.copy()
    refused[problem.space.index[step.answer[0].config]] = False
    assert kept.suggest(problem, step.history, Left(usd=None, seconds=None, allowed=refused), 1) == ()


_ASK = """
from mlcd.search.registry import STRATEGIES
from tests.contract.strategy_contract import all_answers, fresh_problem, strategy_of, walk
for name in STRATEGIES:
    problem = fresh_problem(name, "both", counts=(1, 2, 3, 4, 6, 8, 12, 16))
    print(name, all_answers(list(walk(strategy_of(name, 3), problem, count=2))))
"""


def test_answers_are_the_same_in_any_process() -> None:
    """Python shuffles the order of sets from process to process; no answer may depend on it."""
    root = Path(__file__).resolve().parents[2]

    def ask(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(root)}
        done = subprocess.run(
            [sys.executable, "-c", _ASK], env=environment, cwd=root, capture_output=True, text=True, check=True
        )
        return done.stdout

    first = ask("1")
    assert first.count("\n") == len(STRATEGIES)
    assert ask("2") == first
