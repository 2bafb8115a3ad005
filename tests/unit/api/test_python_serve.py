"""`mlcd.serve` from Python, with load tests made up: jobs in every form, results, resume, and how it refuses."""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.tiny_onnx import write_mlp, write_open

import mlcd
import mlcd.engine.serving as engine
from mlcd.errors import BadInput, Interrupted, SpecError
from mlcd.goal import Slo
from mlcd.profiler.load import Verified
from mlcd.space import Config
from mlcd.spec.serving import parse_serve
from mlcd.store.store import Store
from mlcd.trial.outcome import Status
from mlcd.trial.trial import Load, Measurement
from mlcd.units import Usd
from mlcd.web.records import Records

JOB: dict[str, object] = {
    "name": "tiny",
    "model": "tiny.onnx",
    "knobs": {"batch": [1, 4], "threads": 1, "replicas": 1, "precision": "fp32"},
    "goal": {"maximize": "requests per dollar", "slo": {"p99": "50ms"}},
    "search": {"strategy": "exhaustive", "max_trials": 2},
}
TEXT = """\
name: tiny
model: tiny.onnx
knobs: {batch: [1, 4], threads: 1, replicas: 1, precision: fp32}
goal: {maximize: requests per dollar, slo: {p99: 50ms}}
search: {strategy: exhaustive, max_trials: 2}
"""
HOUR = Usd.of("0.036")


def load(p99_seconds: float) -> Load:
    return Load(
        p50_seconds=p99_seconds / 4, p95_seconds=p99_seconds / 2, p99_seconds=p99_seconds, requests=1000, errors=0
    )


def measured(cloud: Any, config: Config, **_: Any) -> Measurement:
    return Measurement(
        config=config,
        attempt=1,
        samples_per_second=100.0 * int(config["batch"]),
        relative_error=0.02,
        iterations=1000,
        startup_seconds=1.0,
        seconds=10.0,
        usd=HOUR.for_seconds(10.0),
        load=load(0.04),
    )


