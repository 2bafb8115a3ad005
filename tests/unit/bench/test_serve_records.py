"""The records of serving searches are complete, and decide what the pages say."""

import json
from importlib import import_module

import pytest

tables = import_module("record_serve_tables")


def test_a_changed_record_changes_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    read, before = tables.read, tables.parts()

    def worse(name: str) -> object:
        record = json.loads(json.dumps(read(name)))
        for line in record.get("summary", []):
            line["mean_accuracy"] /= 2
        return record

    monkeypatch.setattr(tables, "read", worse)
    assert tables.parts()[tables.FALCON_PAGE]["goals"] != before[tables.FALCON_PAGE]["goals"]


def test_the_records_are_of_all_strategies_and_of_every_limit() -> None:
    for name in tables.BEDS:
        record, bed = tables.read(name), tables.bed_of(name)
        assert {line["strategy"] for line in record["summary"]} == set(tables.STRATEGIES)
        assert {line["slo_ms"] for line in record["summary"]} == set(bed.slo_ms)
        assert {line["target"] for line in record["by_target"]} == set(bed.targets)
        assert record["noise"] == bed.noise
