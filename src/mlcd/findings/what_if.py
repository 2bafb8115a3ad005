"""What would be decided under other limits, from what was measured: without new trials, and spending nothing."""

from dataclasses import dataclass, replace
from itertools import groupby

from mlcd.deciders.account import Account, Accounts
from mlcd.deciders.search import SearchDecider
from mlcd.deciders.training import TrainingDecider
from mlcd.errors import BadInput
from mlcd.findings.train import pareto
from mlcd.goal import Goal, Objective
from mlcd.models.tradeoff import knee, weighted
from mlcd.relaxation import relaxations
from mlcd.run.kind import Kind
from mlcd.run.run import SearchRun
from mlcd.run.step import Role
from mlcd.search.registry import strategy
from mlcd.search.strategy import Strategy
from mlcd.space import Config
from mlcd.trial.plan import Plan, best, plans, tie
from mlcd.units import Usd, format_seconds

TIME_FROM, COST_TO = 0.75, 0.25
"""Weights of time from which, and to which, one more trial is weighed in time, or in money; between, by the knee."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A measured configuration.

    fits      whether the training fits there, at its upper bound, after what the search took
    on_front  whether no other is both faster and cheaper
    """

    plan: Plan
    fits: bool
    on_front: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetStep:
    """From this budget on, search included, `plan` would be chosen."""

    budget: Usd
    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class NextTrial:
    """The trial that the run's strategy would make next.

    usd, seconds  what it may take at most
    reason        what it is expected to bring, in words
    """

    config: Config
    usd: Usd
    seconds: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """The answer of `what_if`.

    goal         what was asked
    time_weight  the weight of time against money; None where the goal's own rule decides
    choice       None if nothing measured fits
    spent_usd, spent_seconds  what the search took: it counts in every answer
    options      every measured configuration, best first as measured
    knee         of the front of time and money; None without options
    steps        what more or less budget would choose, the smallest budget first
    next_trial   None if none is worth its price, or may start: `stopped` says why
    text         the answer in a sentence
    """

    goal: Goal
    time_weight: float | None
    choice: Plan | None
    spent_usd: Usd
    spent_seconds: float
    options: tuple[Option, ...]
    knee: Plan | None
    steps: tuple[BudgetStep, ...]
    next_trial: NextTrial | None
    stopped: str
    ways_out: tuple[str, ...]
    text: str

    @property
    def total_usd(self) -> Usd | None:
        """Search and training together, as expected; None without a choice."""
        return None if self.choice is None else self.spent_usd + self.choice.usd

    @property
    def total_seconds(self) -> float | None:
        """The same in time."""
        return None if self.choice is None else self.spent_seconds + self.choice.seconds


def what_if(
    run: SearchRun,
    *,
    budget: Usd | None = None,
    deadline_seconds: float | None = None,
    time_weight: float | None = None,
    next_trial: bool = True,
) -> WhatIf:
    """What would be chosen from the measured configurations under these limits. None is no limit.

    time_weight  1: only time counts; 0: only money; between, the least seconds^w dollars^(1-w). None: the goal's rule
    next_trial   whether to say what one more trial would be worth, which takes longer

    Raises BadInput for runs of other kinds, and for values that no limit can have.
    """
    if run.kind is not Kind.TRAIN:
        instead = "; of a server, ask its result: ServeResult.what_if" if run.kind is Kind.SERVE else ""
        about = "what-if answers are about trainings on nodes"
        raise BadInput(f"{run.run_id} is a run of `mlcd {run.kind}`: {about}{instead}")
    goal = _goal(run.problem.goal, budget, deadline_seconds, time_weight)
    account = _searched(run, goal)
    ledger = account.ledger
    measured = plans(account.remaining, account.history) if account.remaining.work_known else ()
    front = {plan.config for plan in pareto(measured)}
    options = tuple(
        Option(plan=plan, fits=ledger.fits(plan), on_front=plan.config in front)
        for plan in sorted(measured, key=lambda each: (each.value(account.remaining), each.usd))
    )
    choice = _chosen(account, [each.plan for each in options if each.fits], time_weight)
    found, stopped = _next_trial(account) if next_trial else (None, "")
    ways_out = () if choice else tuple(each.text for each in relaxations(ledger))
    steps = _steps(account, time_weight)
    points = [(plan.seconds, plan.usd.dollars) for plan in measured]
    return WhatIf(
        goal=goal,
        time_weight=time_weight,
        choice=choice,
        spent_usd=ledger.spent,
        spent_seconds=ledger.elapsed_seconds,
        options=options,
        knee=measured[knee(points)] if measured else None,
        steps=steps,
        next_trial=found,
        stopped=stopped,
        ways_out=ways_out,
        text=_text(run, choice, ways_out) + _more(goal, choice, steps),
    )


MORE_USD = Usd.of("20")
"""What a reader asks about first."""
NOTHING_BETTER = "nothing. No better deployment was measured."


def more_budget(found: WhatIf) -> str:
    """What $20 more would choose, or the next budget that changes the choice; "" without a budget or a choice."""
    budget, choice = found.goal.budget, found.choice
    if budget is None or choice is None:
        return ""
    step = next((each for each in found.steps if each.budget > budget), None)
    if step is None:
        return f"{MORE_USD} more: {NOTHING_BETTER}"
    within = [each for each in found.steps if budget < each.budget <= budget + MORE_USD]
    step = within[-1] if within else step
    seconds, usd = step.plan.seconds - choice.seconds, step.plan.usd - choice.usd
    time = f"{format_seconds(abs(seconds))} {'slower' if seconds > 0 else 'faster'}"
    money = f"{abs(usd)} {'more' if usd.micros > 0 else 'less'}"
    when = f"{MORE_USD} more:" if within else f"{MORE_USD} more: nothing. From {step.budget - budget} more on:"
    return f"{when} {step.plan.config} instead, {time}, for {money}."


