"""Values of the wrong type, passed to every argument of every public function, raise BadInput and start nothing."""

import inspect
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import mlcd
from mlcd.errors import BadInput

TRAIN = {
    "name": "a",
    "resources": {"infra": "sim/aws", "instance_type": "c5.xlarge"},
    "num_nodes": [1, 2],
    "job": {"model": "resnet152", "samples": 50000, "epochs": 1},
    "goal": {"minimize": "time"},
}
SERVE = {"name": "a", "model": "a.onnx", "goal": {"maximize": "requests per dollar"}}
SERVERLESS = {
    "name": "a",
    "resources": {"infra": "sim/lambda"},
    "workload": {"model": "logistic", "target_loss": 0.4},
    "goal": {"minimize": "time", "budget": "3 USD"},
}


def nothing(*_: object) -> None:
    pass


# Each public function with arguments that it accepts.
FUNCTIONS: dict[str, dict[str, Any]] = {
    "train": {"job": TRAIN},
    "serve": {"job": SERVE},
    "serverless": {"job": SERVERLESS},
    "resume": {"run_id": "a-run"},
    "runs": {},
    "load": {"run_id": "a-run"},
    "Search": {"job": TRAIN},
    "Goal": {"minimize": "time"},
    "steps": {"loader": []},
    "epochs": {"epochs": 3},
    "checkpoint": {"save": nothing, "load": nothing},
    "learning_rate": {"default": 0.1},
    "share_of_batch": {},
    "score": {"accuracy": 0.5},
    "what_if": {"run": "a-run"},
    "describe": {"parameters": 1e6, "layers": 2, "hidden": 8, "heads": 2, "sequence": 16},
}
# `knob` takes any default, and `ui` starts a process: each has its own tests.
NOT_CALLED = {"Result", "ServeResult", "ServerlessResult", "Usd", "__version__", "knob", "ui"}
# The other two forms of search, whose arguments cannot be combined with a job.
FORMS: dict[str, dict[str, Any]] = {
    "a custom value": {
        "knobs": {"x": [1, 2]},
        "objective": "maximize",
        "trial_seconds": 60,
        "usd_per_hour": 1,
        "max_trials": 3,
        "where": lambda _: True,
        "budget": 5,
        "deadline": "1h",
        "clock": lambda: 0.0,
        "strategy": "random",
        "seed": 1,
    },
    "throughput": {
        "knobs": {"x": [1, 2]},
        "objective": "time",
        "work_samples": 1e6,
        "trial_seconds": 60,
        "usd_per_hour": {1: 0.5, 2: 1.5},
        "noise": 0.02,
    },
}
WRONG: dict[str, list[object]] = {
    "job": [42, None, [], 1.5, datetime(2026, 1, 1, tzinfo=UTC)],
    "goal": [42, [], True],
    "on": [[], {}, True],
    "budget": [[], {}, True, datetime(2026, 1, 1, tzinfo=UTC)],
    "deadline": [[], {}, True, 42],
    "strategy": [[], {}, 1.5],
    "parallel": [[], "many", 1.5, True],
    "seed": ["1", 1.5, None, True, -1],
    "home": [42, [], True, b"home"],
    "progress": [1, "yes", None],
    "yes": [1, "no", None],
    "slo": [[], 50, True],
    "rate": [[], {}, True],
    "trials": [[], "many", 1.5, True],
    "sizes": [[], 42, "sequence", {"sequence": "long"}],
    "sync": [[], 42],
    "functions": [{}, [], True, 1.5, ["a"]],
    "memory": [{}, [], True, 1.5],
    "run": [None, 42, [], b"a"],
    "weight": ["much", [], True, 2.0],
    **{name: [None, "many", [], True, -1] for name in ("parameters", "layers", "hidden", "heads", "sequence")},
    "run_id": [None, 42, [], "", b"a"],
    "minimize": [None, 42, "tme"],
    "deadline_seconds": ["6h", [], True],
    "loader": [42, None],
    "batch_size": ["64", 1.5, [], True],
    "total": ["64", 1.5, [], True],
    "save": [None, 42, "folder"],
    "load": [None, 42, "folder"],
    "default": [None, "0.1", [], True],
    "accuracy": [None, "0.5", [], True, {}],
    "clock": [1.5, "monotonic", []],
    "knobs": [42, [], "x", {"x": 1}],
    "objective": ["time!", 42, [], b"time"],
    "where": [42, "x", []],
    "work_samples": ["many", 0, -1, [], True, float("nan")],
    "usd_per_hour": ["cheap", -1, [], True],
    "trial_seconds": ["60s", 0, -1, [], True, float("inf")],
    "max_trials": ["many", 0, 1.5, [], True],
    "noise": ["much", -0.1, 1, [], True],
}


def arguments(name: str) -> list[str]:
    found = [
        each.name
        for each in inspect.signature(getattr(mlcd, name)).parameters.values()
        if each.kind != each.VAR_KEYWORD
    ]
    return found or list(FUNCTIONS[name])


CASES = [
    (name, argument, wrong)
    for name in FUNCTIONS
    for argument in arguments(name)
    for wrong in (object(), *WRONG.get(argument, []))
]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


def test_every_public_function_is_here() -> None:
    assert set(FUNCTIONS) | NOT_CALLED == set(mlcd.__all__)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("argument", arguments("Search"))
def test_each_form_of_search_refuses_a_wrong_type_by_the_argument_s_name(form: str, argument: str) -> None:
    mlcd.Search(**FORMS[form])
    for wrong in (object(), *WRONG[argument]):
        if wrong is None:
            continue
        with pytest.raises(BadInput) as caught:
            mlcd.Search(**{**FORMS[form], argument: wrong})
        said = str(caught.value).partition("(got")[0]
        assert argument in said


def _shown(value: object) -> str:
    """The same in every process: an object's own text has its address."""
    return "object" if type(value) is object else str(value)[:30]


@pytest.mark.parametrize(("name", "argument", "wrong"), CASES, ids=_shown)
def test_a_wrong_type_is_refused_by_the_argument_s_name(name: str, argument: str, wrong: Any, home: Path) -> None:
    function: Callable[..., object] = getattr(mlcd, name)
    model = {"job": "a.onnx"} if argument == "sizes" else {}
    with pytest.raises(BadInput) as caught:
        function(**{**FUNCTIONS[name], **model, argument: wrong})
    assert argument in str(caught.value).partition("(got")[0]
    assert not home.exists()


@pytest.mark.parametrize("wrong", [42, None, [], b"x"], ids=repr)
def test_a_result_refuses_an_invalid_path_or_picture(wrong: Any) -> None:
    result = mlcd.train(TRAIN, budget="0.01 USD")
    with pytest.raises(BadInput, match="path: must be a path"):
        result.report(wrong)
    with pytest.raises(BadInput, match="path: must be a path"):
        result.plot().save(wrong)
    if wrong is not None:  # the default
        with pytest.raises(BadInput, match="there is no picture"):
            result.plot(wrong)


def test_an_objective_may_be_text() -> None:
    assert mlcd.Goal(minimize="cost") == mlcd.Goal(minimize=mlcd.Goal(minimize="cost").minimize)  # type: ignore[arg-type]
    assert mlcd.Goal(minimize="cost").value(2.0, 3.0) == 3.0  # type: ignore[arg-type]
