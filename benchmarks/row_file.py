"""The rows of a long record, kept as they are made: a recording that was stopped continues where it ended.

Rows are of the commit that measured them. Those of an older commit are used again where a random sample of their group
(a strategy on a bed, say) comes out exactly the same with the present code; where one row of the sample differs, the
whole group is measured again.
"""

import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVarTuple

import pages

from mlcd.bench.tasks import task_results

Arguments = TypeVarTuple("Arguments")
Row = dict[str, Any]

FOLDER = pages.ROOT / "benchmarks" / "rows"
"""Not committed: records say what follows from the rows."""
SAMPLE_SHARE, SAMPLE_LEAST = 0.02, 5
"""Of a group's tasks, how many are measured again; a task is some 10 to 20 searches. A change that alters one task in
two is missed with a probability of 3% by a sample of 5, one that alters one in ten with 59%: changes that show so
rarely move a mean over all rows by little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """The rows of one task.

    code         the commit that measured them
    cpu_seconds  what they took of one core
    verified     the commit with which a sample of such rows was the same; empty where `code` is the present commit
    """

    rows: list[Row]
    code: str
    cpu_seconds: float
    verified: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFile:
    """A file with a line for each task that was done. Several recordings may add to it at once.

    code   the commit of the present code. Rows of uncommitted code are written but not used again
    group  the group of a task's name: rows of older commits are verified group by group
    """

    path: Path
    code: str
    group: Callable[[str], str]

    def complete(
        self,
        function: Callable[[*Arguments], list[Row]],
        tasks: Mapping[str, tuple[*Arguments]],
        *,
        jobs: int,
        minutes: float | None = None,
    ) -> dict[str, Made]:
        """All rows of the tasks, in their order: those in the file that count, and the missing ones, measured now.

        minutes  after so long no more are made, and the rest is missing in what is returned
        """
        until = math.inf if minutes is None else time.monotonic() + 60 * minutes
        present, older = self._read(tasks)
        samples = {each: self._sample(names) for each, names in _groups(older, self.group).items()}
        wanted = dict.fromkeys(name for sample in samples.values() for name in sample if name not in present)
        present |= self._measure(function, {name: tasks[name] for name in wanted}, jobs=jobs, until=until)
        both = [name for name in older if name in present]
        differ = {self.group(name) for name in both if present[name].rows != older[name].rows}
        verified = {each for each, sample in samples.items() if each not in differ and set(sample) <= set(present)}
        done = {
            name: replace(made, verified=self.code) for name, made in older.items() if self.group(name) in verified
        } | present
        if time.monotonic() <= until:
            missing = {name: tasks[name] for name in tasks if name not in done}
            done |= self._measure(function, missing, jobs=jobs, until=until)
        return {name: done[name] for name in tasks if name in done}

    def knows_any(self, tasks: Mapping[str, object]) -> bool:
        """Whether the file has rows of one of the tasks, of whatever commit."""
        return any(self._read(tasks))

    def _read(self, tasks: Mapping[str, object]) -> tuple[dict[str, Made], dict[str, Made]]:
        """(rows of the present commit, the last rows of an older one), by the tasks' names.

        A line that was cut off by a kill is ignored.
        """
        present: dict[str, Made] = {}
        older: dict[str, Made] = {}
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []
        for line in lines:
            try:
                known = json.loads(line)
            except json.JSONDecodeError:
                continue
            made = Made(rows=known["rows"], code=known["code"], cpu_seconds=known["cpu_seconds"])
            if known["task"] in tasks and not made.code.endswith(pages.UNCOMMITTED):
                (present if made.code == self.code else older)[known["task"]] = made
        return present, older

    def _sample(self, names: list[str]) -> list[str]:
        """Random by the commit; it stays nearly the same when rows are added, so that little is measured twice."""
        count = min(max(math.ceil(SAMPLE_SHARE * len(names)), SAMPLE_LEAST), len(names))
        return sorted(names, key=lambda name: hashlib.sha256(f"{self.code}/{name}".encode()).digest())[:count]

    def _measure(
        self,
        function: Callable[[*Arguments], list[Row]],
        tasks: Mapping[str, tuple[*Arguments]],
        *,
        jobs: int,
        until: float,
    ) -> dict[str, Made]:
        """Rows of these tasks, measured now and added to the file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        done: dict[str, Made] = {}
        with self.path.open("ab", buffering=0) as file:  # a line is one write: another recording cannot get between
            if self.path.stat().st_size:
                file.write(b"\n")  # in case that the last line was cut off
            todo = [(function, arguments) for arguments in tasks.values()]
            for name, (rows, cpu_seconds) in zip(tasks, task_results(_timed, todo, jobs=jobs), strict=False):
                done[name] = Made(rows=rows, code=self.code, cpu_seconds=cpu_seconds)
                line = {"task": name, "code": self.code, "cpu_seconds": cpu_seconds, "rows": rows}
                file.write(json.dumps(line).encode() + b"\n")
                if time.monotonic() > until:
                    break
        return done


def _groups(older: Mapping[str, Made], group: Callable[[str], str]) -> dict[str, list[str]]:
    """group -> the names of its tasks."""
    found: dict[str, list[str]] = {}
    for name in older:
        found.setdefault(group(name), []).append(name)
    return found


def _timed(function: Callable[[*Arguments], list[Row]], arguments: tuple[*Arguments]) -> tuple[list[Row], float]:
    begun = time.process_time()
    rows = json.loads(json.dumps(function(*arguments)))  # as the file gives them back
    return rows, time.process_time() - begun


def codes(made: Mapping[str, Made]) -> str:
    """The commits that measured the rows."""
    return ", ".join(dict.fromkeys(each.code for each in made.values()))


def verifiers(made: Mapping[str, Made]) -> str:
    """The commits with which a sample of older rows was the same."""
    return ", ".join(dict.fromkeys(each.verified for each in made.values() if each.verified))


def origin(measured: str, verified: str) -> str:
    """What a page says of the commits of a record."""
    return measured + (f"; a random sample of older rows is exactly the same with {verified}" if verified else "")


def core_minutes(made: Mapping[str, Made]) -> float:
    """What all rows took of one core."""
    return round(sum(each.cpu_seconds for each in made.values()) / 60, 1)
