"""The rows of a long record, kept as they are made: a recording that was stopped continues where it ended."""

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVarTuple

import pages

from mlcd.bench.tasks import task_results

Arguments = TypeVarTuple("Arguments")
Row = dict[str, Any]

FOLDER = pages.ROOT / "benchmarks" / "rows"
"""Not committed: records say what follows from the rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """The rows of one task.

    code         the commit they were made of
    cpu_seconds  what they took of one core
    """

    rows: list[Row]
    code: str
    cpu_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFile:
    """A file with a line for each task that was done.

    code  the commit of the present code; rows of another one do not count, unless `mixed`
    """

    path: Path
    code: str
    mixed: bool = False

    def read(self) -> dict[str, Made]:
        """What was made, by the tasks' names. A line that was cut off by a kill is ignored."""
        if not self.path.exists():
            return {}
        found = {}
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                known = json.loads(line)
            except json.JSONDecodeError:
                continue
            made = Made(rows=known["rows"], code=known["code"], cpu_seconds=known["cpu_seconds"])
            if self.mixed or made.code == self.code:
                found[known["task"]] = made
        return found

    def complete(
        self,
        function: Callable[[*Arguments], list[Row]],
        tasks: Mapping[str, tuple[*Arguments]],
        *,
        jobs: int,
        minutes: float | None = None,
    ) -> dict[str, Made]:
        """All rows of the tasks, in their order: those in the file, and those that are missing, which are made now.

        minutes  after so long no more are made, and the rest is missing in what is returned
        """
        done = self.read()
        until = math.inf if minutes is None else time.monotonic() + 60 * minutes
        missing = [name for name in tasks if name not in done]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            if self.path.stat().st_size:
                file.write("\n")  # in case that the last line was cut off
            todo = [(function, tasks[name]) for name in missing]
            for name, (rows, cpu_seconds) in zip(missing, task_results(_timed, todo, jobs=jobs), strict=False):
                done[name] = Made(rows=rows, code=self.code, cpu_seconds=cpu_seconds)
                line = {"task": name, "code": self.code, "cpu_seconds": cpu_seconds, "rows": rows}
                file.write(json.dumps(line) + "\n")
                file.flush()
                if time.monotonic() > until:
                    break
        return {name: done[name] for name in tasks if name in done}


def _timed(function: Callable[[*Arguments], list[Row]], arguments: tuple[*Arguments]) -> tuple[list[Row], float]:
    begun = time.process_time()
    rows = function(*arguments)
    return rows, time.process_time() - begun


def codes(made: Mapping[str, Made]) -> str:
    """The commits that the rows were made of."""
    return ", ".join(dict.fromkeys(each.code for each in made.values()))


def core_minutes(made: Mapping[str, Made]) -> float:
    """What all rows took of one core."""
    return round(sum(each.cpu_seconds for each in made.values()) / 60, 1)
