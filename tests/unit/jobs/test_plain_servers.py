"""Servers that are commands and do not stream tokens: `server.api: oip` and `http`."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from tests import hostile_server, plain_server
from tests.tiny_onnx import WIDTH, write_mlp

from mlcd.cli.main import run as mlcd
from mlcd.spec.serve import Api
from mlcd.spec.serving import parse_serve

PYTHON = shlex.quote(sys.executable)
HTTP = f"exec {PYTHON} {shlex.quote(plain_server.__file__)} $DELAY ; : $PORT"
HTTP_JOB: dict[str, Any] = {
    "name": "plain",
    "server": {"run": HTTP, "api": "http", "path": "/predict", "body": {"text": "hello"}, "ready": "/up"},
    "knobs": {"DELAY": [1, 400]},
    "load": {"concurrency": 4, "verify": "1s"},
    "goal": {"maximize": "requests per dollar", "slo": {"p95": "60s"}},
    "search": {"max_trials": 2, "trial": {"seconds": "4s", "watchdog": "60s"}},
}
OIP_JOB: dict[str, Any] = {
    **HTTP_JOB,
    "name": "tensors",
    "model": "tiny.onnx",
    "server": {
        "run": f"exec {PYTHON} -m mlcd.server $MODEL --batch $BATCH --host $HOST --port $PORT",
        "api": "oip",
        "name": "tiny",
    },
    "inputs": {"x": f"FP32:{WIDTH}"},
    "knobs": {"BATCH": [4]},
    "goal": {"maximize": "requests per dollar", "slo": {"p95": "5s"}},
    "search": {"max_trials": 1, "trial": {"seconds": "5s", "watchdog": "120s"}},
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    write_mlp(tmp_path / "tiny.onnx")
    return tmp_path


def served(folder: Path, job: dict[str, Any], *flags: str) -> int:
    (folder / "job.yaml").write_text(json.dumps(job))
    return mlcd(["serve", "job.yaml", *flags])


def test_a_search_over_plain_http(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert served(home, HTTP_JOB, "--write", "skyserve", "files", "-o", "json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["choice"]["config"] == {"DELAY": 1}
    assert said["choice"]["load"]["errors"] == 0
    assert said["choice"]["load"]["tokens"] is None
    assert said["load"]["scenario"] == "server"
    (slow,) = (trial for trial in said["trials"] if trial["config"] == {"DELAY": 400})
    assert slow["measured"]["load"]["p50_seconds"] >= 0.4
    assert "DELAY" in (home / "files" / "service.yaml").read_text()
    assert mlcd(["show", said["run_id"]]) == 0
    assert "Serve with: DELAY=1" in capsys.readouterr().out


def test_a_search_over_the_open_inference_protocol(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert served(home, OIP_JOB, "-o", "json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["choice"]["config"] == {"BATCH": 4}
    assert said["choice"]["load"]["errors"] == 0
    assert said["choice"]["requests_per_second"] > 0


def test_a_server_of_the_protocol_has_its_own_place_to_ask(home: Path) -> None:
    spec = parse_serve(json.dumps(OIP_JOB))
    assert spec.server is not None
    assert (spec.server.api, spec.server.ready) == (Api.OIP, "/v2/health/ready")
    own = parse_serve(json.dumps({**OIP_JOB, "server": {**OIP_JOB["server"], "ready": "/up"}}))
    assert own.server is not None
    assert own.server.ready == "/up"


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (f"{HTTP[:-9]} refuses; : $PORT", "with status 503: not today"),
        (f"{HTTP[:-9]} unsized; : $PORT", "does not say its length"),
        (f"{HTTP[:-9]} slow; : $PORT", "no whole answer came within"),
        (f"exec {PYTHON} {shlex.quote(hostile_server.__file__)} garbage; : $PORT $DELAY", "does not answer as plain"),
        (f"exec {PYTHON} {shlex.quote(hostile_server.__file__)} die; : $PORT $DELAY", "the server ended"),
        (f"exec {PYTHON} {shlex.quote(hostile_server.__file__)} endless; : $PORT $DELAY", "does not say its length"),
    ],
    ids=["refuses", "unsized", "slow", "garbage", "dies", "endless"],
)
def test_a_server_that_fails_is_a_failed_trial(
    home: Path, run: str, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("mlcd.loadgen.first_answer.LONGEST_ANSWER_SECONDS", 3.0)
    search = {"max_trials": 1, "trial": {"seconds": "3s", "watchdog": "10s", "retries": 0}}
    job = {**HTTP_JOB, "server": {**HTTP_JOB["server"], "run": run}, "knobs": {"DELAY": [1]}, "search": search}
    assert served(home, job) == 6
    assert words in capsys.readouterr().out


def test_an_endpoint_of_another_kind_is_told(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = f"exec {PYTHON} {shlex.quote(plain_server.__file__)} 1; : $PORT $BATCH"
    job = {**OIP_JOB, "server": {**OIP_JOB["server"], "run": run}}
    assert served(home, job) == 6
    assert "the server answers /v2/models/tiny/infer with status" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("job", "changes", "words"),
    [
        (HTTP_JOB, {"server": {"run": HTTP, "api": "http", "body": {}}}, "server.path: is missing"),
        (HTTP_JOB, {"server": {"run": HTTP, "api": "http", "path": "/predict"}}, "server.body: is missing"),
        (HTTP_JOB, {"inputs": {"x": "FP32:8"}}, "inputs: are not used with server.api: http"),
        (HTTP_JOB, {"load": {"input_tokens": 5}}, "load.input_tokens"),
        (HTTP_JOB, {"goal": {"maximize": "tokens per dollar"}}, "requests per dollar"),
        (HTTP_JOB, {"server": {**HTTP_JOB["server"], "api": "grpc"}}, "openai, oip, http"),
        (OIP_JOB, {"inputs": {}}, "inputs: are missing"),
        (OIP_JOB, {"server": {**OIP_JOB["server"], "path": "/x"}}, "server.path: is not used with server.api: oip"),
        (OIP_JOB, {"goal": {"maximize": "rate", "slo": {"ttft_p99": "1s"}}}, "not a percentile"),
    ],
)
def test_what_is_wrong_gets_one_line(
    home: Path, job: dict[str, Any], changes: dict[str, Any], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert served(home, {**job, **changes}, "--dry-run") == 2
    said = capsys.readouterr().err
    assert words in said
    assert len(said.strip().splitlines()) <= 3
