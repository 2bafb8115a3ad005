"""Servers that are commands: what a job file may say, and a whole search over one whose times are known."""

import json
import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests import chat_server

from mlcd.cli.main import run as run_mlcd
from mlcd.clouds.serving import CommandServing
from mlcd.errors import SpecError
from mlcd.loadgen.chat import ChatLimit, ChatMetric
from mlcd.space import Config
from mlcd.spec.serving import parse_serve, with_flags

RUN = f"exec {shlex.quote(sys.executable)} {shlex.quote(chat_server.__file__)} --port $PORT --slots $SLOTS"
JOB: dict[str, Any] = {
    "name": "toy",
    "server": {"run": RUN, "name": "toy"},
    "knobs": {"SLOTS": [1, 4]},
    "load": {"input_tokens": 16, "output_tokens": 8, "concurrency": 8, "verify": "1s"},
    "goal": {"maximize": "tokens per dollar", "slo": {"ttft_p95": "1s", "tpot_p95": "200ms"}},
    "search": {"max_trials": 2, "trial": {"seconds": "3s"}},
}


@dataclass(frozen=True, kw_only=True)
class Answer:
    exit_code: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        return self.stdout + self.stderr


@pytest.fixture
def run_cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """mlcd in this process."""

    def run(*arguments: str) -> Answer:
        code = run_mlcd(list(arguments))
        said = capsys.readouterr()
        return Answer(exit_code=code, stdout=said.out, stderr=said.err)

    return run


def text(**changes: Any) -> str:
    return json.dumps({**JOB, **changes})


def test_the_fields_of_a_command() -> None:
    spec = parse_serve(text(model="org/llama", server={"run": RUN, "ready": "/up", "body": {"ignore_eos": True}}))
    assert spec.server is not None
    assert (spec.server.ready, spec.server.path, spec.server.body) == (
        "/up",
        "/v1/chat/completions",
        {"ignore_eos": True},
    )
    assert spec.declared_knobs == {"SLOTS": (1, 4)}
    assert spec.search.strategy == "heterbo", "nothing is known of such a server"
    assert spec.goal.token_limits == (
        ChatLimit(metric=ChatMetric.TTFT, percentile=95, seconds=1.0),
        ChatLimit(metric=ChatMetric.TPOT, percentile=95, seconds=0.2),
    )
    changed = with_flags(spec, {"slo": "e2e_p99=3s,ttft_p50=100ms", "strategy": "random"})
    assert [limit.name for limit in changed.goal.token_limits] == ["e2e_p99", "ttft_p50"]
    assert changed.search.strategy == "random"
    assert parse_serve(text(search={"strategy": "exhaustive"})).search.strategy == "exhaustive"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"knobs": {"SLOTS": [1], "UNUSED": [1, 2]}}, r"knobs\.UNUSED.*not used in server\.run"),
        ({"server": {"run": "serve --slots $SLOTS", "name": "x"}}, r"server\.run.*must listen on \$PORT"),
        ({"server": {"run": RUN + " $MODEL", "name": "x"}}, "model.*is missing"),
        ({"server": {"run": RUN}}, r"server\.name.*is missing"),
        ({"server": {"run": RUN, "name": "x", "api": "oip"}}, "server.api.*openai"),
        ({"server": {"run": RUN, "name": "x", "ready": "health"}}, "server.ready.*not a path"),
        ({"server": {"name": "x"}}, "server.run.*is missing"),
        ({"knobs": {"PORT": [1]}}, "knobs.PORT.*set by mlcd"),
        ({"knobs": {"a-b": [1]}}, "not a variable's name"),
        ({"knobs": {"SLOTS": []}}, "knobs.SLOTS"),
        ({"knobs": {"SLOTS": [1, 1]}}, "knobs.SLOTS.*repeats"),
        ({"knobs": {"SLOTS": [True]}}, "quotes"),
        ({"knobs": {"SLOTS": ["a\nb"]}}, "line of text"),
        ({"goal": {"maximize": "tokens per dollar", "slo": {"p99": "50ms"}}}, "ttft_p50"),
        ({"goal": {"maximize": "tokens per dollar", "slo": {"ttft_p90": "50ms"}}}, "did you mean|ttft_p"),
        ({"goal": {"maximize": "requests per dollar"}}, "tokens per dollar"),
        ({"load": {"scenario": "server"}}, "load.scenario"),
        ({"load": {"input_tokens": 4, "shared_tokens": 9}}, "shared_tokens"),
        ({"load": {"concurrency": 10**9}}, "concurrency"),
        ({"search": {"strategy": "falcon"}}, "falcon needs tables"),
        ({"model": "./nothing-there", "server": {"run": RUN + " $MODEL"}}, "no such file or folder"),
        ({"resources": {"prices": {"local.2": "1 USD"}}}, "has all of the machine"),
    ],
)
def test_what_is_wrong_gets_one_line(
    changes: dict[str, Any], words: str, tmp_path: Path, run_cli: Callable[..., Answer]
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text(**changes))
    found = run_cli("serve", str(file), "--dry-run")
    assert found.exit_code == 2, found.output
    assert re.search(words, found.stderr, re.S), found.stderr
    assert "Traceback" not in found.stderr


