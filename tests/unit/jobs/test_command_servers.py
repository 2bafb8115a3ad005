"""Servers that are commands: what a job file may say, and a whole search over one whose times are known."""

import json
import re
import shlex
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests import chat_server, hostile_server

from mlcd.cli.main import run as run_mlcd
from mlcd.clouds.serving import CommandServing
from mlcd.errors import SpecError
from mlcd.jobs.load_files import Requests, requests_of, with_requests
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


HEADS = "arrival_seconds,input_tokens,output_tokens\n"
TRACES = {
    "good.csv": HEADS + "".join(f"{at / 10},{16 + at % 3},{4 + at % 5}\n" for at in range(30)),
    "wrong.csv": "time,in,out\n1,2,3\n",
    "late.csv": HEADS + "2,5,5\n1,5,5\n",
    "negative.csv": HEADS + "-1,5,5\n",
    "huge.csv": HEADS + "1,5,1e9\n",
    "still.csv": HEADS + "1,5,5\n1,5,5\n",
    "day.csv": "hour,requests_per_second\n" + "".join(f"{hour},{25 if hour > 7 else 2}\n" for hour in range(24)),
    "short.csv": "requests_per_second\n1\n2\n",
    "idle.csv": "requests_per_second\n" + "0\n" * 24,
    "minus.csv": "requests_per_second\n" + "1\n" * 23 + "-3\n",
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
    assert spec.declared_knobs.values == {"SLOTS": (1, 4)}
    assert spec.search.strategy == "auto"
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
        ({"server": {"run": RUN, "name": "x", "api": "grpc"}}, "server.api.*openai, oip, http"),
        ({"server": {"run": RUN, "name": "x", "ready": "health"}}, "server.ready.*not a path"),
        ({"server": {"name": "x"}}, "server.run.*is missing"),
        ({"server": {"run": RUN, "name": "x", "image": "no image"}}, "server.image.*not the name of a container image"),
        ({"knobs": {"PORT": [1]}}, "knobs.PORT.*set by mlcd"),
        ({"knobs": {"a-b": [1]}}, "not a variable's name"),
        ({"knobs": {"SLOTS": []}}, "knobs.SLOTS"),
        ({"knobs": {"SLOTS": [1, 1]}}, "knobs.SLOTS.*has the value 1 twice"),
        ({"knobs": {"SLOTS": ["a\nb"]}}, "line of text"),
        ({"goal": {"maximize": "tokens per dollar", "slo": {"p99": "50ms"}}}, "ttft_p50"),
        ({"goal": {"maximize": "tokens per dollar", "slo": {"ttft_p90": "50ms"}}}, "did you mean|ttft_p"),
        ({"goal": {"maximize": "requests per dollar"}}, "tokens per dollar"),
        ({"load": {"scenario": "server"}}, "load.scenario.*arrivals: random"),
        ({"load": {"arrivals": "poisson"}}, "load.arrivals.*did you mean.*random"),
        ({"load": {"input_tokens": "512"}}, "load.input_tokens.*mean: 512"),
        ({"load": {"input_tokens": {"mean": 5, "file": "x.csv"}}}, "load.input_tokens.*either mean"),
        ({"load": {"output_tokens": {"std": 5}}}, "load.output_tokens.*either mean"),
        ({"load": {"output_tokens": {"average": 5}}}, "load.output_tokens.average.*mean, std, file"),
        ({"load": {"input_tokens": {"file": "none.csv"}}}, "load.input_tokens.file.*no such file.*input_tokens"),
        ({"load": {"trace": "none.csv"}}, "load.trace.*no such file.*arrival_seconds, input_tokens, output_tokens"),
        ({"load": {"trace": "wrong.csv"}}, "load.trace.*no column arrival_seconds: its first line has time, in"),
        ({"load": {"trace": "late.csv"}}, "load.trace.*line 3: arrival_seconds is 1 after 2"),
        ({"load": {"trace": "negative.csv"}}, "load.trace.*line 2: arrival_seconds is -1, and must be 0 to"),
        ({"load": {"trace": "huge.csv"}}, "load.trace.*line 2: output_tokens is 1e9, and must be 1 to 1,000,000"),
        ({"load": {"trace": "still.csv"}}, "load.trace.*same moment"),
        ({"load": {"trace": "good.csv", "input_tokens": 5}}, "load.input_tokens.*conflicts with load.trace"),
        ({"load": {"trace": "good.csv", "arrivals": "random"}}, "load.arrivals.*conflicts with load.trace"),
        ({"load": {"trace": "good.csv", "shared_tokens": 50}}, "load.shared_tokens.*shortest prompt"),
        ({"goal": {"minimize": "cost"}}, "goal.*needs the rate to hold.*load.trace"),
        ({"load": {"profile": "none.csv"}}, "load.profile.*no such file.*requests_per_second"),
        ({"load": {"profile": "short.csv"}}, "load.profile.*has 2 rows after its first line, and needs 24 or more"),
        ({"load": {"profile": "idle.csv"}}, "load.profile.*no hour with requests"),
        ({"load": {"profile": "minus.csv"}}, "load.profile.*line 25: requests_per_second is -3, and must be 0 to"),
        ({"load": {"profile": "good.csv"}}, "load.profile.*has no column requests_per_second"),
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
    for name, rows in TRACES.items():
        (tmp_path / name).write_text(rows)
    file = tmp_path / "job.yaml"
    file.write_text(text(**changes))
    found = run_cli("serve", str(file), "--dry-run")
    assert found.exit_code == 2, found.output
    assert len(found.stderr.strip().splitlines()) <= 3, found.stderr
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
    file.write_text(text(server={"run": RUN, "name": "toy", "image": "org/toy:1"}))
    found = run_cli("serve", str(file), "--write", "compose", str(tmp_path / "deploy"), "-o", "json")
    assert found.exit_code == 0, found.output
    result = json.loads(found.stdout)
    assert result["choice"]["config"] == {"SLOTS": 4}
    assert result["written"] == [str(tmp_path / "deploy" / "compose.yaml")]
    (made,) = yaml.safe_load((tmp_path / "deploy" / "compose.yaml").read_text())["services"].values()
    assert made["environment"]["SLOTS"] == "4"
    assert "held " in (tmp_path / "deploy" / "compose.yaml").read_text().splitlines()[1]
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
    assert re.search(r"whole request .*\(p50, p95, p99\)", shown)


def test_a_knob_that_does_not_apply_is_not_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_cli: Callable[..., Answer]
) -> None:
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    said = tmp_path / "said"
    run = f'echo "slots=$SLOTS pace=${{PACE-none}}" >> {shlex.quote(str(said))}; {RUN} --tpot-seconds ${{PACE:-0.004}}'
    pace = {"values": [0.001, 0.002], "when": {"SLOTS": 4}}
    knobs = {"SLOTS": [1, 4], "PACE": pace, "exclude": [{"PACE": 0.001}]}
    file = tmp_path / "job.yaml"
    file.write_text(text(server={"run": run, "name": "toy"}, knobs=knobs))
    found = run_cli("serve", str(file), "-o", "json")
    assert found.exit_code == 0, found.output
    result = json.loads(found.stdout)
    assert {json.dumps(trial["config"]) for trial in result["trials"]} == {
        '{"SLOTS": 1, "PACE": "unset"}',
        '{"SLOTS": 4, "PACE": 0.002}',
    }
    assert set(said.read_text().splitlines()) == {"slots=1 pace=none", "slots=4 pace=0.002"}


