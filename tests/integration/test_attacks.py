"""scripts/attack works, and docs/reliability.md says what its last record says."""

import json
import os
import random
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from tests.unmeasured import UNMEASURED

from attacks.__main__ import all_attacks, table
from attacks.attack import Ended, Kind, Tally, judge
from attacks.clocks import Clocks

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
LEAST = {
    "simulated-kills": 300,
    "real-kills": 30,
    "job-files": 10_000,
    "flags": 5_000,
    "damaged-stores": 1_000,
    "hostile-jobs": 60,
    "hostile-clouds": 40,
    "http": 50_000,
    "searches": 10_000,
}
"""Cases of a full attack that the page promises at least."""


def test_a_small_attack_finds_nothing() -> None:
    names = ("clocks", "flags", "hostile-clouds", "job-files")
    command = [sys.executable, "-m", "attacks", *names, "--share", "0.0012", "--seed", "20", "-o", "json"]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **UNMEASURED}, capture_output=True, text=True, check=False
    )
    rows = json.loads(done.stdout)
    assert [row["findings"] for row in rows] == [[], [], [], []]
    assert {row["name"]: row["tried"] for row in rows} == dict(zip(names, (1, 6, 1, 12), strict=True))
    assert done.returncode == 0


def ended(code: int | None = 0, *, stderr: str = "", peak_mib: float = 50.0) -> Ended:
    return Ended(code=code, stdout="", stderr=stderr, seconds=1.0, peak_mib=peak_mib)


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (ended(None), Kind.HANG),
        (ended(1, stderr="Traceback (most recent call last):\n..."), Kind.TRACEBACK),
        (ended(1, stderr="mlcd: unexpected KeyError; this is a bug in mlcd"), Kind.BUG),
        (ended(-11), Kind.WRONG),
        (ended(0, peak_mib=5_000), Kind.MEMORY),
    ],
)
def test_what_a_command_does_wrong_is_found(command: Ended, kind: Kind) -> None:
    tally = Tally()
    judge(command, tally, 7, "a case")
    assert [(finding.kind, finding.case) for finding in tally.findings] == [(kind, 7)]


def test_a_command_that_refuses_is_no_finding() -> None:
    tally = Tally()
    judge(ended(2, stderr="mlcd: job.yaml:3: goal: unknown"), tally, 1, "a case")
    assert (tally.findings, tally.outcomes) == ([], {"exit 2": 1})


def test_the_page_names_every_attack_and_shows_the_record() -> None:
    names = all_attacks()
    assert all(f"`{name}`" in PAGE for name in names)
    record = json.loads((ROOT / "attacks" / "result.json").read_text(encoding="utf-8"))
    unrecorded = PAGE.partition("Not in the record yet:")[2].partition(". ")[0]
    assert {row["name"] for row in record} == {name for name in names if f"`{name}`" not in unrecorded}
    assert table(record) in PAGE
    assert all(row["tried"] >= LEAST.get(row["name"], 1) for row in record)
    assert all(names[name].count >= least for name, least in LEAST.items())


def test_no_clock_of_a_made_up_machine_runs_backwards() -> None:
    clocks = Clocks(random.Random(21))
    shown = [clocks()]
    for _ in range(200):
        clocks.wait(1.0)
        clocks.change()
        shown.append(clocks())
    for then, now in pairwise(shown):
        assert then.boot != now.boot or (then.boot_seconds or 0.0) < (now.boot_seconds or 0.0)
