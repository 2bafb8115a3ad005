"""A search as a table, and as one line."""

from collections.abc import Mapping, Sequence
from html import escape

from mlcd.asktell.objective import SearchObjective, value_of
from mlcd.run.run import SearchRun
from mlcd.run.step import Step
from mlcd.space import Config
from mlcd.trial.trial import Failure, Measurement

Row = Mapping[str, object]


def rows_of(run: SearchRun, objective: SearchObjective | None, *, counts_money: bool) -> list[Row]:
    """A row per trial, in the order they were asked. Missing numbers are None.

    state  measured, open, or the kind of its failure
    """
    return [_row(step, objective, counts_money=counts_money) for step in run.steps]


def _row(step: Step, objective: SearchObjective | None, *, counts_money: bool) -> Row:
    trial = step.outcome if isinstance(step.outcome, Measurement | Failure) else None
    measured = trial if isinstance(trial, Measurement) else None
    row: dict[str, object] = {"number": step.number}
    row |= {f"config.{name}": value for name, value in step.config.values}
    row["state"] = "open" if trial is None else str(trial.kind) if isinstance(trial, Failure) else "measured"
    if objective is not None and objective.is_custom_value:
        row["value"] = None if measured is None else value_of(objective, measured)
    else:
        row["samples_per_second"] = None if measured is None else measured.samples_per_second
    row["seconds"] = None if trial is None else trial.seconds
    if counts_money:
        row["usd"] = None if trial is None else trial.usd.dollars
    row["reason"] = step.reason
    return row


def summary_of(run: SearchRun, objective: SearchObjective | None, best: tuple[Config, float | None] | None) -> str:
    """What is searched, how far the search is, and the best so far, in one line."""
    problem = run.problem
    knobs = ", ".join(knob.name for knob in problem.space.knobs)
    sought = objective if objective is not None and objective.is_custom_value else problem.goal
    text = f"{run.run_id}: {sought}, {len(problem.space):,} configurations of {knobs}; "
    text += f"{len(run.trials)} of {problem.max_trials} trials told, {len(run.in_flight)} open; best: "
    if best is None:
        return text + "none yet"
    config, value = best
    return text + f"{config}" + ("" if value is None else f" ({value:g})")


def html_of(caption: str, rows: Sequence[Row]) -> str:
    """The rows as a table for a notebook; the text of every cell is escaped."""
    lines = [f"<p>{escape(caption)}</p>"]
    if rows:
        cells = "".join(f"<th>{escape(name)}</th>" for name in rows[0])
        lines.append(f"<table><thead><tr>{cells}</tr></thead><tbody>")
        lines += [f"<tr>{''.join(f'<td>{_cell(value)}</td>' for value in row.values())}</tr>" for row in rows]
        lines.append("</tbody></table>")
    return "\n".join(lines)


def _cell(value: object) -> str:
    if value is None:
        return ""
    return escape(f"{value:.6g}" if isinstance(value, float) else str(value))
