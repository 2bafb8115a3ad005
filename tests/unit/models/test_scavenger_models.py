"""Scavenger's models alone: on tables that follow a law each mode sees only what it may, and errors are small."""

import csv
import os
from pathlib import Path

import pytest
from tests.scavenger_tables import BATCHES, WORKERS, step_seconds, steps_to_target, write_tables

from mlcd.bench.scavenger.truth import USD_PER_NODE_HOUR, ClusterChoice, ScavengerTruth, load_truth, load_truths
from mlcd.errors import BadInput
from mlcd.models.universal import JobDescription, KnownJob, universal
from papers.scavenger_models import forecast
from papers.scavenger_models.observed import (
    Observed,
    corners_and_centre,
    observe_all,
    observe_full,
    observe_nothing,
    observe_partial,
    three_batches,
)
from papers.scavenger_models.planner import receding_horizon, time_worth
from papers.scavenger_models.score import MODES, as_json, score, summarise


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    write_tables(tmp_path / "small", size=0.5, floor=300)
    write_tables(tmp_path / "middle", lower=True)
    write_tables(tmp_path / "large", size=3.0, floor=900)
    return tmp_path


@pytest.fixture
def truth(tables: Path) -> ScavengerTruth:
    return load_truth(tables / "large")


@pytest.mark.parametrize("name", ["middle", "large"])
def test_the_target_is_crossed_where_the_law_says(tables: Path, name: str) -> None:
    truth = load_truth(tables / name)
    assert truth.higher_is_better is (name == "large")
    floor = 900 if name == "large" else 500
    assert truth.iterations == pytest.approx({b: steps_to_target(b, floor) for b in BATCHES}, rel=2e-3)


def test_configurations_are_full_nodes_with_a_measured_local_batch(truth: ScavengerTruth) -> None:
    assert set(truth.steps) == set(WORKERS)
    assert all(choice.batch / choice.workers >= 8 for choice in truth.choices)
    assert ClusterChoice(workers=4, batch=32) in truth.choices
    assert ClusterChoice(workers=8, batch=32) not in truth.choices


def test_steps_are_interpolated_and_accumulated(truth: ScavengerTruth) -> None:
    assert truth.step_seconds(ClusterChoice(workers=2, batch=64)) == pytest.approx(step_seconds(2, 32, 3.0)[0])
    step, sync = step_seconds(4, 128, 3.0)
    assert truth.setting(ClusterChoice(workers=4, batch=1024)).pieces == 2
    assert truth.step_seconds(ClusterChoice(workers=4, batch=1024)) == pytest.approx(step + (step - sync))


def test_money_is_by_the_node_and_a_share_of_one_below_four(truth: ScavengerTruth) -> None:
    for workers, nodes in ((1, 0.25), (2, 0.5), (4, 1), (16, 4)):
        choice = ClusterChoice(workers=workers, batch=512)
        hours = truth.seconds(choice) / 3600
        assert truth.usd(choice) == pytest.approx(nodes * USD_PER_NODE_HOUR * hours)


def test_what_each_mode_sees(truth: ScavengerTruth) -> None:
    low, middle, high = three_batches(truth)
    assert (low, middle, high) == (32, 128, 1024)
    full = observe_full(truth)
    assert {c.batch for c in full.tried} == {r.batch for r in full.reached} == {32, 128, 1024}
    assert {c.workers for c in full.tried} == set(WORKERS)
    corners = corners_and_centre(truth)
    assert [(c.workers, c.batch) for c in corners] == [(1, 32), (4, 32), (1, 1024), (32, 1024), (4, 128)]
    assert observe_partial(truth).tried == corners
    nothing = observe_nothing(truth)
    assert (nothing.tried, nothing.runs, nothing.reached, nothing.courses) == ((), (), (), {})


