"""Values as JSON and back: what the store keeps must rebuild the run without the files it came from."""

import dataclasses
import json
import math
from typing import Any, cast

from mlcd.goal import Goal, Objective, Slo
from mlcd.problem import Batching, Blueprint, Problem, Target, TrialPolicy
from mlcd.space import Config, Knob, Space, Value
from mlcd.trial.plan import Plan
from mlcd.trial.record import Naive, Relaxation
from mlcd.trial.trial import Failure, FailureKind, Learned, Load, Measurement, Trial
from mlcd.units import Usd

Json = dict[str, Any]


def dump(value: object) -> str:
    """Compact JSON."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def config_to_json(config: Config) -> Json:
    """In the knobs' order."""
    return config.as_dict()


def config_from_json(data: Json) -> Config:
    """The inverse of config_to_json."""
    return Config.of(data)


def problem_to_json(problem: Problem) -> Json:
    """The whole question, prices and features included."""
    goal, space = problem.goal, problem.space
    return {
        "name": problem.name,
        "work_samples": problem.work_samples,
        "goal": {
            "minimize": goal.minimize.value,
            "deadline_seconds": goal.deadline_seconds,
            "budget_micros": goal.budget.micros if goal.budget else None,
            "slo": dataclasses.asdict(goal.slo) if goal.slo else None,
            "rate": goal.rate,
        },
        "knobs": [
            {
                "name": knob.name,
                "values": list(knob.values),
                "features": [list(knob.features[v]) for v in knob.values] if knob.features is not None else None,
                "log2_sizes": [knob.log2_sizes[v] for v in knob.values] if knob.log2_sizes is not None else None,
                "kinds": [knob.kinds[v] for v in knob.values] if knob.kinds is not None else None,
            }
            for knob in space.knobs
        ],
        "configs": [[value for _, value in config.values] for config in space],
        "usd_per_hour_micros": [price.micros for price in problem.usd_per_hour],
        "trial": dataclasses.asdict(problem.trial),
        "max_trials": problem.max_trials,
        "noise": problem.noise,
        "assurance": problem.assurance,
        "stretch": list(problem.stretch),
        "blueprint": dataclasses.asdict(problem.blueprint) if problem.blueprint else None,
        "keeps_work": problem.keeps_work,
        "work_known": problem.work_known,
        "work_error": problem.work_error,
        "batching": dataclasses.asdict(problem.batching) if problem.batching else None,
        "target": dataclasses.asdict(problem.target) if problem.target else None,
        "verify_seconds": problem.verify_seconds,
    }


def problem_from_json(data: Json) -> Problem:
    """The inverse of problem_to_json."""
    knobs = tuple(
        Knob(
            name=k["name"],
            values=tuple(k["values"]),
            features=None
            if k["features"] is None
            else {v: tuple(f) for v, f in zip(k["values"], k["features"], strict=True)},
            log2_sizes=None if k["log2_sizes"] is None else dict(zip(k["values"], k["log2_sizes"], strict=True)),
            kinds=None if k["kinds"] is None else dict(zip(k["values"], k["kinds"], strict=True)),
        )
        for k in data["knobs"]
    )
    names = [knob.name for knob in knobs]
    configs = tuple(Config(tuple(zip(names, cast(list[Value], values), strict=True))) for values in data["configs"])
    goal = data["goal"]
    return Problem(
        name=data["name"],
        work_samples=data["work_samples"],
        space=Space(knobs, configs),
        goal=Goal(
            minimize=Objective(goal["minimize"]),
            deadline_seconds=goal["deadline_seconds"],
            budget=None if goal["budget_micros"] is None else Usd(goal["budget_micros"]),
            slo=Slo(**goal["slo"]) if goal.get("slo") else None,
            rate=goal.get("rate"),
        ),
        usd_per_hour=tuple(Usd(micros) for micros in data["usd_per_hour_micros"]),
        trial=TrialPolicy(**data["trial"]),
        max_trials=data["max_trials"],
        noise=data["noise"],
        assurance=data["assurance"],
        stretch=tuple(data["stretch"]),
        blueprint=_blueprint(data["blueprint"]) if data["blueprint"] else None,
        keeps_work=data.get("keeps_work", False),
        work_known=data.get("work_known", True),
        work_error=data.get("work_error", 0.0),
        batching=Batching(**data["batching"]) if data.get("batching") else None,
        target=Target(**data["target"]) if data.get("target") else None,
        verify_seconds=data.get("verify_seconds"),
    )


