"""The figures by name, and how a selection of them is run."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

from mlcd.errors import BadInput
from papers.heterbo_figures import motive, paths, rivals, scenarios
from papers.heterbo_figures.experiment import Entry, Settings

FIGURES: dict[str, Callable[[Settings], list[Entry]]] = {
    "1a": motive.fig1a,
    "1b": motive.fig1b,
    "2": motive.fig2,
    "3": motive.fig3,
    "5": motive.fig5,
    "7": motive.fig7,
    "9": scenarios.fig9,
    "10": scenarios.fig10,
    "11": scenarios.fig11,
    "12": scenarios.fig12,
    "13": rivals.fig13,
    "14": rivals.fig14,
    "15": paths.fig15,
    "16": paths.fig16,
    "17": paths.fig17,
    "18": rivals.fig18,
    "19": rivals.fig19,
}


def figure_names(text: str) -> tuple[str, ...]:
    """`all`, or comma-separated names, each once. Raises BadInput with the allowed names."""
    if text.strip().lower() == "all":
        return tuple(FIGURES)
    names = tuple(dict.fromkeys(part.strip().lower() for part in text.split(",") if part.strip()))
    for name in names:
        if name not in FIGURES:
            raise BadInput(f"--figures: there is no figure {name!r} here; allowed: all, {', '.join(FIGURES)}")
    if not names:
        raise BadInput(f"--figures: name at least one; allowed: all, {', '.join(FIGURES)}")
    return names


def run_figures(names: Sequence[str], settings: Settings) -> list[Entry]:
    """The entries of each figure, with the command and seeds that give them."""
    entries = []
    for name in names:
        command = f"benchmarks/papers/heterbo.py --figures {name} --seeds {settings.seeds}"
        entries += [replace(entry, command=command, seeds=settings.seeds) for entry in FIGURES[name](settings)]
    return entries


def as_json(entries: Sequence[Entry]) -> dict[str, object]:
    """As `heterbo.py -o json` prints it."""
    return {"figures": [asdict(entry) for entry in entries]}
