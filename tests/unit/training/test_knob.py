"""mlcd.knob: what the script gets, with and without mlcd, and what it reports."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import mlcd
from mlcd.errors import BadInput
from mlcd.training.training_progress import current_progress


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    current_progress.cache_clear()
    yield
    current_progress.cache_clear()


@pytest.fixture
def progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MLCD_PROGRESS_FILE", str(tmp_path / "progress.jsonl"))
    knobs = {"precision": "bf16", "micro_batch": 4, "recompute": False, "prefetch": None}
    monkeypatch.setenv("MLCD_KNOBS", json.dumps(knobs))
    return tmp_path / "progress.jsonl"


def lines(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_without_mlcd_a_knob_is_its_default() -> None:
    assert mlcd.knob("precision", "fp32") == "fp32"
    assert mlcd.knob("recompute", None) is None


def test_a_knob_has_the_type_of_the_job_file(progress: Path) -> None:
    assert mlcd.knob("precision", "fp32") == "bf16"
    assert mlcd.knob("micro_batch", 1) == 4
    assert mlcd.knob("recompute", True) is False
    assert mlcd.knob("prefetch", 7) == 7  # its condition does not hold
    assert mlcd.knob("unknown", 8) == 8
    assert progress.exists()


def test_what_is_read_is_reported_once(progress: Path) -> None:
    for name in ("precision", "precision", "micro_batch"):
        mlcd.knob(name, 0)
    assert [line["knobs"] for line in lines(progress)] == [["precision"], ["micro_batch"]]


def test_a_misspelt_name_is_warned_about(progress: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert mlcd.knob("precison", "fp32") == "fp32"
    (warning,) = (line["warning"] for line in lines(progress) if "warning" in line)
    assert warning == "the script asks for the knob 'precison', which the job file does not have; 'precision' is one"
    assert "precison" in capsys.readouterr().err


def test_a_name_must_be_text() -> None:
    with pytest.raises(BadInput, match=r"mlcd.knob: name: must be text \(got 3\)"):
        mlcd.knob(3, 0)  # type: ignore[arg-type]