def test_an_onnx_job_has_no_tokens() -> None:
    with pytest.raises(SpecError, match="not a percentile"):
        parse_serve(
            json.dumps({"name": "x", "model": "x.onnx", "goal": {"maximize": "rate", "slo": {"ttft_p99": "1s"}}})
        )
    with pytest.raises(SpecError, match="requests per dollar"):
        parse_serve(json.dumps({"name": "x", "model": "x.onnx", "goal": {"maximize": "tokens per dollar"}}))


def test_knobs_and_the_port_are_variables_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLCD_HOME", "/secret")
    cloud = CommandServing("serve $SEQS", home=tmp_path, noise=0.0, folder=tmp_path, model="m", cpus=(0,))
    launch = cloud.launch(Config.of({"SEQS": 16, "DTYPE": "bf16"}))
    port = launch.address.rpartition(":")[2]
    assert {name: launch.env[name] for name in ("SEQS", "DTYPE", "MODEL", "PORT", "HOST")} == {
        "SEQS": "16",
        "DTYPE": "bf16",
        "MODEL": "m",
        "PORT": port,
        "HOST": "127.0.0.1",
    }
    assert "MLCD_HOME" not in launch.env
    assert launch.model == "m"


def test_a_search_over_a_command_finds_the_most_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_cli: Callable[..., Answer]
) -> None:
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    file = tmp_path / "job.yaml"
    file.write_text(text())
    found = run_cli("serve", str(file), "-o", "json")
    assert found.exit_code == 0, found.output
    result = json.loads(found.stdout)
    assert result["choice"]["config"] == {"SLOTS": 4}
    tokens = result["choice"]["load"]["tokens"]
    assert tokens["output_tokens"] == 8
    assert len(tokens["ttft_seconds"]) == 3
    assert [limit["metric"] for limit in result["goal"]["token_limits"]] == ["ttft", "tpot"]
    measured = {trial["config"]["SLOTS"]: trial["measured"] for trial in result["trials"]}
    assert measured[4]["requests_per_second"] > 2 * measured[1]["requests_per_second"]
    assert len(measured[4]["load"]["tokens"]["front"]) >= 3
    price = result["choice"]["usd_per_million_requests"]
    assert result["choice"]["usd_per_million_output_tokens"] == pytest.approx(price / 8, rel=0.01)
    shown = run_cli("show").stdout
    assert "most tokens per dollar with ttft p95 within 1 s and tpot p95 within 200 ms" in shown
    assert "time to first token" in shown


@pytest.mark.parametrize(
    ("fault", "words"),
    [("--fault status", "status 503"), ("--fault endless", "does not end"), ("; exit 3", "the server ended")],
)
def test_a_server_that_fails_is_a_failed_trial(
    fault: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_cli: Callable[..., Answer]
) -> None:
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    run = RUN.replace("$SLOTS", f"$SLOTS {fault}") if fault.startswith("--") else "true $PORT $SLOTS; exit 3"
    file = tmp_path / "job.yaml"
    file.write_text(text(server={"run": run, "name": "x"}, knobs={"SLOTS": [1]}))
    found = run_cli("serve", str(file))
    assert found.exit_code == 6, found.output
    assert words in found.output
    assert "Traceback" not in found.output
