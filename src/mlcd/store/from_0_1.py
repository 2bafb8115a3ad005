"""Converts the rows of a home of version 0.1 (schemas 2 to 5) to schema 6.

Works on rows and JSON only, so later changes of the classes do not affect it; mlcd.codec describes today's form.
Version 0.1 had one pair of tables for trials, one for trainings and verifications, and one for epochs.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlcd.codec import dump
from mlcd.trial.epoch_0_1 import epoch_from_0_1

Json = dict[str, Any]
Row = Mapping[str, Any]

_SAME_IN_PROBLEM = (
    "name", "work_samples", "trial", "max_trials", "noise", "assurance", "stretch", "blueprint", "keeps_work",
    "work_known", "work_error", "batching", "target", "verify_seconds",
)  # fmt: skip
_SAME_IN_HEADER = (
    "run_id", "created", "kind", "cloud", "strategy", "seed", "version", "catalog_date", "parallel",
)  # fmt: skip
_NOT_FINITE = {"Infinity": "inf", "-Infinity": "-inf", "NaN": "nan"}
"""Version 0.1 wrote these in Python's form, which is not JSON."""


@dataclass(frozen=True, kw_only=True)
class OldRun:
    """All rows of one run, in order; a table that its schema did not have is empty.

    trials, finals, epochs  each start joined with its end; a step in flight lacks the columns of the end
    """

    run: Row
    trials: Sequence[Row]
    finals: Sequence[Row]
    epochs: Sequence[Row]
    verdict: Row | None
    training_ended: Row | None


@dataclass(frozen=True, kw_only=True)
class NewRun:
    """The same run as rows of schema 6, each with its columns by name."""

    run: Json
    started: list[Json]
    ended: list[Json]
    verdicts: list[Json]


def converted(old: OldRun) -> NewRun:
    """The run in today's form. Raises KeyError, ValueError or TypeError for data that is not of version 0.1."""
    spec, problem = _loads(old.run["spec"]), _loads(old.run["problem"])
    steps = [_trial(row) for row in old.trials]
    steps += _finals(old, problem, steps)
    steps += _epochs(old)
    return NewRun(
        run=_run(old.run, problem, spec),
        started=[{"run_id": old.run["run_id"], **started} for started, _ in steps],
        ended=[{"run_id": old.run["run_id"], **ended} for _, ended in steps if ended is not None],
        verdicts=[{"run_id": old.run["run_id"], "verdict": dump(verdict)} for verdict in _verdicts(old)],
    )


_Step = tuple[Json, Json | None]
"""A step's row in steps_started, and its row in steps_ended if it has ended; both without the run's name."""


# ---- the run itself


def _run(run: Row, problem: Json, spec: Json) -> Json:
    serverless = run["kind"] == "serverless"
    functions = {"model": spec.pop("model"), "sync": spec.pop("sync")} if serverless else None
    header = {
        **{name: run[name] for name in _SAME_IN_HEADER},
        "simulated": bool(run["simulated"]),
        "serving": spec.pop("serving", None),
        "functions": functions,
    }
    today = {"function-problem": _function_problem(problem)} if serverless else {"problem": _problem(problem)}
    return {"run_id": run["run_id"], "header": dump(header), "problem": dump(today), "spec": dump(spec)}


def _problem(old: Json) -> Json:
    return {
        **{name: old[name] for name in _SAME_IN_PROBLEM if name in old},
        "goal": _goal(old["goal"]),
        "space": {"knobs": old["knobs"], "configs": old["configs"]},
        "usd_per_hour": old["usd_per_hour_micros"],
    }


def _function_problem(old: Json) -> Json:
    return {**old, "goal": _goal(old["goal"])}


def _goal(old: Json) -> Json:
    rest = {name: value for name, value in old.items() if name != "budget_micros"}
    return {**rest, "budget": old["budget_micros"]}


# ---- its steps


def _trial(row: Row) -> _Step:
    same = (
        "number", "round", "attempt", "reason", "usd_per_hour_micros", "authorised_usd_micros", "authorised_seconds",
        "started_seconds", "started_at",
    )  # fmt: skip
    started = {**{name: row[name] for name in same}, "role": "trial", "choice": _config(row["config"])}
    if "outcome" not in row:
        return started, None
    old = _loads(row["outcome"])
    outcome = {name: value for name, value in old.items() if name not in ("kind", "usd_micros")}
    outcome["usd"] = old["usd_micros"]
    if old["kind"] == "measured":
        outcome["learned"] = [{"samples": samples, "metric": metric} for samples, metric in old.get("learned", ())]
        return started, _ended(row["number"], "measured", {"measurement": outcome})
    return started, _ended(row["number"], old["kind"], {"failure": {**outcome, "kind": old["kind"]}})


