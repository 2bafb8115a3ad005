"""The JSON API of `mlcd ui`: as its OpenAPI document says, without errors of the server, and closed to others."""

import http.client
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import HTTPCookieProcessor, Request, build_opener, urlopen

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import positive_data_acceptance
from tests.ui_page import EVERY_STEP, JOB, PageServer, environment, first_run, held_run, page_server, release

import mlcd

EXAMPLES = [12, pytest.param(400, marks=pytest.mark.extra)]
"""Requests that are made up for each operation."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def result(home: Path) -> mlcd.Result:
    return mlcd.train(JOB, home=home)


@pytest.fixture(scope="module")
def server(home: Path, result: mlcd.Result) -> Iterator[PageServer]:
    assert result
    with page_server(home) as found:
        yield found


def asked(server: PageServer, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, Any]:
    """(status, value) of a request with the token, and with these headers in place of the usual ones."""
    given = {
        "host": server.address.partition("//")[2],
        "authorization": f"Bearer {server.token}",
        "x-mlcd-ui": "1",
        "content-type": "application/json",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    link = http.client.HTTPConnection(server.address.partition("//")[2], timeout=120)
    try:
        link.request(method, path, body or None, {name: value for name, value in given.items() if value})
        answer = link.getresponse()
        text = answer.read()
        kind = answer.getheader("content-type") or ""
        return answer.status, json.loads(text) if kind.startswith("application/json") else text
    finally:
        link.close()


def test_document_is_valid_and_names_every_answer(server: PageServer) -> None:
    document = server.get("/api/openapi.json")
    assert document["openapi"].startswith("3.1")
    schemathesis.openapi.from_dict(document).validate()
    assert {"/api/runs", "/api/runs/{run_id}", "/api/runs/{run_id}/what-if", "/api/check"} <= set(document["paths"])


@pytest.mark.parametrize("examples", EXAMPLES)
def test_made_up_requests_never_break_the_server(server: PageServer, result: mlcd.Result, examples: int) -> None:
    """schemathesis makes requests up from the document: every answer is as it says, and none is an error of ours."""
    schema = schemathesis.openapi.from_dict(server.get("/api/openapi.json"))
    statuses = set[int]()
    for found in schema.get_all_operations():
        operation: Any = found.ok()  # type: ignore[union-attr]
        if not operation.path.endswith("/events"):  # which never ends
            statuses |= statuses_of(operation, server, result.run_id, examples)
    assert {200, 400, 404} <= statuses


def statuses_of(operation: Any, server: PageServer, run_id: str, examples: int) -> set[int]:
    """The statuses of requests that are made up for one operation; every second one is about a run that there is."""
    seen: list[int] = []

    @settings(
        max_examples=examples,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
        derandomize=True,
        database=None,
    )
    @given(case=operation.as_strategy())
    def check(case: Any) -> None:
        if "run_id" in (case.path_parameters or {}) and len(seen) % 2:
            case.path_parameters["run_id"] = run_id
        headers = {"Authorization": f"Bearer {server.token}", "X-Mlcd-Ui": "1"}
        answer = case.call(base_url=server.address, headers=headers)
        seen.append(answer.status_code)
        assert answer.status_code < 500, answer.text[:500]
        case.validate_response(answer, excluded_checks=[positive_data_acceptance])  # not every text is a job file

    check()
    return set(seen)


def test_run_is_answered_as_the_command_prints_it(server: PageServer, result: mlcd.Result) -> None:
    assert server.get(f"/api/runs/{result.run_id}") == json.loads(result.to_json())


@pytest.mark.parametrize("name", ["host", "origin"])
@pytest.mark.parametrize("value", ["evil.example", "http://evil.example", "localhost:1", "null"])
def test_foreign_host_or_origin_is_refused(server: PageServer, name: str, value: str) -> None:
    status, answer = asked(server, "GET", "/api/runs", b"", **{name: value})
    assert status == 403
    assert "error" in answer


@pytest.mark.parametrize("offset", ["%C2%B2", "%D9%A3", "-1", "9" * 17, "9" * 5000, "x", "%00", "%ED%A0%80"])
def test_an_offset_that_is_no_number_shows_the_first_page_or_none(server: PageServer, offset: str) -> None:
    assert asked(server, "GET", f"/?offset={offset}")[0] == 200
    assert asked(server, "GET", f"/api/runs?offset={offset}")[0] == 400


def test_nothing_is_answered_without_the_token(server: PageServer) -> None:
    for path in ("/", "/api/runs", "/static/ui.js", "/api/openapi.json"):
        assert asked(server, "GET", path, authorization="")[0] == 401


def test_other_sites_cannot_start_anything(server: PageServer) -> None:
    body = json.dumps({"job": json.dumps(JOB)}).encode()
    assert asked(server, "POST", "/api/runs", body, x_mlcd_ui="")[0] == 403
    assert asked(server, "POST", "/api/runs", body, content_type="text/plain")[0] == 415
    assert asked(server, "POST", "/api/runs", body, origin="http://evil.example")[0] == 403
    assert len(server.get("/api/runs")["runs"]) == 1


def test_clouds_that_charge_are_refused(server: PageServer) -> None:
    job = {**JOB, "resources": {"infra": "aws", "instance_type": ["g5.xlarge"]}, "run": "python train.py"}
    status, answer = asked(server, "POST", "/api/runs", json.dumps({"job": json.dumps(job)}).encode())
    assert status == 400
    assert "--allow-spend" in answer["error"]


def test_no_path_of_the_address_reaches_the_disk(server: PageServer, home: Path) -> None:
    secret = home / "secret.txt"
    secret.write_text("do not tell")
    for path in (
        "/static/../secret.txt",
        "/static/%2e%2e%2fsecret.txt",
        "/static/..%5csecret.txt",
        f"/api/runs/{quote('../../secret.txt', safe='')}",
        "/api/runs/..%2f..%2fui-token/now",
        "/runs/%00/report",
        "//etc/passwd",
    ):
        status, answer = asked(server, "GET", path)
        assert status in (400, 403, 404), path
        assert b"do not tell" not in (json.dumps(answer).encode() if isinstance(answer, dict) else answer)


def test_no_answer_has_a_secret(tmp_path: Path) -> None:
    job = {
        "name": "keys",
        "resources": {"infra": "local"},
        "num_nodes": 1,
        "run": "python -c 'print(1)'",
        "envs": {"API_KEY": "sk-verysecret"},
        "job": {"samples": 10},
        "goal": {"minimize": "time"},
        "search": {"max_trials": 1},
    }
    with page_server(tmp_path) as server:
        body = json.dumps({"job": json.dumps(job)}).encode()
        status, answer = asked(server, "POST", "/api/runs", body)
        assert status in (201, 400), answer
        assert "sk-verysecret" not in json.dumps(answer)
        for run in server.get("/api/runs")["runs"]:
            for path in ("", "/now", "/logs"):
                assert "sk-verysecret" not in json.dumps(server.get(f"/api/runs/{run['run_id']}{path}"))
            for path in (f"/runs/{run['run_id']}", f"/runs/{run['run_id']}/report"):
                assert b"sk-verysecret" not in asked(server, "GET", path)[1]
        assert server.token not in json.dumps(server.get("/api/runs"))


def test_stalled_client_blocks_neither_the_engine_nor_others(tmp_path: Path) -> None:
    """Clients that ask for events and never read: the run ends, and another client is told of every step."""
    gate = tmp_path / "go-on"
    with page_server(tmp_path) as server:
        process = held_run(tmp_path, gate)
        run_id = first_run(server, process)
        host, _, port = server.address.partition("//")[2].partition(":")
        stalled = []
        for _ in range(20):
            link = socket.create_connection((host, int(port)))
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            link.sendall(
                f"GET /api/runs/{run_id}/events HTTP/1.1\r\nHost: {host}:{port}\r\n"
                f"Authorization: Bearer {server.token}\r\n\r\n".encode()
            )
            stalled.append(link)
        allowed = {"Authorization": f"Bearer {server.token}"}
        told = []
        with urlopen(Request(f"{server.address}/api/runs/{run_id}/events", headers=allowed), timeout=120) as events:
            for line in events:
                if line.startswith(b"data: "):
                    told.append(json.loads(line[6:]))
                    release(gate, told[-1]["trials"] + 1 if told[-1]["trials"] < 5 else EVERY_STEP)
                    if told[-1]["state"] == "done":
                        break
        assert process.wait(120) == 0
        assert {each["trials"] for each in told} >= set(range(6)), "told of each step, while the others stall"
        assert server.get(f"/api/runs/{run_id}/now")["state"] == "done"
        for link in stalled:
            link.close()


def test_browser_is_started_without_the_token(tmp_path: Path) -> None:
    """Every user of a machine may read command lines."""
    seen, program = tmp_path / "seen", tmp_path / "browser"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {seen}.part && mv {seen}.part {seen}\n')
    program.chmod(0o755)
    home = tmp_path / "home"
    process = subprocess.Popen(
        [sys.executable, "-m", "mlcd", "ui", "-o", "json"],
        stdout=subprocess.DEVNULL,
        env=environment(home, BROWSER=f"{program} %s"),
        cwd=tmp_path,
    )
    try:
        while not seen.exists():
            assert process.poll() is None
            time.sleep(0.05)
        (address,) = seen.read_text().splitlines()
        assert (home / "ui-token").read_text() not in address
        jar = HTTPCookieProcessor()
        with build_opener(jar).open(address, timeout=60) as answer:
            assert answer.url == address.partition("?")[0]
        with build_opener(jar).open(answer.url, timeout=60) as again:
            assert again.status == 200
        with pytest.raises(HTTPError, match="401"):
            build_opener(HTTPCookieProcessor()).open(address, timeout=60)
    finally:
        process.terminate()
        process.wait(60)
