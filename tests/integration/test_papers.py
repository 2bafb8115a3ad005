"""The scripts of benchmarks/papers: small real runs, the documented JSON, and bad input."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from mlcd.errors import BadInput
from mlcd.goal import Goal, Objective
from mlcd.units import Usd
from papers import heterbo, scavenger, siren
from papers.heterbo_figures.experiment import Entry, Experiment, Settings, best_promised, free_optimum, runs, within
from papers.heterbo_figures.figures import FIGURES, figure_names

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "papers"
FIGURE_KEYS = {"figure", "what", "paper", "ours", "unit", "simulated", "seeds", "command", "note"}


def called(capsys: pytest.CaptureFixture[str], script: Any, *words: str) -> str:
    capsys.readouterr()
    script.main(words)
    return capsys.readouterr().out


@pytest.mark.parametrize(
    "name", ["heterbo", *(pytest.param(each, marks=pytest.mark.extra) for each in ("falcon", "siren", "scavenger"))]
)
def test_the_scripts_run_from_anywhere_and_refuse_without_a_traceback(name: str, tmp_path: Path) -> None:
    def call(*words: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, str(FOLDER / f"{name}.py"), *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert "--figures" in call("--help").stdout
    refused = call("--figures", "no-such", "--h200") if name == "falcon" else call("--figures", "no-such")
    assert refused.returncode == 2
    assert "--figures: " in refused.stderr
    assert "Traceback" not in refused.stderr


# ---- HeterBO


def test_heterbo_gives_the_promised_json(capsys: pytest.CaptureFixture[str]) -> None:
    out = called(capsys, heterbo, "--figures", "1a,14", "--seeds", "1", "--jobs", "1", "-o", "json")
    (key,) = found = json.loads(out)
    assert key == "figures"
    entries = found["figures"]
    assert [e["figure"] for e in entries] == sorted((e["figure"] for e in entries), key=["1a", "14"].index)
    for entry in entries:
        assert set(entry) == FIGURE_KEYS
        assert entry["simulated"] is True
        assert entry["seeds"] == 1
        assert entry["command"] == f"benchmarks/papers/heterbo.py --figures {entry['figure']} --seeds 1"
    price = next(e for e in entries if e["figure"] == "1a")
    assert price["paper"] == 42.5
    assert price["ours"] == pytest.approx(7.2 / 0.17)


def test_heterbo_states_that_it_is_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    out = called(capsys, heterbo, "--figures", "1b,3", "--jobs", "1")
    assert out.startswith("SIMULATED")
    assert "ours (simulated)" in out
    assert "Fig. 1b: benchmarks/papers/heterbo.py --figures 1b --seeds 5" in out


@pytest.mark.parametrize(
    ("words", "message"), [(("--figures", "4"), "no figure '4'"), (("--figures", ","), "name at least one")]
)
def test_unknown_figures_are_refused(words: Sequence[str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        heterbo.main(words)


def test_seeds_are_one_or_more(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        heterbo.main(["--seeds", "0"])
    assert "--seeds: must be a whole number from 1 up" in capsys.readouterr().err


def test_every_figure_of_the_paper_exists() -> None:
    names = ["1a", "1b", "2", "3", "5", "7", *map(str, range(9, 20))]
    assert list(FIGURES) == names
    assert figure_names("all") == tuple(names)
    assert figure_names(" 9, 1A,9") == ("9", "1a")
    assert {f.name for f in fields(Entry)} == FIGURE_KEYS


def test_the_order_of_figure_1b_and_the_curve_of_figure_3() -> None:
    settings = Settings(seeds=1)
    best, *others = sorted(FIGURES["1b"](settings)[:3], key=lambda entry: float(entry.ours or 0))
    assert "10 x c5.4xlarge" in best.what
    assert len(others) == 2
    top, last = FIGURES["3"](settings)[1:]
    assert isinstance(top.ours, int)
    assert 1 < top.ours < 50
    assert isinstance(last.ours, float)
    assert last.ours < 95


@pytest.mark.parametrize("figure", ["5", "7", "10", "15"])
def test_figures_run_with_one_seed(figure: str) -> None:
    entries = FIGURES[figure](Settings(seeds=1))
    assert entries
    assert all(entry.figure == figure and entry.what and entry.unit for entry in entries)


def test_the_best_promised_is_no_better_than_the_free_optimum() -> None:
    experiment = Experiment(job="resnet-scale-out", goal=Goal(minimize=Objective.TIME, budget=Usd.of(100)))
    free, promised = free_optimum(experiment), best_promised(experiment)
    assert free is not None
    assert promised is not None
    assert free.usd <= 100
    assert free.value < promised.value
    assert promised.usd * 1.153 < 100  # exp(4.75 x 3%): the bound at the default assurance
    hopeless = replace(experiment, goal=Goal(minimize=Objective.TIME, budget=Usd.of(1)))
    assert free_optimum(hopeless) is None
    outcomes = runs(experiment, "heterbo", Settings(seeds=1))
    assert outcomes[0].kept
    assert within(outcomes, free, tolerance=10.0) == 100.0
    assert within(outcomes, None) is None


# ---- Siren and Scavenger


def test_sirens_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert "X: 120, then 20, then 10" in called(capsys, siren, "--figures", "toy")
    assert "44.3%" in called(capsys, siren, "--figures", "ec2")
    found = json.loads(called(capsys, siren, "-o", "json"))
    assert list(found) == ["toy", "ec2"]
    assert len(found["toy"]["rows"]) == 4
    assert len(found["ec2"]["findings"]) == 6
    assert found["toy"]["simulated"] is found["ec2"]["simulated"] is True


def test_scavengers_pictures(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ("--figures", "resnet18", "--pictures", str(tmp_path / "new"))
    assert "ResNet-18, memory-proportional, SIMULATED" in called(capsys, scavenger, *words)
    drawn = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert drawn == ["scavenger-resnet18-memory-proportional.svg", "scavenger-resnet18-per-node.svg"]
    found = json.loads(called(capsys, scavenger, "--figures", "resnet18", "-o", "json"))["figures"]
    assert [one["pricing"] for one in found] == ["per-node", "memory-proportional"]
    assert len(found[0]["points"]) == 16