def _finals(old: OldRun, problem: Json, trials: Sequence[_Step]) -> list[_Step]:
    """Trainings and verifications: numbered after the trials, each a round of its own."""
    number = max((started["number"] for started, _ in trials), default=0)
    last_round = max((started["round"] for started, _ in trials), default=0)
    first_start = min((row["started_at"] for row in (*old.trials, *old.finals)), default=0.0)
    search_seconds = max(
        (started["started_seconds"] + ended["seconds"] for started, ended in trials if ended is not None), default=0.0
    )
    clock = old.verdict["search_seconds"] if old.verdict is not None else search_seconds
    found: list[_Step] = []
    for count, row in enumerate(old.finals, start=1):
        config = _loads(row["config"])
        started = {
            "number": number + count,
            "round": last_round + count,
            "role": "verification" if old.run["kind"] == "serve" else "training",
            "choice": _config(row["config"]),
            "attempt": row["attempt"],  # clouds use it in the names of what they run
            "reason": "",
            "usd_per_hour_micros": _price(problem, config),
            "authorised_usd_micros": row["authorised_usd_micros"],
            "authorised_seconds": row["authorised_seconds"],
            "started_seconds": clock if old.run["simulated"] else row["started_at"] - first_start,
            "started_at": row["started_at"],
        }
        ended = None
        if "kind" in row:
            attempt = {
                "config": config,
                "seconds": row["seconds"],
                "usd": row["usd_micros"],
                "ending": row["kind"],
                "reached_samples": row.get("reached_samples", 0.0),
                "samples_per_second": row.get("samples_per_second"),
                "message": row.get("message", ""),
                "load": _loads(row["load"]) if row.get("load") else None,
            }
            ended = _ended(started["number"], row["kind"], {"attempt": attempt})
            clock += row["seconds"]
        found.append((started, ended))
    return found


def _price(problem: Json, config: Json) -> int | None:
    """Price per hour of a configuration, in micro-dollars, from its problem."""
    row = list(config.values())
    places = [place for place, values in enumerate(problem["configs"]) if values == row]
    return problem["usd_per_hour_micros"][places[0]] if places else None


def _epochs(old: OldRun) -> list[_Step]:
    """A step for each start of an epoch, with the same number."""
    first_start = min((row["started_at"] for row in old.epochs), default=0.0)
    clock = 0.0
    found: list[_Step] = []
    for row in old.epochs:
        fleet = {"functions": row["functions"], "memory_mb": row["memory_mb"], "share": row.get("share", 1.0)}
        started = {
            "number": row["go"],
            "round": row["go"],
            "role": "epoch",
            "choice": dump({"fleet": fleet}),
            "attempt": 1,
            "reason": "",
            "usd_per_hour_micros": None,
            "authorised_usd_micros": row["authorised_usd_micros"],
            "authorised_seconds": row["authorised_seconds"],
            "started_seconds": clock if old.run["simulated"] else row["started_at"] - first_start,
            "started_at": row["started_at"],
        }
        ended = None
        if "outcome" in row:
            data = _loads(row["outcome"])
            tag = "failed-epoch" if data["kind"] == "failed" else "epoch"
            ended = _ended(row["go"], data["kind"], {tag: epoch_from_0_1(data)})
            clock += ended["seconds"]
        found.append((started, ended))
    return found


def _ended(number: int, kind: str, tagged: Json) -> Json:
    (outcome,) = tagged.values()
    return {
        "number": number,
        "kind": kind,
        "seconds": outcome["seconds"],
        "usd_micros": outcome["usd"],
        "outcome": dump(tagged),
    }


def _config(text: str) -> str:
    return dump({"config": _loads(text)})


# ---- what was decided


def _verdicts(old: OldRun) -> list[Json]:
    if old.verdict is not None:
        row = old.verdict
        return [
            {
                "stopped": row["stopped"],
                "search_seconds": row["search_seconds"],
                "choice": _plan(_loads(row["choice"])) if row["choice"] else None,
                "naive": [{**naive, "plan": _plan(naive["plan"])} for naive in _loads(row["naive"])],
                "relaxations": [
                    {"text": r["text"], "budget": r["budget_micros"], "deadline_seconds": r["deadline_seconds"]}
                    for r in _loads(row["relaxations"])
                ],
            }
        ]
    if old.training_ended is not None:
        row = old.training_ended
        return [
            {
                "stopped": row["stopped"],
                "smallest_budget": row["smallest_micros"],
                "instances": [
                    {
                        "name": instance["name"],
                        "usd_per_hour": instance["usd_per_hour_micros"],
                        "seconds": instance["seconds"],
                        "usd": instance["usd_micros"],
                    }
                    for instance in _loads(row["instances"])
                ],
            }
        ]
    return []


def _plan(old: Json) -> Json:
    return {
        "config": old["config"],
        "seconds": old["seconds"],
        "usd": old["usd_micros"],
        "worst_seconds": old["worst_seconds"],
        "worst_usd": old["worst_usd_micros"],
    }


def _loads(text: str) -> Any:
    return json.loads(text, parse_constant=_NOT_FINITE.__getitem__)
