"""docs/scavenger.md has the tables of its record."""

import json

import record_scavenger


def test_the_page_matches_the_record() -> None:
    record = json.loads(record_scavenger.RESULT.read_text(encoding="utf-8"))
    page = record_scavenger.PAGE.read_text(encoding="utf-8")
    between = page.partition(record_scavenger.BEGIN)[2].partition(record_scavenger.END)[0]
    assert between == f"\n\n{record_scavenger.page_text(record)}\n"
