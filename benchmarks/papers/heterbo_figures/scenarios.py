"""Figs. 9 to 12: ResNet on CIFAR-10, the three scenarios on c5.4xlarge, and random search."""

from collections.abc import Sequence

from mlcd.goal import Goal, Objective
from mlcd.units import HOUR, Usd
from papers.heterbo_figures.experiment import (
    OURS,
    Entry,
    Experiment,
    Outcome,
    Reference,
    Settings,
    best_promised,
    count,
    free_optimum,
    hours,
    mean,
    over,
    per_cent,
    runs,
    spread,
    within,
)

FASTEST = Goal(minimize=Objective.TIME)
CONVBO = ("convbo", "convbo:target=speed", "convbo:threshold=0")
STEPS = (2, 4, 8, 16, 32)
"""Random search's step counts; the paper shows its own only in a figure."""

_TARGETS = {
    "convbo": "favoured: its EI is of what the goal minimises",
    "convbo:target=speed": "as equation 4 has it: its EI is of the speed, whatever the goal",
    "convbo:threshold=0": "not stopped by a small EI: all of its 15 trials",
}


def fig9(settings: Settings) -> list[Entry]:
    """Scenario 1: the fastest."""
    experiment = Experiment(job="resnet-scale-out", goal=FASTEST)
    return _scenario("9", experiment, settings, paper_share=16.0)


def fig10(settings: Settings) -> list[Entry]:
    """Scenario 2: the cheapest within 6 h."""
    goal = Goal(minimize=Objective.COST, deadline_seconds=6 * HOUR)
    return _scenario("10", Experiment(job="resnet-scale-out", goal=goal), settings, paper_share=20.0)


def fig11(settings: Settings) -> list[Entry]:
    """Scenario 3: the fastest for $100."""
    goal = Goal(minimize=Objective.TIME, budget=Usd.of(100))
    return _scenario("11", Experiment(job="resnet-scale-out", goal=goal), settings, paper_share=21.0)


def _scenario(figure: str, experiment: Experiment, settings: Settings, *, paper_share: float) -> list[Entry]:
    rivals = {name: runs(experiment, name, settings) for name in CONVBO}
    entries = [
        _limits(figure, name, rival, experiment.goal, paper=_PAPER_RIVAL.get(figure)) for name, rival in rivals.items()
    ]
    for ours in OURS:
        outcomes = runs(experiment, ours, settings)
        entries.append(_limits(figure, ours, outcomes, experiment.goal, paper=_PAPER_HETERBO.get(figure)))
        entries += [
            _against(figure, (ours, name), outcomes, rival, experiment.goal, paper_share=paper_share)
            for name, rival in rivals.items()
        ]
        entries += choice_entries(figure, ours, outcomes, experiment)
    return entries


_PAPER_RIVAL = {"10": "broken by 3.4 h", "11": "broken: $225"}
_PAPER_HETERBO = {"10": "kept", "11": "kept: $96"}


def _against(
    figure: str,
    names: tuple[str, str],
    outcomes: Sequence[Outcome],
    rival: Sequence[Outcome],
    goal: Goal,
    *,
    paper_share: float,
) -> Entry:
    """HeterBO's profiling as a share of ConvBO's, in money or time, and how many trials each made."""
    in_money = goal.minimize is Objective.COST
    ours, theirs = [mean(o.probe_usd if in_money else o.probe_seconds for o in group) for group in (outcomes, rival)]
    trials = [mean(len(o.steps) for o in group) for group in (outcomes, rival)]
    unit = "$" if in_money else "min"
    amounts = [0.0 if a is None else a if in_money else a / 60 for a in (ours, theirs)]
    return Entry(
        figure=figure,
        what=f"profiling {'money' if in_money else 'time'} of {names[0]}, share of {names[1]}'s",
        paper=paper_share,
        ours=per_cent(ours, theirs),
        unit="%",
        note=f"{_TARGETS[names[1]]}; {amounts[0]:.1f} against {amounts[1]:.1f} {unit},"
        f" {trials[0] or 0:.1f} against {trials[1] or 0:.1f} trials",
    )


def _limits(figure: str, name: str, outcomes: Sequence[Outcome], goal: Goal, *, paper: str | None) -> Entry:
    total_hours, total_usd = hours(mean(o.total_seconds for o in outcomes)), mean(o.total_usd for o in outcomes)
    what = "limits met" if goal.budget or goal.deadline_seconds else "runs finished"
    return Entry(
        figure=figure,
        what=f"{name}: {what}",
        paper=paper,
        ours=count(o.kept for o in outcomes),
        unit="runs",
        note=f"total {total_hours or 0:.2f} h and ${total_usd or 0:.0f} on average;"
        f" {count(o.broke for o in outcomes)} broke a limit",
    )


def choice_entries(figure: str, name: str, outcomes: Sequence[Outcome], experiment: Experiment) -> list[Entry]:
    """The chosen deployment's true training relative to both references, and how often it is within 5% of each."""
    references = [("the free optimum", free_optimum(experiment))]
    if experiment.goal.budget or experiment.goal.deadline_seconds:
        references.append(("the best that can be promised", best_promised(experiment)))
    return [_choice(figure, name, outcomes, label, reference) for label, reference in references]


def _choice(figure: str, name: str, outcomes: Sequence[Outcome], label: str, reference: Reference | None) -> Entry:
    if reference is None:
        return Entry(figure=figure, what=f"{name}: choice over {label}", paper=1.0, ours=None, unit="x", note="none")
    near = within(outcomes, reference) or 0.0
    worst = max((o.run_value for o in outcomes if o.run_value is not None), default=None)
    return Entry(
        figure=figure,
        what=f"{name}: training of its choice over {label}",
        paper=1.0,
        ours=over(mean(o.run_value for o in outcomes), reference.value),
        unit="x",
        note=f"{near:.0f}% of runs within 5%, worst {over(worst, reference.value) or 0:.2f};"
        f" {label}: {reference.config}, {reference.seconds / HOUR:.2f} h, ${reference.usd:.0f}",
    )


def fig12(settings: Settings) -> list[Entry]:
    """Random search at several step counts."""
    experiment = Experiment(job="resnet-budgets", goal=FASTEST)
    entries = []
    for name in (*OURS, *(f"random:steps={steps}" for steps in STEPS)):
        outcomes = runs(experiment, name, settings)
        entries += [
            Entry(
                figure="12",
                what=f"{name}: total time",
                paper="heterbo least" if name in OURS else "more than heterbo",
                ours=hours(mean(o.total_seconds for o in outcomes)),
                unit="h",
                note=f"deviation {hours(spread(o.total_seconds for o in outcomes)) or 0:.2f} h;"
                f" profiling {hours(mean(o.probe_seconds for o in outcomes)) or 0:.2f} h",
            )
        ]
    return entries
