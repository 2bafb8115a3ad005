"""`mlcd bench scavenger`: the product's runs on tables that follow a law, with a known optimum."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from tests.scavenger_tables import write_tables

from mlcd.bench.scavenger.planned import PLANNED_SAMPLES
from mlcd.bench.scavenger.replay import MEAN_START_SECONDS, START_SECONDS, MeasuredTraining, norms_of
from mlcd.bench.scavenger.score import MODES, BenchCase, Spread, as_json, score, summarise, train
from mlcd.bench.scavenger.truth import ClusterChoice, ScavengerTruth, load_truth, load_truths
from mlcd.cli.main import cli
from mlcd.clouds.provider import Order, Purpose
from mlcd.clouds.reading import Listening, Reading
from mlcd.errors import BadInput
from mlcd.goal import Objective
from mlcd.problem import Batching
from mlcd.profiler.measure import measure
from mlcd.profiler.noise import noise_scale
from mlcd.run.attempt import Ending
from mlcd.space import Config
from mlcd.spec.batches import RateRule
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
    assert settled.seconds == pytest.approx(MEAN_START_SECONDS + truth.seconds(choice))
    assert settled.reached_samples == pytest.approx(256 * truth.iterations[256])
    assert cloud.progress == pytest.approx(1)
    assert lease.heard[-1].metrics == {"metric": truth.target}


def test_a_training_continues_from_its_checkpoint_at_another_batch(truth: ScavengerTruth) -> None:
    cloud = MeasuredTraining(truth=truth)
    problem = BenchCase(truth=truth).problem(Objective.TIME)
    trial = measure(cloud, at(4, 64), attempt=1, policy=problem.trial, usd_per_hour=problem.price(at(4, 64)))
    assert isinstance(trial, Measurement)
    step = truth.step_seconds(ClusterChoice(workers=4, batch=64))
    assert trial.samples_per_second == pytest.approx(64 / step)
    assert trial.noise_scale == pytest.approx(300), "the tables' noise"
    assert trial.seconds >= problem.trial.seconds
    done = cloud.progress
    assert done == pytest.approx((trial.seconds - MEAN_START_SECONDS) / step / truth.iterations[64], rel=0.01)
    with cloud.lease(Order(config=at(16, 1024), purpose=Purpose.RUN)) as lease:
        last = list(lease.progress())[-1]
    assert last.seconds == pytest.approx(
        MEAN_START_SECONDS + (1 - done) * truth.seconds(ClusterChoice(workers=16, batch=1024))
    )


@pytest.mark.parametrize("workers", [1, 2, 16])
def test_norms_give_the_noise_scale(workers: int) -> None:
    norms = norms_of(700.0, ClusterChoice(workers=workers, batch=64))
    heard = [Reading(seconds=0.0, samples=1e6, noise=norms)] * 8
    assert noise_scale(heard) == pytest.approx(700)


@pytest.mark.parametrize("mode", ["partial", "full", "goodput"])
def test_with_the_measured_noise_the_choice_is_nearly_optimal(truth: ScavengerTruth, mode: str) -> None:
    made = train(BenchCase(truth=truth), mode, Objective.TIME)
    assert made.run.status is Status.DONE
    assert made.regret_time is not None
    assert made.regret_time < 0.15
    final = made.run.final
    assert final is not None
    assert final.ending is Ending.DONE
    trials = sum(step.trial.seconds for step in made.run.trials)
    assert made.run.total_seconds == pytest.approx(trials + sum(a.seconds for a in made.run.attempts))


@pytest.mark.parametrize("rule", RateRule)
def test_the_rule_of_the_learning_rate_does_not_change_what_is_chosen(truth: ScavengerTruth, rule: RateRule) -> None:
    made = train(BenchCase(truth=truth, rule=rule, known_length=True), "partial", Objective.TIME)
    assert made.regret_time is not None
    assert made.regret_time < 0.15
    assert made.choice == train(BenchCase(truth=truth, known_length=True), "partial", Objective.TIME).choice


def epochs_of(tables: Path, name: str, change: Callable[[list[str], int], None]) -> ScavengerTruth:
    """The model after `change` of each row of its convergence.csv, with the row's number in its batch from 0."""
    path = tables / name / "convergence.csv"
    lines = [line.split(",") for line in path.read_text(encoding="utf-8").splitlines()]
    seen: dict[str, int] = {}
    for line in lines[1:]:
        change(line, seen.get(line[0], 0))
        seen[line[0]] = seen.get(line[0], 0) + 1
    path.write_text("\n".join(",".join(line) for line in lines) + "\n", encoding="utf-8")
    return load_truth(tables / name)


