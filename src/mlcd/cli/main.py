"""The entry point of the command line, where errors become one message and an exit code."""

import errno
import io
import math
import os
import re
import sys
import traceback
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.util import find_spec

import click

from mlcd.cli.examples import examples
from mlcd.cli.group import CommandGroup
from mlcd.cli.process import complete_streams, end_as_ctrl_c_does
from mlcd.errors import MissingExtra, MlcdError, nearest
from mlcd.extras import extra_of, missing_text
from mlcd.untrusted import on_one_line
from mlcd.version import __version__

COMMANDS = (
    "demo",
    "init",
    "train",
    "serve",
    "serverless",
    "runs",
    "show",
    "logs",
    "resume",
    "report",
    "ui",
    "down",
    "catalog",
    "store",
    "check",
    "bench",
    "completion",
)
"""In the order in which a new user needs them. The command NAME is the attribute NAME of mlcd.cli.NAME."""

MEANT_COMMANDS = {
    "help": "--help",
    "version": "--version",
    **dict.fromkeys(("list", "ls", "ps", "status", "history"), "runs"),
    **dict.fromkeys(("stop", "kill", "destroy", "cancel"), "down"),
    **dict.fromkeys(("delete", "rm"), "runs rm"),
    **dict.fromkeys(("run", "fit", "search", "tune", "launch", "start"), "train"),
    **dict.fromkeys(("deploy", "predict"), "serve"),
    **dict.fromkeys(("functions", "lambda"), "serverless"),
    **dict.fromkeys(("new", "create"), "init"),
    **dict.fromkeys(("prices", "instances"), "catalog"),
    **dict.fromkeys(("dashboard", "web"), "ui"),
    "doctor": "check",
}
"""What other tools call these commands."""

_PASSWORD = re.compile(r"(://[^:/@\s]*):[^@\s]*@")
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
LEAST_DATA_BYTES = 192 * 2**20
"""With 128 MiB and less, the numerical library that SciPy brings (OpenBLAS, SciPy 1.17) does not return from its start,
and no signal but SIGKILL ends it; with 192 it says that memory is missing."""


