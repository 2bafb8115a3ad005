"""Figs. 15 to 17: how HeterBO finds Char-RNN's and BERT's deployment, over types and nodes together."""

from mlcd.goal import Goal, Objective
from mlcd.units import Usd
from papers.heterbo_figures.experiment import OURS, Entry, Experiment, Settings, count, hours, mean, runs
from papers.heterbo_figures.scenarios import choice_entries


def fig15(settings: Settings) -> list[Entry]:
    """Char-RNN for $120."""
    return _path("15", "char-rnn", 120, settings, paper_steps=9)


def fig16(settings: Settings) -> list[Entry]:
    """BERT on TensorFlow for $100."""
    return _path("16", "bert-tensorflow", 100, settings)


def fig17(settings: Settings) -> list[Entry]:
    """BERT on MXNet for $120."""
    return _path("17", "bert-mxnet", 120, settings)


def _path(figure: str, job: str, usd: int, settings: Settings, paper_steps: int | None = None) -> list[Entry]:
    experiment = Experiment(job=job, goal=Goal(minimize=Objective.TIME, budget=Usd.of(usd)))
    entries = []
    for name in OURS:
        outcomes = runs(experiment, name, settings)
        entries += [
            Entry(
                figure=figure,
                what=f"{name}: steps",
                paper=paper_steps,
                ours=mean(len(o.steps) for o in outcomes),
                unit="trials",
                note="seed 0: " + ", ".join(step.config for step in outcomes[0].steps),
            ),
            Entry(
                figure=figure,
                what=f"{name}: ${usd} kept",
                paper="kept",
                ours=count(o.kept for o in outcomes),
                unit="runs",
                note=f"total ${mean(o.total_usd for o in outcomes) or 0:.0f} and"
                f" {hours(mean(o.total_seconds for o in outcomes)) or 0:.2f} h on average",
            ),
            *choice_entries(figure, name, outcomes, experiment),
        ]
    return entries
