"""A serving run as JSON: stable, with the unit of every number in its key; serve_types.py says what each key means."""

from typing import Any, cast

from mlcd.goal import goal_json
from mlcd.report.origin import ON_THIS_MACHINE
from mlcd.report.result_types import Json, copied, result_json, result_schema
from mlcd.report.serve_types import (
    ServeChangeJson,
    ServeChoiceJson,
    ServeDayJson,
    ServeFailureJson,
    ServeGoalJson,
    ServeJson,
    ServeLimitJson,
    ServeLoadJson,
    ServeMeasuredJson,
    ServeModelJson,
    ServePaceJson,
    ServeReceiptJson,
    ServeRejectedJson,
    ServeResemblesJson,
    ServeScenarioJson,
    ServeTokensJson,
    ServeTrialJson,
    ServeVerificationJson,
)
from mlcd.report.serving import goal_text
from mlcd.run.attempt import Attempt
from mlcd.run.findings import DayPlan, RejectedConfig, ServingChoice
from mlcd.run.run import SearchRun
from mlcd.run.step import Step
from mlcd.trial.trial import Failure, Load, Measurement, TokenLoad


def serving_json(record: SearchRun) -> Json:
    """The whole run, ready for json.dumps: the output of `mlcd serve -o json`."""
    return cast(Json, result_json(_result(record)))


def serving_schema() -> Json:
    """The JSON Schema (draft 2020-12) of `serving_json`, and of what `mlcd serve` adds to it."""
    return result_schema(ServeJson, "mlcd serving result")


def _result(record: SearchRun) -> ServeJson:
    facts, found, goal = record.serving, record.serve_findings, record.problem.goal
    miss, paid = found.nearest_miss, found.receipt
    return ServeJson(
        schema=1,
        kind="serve",
        run_id=record.run_id,
        name=record.problem.name,
        created=record.created,
        status=record.status,
        exit_code=record.status.exit_code,
        cloud=record.cloud,
        nominal_prices=record.cloud in ON_THIS_MACHINE,
        strategy=record.strategy,
        seed=record.seed,
        version=record.version,
        model=facts.model if facts else None,
        goal=ServeGoalJson(
            **cast(dict[str, Any], goal_json(goal, text=goal_text(record), serving=True)),
            token_limits=tuple(copied(ServeLimitJson, limit, metric=str(limit.metric)) for limit in goal.token_limits),
        ),
        load=copied(ServeScenarioJson, facts)
        if facts
        else ServeScenarioJson(scenario=None, headroom=None, verify_seconds=None, from_node=False),
        configurations=len(record.problem.space),
        untried=found.untried,
        stopped=record.stopped,
        choice=_choice(record, found.choice) if found.choice else None,
        day=_day(found.day) if found.day else None,
        nearest=_rejected(miss) if miss and found.choice is None else None,
        ways_out=tuple(relaxation.text for relaxation in record.relaxations),
        resembles=_resembles(record),
        receipt=ServeReceiptJson(
            trials=paid.trials,
            failed_trials=paid.failed,
            search_seconds=paid.search_seconds,
            search_usd=paid.search_usd,
            verifications=tuple(_verification(run) for run in (*record.earlier, *filter(None, [record.final]))),
            total_seconds=paid.total_seconds,
            total_usd=paid.total_usd,
        ),
        trials=tuple(_trial(step, meets_goal=step.number in found.met) for step in record.trials),
        why_not=tuple(map(_rejected, found.rejected)),
        notes=facts.notes if facts else (),
    )


def _load(load: Load | None) -> ServeLoadJson | None:
    return None if load is None else copied(ServeLoadJson, load, tokens=_tokens(load.tokens))


def _tokens(tokens: TokenLoad | None) -> ServeTokensJson | None:
    if tokens is None:
        return None
    times = {
        "ttft_seconds": tokens.ttft,
        "tpot_seconds": tokens.tpot,
        "e2e_seconds": tokens.e2e,
        "gaps_seconds": tokens.gaps,
    }
    front = tuple(
        copied(
            ServePaceJson,
            point,
            ttft_p95_seconds=point.ttft_p95,
            tpot_p95_seconds=point.tpot_p95,
            e2e_p95_seconds=point.e2e_p95,
        )
        for point in tokens.front
    )
    return copied(ServeTokensJson, tokens, **times, front=front)


def _choice(record: SearchRun, choice: ServingChoice) -> ServeChoiceJson:
    return copied(
        ServeChoiceJson,
        choice,
        usd_per_hour=record.problem.price(choice.config),
        usd_per_million_requests=choice.usd_per_million,
        load=_load(choice.load),
    )


def _day(day: DayPlan) -> ServeDayJson:
    changes = tuple(copied(ServeChangeJson, change, requests_per_second=change.rates) for change in day.changes)
    return copied(ServeDayJson, day, hourly_requests_per_second=day.rates, changes=changes)


def _resembles(record: SearchRun) -> ServeResemblesJson | None:
    alike = record.serving.resemblance if record.serving else None
    if alike is None:
        return None
    models = tuple(ServeModelJson(name=name, alike=share) for name, share in alike.nearest)
    return copied(ServeResemblesJson, alike, models=models, unseen_operators=alike.unseen)


def _verification(attempt: Attempt) -> ServeVerificationJson:
    return copied(ServeVerificationJson, attempt, held=attempt.is_done, load=_load(attempt.load))


def _trial(step: Step, *, meets_goal: bool) -> ServeTrialJson:
    trial = step.trial
    return ServeTrialJson(
        number=step.number,
        config=trial.config,
        attempt=trial.attempt,
        reason=step.reason,
        usd_per_hour=step.price,
        authorised_usd=step.authorised_usd,
        authorised_seconds=step.shown_authorised_seconds,
        seconds=trial.seconds,
        usd=trial.usd,
        failure=copied(ServeFailureJson, trial) if isinstance(trial, Failure) else None,
        measured=_measured(trial, meets_goal=meets_goal) if isinstance(trial, Measurement) else None,
    )


def _measured(trial: Measurement, *, meets_goal: bool) -> ServeMeasuredJson:
    return copied(
        ServeMeasuredJson,
        trial,
        requests_per_second=trial.samples_per_second,
        meets_goal=meets_goal,
        load=_load(trial.load),
    )


def _rejected(entry: RejectedConfig) -> ServeRejectedJson:
    return copied(
        ServeRejectedJson,
        entry,
        kind=entry.reason,
        requests_per_second=entry.samples_per_second,
        usd_per_million_requests=entry.usd_per_million,
        load=_load(entry.load),
    )
