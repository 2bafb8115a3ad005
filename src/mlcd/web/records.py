"""Reads the store for the page. What was read of a run is kept until something of that run is recorded."""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

from mlcd.errors import MlcdError, StoreError
from mlcd.findings import shown
from mlcd.run.kind import Kind
from mlcd.run.run import Run
from mlcd.run.step import Role, Step
from mlcd.store.store import Store
from mlcd.store.summary import RunFilter, RunSummary
from mlcd.trial.outcome import Status
from mlcd.units import ZERO
from mlcd.untrusted import on_one_line
from mlcd.web.api_types import RunListedJson, RunNowJson, RunsJson

T = TypeVar("T")

MOST_KEPT = 256
"""Runs, and what was made of them, that are kept in memory."""
MOST_SUMMARIES = 20_000
BUSY_SECONDS = 2.0
"""A page says that the store is locked after so long; others wait longer."""


class NoSuchRun(MlcdError):
    """The address names a run that is not in the store."""


class Records:
    """The runs of one home, for many threads. Raises StoreError where the store cannot be read."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._kept: OrderedDict[tuple[str, str], tuple[int, Future[Any]]] = OrderedDict()
        self._summaries: OrderedDict[tuple[str, str], tuple[int, Future[Any]]] = OrderedDict()
        self._lock = threading.Lock()
        self._opened = threading.local()

    @contextmanager
    def store(self) -> Iterator[Store]:
        """The store, opened for reading: once for each thread, and again where its file is not as it was opened."""
        kept: Store | None = getattr(self._opened, "store", None)
        self._opened.store = None
        if kept is not None and not kept.is_as_opened():
            kept.__exit__(None, None, None)
            kept = None
        store = kept or Store(self.home, reading=True, busy_seconds=BUSY_SECONDS)
        try:
            yield store
        except BaseException:
            store.__exit__(None, None, None)
            raise
        self._opened.store = store

    def rows(self, run_id: str) -> int:
        """How much is recorded of a run. Raises NoSuchRun."""
        with self.store() as store:
            return _known(store, run_id)

    def run(self, run_id: str) -> Run[Any]:
        """A run with its findings. Raises NoSuchRun."""
        return self._at(run_id)[1]

    def made(self, run_id: str, what: str, make: Callable[[Run[Any]], T]) -> T:
        """What `make` makes of a run, once for each state of it."""
        rows, run = self._at(run_id)
        return self._remembered(what, run_id, rows, lambda: make(run))

    def now(self, run_id: str) -> RunNowJson:
        """Where a run stands."""
        return self.made_now(run_id, "now", lambda _, now: now)

    def made_now(self, run_id: str, what: str, make: Callable[[Run[Any], RunNowJson], T]) -> T:
        """What `make` makes of a run and of where it stands, once for each state of both."""
        rows, run = self._at(run_id)
        with self.store() as store:
            live = store.is_live(run_id)
        now = self._remembered(f"now {live}", run_id, rows, lambda: run_now(run, rows=rows, live=live))
        return self._remembered(f"{what} {live}", run_id, rows, lambda: make(run, now))

    def _at(self, run_id: str) -> tuple[int, Run[Any]]:
        """How much is recorded of a run, and the run: as it was then, or later. Raises NoSuchRun."""
        with self.store() as store:
            rows = _known(store, run_id)
            return rows, self._remembered("run", run_id, rows, lambda: shown(store.load(run_id)))

    def list(self, wanted: RunFilter, *, limit: int, offset: int = 0) -> RunsJson:
        """A part of the list of runs."""
        with self.store() as store:
            names, count = store.find(wanted, limit=limit, offset=offset)
            found = tuple(self._listed(store, name) for name in names)
        return RunsJson(matching=count, offset=offset, runs=found)

    def _listed(self, store: Store, run_id: str) -> RunListedJson:
        rows = store.row_count(run_id)
        summary = self._remembered("summary", run_id, rows, lambda: store.summary(run_id))
        if summary.status is None or summary.status.is_final:
            return _row(summary, live=False)
        live = store.is_live(run_id)
        try:
            found = self._remembered("run", run_id, rows, lambda: shown(store.load(run_id)))
        except MlcdError as error:
            return _row(replace(summary, damage=str(error)), live=False)
        try:
            with _named(run_id):
                now = run_now(found, rows=rows, live=live)
        except StoreError as error:
            return _row(replace(summary, damage=str(error)), live=False)
        return replace(
            _row(summary, live=live),
            committed_usd=now.committed_usd,
            reserved_usd=now.reserved_usd,
            remaining_usd=now.remaining_usd,
            best=now.best or summary.fleets or None,
        )

    def _remembered(self, what: str, run_id: str, rows: int, make: Callable[[], T]) -> T:
        """What `make` makes of a run: once for each state of it, however many threads ask. Older states are dropped."""
        kept, most = (self._summaries, MOST_SUMMARIES) if what == "summary" else (self._kept, MOST_KEPT)
        key = (what, run_id)
        with self._lock:
            of, found = kept.get(key, (-1, Future()))
            mine = of != rows
            if mine:
                found = Future()
                kept[key] = rows, found
                while len(kept) > most:
                    kept.popitem(last=False)
            kept.move_to_end(key)
        if mine:
            try:
                with _named(run_id):
                    found.set_result(make())
            except BaseException as error:  # those who wait are told the same, and the next one tries again
                with self._lock:
                    kept.pop(key, None)
                found.set_exception(error)
        return cast(T, found.result())


@contextmanager
def _named(run_id: str) -> Iterator[None]:
    """Turns an error that nobody has thought of into one about this run: the page shows the others.

    The rows are as they were written, but a colleague's program may have written them.
    """
    try:
        yield
    except MlcdError:
        raise
    except Exception as error:
        logging.getLogger("mlcd.web").warning("a run cannot be shown: %s", on_one_line(f"{run_id}: {error!r}")[:500])
        what = f"{type(error).__name__}: {on_one_line(str(error))[:200]}"
        raise StoreError(
            f"{run_id} cannot be shown ({what}): its record is none that this mlcd writes, or mlcd has a fault"
        ) from error


def run_now(run: Run[Any], *, rows: int, live: bool) -> RunNowJson:
    """Where a run stands, from what is stored of it."""
    from mlcd.findings.now import money_now  # noqa: PLC0415 - the models are imported once the page is there

    money = money_now(run)
    plan = run.choice or money.incumbent
    best = None if plan is None else str(plan.config)
    if run.kind is Kind.SERVE:
        found = run.findings.serve if run.findings and run.status.is_final else None
        if found is not None:  # a verification may have led to another one than the verdict's
            best = None if found.choice is None else str(found.choice.config)
        plan = None  # the time and money of a training
    ended = run.status.is_final
    return RunNowJson(
        run_id=run.run_id,
        rows=rows,
        kind=str(run.kind),
        state="stopped" if run.status is Status.RUNNING and not live else str(run.status),
        live=live,
        trials=len(run.epoch_steps) if run.kind is Kind.SERVERLESS else len(run.trials),
        steps=len(run.steps),
        spent_usd=money.spent,
        committed_usd=money.committed,
        reserved_usd=money.reserved,
        remaining_usd=money.remaining,
        budget_usd=money.budget,
        elapsed_seconds=run.total_seconds if ended and run.kind is not Kind.SERVERLESS else run.step_seconds,
        deadline_seconds=run.problem.goal.deadline_seconds,
        running=tuple(_in_words(step) for step in run.in_flight),
        best=best,
        best_seconds=None if plan is None else plan.seconds,
        best_usd=None if plan is None else plan.usd,
    )


def _known(store: Store, run_id: str) -> int:
    rows = store.row_count(run_id)
    if not rows:
        raise NoSuchRun(f"there is no run {run_id[:100]!r}")
    return rows


def _row(summary: RunSummary, *, live: bool) -> RunListedJson:
    return RunListedJson(
        run_id=summary.run_id,
        kind=str(summary.kind),
        created=summary.created,
        cloud=summary.cloud,
        strategy=summary.strategy,
        goal=summary.goal,
        choice=summary.choice or None,
        status="damaged" if summary.damage else str(summary.status),
        damage=summary.damage,
        live=live,
        trials=summary.trials,
        spent_usd=summary.spent,
        state=summary.state(live=live),
        budget_usd=summary.budget,
        committed_usd=ZERO,
        reserved_usd=ZERO,
        remaining_usd=None if summary.budget is None else summary.budget - summary.spent,
        best=summary.choice or summary.fleets or None,
        spending_usd=summary.spending,
    )


def _in_words(step: Step) -> str:
    where = step.fleet if step.role is Role.EPOCH else step.config
    return f"{step.role} {step.number} on {where}"
