"""`mlcd.ui` in a notebook: the live page in a frame, from a server that ends with the process."""

import re
from pathlib import Path
from urllib.request import HTTPCookieProcessor, build_opener

import pytest
from tests.ui_page import JOB

import mlcd
from mlcd.api import live_page
from mlcd.errors import BadInput


def test_result_is_shown_live(tmp_path: Path) -> None:
    result = mlcd.train({**JOB, "search": {"strategy": "heterbo", "max_trials": 1}}, home=tmp_path)
    shown = mlcd.ui(result, home=tmp_path)
    process = live_page._servers[tmp_path][0]
    try:
        html = shown._repr_html_()
        assert re.search(rf'<iframe src="http://localhost:[0-9]+/runs/{result.run_id}\?token=', html)
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
