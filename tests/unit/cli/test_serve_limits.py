"""`mlcd serve` under limits that cannot be kept, and its words: those of serving, never of training."""

import json
from pathlib import Path

import pytest

from mlcd.cli.main import run
from mlcd.units import format_seconds

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

JOB = """\
name: tiny
model: tiny.onnx
knobs: {batch: [1, 4], threads: 1, replicas: 1, precision: fp32}
goal: {maximize: requests per dollar, slo: {p99: 5s}}
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    from tests.tiny_onnx import write_mlp

    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    write_mlp(tmp_path / "tiny.onnx")
    Path("job.yaml").write_text(JOB)
    return "job.yaml"


@pytest.mark.parametrize(
    "limits", [["--budget", "0.0001"], ["--deadline", "20s"], ["--budget", "0.0001", "--deadline", "20s"]]
)
def test_an_impossible_limit_is_refused_with_what_would_do(
    job: str, capsys: pytest.CaptureFixture[str], limits: list[str]
) -> None:
    assert run(["serve", job, *limits, "--dry-run", "-o", "json"]) == 3
    answer = json.loads(capsys.readouterr().out)
    assert (answer["configurations"], answer["configurations_within_limits"]) == (2, 0)
    (way,) = answer["ways_out"]
    assert run(["serve", job, *limits, "--dry-run"]) == 3
    dry = " ".join(capsys.readouterr().out.split())
    assert f"Nothing fits these limits: {way}" in dry
    assert run(["serve", job, *limits]) == 3
    said = " ".join(capsys.readouterr().out.split())
    assert f"Nearest way out: {way}" in said
    assert run(["runs", "-o", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)["runs"][0]["goal"]
    assert listed.startswith("most requests per dollar with p99 within 5 s")
    for text in (dry, said):
        assert "training" not in text
        assert "trial" not in text
        assert "most requests per dollar with p99 within 5 s" in text, "one name for the goal"


def test_the_limits_that_would_do_leave_room_for_a_load_test_and_its_verification(
    job: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["serve", job, "--budget", "0.0001", "--deadline", "20s", "--dry-run", "-o", "json"]) == 3
    (way,) = json.loads(capsys.readouterr().out)["ways_out"]
    one = "one load test of batch=1, threads=1, replicas=1, precision=fp32"
    assert way.startswith(f"{one} and its verification may need")
    usd, seconds = way.rpartition("may need $")[2].split(" and ")
    fits = ["--budget", usd, "--deadline", seconds.replace(" ", "")]
    assert run(["serve", job, *fits, "--dry-run", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["configurations_within_limits"] == 2
    less = ["--budget", f"{float(usd) - 0.0001:.4f}", "--deadline", seconds.replace(" ", "")]
    assert run(["serve", job, *less, "--dry-run"]) == 3


def test_help_of_serve_does_not_speak_of_training(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "--help"]) == 0
    said = capsys.readouterr().out
    assert "train" not in said
    assert "load tests" in said


def test_the_dry_run_counts_verifications_that_fail(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", job, "--dry-run", "-o", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    usual, longest = answer["expected_seconds"], answer["expected_seconds_if_verifications_fail"]
    assert longest > usual
    assert run(["serve", job, "--dry-run"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"about {format_seconds(usual)}." in said
    assert f"up to 5 verifications in all, about {format_seconds(longest)}" in said
    assert "1 load tests" not in said


def test_the_dry_run_writes_flags_as_the_job_file_does(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    server = "server: {name: m, run: serve --port $PORT --chunked $CHUNKED}"
    goal = "goal: {maximize: tokens per dollar, slo: {ttft_p95: 1s}}"
    Path(job).write_text(f"name: chat\n{server}\nknobs: {{CHUNKED: [true, false]}}\n{goal}\n")
    assert run(["serve", job, "--dry-run"]) == 0
    assert "CHUNKED true, false" in capsys.readouterr().out
