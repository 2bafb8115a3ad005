"""A job's progress is read from what it writes: mlcd.steps' lines, a pattern over its output, its own file."""

import json
import os
from pathlib import Path

import pytest

from mlcd.clouds.reading import (
    MOST_HEARD,
    MOST_TORN_LINES,
    MOST_WARNINGS,
    GradientNorms,
    Heard,
    Reading,
    ReportSource,
    progress_source,
)
from mlcd.spec.real import ProgressRule
from mlcd.untrusted import Malformed


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


def test_a_progress_bar_is_read_while_it_moves(tmp_path: Path, clock: Clock) -> None:
    reader = source(ProgressRule(pattern=r"(?P<steps>\d+)/100"), tmp_path, clock, batch=10)
    log = tmp_path / "node-0" / "log.txt"
    append(log, "\r 1/100 |#  |\r 2/100 |## |\r 3/10")
    assert samples(reader.new_readings()) == [10.0, 20.0]
    append(log, "0 |###|\r\n")
    assert samples(reader.new_readings()) == [30.0]


def test_lines_of_mlcd_steps(tmp_path: Path, clock: Clock) -> None:
    reader = source(ProgressRule(), tmp_path, clock)
    lines: list[dict[str, object]] = [
        {"time": 10.5, "samples": 0, "total": 100},
        {"time": 11, "samples": 40, "unknown": [1]},
        {"time": 12, "checkpoint": 40},
        {"time": 13, "warning": "the disk is \x1b[2J full"},
        {"time": 14, "samples": 50, "metrics": {"loss": -0.5, "none": None}},
    ]
    append(tmp_path / "progress.jsonl", "".join(json.dumps(line) + "\n" for line in lines) + "{")
    found = reader.new_readings()
    assert [(r.seconds, r.samples, r.checkpoint, r.warning) for r in found] == [
        (10.5, 0.0, None, ""),
        (11.0, 40.0, None, ""),
        (12.0, None, 40.0, ""),
        (13.0, None, None, "the disk is \ufffd[2J full"),
        (14.0, 50.0, None, ""),
    ]
    assert (found[0].total, found[4].metrics) == (100.0, {"loss": -0.5})
    assert reader.new_readings() == []


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("[1]", "should be a mapping, is a list"),
        ("null", "should be a mapping, is null"),
        ('{"samples": 50}', "time is missing"),
        ('{"time": "now", "samples": 50}', "time should be a number"),
        ('{"time": NaN}', "has NaN in place of a number"),
        ('{"time": 1, "samples": -1}', "samples should be between 0 and 1e+18"),
        ('{"time": 1, "samples": true}', "samples should be a number"),
        ('{"time": 1, "samples": "12"}', "samples should be a number"),
        ('{"time": 1, "samples": 1e19}', "samples should be between 0 and 1e+18"),
        ('{"time": 1, "samples": Infinity}', "has Infinity"),
        (f'{{"time": 1, "samples": {"9" * 400}}}', "an integer of 400 digits"),
        ('{"time": 1, "samples": 1, "total": 1e-300}', "total should be 0 or at least"),
        ('{"time": 1, "samples": 1e-300}', "samples should be 0 or at least"),
        ('{"time": 1, "checkpoint": []}', "checkpoint should be a number, is a list"),
        ('{"time": 1, "warning": {}}', "warning should be a string"),
        ('{"time": 1, "samples": 1, "metrics": {"loss": "low"}}', "metrics: loss should be a number"),
        ('{"time": 1, "samples": 1, "metrics": {"loss": -Infinity}}', "has -Infinity"),
        ('{"time": 1, "samples": 1, "metrics": {"loss": 1e200}}', "metrics: loss should be between"),
        ('{"time": 1, "samples": 1, "metrics": [1]}', "metrics: should be a mapping"),
        (json.dumps({"time": 1, "samples": 1, "metrics": dict.fromkeys(map(str, range(200)), 1)}), "has 200 metrics"),
        ('{"time": 1, "samples": 1, "noise": "loud"}', "noise: should be a mapping"),
        ('{"time": 1, "samples": 1, "noise": {"local": 3.0}}', "noise: workers is missing"),
        ('{"time": 1, "samples": 1, "noise": {"workers": 1.5}}', "noise: workers should be an integer"),
        ('{"time": 1, "samples": 1, "noise": {"workers": 2, "local": -1}}', "noise: local should be between"),
        ("[" * 1000, "nested deeper than"),
    ],
)
def test_a_malformed_line_names_the_file_and_the_line(tmp_path: Path, clock: Clock, line: str, problem: str) -> None:
    reader = source(ProgressRule(), tmp_path, clock)
    append(tmp_path / "progress.jsonl", f'{{"time": 1, "samples": 1}}\n{line}\n')
    with pytest.raises(Malformed) as refused:
        reader.new_readings()
    assert str(refused.value).startswith(f"{tmp_path / 'progress.jsonl'}: line 2: ")
    assert problem in refused.value.problem or problem in str(refused.value)


