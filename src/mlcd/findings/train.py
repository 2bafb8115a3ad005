"""What a search for a training on nodes found: its plans, the Pareto front, and the account after each trial."""

from collections.abc import Iterable
from dataclasses import replace

from mlcd.findings.account import account, keeps_reserve
from mlcd.findings.batches import batch_findings
from mlcd.findings.outlook import untried
from mlcd.findings.receipt import intervals, receipt
from mlcd.findings.rejected import rejected
from mlcd.models.remaining import remaining_problem
from mlcd.problem import Problem
from mlcd.run.findings import TrainFindings, TrialPlan
from mlcd.run.run import SearchRun
from mlcd.trial.markets import with_markets
from mlcd.trial.plan import Plan
from mlcd.trial.trial import Measurement
from mlcd.trial.work_done import work_done
from mlcd.units import Usd


def train_findings(run: SearchRun) -> TrainFindings:
    """All that reports say of a training on nodes beyond its steps and verdict."""
    remaining = _remaining(run)
    paid = receipt(run, remaining)
    steps = account(run, guarded=True)
    guarded = keeps_reserve(run, steps)
    trial_plans = tuple(
        TrialPlan(trial=step.number, plan=Plan.of(remaining, step.trial))
        for step in run.trials
        if isinstance(step.trial, Measurement)
    )
    plans = [Plan.of(remaining, trial) for trial in with_markets(remaining, run.history).measured]
    measured = {plan.config: plan for plan in plans}.values()
    best_first = ranked(run.problem, measured)
    over_usd, over_seconds = _over(run)
    not_tried = untried(run, remaining, paid, guarded=guarded)
    return TrainFindings(
        receipt=paid,
        choice_intervals=intervals(run, remaining, run.choice) if run.choice else None,
        over_usd=over_usd,
        over_seconds=over_seconds,
        trial_plans=trial_plans,
        ranked=best_first,
        pareto=pareto(measured),
        rejected=rejected(run, remaining, best_first, paid, guarded=guarded, known=not_tried),
        account=steps if guarded else account(run, guarded=False),
        done_share=_done_share(run, remaining),
        batches=batch_findings(run, remaining),
        untried=not_tried,
    )


def _remaining(run: SearchRun) -> Problem:
    """The problem with the work that remained when the search ended; all of it if nothing remained."""
    last = max((step.round for step in run.trials), default=0)
    before = replace(run, steps=tuple(step for step in run.steps if step.round <= last))
    if before.final is not None or run.finished_trial is not None:
        return run.problem
    problem = remaining_problem(run.problem, run.history, before.earlier)
    return problem.with_interruptions(len(before.interrupted_steps), before.expected_interruptions)


def ranked(problem: Problem, measured: Iterable[Plan]) -> tuple[Plan, ...]:
    """Best first by the goal; the cheaper first among equals."""
    return tuple(sorted(measured, key=lambda plan: (plan.value(problem), plan.usd)))


def pareto(measured: Iterable[Plan]) -> tuple[Plan, ...]:
    """The plans that no other beats in both seconds and usd, fastest first; the first of equal ones."""
    front: list[Plan] = []
    for plan in sorted(measured, key=lambda p: (p.seconds, p.usd)):
        if not front or plan.usd < front[-1].usd:
            front.append(plan)
    return tuple(front)


def _over(run: SearchRun) -> tuple[Usd | None, float | None]:
    """By how much the run exceeded its budget and its deadline; None where it did not."""
    goal = run.problem.goal
    usd = None if goal.budget is None else run.total_usd - goal.budget
    seconds = None if goal.deadline_seconds is None else run.total_seconds - goal.deadline_seconds
    return usd if usd is not None and usd.micros > 0 else None, seconds if seconds and seconds > 0 else None


def _done_share(run: SearchRun, remaining: Problem) -> float:
    """Share of the training that its trials did, samples weighted by their worth; 0 where unknown."""
    if run.finished_trial is not None:
        return 1.0
    if not remaining.work_known:
        return 0.0
    done = work_done(remaining, run.history.trials).samples
    return min(done / (done + remaining.work_samples), 1.0)
