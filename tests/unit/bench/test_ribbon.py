"""Tables of whole models by instance and batch, read and searched without operators."""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from mlcd.bench.serve.ribbon import ribbon_beds
from mlcd.cli.main import cli
from mlcd.errors import BadInput
from papers.falcon_evaluations import Setting, evaluate

REAL = Path(__file__).resolve().parents[4] / "shared" / "measured" / "ribbon"


def write(folder: Path, name: str, slow: float, instances: tuple[str, ...] = ("small", "large")) -> None:
    lines = ["instance,batch,mean_ms,throughput"]
    for instance in instances:
        for batch in (1, 2, 4, 8, 16):
            seconds = slow * (2.0 + batch) / (3.0 if instance == "large" else 1.0)
            lines.append(f"{instance},{batch},{seconds},{1000 * batch / seconds}")
    (folder / f"{name}.csv").write_text("\n".join(lines), encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "instances.csv").write_text("instance,usd_per_hour\nsmall,0.1\nlarge,0.25\nother,1\n", encoding="utf-8")
    for name, slow in (("one", 1.0), ("two", 1.5), ("three", 0.6)):
        write(tmp_path, name, slow)
    write(tmp_path, "four", 1.0, ("other",))
    write(tmp_path, "five", 2.0, ("other",))
    return tmp_path


def test_models_of_the_same_configurations_form_one_bed(folder: Path) -> None:
    first, second = ribbon_beds(folder)
    assert (first.targets, second.targets) == (("one", "three", "two"), ("five", "four"))
    known = first.known
    assert len(known.configs) == 10
    assert not known.simulated
    assert not first.has_operators
    row = next(at for at, c in enumerate(known.configs) if c.instance == "large" and c["batch"] == 8)
    assert known.usd_per_hour[row] == 0.25
    assert first.model("one").latency_seconds[row] == pytest.approx(0.01 / 3)
    assert known.throughput(first.model("one"))[row] == pytest.approx(8 / (0.01 / 3))


def test_only_methods_for_whole_models_apply_and_it_says_so(folder: Path) -> None:
    words = ["bench", "serve", "--tables", str(folder), "--strategies", "falcon,source-mean,random", "--slo", "5"]
    done = CliRunner().invoke(cli, [*words, "--trials", "1,3", "--seeds", "2", "--jobs", "1"])
    assert done.exit_code == 0, done.output
    assert "falcon is excluded: it needs operators, and these tables have none" in done.output
    assert "no operators, so whole models only" in done.output
    assert "source-mean" in done.output


def test_evaluations_need_operators(folder: Path) -> None:
    setting = Setting(bed=ribbon_beds(folder)[0], slo_ms=5.0, strategies=("random",))
    with pytest.raises(BadInput, match="these tables have none"):
        evaluate(setting, (1,))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("instances.csv", "instance,price\nsmall,1\n", r"instances\.csv: no column usd_per_hour"),
        ("instances.csv", "instance,usd_per_hour\nsmall,1\n", r"no price for large"),
        ("instances.csv", "instance,usd_per_hour\nsmall,free\n", r"usd_per_hour: not a number \(got 'free'\)"),
        ("one.csv", "instance,batch,mean_ms\nsmall,1,-2\n", r"one\.csv: mean_ms: must be more than 0"),
        ("one.csv", "instance,batch,mean_ms\nsmall,1.5,2\n", r"one\.csv: batch: not a whole number"),
        ("one.csv", "instance,batch,mean_ms\nsmall,1,2\nsmall,1,2\n", r"one\.csv: .*appears twice"),
        ("one.csv", "instance,batch,mean_ms\n", r"one\.csv: no rows"),
    ],
)
def test_a_table_of_another_form_is_refused(folder: Path, name: str, text: str, message: str) -> None:
    (folder / name).write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match=message):
        ribbon_beds(folder)


def test_a_folder_without_comparable_models_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"instances\.csv: cannot be read"):
        ribbon_beds(tmp_path)
    (tmp_path / "instances.csv").write_text("instance,usd_per_hour\nsmall,1\n", encoding="utf-8")
    with pytest.raises(BadInput, match="no two models"):
        ribbon_beds(tmp_path)


@pytest.mark.skipif(not REAL.is_dir(), reason="the measured tables are not here")
def test_the_measured_tables_are_two_groups() -> None:
    first, second = ribbon_beds(REAL)
    assert (first.targets, second.targets) == (("candle", "resnet", "vgg"), ("dien", "mtwnd"))
    assert len(first.known.configs) == len(second.known.configs) == 400
    for bed in (first, second):
        for name in bed.targets:
            latency = bed.model(name).latency_seconds
            assert np.isfinite(latency).all()
            assert latency.min() > 0
