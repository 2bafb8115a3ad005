"""The job file of `mlcd serverless`: every field in tables, and the same from the command line and from Python."""

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from mlcd.errors import SpecError
from mlcd.goal import Objective
from mlcd.spec.document import document, read_text
from mlcd.spec.flags import with_fields
from mlcd.spec.goals import goal_record
from mlcd.spec.mapping import as_text, tree
from mlcd.spec.node import Bounds, Node
from mlcd.spec.parse import job_name, places_of, strategy
from mlcd.spec.quantity import line_of_text, number, whole
from mlcd.spec.record import Field, Reader, Record
from mlcd.spec.serverless import FunctionResources, FunctionSearch, FunctionWorkload, ServerlessSpec
from mlcd.units import parse_seconds

MOST_FUNCTIONS = 100_000
SYNCS = ("hsp", "bsp", "asp")
_MEANT_SYNC = {
    **dict.fromkeys(("hybrid", "siren"), "hsp"),
    **dict.fromkeys(("sync", "synchronous", "bulk"), "bsp"),
    **dict.fromkeys(("async", "asynchronous"), "asp"),
}
_COUNTS_FORM = "a range such as 1..64, a list such as [1, 2, 4, 8], or a whole number"
_MEMORY_FORM = "megabytes: a list such as [512, 1024, 1769], or one"
_RANGE = re.compile(r"\s*([0-9]{1,9})\s*\.\.\s*([0-9]{1,9})\s*")
_MEMORY = re.compile(r"\s*([0-9]{1,9})\s*(mb|mib|gb|gib)?\s*")
_OWN_MODEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*:[A-Za-z_][A-Za-z0-9_]*")
_MODEL_FORM = "logistic, lenet, text-cnn, or MODULE:FUNCTION of your own"


def functions(node: Node) -> tuple[int, ...]:
    """The numbers of functions to choose from, rising, each once."""
    bounds, value = Bounds(least=1, most=MOST_FUNCTIONS), node.filled().value
    if isinstance(value, str):
        match = _RANGE.fullmatch(value)
        if match is None:
            raise node.error("is not a number of functions", allowed=_COUNTS_FORM)
        first, last = int(match[1]), int(match[2])
        if first > last:
            raise node.error("is an empty range", allowed=_COUNTS_FORM, nearest=f"{last}..{first}")
        if first not in bounds or last not in bounds:
            raise node.error("is out of range", allowed=f"from 1 to {MOST_FUNCTIONS:,} functions")
        return tuple(range(first, last + 1))
    return _each_once(node, lambda item: item.whole(bounds), _COUNTS_FORM)


def memory(node: Node) -> tuple[int, ...]:
    """Memory sizes in MB, rising, each once; `2 GB` is 2,048 of them. Whether a cloud offers them is its to say."""
    return _each_once(node, _megabytes, _MEMORY_FORM)


def _megabytes(node: Node) -> int:
    value = node.filled().value
    if isinstance(value, str):
        match = _MEMORY.fullmatch(value.lower())
        if match is None:
            raise node.error("is not a size of memory", allowed=_MEMORY_FORM)
        node = replace(node, value=int(match[1]) * (1024 if (match[2] or "").startswith("g") else 1))
    return node.whole(Bounds(least=1, most=10**7))


def _each_once(node: Node, read: Reader[int], form: str) -> tuple[int, ...]:
    if isinstance(node.filled().value, Mapping) or node.value == ():
        raise node.error("is nothing to choose from", allowed=form)
    found: list[int] = []
    for item in node.items():
        size = read(item)
        if size in found:
            raise item.error("is given twice")
        found.append(size)
    return tuple(sorted(found))


def model(node: Node) -> str:
    """A model's name, or MODULE:FUNCTION; whether the name is known is the job's to say."""
    name = node.line_of_text(allowed=_MODEL_FORM)
    if ":" in name and not _OWN_MODEL.fullmatch(name):
        raise node.error(
            "does not name a function of a module", allowed="MODULE:FUNCTION, such as my_module:make_model"
        )
    return name


def _limit(node: Node) -> float:
    form = "a duration such as 10min, from 5 s up"
    try:
        seconds = parse_seconds(node.text(allowed=form))
    except ValueError as error:
        raise node.error(str(error).partition(";")[0], allowed=form) from error
    if seconds < 5:
        raise node.error("is out of range", allowed=form)
    return seconds


