"""A real job's progress, read from what it writes: mlcd.steps' lines, a pattern over its output, or its own file."""

import json
import math
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from mlcd.spec.real import PROGRESS_KEYS, ProgressRule


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
    """

    seconds: float
    samples: float | None = None
    total: float | None = None
    checkpoint: float | None = None
    warning: str = ""
    noise: GradientNorms | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)


@runtime_checkable
class Listening(Protocol):
    """A lease whose job reports more than its progress."""

    heard: list[Reading]


class ReportSource(Protocol):
    """A source of readings."""

    def new_readings(self) -> list[Reading]:
        """The readings since the last call, in the order they were written."""
        ...


def progress_source(
    rule: ProgressRule, folder: Path, *, batch: int | None, base_samples: float, clock: Callable[[], float]
) -> ReportSource:
    """The reader of a lease's folder that the job file's progress rule asks for."""
    if rule.pattern:
        return _LineReader(folder / "node-0" / "log.txt", _matches(rule.pattern), batch, base_samples, clock)
    if rule.file:
        return _LineReader(folder / "workdir" / rule.file, _fields, batch, base_samples, clock)
    return _StepsReader(folder / "progress.jsonl")


class Tail:
    """Reads the complete lines added to a file since the last read; none while the file does not exist."""

    def __init__(self, path: Path) -> None:
        self.path, self.offset = path, 0

    def lines(self) -> list[str]:
        """New complete lines, without their line ends."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                data = file.read()
        except FileNotFoundError:
            return []
        # A progress bar ends its lines with a carriage return, possibly for an hour.
        whole = data[: max(data.rfind(b"\n"), data.rfind(b"\r")) + 1]
        self.offset += len(whole)
        return whole.decode(errors="replace").splitlines()


class _StepsReader:
    """Reads the lines of mlcd.steps."""

    def __init__(self, path: Path) -> None:
        self.tail = Tail(path)

    def new_readings(self) -> list[Reading]:
        found = []
        for line in self.tail.lines():
            data = _json(line)
            at = data.get("time")
            if isinstance(at, int | float):
                found.append(
                    Reading(
                        seconds=float(at),
                        samples=_number(data.get("samples")),
                        total=_number(data.get("total")),
                        checkpoint=_number(data.get("checkpoint")),
                        warning=str(data.get("warning") or ""),
                        noise=_norms(data.get("noise")),
                        metrics=_metrics(data.get("metrics")),
                    )
                )
        return found


class _LineReader:
    """Reads lines with a number of samples, a number of steps, or a rate; a line's time is when it is read."""

    def __init__(
        self,
        path: Path,
        read: Callable[[str], Iterable[tuple[str, float]]],
        batch: int | None,
        base_samples: float,
        clock: Callable[[], float],
    ) -> None:
        self.tail, self.read, self.batch, self.clock = Tail(path), read, batch or 1, clock
        self.samples = base_samples
        self.rate_seen: float | None = None

    def new_readings(self) -> list[Reading]:
        found = []
        for line in self.tail.lines():
            for key, value in self.read(line):
                now = self.clock()
                if key == "rate":
                    # The first rate only starts the clock: samples before it are warm-up and not counted.
                    self.samples += 0.0 if self.rate_seen is None else value * (now - self.rate_seen)
                    self.rate_seen = now
                else:
                    self.samples = value * (self.batch if key == "steps" else 1)
                found.append(Reading(seconds=now, samples=self.samples))
        return found


def _matches(pattern: str) -> Callable[[str], Iterable[tuple[str, float]]]:
    compiled = re.compile(pattern)

    def read(line: str) -> Iterable[tuple[str, float]]:
        match = compiled.search(line)
        return [] if match is None else _numbers(match.groupdict())

    return read


def _fields(line: str) -> Iterable[tuple[str, float]]:
    return _numbers(_json(line))


def _numbers(data: "dict[str, object] | dict[str, str]") -> list[tuple[str, float]]:
    """The first of PROGRESS_KEYS that is present with a number."""
    for key in PROGRESS_KEYS:
        value = _number(data.get(key))
        if value is not None:
            return [(key, value)]
    return []


def _number(value: object) -> float | None:
    if not isinstance(value, int | float | str) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _metrics(data: object) -> dict[str, float]:
    if not isinstance(data, dict):
        return {}
    return {str(k): float(v) for k, v in data.items() if isinstance(v, int | float) and math.isfinite(v)}


def _norms(data: object) -> GradientNorms | None:
    if not isinstance(data, dict):
        return None
    workers, dot = _number(data.get("workers")), data.get("dot")
    if workers is None or workers < 1:
        return None
    return GradientNorms(
        workers=int(workers),
        batch=_number(data.get("batch")),
        dot=float(dot) if isinstance(dot, int | float) and math.isfinite(dot) else None,  # may be below 0
        **{name: _number(data.get(name)) for name in ("local", "total", "before", "now")},
    )


def _json(line: str) -> dict[str, object]:
    try:
        data = json.loads(line)
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}


def wall_clock() -> float:
    """Seconds since 1970, the clock of the job's own lines."""
    return time.time()
