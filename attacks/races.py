"""Several mlcd processes on one home and one run at the same time: continued, deleted, shown, and some of them killed.

Whatever the order: each command ends with a message of its own; afterwards no record is damaged, and a run is either
gone with all its files, as one of the commands said, or ends with the undisturbed answer, to the micro-dollar.
"""

import json
import os
import random
import shutil
import signal
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from attacks.attack import HANG_SECONDS, Attack, Ended, Kind, Tally, judge
from attacks.forked import quiet_env, started, warm_up
from attacks.job_files import odd_characters

FILE = "mlcd.sqlite3"
MOST_AT_ONCE = 6
DELAY_SECONDS = 0.5
KILLED_SHARE = 0.15
"""Of the commands: killed at a random instant."""
_JOB = """\
name: raced
resources: {infra: sim/aws, instance_type: [c5.xlarge, c5.4xlarge, p2.xlarge, p3.2xlarge]}
num_nodes: 1..10
job: {model: resnet152, samples: 50000, epochs: 2}
goal: {minimize: time, budget: 100 USD}
search: {strategy: random, max_trials: 8}
"""


@dataclass(frozen=True, kw_only=True)
class Base:
    """A home whose only run was killed in the middle, and what that run comes to."""

    home: Path
    run: str
    answer: object


def _commands(run: str) -> tuple[list[str], ...]:
    return (
        ["resume", run, "-o", "json"], ["resume", run, "-o", "json"], ["resume"], ["train", run, "-y"],
        ["runs", "rm", run, "--force", "-y"], ["runs", "rm", run, "-y"], ["show", run, "-o", "json"], ["show"],
        ["report", run, "--out", "r.html"], ["runs", "-o", "json"], ["logs", run], ["down", "--dry-run"],
        ["train", "job.yaml", "-y"], ["runs", "--restore"], ["check"],
    )  # fmt: skip


def _attack(count: int, seed: int, folder: Path) -> Tally:
    warm_up()
    env = quiet_env(folder)
    base = _base(folder, env)
    tally = Tally()
    for case in range(count):
        place = folder / "case"
        shutil.copytree(base.home.parent, place)
        _case(case, random.Random(f"races|{seed}|{case}"), base, place, env, tally)
        shutil.rmtree(place, ignore_errors=True)
    return tally


def _base(folder: Path, env: dict[str, str]) -> Base:
    place = folder / "base"
    place.mkdir()
    (place / "job.yaml").write_text(_JOB)
    home = place / "home"
    child = _start(["train", "job.yaml", "-y"], place, env, "first")
    while _ended_steps(home) < 3 and not os.waitpid(child, os.WNOHANG)[0]:
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with closing(sqlite3.connect(home / FILE)) as db:
        ((run,),) = db.execute("SELECT run_id FROM runs").fetchall()
    copy = folder / "whole"
    shutil.copytree(place, copy)
    whole = _together([(["resume", run, "-o", "json"], 0.0, None)], copy, env)[0]
    if whole.code != 0:
        raise RuntimeError(f"the undisturbed run ended with {whole.code}: {whole.stderr}")
    return Base(home=home, run=run, answer=_answer(whole))


def _answer(ended: Ended) -> object:
    shown = json.loads(ended.stdout)
    receipt = shown["receipt"]
    return shown["status"], shown["choice"], receipt["total_usd"], len(shown["trials"])


def _ended_steps(home: Path) -> int:
    try:
        with closing(sqlite3.connect(f"file:{home / FILE}?mode=ro", uri=True)) as db:
            return int(db.execute("SELECT count(*) FROM steps_ended").fetchone()[0])
    except sqlite3.Error:
        return 0