@pytest.mark.parametrize(
    ("kind", "words"),
    [("kubernetes", "server.image is missing"), ("triton", "for a server that is a command: compose, kubernetes")],
)
def test_files_that_cannot_be_written_are_refused_before_the_search(
    kind: str, words: str, tmp_path: Path, run_cli: Callable[..., Answer]
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text())
    found = run_cli("serve", str(file), "--write", kind, str(tmp_path / "deploy"))
    assert found.exit_code == 2
    assert words in found.stderr


def test_lengths_come_from_a_distribution_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("input_tokens,output_tokens\n10,1\n20,2\n30,3\n")

    def requests(load: dict[str, Any]) -> Requests:
        return requests_of(parse_serve(text(load=load), file=str(tmp_path / "job.yaml")), seed=3)

    spread = requests({"input_tokens": {"mean": 400, "std": 100}, "output_tokens": 7}).exchanges
    lengths = [each.input_tokens for each in spread]
    assert statistics.mean(lengths) == pytest.approx(400, rel=0.03)
    assert statistics.stdev(lengths) == pytest.approx(100, rel=0.1)
    assert {each.output_tokens for each in spread} == {7}
    both = requests({"input_tokens": {"file": "pairs.csv"}, "output_tokens": {"file": "pairs.csv"}}).exchanges
    assert sorted((each.input_tokens, each.output_tokens) for each in both) == [(10, 1), (20, 2), (30, 3)], "in pairs"
    assert requests({"input_tokens": {"mean": 40, "std": 90}, "shared_tokens": 30}).exchanges[0].input_tokens >= 30
    alone = requests({}).exchanges
    assert [(each.input_tokens, each.output_tokens) for each in alone] == [(128, 64)]


