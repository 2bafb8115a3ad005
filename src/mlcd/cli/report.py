from pathlib import Path

import click

from mlcd.cli.examples import examples
from mlcd.cli.output import FilePath, output_option, print_json, print_text, svg_name, writable, write_file
from mlcd.cli.run_argument import named_or_latest, run_argument


@click.command(epilog=examples("mlcd report RUN", "mlcd report RUN --picture speed --out speed.svg"))
@run_argument
@click.option(
    "--out",
    metavar="FILE",
    type=FilePath(),
    help="Where to write; by default RUN.html or RUN-KIND.svg.",
)
@click.option(
    "--picture",
    metavar="KIND",
    help="One picture as SVG instead of the page: speed, money, tradeoff, batches, ...",
)
@output_option
def report(run: str | None, out: Path | None, picture: str | None, output: str) -> None:
    """Write a run as one HTML file, with pictures.

    The file is self-contained and can be sent to anyone. RUN is a name from `mlcd runs`, a unique prefix of one, or a
    job's name for its newest run; by default the newest run.
    """
    from mlcd.kinds import kind_of
    from mlcd.store.store import Store, home

    if picture is not None and out is not None:
        svg_name(out, "--out")
    with Store(home(), reading=True) as store:
        found = store.load(named_or_latest(store, run))
    kind = kind_of(found.kind)
    if picture is not None:
        _check_picture(found.run_id, picture, kind.pictures(found))
    file = writable(out or Path(f"{found.run_id}-{picture}.svg" if picture else f"{found.run_id}.html"))
    write_file(file, kind.picture(found, picture) if picture else kind.html(found))
    if output == "json":
        print_json({"run_id": found.run_id, "kind": str(found.kind), "file": str(file)})
    else:
        print_text(f"Wrote {file}.")


def _check_picture(run_id: str, picture: str, allowed: tuple[str, ...]) -> None:
    from mlcd.errors import BadInput, nearest

    if picture in allowed:
        return
    near = nearest(picture, allowed)
    hint = f"; did you mean {near!r}?" if near else ""
    raise BadInput(f"--picture: {run_id} has no picture {picture!r}; allowed: {', '.join(allowed)}{hint}")
