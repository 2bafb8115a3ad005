import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mlcd.cli.examples import examples
from mlcd.cli.output import output_option, print_json
from mlcd.cli.run_argument import named_or_latest, run_argument
from mlcd.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlcd.run.logs import StepLogs
    from mlcd.store.store import Store

POLL_SECONDS = 0.5
"""How often `-f` looks for new lines."""
LINE_CHARACTERS = 20_000
"""Longer lines are cut."""


@click.command(epilog=examples("mlcd logs", "mlcd logs RUN --trial 2 -f"))
@run_argument
@click.option("--trial", metavar="N", type=click.IntRange(1), help="The N-th trial; by default the newest step.")
@click.option("--node", metavar="N", type=click.IntRange(0), help="Only this node; the first is 0.")
@click.option("-f", "--follow", is_flag=True, help="Keep printing new lines until the run ends or Ctrl-C.")
@click.option("--paths", is_flag=True, help="Print the files' paths instead of what is in them, for all steps.")
@output_option
def logs(*, run: str | None, trial: int | None, node: int | None, follow: bool, paths: bool, output: str) -> None:
    """Show what the nodes of a run, or its server, wrote.

    RUN is a name from `mlcd runs`, a unique prefix of one, or a job's name for its newest run; by default the newest
    run. Without --trial, the newest step is shown: the training once there is one. Simulated runs write nothing.
    """
    from mlcd.store.store import Store, home

    if follow and (paths or output == "json"):
        raise BadInput("--follow: prints text as it is written; leave out --paths and -o json")
    with Store(home(), reading=True) as store:
        name = named_or_latest(store, run)
        loaded = store.load(name)
        name = loaded.run_id
        if loaded.simulated:
            raise BadInput(f"{name} ran on {loaded.cloud}, which is simulated: it has no logs; see `mlcd show {name}`")
        if not store.is_here(name):
            raise BadInput(f"{name} was started by {loaded.header.made_by}, and its logs are there")
        found = _chosen(store, name, trial, node, every=paths or output == "json")
        if output == "json":
            print_json({"run_id": name, "logs": _json(found)})
        elif paths:
            for each in found:
                for log in each.nodes:
                    click.echo(log.path)
        else:
            _print(store, name, found, trial, node, follow=follow)


def _chosen(
    store: "Store", run_id: str, trial: int | None, node: int | None, *, every: bool = False
) -> "list[StepLogs]":
    """The logs to show. Raises BadInput where there are none."""
    from dataclasses import replace

    from mlcd.run.step import Role

    found = list(store.logs(run_id))
    if trial is not None:
        trials = [step.number for step in store.load(run_id).steps if step.role is Role.TRIAL]
        if trial > len(trials):
            many = f"1 to {len(trials)}" if trials else "none yet"
            raise BadInput(f"--trial: {run_id} has no trial {trial}; allowed: {many}")
        found = [each for each in found if each.step is not None and each.step.number == trials[trial - 1]]
    elif found and not every:
        newest = found[-1].step
        found = [each for each in found if each.step is newest]
    if node is not None:
        known = sorted({log.node for each in found for log in each.nodes})
        if found and node not in known:
            allowed = ", ".join(map(str, known)) or "none yet"
            raise BadInput(f"--node: there is no log of node {node}; allowed: {allowed}")
        found = [replace(each, nodes=tuple(log for log in each.nodes if log.node == node)) for each in found]
    if not found:
        what = f"trial {trial} of {run_id}" if trial is not None else run_id
        raise BadInput(f"{what} has no logs: nothing was started on nodes of which mlcd keeps the output")
    return found


def _print(
    store: "Store", run_id: str, found: "Sequence[StepLogs]", trial: int | None, node: int | None, *, follow: bool
) -> None:
    from contextlib import suppress

    from mlcd.untrusted import Malformed, Tail, printable

    tails: dict[Path, Tail] = {}
    last: Path | None = None

    def print_new(logs: "Sequence[StepLogs]") -> None:
        nonlocal last
        for each in logs:
            for log in each.nodes:
                tail = tails.setdefault(log.path, Tail(log.path, may_start_again=True))
                with suppress(Malformed, PermissionError):  # what a job put in the place of its log is not read
                    for more in iter(tail.lines, []):
                        if log.path != last:
                            click.echo(f"==> {_title(each)}, node {log.node}: {log.path}", err=True)
                            last = log.path
                        for line in more:
                            click.echo(printable(line, most_characters=LINE_CHARACTERS))

    print_new(found)
    if not tails or all(tail.offset == 0 for tail in tails.values()):
        for each in found:
            for log in each.nodes:
                click.echo(f"==> {_title(each)}, node {log.node}: {log.path} (empty)", err=True)
    while follow and store.is_live(run_id):
        time.sleep(POLL_SECONDS)
        print_new(_chosen(store, run_id, trial, node))


def _title(logs: "StepLogs") -> str:
    from mlcd.untrusted import on_one_line

    step = logs.step
    return "server" if step is None else on_one_line(f"step {step.number}, {step.role} on {step.config}")


def _json(found: "Sequence[StepLogs]") -> list[dict[str, object]]:
    from mlcd.run.logs import log_bytes

    return [
        {
            "step": None if each.step is None else each.step.number,
            "role": None if each.step is None else str(each.step.role),
            "config": None if each.step is None else each.step.config.as_dict(),
            "lease": each.lease,
            "node": log.node,
            "file": str(log.path),
            "bytes": log_bytes(log.path),
        }
        for each in found
        for log in each.nodes
    ]