@pytest.mark.parametrize("see", [observe_full, observe_partial])
def test_what_a_mode_does_not_see_does_not_change_its_forecast(tables: Path, see: object) -> None:
    """Other batches' convergence and other configurations' steps are made ten times worse."""
    assert callable(see)
    truth = load_truth(tables / "large")
    seen: Observed = see(truth)
    known = {c.batch for c in seen.tried}
    locals_seen = {(c.workers, min(c.batch / c.workers, 128)) for c in seen.tried}
    _edit(
        tables / "large" / "steps.csv",
        lambda r: (int(r["gpus"]), float(r["local_batch"])) in locals_seen,
        "step_seconds",
    )
    _edit(tables / "large" / "convergence.csv", lambda r: int(r["batch"]) in known, "iteration")
    changed = load_truth(tables / "large")
    assert changed.seconds(ClusterChoice(workers=8, batch=256)) > 5 * truth.seconds(ClusterChoice(workers=8, batch=256))
    for model in (forecast.full, forecast.partial, forecast.goodput):
        before, after = model(seen), model(see(changed))
        assert after.step_seconds == pytest.approx(before.step_seconds, rel=1e-5)  # rounding at the tables' ends
        assert after.iterations == pytest.approx(before.iterations, rel=1e-9)


def _edit(path: Path, keep: object, column: str) -> None:
    assert callable(keep)
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        if not keep(row):
            row[column] = repr(10 * float(row[column]))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def test_a_law_is_found_again_by_every_mode(tables: Path) -> None:
    rows = {(row.model, row.mode): row for row in score(load_truths(tables))}
    assert {mode for _, mode in rows} == set(MODES)
    for model in ("small", "middle", "large"):
        assert rows[model, "full"].time_mape < 0.05
        assert rows[model, "partial"].time_mape < 0.2
        assert rows[model, "goodput"].iterations_mape < 0.02  # the tables' noise is the law's critical batch
        assert rows[model, "full"].regret_time < 0.02
        assert rows[model, "goodput"].regret_cost < 0.02
        assert rows[model, "universal"].overhead == 0 < rows[model, "partial"].overhead < rows[model, "full"].overhead
        assert rows[model, "full"].cost_mape == rows[model, "full"].time_mape


def test_regret_and_error_are_seen_where_a_forecast_is_wrong(tables: Path) -> None:
    rows = {row.model: row for row in score(load_truths(tables), modes=["universal-blind"])}
    assert max(row.time_mape for row in rows.values()) > 0.3  # the small job's coefficients come from larger ones
    assert all(row.regret_time >= 0 and row.regret_knee >= 0 for row in rows.values())


def test_the_description_carries_size_and_length_over(tables: Path) -> None:
    truths = load_truths(tables)
    sizes = {"small": (0.5, 300.0), "middle": (1.0, 500.0), "large": (3.0, 900.0)}
    described = {
        name: JobDescription(parameters=size, gflop_per_sample=size, samples_per_epoch=floor, epochs=1)
        for name, (size, floor) in sizes.items()
    }
    for name, truth in truths.items():
        others: list[KnownJob] = [
            forecast.known_job(observe_all(t), described[other]) for other, t in truths.items() if other != name
        ]
        seen = observe_nothing(truth)
        told = forecast.without_run(seen, others, described[name])
        blind = forecast.without_run(seen, others, None)
        choice = ClusterChoice(workers=8, batch=512)
        assert told.seconds(choice) == pytest.approx(truth.seconds(choice), rel=0.35)
        if name != "middle":
            assert abs(told.seconds(choice) - truth.seconds(choice)) < abs(
                blind.seconds(choice) - truth.seconds(choice)
            )


def test_a_universal_model_needs_another_job() -> None:
    with pytest.raises(BadInput, match="other job"):
        universal([], first_batch=32, largest_local_batch=128)


