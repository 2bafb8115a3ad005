"""The live page over a team's store on PostgreSQL: a run is followed there too, also when its server was away."""

from pathlib import Path
from typing import Any

import pytest
from tests.postgres_server import Server
from tests.ui_page import (
    PATIENCE_MS,
    amount,
    browser,
    first_run,
    held_run,
    page_server,
    release,
    watch_to_the_end,
    window,
)

import mlcd
from mlcd.store.postgres import RECONNECT_SECONDS
from mlcd.store.store import Store


def test_run_in_a_teams_store_is_watched_to_its_verdict(
    team: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLCD_STORE", team)
    gate = tmp_path / "watched"
    with page_server(tmp_path) as server, browser() as chromium, window(chromium, server) as page:
        process = held_run(tmp_path, gate)
        run_id = first_run(server, process)
        page.goto(f"{server.address}/runs/{run_id}")
        page.wait_for_selector(".link.on")
        watch_to_the_end(page, gate, process)
        with Store(tmp_path) as store:
            spent = store.load(run_id).spent
        assert amount(page, "spent_usd") == spent.dollars
        assert isinstance(mlcd.load(run_id, home=tmp_path), mlcd.Result)
        page.goto(f"{server.address}/")
        assert page.get_by_role("link", name=run_id).count() == 1


def test_page_says_that_the_teams_server_is_away_and_finds_it_again(
    postgres: Server, team: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLCD_STORE", team)
    with page_server(tmp_path) as server, browser() as chromium, window(chromium, server) as page:
        gate = tmp_path / "go-on"
        release(gate)
        process = held_run(tmp_path, gate)
        assert process.wait(PATIENCE_MS / 1000) == 0
        run_id = str(server.get("/api/runs")["runs"][0]["run_id"])
        page.goto(f"{server.address}/runs/{run_id}")
        page.wait_for_selector(".link.on")
        postgres.kill()
        try:
            page.wait_for_selector(".link.off", timeout=RECONNECT_SECONDS * 500)  # sooner than an engine gives up
            assert problem(page, f"{server.address}/").startswith("This cannot be shown")
            page.goto(f"{server.address}/new")
            assert page.locator("h1").inner_text() == "New run", "pages that need no store are there"
        finally:
            postgres.start()
        page.goto(f"{server.address}/runs/{run_id}")
        page.wait_for_selector(".head .state.done")


def problem(page: Any, address: str) -> str:
    page.goto(address)
    return str(page.locator("main").inner_text())
