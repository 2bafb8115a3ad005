"""The configurations of a run as a grid: which knob is across, which configurations a map shows."""

from mlcd.run.run import SearchRun
from mlcd.space import Config, Space

RowKey = tuple[tuple[str, object], ...]
MOST_GROUPS, MOST_EACH = 12, 20
"""Rows of a map, and configurations of each: more would not be told apart."""


def column_knob(space: Space) -> str:
    """The knob that a map has across: the number of nodes, else the batch, else the one with most values."""
    values = {knob.name: {config[knob.name] for config in space} for knob in space.knobs}
    varied = [name for name in ("nodes", "batch") if len(values.get(name, ())) > 1]
    return varied[0] if varied else max(values, key=lambda name: len(values[name]))


def row_key(config: Config, column: str) -> RowKey:
    """What the configurations of one row of a map have in common."""
    return tuple((name, value) for name, value in config.values if name != column)


def map_configs(run: SearchRun) -> tuple[Config, ...]:
    """The configurations of a map: at most MOST_GROUPS rows, at most MOST_EACH values across, the same in every row.

    Rows with a trial come first, and values that were tried are among those across.
    """
    space = run.problem.space
    column, tried = column_knob(space), [trial.config for trial in run.history]
    values = sorted({config[column] for config in space}, key=lambda value: (isinstance(value, str), value))
    wanted = list(dict.fromkeys(config[column] for config in tried))[:MOST_EACH]
    room = MOST_EACH - len(wanted)
    even = [round(at * (len(values) - 1) / max(room - 1, 1)) for at in range(room)]
    across = {*wanted, *(values if len(values) <= MOST_EACH else (values[at] for at in even))}
    rows: dict[RowKey, list[Config]] = {row_key(config, column): [] for config in tried}
    for config in space:
        if config[column] in across:
            rows.setdefault(row_key(config, column), []).append(config)
    return tuple(config for configs in list(rows.values())[:MOST_GROUPS] for config in configs)
