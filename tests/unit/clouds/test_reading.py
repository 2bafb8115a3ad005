"""A job's progress is read from what it writes: mlcd.steps' lines, a pattern over its output, its own file."""

import json
from pathlib import Path

import pytest

from mlcd.clouds.reading import GradientNorms, Reading, ReportSource, Tail, progress_source
from mlcd.spec.real import ProgressRule


class Clock:
    """Seconds since 1970, as the test sets them."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def source(
    rule: ProgressRule, folder: Path, clock: Clock, *, batch: int | None = None, base: float = 0.0
) -> ReportSource:
    return progress_source(rule, folder, batch=batch, base_samples=base, clock=clock)


def append(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as out:
        out.write(text)


def samples(readings: list[Reading]) -> list[float | None]:
    return [reading.samples for reading in readings]


def test_only_complete_new_lines_are_read(tmp_path: Path) -> None:
    file = tmp_path / "log.txt"
    tail = Tail(file)
    assert tail.lines() == []
    append(file, "one\ntwo\nthr")
    assert tail.lines() == ["one", "two"]
    assert tail.lines() == []
    append(file, "ee\n")
    assert tail.lines() == ["three"]
    with file.open("ab") as out:
        out.write(b"\xff\xfe not text\n")
    assert tail.lines() == ["\ufffd\ufffd not text"]


def test_a_progress_bar_is_read_while_it_moves(tmp_path: Path, clock: Clock) -> None:
    reader = source(ProgressRule(pattern=r"(?P<steps>\d+)/100"), tmp_path, clock, batch=10)
    log = tmp_path / "node-0" / "log.txt"
    append(log, "\r 1/100 |#  |\r 2/100 |## |\r 3/10")
    assert samples(reader.new_readings()) == [10.0, 20.0]
    append(log, "0 |###|\r\n")
    assert samples(reader.new_readings()) == [30.0]


def test_lines_of_mlcd_steps(tmp_path: Path, clock: Clock) -> None:
    reader = source(ProgressRule(), tmp_path, clock)
    lines = [
        {"time": 10.5, "samples": 0, "total": 100},
        {"time": 11, "samples": 40},
        {"time": 12, "checkpoint": 40},
        {"time": 13, "warning": "the disk is full"},
        {"samples": 50},
        {"time": 14, "samples": -1},
        {"time": 14, "samples": True},
        {"time": 14, "samples": "nan"},
        {"time": 14, "samples": "Infinity"},
    ]
    append(tmp_path / "progress.jsonl", "".join(json.dumps(line) + "\n" for line in lines) + "[1]\nnot json\n{")
    found = reader.new_readings()
    assert [(r.seconds, r.samples, r.checkpoint, r.warning) for r in found[:4]] == [
        (10.5, 0.0, None, ""),
        (11.0, 40.0, None, ""),
        (12.0, None, 40.0, ""),
        (13.0, None, None, "the disk is full"),
    ]
    assert samples(found[4:]) == [None] * 4  # invalid values are no progress; a line without a time is ignored
    assert reader.new_readings() == []


@pytest.mark.parametrize(
    ("pattern", "line", "expected"),
    [
        (r"samples: (?P<samples>[\d.]+)", "epoch 1 samples: 640 loss 0.1", 640.0),
        (r"step (?P<steps>\d+)", "step 7/100", 7 * 32.0),
        (r"step (?P<steps>\d+) of (?P<samples>\d+)", "step 7 of 99", 99.0),
    ],
)
def test_a_pattern_over_the_output_of_node_0(
    tmp_path: Path, clock: Clock, pattern: str, line: str, expected: float
) -> None:
    reader = source(ProgressRule(pattern=pattern), tmp_path, clock, batch=32, base=5.0)
    assert reader.new_readings() == []
    append(tmp_path / "node-1" / "log.txt", line + "\n")
    assert reader.new_readings() == []
    append(tmp_path / "node-0" / "log.txt", f"hello\n{line}\n")
    assert reader.new_readings() == [Reading(seconds=100.0, samples=expected)]


def test_a_rate_is_counted_over_the_time_between_its_lines(tmp_path: Path, clock: Clock) -> None:
    reader = source(ProgressRule(pattern=r"samples/s: (?P<rate>[0-9.]+)"), tmp_path, clock, base=1000.0)
    log = tmp_path / "node-0" / "log.txt"
    append(log, "samples/s: 50\n")
    assert samples(reader.new_readings()) == [1000.0]  # the first rate only starts the clock
    clock.now += 2.0
    append(log, "samples/s: 60\n")
    assert samples(reader.new_readings()) == [1120.0]
    clock.now += 1.0
    append(log, "samples/s: .\nsamples/s: 40\n")
    assert samples(reader.new_readings()) == [1160.0]


def test_a_file_of_the_jobs_own(tmp_path: Path, clock: Clock) -> None:
    reader = source(ProgressRule(file="out/progress.jsonl"), tmp_path, clock)
    assert reader.new_readings() == []
    file = tmp_path / "workdir" / "out" / "progress.jsonl"
    append(file, '{"steps": 3}\n{"loss": 0.1}\n"text"\n{"samples": "12", "steps": 99}\n{"steps": true}\n')
    assert samples(reader.new_readings()) == [3.0, 12.0]  # a step is one sample where no batch is known


def test_the_gradients_norms(tmp_path: Path, clock: Clock) -> None:
    lines: list[dict[str, object]] = [
        {"time": 1, "samples": 64, "noise": {"local": 3.0, "total": 2.0, "workers": 2, "batch": 64}},
        {"time": 2, "samples": 64, "noise": {"before": 1.0, "now": 2.0, "dot": -0.5, "workers": 1, "batch": 64}},
        {"time": 3, "samples": 64, "noise": {"local": None, "total": None, "workers": 2, "batch": None}},
        {"time": 4, "samples": 64, "noise": {"local": 3.0}},
        {"time": 5, "samples": 64, "noise": "loud"},
        {"time": 6, "samples": 64},
    ]
    append(tmp_path / "progress.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    readings = source(ProgressRule(), tmp_path, clock).new_readings()
    assert samples(readings) == [64.0] * 6
    assert [reading.noise for reading in readings] == [
        GradientNorms(workers=2, batch=64, local=3.0, total=2.0),
        GradientNorms(workers=1, batch=64, before=1.0, now=2.0, dot=-0.5),
        GradientNorms(workers=2),
        None,
        None,
        None,
    ]
