"""A run in a process of its own, slow enough to be killed: started where there is none, resumed where there is."""

import os
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from tests.synthetic import QUICK_TRIALS, SyntheticCloud, make_problem, make_run, stored
from tests.unmeasured import stop_measuring

from mlcd.cli.main import run as mlcd
from mlcd.clouds.provider import Cloud
from mlcd.clouds.wrappers import Delayed, Flaky, Noisy
from mlcd.deciders.search import SearchDecider
from mlcd.deciders.training import TrainingDecider
from mlcd.engine.on_nodes import NodePerformer
from mlcd.errors import BadInput, MlcdError
from mlcd.goal import Goal, Objective
from mlcd.jobs.prepared import Prepared, continue_run
from mlcd.problem import Problem
from mlcd.run.run import SearchRun
from mlcd.search.registry import strategy
from mlcd.store.store import Store
from mlcd.units import Usd

RUN = "killed-run"
STRATEGY = "heterbo:start=all"


def killed_problem() -> Problem:
    goal = Goal(minimize=Objective.TIME, budget=Usd.of(40), deadline_seconds=40 * 3600)
    return make_problem(goal=goal, trial=QUICK_TRIALS, max_trials=12, noise=0.03)


def killed_cloud(delay: float) -> Cloud:
    return Delayed(Noisy(Flaky(SyntheticCloud(), rate=0.3, seed=5), sigma=0.03, seed=5), real_seconds=delay)


def work(home: str, parallel: int, delay: float, run_id: str = RUN) -> SearchRun:
    """Continue the run in `home` to its end."""
    with Store(Path(home)) as store:
        cloud = killed_cloud(delay)
        try:
            run = stored(store, run_id)
        except BadInput:
            run = make_run(killed_problem(), cloud, STRATEGY, run_id=run_id, seed=5, parallel=parallel)
            store.add(run, spec={})
        return continue_run(run, prepared(run, cloud), store=store)


def prepared(run: SearchRun, cloud: Cloud) -> Prepared[Problem]:
    """The run's job as `mlcd` would prepare it, on a cloud that no command knows."""
    chosen = strategy(STRATEGY, seed=run.seed)
    return Prepared(
        kind=run.kind,
        name=run.problem.name,
        problem=run.problem,
        decider=SearchDecider(strategy=chosen, aftermath=TrainingDecider(), parallel=run.parallel),
        connect=lambda _problem, _leaving: NodePerformer(cloud=cloud),
        cloud=cloud.name,
        simulated=cloud.simulated,
        charged=False,
        strategy=STRATEGY,
        seed=run.seed,
        catalog_date=run.catalog_date,
        spec={},
        parallel=run.parallel,
    )


def enter(home: str, parallel: int, delay: float, run_id: str = RUN, url: str = "") -> None:
    """As a process of its own: says when it begins, ends with mlcd's exit code.

    url  of a team's store; "": the record is in the home
    """
    os.environ["MLCD_STORE"] = url
    _ready(home)
    try:
        work(home, parallel, delay, run_id)
    except MlcdError as error:
        Path(home, f"error-{os.getpid()}").write_text(f"{type(error).__name__}: {error}")
        sys.exit(error.exit_code)


def command(home: str, arguments: list[str]) -> None:
    """`mlcd` with these arguments on this home; what it says goes to files there."""
    os.environ["MLCD_HOME"] = home
    _ready(home)
    said = Path(home, f"said-{os.getpid()}")
    with said.open("w") as file, redirect_stdout(file), redirect_stderr(file):
        code = mlcd(arguments)
    (Path(home) / f"code-{os.getpid()}").write_text(str(code))
    sys.exit(code)


def _ready(home: str) -> None:
    stop_measuring()
    Path(home).mkdir(parents=True, exist_ok=True)
    (Path(home) / f"ready-{os.getpid()}").touch()


def write_many(home: str, name: str, count: int) -> None:
    """Many short runs one after the other on one home."""
    for number in range(count):
        work(home, 1, 0.0, f"{name}-{number}")
        time.sleep(0.001)
