"""`mlcd ui` for tests: its server as a process, a headless Chromium, and runs that wait for whoever watches them."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

_axe = find_spec("axe_playwright_python")
AXE = Path(_axe.origin).with_name("axe.min.js").read_text(encoding="utf-8") if _axe and _axe.origin else ""
"""axe-core, which finds faults of accessibility; "" where it is not installed."""
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
PATIENCE_MS = 120_000
"""How long something may take on a machine that has much else to do."""
SERIOUS = ("serious", "critical")
JOB = {
    "name": "watched",
    "resources": {"infra": "sim/aws", "instance_type": ["c7i.xlarge", "g5.xlarge", "p4d.24xlarge"]},
    "num_nodes": "1..8",
    "job": {"model": "resnet152", "samples": 1281167, "epochs": 20, "batch": 1024},
    "goal": {"minimize": "time", "budget": "300 USD"},
    "search": {"strategy": "heterbo", "max_trials": 9},
}
"""A simulated training: a dozen of trials in a second or two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageServer:
    """A running `mlcd ui`: its address, and the secret in it."""

    address: str
    token: str
    process: "subprocess.Popen[str]"

    def get(self, path: str) -> Any:
        """The JSON answer of the API."""
        request = Request(f"{self.address}{path}", headers={"Authorization": f"Bearer {self.token}"})
        with urlopen(request, timeout=120) as answer:
            return json.load(answer)

    def end(self, sign: int = signal.SIGTERM) -> None:
        self.process.send_signal(sign)
        self.process.wait(120)


def environment(home: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "MLCD_HOME": str(home), "NO_COLOR": "1", **more}


@contextmanager
def page_server(home: Path, *options: str, cwd: Path | None = None) -> Iterator[PageServer]:
    """`mlcd ui` on a free port, until the end of the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mlcd", "ui", "--no-open", "-o", "json", *options],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(home),
        cwd=cwd or home,
    )
    try:
        assert process.stdout is not None
        text = ""
        while not text.rstrip().endswith("}"):
            line = process.stdout.readline()
            assert line, "mlcd ui ended before it was ready"
            text += line
        whole, _, token = json.loads(text)["address"].partition("?token=")
        scheme, _, rest = whole.partition("://")
        yield PageServer(address=f"{scheme}://{rest.partition('/')[0]}", token=token, process=process)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close() if process.stdout else None


@contextmanager
def browser() -> Iterator[Any]:
    """A headless Chromium; skips the test where there is none: scripts/setup-browser installs it."""
    if not CHROMIUM:
        pytest.skip("there is no chromium: scripts/setup-browser installs it")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        found = started.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        try:
            yield found
        finally:
            found.close()


HELD_RUN = """
import json, sys, time
from pathlib import Path
import mlcd
from mlcd.events import StepStarted

gate = Path(sys.argv[2])

def released():
    try:
        return int(gate.read_text() or 0)
    except FileNotFoundError:
        return 0

def wait(event):
    if isinstance(event, StepStarted):
        while event.step.number > released():
            time.sleep(0.02)

mlcd.train(json.loads(sys.argv[1]), observer=wait)
"""
EVERY_STEP = 10**6


def held_run(home: Path, gate: Path) -> "subprocess.Popen[bytes]":
    """A run of the real engine that waits in each step until `release` lets it go on: no test races with it."""
    return subprocess.Popen(
        [sys.executable, "-c", HELD_RUN, json.dumps(JOB), str(gate)], env=environment(home), cwd=home
    )


def release(gate: Path, steps: int = EVERY_STEP) -> None:
    """Let the first so many steps of a held run end."""
    gate.write_text(str(steps))


def watch_to_the_end(page: Any, gate: Path, process: "subprocess.Popen[bytes]", *, trials: int = 3) -> None:
    """Release one trial after another, each once the page shows the one before; then all, until the run is done."""
    for shown in range(trials + 1):
        page.wait_for_function(
            "text => document.querySelector('[data-live=trials]').textContent === text", arg=str(shown)
        )
        assert page.locator(".head .state").first.inner_text() == "running"
        release(gate, shown + 1)
    release(gate)
    assert process.wait(PATIENCE_MS / 1000) == 0
    page.wait_for_selector(".head .state.done")


class window:  # noqa: N801 - used as a context manager
    """A window of the browser, with options of Playwright's contexts."""

    def __init__(self, chromium: Any, server: PageServer, **options: Any) -> None:
        self._context = chromium.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        self._page = self._context.new_page()
        self._page.set_default_timeout(PATIENCE_MS)
        self._server, self._problems = server, list[str]()

    def __enter__(self) -> Any:
        self._page.on("pageerror", lambda error: self._problems.append(str(error)))
        self._page.on("console", lambda line: self._problems.append(line.text) if line.type == "error" else None)
        self._page.goto(f"{self._server.address}/?token={self._server.token}")
        return self._page

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._context.close()
        problems = [each for each in self._problems if "ERR_" not in each and "status of" not in each]
        assert kind is not None or problems == [], problems


def amount(page: Any, name: str) -> float:
    return float(page.locator(f'[data-live="{name}"]').first.get_attribute("data-usd"))


def check_access(page: Any) -> None:
    """axe-core finds no serious fault."""
    if not AXE:
        pytest.skip("axe-playwright-python is not installed: scripts/setup-venv test")
    page.evaluate(AXE)
    found = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")["violations"]
    told = [
        f"{each['id']}: {each['help']}: {[node['html'][:120] for node in each['nodes'][:3]]}"
        for each in found
        if each["impact"] in SERIOUS
    ]
    assert told == [], told


def first_run(server: PageServer, process: Any) -> str:
    """The name of the run that goes on, once it is listed."""
    while True:
        found = [run for run in server.get("/api/runs")["runs"] if run["state"] == "running"]
        if found:
            return str(found[0]["run_id"])
        assert process.poll() is None
        time.sleep(0.1)
