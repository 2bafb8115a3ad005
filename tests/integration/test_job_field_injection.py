"""Hostile text in every field that a job file may have is shown as text: in the page, the report and the terminal.

The fields are those of the tables that read job files (tests/job_fields.py), not a list.
"""

import json
import shlex
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests import plain_server
from tests.hostile_runs import most
from tests.integration.test_ui_injection import CHECK_ALL, EVIL, assert_inert
from tests.job_fields import ANY_NAME, hostile_values, job_tables, with_value
from tests.tiny_onnx import write_mlp
from tests.ui_page import JOB, browser, page_server

from mlcd.cli.main import run as mlcd
from mlcd.errors import SpecError
from mlcd.spec.functions import SERVERLESS
from mlcd.spec.parse import TRAIN
from mlcd.spec.serving import SERVE

Case = tuple[str, tuple[str, ...], object]
TEXTS = (f"{EVIL}\x9b31m\u202e", f"\x1b]0;title\x07\x1b[31m{EVIL}")
"""Markup and script, with control codes of 8 and of 7 bits: many fields refuse the latter only."""
PARTS = (29, pytest.param(1, marks=pytest.mark.extra))
"""One case in so many, and one of each field: all of them take minutes. 29 has no factor in common with the number of
forms of a value."""
PARSERS = {"train": TRAIN.parse, "serve": SERVE.parse, "serverless": SERVERLESS.parse}
RUN = f"exec {shlex.quote(sys.executable)} {shlex.quote(plain_server.__file__)} 1; : $PORT $ANY_NAME"
JOBS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("train", JOB),
    ("serve", {"name": "tiny", "model": "tiny.onnx", "goal": {"maximize": "requests per dollar"}}),
    (
        "serve",
        {
            "name": "plain",
            "server": {"run": RUN, "api": "http", "path": "/predict", "body": {"text": "hello"}, "ready": "/up"},
            "knobs": {ANY_NAME: ["a", "b"]},
            "load": {"concurrency": 2, "verify": "1s"},
            "goal": {"maximize": "requests per dollar"},
            "search": {"max_trials": 2, "trial": {"seconds": "2s", "watchdog": "60s"}},
        },
    ),
    (
        "serve",
        {
            "name": "chat",
            "server": {"run": "serve $MODEL $PORT $SEQS"},
            "model": "llama",
            "knobs": {"SEQS": [1, 2]},
            "goal": {"maximize": "tokens per dollar"},
        },
    ),
    (
        "serverless",
        {
            "name": "functions",
            "resources": {"infra": "sim/lambda"},
            "workload": {"model": "logistic", "target_loss": 0.35},
            "functions": [4, 8],
            "goal": {"minimize": "time", "budget": "3 USD"},
        },
    ),
)
"""A valid job for each table of fields."""


@cache
def cases() -> tuple[tuple[int, Case], ...]:
    """(number of the job, (command, path, value)): every field of every table in every form."""
    found: list[tuple[int, Case]] = []
    for table in job_tables():
        matching = [
            at for at, (command, job) in enumerate(JOBS) if command == table.command and set(job) <= table.names
        ]
        assert matching, f"no job here has the fields of {sorted(table.names)}"
        found += [
            (at, (table.command, path, value))
            for at in matching
            for field in table.fields
            for text in TEXTS
            for path, value in hostile_values(text, field)
        ]
    return tuple(found)


def part_of_cases(every: int) -> tuple[tuple[int, Case], ...]:
    """One case in `every`, each field with a text among them."""
    return tuple(each for number, each in enumerate(cases()) if number % every == 0 or each[1][2] == TEXTS[0])


def job_text(job: dict[str, Any], some: list[Case]) -> str:
    for _, path, value in some:
        job = with_value(job, path, value)
    return json.dumps(job)


def accepts(command: str, text: str) -> bool:
    try:
        PARSERS[command](text)
    except SpecError:
        return False
    return True


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NO_COLOR", "1")
    write_mlp(tmp_path / "tiny.onnx")
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], what: object) -> str:
    """What was printed; it has nothing that a terminal obeys."""
    captured = capsys.readouterr()
    text = captured.out + captured.err
    assert [each for each in text if each != "\n" and not each.isprintable()] == [], what
    return text


