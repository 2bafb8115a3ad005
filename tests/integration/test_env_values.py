"""Values of environment variables: no file of an ended run has them; those of one that can continue are the owner's."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import mlcd
from mlcd.cli.main import run as command
from mlcd.clouds.minicloud import missing
from mlcd.errors import BadInput, Interrupted
from mlcd.events import Event, StepEnded
from mlcd.store.store import FILE

pytestmark = [pytest.mark.waits, pytest.mark.together("the machine's room for nodes")]

MARK = "s3cr3t-marker"
TRIAL = "minutes: 0.02, extension: 10, watchdog_minutes: 0.5, precision: 0.5, retries: 1"
SCRIPT = """\
import json, os, time
assert os.environ["TOKEN"].startswith("s3cr3t"), "no token"
with open(os.environ["MLCD_PROGRESS_FILE"], "a") as file:
    for i in range(1, 61):
        file.write(json.dumps({"time": time.time(), "samples": i * 10}) + chr(10))
        file.flush()
        time.sleep(0.02)
"""


def job(folder: Path, infra: str, instance: str) -> Path:
    (folder / "code").mkdir()
    (folder / "code" / "job.py").write_text(SCRIPT)
    text = f"""\
name: envy
workdir: code
run: python job.py
envs: {{TOKEN: {MARK}, OTHER: 1.10}}
resources: {{infra: {infra}, instance_type: [{instance}], prices: {{{instance}: 36 USD}}}}
num_nodes: [1]
job: {{samples: 600, batch: 10}}
goal: {{minimize: time, budget: 4 USD}}
search: {{noise: 0.02, assurance: 0.99, trial: {{{TRIAL}}}}}
"""
    (folder / "job.yaml").write_text(text)
    return folder / "job.yaml"


def with_mark(home: Path) -> dict[str, int]:
    """The files that hold the value, with their modes for others."""
    files = [path for path in home.rglob("*") if path.is_file()]
    return {
        str(path.relative_to(home)): path.stat().st_mode & 0o077 for path in files if MARK.encode() in path.read_bytes()
    }


def stop(event: Event) -> None:
    if isinstance(event, StepEnded):
        raise KeyboardInterrupt


@pytest.fixture(params=["local", pytest.param("minicloud", marks=pytest.mark.extra)])
def file(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if request.param == "minicloud" and missing():
        pytest.skip("; ".join(missing()))
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    return job(tmp_path, request.param, "local.1" if request.param == "local" else "m.small")


def test_no_file_of_an_ended_run_has_a_value(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLCD_DEBUG", "1")
    home = tmp_path / "home"
    with pytest.raises(Interrupted):
        mlcd.train(file, observer=stop)
    (run,) = mlcd.runs()
    assert with_mark(home) == {f"envs/{run.run_id}.json": 0}
    assert command(["resume", run.run_id]) == 0
    for arguments in (["runs"], ["show", run.run_id], ["show", run.run_id, "-o", "json"], ["runs", "-o", "json"]):
        assert command(arguments) == 0
    assert command(["report", run.run_id, "--out", str(home / "report.html")]) == 0
    assert (home / "report.html").stat().st_mode & 0o077 == 0
    shown = capsys.readouterr()
    assert MARK not in shown.out + shown.err
    assert with_mark(home) == {}
    assert {path.stat().st_mode & 0o077 for path in home.rglob("*")} == {0}


@pytest.fixture
def interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A run on this machine that was interrupted and whose values are gone."""
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    with pytest.raises(Interrupted):
        mlcd.train(job(tmp_path, "local", "local.1"), observer=stop)
    (run,) = mlcd.runs()
    (tmp_path / "home" / "envs" / f"{run.run_id}.json").unlink()
    return run.run_id


def test_values_that_are_gone_are_asked_for(
    interrupted: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command(["resume", interrupted]) == 2
    assert "envs.TOKEN: the value of TOKEN and of OTHER is not known; allowed: --env TOKEN=VALUE --env OTHER=VALUE" in (
        capsys.readouterr().err
    )
    assert command(["resume", interrupted, "--env", "TOKEN=x", "--env", "NO=1"]) == 2
    assert "has no variable 'NO'; allowed: OTHER, TOKEN" in capsys.readouterr().err
    assert command(["resume", interrupted, "--env", "TOKEN"]) == 2
    assert "--env: TOKEN is not in your environment" in capsys.readouterr().err
    monkeypatch.setenv("TOKEN", MARK)
    assert command(["resume", interrupted, "--env", "TOKEN", "--env", "OTHER=2"]) == 0
    assert with_mark(tmp_path / "home") == {}


def test_a_job_may_leave_values_to_be_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    file = job(tmp_path, "local", "local.1")
    file.write_text(file.read_text().replace(MARK, ""))
    with pytest.raises(BadInput, match=r"envs.TOKEN: the value of TOKEN is not known"):
        mlcd.train(file)
    assert not (tmp_path / "home" / FILE).exists()
    assert command(["train", str(file), "--env", f"TOKEN={MARK}", "--env", "EXTRA=x"]) == 0
    with closing(sqlite3.connect(tmp_path / "home" / FILE)) as db:
        (spec,) = db.execute("SELECT spec FROM runs").fetchone()
    assert json.loads(spec)["envs"] == ["EXTRA", "OTHER", "TOKEN"]
    assert with_mark(tmp_path / "home") == {}


def test_a_simulated_run_keeps_no_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    result = mlcd.train(
        {
            "name": "sim",
            "resources": {"infra": "sim/aws", "instance_type": ["c5.xlarge"]},
            "num_nodes": [1, 2],
            "job": {"model": "resnet152", "samples": 5000},
            "goal": {"minimize": "time"},
            "envs": {"TOKEN": MARK, "LEFT": None},
        }
    )
    assert result.run_id
    assert not (tmp_path / "home" / "envs").exists()
    assert with_mark(tmp_path / "home") == {}


def test_a_job_that_fails_with_a_value_in_its_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("MLCD_HOME", str(home))
    file = job(tmp_path, "local", "local.1")
    (tmp_path / "code" / "job.py").write_text("import os, sys\nsys.exit('401: ' + os.environ['TOKEN'])\n")
    command(["train", str(file)])
    (run,) = mlcd.runs()
    assert command(["report", run.run_id, "--out", str(tmp_path / "report.html")]) == 0
    shown = capsys.readouterr()
    assert "401: $TOKEN" in shown.out + shown.err
    assert MARK not in shown.out + shown.err + (tmp_path / "report.html").read_text()
    assert {Path(name).name for name in with_mark(home)} <= {"log.txt"}
