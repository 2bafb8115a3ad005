"""Measured trainings as tables: on tables that follow a law, the truth is the law's."""

from pathlib import Path

import pytest
from tests.scavenger_tables import BATCHES, WORKERS, step_seconds, steps_to_target, write_tables

from mlcd.bench.scavenger.truth import USD_PER_NODE_HOUR, ClusterChoice, ScavengerTruth, load_truth, load_truths
from mlcd.errors import BadInput


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


def test_an_epoch_without_a_gradient_reports_no_noise(tables: Path) -> None:
    path = tables / "small" / "convergence.csv"
    lines = path.read_text(encoding="utf-8").splitlines()
    known = load_truth(tables / "small")
    assert known.noise_at(64, 10.0) == pytest.approx(300)
    path.write_text("\n".join(line.replace(",2.0,", ",0,") for line in lines), encoding="utf-8")
    assert load_truth(tables / "small").noise_at(64, 10.0) is None
