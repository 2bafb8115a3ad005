"""`mlcd bench scavenger`: the product's runs on tables that follow a law, with a known optimum."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.scavenger_tables import write_tables

from mlcd.bench.scavenger.descriptions import DESCRIPTIONS
from mlcd.bench.scavenger.replay import START_SECONDS, MeasuredTraining, norms_of
from mlcd.bench.scavenger.score import MODES, as_json, problem_of, score, summarise, train
from mlcd.bench.scavenger.truth import ClusterChoice, ScavengerTruth, load_truth, load_truths
from mlcd.cli.main import cli
from mlcd.clouds.provider import Order, Purpose
from mlcd.clouds.reading import Listening, Reading
from mlcd.errors import BadInput
from mlcd.goal import Objective
from mlcd.models.universal import JobDescription
from mlcd.profiler.measure import measure
from mlcd.profiler.noise import noise_scale
from mlcd.run.attempt import Ending
from mlcd.space import Config
from mlcd.trial.outcome import Status
from mlcd.trial.trial import Measurement


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    write_tables(tmp_path / "small", size=4.0, floor=3000)
    write_tables(tmp_path / "large", size=12.0, floor=9000)
    return tmp_path


@pytest.fixture
def truth(tables: Path) -> ScavengerTruth:
    return load_truth(tables / "large")


def at(workers: int, batch: int) -> Config:
    return Config((("instance", "g4dn.12xlarge"), ("nodes", workers), ("batch", batch)))


def test_a_whole_training_takes_what_the_tables_say(truth: ScavengerTruth) -> None:
    cloud = MeasuredTraining(truth=truth)
    with cloud.lease(Order(config=at(8, 256), purpose=Purpose.RUN)) as lease:
        assert isinstance(lease, Listening)
        points = list(lease.progress())
        settled = lease.finish(points[-1])
    choice = ClusterChoice(workers=8, batch=256)
    assert settled.seconds == pytest.approx(START_SECONDS + truth.seconds(choice))
    assert settled.reached_samples == pytest.approx(256 * truth.iterations[256])
    assert cloud.progress == pytest.approx(1)
    assert lease.heard[-1].metrics == {"metric": truth.target}


def test_a_training_continues_from_its_checkpoint_at_another_batch(truth: ScavengerTruth) -> None:
    cloud = MeasuredTraining(truth=truth)
    problem = problem_of(truth, Objective.TIME)
    trial = measure(cloud, at(4, 64), attempt=1, policy=problem.trial, usd_per_hour=problem.price(at(4, 64)))
    assert isinstance(trial, Measurement)
    step = truth.step_seconds(ClusterChoice(workers=4, batch=64))
    assert trial.samples_per_second == pytest.approx(64 / step)
    assert trial.noise_scale == pytest.approx(300), "the tables' noise"
    assert trial.seconds >= problem.trial.seconds
    done = cloud.progress
    assert done == pytest.approx((trial.seconds - START_SECONDS) / step / truth.iterations[64], rel=0.01)
    with cloud.lease(Order(config=at(16, 1024), purpose=Purpose.RUN)) as lease:
        last = list(lease.progress())[-1]
    assert last.seconds == pytest.approx(
        START_SECONDS + (1 - done) * truth.seconds(ClusterChoice(workers=16, batch=1024))
    )


@pytest.mark.parametrize("workers", [1, 2, 16])
def test_norms_give_the_noise_scale(workers: int) -> None:
    norms = norms_of(700.0, ClusterChoice(workers=workers, batch=64))
    heard = [Reading(seconds=0.0, samples=1e6, noise=norms)] * 8
    assert noise_scale(heard) == pytest.approx(700)


@pytest.mark.parametrize("mode", ["partial", "full", "goodput"])
def test_with_the_measured_noise_the_choice_is_nearly_optimal(truth: ScavengerTruth, mode: str) -> None:
    made = train(truth, mode, Objective.TIME)
    assert made.run.status is Status.DONE
    assert made.seconds < 1.15 * min(truth.seconds(choice) for choice in truth.choices)
    final = made.run.final
    assert final is not None
    assert final.ending is Ending.DONE
    trials = sum(step.trial.seconds for step in made.run.trials)
    assert made.run.total_seconds == pytest.approx(trials + sum(a.seconds for a in made.run.attempts))


def test_goodput_moves_to_a_larger_batch_when_noise_grows(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first epochs of every training have a hundredth of the noise; its planned epochs are known."""
    planned = JobDescription(parameters=1.0, gflop_per_sample=1.0, samples_per_epoch=32 * 9000, epochs=13)
    monkeypatch.setitem(DESCRIPTIONS, "large", planned)
    path = tables / "large" / "convergence.csv"
    lines = [line.split(",") for line in path.read_text(encoding="utf-8").splitlines()]
    seen: dict[str, int] = {}
    for line in lines[1:]:
        seen[line[0]] = seen.get(line[0], 0) + 1
        if seen[line[0]] <= 8:
            line[4] = repr(float(line[4]) / 100)
    path.write_text("\n".join(",".join(line) for line in lines) + "\n", encoding="utf-8")
    truth = load_truth(tables / "large")
    stays, moves = (train(truth, mode, Objective.TIME) for mode in ("partial", "goodput"))
    assert not stays.run.earlier
    assert [attempt.ending for attempt in moves.run.earlier] == [Ending.MOVED] * len(moves.run.earlier)
    assert moves.run.earlier
    first, last = moves.run.attempts[0].config, moves.run.attempts[-1].config
    assert int(first["batch"]) < int(last["batch"])
    assert moves.seconds < 0.9 * stays.seconds


