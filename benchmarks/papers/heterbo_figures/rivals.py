"""Figs. 13, 14, 18 and 19: HeterBO against the rivals, over limits, budgets and model sizes."""

from collections.abc import Mapping, Sequence
from itertools import product

from mlcd.clouds.sim import MODELS, PAPER_JOBS
from mlcd.goal import Goal, Objective
from mlcd.units import HOUR, Usd
from papers.heterbo_figures.experiment import (
    OURS,
    Entry,
    Experiment,
    Outcome,
    Settings,
    count,
    free_optimum,
    hours,
    mean,
    over,
    per_cent,
    runs,
)
from papers.heterbo_figures.scenarios import choice_entries

BUDGETS = (60, 80, 100, 150, 200, 300)
"""Dollars; the paper shows its budgets only in a figure."""
FAVOURED = "c5n.4xlarge"
"""The type that the paper grants CherryPick in Fig. 18."""
SWEPT = (*OURS, "convbo", f"cherrypick:types={FAVOURED}", "convbo-budget", f"cherrypick-budget:types={FAVOURED}")
PAPER_RATIOS = {"convbo": 3.1, f"cherrypick:types={FAVOURED}": 2.34}
PALEOS = ("paleo", "paleo:topology=butterfly", "paleo:topology=tree")
SIZES = ("alexnet", "resnet-budgets", "bert-tensorflow", "zero-8b", "zero-20b")


def fig13(settings: Settings) -> list[Entry]:
    """Inception-v3 for $80: ConvBO, Paleo over each of its topologies, HeterBO."""
    goal = Goal(minimize=Objective.TIME, budget=Usd.of(80))
    experiment = Experiment(job="inception-v3", goal=goal)
    papers = {"convbo": ("broken", 36.4), **dict.fromkeys(PALEOS, ("broken", 12.5))}
    return _duel("13", papers, experiment, settings)


def fig14(settings: Settings) -> list[Entry]:
    """Char-RNN within 20 h: ConvBO, CherryPick with the good types, HeterBO."""
    goal = Goal(minimize=Objective.COST, deadline_seconds=20 * HOUR)
    experiment = Experiment(job="char-rnn", goal=goal)
    favoured = "cherrypick:types=c5.4xlarge+p2.xlarge"
    return _duel("14", {"convbo": ("broken", 44.8), favoured: ("broken", 28.9)}, experiment, settings)


def _duel(
    figure: str, papers: Mapping[str, tuple[str, float]], experiment: Experiment, settings: Settings
) -> list[Entry]:
    """Each rival (what the paper says of its limit, and by how much HeterBO is better), then each of OURS with it."""
    in_money = experiment.goal.minimize is Objective.COST
    found = {name: runs(experiment, name, settings) for name in papers}
    entries = [_kept(figure, name, outcomes, paper=papers[name][0]) for name, outcomes in found.items()]
    for ours in OURS:
        outcomes = runs(experiment, ours, settings)
        entries.append(_kept(figure, ours, outcomes, paper="kept"))
        for name, theirs in found.items():
            share = per_cent(mean(_totals(outcomes, in_money=in_money)), mean(_totals(theirs, in_money=in_money)))
            entries.append(
                Entry(
                    figure=figure,
                    what=f"total {'money' if in_money else 'time'} of {ours}, less than {name}'s",
                    paper=papers[name][1],
                    ours=None if share is None else 100 - share,
                    unit="%",
                    note="over the runs that trained, limit kept or not; below 0: heterbo took more",
                )
            )
        entries += choice_entries(figure, ours, outcomes, experiment)
    return entries


def _totals(outcomes: Sequence[Outcome], *, in_money: bool) -> list[float | None]:
    return [o.total_usd if in_money else o.total_seconds for o in outcomes]


def _kept(figure: str, name: str, outcomes: Sequence[Outcome], *, paper: str) -> Entry:
    return Entry(
        figure=figure,
        what=f"{name}: limit kept",
        paper=paper,
        ours=count(o.kept for o in outcomes),
        unit="runs",
        note=f"total {hours(mean(o.total_seconds for o in outcomes)) or 0:.2f} h,"
        f" ${mean(o.total_usd for o in outcomes) or 0:.0f}; {mean(len(o.steps) for o in outcomes) or 0:.1f} trials;"
        f" {count(o.broke for o in outcomes)} broke it, {sum(o.total_usd is None for o in outcomes)} unfinished",
    )


