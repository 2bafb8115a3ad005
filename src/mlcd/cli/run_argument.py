"""The argument RUN: a run's name, a unique prefix of one, a job's name, or the newest run where it is left out."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from mlcd.cli.complete import complete_runs
from mlcd.cli.output import RunName, print_text

if TYPE_CHECKING:
    from mlcd.store.store import Store


def run_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """`[RUN]` as the argument `run`; None where it is left out."""
    return click.argument("run", type=RunName(), required=False, shell_complete=complete_runs)(function)


def named_or_latest(store: "Store", run: str | None, *, unfinished: bool = False) -> str:
    """The run that was given, the newest one of a job that was given, else the newest. Raises BadInput if none is.

    Of a job with several runs, a line on standard error says which one it is.

    unfinished  the newest that has not ended, where there is one
    """
    if run is None:
        return store.latest(unfinished=unfinished)
    every = store.runs_of_job(run)
    if len(every) < 2:
        return run
    found = store.runs_of_job(run, unfinished=unfinished)[0]
    which = "the newest that has not ended" if unfinished and not store.status(found).is_final else "the newest"
    print_text(f"{run} has {len(every):,} runs; this is {which}, {found} (mlcd runs --name {run})", err=True)
    return found
