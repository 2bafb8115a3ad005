"""The figures of the serverless record follow from its runs."""

import json
from collections.abc import Sequence
from statistics import fmean
from typing import Any

import pytest
from record_serverless import RESULT, comparison_table, kept_policy, paper_table, unseen_laws
from serverless_findings import interval, learning, ratios, slower

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


def runs(**seconds: Sequence[float | None]) -> list[list[Any]]:
    """Rows of a record at $100: each scheduler's seconds on workloads a, b, ...; None: unfinished."""
    return [
        ["abcdef"[at], name, 100.0, 0, "infeasible" if value is None else "done", value or 0.0, 50.0]
        for name, values in seconds.items()
        for at, value in enumerate(values)
    ]


def test_ratios_are_of_runs_that_both_finish() -> None:
    rows = runs(mpc=[110.0, None, 80.0, 100.0], siren=[100.0, 100.0, None, 50.0])
    assert ratios(rows, "mpc", "siren", 100.0) == {"a": [pytest.approx(0.1)], "d": [pytest.approx(1.0)]}
    assert ratios(rows, "mpc", "siren", 200.0) == {}


@pytest.mark.parametrize(
    ("mine", "said"),
    [
        ([110.0, 112.0, 111.0, 110.0], "slower beyond noise at $100, faster at no budget"),
        ([90.0, 88.0, 91.0, 90.0], "slower beyond noise at no budget, faster at $100"),
        ([110.0, 90.0, 112.0, 88.0], "slower beyond noise at no budget, faster at no budget"),
    ],
)
def test_slower_and_faster_are_judged_by_the_interval(mine: list[float], said: str) -> None:
    record = {"wide": {"rows": runs(mpc=mine, siren=[100.0] * 4)}}
    assert slower(record, "mpc", "siren") == said


@pytest.mark.parametrize(
    ("trained", "place"),
    [([90.0, 91.0, 92.0], "reached"), ([98.0, 99.0, 97.0], "missed"), ([93.0, 97.0, 94.0], "inside the interval")],
)
def test_the_goal_of_learning_is_placed_in_its_interval(trained: list[float], place: str) -> None:
    record = {"wide": {"rows": runs(**{"siren": trained, "siren-untrained": [100.0] * 3})}}
    assert learning(record) == f"the 5% asked for is {place} at $100"


def test_the_papers_table_says_what_mpc_knew() -> None:
    head = paper_table(RECORD["paper"]["table"])[0]
    assert "`mpc-first`" in head
    assert "`mpc` after four earlier trainings" in head


def test_the_page_says_which_workloads_draw_no_unseen_law() -> None:
    seen = {"losses": "inverse", "times": "stragglers", "memory": "even", "progress": "none"}
    drawn = {"wide-0": {"families": seen}, "wide-1": {"families": {**seen, "losses": "plateau"}}}
    drawn["wide-2"] = {"families": {**seen, "times": "storage"}}
    assert unseen_laws({"wide": {"workloads": drawn}}) == (
        "2 of 3 workloads draw at least one law that no tuning workload has, 1 such a loss curve; `wide-0` draws none."
    )


def test_the_kept_policy_is_the_best_of_the_curve() -> None:
    curve = [{"steps": 0, "paper": 1.0, "other": 1.5}, {"steps": 8, "paper": 1.1, "other": 1.2}]
    curve.append({"steps": 16, "paper": 1.05, "other": 1.4})
    (said,) = kept_policy({"command": "train --steps 100 --seed 6", "curve": curve})
    assert "after 16 of 100 epochs, by its time limit" in said
    assert "policy of 8, the lowest sum of both columns (2.300; later 2.450)" in said
    assert "worse than untrained in these validation runs (1.100, untrained 1.000)" in said
