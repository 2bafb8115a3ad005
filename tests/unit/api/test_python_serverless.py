"""`mlcd.serverless` from Python, on the simulated cloud: jobs in every form, results, resume, and how it refuses."""

import json
import xml.etree.ElementTree as ET
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import mlcd
from mlcd.clouds.functions.provider import EpochOrder
from mlcd.clouds.functions.sim import SimFunctionCloud
from mlcd.errors import BadInput, Interrupted, SpecError
from mlcd.spec.functions import parse_serverless
from mlcd.trial.epoch import Epoch
from mlcd.trial.outcome import Status
from mlcd.units import Usd

TEXT = """\
name: ctr
resources: {infra: sim/lambda}
workload: {model: logistic, target_loss: 0.40, max_epochs: 20}
functions: [20, 50, 100]
memory: [1024, 1769]
goal: {minimize: time, budget: 3 USD}
search: {strategy: "static:functions=50,memory=1769"}
"""
JOB: dict[str, object] = {
    "name": "ctr",
    "resources": {"infra": "sim/lambda"},
    "workload": {"model": "logistic", "target_loss": 0.40, "max_epochs": 20},
    "functions": [20, 50, 100],
    "memory": [1024, 1769],
    "goal": {"minimize": "time", "budget": "3 USD"},
    "search": {"strategy": "static:functions=50,memory=1769"},
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LITHOPS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answer(result: mlcd.ServerlessResult) -> Any:
    told = json.loads(result.to_json())
    told["receipt"].pop("elapsed_seconds")
    return {key: value for key, value in told.items() if key not in ("run_id", "created")}


def test_a_job_may_be_a_path_a_text_a_mapping_or_a_spec(folder: Path) -> None:
    (folder / "job.yaml").write_text(TEXT)
    forms = [mlcd.serverless(job) for job in ("job.yaml", folder / "job.yaml", TEXT, JOB, parse_serverless(TEXT))]
    assert all(answer(result) == answer(forms[0]) for result in forms)


def test_a_result_has_everything(folder: Path) -> None:
    result = mlcd.serverless(JOB)
    assert result.status is Status.DONE
    assert {epoch.fleet.functions for epoch in result.epochs} == {50}
    assert result.epochs[-1].loss <= 0.40
    assert str(result) == result.explain()
    assert result.run_id in result.explain()
    loss = f"{result.epochs[-1].loss:.4g}"
    assert repr(result) == f"<ServerlessResult {result.run_id}: done after {len(result.epochs)} epochs, loss {loss}>"
    picture = result.plot()
    ET.fromstring(picture._repr_svg_())
    assert picture.save(folder / "epochs.svg").read_text(encoding="utf-8") == picture.svg
    assert "<svg" in result.report(folder / "r.html").read_text(encoding="utf-8")
    with pytest.raises(AttributeError):
        result.record = None  # type: ignore[misc, assignment]


def test_nothing_fits_is_a_status() -> None:
    result = mlcd.serverless(JOB, budget=0.000001, strategy="mpc")
    assert result.status is Status.INFEASIBLE
    assert repr(result) == f"<ServerlessResult {result.run_id}: {result.status} after 0 epochs>"
    ET.fromstring(result.plot().svg)


def test_arguments_override_the_job() -> None:
    result = mlcd.serverless(
        {**JOB, "resources": {"infra": "lithops/localhost"}},
        on="sim/lambda",
        budget=Usd.of("2.5"),
        deadline=timedelta(hours=3),
        strategy="static:functions=20,memory=2048",
        sync="bsp",
        functions=range(20, 23),
        memory="2 GB,3008",
        seed=3,
    )
    record, problem = result.record, result.record.problem
    assert (problem.goal.budget, problem.goal.deadline_seconds) == (Usd.of("2.5"), 10800)
    assert (problem.functions, problem.memory_mb) == ((20, 21, 22), (2048, 3008))
    assert (record.function_facts.sync, record.seed) == ("bsp", 3)
    assert mlcd.serverless(JOB, functions="50..51", memory=1769).record.problem.functions == (50, 51)


@pytest.mark.parametrize(
    ("job", "arguments", "message"),
    [
        ("none.yaml", {}, r"none\.yaml: there is no such file"),
        ("name: ctr", {}, "there is no such file"),
        ({**JOB, "function": 3}, {}, "^function: unknown field; .* did you mean 'functions'"),
        (TEXT.replace("50, 100", "50, 50"), {}, r"^job\.yaml:4: functions\[2\]: is given twice"),
        (JOB, {"budget": 0}, r"^budget: a budget must be more than \$0"),
        (JOB, {"memory": [64]}, r"^memory: aws-lambda has no functions of this size \(got 64\)"),
        (JOB, {"memory": [512, 512]}, r"^memory: is given twice \(got \[512, 512\]\)"),
        (JOB, {"functions": 0}, "^functions: is out of range"),
        (JOB, {"sync": "hybrid"}, "^sync: .* did you mean 'hsp'"),
        (JOB, {"strategy": "magic"}, "^strategy: unknown scheduler 'magic'"),
        (JOB, {"on": "sim/lamda"}, "^on: functions do not run there .* did you mean 'sim/lambda'"),
        (JOB, {"seed": True}, "^seed: must be a whole number"),
    ],
)
def test_errors_name_the_python_argument(folder: Path, job: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        mlcd.serverless(job, **arguments)
    assert not (folder / "home").exists()


def test_no_real_money_is_spent_without_permission(folder: Path) -> None:
    with pytest.raises(BadInput, match=r"real money on lithops/aws_lambda \(at most \$3\.00\); give yes=True"):
        mlcd.serverless(JOB, on="lithops/aws_lambda")
    without = {**JOB, "goal": {"minimize": "time"}}
    with pytest.raises(BadInput, match=r"\(an amount that no budget limits\); give yes=True"):
        mlcd.serverless(without, on="lithops/aws_lambda")
    assert not (folder / "home").exists()


def test_resume_reads_a_finished_run(folder: Path) -> None:
    result = mlcd.serverless(JOB, home=folder / "elsewhere")
    again = mlcd.resume(result.run_id, home=str(folder / "elsewhere"))
    assert isinstance(again, mlcd.ServerlessResult)
    assert again.to_json() == result.to_json()


def test_resume_continues_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, run_epoch = mlcd.serverless(JOB), SimFunctionCloud.run_epoch

    def cut_off(self: SimFunctionCloud, order: EpochOrder) -> Epoch:
        if order.number == 3:
            raise KeyboardInterrupt
        return run_epoch(self, order)

    with monkeypatch.context() as patched:
        patched.setattr(SimFunctionCloud, "run_epoch", cut_off)
        with pytest.raises(Interrupted):
            mlcd.serverless({**JOB, "name": "cut"})
    again = mlcd.resume("cut")
    assert isinstance(again, mlcd.ServerlessResult)
    assert again.status is Status.DONE
    assert [epoch.loss for epoch in again.epochs] == [epoch.loss for epoch in whole.epochs]


def test_resume_of_an_unknown_run() -> None:
    with pytest.raises(BadInput, match="no run"):
        mlcd.resume("nothing")


def test_progress_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    result = mlcd.serverless(JOB)
    assert capsys.readouterr() == ("", "")
    mlcd.serverless(JOB, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("50 x 1,769 MB") == len(result.epochs)


def test_a_mapping_that_is_no_job_is_refused() -> None:
    with pytest.raises(SpecError, match="workload: is missing"):
        mlcd.serverless({"name": "ctr"})
