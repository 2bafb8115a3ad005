"""Applies each mutant to a copy of the tree and runs its tests there; the checkout is never changed."""

import compileall
import json
import os
import py_compile
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

from mutants.mutant import Mutant, Unfit

OPTIONS = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:cov", "-m", "not nodes and not extra")
LEAST_LIMIT_SECONDS, LIMIT_FACTOR = 120.0, 5.0
"""A mutant whose tests take this many times as long as without it, and at least so long, counts as killed: it hangs."""
PASSED, FAILED, COLLECTION_FAILED = 0, 1, 2
"""Exit codes of pytest; the others mean that no test was judged."""


T = TypeVar("T")


class State(StrEnum):
    """What became of a mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of one mutant; `by` is the test that noticed it, or what went wrong."""

    name: str
    room: str
    state: State
    by: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ended:
    code: int | None
    text: str
    seconds: float


def judge(
    root: Path,
    mutants: Sequence[Mutant],
    folder: Path,
    *,
    processes: int = 2,
    told: Callable[[str], None] = lambda _line: None,
) -> list[Verdict]:
    """The verdict on each mutant, in order. `folder` is empty and gets the copies of `root`; `told` hears how it goes.

    The listed tests run once without any fault first: a file of tests that fails then kills nothing, and its mutants
    are errors.
    """
    files = sorted({test for mutant in mutants for test in mutant.tests if (root / test).is_file()})
    free: SimpleQueue[_Bench] = SimpleQueue()
    benches = [_Bench(root, folder / f"copy-{number}") for number in range(processes)]
    for bench in benches:
        free.put(bench)

    def on_a_bench(work: Callable[[_Bench], T]) -> T:
        bench = free.get()
        try:
            return work(bench)
        finally:
            free.put(bench)

    def with_fault(mutant: Mutant) -> Verdict:
        verdict = on_a_bench(lambda bench: _judged(bench, mutant, before))
        by = f": {verdict.by}" if verdict.by else ""
        told(f"{verdict.room}/{verdict.name}: {verdict.state}{by} ({verdict.seconds:.0f} s)")
        return verdict

    def without_fault(test: str) -> _Ended:
        ended = on_a_bench(lambda bench: bench.tested([test], limit_seconds=3600.0))
        told(f"without a fault: {test}: {'passed' if ended.code == PASSED else 'failed'} ({ended.seconds:.0f} s)")
        return ended

    try:
        with ThreadPoolExecutor(max_workers=processes) as pool:
            before = dict(zip(files, pool.map(without_fault, files), strict=True))
            return list(pool.map(with_fault, mutants))
    finally:
        for bench in benches:
            bench.close()


class _Bench:
    """A copy of the tree and a process that runs its tests."""

    def __init__(self, root: Path, copy: Path) -> None:
        self.copy = _copy(root, copy)
        self._output = copy.with_suffix(".txt")
        env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("COV")},  # not measured
            "PYTHONPATH": os.pathsep.join((str(copy / "src"), str(copy))),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
        }
        worker = Path(__file__).with_name("worker.py")
        self._process = subprocess.Popen(
            [sys.executable, str(worker)], cwd=copy, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def tested(self, tests: Sequence[str], *, limit_seconds: float) -> "_Ended":
        """How pytest ended on these files; code None where it had to be killed."""
        began = time.monotonic()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([limit_seconds, str(self._output), *OPTIONS, *tests]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the process that runs the tests has ended, at: {' '.join(tests)}")
        code = json.loads(answer)
        text = self._output.read_text(encoding="utf-8", errors="replace") if self._output.exists() else ""
        return _Ended(code=code, text=text, seconds=time.monotonic() - began)

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def _copy(root: Path, target: Path) -> Path:
    """A copy of what git tracks or would track, its modules compiled; a changed one is noticed by its content."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        source = root / name
        if source.is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name)
    checked = py_compile.PycInvalidationMode.CHECKED_HASH
    compileall.compile_dir(target / "src", quiet=2, invalidation_mode=checked)
    return target


def _judged(bench: _Bench, mutant: Mutant, before: Mapping[str, _Ended]) -> Verdict:
    def verdict(state: State, by: str, seconds: float = 0.0) -> Verdict:
        return Verdict(name=mutant.name, room=mutant.room, state=state, by=by, seconds=round(seconds, 1))

    try:
        changed = mutant.applied(bench.copy)
    except Unfit as error:
        return verdict(State.ERROR, str(error))
    if broken := [test for test in mutant.tests if before[test].code != PASSED]:
        return verdict(State.ERROR, f"{broken[0]} fails without the fault: {_noticed(before[broken[0]].text)}")
    usual = sum(before[test].seconds for test in mutant.tests)
    path = bench.copy / mutant.file
    original = path.read_bytes()
    try:
        path.write_text(changed, encoding="utf-8")
        ended = bench.tested(mutant.tests, limit_seconds=max(LEAST_LIMIT_SECONDS, LIMIT_FACTOR * usual))
    finally:
        path.write_bytes(original)
    if ended.code is None:
        return verdict(State.KILLED, "does not end", ended.seconds)
    if ended.code == PASSED:
        return verdict(State.SURVIVED, "", ended.seconds)
    if ended.code in (FAILED, COLLECTION_FAILED) or ended.code < 0:
        return verdict(State.KILLED, _noticed(ended.text), ended.seconds)
    return verdict(State.ERROR, f"pytest ended with {ended.code}: {ended.text.strip()[-200:]}", ended.seconds)


def _noticed(text: str) -> str:
    """The first test that failed, by pytest's summary."""
    found = re.search(r"^(?:FAILED|ERROR) (?:tests/)?(\S+)", text, re.MULTILINE)
    return found[1] if found else next(iter(reversed(text.strip().splitlines())), "no output")[:120]
