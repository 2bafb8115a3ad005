"""A serving run as JSON: stable, described by serving.schema.json, with the unit of every number in its key.

A missing limit or choice is null.
"""

import json
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from typing import cast

from mlcd.goal import goal_json
from mlcd.report.serving import goal_text
from mlcd.run.attempt import Attempt
from mlcd.run.findings import RejectedConfig, ServingChoice
from mlcd.run.run import SearchRun
from mlcd.run.step import Step
from mlcd.trial.trial import Failure, Load
from mlcd.units import Usd

SCHEMA = 1
Json = dict[str, object]


def serving_json(record: SearchRun) -> Json:
    """The whole record, ready for json.dumps; `mlcd serve -o json`."""
    facts, found = record.serving, record.serve_findings
    paid, miss = found.receipt, found.nearest_miss
    return {
        "schema": SCHEMA,
        "kind": str(record.kind),
        "run_id": record.run_id,
        "name": record.problem.name,
        "created": record.created,
        "status": str(record.status),
        "exit_code": record.status.exit_code,
        "cloud": record.cloud,
        "nominal_prices": record.cloud == "local",
        "strategy": record.strategy,
        "seed": record.seed,
        "version": record.version,
        "model": facts.model if facts else None,
        "goal": goal_json(record.problem.goal, text=goal_text(record), serving=True),
        "load": {
            "scenario": facts.scenario if facts else None,
            "headroom": facts.headroom if facts else None,
            "verify_seconds": facts.verify_seconds if facts else None,
        },
        "configurations": len(record.problem.space),
        "untried": found.untried,
        "stopped": record.stopped,
        "choice": _choice(record, found.choice) if found.choice else None,
        "nearest": _rejected(miss) if miss and found.choice is None else None,
        "ways_out": [relaxation.text for relaxation in record.relaxations],
        "resembles": _resembles(record),
        "receipt": {
            "trials": paid.trials,
            "failed_trials": paid.failed,
            "search_seconds": paid.search_seconds,
            "search_usd": _usd(paid.search_usd),
            "verifications": [_verification(run) for run in (*record.earlier, *filter(None, [record.final]))],
            "total_seconds": paid.total_seconds,
            "total_usd": _usd(paid.total_usd),
        },
        "trials": [_trial(row, meets_goal=row.number in found.met) for row in record.trials],
        "why_not": [_rejected(entry) for entry in found.rejected],
        "notes": list(facts.notes) if facts else [],
    }


@cache
def _schema_text() -> str:
    return (files("mlcd.report") / "serving.schema.json").read_text(encoding="utf-8")


def serving_schema() -> Json:
    """The JSON Schema (draft 2020-12) of `serving_json`, and of what `mlcd serve` adds to it."""
    return cast(Json, json.loads(_schema_text()))


def _usd(usd: Usd | None) -> float | None:
    return None if usd is None else usd.dollars


def _load(load: Load | None) -> Json | None:
    return None if load is None else asdict(load)


def _choice(record: SearchRun, choice: ServingChoice) -> Json:
    return {
        "config": choice.config.as_dict(),
        "usd_per_hour": _usd(record.problem.price(choice.config)),
        "requests_per_second": choice.requests_per_second,
        "measured_requests_per_second": choice.measured_requests_per_second,
        "usd_per_million_requests": _usd(choice.usd_per_million),
        "verified_seconds": choice.verified_seconds,
        "load": _load(choice.load),
    }


def _resembles(record: SearchRun) -> Json | None:
    alike = record.serving.resemblance if record.serving else None
    if alike is None:
        return None
    return {
        "models": [{"name": name, "alike": share} for name, share in alike.nearest],
        "covered": alike.covered,
        "confidence": alike.confidence,
        "word": alike.word,
        "unseen_operators": list(alike.unseen),
        "source": alike.source,
    }


def _verification(run: Attempt) -> Json:
    return {
        "config": run.config.as_dict(),
        "held": run.is_done,
        "message": run.message,
        "seconds": run.seconds,
        "usd": _usd(run.usd),
        "load": _load(run.load),
    }


def _trial(row: Step, *, meets_goal: bool) -> Json:
    trial = row.trial
    shared: Json = {
        "number": row.number,
        "config": trial.config.as_dict(),
        "attempt": trial.attempt,
        "reason": row.reason,
        "usd_per_hour": _usd(row.usd_per_hour),
        "authorised_usd": _usd(row.authorised_usd),
        "authorised_seconds": row.authorised_seconds,
        "seconds": trial.seconds,
        "usd": _usd(trial.usd),
    }
    if isinstance(trial, Failure):
        return {**shared, "failure": {"kind": str(trial.kind), "message": trial.message}, "measured": None}
    measured = {
        "requests_per_second": trial.samples_per_second,
        "relative_error": trial.relative_error,
        "startup_seconds": trial.startup_seconds,
        "extended": trial.extended,
        "meets_goal": meets_goal,
        "load": _load(trial.load),
    }
    return {**shared, "failure": None, "measured": measured}


def _rejected(entry: RejectedConfig) -> Json:
    return {
        "config": entry.config.as_dict() if entry.config else None,
        "kind": str(entry.reason),
        "text": entry.text,
        "requests_per_second": entry.samples_per_second,
        "usd_per_million_requests": _usd(entry.usd_per_million),
        "load": _load(entry.load),
    }
