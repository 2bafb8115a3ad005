"""`mlcd runs -o csv`: the fields of its JSON, a line a run, safe in a spreadsheet."""

import csv
import io
import json
from pathlib import Path

import pytest

import mlcd
from mlcd.cli.main import run
from mlcd.cli.output import print_csv

JOB = {
    "name": "listed",
    "resources": {"infra": "sim/aws", "instance_type": "c5.xlarge"},
    "num_nodes": 1,
    "job": {"model": "alexnet", "samples": 500, "epochs": 1},
    "goal": {"minimize": "time"},
}


def test_runs_are_listed_as_csv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLCD_HOME", str(tmp_path))
    assert run(["runs", "-o", "csv"]) == 0
    assert capsys.readouterr().out == ""
    for seed in (0, 1):
        mlcd.train(JOB, seed=seed)
    assert run(["runs", "-o", "json"]) == 0
    expected = json.loads(capsys.readouterr().out)["runs"]
    assert run(["runs", "-o", "csv"]) == 0
    found = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [list(row) for row in found] == [list(row) for row in expected]
    assert [row["run_id"] for row in found] == [row["run_id"] for row in expected]
    assert [float(row["spent_usd"]) for row in found] == [row["spent_usd"] for row in expected]
    assert {row["live"] for row in found} == {"false"}


def test_a_cell_is_one_line_and_no_formula(capsys: pytest.CaptureFixture[str]) -> None:
    print_csv([{"a": "=1+1", "b": 'x,"y"\nz', "c": -1.5, "d": None, "e": "\x1b[31m"}])
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert row["a"] == "'=1+1"
    assert "\n" not in row["b"]
    assert row["c"] == "-1.5"
    assert row["d"] == ""
    assert "\x1b" not in row["e"]


@pytest.mark.parametrize(
    "text", ["=1", "+1", "-1", "@x", "  =1", "\t=1", "\uff1d1", "\uff0b1", "\uff0d1", "\uff20x", "\u3000=1"]
)
def test_a_text_is_no_formula_in_any_spreadsheet(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_csv([{"a": text}])
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert row["a"].startswith("'")


def test_the_catalog_as_csv_is_a_catalog_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLCD_HOME", str(tmp_path))
    assert run(["catalog", "g6.*", "c7i.large", "-o", "csv"]) == 0
    written = capsys.readouterr().out
    assert run(["catalog", "g6.*", "c7i.large", "-o", "json"]) == 0
    expected = json.loads(capsys.readouterr().out)["instances"]
    assert [row["name"] for row in csv.DictReader(io.StringIO(written))] == [each["name"] for each in expected]
    own = written.replace("0.8048", "0.9")
    assert own != written
    (tmp_path / "own.csv").write_text(own, encoding="utf-8")
    monkeypatch.setenv("MLCD_CATALOG", str(tmp_path / "own.csv"))
    assert run(["catalog", "g6.xlarge", "-o", "json"]) == 0
    (changed,) = json.loads(capsys.readouterr().out)["instances"]
    assert changed == {**expected[0], "usd_per_hour": 0.9}
