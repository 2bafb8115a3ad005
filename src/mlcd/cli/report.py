from pathlib import Path
from typing import TYPE_CHECKING

import click

from mlcd.cli.output import output_option, print_json, svg_name, writable, write_file

if TYPE_CHECKING:
    from mlcd.store.store import Store

OF_FUNCTIONS = "epochs"
"""The picture of a training on functions."""


@click.command()
@click.argument("run")
@click.option("--out", metavar="FILE", type=click.Path(path_type=Path), help="By default RUN.html or RUN-KIND.svg.")
@click.option(
    "--picture",
    metavar="KIND",
    help="One picture as SVG, not the page: speed, money, tradeoff, batches, ...",
)
@output_option
def report(run: str, out: Path | None, picture: str | None, output: str) -> None:
    """Write a run as one HTML file, with pictures.

    The file needs nothing beside it and can be sent to anyone. RUN is a name from `mlcd runs`, or the beginning of
    one.
    """
    from mlcd.errors import BadInput, nearest
    from mlcd.report.html import html_report
    from mlcd.report.pictures import PictureKind
    from mlcd.report.pictures import picture as drawn
    from mlcd.store.store import Store, home

    kinds = [*(str(kind) for kind in PictureKind), OF_FUNCTIONS]
    if picture is not None and picture not in kinds:
        near = nearest(picture, kinds)
        hint = f"; did you mean {near!r}?" if near else ""
        raise BadInput(f"--picture: there is no picture {picture!r}; allowed: {', '.join(kinds)}{hint}")
    if picture is not None and out is not None:
        svg_name(out, "--out")
    with Store(home()) as store:
        if store.kind(run) == "serverless":
            _report_training(run, store, picture, out, output)
            return
        record = store.record(run)
    if picture == OF_FUNCTIONS:
        raise BadInput(f"--picture: {record.run_id} did not train on functions; allowed: {', '.join(kinds[:-1])}")
    if record.kind == "serve" and picture is not None:
        raise BadInput(f"--picture: {record.run_id} served a model, and such a run has no pictures; leave it out")
    file = writable(out or Path(f"{record.run_id}-{picture}.svg" if picture else f"{record.run_id}.html"))
    if record.kind == "serve":
        from mlcd.report.serving_html import serving_html

        write_file(file, serving_html(record))
    else:
        write_file(file, drawn(record, picture) if picture else html_report(record))
    if output == "json":
        print_json({"run_id": record.run_id, "file": str(file)})
    else:
        click.echo(f"{file} is written.")


def _report_training(run: str, store: "Store", picture: str | None, out: Path | None, output: str) -> None:
    """A training on functions has one picture and one page."""
    from mlcd.errors import BadInput
    from mlcd.report.serverless_html import serverless_html
    from mlcd.report.serverless_picture import serverless_picture
    from mlcd.store.epochs import EpochBook

    record = EpochBook(store).record(run)
    if picture is not None and picture != OF_FUNCTIONS:
        raise BadInput(
            f"--picture: {record.run_id} trained on functions and has no {picture!r}; allowed: {OF_FUNCTIONS}"
        )
    file = writable(out or Path(f"{record.run_id}-{picture}.svg" if picture else f"{record.run_id}.html"))
    write_file(file, serverless_picture(record) if picture else serverless_html(record))
    if output == "json":
        print_json({"run_id": record.run_id, "file": str(file)})
    else:
        click.echo(f"{file} is written.")
