from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from mlcd.cli.complete import complete_catalog_clouds, complete_types
from mlcd.cli.examples import examples
from mlcd.cli.output import print_csv, print_json, print_text, rows_option, table
from mlcd.errors import BadInput

if TYPE_CHECKING:
    from mlcd.catalog import Catalog, Instance

FIRST_NOTES = 2
"""Notes shown without --sources."""

REFRESH = "refresh"
"""What stands in place of the patterns to fetch prices."""

OLD_DAYS = 180
"""Prices older than this get a warning."""


@click.command(
    epilog=examples(
        "mlcd catalog H100:8",
        "mlcd catalog 'g6.*' aws-gpu --sort price",
        "mlcd catalog --cloud gcp -o csv > gcp.csv",
        "mlcd catalog refresh",
    )
)
@click.argument("patterns", metavar="[PATTERN...]", nargs=-1, shell_complete=complete_types)
@click.option(
    "--cloud", metavar="NAME", shell_complete=complete_catalog_clouds, help="Only this cloud: aws, azure or gcp."
)
@click.option("--gpu", is_flag=True, help="Only types with a GPU.")
@click.option("--spot", is_flag=True, help="Only types with a spot price.")
@click.option(
    "--sort",
    type=click.Choice(["name", "price", "vcpus", "memory", "network"]),
    help="Sort order; by default that of the catalog.",
)
@click.option("--sources", is_flag=True, help="Show the source of every figure.")
@click.option("--from", "source", metavar="SOURCE", help="With refresh: an address, a folder, a file, or snapshot.")
@rows_option
def catalog(
    *,
    patterns: tuple[str, ...],
    source: str | None,
    cloud: str | None,
    gpu: bool,
    spot: bool,
    sort: str | None,
    sources: bool,
    output: str,
) -> None:
    """List instance types and prices, with date and sources.

    A PATTERN is a name, a glob such as 'c5.*', a named set such as aws-gpu, or an accelerator such as H100 or H100:8;
    without one, everything is shown. The file named by MLCD_CATALOG (CSV or YAML) overrides the packaged prices;
    docs/catalog.md has its format.

    `mlcd catalog refresh` fetches the prices of today: SkyPilot's hosted tables, or those of --from. They are checked,
    and kept in MLCD_HOME; --from snapshot goes back to the packaged prices.
    """
    if patterns == (REFRESH,):
        from mlcd.cli.catalog_refresh import refresh_prices

        refresh_prices(source, "text" if output == "csv" else output)
        return
    if REFRESH in patterns:
        raise BadInput(f"refresh: takes no patterns (got {patterns[-1][:80]!r}); allowed: mlcd catalog refresh")
    if source is not None:
        raise BadInput("--from: only for `mlcd catalog refresh`")
    from mlcd.catalog import load_catalog
    from mlcd.catalog.listing import catalog_file_rows, catalog_json
    from mlcd.catalog.sets import cloud_of

    loaded = load_catalog()
    shown = [i for i in _chosen(loaded, patterns, cloud) if (i.has_gpu or not gpu)]
    shown = [i for i in shown if i.spot_usd_per_hour is not None or not spot]
    if sort is not None:
        shown.sort(key=_KEYS[sort])
    age = loaded.age_days(datetime.now(UTC).date())
    if output == "json":
        print_json(catalog_json(loaded, shown, age))
        return
    if output == "csv":
        print_csv(catalog_file_rows(shown))
        return
    if shown:
        click.echo(table([_HEAD, *(_row(instance) for instance in shown)], "<<>>><>>", titles=2))
    else:
        click.echo("No instance type matches these filters.")
        return
    prices = f"USD per hour as of {loaded.date} ({age_text(age)})"
    print_text("", f"{len(shown)} of {len(loaded.instances)} types; {prices}.")
    clouds = {i.cloud for i in shown}
    notes = _notes(loaded, clouds)
    for note in notes if sources else notes[:FIRST_NOTES]:
        print_text(f"  {note}")
    if len(notes) > FIRST_NOTES and not sources:
        print_text(f"  {len(notes) - FIRST_NOTES} more notes on where the figures come from: --sources")
    sets = [f"{name} ({len(types)})" for name, types in loaded.sets.items() if cloud_of(name) in clouds]
    if sets:
        print_text(f"Named sets: {', '.join(sets)}")


