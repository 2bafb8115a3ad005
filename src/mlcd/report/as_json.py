"""A run as JSON: stable, with the unit of every number in its key; train_types.py says what each key means.

The schema's number increases when a key is removed or changes its meaning; any version may add keys. Money is in
dollars with all six decimals; a missing limit, interval or run is null.
"""

import math
from typing import Any, cast

from mlcd.goal import goal_json
from mlcd.problem import Problem
from mlcd.report.result_types import Json, copied, result_json, result_schema
from mlcd.report.train_types import (
    NodeMetricsJson,
    TrainAttemptJson,
    TrainChoiceJson,
    TrainFailureJson,
    TrainGoalJson,
    TrainJson,
    TrainLearnedJson,
    TrainMeasuredJson,
    TrainNaiveJson,
    TrainPlanJson,
    TrainReceiptJson,
    TrainRelaxationJson,
    TrainReusedJson,
    TrainSavedJson,
    TrainSettingsJson,
    TrainSpotJson,
    TrainTargetJson,
    TrainTrialJson,
    TrainWatchJson,
    TrainWhyNotJson,
)
from mlcd.run.attempt import Attempt
from mlcd.run.findings import Receipt, RejectedConfig
from mlcd.run.header import ReusedTrial
from mlcd.run.run import SearchRun
from mlcd.run.step import Step
from mlcd.trial.node_metrics import NodeMetrics
from mlcd.trial.plan import Plan
from mlcd.trial.trial import Failure, Measurement
from mlcd.trial.watched import Watch


def record_json(record: SearchRun) -> Json:
    """The whole run, ready for json.dumps: the output of `-o json`."""
    return cast(Json, result_json(_result(record)))


def schema() -> Json:
    """The JSON Schema (draft 2020-12) of `record_json`."""
    return result_schema(TrainJson, "mlcd result")


def _result(record: SearchRun) -> TrainJson:
    found, goal = record.train_findings, record.problem.goal
    plans = {each.trial: each.plan for each in found.trial_plans}
    return TrainJson(
        schema=1,
        kind="train",
        run_id=record.run_id,
        name=record.problem.name,
        created=record.created,
        status=record.status,
        exit_code=record.status.exit_code,
        simulated=record.simulated,
        cloud=record.cloud,
        strategy=record.strategy,
        seed=record.seed,
        parallel=record.parallel,
        version=record.version,
        catalog_date=record.catalog_date,
        goal=TrainGoalJson(**cast(dict[str, Any], goal_json(goal, text=str(goal)))),
        settings=_settings(record.problem),
        stopped=record.stopped,
        choice=_choice(record, record.choice) if record.choice else None,
        receipt=_receipt(found.receipt),
        training=_attempt(record.final) if record.final else None,
        outputs=record.outputs or None,
        log=record.log or None,
        trials=tuple(_trial(step, plans.get(step.number), record.problem) for step in record.trials),
        reused=tuple(map(_reused, record.header.reused)),
        why_not=tuple(map(_why_not, found.rejected)),
        pareto=tuple(copied(TrainPlanJson, plan) for plan in found.pareto),
        naive=tuple(copied(TrainNaiveJson, n.plan, label=n.label, measured=n.measured) for n in record.naive),
        relaxations=tuple(
            TrainRelaxationJson(text=r.text, budget_usd=r.budget, deadline_seconds=r.deadline_seconds)
            for r in record.relaxations
        ),
    )


def _settings(problem: Problem) -> TrainSettingsJson:
    policy, target = problem.trial, problem.target
    return TrainSettingsJson(
        work_samples=problem.work_samples,
        configurations=len(problem.space),
        max_trials=problem.max_trials,
        assurance=problem.assurance,
        noise=problem.noise,
        work="beside" if problem.beside else "kept" if problem.keeps_work else "thrown",
        restart_seconds=problem.restart_seconds,
        slowdown=problem.slowdown,
        trial_seconds=policy.seconds,
        extra_seconds_per_3_nodes=policy.extra_seconds_per_3_nodes,
        extension=policy.extension,
        watchdog_seconds=policy.watchdog_seconds,
        precision=policy.precision,
        retries=policy.retries,
        reference_batch=problem.batching.reference if problem.batching else None,
        target=copied(TrainTargetJson, target) if target else None,
    )


