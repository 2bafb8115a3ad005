"""The ablation table: every change is a valid option, verdicts follow the interval, the page matches the record."""

import json
import re
import sys
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest
from tests.serving_world import world

from mlcd.schedulers.parts import MpcSettings
from mlcd.schedulers.registry import scheduler
from mlcd.schedulers.siren_state import SirenSettings
from mlcd.search.registry import strategy

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "benchmarks"))  # as when the script is run
ablations = import_module("ablations")
compare = import_module("ablated.compare")
schedulers = import_module("ablated.schedulers")


def outcomes(losses: list[float], *, unseen: bool = False) -> list[object]:
    return [
        compare.Outcome(bed="bed", workload=f"job-{index}", unseen=unseen, seed=0, loss=loss)
        for index, loss in enumerate(losses)
    ]


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ([1.2, 1.3, 1.2, 1.3, 1.2, 1.3], compare.EARNS),
        ([0.8, 0.7, 0.8, 0.7, 0.8, 0.7], compare.COSTS),
        ([1.2, 0.8, 1.2, 0.8, 1.2, 0.8], compare.NOISE),
        ([1.2, 1.3], compare.TOO_FEW),
    ],
)
def test_a_part_is_useful_when_the_loss_without_it_is_significantly_higher(changed: list[float], verdict: str) -> None:
    change = compare.Change(part="part", text="heterbo:part=off")
    default = outcomes([1.0] * len(changed))
    (line,) = compare.lines("heterbo", change, default, outcomes(changed), unseen=False)
    assert line.verdict == verdict
    assert line.interval[0] <= line.difference <= line.interval[1]
    assert not compare.lines("heterbo", change, default, outcomes(changed), unseen=True)


@pytest.mark.parametrize("text", [change.text for change in ablations.METHODS["heterbo"].changes])
def test_changes_of_heterbo_are_options(text: str) -> None:
    assert strategy(text) != strategy("heterbo")


@pytest.mark.parametrize("text", [change.text for change in ablations.METHODS["falcon"].changes])
def test_changes_of_falcon_are_options(text: str) -> None:
    known, target = world(), world().models[0].target
    made, default = (strategy(t, known=known, target=target) for t in (text, text.partition(":")[0]))
    assert made.settings != default.settings  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["mpc", "siren"])
def test_changes_of_schedulers_change_something(name: str) -> None:
    for change in ablations.METHODS[name].changes:
        assert schedulers._made(change.text) != scheduler(name), change.text


@pytest.mark.parametrize(("name", "settings"), [("mpc", MpcSettings), ("siren", SirenSettings)])
def test_the_page_names_the_settings_that_no_ablation_changes(name: str, settings: type) -> None:
    texts = [change.text for change in ablations.METHODS[name].changes]
    changed = {option.partition("=")[0] for text in texts for option in text.partition(":")[2].split(",")}
    options = {field.name.replace("_", "-") for field in fields(settings)}
    page = (ROOT / "docs" / "schedulers" / f"{name}.md").read_text(encoding="utf-8")
    said = page[page.index("Not ablated:") :].partition(".")[0]
    assert set(re.findall(r"`([^`]+)`", said)) == options - changed


def test_the_page_matches_the_record() -> None:
    record = json.loads(ablations.RECORD.read_text(encoding="utf-8"))
    assert set(record) == set(ablations.METHODS)
    assert ablations.PAGE.read_text(encoding="utf-8") == ablations.page(record)