def verified(cloud: Any, config: Config, *, rate: float, **_: Any) -> Verified:
    return Verified(rate=rate, seconds=70.0, load=load(0.03), fault="")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Here is the model, and no server is started."""
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(engine, "measure_load_trial", measured)
    monkeypatch.setattr(engine, "verify_load", verified)
    return write_mlp(tmp_path / "tiny.onnx").parent


def answer(result: mlcd.ServeResult) -> dict[str, Any]:
    """What is the same each time: not its name, and not the shares of time that were just measured."""
    told: dict[str, Any] = json.loads(result.to_json())
    return {key: told[key] for key in ("name", "goal", "choice", "trials", "why_not", "model", "strategy")}


def test_a_job_may_be_a_path_a_text_a_mapping_or_a_spec(folder: Path) -> None:
    (folder / "job.yaml").write_text(TEXT)
    forms = [mlcd.serve(job) for job in ("job.yaml", folder / "job.yaml", TEXT, JOB, parse_serve(TEXT))]
    assert all(answer(result) == answer(forms[0]) for result in forms)


@pytest.mark.parametrize("kind", [str, Path])
def test_a_model_has_the_defaults_of_everything_else(folder: Path, kind: Callable[[str], Any]) -> None:
    result = mlcd.serve(kind("tiny.onnx"), slo={"p95": "20ms"}, trials=1, strategy="random")
    told = json.loads(result.to_json())
    assert (told["name"], told["model"]) == ("tiny", str(folder / "tiny.onnx"))
    assert result.record.problem.goal.slo == Slo(seconds=0.02, percentile=95)
    assert len(result.trials) == 1


def test_a_result_has_everything(folder: Path) -> None:
    result = mlcd.serve(JOB)
    assert result.status is Status.DONE
    assert result.best is not None
    assert result.best.config["batch"] == 4
    assert result.best.verified_seconds is not None
    assert [row.trial.config["batch"] for row in result.trials] == [1, 4]
    assert str(result) == result.explain()
    assert f"Serve with: {result.best.config}" in result.explain()
    assert repr(result) == f"<ServeResult {result.run_id}: done, {result.best.config} after 2 load tests>"
    assert "<title>tiny: batch=4" in result.report(folder / "r.html").read_text(encoding="utf-8")
    with pytest.raises(AttributeError):
        result.record = None  # type: ignore[misc, assignment]


def test_lists_do_not_show_a_choice_that_failed_its_verification(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failed(cloud: Any, config: Config, *, rate: float, **_: Any) -> Verified:
        return Verified(rate=rate, seconds=70.0, load=load(0.03), fault="p99 of 1 s")

    monkeypatch.setattr(engine, "verify_load", failed)
    result = mlcd.serve(JOB)
    assert result.best is None
    assert result.record.choice is not None, "the verdict, before the verification"
    with Store(folder / "home") as store:
        assert store.summary(result.run_id).choice == ""
    assert Records(folder / "home").now(result.run_id).best is None
    monkeypatch.setattr(engine, "verify_load", verified)
    held = mlcd.serve(JOB)
    assert held.best is not None
    with Store(folder / "home") as store:
        assert store.summary(held.run_id).choice == str(held.best.config)
    assert Records(folder / "home").now(held.run_id).best == str(held.best.config)


def test_no_configuration_meeting_the_goal_is_a_status() -> None:
    result = mlcd.serve(JOB, slo="p99=1ms")
    assert result.best is None
    assert result.status.exit_code == 4
    assert repr(result).endswith(", nothing after 2 load tests>")


def test_arguments_override_the_job() -> None:
    result = mlcd.serve(
        JOB,
        slo="p50=30ms",
        rate=200,
        trials=1,
        budget=Usd.of("1.5"),
        deadline=timedelta(minutes=20),
        strategy="random",
        seed=3,
    )
    goal = result.record.problem.goal
    assert (goal.slo, goal.rate) == (Slo(seconds=0.03, percentile=50), 200)
    assert (goal.budget, goal.deadline_seconds) == (Usd.of("1.5"), 1200)
    assert (result.record.problem.max_trials, result.record.strategy, result.record.seed) == (1, "random", 3)


def test_sizes_go_with_a_model(folder: Path) -> None:
    write_open(folder / "open.onnx")
    with pytest.raises(SpecError, match=r"model: .*axis 1 \(length\) has no size"):
        mlcd.serve("open.onnx")
    assert mlcd.serve("open.onnx", sizes={"length": 4}, slo="p99=50ms", trials=1).best is not None
    with pytest.raises(BadInput, match="sizes: only for the path of a model"):
        mlcd.serve(JOB, sizes={"length": 4})


@pytest.mark.parametrize(
    ("job", "arguments", "message"),
    [
        ("none.onnx", {}, "model: there is no such file"),
        ("none.yaml", {}, r"none\.yaml: there is no such file"),
        ({**JOB, "knob": {}}, {}, "^knob: unknown field; .* did you mean 'knobs'"),
        (TEXT.replace("max_trials: 2", "max_trials: 0"), {}, r"^job\.yaml:5: search\.max_trials: is out of range"),
        (JOB, {"slo": "50ms"}, r"^slo: is not a latency limit \(got '50ms'\); allowed: p99=50ms"),
        (JOB, {"slo": 50}, r"^slo: is not a latency limit \(got 50\)"),
        (JOB, {"slo": {"p99": 50}}, r"^slo: a latency needs a unit"),
        (JOB, {"rate": -3}, r"^rate: is out of range"),
        (JOB, {"trials": 0}, r"^trials: is out of range"),
        (JOB, {"budget": "-5 USD"}, r"^budget: .*negative"),
        (JOB, {"deadline": "soon"}, r"^deadline: "),
        (JOB, {"strategy": "falcn"}, r"^strategy: unknown strategy 'falcn'"),
        (JOB, {"seed": -1}, r"^seed: must be a whole number"),
    ],
)
def test_errors_name_the_python_argument(job: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        mlcd.serve(job, **arguments)


def test_resume_reads_a_finished_run(folder: Path) -> None:
    result = mlcd.serve(JOB, home=folder / "elsewhere")
    again = mlcd.resume(result.run_id, home=str(folder / "elsewhere"))
    assert isinstance(again, mlcd.ServeResult)
    assert again.to_json() == result.to_json()


def test_resume_continues_from_any_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_off(cloud: Any, config: Config, **_: Any) -> Measurement:
        if config["batch"] == 4:
            raise KeyboardInterrupt
        return measured(cloud, config)

    monkeypatch.setattr(engine, "measure_load_trial", cut_off)
    with pytest.raises(Interrupted):
        mlcd.serve(JOB)
    monkeypatch.setattr(engine, "measure_load_trial", measured)
    (folder / "other").mkdir()
    monkeypatch.chdir(folder / "other")
    again = mlcd.resume("tiny")  # the beginning of its name is enough
    assert isinstance(again, mlcd.ServeResult)
    assert again.status is Status.DONE
    assert again.best is not None


def test_progress_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    result = mlcd.serve(JOB)
    assert capsys.readouterr() == ("", "")
    mlcd.serve(JOB, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "Search ended" in err
    assert mlcd.resume(result.run_id, progress=True).run_id == result.run_id
