"""Trainings on functions as JSON and back, prices and their date included: a run can be read without any catalog."""

from datetime import date
from decimal import Decimal
from typing import Any

from mlcd.catalog.functions import FunctionPrices
from mlcd.functions import FunctionProblem
from mlcd.goal import Goal, Objective
from mlcd.trial.serverless import PlainInstance
from mlcd.units import Usd

Json = dict[str, Any]


def problem_to_json(problem: FunctionProblem) -> Json:
    """The whole problem."""
    goal = problem.goal
    return {
        "name": problem.name,
        "functions": _ranges(problem.functions),
        "memory_mb": list(problem.memory_mb),
        "samples": problem.samples,
        "batch": problem.batch,
        "model_bytes": problem.model_bytes,
        "target_loss": problem.target_loss,
        "max_epochs": problem.max_epochs,
        "limit_seconds": problem.limit_seconds,
        "puts_per_function": problem.puts_per_function,
        "gets_per_function": problem.gets_per_function,
        "repeat_share": problem.repeat_share,
        "longest_epoch_seconds": problem.longest_epoch_seconds,
        "goal": {
            "minimize": str(goal.minimize),
            "deadline_seconds": goal.deadline_seconds,
            "budget_micros": None if goal.budget is None else goal.budget.micros,
        },
        "prices": _prices_to_json(problem.prices),
    }


def problem_from_json(data: Json) -> FunctionProblem:
    """The inverse of `problem_to_json`."""
    goal = data["goal"]
    budget = goal["budget_micros"]
    rest = {key: value for key, value in data.items() if key not in ("functions", "memory_mb", "goal", "prices")}
    return FunctionProblem(
        functions=tuple(n for first, last in data["functions"] for n in range(first, last + 1)),
        memory_mb=tuple(data["memory_mb"]),
        goal=Goal(
            minimize=Objective(goal["minimize"]),
            deadline_seconds=goal["deadline_seconds"],
            budget=None if budget is None else Usd(budget),
        ),
        prices=_prices_from_json(data["prices"]),
        **rest,
    )


def instance_to_json(instance: PlainInstance) -> Json:
    """An instance to compare with."""
    return {
        "name": instance.name,
        "usd_per_hour_micros": instance.usd_per_hour.micros,
        "seconds": instance.seconds,
        "usd_micros": instance.usd.micros,
    }


def instance_from_json(data: Json) -> PlainInstance:
    """The inverse of `instance_to_json`."""
    return PlainInstance(
        name=data["name"],
        usd_per_hour=Usd(data["usd_per_hour_micros"]),
        seconds=data["seconds"],
        usd=Usd(data["usd_micros"]),
    )


def _ranges(numbers: tuple[int, ...]) -> list[list[int]]:
    """Rising numbers as [first, last] of each run of neighbours."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found


def _prices_to_json(prices: FunctionPrices) -> Json:
    tiers = prices.tier_usd_per_second
    return {
        "name": prices.name,
        "usd_per_gb_second": str(prices.usd_per_gb_second),
        "usd_per_request": str(prices.usd_per_request),
        "granule_seconds": str(prices.granule_seconds),
        "usd_per_put": str(prices.usd_per_put),
        "usd_per_get": str(prices.usd_per_get),
        "memory_mb": list(prices.memory_mb),
        "limit_seconds": prices.limit_seconds,
        "concurrency": prices.concurrency,
        "date": prices.date.isoformat(),
        "source": prices.source,
        "tier_usd_per_second": None if tiers is None else {str(mb): str(usd) for mb, usd in tiers.items()},
    }


def _prices_from_json(data: Json) -> FunctionPrices:
    low, high, step = data["memory_mb"]
    tiers = data["tier_usd_per_second"]
    return FunctionPrices(
        name=data["name"],
        usd_per_gb_second=Decimal(data["usd_per_gb_second"]),
        usd_per_request=Decimal(data["usd_per_request"]),
        granule_seconds=Decimal(data["granule_seconds"]),
        usd_per_put=Decimal(data["usd_per_put"]),
        usd_per_get=Decimal(data["usd_per_get"]),
        memory_mb=(low, high, step),
        limit_seconds=data["limit_seconds"],
        concurrency=data["concurrency"],
        date=date.fromisoformat(data["date"]),
        source=data["source"],
        tier_usd_per_second=None if tiers is None else {int(mb): Decimal(usd) for mb, usd in tiers.items()},
    )