def test_a_trace_gives_lengths_and_the_rate_to_hold(tmp_path: Path) -> None:
    (tmp_path / "good.csv").write_text(TRACES["good.csv"])
    job = text(load={"trace": "good.csv"}, goal={"minimize": "cost"})
    spec = parse_serve(job, file=str(tmp_path / "job.yaml"))
    requests = requests_of(spec, seed=0)
    assert len(requests.trace) == len(requests.exchanges) == 30
    assert all(each.at_seconds is None for each in requests.exchanges)
    known = with_requests(spec, requests)
    assert known.goal.rate == pytest.approx(10.0)
    assert (known.load.input_tokens, known.load.output_tokens) == (17, 6)
    fastest = parse_serve(text(load={"trace": "good.csv"}), file=str(tmp_path / "job.yaml"))
    assert with_requests(fastest, requests).goal.rate is None, "there the rate is what is looked for"


@pytest.mark.parametrize(
    "load",
    [
        {"trace": "good.csv", "profile": "day.csv"},
        {"arrivals": "random", "input_tokens": {"mean": 16, "std": 4}, "output_tokens": 8},
    ],
)
def test_a_search_with_a_trace_and_with_random_arrivals(
    load: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_cli: Callable[..., Answer]
) -> None:
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    for name in ("good.csv", "day.csv"):
        (tmp_path / name).write_text(TRACES[name])
    file = tmp_path / "job.yaml"
    limits = {"slo": {"ttft_p95": "1s", "e2e_p95": "2s"}}
    goal = {"minimize": "cost", **limits} if "trace" in load else {"maximize": "rate", **limits}
    file.write_text(text(load={**load, "concurrency": 4, "verify": "2s"}, knobs={"SLOTS": [4]}, goal=goal))
    found = run_cli("serve", str(file), "-o", "json")
    assert found.exit_code == 0, found.output
    result = json.loads(found.stdout)
    choice = result["choice"]
    tokens = choice["load"]["tokens"]
    assert tokens["good_per_second"] > 0
    assert tokens["gaps_seconds"][2] > 0.004, "of 5 ms; where the machine is busy, some come together"
    assert "no folder of the model" in tokens["counted"]
    front = result["trials"][0]["measured"]["load"]["tokens"]["front"]
    if "trace" in load:
        assert choice["requests_per_second"] == pytest.approx(10.0)
        assert tokens["output_tokens"] == pytest.approx(6.0, abs=0.5)
        assert choice["queueing_seconds"][0] < 0.05
        day = result["day"]
        assert day["replicas"] == [1] * 8 + [3] * 16, "of 10 requests/s each"
        assert day["usd_per_day"] < day["fixed_usd_per_day"]
        assert [change["hour"] for change in day["changes"]] == [0, 8]
        assert "8 to 24" in run_cli("show").stdout
        assert run_cli("report", "--picture", "day", "--out", str(tmp_path / "day.svg")).exit_code == 0
    else:
        assert len(front) >= 3, "several rates, and the best again"
        rates = [point["requests_per_second"] for point in front]
        assert rates[1] > rates[0], "the first was held"
        assert choice["requests_per_second"] < 50
    for name in ("tokens", "rates"):
        assert run_cli("report", "--picture", name, "--out", str(tmp_path / f"{name}.svg")).exit_code == 0
        assert "chosen: SLOTS=4" in (tmp_path / f"{name}.svg").read_text()
    page = tmp_path / "page.html"
    assert run_cli("report", "--out", str(page)).exit_code == 0
    assert "Tokens against the first token" in page.read_text()
    assert ("Replicas by the hour" in page.read_text()) == ("trace" in load)
    shown = run_cli("show").stdout
    assert "gaps between pieces" in shown
    assert "the concurrency to run at" in shown


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("--fault status", "status 503"),
        ("; exit 3", "the server ended"),
        ("sleep", "not ready after"),
        ("garbage", "does not answer as OpenAI's API does"),
        ("die", "the server ended"),
        ("leak", "of memory; 0.4 GiB were free"),
        ("silent", "nothing came for"),
        ("endless", "does not end"),
    ],
)
def test_a_server_that_fails_is_a_failed_trial(
    fault: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_cli: Callable[..., Answer]
) -> None:
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("mlcd.clouds.serving.local.free_memory_bytes", lambda: 0.4 * 2**30)  # no leak gets far
    hostile = f"exec {shlex.quote(sys.executable)} {shlex.quote(hostile_server.__file__)} {fault} $PORT $SLOTS"
    own = {"sleep": "sleep 600; : $PORT $SLOTS", "; exit 3": "true $PORT $SLOTS; exit 3"}
    run = RUN.replace("$SLOTS", f"$SLOTS {fault}") if fault.startswith("--") else own.get(fault, hostile)
    file = tmp_path / "job.yaml"
    search = {"max_trials": 1, "trial": {"seconds": "3s", "watchdog": "8s", "retries": 0}}
    file.write_text(text(server={"run": run, "name": "x"}, knobs={"SLOTS": [1]}, search=search))
    found = run_cli("serve", str(file))
    assert found.exit_code == 6, found.output
    assert words in found.output
    assert "Traceback" not in found.output


def test_a_server_that_is_not_installed_is_told_before_the_first_load_test(
    tmp_path: Path, run_cli: Callable[..., Answer]
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text(server={**JOB["server"], "run": "exec nosuch-server --port $PORT --slots $SLOTS"}))
    dry = run_cli("serve", str(file), "--dry-run")
    assert "server.run starts nosuch-server, which is not installed on this machine (not on PATH)" in dry.output
    found = run_cli("serve", str(file))
    assert (found.exit_code, found.stdout) == (2, ""), found.output
    assert "server.run: starts nosuch-server, which is not installed" in found.stderr


def test_values_that_are_still_marked_are_named(tmp_path: Path, run_cli: Callable[..., Answer]) -> None:
    assert run_cli("init", str(tmp_path / "llm.yaml"), "-t", "vllm").exit_code == 0
    said = run_cli("serve", str(tmp_path / "llm.yaml"), "--dry-run").output
    assert "llm.yaml:4: model is still marked CHANGE THIS" in said