def load_to_json(load: Load) -> Json:
    """What a load test saw."""
    return dataclasses.asdict(load)


def load_from_json(data: Json) -> Load:
    """The inverse of load_to_json."""
    return Load(**data)


def _blueprint(data: Json) -> Blueprint:
    machines = {name: (flops, network) for name, (flops, network) in data["machines"].items()}
    return Blueprint(**{**data, "machines": machines})


def trial_to_json(trial: Trial) -> Json:
    """Told apart by `kind`: "measured", or the kind of failure."""
    common = {
        "config": config_to_json(trial.config),
        "attempt": trial.attempt,
        "seconds": trial.seconds,
        "usd_micros": trial.usd.micros,
        "reached_samples": trial.reached_samples,
    }
    if isinstance(trial, Failure):
        return {"kind": trial.kind.value, **common, "message": trial.message}
    return {
        "kind": "measured",
        **common,
        "samples_per_second": trial.samples_per_second,
        "relative_error": trial.relative_error,
        "iterations": trial.iterations,
        "startup_seconds": trial.startup_seconds,
        "extended": trial.extended,
        "utilisation": trial.utilisation,
        "total_samples": trial.total_samples,
        "load": load_to_json(trial.load) if trial.load else None,
        "noise_scale": None if trial.noise_scale in (None, math.inf) else trial.noise_scale,
        "learned": [[point.samples, point.metric] for point in trial.learned],
    }


def trial_from_json(data: Json) -> Trial:
    """The inverse of trial_to_json."""
    config, usd = config_from_json(data["config"]), Usd(data["usd_micros"])
    reached = data.get("reached_samples", 0.0)  # schema 2 had none
    if data["kind"] != "measured":
        return Failure(
            config=config,
            attempt=data["attempt"],
            kind=FailureKind(data["kind"]),
            message=data["message"],
            seconds=data["seconds"],
            usd=usd,
            reached_samples=reached,
        )
    return Measurement(
        config=config,
        attempt=data["attempt"],
        samples_per_second=data["samples_per_second"],
        relative_error=data["relative_error"],
        iterations=data["iterations"],
        startup_seconds=data["startup_seconds"],
        seconds=data["seconds"],
        usd=usd,
        extended=data["extended"],
        reached_samples=reached,
        utilisation=data.get("utilisation"),
        total_samples=data.get("total_samples"),
        load=load_from_json(data["load"]) if data.get("load") else None,
        noise_scale=data.get("noise_scale"),
        learned=tuple(Learned(samples, metric) for samples, metric in data.get("learned", ())),
    )


def plan_to_json(plan: Plan) -> Json:
    """Money in micro-dollars."""
    return {
        "config": config_to_json(plan.config),
        "seconds": plan.seconds,
        "usd_micros": plan.usd.micros,
        "worst_seconds": plan.worst_seconds,
        "worst_usd_micros": plan.worst_usd.micros,
    }


def plan_from_json(data: Json) -> Plan:
    """The inverse of plan_to_json."""
    return Plan(
        config=config_from_json(data["config"]),
        seconds=data["seconds"],
        usd=Usd(data["usd_micros"]),
        worst_seconds=data["worst_seconds"],
        worst_usd=Usd(data["worst_usd_micros"]),
    )


def naive_to_json(naive: Naive) -> Json:
    """With its plan inside."""
    return {"label": naive.label, "plan": plan_to_json(naive.plan), "measured": naive.measured}


def naive_from_json(data: Json) -> Naive:
    """The inverse of naive_to_json."""
    return Naive(label=data["label"], plan=plan_from_json(data["plan"]), measured=data["measured"])


def relaxation_to_json(relaxation: Relaxation) -> Json:
    """Money in micro-dollars."""
    return {
        "text": relaxation.text,
        "budget_micros": relaxation.budget.micros if relaxation.budget else None,
        "deadline_seconds": relaxation.deadline_seconds,
    }


def relaxation_from_json(data: Json) -> Relaxation:
    """The inverse of relaxation_to_json."""
    budget = data["budget_micros"]
    return Relaxation(
        text=data["text"], budget=None if budget is None else Usd(budget), deadline_seconds=data["deadline_seconds"]
    )
