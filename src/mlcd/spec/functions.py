"""The job file of `mlcd serverless`: tables of its fields, which the command line and Python use too."""

import re
from dataclasses import replace
from datetime import datetime

from mlcd.goal import Objective
from mlcd.spec.choices import Choices
from mlcd.spec.goals import goal_record
from mlcd.spec.infra import one_infra
from mlcd.spec.job_file import Flag, JobFile, as_written
from mlcd.spec.node import Bounds, YamlNode
from mlcd.spec.parse import job_name, strategy
from mlcd.spec.quantity import line_of_text, number, whole
from mlcd.spec.record import Field, FieldTable
from mlcd.spec.serverless import FunctionResources, FunctionSearch, ServerlessSpec, WorkloadSpec
from mlcd.units import parse_seconds

MOST_FUNCTIONS = 100_000
MOST_MEMORY_MB = 10**7
MOST_FLEETS = 400_000
"""Numbers of functions x memory sizes: a scheduler looks at every fleet before every epoch."""
SYNCS = ("hsp", "bsp", "asp")
_MEANT_SYNC = {
    **dict.fromkeys(("hybrid", "siren"), "hsp"),
    **dict.fromkeys(("sync", "synchronous", "bulk"), "bsp"),
    **dict.fromkeys(("async", "asynchronous"), "asp"),
}
_MEMORY_FORM = "megabytes: a list such as [512, 1024, 1769], or one size"
_MEMORY = re.compile(r"\s*([0-9]{1,9})(?:\s*(mb|mib|gb|gib))?\s*")
_OWN_MODEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*:[A-Za-z_][A-Za-z0-9_]*")
_MODEL_FORM = "logistic, lenet, text-cnn, or MODULE:FUNCTION of your own"


def _megabytes(node: YamlNode) -> int:
    value = node.filled().value
    if isinstance(value, str):
        match = _MEMORY.fullmatch(value.lower())
        if match is None:
            raise node.error("is not a memory size", allowed=_MEMORY_FORM)
        node = replace(node, value=int(match[1]) * (1024 if (match[2] or "").startswith("g") else 1))
    return node.whole(Bounds(least=1, most=MOST_MEMORY_MB))


functions = Choices(
    form="a range such as 1..64, a list such as [1, 2, 4, 8], or a whole number",
    most=MOST_FUNCTIONS,
    unit="functions",
    not_one="is not a number of functions",
)
"""The numbers of functions to choose from, in ascending order, without duplicates."""

memory = Choices(form=_MEMORY_FORM, most=MOST_MEMORY_MB, ranges=False, each=_megabytes)
"""Memory sizes in MB, in ascending order, without duplicates; `2 GB` is 2,048 MB. The cloud checks what it offers."""


def model(node: YamlNode) -> str:
    """A model's name, or MODULE:FUNCTION. Whether the name is known is checked when the job is prepared."""
    name = node.line_of_text(allowed=_MODEL_FORM)
    if ":" in name and not _OWN_MODEL.fullmatch(name):
        raise node.error(
            "does not name a function of a module", allowed="MODULE:FUNCTION, such as my_module:make_model"
        )
    return name


def _limit(node: YamlNode) -> float:
    form = "a duration such as 10min, from 5 s up"
    try:
        seconds = parse_seconds(node.text(allowed=form))
    except ValueError as error:
        raise node.error(str(error).partition(";")[0], allowed=form) from error
    if seconds < 5:
        raise node.error("is out of range", allowed=form)
    return seconds


_RESOURCES = FieldTable(
    make=FunctionResources,
    fields={
        "infra": Field(read=one_infra),
        "prices": Field(read=line_of_text),
        "settings": Field(read=line_of_text),
    },
    later={
        "instance_type": "use functions and memory instead",
        "use_spot": "",
        "cloud": "write infra, such as infra: lithops/localhost",
    },
)