def age_text(days: int) -> str:
    """`106 days old`, with a warning if that is old for a price."""
    text = f"{max(days, 0)} days old"
    return f"{text}: OLD, check them before you spend: mlcd catalog refresh" if days > OLD_DAYS else text


_HEAD = ["cloud", "type", "vCPUs", "GiB", "Gbit/s", "accelerators", "$/h", "spot $/h"]
_KEYS: "dict[str, Callable[[Instance], tuple[object, ...]]]" = {
    "name": lambda i: (i.name,),
    "price": lambda i: (i.usd_per_hour, i.name),
    "vcpus": lambda i: (i.vcpus, i.name),
    "memory": lambda i: (i.memory_gib, i.name),
    "network": lambda i: (i.network_gbps, i.name),
}


def _notes(loaded: "Catalog", clouds: set[str]) -> list[str]:
    """The notes on these clouds, the user's file first; a note on others names them before its first colon."""
    others = set(loaded.clouds) - clouds
    heads = [(note, set(note.partition(":")[0].replace(",", " ").split())) for note in loaded.notes]
    notes = [note for note, head in heads if head & clouds or not head & others]
    own = [note for note in notes if " rows are from " in note]
    return [*own, *(note for note in notes if note not in own)]


def _chosen(loaded: "Catalog", patterns: tuple[str, ...], cloud: str | None) -> "list[Instance]":
    """The types that match the patterns, in `cloud` or in any cloud.

    A glob may match nothing. Raises BadInput for an unknown cloud or name.
    """
    from mlcd.catalog import nearest_accelerator, parse_accelerator

    if cloud is None and not patterns:
        return list(loaded.instances)
    clouds = loaded.clouds if cloud is None else (cloud,)
    if cloud is not None:
        loaded.for_cloud(cloud)
    found: dict[tuple[str, str], Instance] = {}
    for pattern in patterns or ("*",):
        matches: list[Instance] = []
        refusals: list[BadInput] = []
        for name in clouds:
            try:
                matches += loaded.select((pattern,), cloud=name)
            except BadInput as error:
                refusals.append(error)
        if not matches and (accelerator := parse_accelerator(pattern)) is not None:
            matches = [i for i in loaded.instances if i.cloud in clouds and accelerator.fits(i)]
        if not matches and not any(mark in pattern for mark in "*?["):
            hinted = next((e for e in refusals if "did you mean" in str(e)), None)
            near = "" if hinted else nearest_accelerator(pattern, [i for i in loaded.instances if i.cloud in clouds])
            if near:
                raise BadInput(f"no instance type has the accelerator {pattern!r}; did you mean {near!r}?")
            if hinted is None and cloud is None:
                sets = ", ".join(name for name in loaded.sets)
                allowed = f"a name, a glob such as 'g6.*', an accelerator such as H100:8, or a named set ({sets})"
                raise BadInput(f"no cloud has an instance type or accelerator {pattern[:80]!r}; allowed: {allowed}")
            raise hinted or refusals[0]
        found.update(((i.cloud, i.name), i) for i in matches)
    return list(found.values())


def _row(i: "Instance") -> list[str]:
    accelerators = f"{i.accelerators} x {i.accelerator}" if i.accelerators else ""
    spot = "" if i.spot_usd_per_hour is None else f"{i.spot_usd_per_hour.dollars:.4f}"
    sizes = [f"{value:g}" for value in (i.vcpus, i.memory_gib, i.network_gbps)]
    return [i.cloud, i.name, *sizes, accelerators, f"{i.usd_per_hour.dollars:.4f}", spot]
