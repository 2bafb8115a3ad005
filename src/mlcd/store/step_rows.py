"""Steps and function calls as rows of the store, and back."""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from decimal import Decimal
from typing import Any, TypeAlias

from mlcd import codec
from mlcd.run.attempt import Attempt
from mlcd.run.authorisation import Authorisation, Choice
from mlcd.run.moment import Moment
from mlcd.run.step import Outcome, Role, Step
from mlcd.trial.call import FunctionCall
from mlcd.trial.epoch import Epoch
from mlcd.trial.trial import Failure, Measurement
from mlcd.trial.watched import Watch
from mlcd.units import Usd

Decode: TypeAlias = Callable[[str, object, Any], Any]
"""(what it is, its stored text, its type) -> the value; raises StoreError that says what it is."""
_CALL_FIELDS = tuple(field.name for field in fields(FunctionCall))


def started_row(run_id: str, step: Step) -> dict[str, object]:
    """What is known of a step when it starts."""
    permission = step.authorisation
    return {
        "run_id": run_id,
        "number": step.number,
        "round": step.round,
        "role": step.role.value,
        "choice": codec.encode(permission.choice, Choice),
        "attempt": permission.attempt,
        "reason": step.reason,
        "usd_per_hour_micros": None if step.usd_per_hour is None else step.usd_per_hour.micros,
        "authorised_usd_micros": permission.usd.micros,
        "authorised_seconds": permission.seconds,
        "started_seconds": step.started_seconds,
        "started_at": step.started_at,
        "started_moment": _encoded(step.started_moment),
        "watch": _encoded(step.watch),
    }


def ended_row(run_id: str, step: Step, outcome: Outcome) -> dict[str, object]:
    """What became of a step."""
    return {
        "run_id": run_id,
        "number": step.number,
        "kind": _short_kind(outcome),
        "seconds": outcome.seconds,
        "usd_micros": outcome.usd.micros,
        "outcome": codec.encode(outcome, Outcome),
        "ended_seconds": step.ended_seconds,
        "ended_moment": _encoded(step.ended_moment),
    }


def step_from(row: Mapping[str, Any], ended: Mapping[str, Any] | None, decode: Decode) -> Step:
    """A step from the rows of its start and, where there is one, of its end."""
    number, rate = row["number"], row["usd_per_hour_micros"]

    def moment(what: str, text: str | None) -> Moment | None:
        return None if text is None else decode(what, text, Moment)

    started = Step(
        number=number,
        round=row["round"],
        role=Role(row["role"]),
        authorisation=Authorisation(
            choice=decode(f"choice of step {number}", row["choice"], Choice),
            attempt=row["attempt"],
            usd=Usd(row["authorised_usd_micros"]),
            seconds=row["authorised_seconds"],
        ),
        reason=row["reason"],
        usd_per_hour=None if rate is None else Usd(rate),
        started_seconds=row["started_seconds"],
        started_at=row["started_at"],
        started_moment=moment(f"start of step {number}", row["started_moment"]),
        watch=None if row["watch"] is None else decode(f"watch of step {number}", row["watch"], Watch),
    )
    if ended is None:
        return started
    return replace(
        started,
        outcome=decode(f"outcome of step {number}", ended["outcome"], Outcome),
        ended_seconds=ended["ended_seconds"],
        ended_moment=moment(f"end of step {number}", ended["ended_moment"]),
    )


def call_row(run_id: str, step: Step, call: FunctionCall) -> dict[str, object]:
    """A call of a function in an epoch."""
    values = {name: getattr(call, name) for name in _CALL_FIELDS}
    plain = {name: str(value) if isinstance(value, Decimal) else value for name, value in values.items()}
    return {"run_id": run_id, "number": step.number, **plain}


def call_from(row: Mapping[str, Any]) -> FunctionCall:
    """The call in a row."""
    return codec.from_json({name: row[name] for name in _CALL_FIELDS}, FunctionCall)


def _encoded(value: Moment | Watch | None) -> str | None:
    return None if value is None else codec.encode(value)


def _short_kind(outcome: Outcome) -> str:
    if isinstance(outcome, Measurement):
        return "measured"
    if isinstance(outcome, Failure):
        return outcome.kind.value
    if isinstance(outcome, Attempt):
        return outcome.ending.value
    return "done" if isinstance(outcome, Epoch) else "failed"
