"""Simulated runs killed at random instants and resumed: the same answer, to the micro-dollar.

The runs are processes of `mlcd` itself, driven by tests/integration/test_kill.py; only the kills are counted that met a
run.
"""

import random
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.process import BaseProcess
from pathlib import Path

from tests.integration.test_kill import (
    JOBS,
    MEAN_SECONDS,
    PATIENCE,
    answer,
    finish,
    go_on_with,
    launch_mlcd,
    only_run,
    wait_until_started,
)

from attacks.attack import Attack, Kind, Tally
from mlcd.run.run import AnyRun

AT_ONCE = 2
"""Cases at the same time, each with its own home and processes."""
TRIES = 20
"""Kills of one case that may come too late, or before there is a run."""


def attack(count: int, seed: int, folder: Path) -> Tally:
    """Each case: one job, killed once in a run (some twice), then resumed to its end."""
    tally = Tally()
    undisturbed: dict[str, AnyRun] = {}
    for name, (kind, text) in JOBS.items():
        job = folder / f"{name}.yaml"
        job.write_text(text)
        code = finish(launch_mlcd(folder / f"whole-{name}", kind, str(job)))
        run = only_run(folder / f"whole-{name}")
        if code != 0 or run is None:
            raise RuntimeError(f"{name}: the undisturbed run ended with {code}")
        undisturbed[name] = run

    def strike(case: int) -> None:
        name = tuple(JOBS)[case % len(JOBS)]
        _kill_and_resume(case, name, undisturbed[name], random.Random(f"simulated|{seed}|{case}"), folder, tally)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(strike, range(count)))
    return tally


def _kill_and_resume(case: int, name: str, whole: AnyRun, rng: random.Random, folder: Path, tally: Tally) -> None:
    kind, job = JOBS[name][0], folder / f"{name}.yaml"
    home = folder / f"case-{case}"
    wanted, landed = 1 + (rng.random() < 0.3), 0
    for _ in range(TRIES):
        process = go_on_with(home, kind, job)
        try:
            wait_until_started(home, rng.randint(1, len(whole.steps)), process)
        except AssertionError:
            process.kill()
            process.join(PATIENCE)
            tally.count("hang")
            tally.find(Kind.HANG, case, f"{name}, home {home.name}: no next step within {PATIENCE:g} s")
            return
        process.join(rng.expovariate(1 / MEAN_SECONDS))
        process.kill()
        process.join(PATIENCE)
        met = only_run(home)
        is_over = met is not None and met.status.is_final
        landed += process.exitcode == -signal.SIGKILL and met is not None and not is_over
        if landed == wanted or (landed and is_over):
            break
        if is_over:  # the kill came too late: once more, from the beginning
            shutil.rmtree(home)
    what = f"{name}, home {home.name}"
    process = go_on_with(home, kind, job)
    code = _exit_code(home, process, finish(process))
    resumed = only_run(home)
    tally.count("killed and resumed" if landed else "ended before the kill")
    if code is None:
        tally.find(Kind.HANG, case, f"{what}: `mlcd resume` did not end")
    elif code != 0 or resumed is None:
        tally.find(Kind.WRONG, case, f"{what}: `mlcd resume` ended with {code}: {_last_words(home)}")
    elif resumed.spent.micros != whole.spent.micros:
        tally.find(Kind.OVERSPEND, case, f"{what}: {resumed.spent} in place of {whole.spent}")
    elif answer(resumed) != answer(whole):
        tally.find(Kind.WRONG, case, f"{what}: another answer than the undisturbed run")
    else:
        shutil.rmtree(home, ignore_errors=True)


def _exit_code(home: Path, process: BaseProcess, code: int | None) -> int | None:
    """Its exit code; multiprocessing says 255 where its fork server lost it, but the process has written it down."""
    written = home / f"code-{process.pid}"
    return int(written.read_text()) if code == 255 and written.exists() else code


def _last_words(home: Path) -> str:
    said = sorted(home.glob("said-*"), key=lambda file: file.stat().st_mtime_ns)
    return (said[-1].read_text().strip().splitlines() or [""])[-1][:300] if said else ""


ATTACKS = (
    Attack(
        name="simulated-kills",
        what="kills of simulated runs, resumed",
        count=300,
        run=attack,
    ),
)