def test_the_planner_learns_from_what_it_runs(truth: ScavengerTruth) -> None:
    """A first plan that thinks one configuration nearly free runs it once, sees its true time and leaves it."""
    trap, seen = ClusterChoice(workers=1, batch=32), observe_partial(truth)
    seen = Observed(
        settings=seen.settings,
        largest_local_batch=seen.largest_local_batch,
        tried=seen.tried[1:],
        runs=seen.runs[1:],
        reached=seen.reached,
        courses=seen.courses,
    )

    def hopeful(known: Observed) -> forecast.Forecast:
        told = forecast.goodput(known)
        if trap in known.tried:
            return told
        return forecast.Forecast(
            tried=told.tried, step_seconds={**told.step_seconds, trap: 1e-6}, iterations=told.iterations
        )

    course = receding_horizon(truth, seen, hopeful, time_worth)
    assert course.choices[0] == trap
    assert trap not in course.choices[1:]
    assert course.restarts_worth > 0


def test_an_epoch_without_a_gradient_is_left_out(tables: Path) -> None:
    path = tables / "small" / "convergence.csv"
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(line.replace(",2.0,", ",0,") for line in lines), encoding="utf-8")
    truth = load_truth(tables / "small")
    seen = observe_partial(truth)
    assert set(seen.courses.values()) == {()}
    assert forecast.goodput(seen).iterations[256] == pytest.approx(truth.iterations[256], rel=0.01)


def test_a_batch_that_never_gets_there_is_no_configuration(tables: Path) -> None:
    path = tables / "small" / "convergence.csv"
    lines = path.read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if not line.startswith("64,")]
    stuck = [f"64,{100 * k},{0.01 * k},2.0,18.75" for k in range(1, 5)]
    ends_worst = [f"16,{100 * k},{m},2.0,18.75" for k, m in ((1, 0.99), (2, 0.001))]
    path.write_text("\n".join([*kept, *stuck, *ends_worst]) + "\n", encoding="utf-8")
    truth = load_truth(tables / "small")
    assert truth.target == pytest.approx(0.98 * 0.99)
    assert 64 not in truth.batches
    assert 16 in truth.batches


def test_what_was_promised_holds_on_the_measured_trainings() -> None:
    """The tables are no part of the product: MLCD_TABLES, or shared/ beside the checkout, leads to them."""
    beside = Path(__file__).resolve().parents[4] / "shared" / "measured"
    folder = Path(os.environ.get("MLCD_TABLES", str(beside))) / "pollux"
    if not folder.is_dir():
        pytest.skip(f"no measured trainings at {folder}")
    found = {line.mode: line for line in summarise(score(load_truths(folder)))}
    full, partial, universal, goodput = (found[mode] for mode in MODES)
    assert full.median_time_mape <= 0.10
    assert partial.median_time_mape <= 0.20
    assert universal.median_time_mape <= 0.40
    assert full.median_time_mape < partial.median_time_mape < universal.median_time_mape
    assert max(partial.median_regret_time, partial.median_regret_cost) <= 0.08
    assert max(goodput.median_regret_time, goodput.median_regret_cost) <= 0.05


def test_medians_are_over_models(tables: Path) -> None:
    rows = score(load_truths(tables), modes=["full"])
    (line,) = summarise(rows)
    assert line.median_time_mape == sorted(row.time_mape for row in rows)[1]
    assert as_json(rows)["summary"]


def test_bad_tables_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such folder"):
        load_truths(tmp_path / "none")
    with pytest.raises(BadInput, match="has no models"):
        load_truths(tmp_path)
    folder = write_tables(tmp_path / "a")
    steps = (folder / "steps.csv").read_text(encoding="utf-8")
    (folder / "steps.csv").write_text(steps.replace("gpus", "cores"), encoding="utf-8")
    with pytest.raises(BadInput, match="no column gpus"):
        load_truth(folder)
    (folder / "steps.csv").write_text(steps + "lab,1,1,x,1,1,1\n", encoding="utf-8")
    with pytest.raises(BadInput, match=r"steps\.csv:\d+: a number"):
        load_truth(folder)
    (folder / "steps.csv").unlink()
    with pytest.raises(BadInput, match="cannot be read"):
        load_truth(folder)
