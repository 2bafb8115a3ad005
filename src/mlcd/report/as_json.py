"""A run as JSON: stable, described by result.schema.json, with the unit of every number in its key.

The schema's number rises when a key goes or changes its meaning; new keys may come with any version. Money is in
dollars with all six decimals; a missing limit, interval or run is null.
"""

import json
import math
from functools import cache
from importlib.resources import files
from typing import cast

from mlcd.goal import goal_json
from mlcd.problem import Problem
from mlcd.run.attempt import Attempt
from mlcd.run.findings import RejectedConfig
from mlcd.run.run import SearchRun
from mlcd.run.step import Step
from mlcd.trial.plan import Plan
from mlcd.trial.trial import Failure
from mlcd.units import Usd

SCHEMA = 1
Json = dict[str, object]


def record_json(record: SearchRun) -> Json:
    """The whole record, ready for json.dumps; the command line's `-o json`."""
    found = record.train_findings
    plans = {each.trial: each.plan for each in found.trial_plans}
    return {
        "schema": SCHEMA,
        "kind": str(record.kind),
        "run_id": record.run_id,
        "name": record.problem.name,
        "created": record.created,
        "status": str(record.status),
        "exit_code": record.status.exit_code,
        "simulated": record.simulated,
        "cloud": record.cloud,
        "strategy": record.strategy,
        "seed": record.seed,
        "parallel": record.parallel,
        "version": record.version,
        "catalog_date": record.catalog_date,
        "goal": goal_json(record.problem.goal, text=str(record.problem.goal)),
        "settings": _settings(record.problem),
        "stopped": record.stopped,
        "choice": _choice(record),
        "receipt": _receipt(record),
        "training": _attempt(record.final) if record.final else None,
        "outputs": record.outputs or None,
        "trials": [_trial(row, plans.get(row.number)) for row in record.trials],
        "why_not": [_why_not(entry) for entry in found.rejected],
        "pareto": [_plan(plan) for plan in found.pareto],
        "naive": [{"label": n.label, "measured": n.measured, **_plan(n.plan)} for n in record.naive],
        "relaxations": [
            {"text": r.text, "budget_usd": _usd(r.budget), "deadline_seconds": r.deadline_seconds}
            for r in record.relaxations
        ],
    }


@cache
def _schema_text() -> str:
    return (files("mlcd.report") / "result.schema.json").read_text(encoding="utf-8")


def schema() -> Json:
    """The JSON Schema (draft 2020-12) of `record_json`."""
    return cast(Json, json.loads(_schema_text()))


def _usd(usd: Usd | None) -> float | None:
    return None if usd is None else usd.dollars


def _settings(problem: Problem) -> Json:
    policy, target = problem.trial, problem.target
    return {
        "work_samples": problem.work_samples,
        "configurations": len(problem.space),
        "max_trials": problem.max_trials,
        "assurance": problem.assurance,
        "noise": problem.noise,
        "trial_seconds": policy.seconds,
        "extra_seconds_per_3_nodes": policy.extra_seconds_per_3_nodes,
        "extension": policy.extension,
        "watchdog_seconds": policy.watchdog_seconds,
        "precision": policy.precision,
        "retries": policy.retries,
        "reference_batch": problem.batching.reference if problem.batching else None,
        "target": {"metric": target.metric, "value": target.value, "higher": target.higher} if target else None,
    }


def _plan(plan: Plan) -> Json:
    return {
        "config": plan.config.as_dict(),
        "seconds": plan.seconds,
        "usd": _usd(plan.usd),
        "worst_seconds": plan.worst_seconds,
        "worst_usd": _usd(plan.worst_usd),
    }


def _choice(record: SearchRun) -> Json | None:
    if record.choice is None:
        return None
    known = record.train_findings.choice_intervals
    return {
        **_plan(record.choice),
        "seconds_interval": list(known.seconds) if known else None,
        "usd_interval": [_usd(usd) for usd in known.usd] if known else None,
    }


def _attempt(run: Attempt) -> Json:
    return {
        "instance": run.config.instance,
        "nodes": run.config.nodes,
        "batch": run.config.as_dict().get("batch"),
        "ending": run.ending.value,
        "message": run.message,
        "seconds": run.seconds,
        "usd": _usd(run.usd),
        "reached_samples": run.reached_samples,
    }


def _receipt(record: SearchRun) -> Json:
    paid = record.train_findings.receipt
    return {
        "trials": paid.trials,
        "failed_trials": paid.failed,
        "search_seconds": paid.search_seconds,
        "search_usd": _usd(paid.search_usd),
        "earlier": [_attempt(run) for run in paid.earlier],
        "run_seconds": paid.run_seconds,
        "run_usd": _usd(paid.run_usd),
        "run_is_predicted": paid.run_is_predicted,
        "total_seconds": paid.total_seconds,
        "total_usd": _usd(paid.total_usd),
        "cap_seconds": paid.cap_seconds,
        "cap_usd": _usd(paid.cap_usd),
        "left_seconds": paid.left_seconds,
        "left_usd": _usd(paid.left_usd),
        "saved": [
            {
                "label": saving.naive.label,
                "config": saving.naive.plan.config.as_dict(),
                "seconds": saving.seconds,
                "usd": _usd(saving.usd),
                "breaks": list(saving.breaks),
            }
            for saving in paid.savings
        ],
    }


def _trial(row: Step, plan: Plan | None) -> Json:
    trial = row.trial
    shared: Json = {
        "number": row.number,
        "round": row.round,
        "config": trial.config.as_dict(),
        "attempt": trial.attempt,
        "reason": row.reason,
        "usd_per_hour": _usd(row.usd_per_hour),
        "authorised_usd": _usd(row.authorised_usd),
        "authorised_seconds": row.authorised_seconds,
        "started_seconds": row.started_seconds,
        "seconds": trial.seconds,
        "usd": _usd(trial.usd),
        "reached_samples": trial.reached_samples,
    }
    if isinstance(trial, Failure):
        failure = {"kind": str(trial.kind), "message": trial.message}
        return {**shared, "measured": None, "failure": failure}
    if plan is None:
        raise ValueError(f"trial {row.number} was measured and has no plan")
    measured: Json = {
        "samples_per_second": trial.samples_per_second,
        "samples_per_second_interval": list(trial.speed_interval()),
        "relative_error": trial.relative_error,
        "iterations": trial.iterations,
        "startup_seconds": trial.startup_seconds,
        "extended": trial.extended,
        "utilisation": trial.utilisation,
        "noise_scale": None if trial.noise_scale in (None, math.inf) else trial.noise_scale,
        "learned": [{"samples": point.samples, "metric": point.metric} for point in trial.learned],
        "run_seconds": plan.seconds,
        "run_usd": _usd(plan.usd),
        "run_worst_seconds": plan.worst_seconds,
        "run_worst_usd": _usd(plan.worst_usd),
    }
    return {**shared, "measured": measured, "failure": None}


def _why_not(entry: RejectedConfig) -> Json:
    return {
        "subject": entry.subject,
        "config": entry.config.as_dict() if entry.config else None,
        "trial": entry.trial,
        "kind": str(entry.reason),
        "text": entry.text,
        "configurations": entry.configurations,
        "instances": list(entry.instances),
        "samples_per_second": entry.samples_per_second,
        "seconds": entry.plan.seconds if entry.plan else None,
        "usd": _usd(entry.plan.usd) if entry.plan else None,
    }