def test_rows_and_medians(tables: Path) -> None:
    rows = score(load_truths(tables))
    assert [(row.model, row.mode) for row in rows] == [(model, mode) for model in ("large", "small") for mode in MODES]
    for row in rows:
        assert row.trials >= 1
        assert row.regret_time >= 0
        assert row.regret_cost >= 0
        assert row.overhead > 0
        assert row.total_ratio > 1
        assert (row.time_mape is None) == (row.mode == "full"), "full has tried everything"
    full = next(line for line in summarise(rows) if line.mode == "full")
    assert full.median_time_mape is None
    assert full.median_overhead == pytest.approx(sum(r.overhead for r in rows if r.mode == "full") / 2)
    assert as_json(rows)["summary"]


def test_the_command_prints_rows_and_summary(tables: Path) -> None:
    words = ["bench", "scavenger", "--tables", str(tables), "--jobs", "1"]
    result = CliRunner().invoke(cli, [*words, "--models", "large", "--modes", "partial", "-o", "json"])
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    assert [row["mode"] for row in printed["rows"]] == ["partial"]
    assert set(printed["rows"][0]) == {
        *("model", "mode", "trials", "restarts", "step_mape", "iterations_mape", "time_mape", "cost_mape"),
        *("regret_time", "regret_cost", "regret_knee", "overhead", "total_ratio"),
    }
    assert set(printed["summary"][0]) == {
        *("mode", "median_time_mape", "median_cost_mape", "median_regret_time", "median_regret_cost"),
        *("median_overhead", "median_total_ratio"),
    }
    text = CliRunner().invoke(cli, [*words, "--models", "small", "--modes", "partial"])
    assert "Median over models" in text.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--models", "larg"], "did you mean large"),
        (["--modes", "none"], "no mode 'none'"),
    ],
)
def test_bad_names_are_refused(tables: Path, arguments: list[str], says: str) -> None:
    result = CliRunner().invoke(cli, ["bench", "scavenger", "--tables", str(tables), "--jobs", "1", *arguments])
    assert isinstance(result.exception, BadInput)
    assert says in str(result.exception)