_RESOURCES = Record(
    make=FunctionResources,
    fields={
        "infra": Field(read=line_of_text),
        "prices": Field(read=line_of_text),
        "settings": Field(read=line_of_text),
    },
    later={
        "instance_type": "functions and memory say what is chosen",
        "use_spot": "",
        "cloud": "write infra, such as infra: lithops/localhost",
    },
)

_WORKLOAD = Record(
    make=FunctionWorkload,
    fields={
        "model": Field(read=model, required=True, allowed=_MODEL_FORM),
        "data": Field(read=line_of_text),
        "batch": Field(read=whole(least=1, most=10**7)),
        "rate": Field(read=number(above=0, most=1e6)),
        "target_loss": Field(read=number(least=-1e12, most=1e12)),
        "max_epochs": Field(read=whole(least=1, most=100_000)),
    },
)

_SEARCH = Record(
    make=FunctionSearch,
    fields={
        "strategy": Field(read=strategy),
        "pushes": Field(read=whole(least=1, most=10_000)),
        "fan_in": Field(read=whole(least=0, most=10_000)),
        "repeats": Field(read=number(least=0, most=1)),
        "limit": Field(read=_limit, into="limit_seconds"),
    },
    later={"max_trials": "there are no trials: each epoch of the training is one", "parallel": "functions says it"},
)


def serverless_record(now: datetime | None = None) -> Record[ServerlessSpec]:
    """The reader of a whole job file; a deadline that is a point in time is counted from `now`."""
    return Record(
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
        later={"num_nodes": "functions says how many", "run": "workload says what is trained"},
    )


def parse_serverless(text: str, *, file: str = "job.yaml", now: datetime | None = None) -> ServerlessSpec:
    """The job that `text` describes; `file` is its name in messages. Raises SpecError for the first mistake."""
    root = document(text, file=file)
    if root.value is None:
        raise SpecError("the file is empty", file=file, line=1, allowed="a job file; docs/serverless.md shows one")
    return replace(_checked(root, now), file=file, source=text)


def read_serverless(path: str | Path, *, now: datetime | None = None) -> ServerlessSpec:
    """The job of a file. Raises SpecError where it cannot be read and as `parse_serverless` does."""
    return parse_serverless(read_text(path), file=str(path), now=now)


def serverless_mapping(job: Mapping[str, object], *, now: datetime | None = None) -> ServerlessSpec:
    """The job that a Python mapping describes, with the fields of a job file; its `source` is the same as YAML."""
    root = tree(job)
    return replace(_checked(root, now), source=as_text(root))


def _checked(root: Node, now: datetime | None) -> ServerlessSpec:
    """The job, and what its fields say together."""
    spec = replace(serverless_record(now)(root), places=places_of(root))
    if spec.goal.minimize is Objective.KNEE:
        raise spec.error(
            "goal.minimize", "functions are scheduled for time or cost", value="knee", allowed="time, cost"
        )
    if not spec.resources.infra.startswith("sim"):
        if spec.workload.target_loss is None:
            raise spec.error(
                "workload.target_loss", "is missing: it says when the training is done", allowed="a number"
            )
        batch, most = spec.workload.batch or DEFAULT_BATCH, spec.functions[-1]
        if most > batch:
            problem = f"more functions than the {batch:,} samples of a batch, of which each takes a part"
            raise spec.error("functions", problem, value=most, allowed=f"at most {batch:,}, or a larger workload.batch")
    return spec


DEFAULT_BATCH = 256
_FLAGS = {
    "on": "resources.infra",
    "budget": "goal.budget",
    "deadline": "goal.deadline",
    "strategy": "search.strategy",
    "sync": "sync",
    "functions": "functions",
    "memory": "memory",
}


def with_function_flags(
    spec: ServerlessSpec, flags: Mapping[str, object], *, now: datetime | None = None, mark: str = "--"
) -> ServerlessSpec:
    """`spec` with flags in place of the file's values; its source says so, too.

    flags  by name: on, budget, deadline, strategy, sync, functions, memory; as text, or as Python's values

    Raises SpecError whose field is the flag after `mark`, such as `--budget`.
    """
    return with_fields(
        spec,
        flags,
        paths=_FLAGS,
        value=_flag_value,
        read=lambda fields: serverless_mapping(fields, now=now),
        mark=mark,
    )


def _flag_value(name: str, value: object) -> object:
    """What a flag's value is in a job file."""
    if not isinstance(value, str):
        return value
    if name == "memory":
        return [part.strip() for part in value.split(",")]
    return int(value) if value.strip().isdigit() else value
