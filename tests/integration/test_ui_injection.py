"""What jobs, nodes and files say is shown as text: in the browser, none of it runs."""

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from urllib.parse import quote

import pytest
from tests.ui_page import JOB, PageServer, browser, page_server

import mlcd
from mlcd.store.database import Connection
from mlcd.store.rows import FACTS, insert, select
from mlcd.store.sqlite import SqliteDatabase

EVIL = '"\'><img src=x onerror="window.hacked=1"><script>window.hacked=1</script><svg onload=window.hacked=1>{{7*7}}'
FIND = """() => [
    ...document.querySelectorAll('[onerror], [onload], script:not([src]), img[src="x"]')
].map(each => each.outerHTML)"""


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
def server(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageServer]:
    bench = tmp_path_factory.mktemp("bench") / "b.json"
    summary = {"strategy": EVIL, "goal": EVIL, "hours": 1, "runs": 1, "mean_ratio": 1, "ratio_interval": [1, 2]}
    summary |= {"median_ratio": 1, "p95_ratio": 1, "violations": 0, "unfinished": 0, "mean_trials": 1, "probe_share": 0}
    row = {"strategy": EVIL, "workload": EVIL, "probe_usd": 1, "ratio": 1.5}
    bench.write_text(json.dumps({"rows": [row], "summary": [summary]}))
    with page_server(home, "--bench", str(bench)) as found:
        yield found


def test_hostile_text_is_inert_on_every_page(server: PageServer) -> None:
    run_id = server.get("/api/runs")["runs"][0]["run_id"]
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
            page.wait_for_timeout(400)
            assert page.evaluate("() => window.hacked") is None, place
            assert page.evaluate(FIND) == [], place
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
