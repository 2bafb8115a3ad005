"""A real job's progress, read from what it writes: mlcd.steps' lines, a pattern over its output, or its own file."""

import math
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from mlcd.clouds.silence import Seen
from mlcd.spec.real import PROGRESS_KEYS, ProgressRule
from mlcd.transformer import MOST as MOST_SIZE
from mlcd.transformer import Transformer
from mlcd.untrusted import Fields, Malformed, NotJson, Tail, parse_json, printable

MOST_SAMPLES = 1e18
"""Larger numbers of samples are a mistake: it is a billion samples a second for thirty years."""
LEAST_SAMPLES = 1e-6
"""Less than this, and not none, is a mistake too: speeds and times computed from it have no meaning."""
MOST_NUMBER = 1e100
"""Larger metrics and squared norms would overflow where they are multiplied; those of float32 are below 1e77."""
MOST_METRICS = 100
MOST_TORN_LINES = 3
"""Lines of progress.jsonl that may be no JSON: a full disk, or a process that is killed, leaves half a line."""
MOST_HEARD = 4096
"""Reports on noise and metrics that are kept of a lease; when there are more, every second one is dropped."""
MOST_WARNINGS = 100
WARNING_CHARACTERS = 500
PATTERN_CHARACTERS = 1024
"""How much of a line is searched for the pattern. A pattern that backtracks takes a power of this, not of the line."""
PATTERN_SECONDS = 5.0
"""How long the search for the pattern may take at one reading: milliseconds, unless the pattern backtracks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientNorms:
    """Squared norms of one step's gradients, of `workers` with `batch` samples in all; None where the job diverged.

    local, total      with several workers: the mean of their squared norms, and the squared norm of their mean
    before, now, dot  with a single one: the squared norms of two successive steps, and their inner product
    """

    workers: int
    batch: float | None = None
    local: float | None = None
    total: float | None = None
    before: float | None = None
    now: float | None = None
    dot: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one line reports; `seconds` since 1970.

    samples     processed so far in the whole training
    total       samples of the whole training, where the script reports them
    checkpoint  samples up to which the training was saved
    noise       the gradients' norms at `samples`, where the job reports them
    metrics     the model's quality at `samples`, where the job reports it
    knobs       names of the knobs that the script asked for
    transformer the sizes of the trained model, where the script reports them
    """

    seconds: float
    samples: float | None = None
    total: float | None = None
    checkpoint: float | None = None
    warning: str = ""
    noise: GradientNorms | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    knobs: tuple[str, ...] = ()
    transformer: Transformer | None = None


@runtime_checkable
class Listening(Protocol):
    """A lease whose job reports more than its progress."""

    heard: list[Reading]


class ReportSource(Protocol):
    """A source of readings."""

    @property
    def behind(self) -> bool:
        """Whether the last call left lines unread: there were too many for one call."""
        ...

    @property
    def seen(self) -> Seen:
        """How many lines were read so far."""
        ...

    def new_readings(self) -> list[Reading]:
        """The readings since the last call, in the order they were written. Raises Malformed, OSError."""
        ...


class Heard(list[Reading]):
    """What a lease's job has reported besides its progress: bounded, however much it reports.

    Of warnings the first MOST_WARNINGS different ones are kept; of the others MOST_HEARD, evenly spread over the lease.
    """

    def __init__(self) -> None:
        super().__init__()
        self._warnings: set[str] = set()

    def add(self, reading: Reading) -> None:
        """Keep a reading, if it reports noise, metrics or a warning."""
        if reading.warning:
            if len(self._warnings) < MOST_WARNINGS and reading.warning not in self._warnings:
                self._warnings.add(reading.warning)
                self.append(reading)
        elif reading.noise is not None or reading.metrics:
            self.append(reading)
            if len(self) - len(self._warnings) > MOST_HEARD:
                reports = [other for other in self if not other.warning]
                kept = {id(other) for other in reports[-1::-2]}
                self[:] = [other for other in self if other.warning or id(other) in kept]


