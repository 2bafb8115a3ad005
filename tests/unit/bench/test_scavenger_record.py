"""What docs/scavenger.md says beside the search is of the same runs as the search."""

import json
from typing import Any

import pytest
from record_scavenger import RESULT, NoSearch, digits_text, page_text

from mlcd.bench.scavenger.score import ScavengerRow

RECORD: dict[str, Any] = json.loads(RESULT.read_text(encoding="utf-8"))
TRUTH = [
    {"model": "long", "largest_regret": 0.0, "smallest_regret": 0.1},
    {"model": "short", "largest_regret": 1.5, "smallest_regret": 39.0},
]


def row(model: str, regret: float | None) -> ScavengerRow:
    line = {**RECORD["cases"]["as-planned"]["rows"][0], "model": model, "mode": "partial"}
    return ScavengerRow(**{**line, "regret_time": regret, "regret_cost": regret})


def test_no_search_is_judged_on_the_runs_that_have_a_regret() -> None:
    rows = [row("long", 0.05), row("long", 0.0), row("short", None)]
    found = NoSearch.of(rows, TRUTH, "time", "partial")
    assert found.median == 0.0
    assert found.better_same_worse == (0, 1, 1)
    assert NoSearch.of(rows, TRUTH, "cost", "partial").better_same_worse == (2, 0, 0)
    assert NoSearch.of(rows, TRUTH, "cost", "goodput").pairs == ()


def test_the_page_counts_the_runs_of_a_rule_and_says_that_its_trainings_were_adascales() -> None:
    text = page_text(RECORD)
    assert f"({len(RECORD['cases']['sqrt']['rows'])} runs a rule)" in text
    assert "were made with AdaScale" in text


def test_the_digits_under_the_rule_are_those_of_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    before = digits_text()
    assert "| rule `sqrt`, as mlcd did before | 0.0%, 0.0%, 0.5% |" in before
    monkeypatch.setattr("record_scavenger.DIGITS_BATCH", 128)
    assert digits_text() != before
