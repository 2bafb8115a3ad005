"""Where a run's times and prices come from: rented machines, a simulator, a measured table, or this machine."""

from mlcd.report.text import Item, Line, Style
from mlcd.run.kind import Kind
from mlcd.run.run import AnyRun

NOMINAL = "NOMINAL"
ON_THIS_MACHINE = ("local", "minicloud")
"""Clouds whose nodes are parts of this machine."""
LOCAL_FUNCTIONS = "functions ran on this machine: prices are those of the table, and nobody is charged."


def is_replayed(record: AnyRun) -> bool:
    """Whether the run replays a measured table; the whole job is then one sample."""
    return record.cloud.startswith("replay/")


def origin_word(record: AnyRun) -> str:
    """`SIMULATED`, `REPLAYED`, or "" if machines were rented."""
    return origin(record)[0]


def origin_text(record: AnyRun) -> str:
    """What the word means for this run; "" without a word."""
    return origin(record)[1]


def origin(record: AnyRun) -> tuple[str, str]:
    """(word, sentence) if time or money is not real; both empty otherwise."""
    if record.cloud.startswith("replay/"):
        table = record.cloud.removeprefix("replay/")
        return "REPLAYED", f"times and prices are those of the measured table {table}; nothing was rented or paid."
    if record.simulated:
        return (
            "SIMULATED",
            f"all times and costs are simulated ({record.cloud}); nothing was rented and nothing was paid.",
        )
    if record.cloud == "lithops/localhost":
        return NOMINAL, LOCAL_FUNCTIONS
    if record.kind is Kind.SERVE and record.cloud in ON_THIS_MACHINE:
        return NOMINAL, served_here_text(record.cloud)
    return "", ""


def served_here_text(cloud: str) -> str:
    """That the prices of a cloud on this machine are nominal."""
    return f"{cloud} runs on this machine: its prices are nominal, and nobody is charged."


def origin_lines(banner: tuple[str, str]) -> list[Item]:
    """The banner of a text answer; empty if time and money are real."""
    word, sentence = banner
    return [Line(f"{word}: {sentence}", Style.NOTE, is_wrapped=True)] if word else []


def prices_text(record: AnyRun) -> str:
    """Where the prices come from."""
    return "prices of the measured table" if is_replayed(record) else f"prices of {record.catalog_date}"
