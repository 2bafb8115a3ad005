from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mlcd.cli.bench_scavenger import scavenger
from mlcd.cli.bench_serve import serve
from mlcd.cli.bench_serverless import serverless
from mlcd.cli.examples import examples
from mlcd.cli.group import CommandGroup
from mlcd.cli.output import FilePath, output_option, print_json, print_text, table
from mlcd.errors import BadInput
from mlcd.units import parse_seconds

if TYPE_CHECKING:
    from mlcd.bench.train import TrainSummary


@click.group(
    cls=CommandGroup,
    invoke_without_command=True,
    epilog=examples("mlcd bench train --sim --seeds 3", "mlcd bench suggest"),
)
@click.option(
    "--cluster",
    metavar="KIND:ADDRESS",
    help="Run on a Dask or Ray cluster instead: dask:tcp://HOST:8786, ray:auto. Goes before the command's name.",
)
@click.pass_context
def bench(ctx: click.Context, cluster: str | None) -> None:
    """Compare strategies where the best answer is known."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
    elif cluster is not None:
        from mlcd.bench.cluster import on_cluster

        ctx.with_resource(on_cluster(cluster))


bench.add_command(scavenger)
bench.add_command(serverless)
bench.add_command(serve)


@bench.command(
    epilog=examples(
        "mlcd bench train --sim --strategies auto,heterbo --seeds 3", "mlcd bench train --tables DIR --goal both"
    )
)
@click.option("--tables", type=FilePath(), metavar="DIR", help="Folder of measured tables, one CSV per workload.")
@click.option("--sim", is_flag=True, help="Use the simulator's jobs instead of tables.")
@click.option("--workloads", default="*", metavar="GLOB", help="Only matching workloads.")
@click.option(
    "--strategies",
    default="auto,heterbo,convbo,cherrypick,random",
    metavar="A,B",
    help="Strategies; use `;` between ones with options.",
)
@click.option("--goal", type=click.Choice(["fastest", "cheapest", "budget", "both"]), default="budget")
@click.option("--hours", default="6", metavar="H,H", help="Scale the fastest training to this many hours.")
@click.option("--seeds", type=click.IntRange(1, 100_000), default=5, help="Runs of each workload.")
@click.option("--first-seed", type=click.IntRange(0, 2**31), default=0, help="First seed.")
@click.option("--noise", type=click.FloatRange(0, 0.5), default=0.03, help="Relative deviation between two trials.")
@click.option("--noisy-run", type=click.FloatRange(0, 0.5), default=0.0, help="Relative deviation of the final run.")
@click.option("--parallel", type=click.IntRange(1, 1000), default=1, help="Trials in parallel.")
@click.option(
    "--jobs",
    type=click.IntRange(-1, 1024),
    default=-1,
    help="Processes; -1: one per core. More than one needs joblib (extra `bench`).",
)
@click.option(
    "--unseen", type=click.Choice(["all", "only", "no"]), default="all", help="Whether to include held-out workloads."
)
@click.option(
    "--work",
    type=click.Choice(["thrown", "kept", "beside"]),
    default="thrown",
    help="What becomes of a trial's work: lost; part of the training; or lost while the training runs beside it.",
)
@click.option(
    "--restart",
    metavar="DURATION",
    help="Time to move the training: save, release, start, load. Default: 120s; nothing moves where work is thrown.",
)
@click.option(
    "--budget-factor", type=click.FloatRange(1, 1000), default=1.5, help="Budget / cost of the cheapest training."
)
@click.option(
    "--deadline-factor", type=click.FloatRange(1, 1000), default=2.5, help="Deadline / time of the fastest training."
)
@click.option("--types", type=click.IntRange(1, 10_000), help="Only this many instance types, drawn by the seed.")
@click.option(
    "--report-noise",
    type=click.FloatRange(0, 0.5),
    help="Relative deviation between two reports of a trial, which a strategy may then end early. Tables only.",
)
@output_option
def train(  # noqa: PLR0917 - click passes options by name
    tables: Path | None,
    sim: bool,
    workloads: str,
    strategies: str,
    goal: str,
    hours: str,
    seeds: int,
    first_seed: int,
    noise: float,
    noisy_run: float,
    parallel: int,
    jobs: int,
    unseen: str,
    work: str,
    restart: str | None,
    budget_factor: float,
    deadline_factor: float,
    types: int | None,
    report_noise: float | None,
    output: str,
) -> None:
    """Compare strategies: total of search and run / best possible run.

    Strategies are separated by commas, or by semicolons where one has several options:
    --strategies 'heterbo:start=all,prune=off; convbo'. `oracle` knows the best configuration and pays for one trial.
    """
    from mlcd.bench.case import GoalKind
    from mlcd.bench.protocol import Work
    from mlcd.bench.train import TrainComparison, as_json, compare, summarise

    if sim == (tables is not None):
        raise BadInput("give either --tables DIR or --sim")
    comparison = TrainComparison(
        strategies=_split_strategies(strategies),
        goal=GoalKind(goal),
        hours=_hours(hours),
        seeds=seeds,
        first_seed=first_seed,
        tables=tables,
        workloads=workloads,
        noise=noise,
        run_noise=noisy_run,
        parallel=parallel,
        jobs=jobs,
        unseen="only" if unseen == "only" else "no" if unseen == "no" else "all",
        work=Work(work),
        restart_seconds=Work(work).default_restart_seconds if restart is None else _restart(restart),
        budget_factor=budget_factor,
        deadline_factor=deadline_factor,
        types=types,
        report_noise=report_noise,
    )
    rows = compare(comparison)
    if not rows:
        raise BadInput("no workload remains: none matches, or none has a feasible configuration")
    if output == "json":
        print_json(as_json(rows))
        return
    click.echo(_summary_table(summarise(rows)))
    held_out = [row for row in rows if row.unseen]
    if held_out and len(held_out) < len(rows):
        print_text("", f"The {len({row.workload for row in held_out})} held-out workloads (sha256(name) is even):")
        click.echo(_summary_table(summarise(held_out)))
    where = "simulated" if sim else "replayed from measured tables"
    print_text("", f"Ratio: search and run / the best feasible run without search costs; {where}; noise {noise:g}.")
    start = f", {comparison.restart_seconds:g} s a move" if comparison.restart_seconds else ""
    drawn = f"; {types} types drawn by the seed" if types else ""
    limits = f"budget {budget_factor:g} and deadline {deadline_factor:g} times the least"
    ends = "" if sim or report_noise is None else f"; trials may end early, their reports differ by {report_noise:.0%}"
    print_text(f"Work of trials: {work}{start}; {limits}{drawn}{ends}.")


@bench.command(epilog=examples("mlcd bench suggest --candidates 3100"))
@click.option("--candidates", type=click.IntRange(62, 200_000), default=3100, help="Configurations to choose from.")
@click.option("--observations", type=click.IntRange(2, 1000), default=30, help="Trials so far.")
@click.option("--repeats", type=click.IntRange(3, 10_000), default=15, help="Timings; the median is reported.")
@click.option("--strategy", default="auto", help="Strategy, with options.")
@output_option
def suggest(candidates: int, observations: int, repeats: int, strategy: str, output: str) -> None:
    """Measure the time of one suggestion, including the refit of hyperparameters."""
    from mlcd.bench.suggest import time_suggest

    times = time_suggest(candidates=candidates, observations=observations, repeats=repeats, strategy_text=strategy)
    if output == "json":
        print_json(asdict(times))
        return
    print_text(
        f"one suggestion of {times.strategy} over {times.candidates} candidates after {times.observations} trials:"
        f" median {times.median_ms:.1f} ms, 95th percentile {times.p95_ms:.1f} ms"
    )
    if times.sklearn_median_ms is None:
        from mlcd.extras import install_line

        print_text(f"scikit-learn is not installed; for the comparison: {install_line('compare')}")
    else:
        click.echo(f"scikit-learn: {times.sklearn_median_ms:.1f} ms, {times.sklearn_median_ms / times.median_ms:.1f} x")


def _split_strategies(text: str) -> tuple[str, ...]:
    """Names with options; a comma inside options needs semicolons between strategies."""
    parts = text.split(";") if ";" in text else text.split(",")
    found = tuple(part.strip() for part in parts if part.strip())
    if not found:
        raise BadInput("--strategies: name at least one")
    return found


def _hours(text: str) -> tuple[float, ...]:
    try:
        hours = tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise BadInput(f"--hours: must be numbers separated by commas, such as 2,6 (got {text!r})") from error
    if not all(0 < hour < 1e5 for hour in hours):
        raise BadInput(f"--hours: must be positive (got {text!r})")
    return hours


def _restart(text: str) -> float:
    try:
        return parse_seconds(text)
    except ValueError as error:
        raise BadInput(f"--restart: {error} (got {text!r})") from error


def _summary_table(summaries: "list[TrainSummary]") -> str:
    head = ["strategy", "goal", "hours", "runs", "ratio", "95% interval", "if done", "median", "p95"]
    rows = [[*head, "broken", "unfinished", "trials", "search share"]]
    for s in summaries:
        done = "-" if s.mean_ratio_done is None else f"{s.mean_ratio_done:.3f}"
        interval = f"{s.ratio_interval[0]:.2f}..{s.ratio_interval[1]:.2f}"
        share = "-" if s.probe_share is None else f"{s.probe_share:.0%}"
        ratios = [f"{s.mean_ratio:.3f}", interval, done, f"{s.median_ratio:.3f}", f"{s.p95_ratio:.3f}"]
        counts = [str(s.violations), str(s.unfinished), f"{s.mean_trials:.1f}", share]
        hours = "all" if s.hours is None else f"{s.hours:g}"
        rows.append([s.strategy, s.goal, hours, str(s.runs), *ratios, *counts])
    return table(rows, "<<>>>>>>>>>>>")
