"""The tables of docs/falcon.md, docs/serve.md and docs/falcon-paper.md are those of the committed records."""

import json
import re
from importlib import import_module

import pytest

tables = import_module("record_serve_tables")
paper = import_module("record_serve")


@pytest.mark.parametrize("page", tables.PAGES, ids=lambda page: page.name)
def test_the_pages_show_what_is_in_the_records(page: object) -> None:
    text = page.read_text(encoding="utf-8")  # type: ignore[attr-defined]
    assert tables.filled(text) == text, "run: python benchmarks/record_serve_tables.py page"


def test_every_generated_part_is_shown_somewhere() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in tables.PAGES)
    assert set(re.findall(r"<!-- table: (\S+) -->", text)) == set(tables.parts())


def test_a_changed_record_changes_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    text = tables.PAGES[0].read_text(encoding="utf-8")
    read = tables.read

    def worse(name: str) -> object:
        record = json.loads(json.dumps(read(name)))
        for line in record.get("summary", []):
            line["mean_accuracy"] /= 2
        return record

    monkeypatch.setattr(tables, "read", worse)
    assert tables.filled(text) != text


def test_the_records_are_of_all_strategies_and_of_every_limit() -> None:
    for name in tables.BEDS:
        record, bed = tables.read(name), tables.bed_of(name)
        assert {line["strategy"] for line in record["summary"]} == set(tables.STRATEGIES)
        assert {line["slo_ms"] for line in record["summary"]} == set(bed.slo_ms)
        assert {line["target"] for line in record["by_target"]} == set(bed.targets)
        assert record["noise"] == bed.noise


def test_the_page_of_the_paper_shows_what_is_in_the_records() -> None:
    text = paper.PAGE.read_text(encoding="utf-8")
    assert paper.filled(text) == text, "run: python benchmarks/record_serve.py page"