def progress_source(
    rule: ProgressRule,
    folder: Path,
    *,
    batch: int | None,
    base_samples: float,
    clock: Callable[[], float],
    below: Path | None = None,
) -> ReportSource:
    """The reader of a lease's folder that the job file's progress rule asks for.

    below  a folder above it that is ours: no link may be on the way from there
    """
    top = below or folder
    if rule.pattern:
        tail = Tail(folder / "node-0" / "log.txt", below=top)
        return _LineReader(tail, _matches(rule.pattern), batch, base_samples, clock)
    if rule.file:  # the user's own: a job that is started again may write it anew
        tail = Tail(folder / "workdir" / rule.file, below=top, may_start_again=True)
        return _LineReader(tail, _fields, batch, base_samples, clock)
    return _StepsReader(Tail(folder / "progress.jsonl", below=top))


class _StepsReader:
    """Reads the lines of mlcd.steps."""

    def __init__(self, tail: Tail) -> None:
        self._tail, self._line, self._torn = tail, 0, 0
        self._furthest = 0.0

    @property
    def behind(self) -> bool:
        return self._tail.behind

    @property
    def seen(self) -> Seen:
        return Seen(lines=self._line)

    def new_readings(self) -> list[Reading]:
        found = []
        for line in self._tail.lines():
            self._line += 1
            if line.strip():
                found += self._readings(line)
        return found

    def _readings(self, line: str) -> list[Reading]:
        source = f"{self._tail.path}: line {self._line}"
        try:
            reading = _reading(Fields(parse_json(line, source), source))
        except NotJson as torn:
            self._torn += 1
            if self._torn > MOST_TORN_LINES:
                raise
            return [_warning(str(torn))]
        if reading.samples is None or reading.samples >= self._furthest:
            self._furthest = max(reading.samples or 0.0, self._furthest)
            return [reading]
        text = f"{source}: samples went back from {self._furthest:g} to {reading.samples:g}"
        self._furthest = reading.samples
        return [_warning(f"{text}: no progress until they are reached again"), reading]


def _reading(fields: Fields) -> Reading:
    """One line of mlcd.steps. Raises Malformed for what it would not write."""
    samples = {name: _samples(fields, name) if name in fields else None for name in ("samples", "total", "checkpoint")}
    return Reading(
        seconds=fields.number("time"),
        **samples,
        warning=_cut(fields.text("warning", most_characters=1_000_000)) if "warning" in fields else "",
        noise=_norms(fields.fields("noise")) if "noise" in fields else None,
        metrics=_metrics(fields.fields("metrics")) if "metrics" in fields else {},
        knobs=_knobs(fields) if "knobs" in fields else (),
        transformer=_transformer(fields.fields("model")) if "model" in fields else None,
    )


def _samples(fields: Fields, name: str) -> float:
    found = fields.number(name, least=0, most=MOST_SAMPLES)
    if 0 < found < LEAST_SAMPLES:
        raise Malformed(fields.source, f"{name} should be 0 or at least {LEAST_SAMPLES:g}, is {found:g}")
    return found


def _warning(text: str) -> Reading:
    return Reading(seconds=wall_clock(), warning=_cut(text))


def _cut(text: str) -> str:
    return printable(text, most_characters=WARNING_CHARACTERS)


