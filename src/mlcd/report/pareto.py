"""The measured deployments worth having: no other is both faster and cheaper."""

from mlcd.models.standing import standing
from mlcd.run.run import SearchRun
from mlcd.trial.plan import Plan, plans


def measured_plans(record: SearchRun) -> tuple[Plan, ...]:
    """One plan a measured deployment, the last measurement counting, in the order first measured."""
    return tuple(
        {plan.config: plan for plan in plans(standing(record.problem, record.history), record.history)}.values()
    )


def pareto(record: SearchRun) -> tuple[Plan, ...]:
    """The measured plans that no other dominates in (seconds, usd), fastest first; of equal ones the first."""
    front: list[Plan] = []
    for plan in sorted(measured_plans(record), key=lambda p: (p.seconds, p.usd)):
        if not front or plan.usd < front[-1].usd:
            front.append(plan)
    return tuple(front)
