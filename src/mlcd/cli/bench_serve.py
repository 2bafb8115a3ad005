import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mlcd.cli.examples import examples
from mlcd.cli.output import FilePath, output_option, print_json, print_text, table
from mlcd.errors import BadInput

if TYPE_CHECKING:
    from mlcd.bench.serve.score import ServeSummary


_USUAL = "falcon,falcon-transfer,random"
_FOR_LANGUAGE_MODELS = "auto,falcon-transfer,roofline,source-mean,random"


@click.command(epilog=examples("mlcd bench serve --seeds 3"))
@click.option("--tables", type=FilePath(), metavar="DIR", help="Folder of latency tables, one CSV per model.")
@click.option("--sim", is_flag=True, help="Use the simulated space of Falcon's paper: 1,440 configurations.")
@click.option("--cpu", is_flag=True, help="Use the models measured on CPUs with ONNX Runtime.")
@click.option(
    "--load-tests",
    is_flag=True,
    help="With tables of language models: a trial goes through the requests in flight, as in `mlcd serve`.",
)
@click.option(
    "--strategies",
    metavar="A,B",
    help=f"Strategies; use `;` between ones with options.  [default: {_USUAL}; with tables of language models"
    f" {_FOR_LANGUAGE_MODELS}]",
)
@click.option(
    "--trials", default="1,3,6,15,30", metavar="N,N", help="Evaluate the choice after these numbers of trials."
)
@click.option(
    "--slo",
    metavar="p99=TIME,...",
    help="Latency limits, as for `mlcd serve`, or numbers of milliseconds.  [default: 10,30,100; with --cpu 20,50,100]",
)
@click.option("--seeds", type=click.IntRange(1, 100_000), default=5, help="Searches for each model and limit.")
@click.option("--first-seed", type=click.IntRange(0, 2**31), default=0, help="First seed.")
@click.option("--targets", default="*", metavar="GLOB", help="Only matching models.")
@click.option(
    "--leave",
    type=click.Choice(["model", "family"]),
    default="model",
    help="What is held out for a target: itself or its family.",
)
@click.option(
    "--noise",
    type=click.FloatRange(0, 0.5),
    help="Relative deviation of a trial's latency.  [default: 0.01; with --cpu as measured, 0.033]",
)
@click.option(
    "--jobs",
    type=click.IntRange(-1, 1024),
    default=-1,
    help="Processes; -1: one per core. More than one needs joblib (extra `bench`).",
)
@output_option
def serve(  # noqa: PLR0917 - click passes options by name
    tables: Path | None,
    sim: bool,
    cpu: bool,
    load_tests: bool,
    strategies: str | None,
    trials: str,
    slo: str | None,
    seeds: int,
    first_seed: int,
    targets: str,
    leave: str,
    noise: float | None,
    jobs: int,
    output: str,
) -> None:
    """Compare strategies on held-out models after a few trials.

    Accuracy: requests per dollar of the choice / those of the best configuration; 0 if the choice breaks the latency
    limit. Cost regret: what the choice costs more than the best, at the median. Without --sim, --cpu and --tables, the
    models are those measured for mlcd on an H200.
    """
    from mlcd.bench.serve.beds import beds
    from mlcd.bench.serve.score import ServeComparison, applicable, as_json, compare, summarise

    if sim + cpu + (tables is not None) > 1:
        raise BadInput("give only one of --tables DIR, --sim and --cpu")
    found = beds(sim=sim, cpu=cpu, tables=tables, load_tests=load_tests)
    usual = _FOR_LANGUAGE_MODELS if all(bed.has_sizes for bed in found) else _USUAL
    comparison = ServeComparison(
        strategies=_texts(usual if strategies is None else strategies),
        trials=tuple(sorted({int(count) for count in _numbers("--trials", trials, whole=True)})),
        slo_ms=None if slo is None else _latencies_ms(slo),
        seeds=seeds,
        first_seed=first_seed,
        noise=noise,
        leave="family" if leave == "family" else "model",
        targets=targets,
        jobs=jobs,
    )
    for text in dict.fromkeys(text for bed in found for text in applicable(comparison, bed)[1]):
        click.echo(f"{text} is excluded: it needs operators, and these tables have none", err=True)
    rows = compare(comparison, found)
    if not rows:
        raise BadInput("--slo: no configuration of any model keeps these limits")
    if output == "json":
        print_json(as_json(rows, found))
        return
    click.echo(_summary_table(summarise(rows)))
    held_out = [row for row in rows if row.unseen]
    if held_out and len(held_out) < len(rows):
        print_text("", f"The {len({row.target for row in held_out})} held-out models (sha256(name) is even):")
        click.echo(_summary_table(summarise(held_out)))
    for bed in found:
        made = "simulated" if bed.known.simulated else "replayed from measured tables"
        print_text("", f"{bed.name}: {bed.known.source}; {made}; noise {bed.noise if noise is None else noise:g}.")


def _texts(text: str) -> tuple[str, ...]:
    """Names with options; a comma inside options needs semicolons between strategies."""
    parts = text.split(";") if ";" in text else text.split(",")
    found = tuple(part.strip() for part in parts if part.strip())
    if not found:
        raise BadInput("--strategies: name at least one")
    return found


def _latencies_ms(text: str) -> tuple[float, ...]:
    """`p99=20ms,p99=0.1s` or `20,100` as milliseconds; tables have no other percentile."""
    parts = [_LIMIT.fullmatch(part.strip()) for part in text.split(",")]
    plain = [part and f"{float(part['number']) * (1000 if part['unit'] == 's' else 1):g}" for part in parts]
    return _numbers("--slo", ",".join(part or text for part in plain), form="p99=20ms,p99=50ms or 20,50")


_LIMIT = re.compile(r"(?:p99=)?(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>ms|s|)")


def _numbers(option: str, text: str, *, whole: bool = False, form: str = "10,30") -> tuple[float, ...]:
    try:
        found = tuple(float(int(part)) if whole else float(part) for part in text.split(","))
    except (ValueError, OverflowError) as error:
        raise BadInput(f"{option}: must be numbers separated by commas, such as {form} (got {text!r})") from error
    if not all(0 < number < 1e6 for number in found):
        raise BadInput(f"{option}: must be positive (got {text!r})")
    return found


def _summary_table(summaries: "list[ServeSummary]") -> str:
    head = ["strategy", "limit", "trials", "runs", "accuracy", "95% interval", "least", "median", "cost regret"]
    rows = [[*head, "trials to 95%", "to 99%", "search"]]
    for s in summaries:
        interval = f"{s.interval[0]:.3f}..{s.interval[1]:.3f}"
        reached = [f"{s.mean_trials_to_95:.1f}", f"{s.mean_trials_to_99:.1f}"]
        regret = "broken" if s.median_regret is None else f"{s.median_regret:.0%}"
        accuracy = [f"{s.mean_accuracy:.3f}", interval, f"{s.least_accuracy:.3f}", f"{s.median_accuracy:.3f}", regret]
        limit, money = f"{s.slo_ms:g} ms", f"${s.search_usd:.3f}"
        rows.append([s.strategy, limit, str(s.trials), str(s.runs), *accuracy, *reached, money])
    return table(rows, "<>>>>>>>>>>>")
