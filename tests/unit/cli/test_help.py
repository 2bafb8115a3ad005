"""The help: laid out when nothing is asked for, with examples that the command accepts."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from mlcd.cli.main import cli, run
from mlcd.version import __version__


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        yield (*path, name), found
        if isinstance(found, click.Group):
            yield from commands(found, (*path, name))


ALL = dict(commands(cli))


@pytest.mark.parametrize("arguments", [(), ("bench",)], ids=["mlcd", "mlcd bench"])
def test_a_group_alone_shows_its_help_as_help_does(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*arguments, "--help"]) == 0
    asked = capsys.readouterr()
    assert run(arguments) == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == (asked.out, "")
    assert said.out.count("\n") > 10


def test_the_help_speaks_of_all_three_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    run(["--help"])
    text = capsys.readouterr().out
    for words in ("instance type and number of nodes", "batch, threads, replicas", "number and memory of functions"):
        assert words in text


@pytest.mark.parametrize("path", [(), *ALL], ids=lambda path: " ".join(path) or "mlcd")
@pytest.mark.parametrize("columns", [60, 80, 120])
def test_every_help_fits_the_terminal_and_nothing_is_cut_off(path: tuple[str, ...], columns: int) -> None:
    """Sentences were cut off with `...` in the lists of commands, and texts were laid out for more than 80 columns."""
    command = ALL[path] if path else cli
    with click.Context(cli, info_name="mlcd", terminal_width=columns, max_content_width=100) as root:
        context = click.Context(command, info_name=" ".join(path), parent=root) if path else root
        text = command.get_help(context)
    assert not re.search(r"[a-z]\.\.\.$", text.partition("Commands:\n")[2], re.MULTILINE)
    examples = text.partition("  Examples:\n")[2].partition("\n\n")[0]
    for line in text.splitlines():  # an example is copied: it is one line
        assert len(line) <= columns or (line in examples and columns == 60)


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_help_has_examples_that_the_command_accepts(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*path, "--help"]) == 0
    text = capsys.readouterr().out
    shown = text.partition("  Examples:\n")[2]
    assert shown, f"`mlcd {' '.join(path)} --help` has no examples"
    lines = [line.strip() for line in shown.partition("\n\n")[0].splitlines()]
    assert lines
    for line in lines:
        for part in line.split("&&"):
            words = shlex.split(part)
            assert words[0] == "mlcd"
            if tuple(words[1 : 1 + len(path)]) == path and not isinstance(ALL[path], click.Group):
                # raises if an option is unknown or an argument is missing
                ALL[path].make_context("mlcd", words[1 + len(path) :])


def test_python_m_mlcd_is_mlcd() -> None:
    done = subprocess.run([sys.executable, "-m", "mlcd", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"mlcd {__version__}\n"
