"""A run in a process of its own, slow enough to be killed: started where there is none, resumed where there is."""

import os
import sys
import time
from pathlib import Path

from tests.synthetic import QUICK_TRIALS, SyntheticCloud, make_engine, make_problem

from mlcd.clouds.provider import Cloud
from mlcd.clouds.wrappers import Delayed, Flaky, Noisy
from mlcd.errors import BadInput, MlcdError
from mlcd.goal import Goal, Objective
from mlcd.problem import Problem
from mlcd.store.store import Store
from mlcd.trial.record import RunRecord
from mlcd.units import Usd

RUN = "killed-run"
STRATEGY = "heterbo:start=all"


def killed_problem() -> Problem:
    goal = Goal(minimize=Objective.TIME, budget=Usd.of(40), deadline_seconds=40 * 3600)
    return make_problem(goal=goal, trial=QUICK_TRIALS, max_trials=12, noise=0.03)


def killed_cloud(delay: float) -> Cloud:
    return Delayed(Noisy(Flaky(SyntheticCloud(), rate=0.3, seed=5), sigma=0.03, seed=5), real_seconds=delay)


def work(home: str, parallel: int, delay: float, run_id: str = RUN) -> RunRecord:
    """Go on with the run in `home` to its end."""
    with Store(Path(home)) as store:
        try:
            problem, add = store.record(run_id).problem, False
        except BadInput:
            problem, add = killed_problem(), True
        return make_engine(
            problem, killed_cloud(delay), store, STRATEGY, run_id=run_id, seed=5, parallel=parallel, add=add
        ).run()


def enter(home: str, parallel: int, delay: float, run_id: str = RUN) -> None:
    """As a process of its own: says when it begins, ends with mlcd's exit code."""
    Path(home).mkdir(parents=True, exist_ok=True)
    (Path(home) / f"ready-{os.getpid()}").touch()
    try:
        work(home, parallel, delay, run_id)
    except MlcdError as error:
        Path(home, f"error-{os.getpid()}").write_text(f"{type(error).__name__}: {error}")
        sys.exit(error.exit_code)


def write_many(home: str, name: str, count: int) -> None:
    """Many short runs one after the other on one home."""
    for number in range(count):
        work(home, 1, 0.0, f"{name}-{number}")
        time.sleep(0.001)
