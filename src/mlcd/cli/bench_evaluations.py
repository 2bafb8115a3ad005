from pathlib import Path
from typing import TYPE_CHECKING

import click

from mlcd.cli.output import print_json, table
from mlcd.errors import BadInput

if TYPE_CHECKING:
    from mlcd.bench.serve.evaluations import Cell, Evaluation, Setting


def show_evaluations(setting: "Setting", numbers: str, pictures: Path | None, output: str) -> None:
    """Runs the evaluations and prints their tables; their pictures go to the folder, where one is given."""
    from mlcd.bench.serve.evaluations import as_json, evaluate

    found = evaluate(setting, _wanted(numbers))
    if pictures is not None:
        _draw(found, pictures)
    if output == "json":
        print_json(as_json(setting, found))
        return
    for one in found:
        click.echo(f"Evaluation {one.number}. {one.title}")
        click.echo(f"  The paper: {one.paper}\n")
        rows = [list(one.columns), *([_shown(cell) for cell in row] for row in one.rows)]
        click.echo(table(rows, "<" + ">" * (len(one.columns) - 1)))
        click.echo(f"\n  {one.note}\n" if one.note else "")
    made = "simulated" if setting.bed.known.simulated else "replayed from measured tables"
    click.echo(f"{setting.bed.name}: {setting.bed.known.source}; {made}; limit {setting.slo_ms:g} ms.")


def _wanted(text: str) -> tuple[int, ...]:
    if text == "all":
        return (1, 2, 3, 4, 5, 6, 7)
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise BadInput(f"--evaluations: all, or numbers with commas between, such as 1,4 (got {text!r})") from error


def _draw(found: "list[Evaluation]", folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for one in found:
            if one.picture:
                (folder / f"falcon-evaluation-{one.number}.svg").write_text(one.picture, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"--pictures: {folder}: {error.strerror}") from error


def _shown(cell: "Cell") -> str:
    return f"{cell:.3f}" if isinstance(cell, float) else str(cell)
