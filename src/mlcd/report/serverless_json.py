"""A training on functions as JSON, with the unit of every number in its key; serverless_types.py has the keys."""

from typing import Any, cast

from mlcd.goal import goal_json
from mlcd.report.result_types import Json, copied, result_json, result_schema
from mlcd.report.serverless import instances_text
from mlcd.report.serverless_types import (
    ServerlessEpochJson,
    ServerlessGoalJson,
    ServerlessInstanceJson,
    ServerlessInstancesJson,
    ServerlessJson,
    ServerlessPhaseJson,
    ServerlessPricesJson,
    ServerlessReceiptJson,
)
from mlcd.run.findings import EpochTotal
from mlcd.run.run import EpochRun
from mlcd.run.step import Step
from mlcd.trial.epoch import Epoch, Phase


def serverless_json(record: EpochRun) -> Json:
    """The whole run, ready for json.dumps: the output of `-o json`."""
    return cast(Json, result_json(_result(record)))


def serverless_schema() -> Json:
    """The JSON Schema (draft 2020-12) of `serverless_json`."""
    return result_schema(ServerlessJson, "mlcd serverless result")


def _result(record: EpochRun) -> ServerlessJson:
    problem, found = record.problem, record.serverless_findings
    better, goal = found.better_instance, cast(dict[str, Any], goal_json(problem.goal))
    return ServerlessJson(
        schema=1,
        kind="serverless",
        run_id=record.run_id,
        name=problem.name,
        created=record.created,
        status=record.status,
        exit_code=record.status.exit_code,
        simulated=record.simulated,
        cloud=record.cloud,
        model=record.function_facts.model,
        model_file=record.model_file or None,
        sync=record.function_facts.sync,
        strategy=record.strategy,
        seed=record.seed,
        version=record.version,
        goal=ServerlessGoalJson(**goal, target_loss=problem.target_loss, max_epochs=problem.max_epochs),
        prices=ServerlessPricesJson(name=problem.prices.name, date=problem.prices.date.isoformat()),
        stopped=record.stopped,
        reached=found.is_target_reached,
        loss=record.epochs[-1].loss if record.epochs else None,
        smallest_budget_usd=record.smallest_budget,
        ways_out=tuple(relaxation.text for relaxation in record.relaxations),
        earlier_runs=record.function_facts.earlier,
        receipt=copied(ServerlessReceiptJson, found.receipt),
        epochs=tuple(_epoch(*each) for each in zip(record.epoch_steps, found.totals, strict=True)),
        instances=ServerlessInstancesJson(
            text=instances_text(record),
            better=None if better is None else copied(ServerlessInstanceJson, better),
            compared=tuple(copied(ServerlessInstanceJson, instance) for instance in record.instances),
        ),
    )


def _epoch(step: Step, total: EpochTotal) -> ServerlessEpochJson:
    done = step.epoch
    shared: dict[str, Any] = {
        "go": step.number,
        "epoch": done.number,
        "functions": done.fleet.functions,
        "memory_mb": done.fleet.memory_mb,
        "share": done.fleet.share,
        "authorised_usd": step.authorised_usd,
        "authorised_seconds": step.shown_authorised_seconds,
        "seconds": done.seconds,
        "usd": done.usd,
        "total_seconds": total.seconds,
        "total_usd": total.usd,
    }
    if not isinstance(done, Epoch):
        return ServerlessEpochJson(**shared, loss=None, failure=done.message)
    return ServerlessEpochJson(
        **shared,
        loss=done.loss,
        failure=None,
        fetch_seconds=_phase(done.fetch),
        compute_seconds=_phase(done.compute),
        update_seconds=_phase(done.update),
        calls=done.calls,
        repeated_calls=done.failed,
        cold_starts=done.cold_starts,
        memory_share=done.memory_share,
        cpu_share=done.cpu_share,
    )


def _phase(phase: Phase) -> ServerlessPhaseJson:
    return ServerlessPhaseJson(mean=phase.mean_seconds, max=phase.max_seconds)
