"""What jobs, nodes and files say is shown as text: in the browser, none of it runs."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml
from tests.hostile_runs import hostile as hostile_rows
from tests.hostile_runs import put, recorded
from tests.report_kind_samples import language_model_run, serverless_run
from tests.report_samples import batches_run, budget_run
from tests.ui_page import JOB, PageServer, browser, page_server

import mlcd
from mlcd.loadgen.chat import ChatLimit, ChatMetric
from mlcd.run.run import AnyRun
from mlcd.spec.template import TEMPLATES, template
from mlcd.store.database import Connection
from mlcd.store.rows import FACTS, insert, select
from mlcd.store.sqlite import SqliteDatabase
from mlcd.store.store import Store

EVIL = '"\'><img src=x onerror="window.hacked=1"><script>window.hacked=1</script><svg onload=window.hacked=1>{{7*7}}'
FIND = """() => [
    ...document.querySelectorAll('[onerror], [onload], script:not([src]), img[src="x"]')
].map(each => each.outerHTML)"""

PICTURE_FAILED = """() => new Promise((done) => {
    const picture = new Image();
    picture.onerror = done;
    picture.src = '/no-such-picture';
})"""
"""Waits until a picture has failed to load; one of a hostile text, which was asked for before, has failed by then."""


def hostile(table: str, row: dict[str, object]) -> dict[str, object]:
    """A stored row with hostile text wherever there is text that a job, a catalog or a node could have given."""
    inside = json.dumps(EVIL)[1:-1]
    made = {key: value for key, value in row.items() if key != "digest"}
    words = (
        "c7i.xlarge",
        "g5.xlarge",
        "p4d.24xlarge",
        "sim/aws",
        "heterbo",
        '"the ',
        '"a ',
        '"message":"',
        '"name":"watched',
    )
    for key, value in made.items():
        if isinstance(value, str) and value[:1] in "{[":
            made[key] = re.sub("|".join(map(re.escape, words)), lambda found: f"{found[0]}{inside}", value)
    if table == "steps_started":
        made["reason"] = EVIL
    return made


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with one hostile run, and logs of its nodes."""
    plain, folder = tmp_path_factory.mktemp("made"), tmp_path_factory.mktemp("home")
    run_id = mlcd.train(JOB, home=plain).run_id
    source, target = SqliteDatabase(plain), SqliteDatabase(folder)
    for table in FACTS:
        rows = select(source.db, f"SELECT * FROM {table} WHERE run_id = ?", run_id)
        target.write(partial(_insert_all, table, [hostile(table, row) for row in rows]))
    source.close()
    target.close()
    lease = folder / "work" / run_id / "leases" / "lease-1"
    (lease / "node-0").mkdir(parents=True)
    (lease / "job.json").write_text('{"instance": "x"}')
    (lease / "node-0" / "log.txt").write_text(f"{EVIL}\nloss 0.5\n\x1b[31m{EVIL}\n")
    return folder


def _insert_all(table: str, rows: list[dict[str, object]], db: Connection) -> None:
    insert(db, table, rows)


@pytest.fixture(scope="module")
def other_runs(home: Path) -> list[str]:
    """Runs of each kind in the same home, with hostile text wherever the store accepts it: a metric's name, for one."""
    limit = ChatLimit(metric=ChatMetric.TTFT, percentile=99, seconds=1.0)
    samples: dict[str, tuple[AnyRun, tuple[str, ...]]] = {
        "metric-a": (batches_run(), ("accuracy",)),
        "failed-b": (budget_run(), ("p2.xlarge", "greatest expected gain for its price")),
        "tokens-c": (language_model_run(limit), ("toy.onnx", "fp32", "vgg", "the server was killed")),
        "epochs-d": (serverless_run(), ("logistic", "3 functions ran out of memory")),
    }
    with Store(home) as store:
        for name, (run, texts) in samples.items():
            rows, changed = hostile_rows(recorded(replace(run, header=replace(run.header, run_id=name))), EVIL)
            assert changed.issuperset(texts)
            put(store, rows)
    return list(samples)


@pytest.fixture(scope="module")
def server(home: Path, other_runs: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageServer]:
    assert other_runs
    bench = tmp_path_factory.mktemp("bench") / "b.json"
    summary = {"strategy": EVIL, "goal": EVIL, "hours": 1, "runs": 1, "mean_ratio": 1, "ratio_interval": [1, 2]}
    summary |= {"median_ratio": 1, "p95_ratio": 1, "violations": 0, "unfinished": 0, "mean_trials": 1, "probe_share": 0}
    row = {"strategy": EVIL, "workload": EVIL, "probe_usd": 1, "ratio": 1.5}
    bench.write_text(json.dumps({"rows": [row], "summary": [summary]}))
    with page_server(home, "--bench", str(bench)) as found:
        yield found


