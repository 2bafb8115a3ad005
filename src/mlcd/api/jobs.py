"""The jobs as functions: the same as the commands of their names, with results in place of printing."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from mlcd.api.results import Result, ServeResult, ServerlessResult, result_of
from mlcd.clouds.plugin import CloudPlugin
from mlcd.errors import BadInput
from mlcd.events import Event, Observer
from mlcd.jobs.arguments import check_flag, check_path, check_text
from mlcd.jobs.given import GoalLike, Job, ServeJob, ServerlessJob, check_seed, job_spec, serve_spec, serverless_spec
from mlcd.jobs.prepared import Prepared, begin, go_on
from mlcd.kinds import kind_of
from mlcd.plugins import check_methods
from mlcd.run.kind import Kind
from mlcd.run.run import Run
from mlcd.schedulers.scheduler import Scheduler
from mlcd.search.strategy import Strategy
from mlcd.store.store import RunSummary, Store
from mlcd.store.store import home as default_home
from mlcd.units import Usd

Home = str | os.PathLike[str] | None
"""Where runs are kept; None is $MLCD_HOME, else ~/.mlcd."""
RUN_NAME = "a run's name, such as `mlcd runs` lists them"


def train(
    job: Job,
    *,
    goal: GoalLike | None = None,
    on: str | CloudPlugin | None = None,
    budget: str | float | Usd | None = None,
    deadline: str | timedelta | None = None,
    strategy: str | Strategy | None = None,
    parallel: int | None = None,
    seed: int = 0,
    home: Home = None,
    progress: bool = False,
    observer: Observer | None = None,
    yes: bool = False,
) -> Result:
    """Search, choose and train, inside the job's limits; the same as `mlcd train`.

    goal      in place of the job's own; budget and deadline then change that
    on        where, as resources.infra, or an object that offers a cloud (docs/plugins.md)
    strategy  who searches, by name with options, or an object that decides
    home      where runs are kept; None is $MLCD_HOME, else ~/.mlcd
    progress  True writes progress lines to standard error
    observer  is called with each mlcd.events.Event as it happens
    yes       permission to spend real money, which a cloud that charges does not start without

    Raises BadInput (SpecError, CatalogError), ProviderError, StoreError, and Interrupted on Ctrl-C.
    """
    _check_watching(progress, observer)
    spec = job_spec(
        job,
        goal,
        on=_text(on),
        budget=budget,
        deadline=deadline,
        strategy=_text(strategy),
        parallel=parallel,
    )
    check_seed(seed)
    prepared = kind_of(Kind.TRAIN).prepare(
        spec, seed=seed, folder=_home(home), strategy=_object(strategy), cloud=_object(on)
    )
    return Result(_begun(prepared, home, progress, observer, yes=yes))


def serve(
    job: ServeJob,
    *,
    slo: str | Mapping[str, object] | None = None,
    rate: str | float | None = None,
    trials: int | None = None,
    budget: str | float | Usd | None = None,
    deadline: str | timedelta | None = None,
    strategy: str | Strategy | None = None,
    sizes: Mapping[str, int] | None = None,
    seed: int = 0,
    home: Home = None,
    progress: bool = False,
    observer: Observer | None = None,
) -> ServeResult:
    """Find out how to serve a model on this machine, by real load tests; the same as `mlcd serve`.

    job       the path of an ONNX model, or a job: the path of a .yaml file, its text, a mapping with its fields
    slo       the latency to keep: "p99=50ms", or {"p99": "50ms"}
    rate      requests a second to hold; more than that is worth nothing
    trials    load tests at most
    sizes     of axes that the model leaves open, by their name; goes with a model's path
    home      where runs are kept; None is $MLCD_HOME, else ~/.mlcd
    progress  True writes progress lines to standard error
    observer  is called with each mlcd.events.Event as it happens

    slo, rate, trials, budget, deadline and strategy stand in place of the job's own. No server is left running.

    Raises BadInput (SpecError), ProviderError, StoreError, and Interrupted on Ctrl-C.
    """
    _check_watching(progress, observer)
    spec = serve_spec(
        job, slo=slo, rate=rate, trials=trials, budget=budget, deadline=deadline, strategy=_text(strategy), sizes=sizes
    )
    check_seed(seed)
    prepared = kind_of(Kind.SERVE).prepare(spec, seed=seed, folder=_home(home), strategy=_object(strategy))
    return ServeResult(_begun(prepared, home, progress, observer, yes=True))


def serverless(
    job: ServerlessJob,
    *,
    on: str | None = None,
    budget: str | float | Usd | None = None,
    deadline: str | timedelta | None = None,
    strategy: str | Scheduler | None = None,
    sync: str | None = None,
    functions: str | int | Sequence[int] | None = None,
    memory: str | int | Sequence[int] | None = None,
    seed: int = 0,
    home: Home = None,
    progress: bool = False,
    observer: Observer | None = None,
    yes: bool = False,
) -> ServerlessResult:
    """Train on functions, their number and memory chosen anew before every epoch; the same as `mlcd serverless`.

    functions  how many may be chosen: "1..64", [1, 2, 4], or one
    memory     which sizes may be chosen, in MB: [512, 1769], or one
    home       where runs are kept; None is $MLCD_HOME, else ~/.mlcd
    strategy   who decides, by name with options, or an object that does
    progress   True writes progress lines to standard error
    observer   is called with each mlcd.events.Event as it happens
    yes        permission to spend real money, which a cloud that charges does not start without

    on, budget, deadline, strategy, sync, functions and memory stand in place of the job's own.

    Raises BadInput (SpecError), ProviderError, StoreError, and Interrupted on Ctrl-C.
    """
    _check_watching(progress, observer)
    spec = serverless_spec(
        job,
        on=on,
        budget=budget,
        deadline=deadline,
        strategy=_text(strategy),
        sync=sync,
        functions=functions,
        memory=memory,
    )
    check_seed(seed)
    prepared = kind_of(Kind.SERVERLESS).prepare(spec, seed=seed, folder=_home(home), strategy=_object(strategy))
    return ServerlessResult(_begun(prepared, home, progress, observer, yes=yes))


def resume(
    run_id: str,
    *,
    home: Home = None,
    progress: bool = False,
    observer: Observer | None = None,
    strategy: Strategy | Scheduler | None = None,
    on: CloudPlugin | None = None,
) -> Result | ServeResult | ServerlessResult:
    """Go on with a run of any kind; nothing that is finished is run or paid again. A finished run is only read.

    strategy, on  the objects that the run was begun with, where it was

    Returns what the function that began the run returns. Raises what that raises, and RunBusy where another process
    works on the run.
    """
    check_text("run_id", run_id, allowed=RUN_NAME)
    _check_watching(progress, observer)
    check_methods(strategy, ("decide",) if hasattr(strategy, "decide") else ("suggest",), argument="strategy")
    check_methods(on, ("prepare",), argument="on")
    with Store(_home(home)) as store:
        run = store.load(run_id)
        if run.status.is_final:
            return result_of(run)
        kind = kind_of(run.kind)
        objects = {name: value for name, value in (("strategy", strategy), ("cloud", on)) if value is not None}
        prepared = kind.prepare_again(run, store.spec(run.run_id), store.folder, **objects)
        with _observer(prepared, progress, observer) as watching:
            return result_of(go_on(run, prepared, store=store, observer=watching))


def runs(*, home: Home = None) -> tuple[RunSummary, ...]:
    """All runs, the newest first: name, kind, when, where, strategy, status, trials, money. Spends nothing."""
    with Store(_home(home)) as store:
        return store.runs()


def load(run_id: str, *, home: Home = None) -> Result | ServeResult | ServerlessResult:
    """A run as the store has it, ended or not; nothing is continued or spent. Raises BadInput for an unknown name."""
    check_text("run_id", run_id, allowed=RUN_NAME)
    with Store(_home(home)) as store:
        return result_of(store.load(run_id))


def _begun(prepared: Prepared[Any], home: Home, progress: bool, observer: Observer | None, *, yes: bool) -> Run[Any]:
    if not check_flag("yes", yes) and prepared.charged:
        most = prepared.problem.goal.most_spent
        raise BadInput(f"this would spend real money on {prepared.cloud} ({most}): give yes=True")
    with Store(_home(home)) as store, _observer(prepared, progress, observer) as watching:
        return begin(prepared, store=store, observer=watching)


def _check_watching(progress: bool, observer: Observer | None) -> None:
    """Before anything is prepared, opened or started. Raises BadInput."""
    check_flag("progress", progress)
    if observer is not None and not callable(observer):
        raise BadInput(f"observer: must be a function of one event (got {observer!r})")


@contextmanager
def _observer(prepared: Prepared[Any], progress: bool, observer: Observer | None) -> Iterator[Observer]:
    """Whoever watches: the caller's observer, progress on standard error, both or neither."""
    with ExitStack() as leaving:
        watching = [observer] if observer is not None else []
        if progress:
            lines = kind_of(prepared.kind).progress(sys.stderr, prepared.problem, prepared.cloud)
            watching.append(leaving.enter_context(lines))

        def tell(event: Event) -> None:
            for each in watching:
                each(event)

        yield tell


def _text(value: Any) -> Any:
    """What a job file could say; an object is handed to `prepare` instead."""
    return value if value is None or isinstance(value, str) else None


def _object(value: Any) -> Any:
    return None if value is None or isinstance(value, str) else value


def _home(home: Home) -> Path:
    return default_home() if home is None else Path(check_path("home", home)).expanduser()
