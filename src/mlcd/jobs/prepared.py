"""A job of any kind, resolved against catalog, cloud and data; and the one way from there to a run."""

import secrets
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Generic, cast

from mlcd.deciders.decision import Decider, P
from mlcd.engine import Engine
from mlcd.engine.performer import HandsOver, Performer
from mlcd.errors import BadInput, ProviderError
from mlcd.events import Observer, RunBegan, RunEnded, Warned, ignore
from mlcd.findings import findings_of
from mlcd.problem import Problem
from mlcd.run.header import FunctionFacts, Header, ReusedTrial, ServingFacts
from mlcd.run.kind import Kind
from mlcd.run.run import Run
from mlcd.store.store import Store
from mlcd.version import __version__


@dataclass(frozen=True, kw_only=True)
class Prepared(Generic[P]):
    """Everything a run needs. Nothing is started or connected yet.

    decider       decides what comes next
    connect       makes the performer for a problem; the stack closes it
    cloud         its name, as in `resources.infra`
    charged       whether somebody is charged for what runs there
    strategy      as the user wrote it, or the recorded name of an object
    catalog_date  of the prices
    spec          what prepares the same job again, from any folder; of its environment variables only the names
    envs          their values, where the job uses them
    notes         what the job names but cannot use, and why
    reused        trials of the same job that earlier runs paid for
    """

    kind: Kind
    name: str
    problem: P
    decider: Decider[P]
    connect: Callable[[P, ExitStack], Performer[P]]
    cloud: str
    simulated: bool
    charged: bool
    strategy: str
    seed: int
    catalog_date: str
    spec: Mapping[str, Any]
    envs: Mapping[str, str] = field(default_factory=dict, repr=False)
    parallel: int = 1
    notes: tuple[str, ...] = ()
    serving: ServingFacts | None = None
    functions: FunctionFacts | None = None
    reused: tuple[ReusedTrial, ...] = ()
    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    def new_run(self) -> Run[P]:
        """The run before its first step, under a new name."""
        run = Run(
            header=Header(
                run_id=f"{self.name}-{secrets.token_hex(3)}",
                created=self.now.isoformat(timespec="seconds"),
                kind=self.kind,
                cloud=self.cloud,
                simulated=self.simulated,
                strategy=self.strategy,
                seed=self.seed,
                version=__version__,
                catalog_date=self.catalog_date,
                parallel=self.parallel,
                serving=self.serving,
                functions=self.functions,
                reused=self.reused,
            ),
            problem=self.problem,
        )
        return run.with_reported_work() if self.reused else run


def begin(prepared: Prepared[P], *, store: Store, observer: Observer = ignore, search_only: bool = False) -> Run[P]:
    """Start a run and drive it to its end, or with `search_only` to its verdict. All of it is recorded in the store.

    Raises StoreError, ProviderError, BadInput, and Interrupted on Ctrl-C.
    """
    if search_only and isinstance(prepared.problem, Problem) and prepared.problem.beside:
        # Nothing runs beside the trials, so that they are parts of the training.
        prepared = replace(prepared, problem=replace(prepared.problem, beside=False, keeps_work=True))
    with ExitStack() as leaving:
        performer = prepared.connect(
            prepared.problem, leaving
        )  # connect first: an unreachable cloud must not leave a run behind
        run = prepared.new_run()
        store.add(run, spec=dict(prepared.spec), envs=prepared.envs)
        with store.lock(run.run_id):
            return _drive(run, prepared, performer, store, observer, search_only=search_only)


def continue_run(
    run: Run[P], prepared: Prepared[P], *, store: Store, observer: Observer = ignore, search_only: bool = False
) -> Run[P]:
    """Continue a stored run from its recorded state to its end, or with `search_only` to its verdict.

    A run that has ended is only read again.

    Raises as `begin` does, and RunBusy where another process works on it.
    """
    check_here(run, store)
    check_place(run, prepared)
    with store.lock(run.run_id), ExitStack() as leaving:
        now = cast(Run[P], store.load(run.run_id))  # another process may have continued it meanwhile
        if now.status.is_final:
            return now
        store.check()
        store.keep_envs(now.run_id, prepared.envs)  # they may have been given anew
        performer = prepared.connect(now.problem, leaving)
        return _drive(now, prepared, performer, store, observer, search_only=search_only)


def check_here(run: Run[Any], store: Store) -> None:
    """Raises BadInput where the files of a team's run are on another machine. A simulated run has none."""
    if not run.header.simulated and not run.status.is_final and not store.is_here(run.run_id):
        place = run.header.made_by or "another machine"
        raise BadInput(
            f"run {run.run_id} was started by {place}, and its checkpoint and nodes' files are there: resume it there,"
            f" with the same MLCD_HOME; `mlcd show {run.run_id}` works here"
        )


def check_place(run: Run[Any], prepared: Prepared[Any]) -> None:
    """Raises BadInput where a run that is recorded as simulated would run something: mlcd wrote no such record.

    A colleague can add one to a team's store. Simulated runs are continued by anybody, real ones only where they began.
    """
    if run.header.simulated and not prepared.simulated:
        raise BadInput(
            f"run {run.run_id} is recorded as simulated on {run.cloud}, but its job would run on {prepared.cloud}: mlcd"
            " does not continue it; ask whoever added it to the store"
        )


def _drive(
    run: Run[P],
    prepared: Prepared[P],
    performer: Performer[P],
    store: Store,
    observer: Observer,
    *,
    search_only: bool,
) -> Run[P]:
    engine = Engine(
        run=run,
        decider=prepared.decider,
        performer=performer,
        journal=store,
        observer=observer,
        findings=findings_of,
        search_only=search_only,
    )
    observer(RunBegan(run=run))
    engine.drive()
    if isinstance(performer, HandsOver) and store.folder is not None and engine.run.status.is_final:
        try:
            performer.hand_over(engine.run, store.folder / "work" / run.run_id / "outputs")
        except (ProviderError, OSError) as error:  # the run has ended all the same
            observer(Warned(text=f"the trained model was not fetched: {error}"))
    over = cast(Run[P], store.load(run.run_id))
    observer(RunEnded(run=over))
    return over