def test_low_noise_in_the_first_epochs_does_not_mislead_the_choice(
    tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundredth of the later noise: as if it stayed, the smallest batch would be best."""
    monkeypatch.setitem(PLANNED_SAMPLES, "large", 32 * 9000 * 13.0)

    def quieter(line: list[str], epoch: int) -> None:
        if epoch < 8:
            line[4] = repr(float(line[4]) / 100)

    truth = epochs_of(tables, "large", quieter)
    made = train(BenchCase(truth=truth), "partial", Objective.TIME)
    assert made.regret_time is not None
    assert made.regret_time < 0.15
    at_start = min(trial.noise_scale or 300.0 for trial in made.run.history.measured)
    assert at_start == pytest.approx(3.0)
    alone = Batching(reference=32, noise_scale=at_start)
    assert alone.worth(made.choice.batch) < 0.2


def test_progress_is_counted_in_epochs_of_the_table(tables: Path) -> None:
    """The first ten epochs take three times the steps: a quarter of the progress to the target, half of its steps."""

    def slow_start(line: list[str], epoch: int) -> None:
        line[1] = repr(float(line[1]) * (3 if epoch < 10 else (30 + epoch - 9) / (epoch + 1)))

    truth = epochs_of(tables, "large", slow_start)
    needed = truth.epochs_needed[64]
    assert needed == pytest.approx(32, rel=0.01)
    whole, one = truth.iterations[64], truth.epochs[64][0].iteration
    assert truth.iterations_at(64, 10 / needed) == pytest.approx(10 * one)
    assert truth.iterations_at(64, 1.0) == pytest.approx(whole)
    assert truth.progress_at(64, 10 * one) == pytest.approx(10 / needed)
    assert truth.progress_at(64, whole) == pytest.approx(1.0)
    choice = ClusterChoice(workers=4, batch=64)
    left = truth.seconds_left(choice, 10 / needed)
    assert left == pytest.approx((whole - 10 * one) * truth.step_seconds(choice))
    assert left < 0.6 * truth.seconds(choice)


def test_a_seed_draws_speed_start_and_noise_of_a_lease(truth: ScavengerTruth) -> None:
    def trials(seed: int | None) -> list[Measurement]:
        cloud, made = MeasuredTraining(truth=truth, seed=seed), []
        problem = BenchCase(truth=truth).problem(Objective.TIME)
        for _ in range(12):
            where = at(4, 64)
            trial = measure(cloud, where, attempt=1, policy=problem.trial, usd_per_hour=problem.price(where))
            assert isinstance(trial, Measurement)
            made.append(trial)
        return made

    plain, drawn = trials(None), trials(1)
    assert [trial.noise_scale for trial in plain] == pytest.approx([300.0] * 12)
    assert {trial.startup_seconds for trial in plain} == {MEAN_START_SECONDS}
    assert trials(1) == drawn
    assert trials(2) != drawn
    for value in ("samples_per_second", "startup_seconds", "noise_scale"):
        assert len({getattr(trial, value) for trial in drawn}) == 12
    assert all(START_SECONDS[0] <= trial.startup_seconds <= START_SECONDS[1] for trial in drawn)
    speeds = [trial.samples_per_second / plain[0].samples_per_second for trial in drawn]
    assert 0.01 < np.std(np.log(speeds)) < 0.06
    assert all(100 < (trial.noise_scale or 0.0) < 900 for trial in drawn)


def test_restarts_count_in_the_regret_and_the_first_start_does_not(truth: ScavengerTruth) -> None:
    made = train(BenchCase(truth=truth), "partial", Objective.TIME, seed=0)
    (final,) = made.run.attempts
    best = min(truth.seconds_left(choice, made.progress) for choice in truth.choices)
    assert made.regret_time == pytest.approx((final.seconds - made.starts[0]) / best - 1, abs=1e-9)
    twice = replace(made.run, steps=(*made.run.steps, made.run.steps[-1]))
    again = replace(made, run=twice, starts=(*made.starts, made.starts[0]))
    assert again.regret_time == pytest.approx((2 * final.seconds - made.starts[0]) / best - 1, abs=1e-9)
    assert replace(made, progress=1.0).regret_time is None, "met in a trial"


def test_rows_and_medians(tables: Path) -> None:
    rows = score(load_truths(tables), modes=["full", "partial"], seeds=2)
    assert [(row.model, row.mode, row.seed) for row in rows] == [
        (model, mode, seed) for model in ("large", "small") for mode in ("full", "partial") for seed in range(2)
    ]
    for row in rows:
        assert row.trials >= 1
        for regret in (row.regret_time, row.regret_cost):
            assert regret is None or regret >= 0
        assert row.total_ratio > 1
        assert (row.time_mape is None) == (row.mode == "full" or row.done_share == 1), "full has tried everything"
    full, partial = summarise(rows)
    assert full.time_mape is None
    assert (full.runs, partial.runs) == (4, 4)
    assert partial.overhead == Spread.of([r.overhead for r in rows if r.mode == "partial"])
    assert as_json(rows)["summary"]


def test_a_spread_is_median_and_quartiles() -> None:
    assert Spread.of([None, 1.0, 2.0, 3.0, 4.0, 5.0]) == Spread(median=3.0, low=2.0, high=4.0)
    assert Spread.of([None]) is None


def test_universal_knows_the_other_models(tables: Path) -> None:
    (row,) = score(load_truths(tables), models=["large"], modes=["universal"], seeds=1)
    assert row.trials == 1
    assert row.mode in MODES


def test_the_command_prints_rows_and_summary(tables: Path) -> None:
    words = ["bench", "scavenger", "--tables", str(tables), "--jobs", "1", "--seeds", "1", "--modes", "partial"]
    result = CliRunner().invoke(cli, [*words, "--models", "large", "--known-length", "-o", "json"])
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    assert [row["mode"] for row in printed["rows"]] == ["partial"]
    assert set(printed["rows"][0]) == {
        *("model", "mode", "seed", "trials", "restarts", "done_share", "step_mape", "iterations_mape", "time_mape"),
        *("cost_mape", "regret_time", "regret_cost", "regret_knee", "overhead", "total_ratio"),
    }
    assert set(printed["summary"][0]) == {
        *("mode", "runs", "met_in_trials", "step_mape", "iterations_mape", "time_mape", "regret_time", "regret_cost"),
        *("overhead", "total_ratio"),
    }
    text = CliRunner().invoke(cli, [*words, "--models", "small", "--rule", "sqrt"])
    assert "Median over models and seeds" in text.stdout


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
