"""The jobs as functions: the same as the commands of their names, with results in place of printing."""

import os
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from mlcd.api.results import Result, ServeResult, ServerlessResult
from mlcd.errors import BadInput
from mlcd.events import EpochObserver, Observer, ignore, ignore_epochs
from mlcd.goal import Goal
from mlcd.jobs.arguments import check_flag, check_path, check_text
from mlcd.jobs.given import GoalLike, Job, ServeJob, ServerlessJob, check_seed, job_spec, serve_spec, serverless_spec
from mlcd.jobs.serve import resume as resume_serving
from mlcd.jobs.serve import serve as serve_job
from mlcd.jobs.serverless import prepare as prepare_functions
from mlcd.jobs.serverless import resume as resume_on_functions
from mlcd.jobs.serverless import train as train_on_functions
from mlcd.jobs.train import prepare as prepare_training
from mlcd.jobs.train import resume as resume_job
from mlcd.jobs.train import train as train_job
from mlcd.report.progress import ProgressLines
from mlcd.report.serverless_progress import EpochProgress
from mlcd.report.serving_progress import ServingProgress
from mlcd.store.epochs import EpochBook
from mlcd.store.store import Store
from mlcd.store.store import home as default_home
from mlcd.units import Usd


def train(
    job: Job,
    *,
    goal: GoalLike | None = None,
    on: str | None = None,
    budget: str | float | Usd | None = None,
    deadline: str | timedelta | None = None,
    strategy: str | None = None,
    parallel: int | None = None,
    seed: int = 0,
    home: str | os.PathLike[str] | None = None,
    progress: bool = False,
    yes: bool = False,
) -> Result:
    """Search, choose and train, inside the job's limits; the same as `mlcd train`.

    goal      in place of the job's own; budget and deadline then change that
    home      where runs are kept; None is $MLCD_HOME, else ~/.mlcd
    progress  True writes progress lines to standard error
    yes       leave to spend real money, which a cloud that charges does not start without

    Raises BadInput (SpecError, CatalogError), ProviderError, StoreError, and Interrupted on Ctrl-C.
    """
    spec = job_spec(job, goal, on=on, budget=budget, deadline=deadline, strategy=strategy, parallel=parallel)
    check_seed(seed)
    check_flag("progress", progress)
    if not check_flag("yes", yes) and prepare_training(spec, seed=seed, folder=_home(home)).setting.charged:
        raise _no_leave(spec.resources.infra, spec.goal)
    with Store(_home(home)) as store:
        return Result(train_job(spec, store=store, seed=seed, observer=_trials(progress, spec.resources.infra)))


def serve(
    job: ServeJob,
    *,
    slo: str | Mapping[str, object] | None = None,
    rate: str | float | None = None,
    trials: int | None = None,
    budget: str | float | Usd | None = None,
    deadline: str | timedelta | None = None,
    strategy: str | None = None,
    sizes: Mapping[str, int] | None = None,
    seed: int = 0,
    home: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> ServeResult:
    """Find out how to serve a model on this machine, by real load tests; the same as `mlcd serve`.

    job       the path of an ONNX model, or a job: the path of a .yaml file, its text, a mapping with its fields
    slo       the latency to keep: "p99=50ms", or {"p99": "50ms"}
    rate      requests a second to hold; more than that is worth nothing
    trials    load tests at most
    sizes     of axes that the model leaves open, by their name; goes with a model's path
    home      where runs are kept; None is $MLCD_HOME, else ~/.mlcd
    progress  True writes progress lines to standard error

    slo, rate, trials, budget, deadline and strategy stand in place of the job's own. No server is left running.

    Raises BadInput (SpecError), ProviderError, StoreError, and Interrupted on Ctrl-C.
    """
    spec = serve_spec(
        job, slo=slo, rate=rate, trials=trials, budget=budget, deadline=deadline, strategy=strategy, sizes=sizes
    )
    check_seed(seed)
    check_flag("progress", progress)
    with Store(_home(home)) as store:
        return ServeResult(serve_job(spec, store=store, seed=seed, observer=_load_tests(progress, spec.goal)))


def serverless(
    job: ServerlessJob,
    *,
    on: str | None = None,
    budget: str | float | Usd | None = None,
    deadline: str | timedelta | None = None,
    strategy: str | None = None,
    sync: str | None = None,
    functions: str | int | Sequence[int] | None = None,
    memory: str | int | Sequence[int] | None = None,
    seed: int = 0,
    home: str | os.PathLike[str] | None = None,
    progress: bool = False,
    yes: bool = False,
) -> ServerlessResult:
    """Train on functions, their number and memory chosen anew before every epoch; the same as `mlcd serverless`.

    functions  how many may be chosen: "1..64", [1, 2, 4], or one
    memory     which sizes may be chosen, in MB: [512, 1769], or one
    home       where runs are kept; None is $MLCD_HOME, else ~/.mlcd
    progress   True writes progress lines to standard error
    yes        leave to spend real money, which a cloud that charges does not start without

    on, budget, deadline, strategy, sync, functions and memory stand in place of the job's own.

    Raises BadInput (SpecError), ProviderError, StoreError, and Interrupted on Ctrl-C.
    """
    spec = serverless_spec(
        job,
        on=on,
        budget=budget,
        deadline=deadline,
        strategy=strategy,
        sync=sync,
        functions=functions,
        memory=memory,
    )
    check_seed(seed)
    check_flag("progress", progress)
    check_flag("yes", yes)
    folder = _home(home)
    prepared = prepare_functions(spec, seed=seed)
    if prepared.charged and not yes:
        raise _no_leave(spec.resources.infra, spec.goal)
    with Store(folder) as store:
        observer = _epochs(progress, prepared.problem.target_loss)
        return ServerlessResult(train_on_functions(spec, store=store, seed=seed, observer=observer))


def resume(
    run_id: str, *, home: str | os.PathLike[str] | None = None, progress: bool = False
) -> Result | ServeResult | ServerlessResult:
    """Go on with a run of any kind; nothing that is finished is run or paid again. A finished run is only read.

    Returns what the function that began the run returns. Raises what that raises, and RunBusy where another process
    works on the run.
    """
    check_text("run_id", run_id, allowed="a run's name, such as `mlcd runs` lists them")
    check_flag("progress", progress)
    with Store(_home(home)) as store:
        if store.kind(run_id) == "serverless":
            target = EpochBook(store).record(run_id).problem.target_loss
            return ServerlessResult(resume_on_functions(run_id, store=store, observer=_epochs(progress, target)))
        before = store.record(run_id)
        if before.kind == "serve":
            observer = _load_tests(progress, before.problem.goal)
            return ServeResult(resume_serving(run_id, store=store, observer=observer))
        return Result(resume_job(run_id, store=store, observer=_trials(progress, before.cloud)))


def _no_leave(infra: str, goal: Goal) -> BadInput:
    return BadInput(f"this would spend real money on {infra} ({goal.most_spent}): give yes=True")


def _trials(progress: bool, cloud: str) -> Observer:
    if not progress:
        return ignore
    colour = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    return ProgressLines(sys.stderr, colour, replayed=cloud.startswith("replay/"))


def _load_tests(progress: bool, goal: Goal) -> Observer:
    return ServingProgress(sys.stderr, goal) if progress else ignore


def _epochs(progress: bool, target_loss: float) -> EpochObserver:
    return EpochProgress(sys.stderr, target_loss) if progress else ignore_epochs


def _home(home: str | os.PathLike[str] | None) -> Path:
    return default_home() if home is None else Path(check_path("home", home)).expanduser()
