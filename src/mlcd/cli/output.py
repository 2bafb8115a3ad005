"""What the commands share in how they speak: the -o option, results to standard output, progress to standard error."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from mlcd.errors import BadInput

if TYPE_CHECKING:
    from mlcd.events import Observer
    from mlcd.jobs.prepared import Prepared
    from mlcd.run.run import Run

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


def print_run(run: "Run[Any]", output: str, **extra: object) -> None:
    """A run of any kind as its verdict or as JSON; `extra` are further fields of the JSON."""
    from mlcd.kinds import kind_of

    kind = kind_of(run.kind)
    if output == "json":
        print_json({**kind.json(run), **extra})
        return
    lines = kind.text(run, plain=is_plain(sys.stdout)).splitlines()
    if wants_colour(sys.stdout):
        lines = [_emphasised(line) for line in lines]
    click.echo("\n".join(lines))


def progress(prepared: "Prepared[Any]") -> "Observer":
    """Progress of a run on standard error."""
    from mlcd.kinds import kind_of

    return kind_of(prepared.kind).progress(sys.stderr, prepared.problem, prepared.cloud)


def ask_to_spend(prepared: "Prepared[Any]") -> None:
    """Permission to spend, unless nobody is charged. Raises BadInput off a terminal, and for a no."""
    if not prepared.charged:
        return
    most = prepared.problem.goal.most_spent
    if not sys.stdin.isatty():
        what = f"this would spend real money on {prepared.cloud} ({most})"
        raise BadInput(f"{what} and there is no one to ask: give -y")
    if not click.confirm(f"This spends real money on {prepared.cloud}: {most}. Go on?", err=True):
        raise BadInput("nothing was started and nothing was spent")


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
