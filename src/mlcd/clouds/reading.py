"""How far a real job is, by what it writes: the helper's lines, a pattern over its output, or its own file."""

import json
import math
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mlcd.spec.real import PROGRESS_KEYS, ProgressRule


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One line's news; `seconds` since 1970.

    samples     of the whole training so far
    total       of the whole training in all, where the script says so
    checkpoint  samples up to which it was saved
    """

    seconds: float
    samples: float | None = None
    total: float | None = None
    checkpoint: float | None = None
    warning: str = ""


class Source(Protocol):
    """Where readings come from: what is new since it was asked last."""

    def news(self) -> list[Reading]:
        """In the order written."""
        ...


def source_of(
    rule: ProgressRule, folder: Path, *, batch: int | None, base_samples: float, clock: Callable[[], float]
) -> Source:
    """The reader of a lease's folder that the job file asks for."""
    if rule.pattern:
        return _Lines(folder / "node-0" / "log.txt", _matches(rule.pattern), batch, base_samples, clock)
    if rule.file:
        return _Lines(folder / "workdir" / rule.file, _fields, batch, base_samples, clock)
    return _Helper(folder / "progress.jsonl")


class Tail:
    """The whole lines that were added to a file since it was read last; none while there is no file."""

    def __init__(self, path: Path) -> None:
        self.path, self.offset = path, 0

    def lines(self) -> list[str]:
        """New whole lines, without their ends."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                data = file.read()
        except FileNotFoundError:
            return []
        # A progress bar ends its lines with a carriage return, and may go on so for an hour.
        whole = data[: max(data.rfind(b"\n"), data.rfind(b"\r")) + 1]
        self.offset += len(whole)
        return whole.decode(errors="replace").splitlines()


class _Helper:
    """Lines of mlcd.steps."""

    def __init__(self, path: Path) -> None:
        self.tail = Tail(path)

    def news(self) -> list[Reading]:
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
                    )
                )
        return found


class _Lines:
    """Lines that carry a number of samples, of steps, or a rate; their time is when they are seen."""

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

    def news(self) -> list[Reading]:
        found = []
        for line in self.tail.lines():
            for key, value in self.read(line):
                now = self.clock()
                if key == "rate":
                    # The first rate only starts the clock: what went before it is warm-up nobody has counted.
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
    """The first of PROGRESS_KEYS that is there with a number."""
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


def _json(line: str) -> dict[str, object]:
    try:
        data = json.loads(line)
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}


def wall_clock() -> float:
    """Seconds since 1970, as the job's own lines have them."""
    return time.time()
