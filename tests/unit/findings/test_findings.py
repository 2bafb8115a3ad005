"""What reports say is computed once, when a run ends, and stored: showing a finished run computes nothing again."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.report_kind_samples import SERVERLESS, SERVING
from tests.report_samples import SAMPLES, budget_run

from mlcd import codec
from mlcd.api.results import result_of
from mlcd.cli.main import run as mlcd
from mlcd.findings import findings_of, serve, serverless, shown, train
from mlcd.kinds import kind_of
from mlcd.ledger import Ledger
from mlcd.run.findings import Findings
from mlcd.run.run import Run
from mlcd.store.store import Store

RUNS: Mapping[str, Callable[[], Run[Any]]] = {
    **{f"train-{name}": make for name, make in SAMPLES.items()},
    **{f"serve-{name}": make for name, make in SERVING.items()},
    **{f"serverless-{name}": make for name, make in SERVERLESS.items()},
}
FUNCTIONS_JOB = """\
name: ctr
resources: {infra: sim/lambda}
workload: {model: logistic, target_loss: 0.40, max_epochs: 20}
functions: [20, 50, 100]
memory: [1024, 1769]
goal: {minimize: time, budget: 3 USD}
search: {strategy: "static:functions=50,memory=1769"}
"""
COMPUTED = {"train_findings": train, "serve_findings": serve, "serverless_findings": serverless}


def everything(run: Run[Any]) -> dict[str, object]:
    """Every form in which a run is shown."""
    kind = kind_of(run.kind)
    parts: dict[str, object] = {picture.name: picture.svg for picture in kind.pictures(run)}
    return {**parts, "text": kind.text(run), "json": kind.json(run), "html": kind.html(run)}


def refuse(*_: object, **__: object) -> None:
    raise AssertionError("findings are computed again")


def compute_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on, computing findings or asking a ledger for them fails."""
    for name, module in COMPUTED.items():
        monkeypatch.setattr(module, name, refuse)
    monkeypatch.setattr(Ledger, "incumbent", refuse)


@pytest.mark.parametrize("name", RUNS)
def test_findings_are_stored_whole(name: str) -> None:
    found = findings_of(RUNS[name]())
    assert codec.decode(codec.encode(found), Findings) == found


@pytest.mark.parametrize("name", RUNS)
def test_what_is_read_back_shows_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RUNS[name]()
    before = everything(run)
    stored = codec.decode(codec.encode(findings_of(run)), Findings)
    compute_nothing(monkeypatch)
    assert everything(replace(run, findings=stored)) == before


def test_without_findings_the_check_above_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    compute_nothing(monkeypatch)
    with pytest.raises(AssertionError, match="computed again"):
        everything(budget_run())


def test_stored_findings_are_shown_as_they_are() -> None:
    run = shown(budget_run())
    found = run.train_findings
    other = replace(found, receipt=replace(found.receipt, trials=4711))
    assert "4711" in json.dumps(kind_of(run.kind).json(replace(run, findings=Findings(train=other))))
    assert shown(run) is run


@pytest.mark.parametrize("command", ["demo", "serverless"])
def test_a_finished_run_is_shown_from_the_store(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MLCD_HOME", str(tmp_path))
    job = tmp_path / "job.yaml"
    job.write_text(FUNCTIONS_JOB)
    assert mlcd([command, *([str(job)] if command == "serverless" else []), "-o", "json"]) == 0
    made = json.loads(capsys.readouterr().out)
    with Store(tmp_path) as store:
        run = store.load(made["run_id"])
    text = kind_of(run.kind).text(run)
    compute_nothing(monkeypatch)
    assert run.findings is not None
    assert kind_of(run.kind).json(run) == made
    assert kind_of(run.kind).text(run) == text
    assert result_of(run).explain() == text
    assert json.loads(result_of(run).to_json()) == made
