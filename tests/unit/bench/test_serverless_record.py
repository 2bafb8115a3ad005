"""The figures of the serverless record follow from its runs."""

import json
from statistics import fmean
from typing import Any

import pytest
from record_serverless import RESULT, comparison_table, interval

from mlcd.clouds.functions.sim.wide import families, is_unseen

RECORD: dict[str, Any] = json.loads(RESULT.read_text(encoding="utf-8"))


def test_the_table_follows_from_the_runs() -> None:
    rows = RECORD["wide"]["rows"]
    done = {(w, s, b, seed): seconds for w, s, b, seed, status, seconds, _ in rows if status == "done"}
    for line in RECORD["wide"]["table"]:
        at = line["scheduler"], line["budget_usd"]
        mine = [row for row in rows if (row[1], row[2]) == at]
        assert line["runs"] == len(mine)
        assert line["unfinished"] == sum(row[4] != "done" for row in mine)
        assert line["over_budget"] == sum(row[6] > at[1] + 0.005 for row in mine) == 0
        ratios = [
            seconds / done[w, "informed", b, seed] - 1
            for (w, s, b, seed), seconds in done.items()
            if (s, b) == at and (w, "informed", b, seed) in done
        ]
        assert line["against_informed"] == pytest.approx(fmean(ratios), abs=2e-3)


def test_the_wide_workloads_of_the_record_are_unseen_and_have_their_laws() -> None:
    assert RECORD["seeds"]["wide"] >= 5
    for name, line in RECORD["wide"]["workloads"].items():
        assert is_unseen(name)
        assert line["families"] == families(name)


def test_siren_untrained_stands_beside_every_table() -> None:
    for name in ("wide", "paper", "unseen", "flat"):
        assert any("`siren-untrained`" in line for line in comparison_table(RECORD[name]["table"]))


def test_an_interval_holds_its_mean_and_widens_with_the_spread_between_workloads() -> None:
    alike = interval({name: [0.1, 0.1] for name in "abcd"})
    apart = interval({"a": [0.0, 0.0], "b": [0.1, 0.1], "c": [0.2, 0.2], "d": [0.1, 0.1]})
    assert alike == (0.1, 0.1)
    assert apart is not None
    assert apart[0] < 0.1 < apart[1]
    assert interval({"a": [0.1]}) is None
