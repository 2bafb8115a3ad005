"""A job file for another command, a run that is not there, an option of a sibling: each says what to do."""

import sys
from pathlib import Path

import pytest

from mlcd.cli.main import run
from mlcd.spec.functions import SERVERLESS
from mlcd.spec.job_file import OWN_FIELDS, PROGRAM_FIELDS, SHARED_FIELDS
from mlcd.spec.parse import TRAIN
from mlcd.spec.serving import SERVE, model_record, server_record

FILES = {
    "train": "name: a\nnum_nodes: 1..3\njob: {model: resnet152, samples: 1, epochs: 1}\ngoal: {minimize: time}\n",
    "serve": "name: b\nmodel: m.onnx\ngoal: {maximize: rate, slo: {p99: 50ms}}\n",
    "serverless": "name: c\nworkload: {model: logistic, target_loss: 0.5}\ngoal: {minimize: time, budget: 1 USD}\n",
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("given", FILES)
@pytest.mark.parametrize("command", FILES)
def test_a_job_for_another_command_names_it(
    command: str, given: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "job.yaml").write_text(FILES[given])
    if command == given:
        return
    assert run([command, "job.yaml"]) == 2
    assert f"is a job for `mlcd {given}`" in (said := capsys.readouterr().err)
    assert said.endswith(f": mlcd {given} job.yaml\n")


@pytest.mark.parametrize("kind", [TRAIN, SERVE, SERVERLESS], ids=lambda kind: kind.command)
def test_the_fields_that_tell_are_those_of_the_readers(kind: object) -> None:
    tables = (model_record, server_record) if kind is SERVE else (kind.record,)  # type: ignore[attr-defined]
    fields = {name for table in tables for name in table(None).fields}
    shared = SHARED_FIELDS if kind is SERVERLESS else SHARED_FIELDS | PROGRAM_FIELDS
    assert fields == OWN_FIELDS[kind.command] | shared  # type: ignore[attr-defined]


def test_a_misplaced_field_is_not_taken_for_another_command(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "job.yaml").write_text(FILES["train"] + "model: resnet152\n")
    assert run(["train", "job.yaml"]) == 2
    assert "mlcd serve" not in capsys.readouterr().err


def test_what_is_neither_a_file_nor_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "nosuchrun"]) == 2
    assert "nosuchrun: there is no such file or run; `mlcd runs` lists the runs" in capsys.readouterr().err


def test_a_preset_that_is_nearly_right_is_suggested(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "job.yaml").write_text(FILES["train"] + "resources: {infra: sim/aws}\n")
    assert run(["train", "job.yaml", "--strategy", "heterbo:papr"]) == 2
    assert "did you mean 'heterbo:paper'?" in capsys.readouterr().err


def test_resume_accepts_yes_as_train_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["resume", "nosuchrun", "-y"]) == 2
    assert "no run" in capsys.readouterr().err


def test_a_dry_run_on_this_machine_spends_no_real_money(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = "name: a\nrun: 'true'\njob: {samples: 10, epochs: 1, batch: 1}\nnum_nodes: 1\ngoal: {minimize: time}\n"
    (here / "job.yaml").write_text(job)
    assert run(["train", "job.yaml", "--on", "local", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "local (nominal prices: nobody is charged)" in " ".join(said.split())
    assert "real money" not in said


def test_a_state_that_does_not_exist_is_refused_where_there_are_no_runs_yet(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["runs", "--status", "finished"]) == 2
    assert "there is no such state (got 'finished')" in capsys.readouterr().err


def test_a_wrong_address_of_a_store_is_refused_before_the_driver_is_looked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLCD_STORE", "mysql://db/team")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    for name in [name for name in sys.modules if name.startswith("mlcd.store.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    assert run(["runs"]) == 2
    assert "MLCD_STORE: is not the address of a PostgreSQL server (got mysql://...)" in capsys.readouterr().err
