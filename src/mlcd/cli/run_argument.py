"""The argument RUN: a run's name, a unique prefix of one, or the newest run where it is left out."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from mlcd.cli.complete import complete_runs
from mlcd.cli.output import RunName

if TYPE_CHECKING:
    from mlcd.store.store import Store


def run_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """`[RUN]` as the argument `run`; None where it is left out."""
    return click.argument("run", type=RunName(), required=False, shell_complete=complete_runs)(function)


def named_or_latest(store: "Store", run: str | None) -> str:
    """The name that was given, else that of the newest run. Raises BadInput where there is none."""
    return store.latest() if run is None else run
