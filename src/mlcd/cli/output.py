"""What the commands share in how they speak: the -o option, results to standard output, progress to standard error."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from mlcd.errors import BadInput
from mlcd.run.run import EpochRun, SearchRun

if TYPE_CHECKING:
    from mlcd.events import Observer

_HEADINGS = (
    "Chosen:",
    "Train on:",
    "Serve with:",
    "Receipt ",
    "Why not",
    "Top ",
    "And why not",
    "Speed (",
    "Job time over",
    "Saved, ",
    "Nearest way out",
)


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


def print_record(record: "SearchRun", output: str) -> None:
    """A run as its verdict or as JSON."""
    if record.kind == "serve":
        _print_served(record, output)
        return
    if output == "json":
        from mlcd.report.as_json import record_json

        print_json(record_json(record))
        return
    from mlcd.report.verdict import verdict

    lines = verdict(record, plain=is_plain(sys.stdout)).splitlines()
    if wants_colour(sys.stdout):
        lines = [_emphasised(line) for line in lines]
    click.echo("\n".join(lines))


def _print_served(record: "SearchRun", output: str) -> None:
    if output == "json":
        from mlcd.report.serving_json import serving_json

        print_json(serving_json(record))
        return
    from mlcd.report.serving import serving_verdict

    lines = serving_verdict(record).splitlines()
    click.echo("\n".join(map(_emphasised, lines) if wants_colour(sys.stdout) else lines))


def print_training(record: "EpochRun", output: str) -> None:
    """A training on functions as its answer or as JSON."""
    if output == "json":
        from mlcd.report.serverless_json import serverless_json

        print_json(serverless_json(record))
        return
    from mlcd.report.serverless import serverless_verdict

    lines = serverless_verdict(record).splitlines()
    click.echo("\n".join(map(_emphasised, lines) if wants_colour(sys.stdout) else lines))


def progress(cloud: str) -> "Observer":
    """Progress lines on standard error of a run on `cloud`."""
    from mlcd.report.progress import ProgressLines

    return ProgressLines(sys.stderr, wants_colour(sys.stderr), replayed=cloud.startswith("replay/"))


def wants_colour(stream: TextIO) -> bool:
    """A terminal, unless NO_COLOR is set or it is a dumb one."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def is_plain(stream: TextIO) -> bool:
    """Whether the stream's encoding has no more than ASCII's characters."""
    try:
        "▲█░…".encode(getattr(stream, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return True
    return False


def table(rows: list[list[str]], align: str) -> str:
    """Columns side by side, the first row being their names."""
    from mlcd.report.text_table import text_table

    lines = text_table(rows, align, indent=0)
    if wants_colour(sys.stdout):
        lines[0] = click.style(lines[0], bold=True)
    return "\n".join(lines)


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


def _emphasised(line: str) -> str:
    if line.startswith(("SIMULATED", "REPLAYED")):
        return click.style(line, fg="yellow")
    if line.startswith(("Chosen:", "Train on:", "Serve with:")):
        return click.style(line, bold=True, fg="green")
    return click.style(line, bold=True) if line.startswith(_HEADINGS) else line
