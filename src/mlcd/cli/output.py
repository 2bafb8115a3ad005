"""What the commands share in how they speak: the -o option, results to standard output, progress to standard error."""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypedDict

import click

from mlcd.errors import BadInput

if TYPE_CHECKING:
    from mlcd.problem import Problem
    from mlcd.report.progress import ProgressLines
    from mlcd.report.text import Item
    from mlcd.trial.record import RunRecord
    from mlcd.trial.serverless import ServerlessRecord


def output_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`-o text|json` as the argument `output`."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["text", "json"]),
        default="text",
        help="For people (text) or programs (json).",
    )(function)


def print_json(value: object) -> None:
    """One JSON value, indented, on standard output."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def print_record(record: "RunRecord", output: str) -> None:
    """A run as its verdict or as JSON."""
    if record.kind == "serve":
        _print_served(record, output)
        return
    if output == "json":
        from mlcd.report.as_json import record_json

        print_json(record_json(record))
        return
    from mlcd.report.terminal import is_plain
    from mlcd.report.verdict import verdict

    click.echo(verdict(record, plain=is_plain(sys.stdout), **_look(sys.stdout)))


def _print_served(record: "RunRecord", output: str) -> None:
    if output == "json":
        from mlcd.report.serving_json import serving_json

        print_json(serving_json(record))
        return
    from mlcd.report.serving import serving_verdict

    click.echo(serving_verdict(record, **_look(sys.stdout)))


def print_training(record: "ServerlessRecord", output: str) -> None:
    """A training on functions as its answer or as JSON."""
    if output == "json":
        from mlcd.report.serverless_json import serverless_json

        print_json(serverless_json(record))
        return
    from mlcd.report.serverless import serverless_verdict

    click.echo(serverless_verdict(record, **_look(sys.stdout)))


def print_text(*items: "Item | str", err: bool = False) -> None:
    """Lines and tables, fitted to the terminal, on standard output or standard error."""
    from mlcd.report.text import Line, rendered

    made = [Line(item) if isinstance(item, str) else item for item in items]
    click.echo(rendered(made, **_look(sys.stderr if err else sys.stdout)), err=err)


def table(rows: list[list[str]], align: str, *, notes: Sequence[str] = (), titles: int = 1) -> str:
    """Columns side by side, the first row being their names, fitted to the terminal; a note goes below its row.

    titles  how many of the first cells name a row where the terminal is too narrow for columns
    """
    from mlcd.report.text import Rows, rendered

    made = Rows(rows=rows, align=align, notes=["", *notes] if notes else (), titles=titles)
    return rendered([made], **_look(sys.stdout))


class _Look(TypedDict):
    width: int | None
    colour: bool


def _look(stream: TextIO) -> _Look:
    from mlcd.report.terminal import columns, wants_colour

    return _Look(width=columns(stream), colour=wants_colour(stream))


def progress(cloud: str, problem: "Problem") -> "ProgressLines":
    """Progress on standard error of a run on `cloud`; a context manager."""
    from mlcd.report.progress import ProgressLines

    return ProgressLines(sys.stderr, replayed=cloud.startswith("replay/"), problem=problem)


def writable(path: Path) -> Path:
    """`path`, where a file can be made. Raises BadInput otherwise, before anything is spent on its content."""
    if path.is_dir():
        raise BadInput(f"{path} is a folder, not a file's name")
    if not path.absolute().parent.is_dir():
        raise BadInput(f"{path} cannot be written: there is no folder {path.absolute().parent}")
    return path


def svg_name(path: Path, option: str) -> Path:
    """`path`, which ends in .svg as pictures do. Raises BadInput naming the option otherwise."""
    if path.suffix.lower() != ".svg":
        raise BadInput(f"{option}: pictures are SVG (got {str(path)!r}); allowed: a name that ends in .svg")
    return path


def write_file(path: Path, text: str) -> None:
    """`text` as the whole of a file. Raises BadInput with the system's reason."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror or error}") from error
