"""A training on functions as JSON, described by serverless.schema.json: units in the keys, money in dollars."""

import json
from functools import cache
from importlib.resources import files
from typing import cast

from mlcd.goal import goal_json
from mlcd.report.serverless import instances_text
from mlcd.run.run import EpochRun
from mlcd.run.step import Step
from mlcd.run.verdict import PlainInstance
from mlcd.trial.epoch import Epoch, Phase
from mlcd.units import Usd

SCHEMA = 1
Json = dict[str, object]


def serverless_json(record: EpochRun) -> Json:
    """The whole record, ready for json.dumps; the command line's `-o json`."""
    problem, goal = record.problem, record.problem.goal
    found = record.serverless_findings
    paid, better = found.receipt, found.better_instance
    return {
        "schema": SCHEMA,
        "kind": str(record.kind),
        "run_id": record.run_id,
        "name": problem.name,
        "created": record.created,
        "status": str(record.status),
        "exit_code": record.status.exit_code,
        "simulated": record.simulated,
        "cloud": record.cloud,
        "model": record.function_facts.model,
        "sync": record.function_facts.sync,
        "strategy": record.strategy,
        "seed": record.seed,
        "version": record.version,
        "goal": {
            **goal_json(goal),
            "target_loss": problem.target_loss,
            "max_epochs": problem.max_epochs,
        },
        "prices": {"name": problem.prices.name, "date": problem.prices.date.isoformat()},
        "stopped": record.stopped,
        "reached": found.is_target_reached,
        "loss": record.epochs[-1].loss if record.epochs else None,
        "smallest_budget_usd": _usd(record.smallest_budget),
        "receipt": {
            "training_seconds": paid.training_seconds,
            "elapsed_seconds": paid.elapsed_seconds,
            "total_usd": _usd(paid.total_usd),
            "failed_usd": _usd(paid.failed_usd),
            "cap_usd": _usd(paid.cap_usd),
            "left_usd": _usd(paid.left_usd),
            "calls": paid.calls,
            "repeated_calls": paid.repeated_calls,
        },
        "epochs": _epochs(record),
        "instances": {
            "text": instances_text(record),
            "better": None if better is None else _instance(better),
            "compared": [_instance(instance) for instance in record.instances],
        },
    }


@cache
def _schema_text() -> str:
    return (files("mlcd.report") / "serverless.schema.json").read_text(encoding="utf-8")


def serverless_schema() -> Json:
    """The JSON Schema (draft 2020-12) of `serverless_json`."""
    return cast(Json, json.loads(_schema_text()))


def _epochs(record: EpochRun) -> list[Json]:
    totals = record.serverless_findings.totals
    return [
        {**_epoch(step), "total_seconds": total.seconds, "total_usd": _usd(total.usd)}
        for step, total in zip(record.epoch_steps, totals, strict=True)
    ]


def _epoch(row: Step) -> Json:
    done = row.epoch
    shared: Json = {
        "go": row.number,
        "epoch": done.number,
        "functions": done.fleet.functions,
        "memory_mb": done.fleet.memory_mb,
        "share": done.fleet.share,
        "authorised_usd": _usd(row.authorised_usd),
        "authorised_seconds": row.authorised_seconds,
        "seconds": done.seconds,
        "usd": _usd(done.usd),
    }
    if not isinstance(done, Epoch):
        return {**shared, "loss": None, "failure": done.message}
    return {
        **shared,
        "loss": done.loss,
        "failure": None,
        "fetch_seconds": _phase(done.fetch),
        "compute_seconds": _phase(done.compute),
        "update_seconds": _phase(done.update),
        "calls": done.calls,
        "repeated_calls": done.failed,
        "cold_starts": done.cold_starts,
        "memory_share": done.memory_share,
        "cpu_share": done.cpu_share,
    }


def _phase(phase: Phase) -> Json:
    return {"mean": phase.mean_seconds, "max": phase.max_seconds}


def _instance(instance: PlainInstance) -> Json:
    return {
        "name": instance.name,
        "usd_per_hour": _usd(instance.usd_per_hour),
        "seconds": instance.seconds,
        "usd": _usd(instance.usd),
    }


def _usd(usd: Usd | None) -> float | None:
    return None if usd is None else usd.dollars
