"""One benchmark run: a workload with known truth, a goal derived from it, a strategy and a seed; and its result."""

import hashlib
import math
from dataclasses import dataclass, replace
from enum import StrEnum

from mlcd.bench.new_run import new_run
from mlcd.bench.protocol import BUDGET_FACTOR, DEADLINE_FACTOR, TrainProtocol
from mlcd.clouds.provider import Cloud
from mlcd.deciders.search import SearchDecider
from mlcd.deciders.training import TrainingDecider
from mlcd.engine import Engine
from mlcd.engine.on_nodes import NodePerformer
from mlcd.goal import Goal, Objective
from mlcd.problem import Problem
from mlcd.run.attempt import Ending
from mlcd.run.kind import Kind
from mlcd.run.run import SearchRun
from mlcd.search.registry import strategy
from mlcd.search.strategy import Elastic, Strategy, with_wishes
from mlcd.trial.outcome import Status
from mlcd.units import HOUR, Usd

UNFINISHED_RATIO = 3.0
"""The least ratio that counts for a run that broke a limit or did not finish."""


class GoalKind(StrEnum):
    """The goals that each workload is run with."""

    FASTEST = "fastest"
    CHEAPEST = "cheapest"
    BUDGET = "budget"
    BOTH = "both"


def is_unseen(workload: str) -> bool:
    """Whether sha256(name) is even: such workloads are held out of tuning on tables (docs/bench.md: how strictly)."""
    return int(hashlib.sha256(workload.encode()).hexdigest(), 16) % 2 == 0


