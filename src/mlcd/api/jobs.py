"""The jobs as functions: the same as the commands of their names, but they return results."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

from mlcd.api.results import Result, ServeResult, ServerlessResult, result_of
from mlcd.clouds.plugin import CloudPlugin
from mlcd.errors import BadInput
from mlcd.events import Event, Observer
from mlcd.findings.what_if import WhatIf
from mlcd.findings.what_if import what_if as what_if_of
from mlcd.jobs.arguments import check_envs, check_flag, check_folder, check_text
from mlcd.jobs.given import GoalLike, Job, ServeJob, ServerlessJob, check_seed, job_spec, serve_spec, serverless_spec
from mlcd.jobs.prepared import Prepared, begin, check_here, continue_run
from mlcd.kinds import kind_of
from mlcd.plugins import check_methods
from mlcd.run.kind import Kind
from mlcd.run.run import Run, SearchRun
from mlcd.schedulers.scheduler import Scheduler
from mlcd.search.strategy import Strategy
from mlcd.store.store import RunSummary, Store
from mlcd.store.store import home as default_home
from mlcd.track import checked_trackers, tracked
from mlcd.units import Usd, parse_seconds, parse_usd

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
    envs: Mapping[str, str] | None = None,
    seed: int = 0,
    home: Home = None,
    progress: bool = False,
    observer: Observer | None = None,
    track: str | Sequence[str] = (),
    yes: bool = False,
    search_only: bool = False,
    reuse: bool | None = None,
) -> Result:
    """Search, choose and train within the job's limits; the same as `mlcd train`.

    goal      replaces the job's own; budget and deadline then change it
    on        where to run, as resources.infra, or a cloud object (docs/plugins.md)
    strategy  a name with options, or a strategy object
    envs      values of environment variables of the job, by name: they add to and replace those of the job
    home      where runs are kept; None is $MLCD_HOME, else ~/.mlcd
    progress  True writes progress lines to standard error
    observer  called with each mlcd.events.Event as it happens
    track     trackers that are told of the run: "mlflow", "wandb", or both in a list
    yes       permission to spend real money; clouds that charge need it
    search_only  stop when the search has chosen; `mlcd.resume` then trains there
    reuse     whether trials of the same job in earlier runs count; None: where trials cost real money

    Raises BadInput (SpecError, CatalogError), ProviderError, StoreError, and Interrupted on Ctrl-C.
    """
    _check_watching(progress, observer, track)
    spec = job_spec(
        job,
        goal,
        on=_text(on),
        budget=budget,
        deadline=deadline,
        strategy=_text(strategy),
        parallel=parallel,
        envs=envs,
    )
    check_seed(seed)
    prepared = kind_of(Kind.TRAIN).prepare(
        spec,
        seed=seed,
        folder=_home(home),
        strategy=_object(strategy),
        cloud=_object(on),
        reuse=None if reuse is None else check_flag("reuse", reuse),
    )
    only = check_flag("search_only", search_only)
    return Result(_begun(prepared, home, progress, observer, track, yes=yes, search_only=only))


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
    track: str | Sequence[str] = (),
    yes: bool = False,
) -> ServeResult:
    """Find the best way to serve a model with real load tests; the same as `mlcd serve`.

    job       the path of an ONNX model, or a job: the path of a .yaml file, its text, a mapping with its fields
    slo       the latency to keep: "p99=50ms", or {"p99": "50ms"}
    rate      requests per second to sustain; more counts for nothing
    trials    maximum number of load tests
    sizes     of open axes of the model, by name; only for the path of a model
    home      where runs are kept; None is $MLCD_HOME, else ~/.mlcd
    progress  True writes progress lines to standard error
    observer  called with each mlcd.events.Event as it happens
    track     trackers that are told of the run: "mlflow", "wandb", or both in a list
    yes       permission to spend real money; clouds that charge need it

    slo, rate, trials, budget, deadline and strategy override the job's own. No server keeps running.

    Raises BadInput (SpecError), ProviderError, StoreError, and Interrupted on Ctrl-C.
    """
    _check_watching(progress, observer, track)
    check_flag("yes", yes)
    spec = serve_spec(
        job, slo=slo, rate=rate, trials=trials, budget=budget, deadline=deadline, strategy=_text(strategy), sizes=sizes
    )
    check_seed(seed)
    prepared = kind_of(Kind.SERVE).prepare(spec, seed=seed, folder=_home(home), strategy=_object(strategy))
    return ServeResult(_begun(prepared, home, progress, observer, track, yes=yes))


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
    track: str | Sequence[str] = (),
    yes: bool = False,
    fresh: bool = False,
) -> ServerlessResult:
    """Train on functions, choosing their number and memory before every epoch; the same as `mlcd serverless`.

    functions  allowed numbers of functions: "1..64", [1, 2, 4], or one number
    memory     allowed sizes in MB: [512, 1769], or one size
    home       where runs are kept; None is $MLCD_HOME, else ~/.mlcd
    strategy   a scheduler's name with options, or a scheduler object
    progress   True writes progress lines to standard error
    observer   called with each mlcd.events.Event as it happens
    track      trackers that are told of the run: "mlflow", "wandb", or both in a list
    yes        permission to spend real money; clouds that charge need it
    fresh      True ignores earlier runs of the same training, which `mpc` learns from

    on, budget, deadline, strategy, sync, functions and memory override the job's own.

    Raises BadInput (SpecError), ProviderError, StoreError, and Interrupted on Ctrl-C.
    """
    _check_watching(progress, observer, track)
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
    prepared = kind_of(Kind.SERVERLESS).prepare(
        spec, seed=seed, folder=_home(home), strategy=_object(strategy), fresh=check_flag("fresh", fresh)
    )
    return ServerlessResult(_begun(prepared, home, progress, observer, track, yes=yes))


def resume(
    run_id: str,
    *,
    home: Home = None,
    progress: bool = False,
    observer: Observer | None = None,
    track: str | Sequence[str] = (),
    strategy: Strategy | Scheduler | None = None,
    on: CloudPlugin | None = None,
    envs: Mapping[str, str] | None = None,
) -> Result | ServeResult | ServerlessResult:
    """Continue a run of any kind. Finished steps are not run or paid again. A finished run is only read.

    A run that stopped after its search (`search_only`) trains on what that chose.

    strategy, on  the objects that the run was started with, if any
    track         trackers that are told of the run, its earlier steps included
    envs          values of the job's environment variables, where they changed or are no longer known

    Returns and raises the same as the function that started the run, and raises RunBusy if another process works on
    the run.
    """
    check_text("run_id", run_id, allowed=RUN_NAME)
    _check_watching(progress, observer, track)
    check_methods(strategy, ("decide",) if hasattr(strategy, "decide") else ("suggest",), argument="strategy")
    check_methods(on, ("prepare",), argument="on")
    check_envs(envs)
    with Store(_home(home)) as store:
        run = store.load(run_id)
        if run.status.is_final:
            return result_of(run)
        check_here(run, store)
        kind = kind_of(run.kind)
        objects = {name: value for name, value in (("strategy", strategy), ("cloud", on)) if value is not None}
        stored = store.spec(run.run_id, envs=envs)
        prepared = kind.prepare_again(run, stored, store.folder, **objects)
        with _observer(prepared, progress, observer, track) as watching:
            return result_of(continue_run(run, prepared, store=store, observer=watching))


def runs(*, home: Home = None) -> tuple[RunSummary, ...]:
    """All runs, newest first: name, kind, when, where, strategy, status, trials, money. Spends nothing.

    Of a run whose record is damaged only the name is known: `damage` says what is wrong, and `status` is None.
    """
    with Store(_home(home), reading=True) as store:
        return store.runs()


def load(run_id: str, *, home: Home = None) -> Result | ServeResult | ServerlessResult:
    """A stored run, ended or not. Nothing is continued or spent. Raises BadInput for an unknown name."""
    check_text("run_id", run_id, allowed=RUN_NAME)
    with Store(_home(home), reading=True) as store:
        return result_of(store.load(run_id))


def what_if(
    run: Result | str,
    *,
    budget: str | float | Usd | None = None,
    deadline: str | timedelta | None = None,
    weight: float | None = None,
    home: Home = None,
) -> WhatIf:
    """What would be chosen under other limits, from what the run measured: no trial is made and nothing is spent.

    run       a result of `mlcd.train`, or a run's name
    budget    for search and training together; None is no limit
    deadline  likewise; a duration such as "6h30m"
    weight    of time against money: 1, only time counts; 0, only money; None: the goal's own rule

    `next_trial` of the answer says what one more trial would be worth. Raises BadInput.
    """
    usd = None if budget is None else _money(budget)
    seconds = None if deadline is None else _seconds(deadline)
    if weight is not None and (isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight <= 1):
        raise BadInput(f"weight: must be a number from 0 to 1 (got {weight!r})")
    if isinstance(run, str):
        found = load(run, home=home)
    elif isinstance(run, Result | ServeResult | ServerlessResult):
        found = run
    else:
        raise BadInput(f"run: must be a result of mlcd.train, or a run's name (got {run!r})")
    return what_if_of(cast(SearchRun, found.record), budget=usd, deadline_seconds=seconds, time_weight=weight)


def _money(budget: str | float | Usd) -> Usd:
    try:
        return budget if isinstance(budget, Usd) else parse_usd(budget)
    except (ValueError, TypeError, AttributeError) as error:
        raise BadInput(f"budget: {error} (got {budget!r})") from error


def _seconds(deadline: str | timedelta) -> float:
    try:
        return deadline.total_seconds() if isinstance(deadline, timedelta) else parse_seconds(deadline)
    except (ValueError, TypeError, AttributeError) as error:
        raise BadInput(f"deadline: {error} (got {deadline!r})") from error


def _begun(
    prepared: Prepared[Any],
    home: Home,
    progress: bool,
    observer: Observer | None,
    track: str | Sequence[str],
    *,
    yes: bool,
    search_only: bool = False,
) -> Run[Any]:
    if not check_flag("yes", yes) and prepared.charged:
        most = prepared.problem.goal.most_spent
        raise BadInput(f"yes: this would spend real money on {prepared.cloud} ({most}); give yes=True")
    with Store(_home(home)) as store, _observer(prepared, progress, observer, track) as watching:
        return begin(prepared, store=store, observer=watching, search_only=search_only)


def _check_watching(progress: bool, observer: Observer | None, track: str | Sequence[str]) -> None:
    """Check the arguments before anything is prepared, opened or started. Raises BadInput."""
    check_flag("progress", progress)
    if observer is not None and not callable(observer):
        raise BadInput(f"observer: must be a function of one event (got {observer!r})")
    checked_trackers(track)


@contextmanager
def _observer(
    prepared: Prepared[Any], progress: bool, observer: Observer | None, track: str | Sequence[str]
) -> Iterator[Observer]:
    """One observer for the caller's observer, progress on standard error and trackers, all optional."""
    with ExitStack() as leaving:
        watching = [observer] if observer is not None else []
        if progress:
            lines = kind_of(prepared.kind).progress(sys.stderr, prepared.problem, prepared.cloud)
            watching.append(leaving.enter_context(lines))

        def tell(event: Event) -> None:
            for each in watching:
                each(event)

        yield leaving.enter_context(tracked(track, tell))


def _text(value: Any) -> Any:
    """`value` if a job file could contain it; objects are passed to `prepare` instead."""
    return value if value is None or isinstance(value, str) else None


def _object(value: Any) -> Any:
    return None if value is None or isinstance(value, str) else value


def _home(home: Home) -> Path:
    return default_home() if home is None else check_folder("home", home)
