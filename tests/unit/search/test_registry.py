import numpy as np
import pytest
from tests.synthetic import make_problem

from mlcd.errors import BadInput
from mlcd.problem import Problem
from mlcd.search.cherrypick import CherryPick
from mlcd.search.convbo import ConvBO
from mlcd.search.registry import STRATEGIES, strategy, strategy_class
from mlcd.space import Config, Knob, Space
from mlcd.trial.plan import Remaining
from mlcd.trial.trial import History

UNGUARDED = {"convbo", "cherrypick", "random", "exhaustive", "paleo"}


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_name_creates_its_strategy(name: str) -> None:
    made = strategy(name, seed=4)
    assert made.name == name
    assert made.guarded == (name not in UNGUARDED)
    assert made.seed == 4  # type: ignore[attr-defined]
    assert type(made) is strategy_class(name)


def test_options_are_converted_to_their_type() -> None:
    made = strategy(" convbo : acquisition=ucb, start = 4,threshold=0.5 ")
    assert made == ConvBO(acquisition="ucb", start=4, threshold=0.5)
    assert strategy("cherrypick:types=c5.*+p2.*") == CherryPick(types="c5.*+p2.*")
    assert strategy("random:steps=3,") == strategy("random:steps=3")


@pytest.mark.parametrize(("word", "value"), [("on", True), ("OFF", False), ("yes", True), ("false", False)])
def test_switches(word: str, value: bool) -> None:
    assert strategy(f"heterbo:prune={word}").settings.prune is value  # type: ignore[attr-defined]


def test_a_reserve_switched_off_is_no_longer_guarded() -> None:
    assert not strategy("heterbo:reserve=off").guarded


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("heterbot", "unknown strategy 'heterbot'; allowed: auto, heterbo, .*did you mean 'heterbo'"),
        ("zzz", "unknown strategy 'zzz'; allowed: [^;]*$"),
        ("", "unknown strategy ''"),
        ("convbo:stats=3", "convbo has no option 'stats=3'; allowed: acquisition=, .*did you mean 'start'"),
        ("convbo:start", "convbo has no option 'start'"),
        ("convbo:qqqq=1", "convbo has no option 'qqqq=1'; allowed: [^;]*$"),
        ("convbo:seed=3", "convbo has no option 'seed=3'"),
        ("convbo:start=many", r"convbo:start: not a whole number \(got 'many'\)"),
        ("convbo:start=1.5", "not a whole number"),
        ("convbo:threshold=low", r"convbo:threshold: not a number \(got 'low'\)"),
        ("convbo:acquisition=magic", r"unknown value \(got 'magic'\); allowed: ei, ucb, poi"),
        ("heterbo:start=none", r"heterbo:start=none: start must be all, auto or a whole number from 1 \(got 'none'\)"),
        ("heterbo:prune=perhaps", r"heterbo:prune: not a switch \(got 'perhaps'\); allowed: on, off"),
    ],
)
def test_mistakes_name_the_option_and_what_is_allowed(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        strategy(text)
    assert str(caught.value).startswith("search.strategy: ")
    assert caught.value.exit_code == 2


def test_paleo_needs_to_know_the_network() -> None:
    known = make_problem()
    unknown = Problem(name="x", work_samples=1.0, space=known.space, goal=known.goal, usd_per_hour=known.usd_per_hour)
    everything = Remaining(usd=None, seconds=None, allowed=known.nodes > 0)
    with pytest.raises(BadInput, match=r"search\.strategy: paleo needs to know the trained network: set job\.model"):
        strategy("paleo").recommend(unknown, History(), everything)


@pytest.mark.parametrize("name", ["cherrypick", "cherrypick-budget"])
def test_cherrypick_needs_instance_types(name: str) -> None:
    known = make_problem()
    space = Space((Knob(name="batch", values=(1, 2)),), (Config.of({"batch": 1}), Config.of({"batch": 2})))
    served = Problem(name="x", work_samples=1.0, space=space, goal=known.goal, usd_per_hour=known.usd_per_hour[:2])
    everything = Remaining(usd=None, seconds=None, allowed=np.array([True, True]))
    with pytest.raises(BadInput, match=r"search\.strategy: cherrypick chooses among instance types"):
        strategy(name).suggest(served, History(), everything, 1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("random:steps=0", "steps must be at least 1"),
        ("exhaustive:points=-1", "points must be at least 0"),
        ("convbo:steps=-5", "steps must be at least 1"),
        ("convbo:threshold=nan", "threshold: out of range"),
        ("paleo:compute=1e-300", "compute: out of range"),
        ("cherrypick:least=-3", "least must be at least 1"),
        ("paleo:compute=0", "must be above 0"),
        ("heterbo:start=0", "start must be all, auto or a whole number from 1"),
    ],
)
def test_invalid_option_values_are_refused(text: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        strategy(text)


def test_cherrypick_refuses_types_that_match_nothing() -> None:
    problem = make_problem()
    remaining = Remaining(usd=None, seconds=None, allowed=problem.nodes > 0)
    with pytest.raises(BadInput, match=r"none matches 'zz'; allowed: c5\.big, c5\.small, p2\.one"):
        strategy("cherrypick:types=zz").suggest(problem, History(), remaining, 1)