class LazyCommands(CommandGroup):
    """Commands that are imported on first use, so that `mlcd --help` stays fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The commands of this installation."""
        return [name for name in COMMANDS if find_spec(f"mlcd.cli.{name}")]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command called `cmd_name`, or None."""
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = getattr(import_module(f"mlcd.cli.{cmd_name}"), cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Like click's, with the nearest command in the message."""
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not name.startswith("-"):
            near = MEANT_COMMANDS.get(name) or nearest(name, known)
            hint = f"did you mean {near!r}?" if near else f"allowed: {', '.join(known)}"
            raise click.UsageError(f"unknown command {name!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)


@click.group(
    cls=LazyCommands,
    invoke_without_command=True,
    # color: click strips nothing; report.terminal alone decides about colour
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "color": True},
    epilog=examples(
        "mlcd demo                             a whole search",
        "mlcd init && mlcd train job.yaml      your own training",
        "mlcd serve model.onnx --slo p99=50ms  a model to serve",
        "mlcd serverless job.yaml              on functions",
        after="State is in $MLCD_HOME, by default ~/.mlcd; a team's records are where $MLCD_STORE says.",
    ),
)
@click.version_option(__version__, message="mlcd %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Find the best cloud configuration for a machine-learning job, within your budget and deadline.

    \b
    train       instance type and number of nodes for a
                training, by short trials; then trains there
    serve       batch, threads, replicas and precision for
                a model, by load tests; then serves it
    serverless  number and memory of functions before every
                epoch of a training

    Each prints what it chose, why, and a receipt of what it took.
    """  # noqa: D301 - click's mark of a paragraph that is not wrapped
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def run(args: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Any error is one message on standard error."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a file name may be no text; standard error does it already
    if (limit := _data_limit()) < LEAST_DATA_BYTES:
        least = f"at least {LEAST_DATA_BYTES // 2**20} MiB"
        return _refuse(f"{limit // 2**20} MiB of data are allowed here (ulimit -d); raise that to {least}", EXIT_FAILED)
    try:
        code = cli.main(args=args, prog_name="mlcd", standalone_mode=False)
        sys.stdout.flush()
    except MlcdError as error:
        return _refuse(str(error), error.exit_code)
    except click.UsageError as error:
        return _refuse(_usage(error, sys.argv[1:] if args is None else args), EXIT_USAGE)
    except click.ClickException as error:
        return _refuse(_sentence(error.format_message()), EXIT_USAGE)
    except (click.Abort, KeyboardInterrupt):
        return _refuse("interrupted", EXIT_INTERRUPTED)
    except BrokenPipeError:
        _silence()
        return EXIT_FAILED
    except OSError as error:
        _silence()
        place = f"{error.filename}: " if error.filename else "the output cannot be written: "
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        what = "the disk is full: free some space and try again" if is_full else error.strerror or str(error)
        return _refuse(f"{place}{what}", EXIT_FAILED)
    except MemoryError:
        what = "there is not enough memory for this command: end other programs, raise its limit, or give it less to do"
        return _refuse(what, EXIT_FAILED)
    except ModuleNotFoundError as error:
        extra = extra_of(error.name or "")
        return _refuse(missing_text(extra, "this command"), MissingExtra.exit_code) if extra else _bug(error)
    except Exception as error:  # last resort: the user gets one message, not a traceback
        return _bug(error)
    return code if isinstance(code, int) else 0


def _data_limit() -> float:
    """Bytes of data that this process may have; infinite where there is no limit."""
    try:
        import resource
    except ImportError:
        return math.inf
    soft, _ = resource.getrlimit(resource.RLIMIT_DATA)
    return math.inf if soft == resource.RLIM_INFINITY else soft


def _bug(error: Exception) -> int:
    if os.environ.get("MLCD_DEBUG"):
        traceback.print_exc()
    text = " ".join(str(error).split())
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return _refuse(f"unexpected {what}; this is a bug in mlcd: set MLCD_DEBUG=1 for the traceback", EXIT_FAILED)


def main() -> None:
    """The `mlcd` program."""
    complete_streams()
    end_as_ctrl_c_does()
    sys.exit(run())


def _refuse(message: str, code: int) -> int:
    text = f"mlcd: {on_one_line(message)}"
    try:
        if sys.stderr.isatty():
            from mlcd.report.terminal import columns
            from mlcd.report.text import Line, rendered

            text = rendered([Line(text, hang=2)], width=columns(sys.stderr))
        click.echo(text, err=True)
    except OSError:  # nobody reads it, or there is no room: the exit code remains
        _silence(2)
    return code


def _sentence(text: str) -> str:
    """Click's message without its capital and full stop, to be continued."""
    text = " ".join(text.split()).replace("is not a valid integer range", "is not a whole number")
    return (text[:1].lower() + text[1:]).rstrip(".")


def _usage(error: click.UsageError, args: Sequence[str]) -> str:
    """The error with the nearest valid name, or where to find help. Click's parser does not say whose option it is."""
    command = next((word for word in args if word in COMMANDS), "")
    text = _sentence(error.format_message())
    if isinstance(error, click.NoSuchOption):
        text = _no_such_option(error, command)
    text = text.replace("'. Did you mean", "'; did you mean")
    where = error.ctx.command_path if error.ctx and error.ctx.parent else f"mlcd {command}".strip()
    text = _PASSWORD.sub(r"\1@", text)  # an address that was given in a wrong place
    return text if text.endswith("?") else f"{text}; `{where} --help` shows the usage"


def _no_such_option(error: click.NoSuchOption, command: str) -> str:
    """The message, with the nearest option; click compares the dashes too, and takes --yes for --epochs."""
    name = error.option_name.lstrip("-")
    known = {option.lstrip("-"): option for option in error.possibilities or ()}
    text = f"no such option {error.option_name!r}"
    if near := nearest(name, tuple(known)):
        return f"{text}; did you mean {known[near]!r}?"
    field = _field_of(name.replace("-", "_"), command)
    return f"{text}; in the job file it is {field}" if field else text


def _field_of(name: str, command: str) -> str:
    """The field of that command's job files with this name, or ""."""
    places: Iterable[str] = ()
    if command == "train":
        from mlcd.spec.parse import train_record

        places = train_record().places()
    elif command == "serve":
        from mlcd.spec.serving import model_record

        places = model_record(None).places()
    elif command == "serverless":
        from mlcd.spec.functions import serverless_record

        places = serverless_record().places()
    return next((place for place in places if place.rpartition(".")[2] == name), "")


def _silence(stream: int = 1) -> None:
    """Standard output (or error: 2) cannot be written: redirect Python's flush at exit to nowhere."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
    except OSError:  # no descriptor is free: the stream's own is, once it is closed
        os.close(stream)
        nowhere = os.open(os.devnull, os.O_WRONLY)
    if nowhere != stream:
        os.dup2(nowhere, stream)
