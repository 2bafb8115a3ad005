"""benchmarks/record_protocols.py: what is varied, and that a broken limit is reported."""

from pathlib import Path

import pytest
import record_protocols
from protocols import sim_sources
from record_protocols import lines, rows_of, settings, table

from mlcd.bench.case import GoalKind
from mlcd.bench.protocol import Work
from mlcd.bench.workloads import Source
from mlcd.clouds.replay import ReplayInstance, ReplayWorkload
from mlcd.space import Config
from mlcd.units import Usd

TABLE = ReplayWorkload(
    name="table",
    seconds={Config.deployment(name, n): 3600.0 / n**0.7 for name in "abcdef" for n in (1, 2, 4, 8)},
    instances={name: ReplayInstance(name=name, usd_per_hour=Usd.of("0.10")) for name in "abcdef"},
)
BEDS: dict[str, list[Source]] = {"table": [TABLE], "sim": sim_sources()[:2]}


def test_every_bed_work_and_goal_comes_equally_often() -> None:
    found = list(settings(BEDS, count=48, seed=1))
    assert found[:5] == list(settings(BEDS, count=5, seed=1))
    kinds = [(each.drawn.bed, each.drawn.protocol.work, each.goal) for each in found]
    assert len(set(kinds)) == 2 * 3 * 4
    assert all(kinds.count(kind) == 2 for kind in kinds)
    assert {each.parallel for each in found if each.drawn.protocol.work is Work.KEPT} == {1}
    assert {each.parallel for each in found} == {1, 8}


def test_a_row_says_which_protocol_it_is_of_and_broken_limits_are_counted() -> None:
    some = [each for each in settings(BEDS, count=24, seed=1) if each.goal is GoalKind.FASTEST][:3]
    rows = rows_of(some, ["auto", "oracle"])
    assert [row["number"] for row in rows] == [0, 0, 1, 1, 2, 2]
    assert {row["parallel"] for row in rows} == {each.parallel for each in some}
    rows[0] |= {"status": "violated"}
    found = lines(rows, rivals=2)
    shared = {(s["work"], s["goal"], s["strategy"]): s["runs"] for s in found if s["part"] == "shared"}
    assert shared["all", "all", "auto"] == shared["all", "all", "oracle"] == 2
    ours = {(s["work"], s["goal"]): s for s in found if s["part"] == "all"}
    assert ours["all", "all"]["runs"] == 3
    assert ours["all", "all"]["violations"] == 1
    assert "| all | all | 3 |" in table({"summary": found})


def test_the_record_lists_every_search_that_broke_a_limit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def broken(chunk: object, strategies: object) -> list[dict[str, object]]:
        return [row | {"status": "violated"} for row in rows_of(chunk, strategies)]  # type: ignore[arg-type]

    monkeypatch.setattr(record_protocols, "FOLDER", tmp_path)
    monkeypatch.setattr(record_protocols, "sources", lambda _tables, _unseen: {"table": [TABLE]})
    monkeypatch.setattr(record_protocols, "rows_of", broken)
    monkeypatch.setattr("sys.argv", ["x", str(tmp_path), "--count=2", "--rivals=0", "--jobs=1", "--show"])
    record_protocols.main()
    assert capsys.readouterr().out.count("violated: {") == 2