def fig18(settings: Settings) -> list[Entry]:
    """ResNet over budgets: HeterBO, and four rivals."""
    entries = []
    ratios: dict[tuple[str, str, bool], list[tuple[float, int]]] = {}
    for budget in BUDGETS:
        experiment = Experiment(job="resnet-budgets", goal=Goal(minimize=Objective.TIME, budget=Usd.of(budget)))
        found = {name: runs(experiment, name, settings) for name in SWEPT}
        best = free_optimum(experiment)
        for name, outcomes in found.items():
            entries.append(
                Entry(
                    figure="18",
                    what=f"${budget}, {name}: total time",
                    paper="heterbo least" if name in OURS else "more than heterbo",
                    ours=hours(mean(o.total_seconds for o in outcomes)),
                    unit="h",
                    note=f"${mean(o.total_usd for o in outcomes) or 0:.0f} in all;"
                    f" kept {count(o.kept for o in outcomes)}, unfinished {sum(o.total_usd is None for o in outcomes)};"
                    f" free optimum {best.seconds / HOUR if best else 0:.2f} h",
                )
            )
        for ours in OURS:
            for name, in_money in product(PAPER_RATIOS, (False, True)):
                whole, part = (mean(_totals(found[who], in_money=in_money)) for who in (name, ours))
                ratio = over(whole, part)
                if ratio is not None:
                    ratios.setdefault((ours, name, in_money), []).append((ratio, budget))
    return _headlines(ratios) + entries


def _headlines(ratios: Mapping[tuple[str, str, bool], Sequence[tuple[float, int]]]) -> list[Entry]:
    """The paper's 3.1 and 2.34: the largest ratio over the budgets, of time in one place and of cost in another."""
    entries = []
    for (ours, name, in_money), values in ratios.items():
        largest, budget = max(values)
        entries.append(
            Entry(
                figure="18",
                what=f"largest total {'money' if in_money else 'time'} of {name} over {ours}'s",
                paper=PAPER_RATIOS[name],
                ours=largest,
                unit="x",
                note=f"at ${budget}; " + ", ".join(f"{ratio:.2f} at ${at}" for ratio, at in values if at != budget),
            )
        )
    return entries


def fig19(settings: Settings) -> list[Entry]:
    """Speed-up and cost saving of HeterBO over ConvBO as models grow."""
    entries = []
    papers = {SIZES[0]: (1.3, 69.0), SIZES[-1]: (6.5, 92.0)}
    for job in SIZES:
        name, parameters = PAPER_JOBS[job].job.model, MODELS[PAPER_JOBS[job].job.model].parameters
        size = f"{name} ({parameters / 1e6:.3g}M)" if parameters < 1e9 else f"{name} ({parameters / 1e9:.3g}B)"
        fastest, cheapest = (Experiment(job=job, goal=Goal(minimize=o)) for o in (Objective.TIME, Objective.COST))
        slow, dear = runs(fastest, "convbo", settings), runs(cheapest, "convbo", settings)
        speedup, saving = papers.get(job, ("between", "between"))
        for ours in OURS:
            quick, cheap = runs(fastest, ours, settings), runs(cheapest, ours, settings)
            share = per_cent(mean(o.total_usd for o in cheap), mean(o.total_usd for o in dear))
            same_runs = per_cent(mean(o.total_usd for o in quick), mean(o.total_usd for o in slow))
            entries += [
                Entry(
                    figure="19",
                    what=f"{size}: speed-up of {ours}'s total time over convbo's, fastest",
                    paper=speedup,
                    ours=over(mean(o.total_seconds for o in slow), mean(o.total_seconds for o in quick)),
                    unit="x",
                    note=f"profiling {_profiling(quick)} against {_profiling(slow)};"
                    f" money saved in the same runs {100 - (same_runs or 0):.0f}%",
                ),
                Entry(
                    figure="19",
                    what=f"{size}: saving of {ours}'s total cost over convbo's, cheapest",
                    paper=saving,
                    ours=None if share is None else 100 - share,
                    unit="%",
                    note=f"${mean(o.total_usd for o in cheap) or 0:.0f}"
                    f" against ${mean(o.total_usd for o in dear) or 0:.0f}",
                ),
            ]
    return entries


def _profiling(outcomes: Sequence[Outcome]) -> str:
    probe, total = mean(o.probe_seconds for o in outcomes), mean(o.total_seconds for o in outcomes)
    return f"{hours(probe) or 0:.1f} of {hours(total) or 0:.1f} h"