class _LineReader:
    """Reads lines with a number of samples, a number of steps, or a rate; a line's time is when it is read."""

    def __init__(
        self,
        tail: Tail,
        read: Callable[[str], Iterable[tuple[str, float]]],
        batch: int | None,
        base_samples: float,
        clock: Callable[[], float],
    ) -> None:
        self._tail, self._read, self._batch, self._clock = tail, read, batch or 1, clock
        self._samples = base_samples
        self._rate_seen: float | None = None
        self._lines = self._matched = 0

    @property
    def behind(self) -> bool:
        return self._tail.behind

    @property
    def seen(self) -> Seen:
        return Seen(lines=self._lines, matched=self._matched)

    def new_readings(self) -> list[Reading]:
        found: list[Reading] = []
        began = time.monotonic()
        for line in self._tail.lines():
            self._lines += 1
            for key, value in self._read(line):
                self._matched += 1
                now = self._clock()
                if key == "rate":
                    # The first rate only starts the clock: samples before it are warm-up and not counted.
                    self._samples += 0.0 if self._rate_seen is None else value * max(now - self._rate_seen, 0.0)
                    self._rate_seen = now
                else:
                    self._samples = value * (self._batch if key == "steps" else 1)
                if self._samples > MOST_SAMPLES or 0 < self._samples < LEAST_SAMPLES:
                    allowed = f"0, or {LEAST_SAMPLES:g} to {MOST_SAMPLES:g}"
                    raise Malformed(str(self._tail.path), f"reports {self._samples:g} samples; allowed: {allowed}")
                found.append(Reading(seconds=now, samples=self._samples))
            if time.monotonic() - began > PATTERN_SECONDS:
                problem = "takes too long to read: job.progress.pattern may need a power of a line's length"
                raise Malformed(str(self._tail.path), problem)
        return found


def _matches(pattern: str) -> Callable[[str], Iterable[tuple[str, float]]]:
    compiled = re.compile(pattern)

    def read(line: str) -> Iterable[tuple[str, float]]:
        match = compiled.search(line[:PATTERN_CHARACTERS])
        return [] if match is None else _numbers(match.groupdict())

    return read


def _fields(line: str) -> Iterable[tuple[str, float]]:
    """The user's own file: lines with other things are none of ours, and a loss may be NaN."""
    try:
        data = parse_json(line, non_finite_as_null=True)
    except Malformed:
        return []
    return _numbers(data) if isinstance(data, dict) else []


def _numbers(data: "dict[str, object] | dict[str, str]") -> list[tuple[str, float]]:
    """The first of PROGRESS_KEYS that is present with a number."""
    for key in PROGRESS_KEYS:
        value = _number(data.get(key))
        if value is not None:
            return [(key, value)]
    return []


def _number(value: object) -> float | None:
    """A number at least 0, also one in a string; None where it is none."""
    if not isinstance(value, int | float | str) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _metrics(fields: Fields) -> dict[str, float]:
    if len(fields.data) > MOST_METRICS:
        raise Malformed(fields.source, f"has {len(fields.data):,} metrics; at most {MOST_METRICS} are read")
    return {name: fields.number(name, least=-MOST_NUMBER, most=MOST_NUMBER) for name in fields.data if name in fields}


def _knobs(fields: Fields) -> tuple[str, ...]:
    names = fields.data["knobs"]
    if not isinstance(names, list) or len(names) > MOST_METRICS:
        raise Malformed(fields.source, f"knobs should be a list of at most {MOST_METRICS} names")
    return tuple(_cut(str(name)) for name in names)


def _transformer(fields: Fields) -> Transformer:
    names = ("layers", "hidden", "heads", "sequence")
    sizes = {name: fields.whole(name, least=1, most=10**12) for name in names}
    return Transformer(parameters=fields.number("parameters", least=1, most=MOST_SIZE), **sizes)


def _norms(fields: Fields) -> GradientNorms:
    """null stands for norms that were not finite."""
    squares = {
        name: fields.number(name, least=0, most=MOST_NUMBER) if name in fields else None
        for name in ("local", "total", "before", "now")
    }
    return GradientNorms(
        workers=fields.whole("workers", least=1, most=10**6),
        batch=fields.number("batch", least=0, most=MOST_SAMPLES) if "batch" in fields else None,
        dot=fields.number("dot", least=-MOST_NUMBER, most=MOST_NUMBER) if "dot" in fields else None,
        **squares,
    )


def wall_clock() -> float:
    """Seconds since 1970, the clock of the job's own lines."""
    return time.time()
