"""benchmarks/earlier_jobs.py: its page is that of its record, and a run with too few measurements brings nothing."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import earlier_jobs
import pytest

from mlcd.jobs.earlier_runs import MOST_SIMILAR
from mlcd.models.similar import FEWEST_MEASUREMENTS

LINE: dict[str, Any] = {
    "work": "beside", "goal": "budget", "parallel": 8, "held_out": True, "seeds": 3, "runs": 7, "cold": 1.5,
    "earlier": 1.4, "change": -0.1, "interval": [-0.2, 0.05], "cold_unfinished": 2, "unfinished": 1, "violated": 0,
    "cold_trials": 5.25, "trials": 4.0,
}  # fmt: skip


def test_the_page_shows_the_record() -> None:
    (part,) = earlier_jobs.parts()[earlier_jobs.PAGE].values()
    assert part in earlier_jobs.PAGE.read_text(encoding="utf-8")


def test_a_line_of_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = tmp_path / "record.json"
    kept = {"date": "2026-01-02", "version": "1", "code": "abc", "seeds": 3}
    result.write_text(json.dumps({**kept, "lines": [LINE, {**LINE, "parallel": 1, "held_out": False}]}))
    monkeypatch.setattr(earlier_jobs, "RESULT", result)
    first, second = earlier_jobs.parts()[earlier_jobs.PAGE]["earlier-jobs"].splitlines()[2:4]
    assert first == (
        "| beside | budget, 8 at once | held out | 7 | 1.50 | 1.40 | -0.100 (-0.20 to +0.05) | 0 | 2, 1 | 5.2, 4.0 |"
    )
    assert second.startswith("| beside | budget | seen |")


def test_only_the_newest_runs_that_measured_enough_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def known(name: str, configs: int) -> Any:
        return name, SimpleNamespace(measured=[SimpleNamespace(config=number) for number in range(configs)])

    given: list[str] = []
    monkeypatch.setattr(earlier_jobs, "similar_speeds", lambda _, runs: given.extend(name for name, _ in runs))
    monkeypatch.setattr(earlier_jobs, "replace", lambda problem, **_: problem)
    enough = FEWEST_MEASUREMENTS
    history = [known("few", enough - 1), *(known(str(n), enough) for n in range(MOST_SIMILAR + 1))]
    earlier_jobs.as_in_the_product(Any, history)  # type: ignore[arg-type]
    assert given == [str(n) for n in range(MOST_SIMILAR)]