_WORKLOAD = FieldTable(
    make=WorkloadSpec,
    fields={
        "model": Field(read=model, required=True, allowed=_MODEL_FORM),
        "data": Field(read=line_of_text),
        "batch": Field(read=whole(least=1, most=10**7)),
        "rate": Field(read=number(above=0, most=1e6)),
        "target_loss": Field(read=number(least=-1e12, most=1e12)),
        "max_epochs": Field(read=whole(least=1, most=100_000)),
    },
    later={"target_accuracy": "write target_loss: the loss at which the training ends"},
    meant={"learning_rate": "rate", "lr": "rate", "loss": "target_loss"},
)

_SEARCH = FieldTable(
    make=FunctionSearch,
    fields={
        "strategy": Field(read=strategy),
        "pushes": Field(read=whole(least=1, most=10_000)),
        "fan_in": Field(read=whole(least=0, most=10_000)),
        "repeats": Field(read=number(least=0, most=1)),
        "limit": Field(read=_limit, into="limit_seconds"),
    },
    later={"max_trials": "a serverless job has epochs, not trials", "parallel": "use functions instead"},
)


def serverless_record(now: datetime | None = None) -> FieldTable[ServerlessSpec]:
    """The reader of a whole job file; a deadline that is a point in time is counted from `now`."""
    return FieldTable(
        make=ServerlessSpec,
        fields={
            "name": Field(read=job_name, required=True, allowed="a name such as ctr-logreg"),
            "resources": Field(read=_RESOURCES),
            "workload": Field(read=_WORKLOAD, required=True, allowed="{model: logistic, target_loss: 0.35, ...}"),
            "functions": Field(read=functions),
            "memory": Field(read=memory, into="memory_mb"),
            "sync": Field(read=lambda node: node.choice(SYNCS, meant=_MEANT_SYNC)),
            "goal": Field(read=goal_record(now), required=True, allowed="{minimize: time | cost, budget: 3 USD}"),
            "search": Field(read=_SEARCH),
        },
        later={"num_nodes": "use functions instead", "run": "use workload instead"},
        meant={"workers": "functions"},
    )


def _checked(spec: ServerlessSpec) -> ServerlessSpec:
    """The job, after the checks that involve several fields. Raises SpecError."""
    if spec.goal.minimize is Objective.KNEE:
        raise spec.error(
            "goal.minimize", "functions are scheduled for time or cost", value="knee", allowed="time, cost"
        )
    fleets = len(spec.functions) * len(spec.memory_mb)
    if fleets > MOST_FLEETS:
        raise spec.error("functions", f"with memory makes {fleets:,} fleets", allowed=f"at most {MOST_FLEETS:,}")
    target = spec.workload.target_loss
    if target is not None and target <= 0 and ":" not in spec.workload.model:
        problem = f"the loss of {spec.workload.model} never gets this low: it is above 0"
        raise spec.error("workload.target_loss", problem, value=target, allowed="a number more than 0, such as 0.35")
    if not spec.resources.infra.startswith("sim"):
        if target is None:
            raise spec.error(
                "workload.target_loss", "is missing: the training ends when it is reached", allowed="a number"
            )
        batch, most = spec.workload.batch or DEFAULT_BATCH, spec.functions[-1]
        if most > batch:
            problem = f"more functions than the {batch:,} samples of a batch; each function needs at least one"
            raise spec.error("functions", problem, value=most, allowed=f"at most {batch:,}, or a larger workload.batch")
    return spec


DEFAULT_BATCH = 256


def _sizes(value: object) -> object:
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


SERVERLESS = JobFile(
    command="serverless",
    record=serverless_record,
    check=_checked,
    flags={
        "on": Flag(path="resources.infra"),
        "budget": Flag(path="goal.budget"),
        "deadline": Flag(path="goal.deadline"),
        "strategy": Flag(path="search.strategy"),
        "sync": Flag(path="sync"),
        "functions": Flag(path="functions", spell=as_written),
        "memory": Flag(path="memory", spell=_sizes),
    },
    sample="docs/serverless.md shows one",
)
"""Job files of `mlcd serverless`."""
parse_serverless = SERVERLESS.parse
read_serverless = SERVERLESS.read
serverless_mapping = SERVERLESS.from_mapping
with_function_flags = SERVERLESS.with_flags
