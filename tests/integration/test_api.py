"""mlcd from Python: jobs in every form, results, and ask/tell that never exceeds the limits."""

import json
import random
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import mlcd
from mlcd.errors import BadInput, SpecError
from mlcd.jobs.prepared import Prepared
from mlcd.jobs.train import prepare
from mlcd.kinds import train as train_kind
from mlcd.problem import Problem
from mlcd.report.as_json import schema
from mlcd.space import Config
from mlcd.spec import TrainSpec, parse_train, with_overrides
from mlcd.trial.outcome import Status
from mlcd.trial.trial import Measurement
from mlcd.units import Usd

TEXT = """\
name: small
resources: {infra: sim/aws, instance_type: [c5.xlarge, c5.4xlarge, p3.2xlarge]}
num_nodes: 1..8
job: {model: resnet152, samples: 50000, epochs: 10}
goal: {minimize: time, budget: 40 USD}
search: {max_trials: 8}
"""
JOB: dict[str, object] = {
    "name": "small",
    "resources": {"infra": "sim/aws", "instance_type": ["c5.xlarge", "c5.4xlarge", "p3.2xlarge"]},
    "num_nodes": "1..8",
    "job": {"model": "resnet152", "samples": 50000, "epochs": 10},
    "goal": {"minimize": "time", "budget": "40 USD"},
    "search": {"max_trials": 8},
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


def answer(result: mlcd.Result) -> Any:
    return {k: v for k, v in json.loads(result.to_json()).items() if k not in ("run_id", "created")}


def test_a_job_may_be_a_path_a_text_a_mapping_or_a_spec(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(TEXT)
    forms = [mlcd.train(job) for job in ("job.yaml", tmp_path / "job.yaml", TEXT, JOB, parse_train(TEXT))]
    assert all(answer(result) == answer(forms[0]) for result in forms)
    with pytest.raises(SpecError, match="no such file"):
        mlcd.train("name: small")


def test_a_result_has_everything(tmp_path: Path) -> None:
    result = mlcd.train(JOB)
    assert result.status is Status.DONE
    assert result.best is not None
    assert result.best.config in {row.trial.config for row in result.trials}
    assert result.receipt.total_usd <= Usd.of(40)
    assert str(result) == result.explain()
    assert repr(result) == f"<Result {result.run_id}: done, {result.best.config} after {len(result.trials)} trials>"
    assert "Receipt" in result.explain()
    assert result.pareto()
    jsonschema.validate(json.loads(result.to_json()), dict(schema()))
    for kind in ("speed", "money", "tradeoff"):
        picture = result.plot(kind)
        assert picture._repr_svg_().startswith("<svg")
        assert picture.save(tmp_path / f"{kind}.svg").read_text(encoding="utf-8") == picture.svg
    with pytest.raises(BadInput, match="did you mean 'speed'"):
        result.plot("sped")
    assert "<svg" in result.report(tmp_path / "r.html").read_text(encoding="utf-8")
    with pytest.raises(AttributeError):
        result.record = None  # type: ignore[misc, assignment]


def test_nothing_starts_on_a_charged_cloud_without_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    def charged(spec: TrainSpec, **others: Any) -> Prepared[Problem]:
        return replace(prepare(spec, **others), charged=True)

    monkeypatch.setattr(train_kind, "ROW", replace(train_kind.ROW, prepare=charged))
    with pytest.raises(BadInput, match=r"real money on sim/aws \(at most \$40\.00\); give yes=True"):
        mlcd.train(JOB)
    with pytest.raises(BadInput, match="an amount that no budget limits"):
        mlcd.train(JOB, goal="time")
    assert mlcd.train(JOB, yes=True).status is Status.DONE


def test_errors_name_the_python_argument() -> None:
    with pytest.raises(SpecError, match=r"^budget: .*negative"):
        mlcd.train(JOB, budget="-5 USD")
    with pytest.raises(SpecError, match=r"^on: there is no such cloud \(got 'sim/awz'\)"):
        mlcd.train(JOB, on="sim/awz")
    with pytest.raises(SpecError, match=r"^job.yaml:2: resources.instance_type\[0\]: unknown"):
        mlcd.train(TEXT.replace("c5.xlarge", "c5.xlrge"), goal="time")


def test_resume_reads_a_finished_run(tmp_path: Path) -> None:
    result = mlcd.train(JOB, home=tmp_path / "elsewhere")
    assert mlcd.resume(result.run_id, home=str(tmp_path / "elsewhere")).to_json() == result.to_json()
    with pytest.raises(BadInput, match="no run"):
        mlcd.resume(result.run_id)


def test_arguments_override_the_job() -> None:
    result = mlcd.train(
        JOB, budget=Usd.of("35.5"), deadline=timedelta(hours=9.5), strategy="random", parallel=2, seed=3
    )
    told = json.loads(result.to_json())
    assert (told["goal"]["budget_usd"], told["goal"]["deadline_seconds"]) == (35.5, 34200)
    assert (told["strategy"], told["parallel"], told["seed"]) == ("random", 2, 3)


WITHOUT_GOAL = TEXT.replace("goal: {minimize: time, budget: 40 USD}\n", "")


@pytest.mark.parametrize(
    "job",
    [
        TEXT,
        WITHOUT_GOAL,
        JOB,
        {k: v for k, v in JOB.items() if k != "goal"},
        with_overrides(parse_train(TEXT), budget="20 USD", strategy="random"),
    ],
    ids=["text", "text without goal", "mapping", "mapping without goal", "spec"],
)
def test_a_goal_may_be_given_apart_and_is_kept_with_the_run(job: Any) -> None:
    result = mlcd.train(job, goal={"minimize": "cost", "deadline": "20h"})
    goal = result.record.problem.goal
    assert (goal.minimize, goal.deadline_seconds, goal.budget) == ("cost", 72000, None)
    assert result.record.strategy == ("random" if isinstance(job, TrainSpec) else "auto")
    assert mlcd.train(job, goal="knee").record.problem.goal.minimize == "knee"


def test_mistakes_in_a_job_with_a_goal_apart_still_name_the_line() -> None:
    with pytest.raises(SpecError, match=r"job\.yaml:3"):
        mlcd.train(TEXT.replace("num_nodes", "num_node"), goal="time")
    with pytest.raises(SpecError):
        mlcd.train("- a\n- b\n", goal="time")


@pytest.mark.parametrize("seed", [-1, 1.5, True, "x"])
def test_a_seed_is_a_whole_number(seed: Any) -> None:
    with pytest.raises(BadInput, match="seed"):
        mlcd.train(JOB, seed=seed)
    with pytest.raises(BadInput, match="seed"):
        mlcd.Search(JOB, seed=seed)


def test_progress_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    mlcd.train(JOB)
    assert capsys.readouterr() == ("", "")
    mlcd.train(JOB, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "Search ended" in err


def test_unknown_names_of_the_package() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        mlcd.nothing  # noqa: B018


# ---- ask and tell

OWN: dict[str, object] = {
    "name": "own",
    "resources": {"infra": "aws", "instance_type": ["c5.xlarge", "c5.4xlarge", "p3.2xlarge"]},
    "num_nodes": "1..8",
    "job": {"samples": 500000},
    "goal": {"minimize": "time", "budget": "30 USD", "deadline": "8h"},
}


def speed(config: Any) -> float:
    return float({"c5.xlarge": 5.0, "c5.4xlarge": 22.0, "p3.2xlarge": 150.0}[config.instance] * config.nodes**0.7)


def test_a_search_by_hand_ends_with_a_deployment_that_fits() -> None:
    search = mlcd.Search(OWN)
    assert search.best is None
    assert (search.remaining.usd, search.remaining.seconds, search.remaining.trials) == (Usd.of(30), 8 * 3600, 30)
    while suggestions := search.ask():
        (suggestion,) = suggestions
        assert search.open == (suggestion.config,)
        search.tell(suggestion.config, samples_per_second=speed(suggestion.config), seconds=600, startup_seconds=60)
    best = search.best
    assert best is not None
    assert best.config.instance == "p3.2xlarge"
    remaining = search.remaining
    assert remaining.usd is not None
    assert best.worst_usd <= remaining.usd
    assert remaining.seconds == 8 * 3600 - 600 * len(search.history)
    assert search.ask(5) == []


@pytest.mark.parametrize("seed", range(12))
def test_no_ask_exceeds_the_limits_whatever_is_told(seed: int) -> None:
    chance = random.Random(seed)
    budget, deadline = chance.choice([2, 8, 30]), chance.choice([2, 5, 20])
    job = {
        **OWN,
        "goal": {"minimize": chance.choice(["time", "cost", "knee"]), "budget": budget, "deadline": f"{deadline}h"},
    }
    search = mlcd.Search(
        job, seed=seed, strategy=chance.choice(["auto", "heterbo", "cherrypick-budget", "convbo-budget"])
    )
    policy, price = search.problem.trial, search.problem.price
    waiting: list[Any] = []
    for _ in range(60):
        asked = search.ask(chance.randint(1, 4))
        waiting += asked
        if not waiting:
            break
        worst = sum(price(s.config).for_seconds(policy.worst_seconds(s.config.nodes)).micros for s in waiting)
        spent = sum(trial.usd.micros for trial in search.history)
        assert spent + worst <= budget * 1_000_000
        assert len({s.config for s in waiting}) == len(waiting)
        for _ in range(chance.randint(1, len(waiting))):
            config = waiting.pop(chance.randrange(len(waiting))).config
            seconds = policy.worst_seconds(config.nodes) * chance.uniform(0.2, 1)
            if chance.random() < 0.2:
                search.tell_failure(config, kind=chance.choice(["launch-failed", "hang", "lost"]), seconds=seconds)
            else:
                search.tell(config, samples_per_second=speed(config) * chance.uniform(0.9, 1.1), seconds=seconds)
    assert len(search.history) + len(search.open) <= 30
    remaining = search.remaining
    assert remaining.usd is not None
    assert remaining.usd.micros >= 0
    assert remaining.seconds is not None
    assert remaining.seconds >= 0
    best = search.best
    if best is not None:
        assert best.worst_usd <= remaining.usd


def test_open_asks_are_counted_and_not_repeated() -> None:
    search = mlcd.Search({**OWN, "search": {"max_trials": 3}})
    first, second, third = (search.ask() for _ in range(3))
    assert len({s.config for s in (*first, *second, *third)}) == len([*first, *second, *third]) > 1
    assert search.ask() == []
    assert search.remaining.trials == 3 - len(search.open)


def test_a_transient_failure_is_retried_and_a_permanent_one_is_not() -> None:
    search = mlcd.Search(OWN)
    (first,) = search.ask()
    search.tell_failure(first.config, kind="launch-failed", seconds=30, message="no quota today")
    (again,) = search.ask()
    assert again.config == first.config
    assert "no quota today" in again.reason
    search.tell_failure(again.config, kind="out-of-memory", seconds=30)
    assert all(s.config != first.config for s in search.ask(3))


def test_a_trial_that_was_not_asked_for_may_be_told() -> None:
    search = mlcd.Search(OWN)
    search.tell(
        {"instance": "p3.2xlarge", "nodes": 2}, samples_per_second=250, seconds=600, usd="1.50", relative_error=0.01
    )
    (trial,) = search.history
    assert isinstance(trial, Measurement)
    assert (trial.usd, trial.relative_error) == (Usd.of("1.50"), 0.01)
    search.tell({"instance": "p3.2xlarge", "nodes": 1}, samples_per_second=150, seconds=60, usd=Usd.of(2))
    assert search.remaining.usd == Usd.of("26.50")


def test_a_clock_counts_the_time_between_trials() -> None:
    now = [1000.0]
    search = mlcd.Search(OWN, clock=lambda: now[0])
    now[0] += 500
    assert search.remaining.seconds == 8 * 3600
    (suggestion,) = search.ask()
    now[0] += 3600
    search.tell(suggestion.config, samples_per_second=5, seconds=600)
    assert search.remaining.seconds == 7 * 3600
    now[0] += 8 * 3600
    assert search.ask() == []


def test_invalid_tells_are_refused() -> None:
    search = mlcd.Search(OWN)
    config = Config.deployment("c5.xlarge", 1)
    with pytest.raises(BadInput, match=r"9 x c5\.xlarge is not one of the job's 24"):
        search.tell({"instance": "c5.xlarge", "nodes": 9}, samples_per_second=1, seconds=1)
    for wrong in (
        {"samples_per_second": 0, "seconds": 60},
        {"samples_per_second": 1, "seconds": -60},
        {"samples_per_second": 1, "seconds": float("nan")},
        {"samples_per_second": 1, "seconds": float("inf")},
        {"samples_per_second": 1, "seconds": 60, "usd": -1},
        {"samples_per_second": 1, "seconds": 60, "usd": "cheap"},
        {"samples_per_second": 1, "seconds": 60, "startup_seconds": 61},
        {"samples_per_second": 1, "seconds": 60, "relative_error": -0.1},
    ):
        with pytest.raises(BadInput, match="tell: "):
            search.tell(config, **wrong)
    no_numbers: tuple[Any, ...] = (
        {"samples_per_second": "fast", "seconds": 60},
        {"samples_per_second": 1, "seconds": "60"},
        {"samples_per_second": 1, "seconds": None},
        {"samples_per_second": 1, "seconds": True},
        {"samples_per_second": 1, "seconds": 60, "startup_seconds": []},
        {"samples_per_second": 1, "seconds": 60, "relative_error": "x"},
        {"samples_per_second": 1, "seconds": 60, "usd": [1]},
    )
    for wrong in no_numbers:
        with pytest.raises(BadInput, match=r"tell: [a-z_]+: must be a number \(got "):
            search.tell(config, **wrong)
    no_configs: tuple[Any, ...] = (
        "c5.xlarge",
        None,
        {"instance": "c5.xlarge"},
        {"instance": ["c5.xlarge"], "nodes": 1},
        {},
    )
    for nowhere in no_configs:
        with pytest.raises(BadInput, match="tell: "):
            search.tell(nowhere, samples_per_second=1, seconds=1)
    with pytest.raises(BadInput, match="tell_failure: message: must be text"):
        search.tell_failure(config, kind="hang", seconds=1, message=b"no")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="tell_failure: seconds: must be a number"):
        search.tell_failure(config, kind="hang", seconds="1")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="did you mean 'out-of-memory'"):
        search.tell_failure(config, kind="out of memory", seconds=1)
    with pytest.raises(BadInput, match="tell_failure: "):
        search.tell_failure(config, kind="hang", seconds=-1)
    assert len(search.history) == 0


@pytest.mark.parametrize("count", [0, -1, 1.5, "2", True, None])
def test_only_a_positive_whole_number_can_be_asked_for(count: Any) -> None:
    with pytest.raises(BadInput, match="ask: count: must be a whole number, at least 1"):
        mlcd.Search(OWN).ask(count)


def test_numbers_of_numpy_and_any_order_of_knobs_can_be_told() -> None:
    import numpy as np

    search = mlcd.Search(OWN)
    search.ask(np.int64(1))  # type: ignore[arg-type]
    config = {"nodes": 2.0, "instance": "p3.2xlarge"}
    search.tell(config, samples_per_second=np.float32(9), seconds=np.int64(60))  # type: ignore[arg-type]
    (trial,) = search.history
    assert repr(trial.config) == repr(Config.deployment("p3.2xlarge", 2))


def test_what_was_told_counts_even_beyond_what_was_authorised() -> None:
    search = mlcd.Search(OWN)
    (first,) = search.ask()
    search.tell(first.config, samples_per_second=5, seconds=9 * 3600, usd=31)
    remaining = search.remaining
    assert remaining.usd is not None
    assert remaining.usd.micros < 0
    assert remaining.seconds is not None
    assert remaining.seconds < 0
    assert search.ask() == []
    assert search.best is None


@pytest.mark.parametrize("infra", ["awz", "sim/awz", "replay/"])
def test_a_search_by_hand_names_an_unknown_cloud(infra: str) -> None:
    with pytest.raises(BadInput, match=rf"resources.infra: there is no such cloud in the catalog \(got '{infra}'\)"):
        mlcd.Search({**OWN, "resources": {"infra": infra}})


def test_a_strategy_that_ignores_limits_cannot_be_asked() -> None:
    with pytest.raises(BadInput, match="ignores the limits"):
        mlcd.Search(OWN, strategy="convbo")


def test_a_measured_table_can_be_searched_by_hand(tmp_path: Path) -> None:
    table = tmp_path / "table"
    table.mkdir()
    (table / "instances.csv").write_text("instance,vcpus,memory_gib,usd_per_hour\na,2,4,0.1\nb,4,8,0.3\n")
    rows = "".join(f"{name},{n},{1000 / n}\n" for name in "ab" for n in (1, 2, 4))
    (table / "own.csv").write_text(f"instance,nodes,seconds\n{rows}")
    search = mlcd.Search({"name": "own", "resources": {"infra": f"replay/{table}"}, "goal": {"minimize": "time"}})
    assert len(search.problem.space) == 6
    assert search.remaining.usd is None
    assert search.ask()
