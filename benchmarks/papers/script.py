"""Shared by the papers' scripts: the -o option, tables, JSON, and errors without a traceback."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence

from mlcd.errors import MlcdError


def parser(description: str | None) -> argparse.ArgumentParser:
    """A parser that shows the script's docstring and takes `-o text|json`."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("-o", "--output", choices=["text", "json"], default="text", help="for people or for programs")
    return made


def count(text: str) -> int:
    """An option's whole number, at least 1."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 up (got {text!r})")
    return int(text)


def print_json(value: object) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def table(rows: Sequence[Sequence[str]], align: str) -> str:
    """A text table; the first row has the column names, and `align` has < or > for each column."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(align))]
    padded = ([f"{cell:{a}{w}}" for cell, a, w in zip(row, align, widths, strict=True)] for row in rows)
    return "\n".join("   ".join(cells).rstrip() for cells in padded)


def run(main: Callable[[Sequence[str]], None]) -> None:
    """Run a script with the command line's arguments; mlcd's errors end it with their message and exit code."""
    try:
        main(sys.argv[1:])
    except MlcdError as error:
        print(f"{sys.argv[0]}: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
