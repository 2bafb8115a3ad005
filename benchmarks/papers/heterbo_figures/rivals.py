"""Figs. 13, 14, 18 and 19: HeterBO against the rivals, over limits, budgets and model sizes."""

from collections.abc import Mapping, Sequence

from mlcd.clouds.sim import MODELS, PAPER_JOBS
from mlcd.goal import Goal, Objective
from mlcd.units import HOUR, Usd
from papers.heterbo_figures.experiment import (
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
SWEPT = ("heterbo", "convbo", f"cherrypick:types={FAVOURED}", "convbo-budget", f"cherrypick-budget:types={FAVOURED}")
SIZES = ("alexnet", "resnet-budgets", "bert-tensorflow", "zero-8b", "zero-20b")


def fig13(settings: Settings) -> list[Entry]:
    """Inception-v3 for $80: ConvBO, Paleo, HeterBO."""
    goal = Goal(minimize=Objective.TIME, budget=Usd.of(80))
    experiment = Experiment(job="inception-v3", goal=goal)
    found = {name: runs(experiment, name, settings) for name in ("convbo", "paleo", "heterbo")}
    papers = {"convbo": ("broken", 36.4), "paleo": ("broken", 12.5), "heterbo": ("kept", None)}
    return _duel("13", found, papers, experiment)


def fig14(settings: Settings) -> list[Entry]:
    """Char-RNN within 20 h: ConvBO, CherryPick with the good types, HeterBO."""
    goal = Goal(minimize=Objective.COST, deadline_seconds=20 * HOUR)
    experiment = Experiment(job="char-rnn", goal=goal)
    favoured = "cherrypick:types=c5.4xlarge+p2.xlarge"
    found = {name: runs(experiment, name, settings) for name in ("convbo", favoured, "heterbo")}
    papers = {"convbo": ("broken", 44.8), favoured: ("broken", 28.9), "heterbo": ("kept", None)}
    return _duel("14", found, papers, experiment)


def _duel(
    figure: str,
    found: Mapping[str, Sequence[Outcome]],
    papers: Mapping[str, tuple[str, float | None]],
    experiment: Experiment,
) -> list[Entry]:
    in_money = experiment.goal.minimize is Objective.COST
    ours = mean(_totals(found["heterbo"], in_money=in_money))
    entries = []
    for name, outcomes in found.items():
        entries.append(_kept(figure, name, outcomes, paper=papers[name][0]))
        if name == "heterbo":
            continue
        share = per_cent(ours, mean(_totals(outcomes, in_money=in_money)))
        entries.append(
            Entry(
                figure=figure,
                what=f"total {'money' if in_money else 'time'} of heterbo, less than {name}'s",
                paper=papers[name][1],
                ours=None if share is None else 100 - share,
                unit="%",
                note="over the runs that trained, limit kept or not; below 0: heterbo took more",
            )
        )
    return entries + choice_entries(figure, "heterbo", found["heterbo"], experiment)


def _totals(outcomes: Sequence[Outcome], *, in_money: bool) -> list[float | None]:
    return [o.total_usd if in_money else o.total_seconds for o in outcomes]


def _kept(figure: str, name: str, outcomes: Sequence[Outcome], *, paper: str | None, prefix: str = "") -> Entry:
    return Entry(
        figure=figure,
        what=f"{prefix}{name}: limit kept",
        paper=paper,
        ours=count(o.kept for o in outcomes),
        unit="runs",
        note=f"total {hours(mean(o.total_seconds for o in outcomes)) or 0:.2f} h,"
        f" ${mean(o.total_usd for o in outcomes) or 0:.0f}; {mean(len(o.steps) for o in outcomes) or 0:.1f} trials;"
        f" {count(o.broke for o in outcomes)} broke it, {sum(o.total_usd is None for o in outcomes)} unfinished",
    )


def fig18(settings: Settings) -> list[Entry]:
    """ResNet over budgets, five strategies."""
    entries = []
    ratios: dict[tuple[str, bool], list[tuple[float, int]]] = {}
    for budget in BUDGETS:
        experiment = Experiment(job="resnet-budgets", goal=Goal(minimize=Objective.TIME, budget=Usd.of(budget)))
        found = {name: runs(experiment, name, settings) for name in SWEPT}
        best = free_optimum(experiment)
        for name, outcomes in found.items():
            entries.append(
                Entry(
                    figure="18",
                    what=f"${budget}, {name}: total time",
                    paper="heterbo least" if name == "heterbo" else "more than heterbo",
                    ours=hours(mean(o.total_seconds for o in outcomes)),
                    unit="h",
                    note=f"${mean(o.total_usd for o in outcomes) or 0:.0f} in all;"
                    f" kept {count(o.kept for o in outcomes)}, unfinished {sum(o.total_usd is None for o in outcomes)};"
                    f" free optimum {best.seconds / HOUR if best else 0:.2f} h",
                )
            )
            for in_money in (False, True):
                ratio = over(
                    mean(_totals(outcomes, in_money=in_money)), mean(_totals(found["heterbo"], in_money=in_money))
                )
                if ratio is not None and name != "heterbo":
                    ratios.setdefault((name, in_money), []).append((ratio, budget))
    return _headlines(ratios) + entries


def _headlines(ratios: Mapping[tuple[str, bool], Sequence[tuple[float, int]]]) -> list[Entry]:
    """The paper's 3.1 and 2.34: the largest ratio over the budgets, of time in one place and of cost in another."""
    papers = {"convbo": 3.1, SWEPT[2]: 2.34}
    entries = []
    for (name, in_money), values in ratios.items():
        if name in papers:
            largest, budget = max(values)
            entries.append(
                Entry(
                    figure="18",
                    what=f"largest total {'money' if in_money else 'time'} of {name} over heterbo's",
                    paper=papers[name],
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
        ours, theirs = (runs(fastest, strategy, settings) for strategy in ("heterbo", "convbo"))
        cheap, dear = (runs(cheapest, strategy, settings) for strategy in ("heterbo", "convbo"))
        shares = [
            per_cent(mean(o.total_usd for o in a), mean(o.total_usd for o in b))
            for a, b in ((cheap, dear), (ours, theirs))
        ]
        speedup, saving = papers.get(job, ("between", "between"))
        entries += [
            Entry(
                figure="19",
                what=f"{size}: speed-up of total time over convbo, fastest",
                paper=speedup,
                ours=over(mean(o.total_seconds for o in theirs), mean(o.total_seconds for o in ours)),
                unit="x",
                note=f"profiling {_profiling(ours)} against {_profiling(theirs)};"
                f" money saved in the same runs {100 - (shares[1] or 0):.0f}%",
            ),
            Entry(
                figure="19",
                what=f"{size}: saving of total cost over convbo, cheapest",
                paper=saving,
                ours=None if shares[0] is None else 100 - shares[0],
                unit="%",
                note=f"${mean(o.total_usd for o in cheap) or 0:.0f}"
                f" against ${mean(o.total_usd for o in dear) or 0:.0f}",
            ),
        ]
    return entries


def _profiling(outcomes: Sequence[Outcome]) -> str:
    probe, total = mean(o.probe_seconds for o in outcomes), mean(o.total_seconds for o in outcomes)
    return f"{hours(probe) or 0:.1f} of {hours(total) or 0:.1f} h"