def _choice(record: SearchRun, choice: Plan) -> TrainChoiceJson:
    known = record.train_findings.choice_intervals
    return copied(
        TrainChoiceJson,
        choice,
        seconds_interval=known.seconds if known else None,
        usd_interval=known.usd if known else None,
        watch=_watch(record.verdict.watch if record.verdict else None),
    )


def _watch(watch: Watch | None) -> TrainWatchJson | None:
    if watch is None:
        return None
    back = watch.fallback
    return copied(TrainWatchJson, watch, fallback=None if back is None else copied(TrainPlanJson, back))


def _attempt(attempt: Attempt) -> TrainAttemptJson:
    config = attempt.config
    batch = config.as_dict().get("batch")
    return copied(
        TrainAttemptJson,
        attempt,
        instance=config.instance,
        nodes=config.nodes,
        batch=batch,
        node_metrics=_node_metrics(attempt.node_metrics),
    )


def _node_metrics(found: NodeMetrics | None) -> NodeMetricsJson | None:
    return copied(NodeMetricsJson, found) if found else None


def _receipt(paid: Receipt) -> TrainReceiptJson:
    saved = tuple(
        copied(TrainSavedJson, saving, label=saving.naive.label, config=saving.naive.plan.config)
        for saving in paid.savings
    )
    return copied(
        TrainReceiptJson,
        paid,
        failed_trials=paid.failed,
        earlier=tuple(map(_attempt, paid.earlier)),
        spot=copied(TrainSpotJson, paid.spot) if paid.spot else None,
        saved=saved,
    )


def _trial(step: Step, plan: Plan | None, problem: Problem) -> TrainTrialJson:
    trial = step.trial
    return TrainTrialJson(
        number=step.number,
        round=step.round,
        config=trial.config,
        attempt=trial.attempt,
        reason=step.reason,
        usd_per_hour=step.price,
        authorised_usd=step.authorised_usd,
        authorised_seconds=step.shown_authorised_seconds,
        started_seconds=step.started_seconds,
        seconds=trial.seconds,
        usd=trial.usd,
        reached_samples=trial.reached_samples,
        measured=_measured(trial, plan, problem) if isinstance(trial, Measurement) and plan else None,
        failure=copied(TrainFailureJson, trial) if isinstance(trial, Failure) else None,
    )


def _reused(each: ReusedTrial) -> TrainReusedJson:
    speed = each.trial.samples_per_second if isinstance(each.trial, Measurement) else None
    return copied(TrainReusedJson, each, config=each.trial.config, samples_per_second=speed)


def _measured(trial: Measurement, plan: Plan, problem: Problem) -> TrainMeasuredJson:
    return copied(
        TrainMeasuredJson,
        trial,
        samples_per_second_interval=trial.speed_interval(),
        noise_scale=None if trial.noise_scale in (None, math.inf) else trial.noise_scale,
        learned=tuple(copied(TrainLearnedJson, point) for point in trial.learned),
        node_metrics=_node_metrics(trial.node_metrics),
        model_flops_utilisation=problem.flops_share(trial.config, trial.samples_per_second),
        run_seconds=plan.seconds,
        run_usd=plan.usd,
        run_worst_seconds=plan.worst_seconds,
        run_worst_usd=plan.worst_usd,
    )


def _why_not(entry: RejectedConfig) -> TrainWhyNotJson:
    return copied(
        TrainWhyNotJson,
        entry,
        kind=entry.reason,
        seconds=entry.plan.seconds if entry.plan else None,
        usd=entry.plan.usd if entry.plan else None,
    )
