"""The parts of a run's page: drawn once for each state, and only what is asked for."""

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from tests.ui_page import JOB

import mlcd
import mlcd.web
from mlcd.errors import BadInput
from mlcd.report.decisions import DecisionLine, decisions
from mlcd.trial.outcome import Status
from mlcd.web.api_types import BenchesJson
from mlcd.web.pages import Pages
from mlcd.web.records import NoSuchRun, Records
from mlcd.web.run_page import MOST_DECISIONS, WIDTHS


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def run_id(home: Path) -> str:
    return mlcd.train(JOB, home=home).run_id


@pytest.fixture
def pages(home: Path) -> Pages:
    return Pages(Records(home), benches=BenchesJson(results=()))


def asked(query: str = "", **path: str) -> Request:
    return Request({"type": "http", "query_string": query.encode(), "path_params": path, "headers": []})


def test_only_the_parts_that_are_asked_for_are_drawn(pages: Pages, run_id: str) -> None:
    first = pages.run(asked(run_id=run_id))
    assert "<svg" not in first.replace("<svg viewBox", ""), "but for the gauge"
    assert 'data-part="picture-speed" data-later' in first
    found = pages.live(asked("parts=picture-speed:narrow,decisions:narrow,nonsense:narrow", run_id=run_id))
    assert found.count('class="mlcd-picture"') == 1
    assert 'viewBox="0 0 380' in found
    assert "Chose " in found
    assert "nonsense" not in found


def test_decisions_are_all_there_and_the_last_ones_at_once(pages: Pages, run_id: str) -> None:
    """Nothing is cut off: what is not shown at once is named with its number."""
    run = pages._run_page.outline(run_id).run
    lines = [DecisionLine(seconds=float(at), what="tried", text=f"number {at}.") for at in range(MOST_DECISIONS + 3)]
    draw = pages._run_page._part

    def drawn(count: int) -> str:
        return str(draw("decisions", lines=lines[:count], note="", most_decisions=MOST_DECISIONS))

    few, many = drawn(MOST_DECISIONS), drawn(MOST_DECISIONS + 3)
    assert "earlier" not in few
    assert few.count("<li") == MOST_DECISIONS
    hidden, _, shown = many.partition("</details>")
    assert "<summary>3 earlier</summary>" in hidden
    assert (hidden.count("<li"), shown.count("<li")) == (3, MOST_DECISIONS)
    assert "number 2." in hidden
    assert f"number {MOST_DECISIONS + 2}." in shown
    assert str(pages._run_page._decisions(run, "wide")).count("<li") == len(decisions(run))
    css = (Path(mlcd.web.__file__).parent / "static" / "ui.css").read_text()
    assert "overflow" not in next(line for line in css.splitlines() if line.startswith(".decisions {"))


def test_every_part_is_drawn_at_every_width(pages: Pages, run_id: str) -> None:
    outline = pages._run_page.outline(run_id)
    names = [part.name for part in outline.parts]
    assert len(set(names)) == len(names)
    assert {"picture-speed", "picture-map", "decisions", "table-receipt"} <= set(names)
    for width in WIDTHS:
        found = pages.live(asked(f"parts={','.join(f'{name}:{width}' for name in names)}", run_id=run_id))
        assert "data-later" not in found
        assert found.count('class="mlcd-picture"') == len(outline.pictures)
    for wrong in ("picture-speed:99999", "picture-speed"):
        with pytest.raises(BadInput, match="allowed widths"):
            pages.live(asked(f"parts={wrong}", run_id=run_id))


def test_the_table_of_a_picture_comes_by_its_name(pages: Pages, run_id: str) -> None:
    assert pages.table(asked(run_id=run_id, picture="speed")).count("<tr>") > 5
    with pytest.raises(NoSuchRun, match=r"no picture 'sped'.*did you mean 'speed'"):
        pages.table(asked(run_id=run_id, picture="sped"))
    with pytest.raises(NoSuchRun):
        pages.table(asked(run_id="../x", picture="speed"))


def test_what_many_ask_for_at_once_is_made_once(home: Path, run_id: str) -> None:
    records, calls, together = Records(home), list[int](), threading.Barrier(8)
    answers = list[str]()
    records.run(run_id)

    def make(_: Any) -> str:
        calls.append(1)
        threading.Event().wait(0.2)
        return "made"

    def ask() -> None:
        together.wait()
        answers.append(records.made(run_id, "slow", make))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(calls), answers) == (1, ["made"] * 8)


def test_what_could_not_be_made_is_tried_again(home: Path, run_id: str) -> None:
    records = Records(home)

    def fail(_: Any) -> str:
        raise BadInput("not now")

    with pytest.raises(BadInput):
        records.made(run_id, "x", fail)
    assert records.made(run_id, "x", lambda _: "now") == "now"
    assert records.made(run_id, "x", fail) == "now", "kept"


def test_a_new_state_takes_the_place_of_the_old_one(home: Path) -> None:
    records, made = Records(home), list[int]()
    for rows in (3, 3, 4, 4, 3):
        records._remembered("x", "run", rows, lambda rows=rows: made.append(rows))  # type: ignore[misc]
    assert made == [3, 4, 3]
    assert len(records._kept) == 1


def test_running_run_says_what_is_committed_and_reserved(
    pages: Pages, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "kept to finish on the best so far" not in pages.run(asked(run_id=run_id)), "nothing is kept after the end"
    outline = pages._run_page.outline(run_id)
    running = replace(outline, run=replace(outline.run, status=Status.RUNNING))
    monkeypatch.setattr(pages._run_page, "outline", lambda _: running)
    found = pages.run(asked(run_id=run_id))
    assert "Reserved: kept to finish on the best so far, at its upper bound." in found
    assert "Reserved to finish" in found