def test_fields_of_every_kind_are_found() -> None:
    """Fields at any depth, of readers that are tables and of readers that are functions."""
    found = {(table.command, ".".join(field)) for table in job_tables() for field in table.fields}
    assert found >= {
        ("train", "search.trial.minutes"),
        ("train", f"knobs.{ANY_NAME}.when"),
        ("serve", "server.body"),
        ("serve", "load.input_tokens.file"),
        ("serve", "goal.slo"),
        ("serverless", "workload.model"),
    }
    assert len(job_tables()) == 5


@pytest.mark.parametrize("every", PARTS)
def test_every_field_in_the_terminal(every: int, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quoted, some = 0, part_of_cases(every)
    for at, case in some:
        text = job_text(JOBS[at][1], [case])
        if accepts(case[0], text):
            continue
        (folder / "job.yaml").write_text(text)
        assert mlcd([case[0], "job.yaml", "--dry-run"]) == 2, case
        quoted += "onerror" in said(capsys, case)
    assert quoted > len(some) / 2, "messages quote what is wrong"


@pytest.mark.parametrize("every", PARTS)
def test_every_field_in_the_page_as_it_is_typed(every: int, folder: Path) -> None:
    texts = list(dict.fromkeys(job_text(JOBS[at][1], [case]) for at, case in part_of_cases(every)))
    with page_server(folder) as server, browser() as chromium:
        page = chromium.new_page()
        page.set_default_timeout(300_000)
        page.goto(f"{server.address}/?token={server.token}")
        page.goto(f"{server.address}/new")
        page.wait_for_selector("#expected dl")
        told = page.evaluate(CHECK_ALL, texts)
        assert len(told) == len(texts)
        assert sum("onerror" in each for each in told) > len(texts) / 2
        assert_inert(page, "new run")


def accepted(at: int) -> list[Case]:
    """As many hostile fields as one run can have together: the dry run accepts them."""
    command, job = JOBS[at]
    single = [case for number, case in cases() if number == at and accepts(command, job_text(job, [case]))]
    first = {case[1]: case for case in reversed(single)}  # one form of each field

    def works(some: Any) -> bool:
        text = job_text(job, [first[path] for path in some])
        if not accepts(command, text):
            return False
        Path("job.yaml").write_text(text)
        return mlcd([command, "job.yaml", "--dry-run"]) == 0

    return [first[path] for path in most(sorted(first), works)]


@pytest.mark.parametrize("at", [0, 2, 4], ids=["train", "command-server", "serverless"])
def test_run_of_a_job_with_hostile_text_in_all_fields_that_allow_it(
    at: int, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command, job = JOBS[at]
    some = accepted(at)
    capsys.readouterr()
    (folder / "job.yaml").write_text(job_text(job, some))
    code = mlcd([command, "job.yaml"])
    told = said(capsys, some)
    assert code in (0, 4, 6), told
    (run_id,) = (run["run_id"] for run in json.loads(_output(capsys, ["runs", "-o", "json"]))["runs"])
    for words in (["show", run_id], ["runs"], ["logs", run_id], ["report", run_id]):
        mlcd(words)
        told += said(capsys, words)
    with page_server(folder / "home") as server, browser() as chromium:
        page = chromium.new_page()
        page.set_default_timeout(120_000)
        page.goto(f"{server.address}/?token={server.token}")
        shown = ""
        for place in ("/", f"/runs/{run_id}", f"/runs/{run_id}/report"):
            page.goto(f"{server.address}{place}")
            if place.endswith(run_id):
                page.wait_for_selector("#run[data-drawn]")
            shown += page.locator("main").inner_text()
            assert_inert(page, place)
        page.goto((folder / f"{run_id}.html").as_uri())
        assert_inert(page, "report")
    if command == "serve":  # a knob's values are in every configuration
        assert "onerror" in told
        assert "onerror" in shown


def _output(capsys: pytest.CaptureFixture[str], words: list[str]) -> str:
    capsys.readouterr()
    assert mlcd(words) == 0
    return capsys.readouterr().out


def test_knobs_of_a_command_server_are_among_the_cases() -> None:
    knobs = [case for at, case in cases() if at == 2 and case[1][0] == "knobs"]
    assert any(isinstance(value, dict) and EVIL in next(iter(value)) for _, _, value in knobs), "names"
    assert any(path[-1] == ANY_NAME for _, path, _ in knobs), "values"
