"""`mlcd.ui` in a notebook: the live page in a frame, from a server that ends with the process."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.request import HTTPCookieProcessor, build_opener

import pytest
from tests.ui_page import JOB, browser

import mlcd
from mlcd.api import live_page
from mlcd.errors import BadInput


def test_result_is_shown_live(tmp_path: Path) -> None:
    result = mlcd.train({**JOB, "search": {"strategy": "heterbo", "max_trials": 1}}, home=tmp_path)
    shown = mlcd.ui(result, home=tmp_path)
    process = live_page._servers[tmp_path][0]
    try:
        html = shown._repr_html_()
        assert re.search(
            rf'<iframe id="mlcd-[0-9a-f]+" src="http://localhost:[0-9]+/runs/{result.run_id}\?token=', html
        )
        with build_opener(HTTPCookieProcessor()).open(
            shown.address, timeout=120
        ) as answer:  # the token in the address is answered by a cookie and the page
            assert "frame-ancestors 'self' http://localhost:*" in answer.headers["content-security-policy"]
        assert mlcd.ui(home=tmp_path).address.startswith(shown.address.partition("/runs/")[0]), "one server for all"
        with pytest.raises(BadInput, match="height"):
            mlcd.ui(result, height=5)
        with pytest.raises(BadInput, match="run"):
            mlcd.ui(5)  # type: ignore[arg-type]
    finally:
        process.terminate()
        process.wait(120)


@contextmanager
def notebook(html: str) -> Iterator[int]:
    """A page of another server on this machine that shows what a cell answered; its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(f"<!doctype html><body>{html}</body>".encode())

        def log_message(self, *values: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def test_frame_is_live_in_notebooks_of_both_names_of_this_machine(tmp_path: Path) -> None:
    result = mlcd.train(JOB, home=tmp_path)
    shown = mlcd.ui(result, home=tmp_path)
    process = live_page._servers[tmp_path][0]
    try:
        with notebook(shown._repr_html_()) as port, browser() as chromium:
            for host in ("localhost", "127.0.0.1"):
                page = chromium.new_context().new_page()
                page.goto(f"http://{host}:{port}/")
                frame = page.frame_locator("iframe")
                frame.locator(".link.on").wait_for(timeout=120_000)
                assert frame.locator("h1").inner_text() == result.run_id
                assert result.best is not None
                assert frame.locator("[data-live=best]").inner_text() == str(result.best.config)
    finally:
        process.terminate()
        process.wait(120)


def test_result_in_a_notebook_is_the_report(tmp_path: Path) -> None:
    """The same templates and pictures as the page and `mlcd report`, without anything to load."""
    result = mlcd.train(JOB, home=tmp_path)
    html = result._repr_html_()
    report = tmp_path / "report.html"
    result.report(report)
    whole = report.read_text(encoding="utf-8")
    for name in ("picture-map", "picture-speed", "decisions"):
        assert f'id="{name}"' in html
        assert f'id="{name}"' in whole
    assert "<script" not in html
    assert "<html" not in html
