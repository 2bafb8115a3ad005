"""`mlcd serverless` and its reports, on the simulated cloud: answers, exit codes, pictures."""

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import cast

import jsonschema
import pytest
from tests.rendered import picture_names, picture_of

from mlcd.cli.main import run
from mlcd.findings import shown
from mlcd.report.serverless import instances_text, serverless_verdict
from mlcd.report.serverless_html import serverless_html
from mlcd.report.serverless_json import serverless_json, serverless_schema
from mlcd.run.run import EpochRun
from mlcd.run.verdict import PlainInstance
from mlcd.store.store import Store
from mlcd.units import Usd

JOB = """\
name: ctr
resources: {infra: sim/lambda}
workload: {model: logistic, target_loss: 0.40, max_epochs: 20}
functions: [20, 50, 100]
memory: [1024, 1769]
goal: {minimize: time, budget: 3 USD}
search: {strategy: "static:functions=50,memory=1769"}
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LITHOPS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


def record_of(job: Path) -> EpochRun:
    with Store(job.parent / "home") as store:
        return cast(EpochRun, store.load(store.runs()[0].run_id))


def test_a_simulated_training_says_what_it_took(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serverless", str(job), "-o", "json", "--picture", "a.svg"]) == 0
    said = capsys.readouterr()
    answer = json.loads(said.out)
    assert (answer["status"], answer["simulated"], answer["reached"]) == ("done", True, True)
    assert answer["receipt"]["total_usd"] == pytest.approx(sum(epoch["usd"] for epoch in answer["epochs"]))
    assert answer["receipt"]["total_usd"] < 3
    assert {epoch["functions"] for epoch in answer["epochs"]} == {50}
    assert answer["instances"]["compared"]
    assert said.err.count("50 x 1,769 MB") == len(answer["epochs"])
    ET.parse("a.svg")
    for command in (["show"], ["resume"], ["report"], ["report", "--picture", "epochs"]):
        assert run([command[0], answer["run_id"][:5], *command[1:]]) == 0
    assert run(["runs"]) == 0
    assert "serverless" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["--budget", "0"], 2, "--budget: a budget must be more than $0"),
        (["--memory", "64"], 2, "--memory: aws-lambda has no functions of this size (got 64)"),
        (["--functions", "0"], 2, "--functions: is out of range"),
        (["--on", "lithops/localhosts"], 7, "did you mean 'lithops/localhost'?"),
        (["--on", "lithops/aws_lambda"], 2, "this would spend real money on lithops/aws_lambda (at most $3.00)"),
        (["--strategy", "magic"], 2, "--strategy: unknown scheduler 'magic'"),
        (["--picture", "a.png"], 2, "--picture: pictures are SVG"),
        (["--budget", "0.000001", "--strategy", "mpc"], 3, ""),
        (["--budget", "0.06", "--strategy", "mpc"], 4, ""),
    ],
)
def test_exit_codes(job: Path, capsys: pytest.CaptureFixture[str], args: list[str], code: int, says: str) -> None:
    assert run(["serverless", str(job), *args]) == code
    assert says in capsys.readouterr().err


def test_no_account_is_the_providers_error(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("lithops")
    assert run(["serverless", str(job), "--on", "lithops/aws_lambda", "-y"]) == 7
    assert "lithops/aws_lambda cannot be used" in capsys.readouterr().err


def test_a_target_that_is_never_reached_is_reported(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job.write_text(JOB.replace("max_epochs: 20", "max_epochs: 2"))
    assert run(["serverless", str(job)]) == 4
    said = capsys.readouterr().out
    assert "The target loss was not reached." in said
    assert "the limit of 2 epochs is reached" in said


def with_mpc(job: Path, *, target: float = 0.40, epochs: int = 20) -> Path:
    text = JOB.replace("static:functions=50,memory=1769", "mpc").replace("target_loss: 0.40", f"target_loss: {target}")
    job.write_text(text.replace("max_epochs: 20", f"max_epochs: {epochs}"))
    return job


@pytest.mark.parametrize("limit", [["--deadline", "1s"], ["--budget", "0.0005"]])
def test_an_impossible_limit_is_refused_with_what_would_do_before_anything_is_paid(
    job: Path, capsys: pytest.CaptureFixture[str], limit: list[str]
) -> None:
    with_mpc(job)
    assert run(["serverless", str(job), *limit, "--dry-run"]) == 3
    dry = capsys.readouterr().out
    assert run(["serverless", str(job), *limit, "-o", "json"]) == 3
    answer = json.loads(capsys.readouterr().out)
    assert (answer["status"], answer["epochs"], answer["receipt"]["total_usd"]) == ("infeasible", [], 0)
    (way,) = answer["ways_out"]
    assert way in dry
    assert run(["show"]) == 0
    assert f"Nearest way out: {way}" in " ".join(capsys.readouterr().out.split())
    name = limit[0].removeprefix("--")
    found = re.search(rf"a {name} of about (.+) would probably suffice", way)
    assert found
    assert run(["serverless", str(job), limit[0], found[1].replace(" ", ""), "-o", "json"]) == 0, "as promised"


def test_what_earlier_runs_measured_refuses_a_deadline_beforehand(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with_mpc(job)
    assert run(["serverless", str(job), "-o", "json"]) == 0
    took = json.loads(capsys.readouterr().out)["receipt"]["training_seconds"]
    deadline = ["--deadline", f"{took / 3:.0f}s"]
    assert run(["serverless", str(job), *deadline, "--dry-run"]) == 3
    assert "a deadline of about" in capsys.readouterr().out
    assert run(["serverless", str(job), *deadline, "--dry-run", "--fresh"]) == 0, "nothing is known then"


@pytest.mark.parametrize("deadline", ["5s", "8s", "12s", "20s"])
def test_a_deadline_that_turns_out_too_short_ends_the_run_after_the_first_measured_parts(
    job: Path, capsys: pytest.CaptureFixture[str], deadline: str
) -> None:
    with_mpc(job, target=0.30, epochs=40)
    job.write_text(job.read_text().replace("functions: [20, 50, 100]", "functions: 1..12"))
    assert run(["serverless", str(job), "--deadline", deadline, "-o", "json"]) in (3, 4)
    answer = json.loads(capsys.readouterr().out)
    assert len(answer["epochs"]) <= 2
    assert "a deadline of about" in answer["ways_out"][0]


@pytest.mark.parametrize("strategy", ["mpc", "static", "siren"])
def test_a_target_out_of_reach_ends_the_run_early_and_says_so(
    job: Path, capsys: pytest.CaptureFixture[str], strategy: str
) -> None:
    with_mpc(job, target=0.05, epochs=60)
    assert run(["serverless", str(job), "--strategy", strategy, "-o", "json"]) == 4
    answer = json.loads(capsys.readouterr().out)
    assert sum(epoch["share"] for epoch in answer["epochs"]) < 40
    assert len(answer["epochs"]) <= 40 + 10, "not one small part after another"
    assert "more epochs, and max_epochs allows" in answer["stopped"]
    assert answer["ways_out"] == [f"workload.target_loss: {min(e['loss'] for e in answer['epochs']):.4g} was reached"]


def test_earlier_runs_that_are_learnt_from_are_named(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with_mpc(job)
    assert run(["serverless", str(job), "-o", "json"]) == 0
    said = capsys.readouterr()
    assert "earlier" not in said.err
    first = json.loads(said.out)["run_id"]
    note = f"learns from the epochs of {first} (less than a day old): --fresh ignores them"
    assert run(["serverless", str(job), "--dry-run"]) == 0
    assert note in " ".join(capsys.readouterr().out.split())
    assert run(["serverless", str(job), "-o", "json"]) == 0
    said = capsys.readouterr()
    assert note in " ".join(said.err.split())
    assert json.loads(said.out)["earlier_runs"] == [first]
    assert run(["serverless", str(job), "--fresh", "-o", "json"]) == 0
    said = capsys.readouterr()
    assert "learns from" not in said.err
    assert json.loads(said.out)["earlier_runs"] == []
    assert run(["resume", json.loads(said.out)["run_id"]]) == 0


def test_a_dry_run_starts_nothing(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serverless", str(job), "--dry-run", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["first_fleet"] == {"functions": 50, "memory_mb": 1769, "share": 1.0}
    assert not (job.parent / "home" / "mlcd.sqlite3").exists()


def with_instance(record: EpochRun, instance: PlainInstance) -> EpochRun:
    assert record.verdict is not None
    return shown(replace(record, verdict=replace(record.verdict, instances=(instance,)), findings=None))


def test_the_report_says_when_an_instance_would_have_been_better(job: Path) -> None:
    assert run(["serverless", str(job)]) == 0
    record = record_of(job)
    usd, seconds = record.total_usd, record.epoch_seconds
    small = PlainInstance(name="c5.tiny", usd_per_hour=Usd.of(1), seconds=seconds / 2, usd=Usd(usd.micros // 4))
    slow = replace(small, name="c5.slow", seconds=seconds * 3)
    dear = replace(small, name="c5.dear", seconds=seconds * 3, usd=usd * 2)
    assert with_instance(record, small).serverless_findings.better_instance == small
    assert "would have been better" in instances_text(with_instance(record, small))
    assert "(50% less time)" in instances_text(with_instance(record, small))
    assert "75% cheaper" in instances_text(with_instance(record, slow))
    assert "No plain instance would have been better" in instances_text(with_instance(record, dear))


def test_reports_of_a_run_without_epochs_and_with_failures(job: Path) -> None:
    assert run(["serverless", str(job)]) == 0
    record = record_of(job)
    real = replace(record, header=replace(record.header, simulated=False))
    for run_so_far in (record, replace(record, steps=()), replace(real, steps=record.steps[:1])):
        each = shown(replace(run_so_far, findings=None))
        ET.fromstring(picture_of(each, "epochs"))
        assert "NaN" not in picture_of(each, "epochs")
        count = 2 * len(picture_names(each))
        assert serverless_html(each).count("<svg") == count, "one for wide screens and one for narrow ones"
        text = json.dumps(serverless_json(each), allow_nan=False)
        jsonschema.validate(json.loads(text), serverless_schema())
        assert each.run_id in serverless_verdict(each)


def test_the_template_reaches_its_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    assert run(["init", "functions.yaml", "-t", "serverless"]) == 0
    assert run(["serverless", "functions.yaml", "-o", "json"]) == 0


def test_a_dry_run_says_the_limits_and_what_the_first_epoch_may_cost(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with_mpc(job)
    assert run(["serverless", str(job), "--dry-run", "--budget", "2 USD", "--deadline", "3h"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "nothing is spent and nothing is written" in said
    for words in ("budget $2.00", "deadline 3 h in all", "scheduler mpc", "authorised for at most $"):
        assert words in said
    assert run(["serverless", str(job), "--dry-run", "--budget", "2 USD", "-o", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["budget_usd"] == 2.0
    assert 0 < answer["first_authorised_usd"] <= 2.0
