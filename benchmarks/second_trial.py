"""The paper's Fig. 11 (the fastest for $100): how close to the optimum a search can get; effect of a forced trial.

    .venv/bin/python benchmarks/second_trial.py [--seeds 200]

First with the whole curve known: deployments are tried in an order fixed in advance until one can be promised (its
measured training, at the upper bound of `search.assurance`, fits the remaining budget); all orders of up to three are
compared, and no trial fails for lack of capacity. Then HeterBO itself, with the first trials after its initial ones
prescribed, and its own decisions after them.
"""

import argparse
import math
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from statistics import fmean

from joblib import Parallel, delayed
from scipy.special import ndtr

from mlcd.bench.case import search_with
from mlcd.goal import Goal, Objective
from mlcd.problem import Problem
from mlcd.run.run import SearchRun
from mlcd.search.candidates import open_rows
from mlcd.search.heterbo import HeterBO
from mlcd.trial.outcome import Status
from mlcd.trial.plan import Remaining, margin_sigmas
from mlcd.trial.trial import History, Suggestion
from mlcd.units import Usd
from papers.heterbo_figures.experiment import Experiment, free_optimum, true_seconds

BUDGET = 100
FIG11 = Experiment(job="resnet-scale-out", goal=Goal(minimize=Objective.TIME, budget=Usd.of(BUDGET)))
NODES = range(19, 31)
PRESCRIBED: tuple[tuple[int, ...], ...] = (
    (), (24,), (25,), (26,), (27,), (28,), (24, 26), (24, 27), (4, 26), (4,), (7,), (12,)
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Prescribed(HeterBO):
    """HeterBO whose trials after the initial ones are prescribed, as far as the ledger allows them."""

    nodes: tuple[int, ...] = ()

    def suggest(self, problem: Problem, history: History, remaining: Remaining, count: int) -> tuple[Suggestion, ...]:
        """The next of `nodes`, then HeterBO's own."""
        made = len(history.tried) - 1
        if 0 <= made < len(self.nodes):
            row = self.nodes[made] - 1
            if open_rows(problem, history, remaining)[row]:
                return (Suggestion(config=problem.space.configs[row], reason="prescribed"),)
        return super().suggest(problem, history, remaining, count)


def known_curve(*, look: bool) -> list[tuple[float, tuple[int, ...]]]:
    """Every order of up to three deployments with its mean training relative to the free optimum's, the best first."""
    setting, optimum = FIG11.setting(0), free_optimum(FIG11)
    assert optimum is not None
    problem = setting.problem
    trial_usd = problem.planned_trial_seconds * problem.dollars_per_second
    run = {n: true_seconds(setting, problem.space.configs[n - 1]) or math.inf for n in NODES}

    def mean(order: tuple[int, ...]) -> float:
        remaining, open_, total = BUDGET - (trial_usd[0] if look else 0.0), 1.0, 0.0
        for n in order:
            remaining -= trial_usd[n - 1]
            room = math.log(remaining / (run[n] * problem.dollars_per_second[n - 1]))
            fits = float(ndtr(room / problem.noise - margin_sigmas(problem.assurance)))
            total += open_ * fits * run[n] / optimum.value
            open_ *= 1 - fits
        return total + open_ * 2  # nothing fitted: counts as twice the optimum

    return sorted((mean(order), order) for length in (1, 2, 3) for order in permutations(NODES, length))


def run(nodes: tuple[int, ...], seed: int) -> SearchRun:
    setting = FIG11.setting(seed)
    return search_with(Prescribed(nodes=nodes), setting.problem, setting.cloud, name="heterbo", seed=seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=-1)
    arguments = parser.parse_args()
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    optimum = free_optimum(FIG11)
    assert optimum is not None
    for look in (True, False):
        found = known_curve(look=look)
        by_first = {n: round(min(mean for mean, order in found if order[0] == n), 3) for n in NODES}
        print(f"curve known, first look {'paid' if look else 'not paid'}: {found[0]}; by the first tried: {by_first}")
    print("prescribed  choice  within 5%  profiling min  total h  kept  nothing trained  limit broken")
    for nodes in PRESCRIBED:
        records = Parallel(n_jobs=arguments.jobs)(map(delayed(partial(run, nodes)), seeds))
        done = [r for r in records if r.final is not None and r.status in (Status.DONE, Status.OVERRAN)]
        ratios = [r.final.seconds / optimum.value for r in done if r.final is not None]
        print(
            f"{' '.join(map(str, nodes)) or '(its own)':<11} {fmean(ratios):.4f}"
            f"  {sum(x <= 1.05 for x in ratios) / len(seeds):9.0%}"
            f"  {fmean(r.search_seconds for r in records) / 60:13.1f}"
            f"  {fmean(r.total_seconds for r in done) / 3600:7.3f}"
            f"  {sum(r.status is Status.DONE for r in records)} of {len(seeds)}"
            f"  {len(records) - len(done)}  {sum(r.status is Status.OVERRAN for r in records)}",
            flush=True,
        )


if __name__ == "__main__":
    main()
