"""Every strategy has its page, every option is on it with its default, and the examples on it can be typed."""

import dataclasses
import re
from pathlib import Path

import pytest
from tests.serving_world import world

from mlcd.models.gp import HyperPrior
from mlcd.options import options_of
from mlcd.search.registry import SERVING, STRATEGIES, strategy, strategy_class
from mlcd.search.strategy import Strategy

PAGES = Path(__file__).resolve().parents[3] / "docs" / "strategies"
SERVING_ONLY = [name for name in SERVING if name not in STRATEGIES]
NAMES = [*STRATEGIES, *SERVING_ONLY]


def page(name: str) -> str:
    return (PAGES / f"{name}.md").read_text(encoding="utf-8")


def shown(value: object) -> str:
    """A default as the user would write it."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def options(name: str) -> dict[str, str]:
    return {option.name: shown(option.default) for option in options_of(strategy_class(name))}


def typed_as(text: str) -> Strategy:
    """What a user gets who types it; those that know other models are given some."""
    if text.partition(":")[0] in SERVING_ONLY:
        return strategy(text, known=world(), target=world().models[0].target)
    return strategy(text)


def test_there_is_a_page_for_every_strategy_and_no_other() -> None:
    assert {path.stem for path in PAGES.glob("*.md")} == {*NAMES, "README"}


@pytest.mark.parametrize("name", NAMES)
def test_every_option_is_named_with_its_default(name: str) -> None:
    for option, default in options(name).items():
        assert f"| `{option}` | `{default}` |" in page(name), f"docs/strategies/{name}.md: {option} = {default}"


@pytest.mark.parametrize("name", NAMES)
def test_no_option_is_documented_that_is_not_there(name: str) -> None:
    table = page(name).partition("| option |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `([a-z-]+)` \|", table, re.M)) == set(options(name))


@pytest.mark.parametrize("name", NAMES)
def test_the_page_says_what_a_user_asks(name: str) -> None:
    text = page(name)
    for heading in ("## When to use it", "## How it decides", "## Results", "## Known limits"):
        assert heading in text
    assert ("mlcd serve" if name in SERVING_ONLY else "mlcd.train(") in text


@pytest.mark.parametrize("name", [*NAMES, "README"])
def test_the_examples_can_be_typed(name: str) -> None:
    text = page(name)
    typed = re.findall(r"--strategy (\S+)", text) + re.findall(r'strategy="([^"]+)"', text)
    assert typed
    for example in typed:
        assert typed_as(example.strip("`").rstrip(".")).name in NAMES
    if name != "README":
        assert any(typed_as(example).name == name for example in typed)


def test_the_overview_lists_every_strategy_and_whether_it_keeps_limits() -> None:
    for name in NAMES:
        keeps = "yes" if typed_as(name).guarded else "no"
        assert f"| [`{name}`]({name}.md) | {keeps} |" in page("README")


def test_the_priors_are_those_of_the_model() -> None:
    for name, (median, deviation) in dataclasses.asdict(HyperPrior()).items():
        pattern = rf"\| `{name}` \S+ \| {re.escape(f'{median:g}')}(\.0)? \| {re.escape(f'{deviation:g}')} \|"
        assert re.search(pattern, page("heterbo")), f"docs/strategies/heterbo.md: {name} {median} {deviation}"