def _goal(goal: Goal, budget: Usd | None, deadline_seconds: float | None, time_weight: float | None) -> Goal:
    if time_weight is not None and not 0 <= time_weight <= 1:
        raise BadInput(f"weight: must be between 0 (only money counts) and 1 (only time) (got {time_weight:g})")
    if budget is not None and budget.micros <= 0:
        raise BadInput(f"budget: must be more than $0 (got {budget})")
    if deadline_seconds is not None and not deadline_seconds > 0:
        raise BadInput(f"deadline: must be more than 0 s (got {deadline_seconds:g})")
    minimize = goal.minimize
    if time_weight is not None:
        minimize = (
            Objective.TIME if time_weight >= TIME_FROM else Objective.COST if time_weight <= COST_TO else Objective.KNEE
        )
    return replace(goal, budget=budget, deadline_seconds=deadline_seconds, minimize=minimize)


def _searched(run: SearchRun, goal: Goal) -> Account:
    """The account when the search ended, or now if it has not: trials only, under another goal."""
    trials = tuple(step for step in run.steps if step.role is Role.TRIAL and step.outcome is not None)
    problem = replace(run.problem, goal=goal, beside=False, keeps_work=run.problem.keeps_work or run.problem.beside)
    then = replace(run, problem=problem, steps=trials, verdict=None, findings=None)
    return Accounts().at(then, max((step.started_seconds + step.trial.seconds for step in trials), default=0.0))


def _chosen(account: Account, fitting: list[Plan], time_weight: float | None) -> Plan | None:
    if not fitting:
        return None
    if time_weight is None:
        return best(account.remaining, fitting)
    return fitting[weighted([(plan.seconds, plan.usd.dollars) for plan in fitting], time_weight)]


def _steps(account: Account, time_weight: float | None) -> tuple[BudgetStep, ...]:
    """The budgets at which the choice changes; the deadline stays."""
    deadline, elapsed = account.remaining.goal.deadline_seconds, account.elapsed_seconds
    measured = plans(account.remaining, account.history) if account.remaining.work_known else ()
    in_time = [plan for plan in measured if deadline is None or elapsed + plan.worst_seconds <= deadline]
    found: list[BudgetStep] = []
    rivals: list[Plan] = []
    for last, added in groupby(sorted(in_time, key=_worst_usd), _worst_usd):
        rivals = _rivals(account, [*rivals, *added], time_weight)
        choice = _chosen(account, rivals, time_weight)
        if choice is not None and (not found or found[-1].plan.config != choice.config):
            found.append(BudgetStep(budget=account.ledger.spent + last, plan=choice))
    return tuple(found)


def _worst_usd(plan: Plan) -> Usd:
    return plan.worst_usd


def _rivals(account: Account, fitting: list[Plan], time_weight: float | None) -> list[Plan]:
    """Those that may be chosen now, or once more fit: what is far from the best only gets further from it."""
    if time_weight is not None:
        choice = _chosen(account, fitting, time_weight)
        return [] if choice is None else [choice]
    problem = account.remaining
    most = min(plan.value(problem) for plan in fitting) * (1 + tie(problem))
    return [plan for plan in fitting if plan.value(problem) <= most]


def _next_trial(account: Account) -> tuple[NextTrial | None, str]:
    """What the run's own strategy would try next under these limits; None, and why not."""
    run = account.run
    try:
        asked: Strategy = strategy(run.strategy, seed=run.seed)
    except BadInput:
        return None, f"the strategy {run.strategy} is not known here"
    decider = SearchDecider(strategy=asked, aftermath=TrainingDecider())
    try:
        requests, stopped = decider.round(run, account.elapsed_seconds, 1)
    except BadInput as error:  # a strategy that cannot serve this goal
        return None, str(error)
    if not requests:
        return None, stopped
    first = requests[0]
    allowed = first.authorisation
    return NextTrial(config=allowed.config, usd=allowed.usd, seconds=allowed.seconds, reason=first.reason), ""


def _text(run: SearchRun, choice: Plan | None, ways_out: tuple[str, ...]) -> str:
    if choice is None:
        return "Nothing measured fits" + (f": {ways_out[0]}" if ways_out else "")
    before = run.choice
    takes = f"{format_seconds(choice.seconds)} and {choice.usd}"
    if before is None or before.config == choice.config:
        same = "the same choice" if before is not None else "it would be chosen"
        return f"{choice.config}: {same}, {takes}"
    seconds, usd = choice.seconds - before.seconds, choice.usd - before.usd
    time = f"{format_seconds(abs(seconds))} {'slower' if seconds > 0 else 'faster'}"
    money = f"{abs(usd)} {'more expensive' if usd.micros > 0 else 'cheaper'}"
    return f"{choice.config} instead of {before.config}: {takes}, {time} and {money}"


def _more(goal: Goal, choice: Plan | None, steps: tuple[BudgetStep, ...]) -> str:
    """`. With $73.32 more: 6 x p4d.24xlarge, 3 h 32 min`; "" if more budget would change nothing."""
    if goal.budget is None or choice is None:
        return ""
    step = next((each for each in steps if each.budget > goal.budget), None)
    if step is None:
        return ". More budget would change nothing of that: nothing better was measured"
    return f". With {step.budget - goal.budget} more budget: {step.plan.config}, {format_seconds(step.plan.seconds)}"
