"""Every strategy, with the options that change how it searches, passes the contract."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from tests.unmeasured import UNMEASURED

from mlcd.known.measured_jobs import MeasuredJob
from mlcd.models.parallel import ClusterSetting, Law, StepTime, fit
from mlcd.models.universal import KnownJob
from mlcd.search.registry import STRATEGIES, strategy
from mlcd.search.strategy import Strategy
from mlcd.testing import StrategyContract
from mlcd.testing.made import make_problem
from mlcd.testing.strategies import all_answers, known_problem, walk
from mlcd.trial.plan import Remaining


@cache
def earlier_jobs() -> tuple[KnownJob, ...]:
    """What scavenger-universal uses: another job on such machines."""
    runs = [
        StepTime(setting=ClusterSetting(workers=k, batch=b), seconds=0.05 + 0.09 * b / k + 0.02 * (k - 1))
        for k in (1, 2, 4, 8)
        for b in (64.0, 256.0)
    ]
    return (KnownJob(largest_local_batch=256, parallel=fit(runs, Law.OVERLAP)),)


@cache
def other_jobs() -> tuple[MeasuredJob, ...]:
    """What paris uses: jobs on the same deployments, each with a taste for a type."""
    space = known_problem("fastest").space
    return tuple(
        MeasuredJob(name=f"job-{at}", speeds={c: c.nodes**0.8 * (1 + at * (c.instance == taste)) for c in space})
        for at, taste in enumerate(sorted({c.instance for c in space}) * 2)
    )


def strategy_of(text: str, seed: int = 0) -> Strategy:
    """As the product makes it."""
    jobs = earlier_jobs() if text.startswith("scavenger-universal") else ()
    return strategy(text, seed=seed, jobs=jobs, others=other_jobs())


class TestHeterBO(StrategyContract):
    @pytest.fixture(
        params=[
            "heterbo",
            "heterbo:start=all",
            "heterbo:acquisition=tei",
            "heterbo:paper",
            "heterbo:prune=off,gate=off",
            "heterbo:acquisition=net,start=2,price=off",
            "heterbo:acquisition=pandora",
            "heterbo:reserve=off",
        ]
    )
    def text(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)


class TestAuto(StrategyContract):
    @pytest.fixture(
        params=["auto", "auto:mixture=off", "auto:level=off", "auto:order=net", "auto:first-unit=goal,scarcity=0"]
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


class TestLynceus(StrategyContract):
    @pytest.fixture(params=["lynceus", "lynceus:horizon=0"])
    def text(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)


class TestErnest(StrategyContract):
    @pytest.fixture(params=["ernest", "ernest:types=1,design=2"])
    def text(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)


class TestArrow(StrategyContract):
    @pytest.fixture
    def text(self) -> str:
        return "arrow"


class TestParis(StrategyContract):
    @pytest.fixture
    def text(self) -> str:
        return "paris"

    def make(self, text: str, seed: int = 0) -> Strategy:
        return strategy_of(text, seed)


class TestRandom(StrategyContract):
    @pytest.fixture(params=["random", "random:steps=3"])
    def text(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)


class TestExhaustive(StrategyContract):
    @pytest.fixture(params=["exhaustive", "exhaustive:points=7"])
    def text(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)


class TestPaleo(StrategyContract):
    needs_trials = False

    @pytest.fixture
    def text(self) -> str:
        return "paleo"


class ScavengerContract(StrategyContract):
    """They choose a batch, and their knee is that of the curve."""

    chooses_batch = True
    knee_by_product = False

    def make(self, text: str, seed: int = 0) -> Strategy:
        return strategy_of(text, seed)


class TestScavengerPartial(ScavengerContract):
    @pytest.fixture(params=["scavenger-partial", "scavenger-partial:more=0,confirm=1"])
    def text(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)


class TestScavengerFull(ScavengerContract):
    @pytest.fixture
    def text(self) -> str:
        return "scavenger-full"


class TestScavengerUniversal(ScavengerContract):
    @pytest.fixture
    def text(self) -> str:
        return "scavenger-universal"


class TestScavengerGoodput(ScavengerContract):
    @pytest.fixture
    def text(self) -> str:
        return "scavenger-goodput"


def test_every_strategy_has_the_contract() -> None:
    classes = {*StrategyContract.__subclasses__(), *ScavengerContract.__subclasses__()}
    own = {cls.__name__.removeprefix("Test").lower() for cls in classes if cls.__module__ == __name__}
    tested = own - {"scavengercontract"}
    assert tested == {name.replace("-", "") for name in STRATEGIES}


@pytest.mark.parametrize(("text", "trials"), [("random:steps=3", 3), ("exhaustive:points=7", 7), ("exhaustive", 24)])
def test_a_stated_number_of_trials_is_made(text: str, trials: int) -> None:
    last = list(walk(strategy(text), make_problem(), count=2))[-1]
    assert len(last.history) == trials


def test_types_excluded_by_experience_are_never_tried() -> None:
    for step in walk(strategy("cherrypick:types=c5.b*+p2.*"), make_problem()):
        assert all(s.config.instance in ("c5.big", "p2.one") for s in step.answer)


def test_the_seed_matters_for_random_strategies() -> None:
    def path(seed: int) -> list[tuple[str, ...]]:
        return all_answers(list(walk(strategy("random", seed=seed), make_problem())))

    assert path(1) != path(2)


@pytest.mark.parametrize("name", ["convbo", "cherrypick"])
def test_a_budgeted_rival_suggests_the_same_and_ends_when_refused(name: str) -> None:
    problem = known_problem("fastest")
    plain, kept = strategy(name, seed=1), strategy(f"{name}-budget", seed=1)
    step = next(s for s in walk(plain, problem) if len(s.history) == 4)
    assert step.answer
    everything = np.ones(len(problem.space), dtype=bool)
    assert kept.suggest(problem, step.history, Remaining(usd=None, seconds=None, allowed=everything), 1) == step.answer
    refused = everything.copy()
    refused[problem.space.index[step.answer[0].config]] = False
    assert kept.suggest(problem, step.history, Remaining(usd=None, seconds=None, allowed=refused), 1) == ()


_ASK = """
from mlcd.search.registry import STRATEGIES
from mlcd.testing.strategies import all_answers, fresh_problem, walk
from tests.contract.test_strategies import strategy_of
for name in STRATEGIES:
    problem = fresh_problem("both", batches=name.startswith("scavenger-"), counts=(1, 2, 3, 4, 6, 8, 12, 16))
    print(name, all_answers(list(walk(strategy_of(name, 3), problem, count=2))))
"""


def test_answers_are_the_same_in_any_process() -> None:
    """Python shuffles the order of sets from process to process; no answer may depend on it."""
    root = Path(__file__).resolve().parents[2]
    path = os.pathsep.join((str(root), str(root / "src")))

    def ask(hash_seed: str) -> str:
        environment = {**os.environ, **UNMEASURED, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path}
        done = subprocess.run(
            [sys.executable, "-c", _ASK], env=environment, cwd=root, capture_output=True, text=True, check=True
        )
        return done.stdout

    first = ask("1")
    assert first.count("\n") == len(STRATEGIES)
    assert ask("2") == first