def test_few_lines_may_be_torn(tmp_path: Path, clock: Clock) -> None:
    """A full disk or a killed process leaves half a line."""
    reader = source(ProgressRule(), tmp_path, clock)
    append(tmp_path / "progress.jsonl", '{"time": 1, "sam\n\n{"time": 2, "samples": 5}\n' * MOST_TORN_LINES)
    found = reader.new_readings()
    assert samples(found) == [None, 5.0] * MOST_TORN_LINES
    assert "progress.jsonl: line 1: is not JSON" in found[0].warning
    append(tmp_path / "progress.jsonl", "garbage\n")
    with pytest.raises(Malformed, match=r"progress.jsonl: line 10: is not JSON"):
        reader.new_readings()


def test_samples_that_go_back_are_warned_of_once(tmp_path: Path, clock: Clock) -> None:
    """A job that was started again from its checkpoint goes back; the lease counts no progress until it is there."""
    reader = source(ProgressRule(), tmp_path, clock)
    lines = [{"time": at, "samples": count} for at, count in enumerate([10, 20, 5, 6, 7])]
    append(tmp_path / "progress.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    found = reader.new_readings()
    assert [r.samples for r in found if r.samples is not None] == [10.0, 20.0, 5.0, 6.0, 7.0]
    (warning,) = [r.warning for r in found if r.warning]
    assert "progress.jsonl: line 3: samples went back from 20 to 5" in warning


@pytest.mark.parametrize("rule", [ProgressRule(), ProgressRule(pattern=r"(?P<steps>\d+)"), ProgressRule(file="own")])
@pytest.mark.parametrize("kind", ["fifo", "folder", "link", "way"])
def test_only_a_regular_file_of_the_lease_is_read(tmp_path: Path, clock: Clock, rule: ProgressRule, kind: str) -> None:
    lease = tmp_path / "lease"
    name = "node-0/log.txt" if rule.pattern else "workdir/own" if rule.file else "progress.jsonl"
    path, other = lease / name, tmp_path / "other"
    other.mkdir()
    (other / path.name).write_text('{"time": 1, "samples": 9}\n')
    if kind == "way":
        path.parent.parent.mkdir(exist_ok=True)
        path.parent.symlink_to(other)
    else:
        path.parent.mkdir(parents=True)
        if kind == "fifo":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
        else:
            path.symlink_to(other / path.name)
    reader = progress_source(rule, lease, batch=None, base_samples=0.0, clock=clock, below=tmp_path)
    with pytest.raises(Malformed, match=f"{path}: "):
        reader.new_readings()


def test_a_users_own_file_may_begin_again_and_have_anything_else_in_it(tmp_path: Path, clock: Clock) -> None:
    reader = source(ProgressRule(file="own"), tmp_path, clock)
    file = tmp_path / "workdir" / "own"
    append(file, '{"samples": 5, "loss": NaN}\n{"rate": Infinity}\n{"samples": 1e999}\n{"steps": -1}\n[[[\n')
    assert samples(reader.new_readings()) == [5.0]
    file.write_text('{"samples": 3}\n')
    assert samples(reader.new_readings()) == [3.0]
    append(file, '{"samples": 1e19}\n')
    with pytest.raises(Malformed, match=r"own: reports 1e.19 samples"):
        reader.new_readings()


def test_a_long_line_is_searched_at_its_beginning_only(tmp_path: Path, clock: Clock) -> None:
    reader = source(ProgressRule(pattern=r"(x+)+ (?P<steps>\d+)"), tmp_path, clock)
    append(tmp_path / "node-0" / "log.txt", f"{' ' * 2000}x 7\n{' ' * 500}x 8\n")
    assert samples(reader.new_readings()) == [8.0]


def test_a_pattern_that_takes_too_long_ends_the_reading(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlcd.clouds.reading.PATTERN_SECONDS", 0.0)
    reader = source(ProgressRule(pattern=r"(?P<steps>\d+)"), tmp_path, clock)
    append(tmp_path / "node-0" / "log.txt", "1\n2\n")
    with pytest.raises(Malformed, match=r"log.txt: takes too long to read: job.progress.pattern"):
        reader.new_readings()


def test_what_was_heard_is_bounded_and_evenly_spread() -> None:
    heard = Heard()
    for at in range(100_000):
        heard.add(Reading(seconds=at, samples=at, metrics={"loss": 1.0}))
        heard.add(Reading(seconds=at, warning=f"warning {at % 1000}"))
        heard.add(Reading(seconds=at, samples=at))
    reports = [reading.seconds for reading in heard if not reading.warning]
    assert MOST_HEARD / 2 < len(reports) <= MOST_HEARD
    assert reports[-1] == 99_999
    assert reports[0] < 1000
    assert [reading.warning for reading in heard if reading.warning] == [f"warning {at}" for at in range(MOST_WARNINGS)]


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
        {"time": 6, "samples": 64},
    ]
    append(tmp_path / "progress.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    readings = source(ProgressRule(), tmp_path, clock).new_readings()
    assert samples(readings) == [64.0] * 4
    assert [reading.noise for reading in readings] == [
        GradientNorms(workers=2, batch=64, local=3.0, total=2.0),
        GradientNorms(workers=1, batch=64, before=1.0, now=2.0, dot=-0.5),
        GradientNorms(workers=2),
        None,
    ]