def test_hostile_text_is_inert_on_every_page(server: PageServer) -> None:
    run_id = next(run["run_id"] for run in server.get("/api/runs")["runs"] if run["run_id"].startswith("watched-"))
    run = quote(run_id, safe="")
    with browser() as chromium:
        page = chromium.new_page()
        page.set_default_timeout(120_000)
        page.goto(f"{server.address}/?token={server.token}")
        assert server.get(f"/api/runs/{run}")["status"] == "done", "the record is read"
        pages = [
            "/",
            f"/?search={quote(EVIL)}",
            f"/runs/{run}",
            f"/runs/{run}/what-if",
            f"/runs/{run}/report",
            "/bench",
            f"/compare?run={run}&run={run}x",
            f"/runs/{quote(EVIL, safe='')}",
            "/catalog",
        ]
        for place in pages:
            page.goto(f"{server.address}{place}")
            if place == f"/runs/{run}":  # every picture and table is drawn, and every picture's table opened
                page.wait_for_selector("#run[data-drawn]")
                page.evaluate("() => { for (const each of document.querySelectorAll('details')) each.open = true }")
                page.wait_for_function(
                    "() => [...document.querySelectorAll('[data-rows]')].every(each => each.querySelector('td'))"
                )
                assert "onerror" in page.locator("[data-rows]").first.inner_text(), "shown as text"
            if place == "/bench":
                page.locator("details.data summary").click()
                page.wait_for_selector("details.data td")
                assert "onerror" in page.locator("details.data").inner_text(), "every point is a row"
            assert_inert(page, place)
        page.goto(f"{server.address}/runs/{run}")
        page.wait_for_function("() => document.querySelector('#log-text').textContent.includes('loss 0.5')")
        text = page.locator("#log-text").inner_text()
        assert "<script>window.hacked=1</script>" in text, "shown as text"
        assert "\x1b" not in text
        page.goto(f"{server.address}/new")
        page.get_by_label("Job file").fill(f"name: '{EVIL.replace(chr(39), '')}'\n")
        page.wait_for_selector("#said.bad")
        assert page.evaluate("() => window.hacked") is None
        assert page.evaluate(FIND) == []


def test_runs_of_every_kind_with_hostile_text_everywhere_are_inert(server: PageServer, other_runs: list[str]) -> None:
    with browser() as chromium:
        page = chromium.new_page()
        page.set_default_timeout(120_000)
        answered: list[tuple[int, str]] = []
        page.on("response", lambda answer: answered.append((answer.status, answer.url)))
        page.goto(f"{server.address}/?token={server.token}")
        for name in other_runs:
            page.goto(f"{server.address}/runs/{name}")
            page.wait_for_selector("#run[data-drawn]")
            page.evaluate("() => { for (const each of document.querySelectorAll('details')) each.open = true }")
            page.wait_for_function(
                "() => [...document.querySelectorAll('[data-rows]')].every(each => each.querySelector('td'))"
            )
            assert "onerror" in page.locator("#run").inner_text(), "shown as text"
            assert_inert(page, name)
            for value in server.get(f"/api/runs/{name}/why-not")["subjects"][:8]:
                page.get_by_label("Why not").select_option(value)
                page.wait_for_selector("#why-not-answers:not([aria-busy]) li")
            assert_inert(page, name)
            page.goto(f"{server.address}/runs/{name}/report")
            assert "onerror" in page.locator("main").inner_text()
            assert_inert(page, f"{name}, report")
        for name in other_runs[1:3]:
            page.goto(f"{server.address}/runs/{name}/what-if")
            page.wait_for_selector("[data-settled]")
            assert_inert(page, f"{name}, what if")
        page.goto(f"{server.address}/compare?{'&'.join(f'run={name}' for name in other_runs)}")
        assert_inert(page, "compare")
        page.goto(f"{server.address}/")
        assert_inert(page, "runs")
        assert [each for each in answered if each[0] >= 500] == []


def assert_inert(page: Any, where: str) -> None:
    if not page.url.endswith("/report"):  # no script runs there, ours neither
        page.evaluate(PICTURE_FAILED)
    assert page.evaluate("() => window.hacked") is None, where
    assert page.evaluate(FIND) == [], where


def with_evil(job: Any) -> Iterator[Any]:
    """The job with hostile text in one place after another: each text, and each name of a field."""
    if isinstance(job, str):
        yield EVIL
        yield job + EVIL
    elif isinstance(job, dict):
        for key, value in job.items():
            rest = {other: each for other, each in job.items() if other != key}
            yield {**rest, EVIL: value}
            yield from ({**rest, key: each} for each in with_evil(value))
    elif isinstance(job, list):
        for at, value in enumerate(job):
            yield from ([*job[:at], each, *job[at + 1 :]] for each in with_evil(value))
    else:
        yield EVIL


def test_hostile_text_in_every_field_of_a_job_file_is_inert(server: PageServer) -> None:
    """As it is typed: the check's message and the dry run are text. Every template of every command."""
    jobs = [yaml.safe_load(template(kind=name)) for name in TEMPLATES]
    texts = [json.dumps(each) for job in jobs for each in with_evil(job)]
    assert len(texts) > 500
    with browser() as chromium:
        page = chromium.new_page()
        page.set_default_timeout(120_000)
        page.goto(f"{server.address}/?token={server.token}")
        page.goto(f"{server.address}/new")
        page.wait_for_selector("#expected dl")
        told = page.evaluate(CHECK_ALL, texts)
        assert len(told) == len(texts)
        assert sum("onerror" in each for each in told) > len(texts) / 4, "messages quote what is wrong"
        assert_inert(page, "new run")


CHECK_ALL = """async (texts) => {
    const job = document.getElementById('job'), said = document.getElementById('said'), told = [];
    const wait = window.setTimeout.bind(window);
    window.setTimeout = (call, ms) => (ms <= 300 ? wait(call, 0) : 0);  // typed without pauses; no dry runs
    for (const text of texts) {
        const answered = new Promise((done) => {
            const seen = new MutationObserver(() => { seen.disconnect(); done(); });
            seen.observe(said, { childList: true, characterData: true, subtree: true, attributes: true });
            wait(done, 2000);
        });
        job.value = text;
        job.dispatchEvent(new Event('input'));
        await answered;
        told.push(said.textContent);
        if (said.querySelector('*')) throw new Error(`markup in the message about ${text}`);
    }
    return told;
}"""
