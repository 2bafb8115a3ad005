"""Output that the commands share: the -o option, results on standard output, progress on standard error."""

import csv
import io
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, TextIO, TypedDict

import click

from mlcd.errors import BadInput
from mlcd.untrusted import Malformed, expanded, is_utf8, on_one_line

if TYPE_CHECKING:
    from mlcd.events import Observer
    from mlcd.jobs.prepared import Prepared
    from mlcd.report.text import Item
    from mlcd.run.run import Run


def output_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`-o text|json` as the argument `output`."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["text", "json"]),
        default="text",
        help="Output for people (text) or programs (json).",
    )(function)


def rows_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`-o text|json|csv` as the argument `output`, for commands that list things."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["text", "json", "csv"]),
        default="text",
        help="Output for people (text), programs (json) or spreadsheets (csv).",
    )(function)


class FilePath(click.ParamType):  # type: ignore[type-arg]  # generic only in recent versions of click
    """A path with `~` replaced; what no system accepts as a path is refused."""

    name = "path"

    def convert(self, value: "str | Path", param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """See click. Defaults are paths already."""
        try:
            return expanded(str(value))
        except Malformed as error:
            self.fail(f"{error.problem} (got {str(value)[:80]!r})", param, ctx)


MOST_NAME_CHARACTERS = 255
"""What file systems allow for the name of a folder."""


class RunName(click.ParamType):  # type: ignore[type-arg]  # generic only in recent versions of click
    """A run's name or a prefix of it; refused where no run can have it: what is no text, or too long for a folder."""

    name = "text"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """See click."""
        if not is_utf8(value):
            self.fail(f"is not text in UTF-8 (got {value[:80]!r})", param, ctx)
        if len(value) > MOST_NAME_CHARACTERS:
            self.fail(f"no run has a name of {len(value):,} characters (got {value[:80]!r}...)", param, ctx)
        return value


def seed_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--seed N` as the argument `seed`."""
    return click.option(
        "--seed",
        type=click.IntRange(0, 2**32 - 1),
        metavar="N",
        default=0,
        show_default=True,
        help="Seed of every random choice.",
    )(function)


def print_json(value: object) -> None:
    """One JSON value, indented, on standard output. What a terminal would obey is escaped, as JSON allows."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    click.echo(_NOT_ASCII.sub(lambda found: found[0] if found[0].isprintable() else json.dumps(found[0])[1:-1], text))


_NOT_ASCII = re.compile(r"[^\n\x20-\x7e]")


def print_csv(rows: Sequence[Mapping[str, object]]) -> None:
    """A line with the names of the first row's fields, then a line a row, on standard output. Nothing without rows.

    What a spreadsheet would take for a formula is written as text.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([list(rows[0])] if rows else [])
    writer.writerows([[_cell(value) for value in row.values()] for row in rows])
    click.echo(text.getvalue(), nl=False)


def _cell(value: object) -> str:
    text = "" if value is None else on_one_line(str(value).lower() if isinstance(value, bool) else str(value))
    is_formula = isinstance(value, str) and text.lstrip().startswith(_FORMULA)
    return f"'{text}" if is_formula else text


_FORMULA = (
    *("=", "+", "-", "@"),
    *("\N{FULLWIDTH EQUALS SIGN}", "\N{FULLWIDTH PLUS SIGN}"),
    *("\N{FULLWIDTH HYPHEN-MINUS}", "\N{FULLWIDTH COMMERCIAL AT}"),
)
"""What a formula begins with; East Asian spreadsheets take the wide forms for the same."""


def print_run(run: "Run[Any]", output: str, **extra: object) -> None:
    """Print a run of any kind as text or JSON; `extra` are further fields of the JSON."""
    from mlcd.kinds import kind_of
    from mlcd.report.terminal import is_plain

    kind = kind_of(run.kind)
    if output == "json":
        print_json({**kind.json(run), **extra})
    else:
        click.echo(kind.text(run, plain=is_plain(sys.stdout), **_look(sys.stdout)))


def print_text(*items: "Item | str", err: bool = False) -> None:
    """Lines and tables, fitted to the terminal, on standard output or standard error.

    What is for standard error is dropped where that cannot be written: it is never the answer.
    """
    from mlcd.report.text import Line, rendered

    made = [Line(item) if isinstance(item, str) else item for item in items]
    with suppress(OSError) if err else nullcontext():
        click.echo(rendered(made, **_look(sys.stderr if err else sys.stdout)), err=err)


def table(rows: list[list[str]], align: str, *, notes: Sequence[str] = (), titles: int = 1) -> str:
    """A table fitted to the terminal. The first row has the column names; a note goes below its row.

    titles  how many first cells name a row if the terminal is too narrow for columns
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


def track_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--track mlflow|wandb` as the argument `track`, a tuple of names."""
    return click.option(
        "--track",
        multiple=True,
        type=click.Choice(["mlflow", "wandb"]),
        help="Log the run to this tracker: a parent run, a child run per step, the report. Repeatable.",
    )(function)


@contextmanager
def progress(prepared: "Prepared[Any]", track: Sequence[str] = ()) -> "Iterator[Observer]":
    """An observer that shows a run on standard error and tells it to these trackers. Raises BadInput as `tracked`."""
    from mlcd.kinds import kind_of
    from mlcd.track import tracked

    lines = kind_of(prepared.kind).progress(sys.stderr, prepared.problem, prepared.cloud)
    with lines, tracked(track, lines) as observer:
        yield observer


def ask_to_spend(prepared: "Prepared[Any]") -> None:
    """Ask before spending, unless nobody is charged. Raises BadInput without a terminal, and if the answer is no."""
    if not prepared.charged:
        return
    most = prepared.problem.goal.most_spent
    if not sys.stdin.isatty():
        what = f"this would spend real money on {prepared.cloud} ({most})"
        raise BadInput(f"{what} and there is no terminal to ask on: give -y")
    if not click.confirm(f"This spends real money on {prepared.cloud}: {most}. Continue?", err=True):
        raise BadInput("nothing was started and nothing was spent")


def writable(path: Path) -> Path:
    """`path`, checked to be writable. Raises BadInput otherwise, before anything is spent on its content."""
    if path.is_dir():
        raise BadInput(f"{path} is a folder, not a file")
    if path.is_fifo() or path.is_socket():
        raise BadInput(f"{path} is a pipe or a socket, not a file")
    if path.is_symlink() and not path.exists():
        raise BadInput(f"{path} is a link that leads nowhere: remove it, or give another name")
    if not path.absolute().parent.is_dir():
        raise BadInput(f"{path} cannot be written: there is no folder {path.absolute().parent}")
    return path


def svg_name(path: Path, option: str) -> Path:
    """`path`, checked to end in .svg. Raises BadInput naming the option otherwise."""
    if path.suffix.lower() != ".svg":
        raise BadInput(f"{option}: pictures are SVG (got {str(path)!r}); allowed: a name that ends in .svg")
    return path


def place_in(folder: Path, name: PurePath | str) -> Path:
    """Where the file `name` of a folder that the user named may be written; its folders are made.

    What somebody else put into the folder leads nowhere else: a link in the file's place is removed, and one on the way
    to it refused. Raises BadInput, OSError.
    """
    path = folder / name
    for parent in reversed(path.parents[: len(path.relative_to(folder).parts) - 1]):
        if parent.is_symlink():
            raise BadInput(f"{parent} is a link: nothing is written through it; remove it, or give another folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink():
        path.unlink()
    return path


def html_name(path: Path) -> Path:
    """`path`, checked to be a name for a page. Raises BadInput otherwise."""
    if path.suffix.lower() not in ("", ".html", ".htm"):
        raise BadInput(f"--out: the page is HTML (got {str(path)!r}); allowed: a name that ends in .html")
    return path


def write_file(path: Path, content: str | bytes) -> None:
    """Write `content` to a file. Raises BadInput with the reason of the system."""
    from mlcd.home import write_bytes

    try:
        write_bytes(path, content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror or error}") from error
