"""What a tracker is told of a run: events as plain mappings of text and numbers."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from mlcd.events import Event, RunBegan, RunEnded, StepEnded
from mlcd.kinds import kind_of
from mlcd.run.run import Run
from mlcd.run.step import Role, Step
from mlcd.trial.epoch import FailedEpoch
from mlcd.trial.trial import Failure, Load
from mlcd.units import Usd

Message = Mapping[str, Any]
"""`type` is begin, child, metrics or end; `mlcd.track.worker` has what belongs to each."""

FAILED_ENDINGS = ("failed", "stopped", "lost", "overran")


def messages(event: Event) -> tuple[Message, ...]:
    """What the event says to a tracker, the run's files apart; nothing for events that trackers do not show."""
    match event:
        case RunBegan():
            earlier = [child(step) for step in event.run.ended]
            return (begin(event.run), *earlier)
        case StepEnded():
            spent = {"spent_usd": event.money.spent.dollars, "elapsed_seconds": event.money.elapsed_seconds}
            return (child(event.step), {"type": "metrics", "metrics": spent, "step": event.step.number})
        case RunEnded():
            return (end(event.run),)
        case _:
            return ()


def begin(run: Run[Any]) -> Message:
    """The parent: the job, its limits, where it runs and how it is searched."""
    goal = run.problem.goal
    params: dict[str, object] = {
        "kind": run.kind,
        "job": run.run_id.rpartition("-")[0],
        "cloud": run.cloud,
        "simulated": run.simulated,
        "strategy": run.strategy,
        "seed": run.seed,
        "goal": goal,
        "budget_usd": None if goal.budget is None else goal.budget.dollars,
        "deadline_seconds": goal.deadline_seconds,
        "prices_of": run.catalog_date,
        "mlcd": run.version,
    }
    return {"type": "begin", "name": run.run_id, "params": _texts(params)}


def child(step: Step) -> Message:
    """One step that has ended: its configuration and price, what it measured, what it took."""
    outcome = step.outcome
    if outcome is None:
        raise ValueError(f"step {step.number} has not ended")
    place: Mapping[str, object] = (
        {"functions": step.fleet.functions, "memory_mb": step.fleet.memory_mb, "share": step.fleet.share}
        if step.role is Role.EPOCH
        else step.config.as_dict()
    )
    price = None if step.usd_per_hour is None else step.usd_per_hour.dollars
    ending = str(getattr(outcome, "kind", None) or getattr(outcome, "ending", None) or "done")
    failed = isinstance(outcome, Failure | FailedEpoch) or ending in FAILED_ENDINGS
    return {
        "type": "child",
        "name": f"{step.role} {step.number}: {step.fleet if step.role is Role.EPOCH else step.config}",
        "params": _texts({**place, "role": step.role, "step": step.number, "round": step.round, "usd_per_hour": price}),
        "metrics": {**numbers(outcome), "authorised_usd": step.authorised_usd.dollars},
        "tags": _texts({"reason": step.reason, "ending": ending, "message": getattr(outcome, "message", None)}),
        "failed": failed,
        "started": step.started_at,
        "ended": step.ended_moment.wall_seconds if step.ended_moment else step.started_at,
    }


def end(run: Run[Any]) -> Message:
    """How the run ended, what it took, what was chosen."""
    totals = {
        "total_usd": run.total_usd.dollars,
        "search_usd": run.search_usd.dollars,
        "search_seconds": run.search_seconds,
        "total_seconds": run.step_seconds,
        "trials": len(run.trials),
        "exit_code": run.status.exit_code,
    }
    if run.choice is not None:
        totals |= {"predicted_seconds": run.choice.seconds, "predicted_usd": run.choice.usd.dollars}
    return {
        "type": "end",
        "metrics": _finite(totals),
        "tags": _texts(
            {"status": run.status, "chosen": run.choice.config if run.choice else None, "stopped": run.stopped}
        ),
        "failed": run.status.exit_code != 0,
    }


def artifacts(run: Run[Any]) -> dict[str, str]:
    """The files of an ended run: name -> text."""
    import json  # noqa: PLC0415 - only an ended run needs it

    kind = kind_of(run.kind)
    return {
        "report.html": kind.html(run),
        "result.json": json.dumps(kind.json(run), indent=2, ensure_ascii=False, allow_nan=False),
    }


def numbers(outcome: Any) -> dict[str, float]:
    """The numbers of an outcome by field, in the units of their names; those of a load test among them."""
    found: dict[str, object] = {}
    for field in dataclasses.fields(outcome):
        value = getattr(outcome, field.name)
        if isinstance(value, Load):
            found |= {f"load_{name}": number for name, number in numbers(value).items()}
        else:
            found[field.name] = value.dollars if isinstance(value, Usd) else value
    return _finite(found)


def _finite(values: Mapping[str, object]) -> dict[str, float]:
    numeric = {name: value for name, value in values.items() if isinstance(value, int | float)}
    return {name: float(value) for name, value in numeric.items() if math.isfinite(value)}


def _texts(values: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in values.items() if value is not None and str(value) != ""}