def _case(case: int, chance: random.Random, base: Base, place: Path, env: dict[str, str], tally: Tally) -> None:
    calls: list[tuple[list[str], float, float | None]] = [
        (
            chance.choice(_commands(base.run)),
            chance.choice((0.0, chance.uniform(0.0, DELAY_SECONDS))),
            chance.uniform(0.0, 2 * DELAY_SECONDS) if chance.random() < KILLED_SHARE else None,
        )
        for _ in range(chance.randint(2, MOST_AT_ONCE))
    ]
    what = " | ".join(" ".join(call[:2]) for call, _, _ in calls)
    for (call, _, killed), ended in zip(calls, _together(calls, place, env), strict=True):
        if killed is not None and ended.code == -signal.SIGKILL:
            tally.count("killed")
            continue
        judge(ended, tally, case, f"{' '.join(call)} among {what}")
        if odd := odd_characters(ended.stdout + ended.stderr):
            tally.find(Kind.WRONG, case, f"{what}: prints {odd!r}")
        if "constraint" in ended.stderr or " is damaged" in ended.stderr:
            tally.find(Kind.WRONG, case, f"{' '.join(call)} among {what}: {ended.stderr.strip()[-200:]}")
    _check_after(case, what, calls, base, place, env, tally)


def _check_after(
    case: int,
    what: str,
    calls: Sequence[tuple[list[str], float, float | None]],
    base: Base,
    place: Path,
    env: dict[str, str],
    tally: Tally,
) -> None:
    listed = _together([(["runs", "-o", "json"], 0.0, None)], place, env)[0]
    judge(listed, tally, case, f"{what}, then runs")
    if listed.code != 0:
        tally.find(Kind.WRONG, case, f"{what}, then runs: exit {listed.code}: {listed.stderr[-200:]}")
        return
    for line in json.loads(listed.stdout)["runs"]:
        name = line["run_id"]
        last = _together([(["resume", name, "-o", "json"], 0.0, None)], place, env)[0]
        judge(last, tally, case, f"{what}, then resume")
        if line["damage"] or last.code != 0:
            tally.find(Kind.WRONG, case, f"{what}: {line['damage']} {last.stderr.strip()[-200:]}")
        elif _answer(last) != base.answer:
            tally.find(Kind.OVERSPEND, case, f"{what}: {_answer(last)} in place of {base.answer}")
    names = [line["run_id"] for line in json.loads(listed.stdout)["runs"]]
    if base.run not in names:
        if not any(call[:2] == ["runs", "rm"] for call, _, _ in calls):
            tally.find(Kind.WRONG, case, f"{what}: the run is gone, and nobody deleted it")
        left = [path for path in (place / "home").rglob(f"*{base.run}*") if "backups" not in path.parts]
        is_clean = all(killed is None for call, _, killed in calls if call[:2] == ["runs", "rm"])
        if left and is_clean:
            tally.find(Kind.WRONG, case, f"{what}: is deleted, and left {left[0].relative_to(place)}")


def _together(calls: Sequence[tuple[list[str], float, float | None]], place: Path, env: dict[str, str]) -> list[Ended]:
    """Every call in a process of its own: what, after how many seconds, and when it is killed."""
    began = time.monotonic()
    waiting = sorted(range(len(calls)), key=lambda at: calls[at][1])
    running: dict[int, int] = {}
    found: dict[int, Ended] = {}
    while waiting or running:
        now = time.monotonic() - began
        while waiting and calls[waiting[0]][1] <= now:
            at = waiting.pop(0)
            running[_start(calls[at][0], place, env, str(at))] = at
        for pid in list(running):
            at = running[pid]
            killed = calls[at][2]
            if now > HANG_SECONDS or (killed is not None and now > calls[at][1] + killed):
                os.kill(pid, signal.SIGKILL)
            done, status, usage = os.wait4(pid, os.WNOHANG)
            if done:
                del running[pid]
                code = os.waitstatus_to_exitcode(status)
                texts = [(place / f"{name}-{at}").read_text(errors="replace") for name in ("stdout", "stderr")]
                found[at] = Ended(
                    code=None if now > HANG_SECONDS else code,
                    stdout=texts[0],
                    stderr=texts[1],
                    seconds=now,
                    peak_mib=usage.ru_maxrss / 1024,
                )
        time.sleep(0.001)
    return [found[at] for at in range(len(calls))]


def _start(call: list[str], place: Path, env: dict[str, str], name: str) -> int:
    for stream in ("stdout", "stderr"):
        (place / f"{stream}-{name}").touch()  # it may be killed before it opens them
    return started(call, place, {**env, "MLCD_HOME": str(place / "home")}, name)


ATTACKS = (Attack(name="races", what="homes that several mlcd processes use at once", count=100, run=_attack),)
