"""If nothing fits: the smallest change of a limit that would have helped."""

from mlcd.ledger import Ledger
from mlcd.problem import UNBOOKABLE_MICROS, Problem
from mlcd.run.verdict import Relaxation
from mlcd.space import Config
from mlcd.trial.plan import Plan, plans
from mlcd.units import MOST_SECONDS, MOST_USD, Usd, format_seconds


def relaxations(ledger: Ledger) -> tuple[Relaxation, ...]:
    """From the measured deployments if there are any, else from the price of a first trial."""
    goal = ledger.problem.goal
    measured = plans(ledger.problem, ledger.history)
    if not measured:
        return _for_a_first_trial(ledger)
    if not any(plan.is_bookable for plan in measured):
        least = min(measured, key=lambda plan: plan.worst_usd)
        text = (
            f"{least.config} would take {format_seconds(least.worst_seconds)} and {least.worst_usd}, beyond what mlcd"
            f" plans ({format_seconds(MOST_SECONDS)}, {MOST_USD}): check job.samples and job.epochs"
        )
        return (Relaxation(text=text),)
    answers = []
    if goal.budget is not None:
        in_time = [p for p in measured if _needed_seconds(ledger, p) <= (goal.deadline_seconds or float("inf"))]
        if in_time:
            cheapest = min(in_time, key=lambda p: p.worst_usd)
            answers.append(_relaxation(cheapest, budget=ledger.spent + cheapest.worst_usd))
    if goal.deadline_seconds is not None:
        affordable = [p for p in measured if goal.budget is None or ledger.spent + p.worst_usd <= goal.budget]
        if affordable:
            fastest = min(affordable, key=lambda p: p.worst_seconds)
            answers.append(_relaxation(fastest, seconds=_needed_seconds(ledger, fastest)))
    if not answers:
        plan = min(measured, key=lambda p: p.worst_usd)
        answers.append(_relaxation(plan, budget=ledger.spent + plan.worst_usd, seconds=_needed_seconds(ledger, plan)))
    return tuple(answers)


def _rounded_up(seconds: float, *, least: int) -> float:
    """The seconds as they are printed, rounded up: minutes from an hour on, hours from two days on."""
    unit = max(least, 3600 if seconds > 47 * 3600 else 60 if seconds > 59 * 60 else 1)
    return float(-(-seconds // unit) * unit)


def _needed_seconds(ledger: Ledger, plan: Plan) -> float:
    return ledger.elapsed_seconds + plan.worst_seconds


def _relaxation(plan: Plan, *, budget: Usd | None = None, seconds: float | None = None) -> Relaxation:
    budget = None if budget is None else Usd(-(-budget.micros // 10_000) * 10_000)  # up to the cent
    seconds = None if seconds is None else _rounded_up(seconds, least=60)
    needs = [f"a budget of {budget}"] if budget is not None else []
    needs += [f"a deadline of {format_seconds(seconds)}"] if seconds is not None else []
    return Relaxation(
        text=f"{plan.config} would fit with {' and '.join(needs)}", budget=budget, deadline_seconds=seconds
    )


def _for_a_first_trial(ledger: Ledger) -> tuple[Relaxation, ...]:
    problem = ledger.problem
    micros = problem.worst_trial_micros + problem.verification_micros
    cheapest = int(micros.argmin())
    config = problem.space.configs[cheapest]
    usd = Usd(int(micros[cheapest]))
    seconds = float(problem.worst_trial_seconds[cheapest]) + (problem.verify_seconds or 0.0)
    if usd.micros >= UNBOOKABLE_MICROS:
        fields = "search.trial and num_nodes" if problem.verify_seconds is None else "search.trial and load.verify"
        text = f"one {problem.trial_noun} of {config} alone may cost more than {MOST_USD}: check {fields}"
        return (Relaxation(text=text),)
    goal = problem.goal
    short_of_money = goal.budget is not None and goal.budget < usd
    short_of_time = goal.deadline_seconds is not None and goal.deadline_seconds < seconds
    if not (short_of_money or short_of_time):
        return ()
    step = 10_000 if usd.micros >= 1_000_000 else 100
    usd, seconds = Usd(-(-usd.micros // step) * step), _rounded_up(seconds, least=1)  # what is printed suffices
    words = " and ".join(
        [*([str(usd)] if short_of_money else []), *([format_seconds(seconds)] if short_of_time else [])]
    )
    return (
        Relaxation(
            text=_first_trial_text(problem, config, words),
            budget=usd if short_of_money else None,
            deadline_seconds=seconds if short_of_time else None,
        ),
    )


def _first_trial_text(problem: Problem, config: Config, needed: str) -> str:
    if problem.verify_seconds is None:
        return f"one trial of {config} alone may need {needed}; the training comes on top"
    verified = " and its verification" if problem.verify_seconds else ""
    return f"one load test of {config}{verified} may need {needed}"