@dataclass(frozen=True, kw_only=True)
class TrainTruth:
    """A workload with known truth: seconds of the whole training for each configuration of `problem.space`.

    None for a configuration that cannot run. `problem` has no limits; `with_goal` derives them.
    """

    name: str
    problem: Problem
    seconds: tuple[float | None, ...]

    @property
    def is_unseen(self) -> bool:
        """See is_unseen."""
        return is_unseen(self.name)

    def outcomes(self) -> list[tuple[float, Usd]]:
        """(seconds, dollars) of every configuration that can run."""
        prices = self.problem.usd_per_hour
        return [(s, p.for_seconds(s)) for s, p in zip(self.seconds, prices, strict=True) if s is not None]

    def with_goal(self, kind: GoalKind, protocol: TrainProtocol) -> Problem:
        """The problem with the goal, and with the limits that follow from the truth and the protocol's factors."""
        budget = min(usd for _, usd in self.outcomes()).micros * protocol.budget_factor
        deadline = protocol.deadline_factor * protocol.hours * HOUR
        goals = {
            GoalKind.FASTEST: Goal(minimize=Objective.TIME),
            GoalKind.CHEAPEST: Goal(minimize=Objective.COST, deadline_seconds=deadline),
            GoalKind.BUDGET: Goal(minimize=Objective.TIME, budget=Usd(math.ceil(budget))),
            GoalKind.BOTH: Goal(minimize=Objective.TIME, deadline_seconds=deadline, budget=Usd(math.ceil(budget))),
        }
        return replace(self.problem, goal=goals[kind])

    def optimum(self, goal: Goal) -> float | None:
        """The best configuration's training in the goal's unit, without any search; None when none is feasible."""
        feasible = [
            goal.value(seconds, usd.dollars)
            for seconds, usd in self.outcomes()
            if (goal.deadline_seconds is None or seconds <= goal.deadline_seconds)
            and (goal.budget is None or usd <= goal.budget)
        ]
        return min(feasible, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainRow:
    """One run, as `mlcd bench train -o json` prints it; from `noise` on, the protocol that it ran under."""

    workload: str
    unseen: bool
    strategy: str
    goal: str
    hours: float
    seed: int
    status: str
    trials: int
    probe_seconds: float
    probe_usd: float
    train_seconds: float | None
    train_usd: float | None
    total_seconds: float | None
    total_usd: float | None
    limit_seconds: float | None
    limit_usd: float | None
    optimum: float
    ratio: float | None
    noise: float = 0.03
    work: str = "thrown"
    restart_seconds: float = 0.0
    budget_factor: float = BUDGET_FACTOR
    deadline_factor: float = DEADLINE_FACTOR
    types: int | None = None
    deployments: int = 0
    trial_seconds: float = 600.0
    report_noise: float | None = None

    @property
    def counted_ratio(self) -> float:
        """The ratio; at least UNFINISHED_RATIO for a run that broke a limit or did not finish."""
        if self.status == "done" and self.ratio is not None:
            return self.ratio
        return max(self.ratio or 0.0, UNFINISHED_RATIO)

    @property
    def probe_share(self) -> float | None:
        """The search's share of the total, in the goal's unit; None when unfinished."""
        if self.total_seconds is None or self.total_usd is None:
            return None
        if self.goal == GoalKind.CHEAPEST:
            return self.probe_usd / self.total_usd if self.total_usd else 0.0
        return self.probe_seconds / self.total_seconds if self.total_seconds else 0.0


def search(problem: Problem, cloud: Cloud, strategy_text: str, *, seed: int, parallel: int = 1) -> SearchRun:
    """One whole run of `mlcd train`, not stored and without knowledge of other runs."""
    chosen = strategy(strategy_text, seed=seed)
    return search_with(chosen, problem, cloud, name=strategy_text, seed=seed, parallel=parallel)


def search_with(
    chosen: Strategy, problem: Problem, cloud: Cloud, *, name: str, seed: int = 0, parallel: int = 1
) -> SearchRun:
    """The same with an existing strategy object; `name` is its name in the run's header."""
    problem = with_wishes(problem, chosen)
    return Engine(
        run=new_run(Kind.TRAIN, problem, cloud=cloud.name, strategy=name, seed=seed, parallel=parallel),
        decider=SearchDecider(strategy=chosen, aftermath=TrainingDecider(), parallel=parallel),
        performer=NodePerformer(
            cloud=cloud, guarded=chosen.guarded, elastic=chosen if isinstance(chosen, Elastic) else None
        ),
    ).drive()


def row(truth: TrainTruth, run: SearchRun, *, kind: GoalKind, protocol: TrainProtocol, optimum: float) -> TrainRow:
    """The benchmark's row for a run."""
    goal, final = run.problem.goal, run.final
    stopped = final is not None and final.ending is Ending.STOPPED  # before the budget was exceeded
    is_done = final is not None or run.finished_trial is not None
    finished = is_done and run.status in (Status.DONE, Status.OVERRAN) and not stopped
    trained = (final.seconds, final.usd.dollars) if final is not None else (0.0, 0.0)
    over = "unfinished" if stopped else "violated"
    status = {Status.DONE: "done", Status.OVERRAN: over}.get(run.status, "unfinished")
    total = goal.value(run.total_seconds, run.total_usd.dollars) if finished else None
    return TrainRow(
        workload=truth.name,
        unseen=truth.is_unseen,
        strategy=run.strategy,
        goal=kind.value,
        hours=protocol.hours,
        seed=run.seed,
        status=status,
        trials=len(run.trials),
        probe_seconds=run.search_seconds,
        probe_usd=run.search_usd.dollars,
        train_seconds=trained[0] if finished else None,
        train_usd=trained[1] if finished else None,
        total_seconds=run.total_seconds if finished else None,
        total_usd=run.total_usd.dollars if finished else None,
        limit_seconds=goal.deadline_seconds,
        limit_usd=goal.budget.dollars if goal.budget else None,
        optimum=optimum,
        ratio=None if total is None else total / optimum,
        noise=protocol.noise,
        work=protocol.work.value,
        restart_seconds=protocol.restart_seconds,
        budget_factor=protocol.budget_factor,
        deadline_factor=protocol.deadline_factor,
        types=protocol.types,
        deployments=len(run.problem.space),
        trial_seconds=run.problem.trial.seconds,
        report_noise=protocol.report_noise,
    )
