"""The job file of `mlcd train`: tables of its fields, which read text, files and Python mappings."""

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from mlcd.catalog import Accelerator, parse_accelerator
from mlcd.catalog.accelerators import MOST_PER_NODE
from mlcd.errors import nearest
from mlcd.plugins import is_object_name
from mlcd.problem import MOST_SLOWDOWN
from mlcd.spec.batches import LEARNING_RATE, TARGET, batches, pricing
from mlcd.spec.choices import Choices
from mlcd.spec.counts import node_counts
from mlcd.spec.data import DATA
from mlcd.spec.goals import goal_record
from mlcd.spec.infra import infra
from mlcd.spec.job_file import Flag, JobFile, as_written
from mlcd.spec.knobs import knob_values, settings
from mlcd.spec.node import Bounds, YamlNode
from mlcd.spec.quantity import flag, line_of_text, minutes, number, text, whole
from mlcd.spec.real import file_mounts, platform, prices, progress, relative_paths, secret_names
from mlcd.spec.record import Field, FieldTable
from mlcd.spec.spot import SPOT, use_spot
from mlcd.spec.train import Resources, SearchSettings, TrainSpec, TrialRules, Work
from mlcd.transformer import Transformer

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_NAME_FORM = "letters, digits and . _ - (at most 80, a letter or digit first)"
_TYPE = re.compile(r"[A-Za-z0-9*?\[\]!._+:/-]+")
_TYPE_FORM = "names such as g6.xlarge, globs such as c7i.*, or a named set such as aws-gpu"
_ACCELERATOR_FORM = "a name such as H100, or with the number a node has: H100:8"
_PER_NODE = Choices(form="how many a node has: 1, [1, 2] or 1..2", most=MOST_PER_NODE)
_ENV = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPTION = r"[a-z][a-z0-9_-]*=[^,=\s]+"
PRESET = "paper"
"""The one word that needs no value: the preset of heterbo (mlcd.search.heterbo)."""
_STRATEGY = re.compile(rf"[a-z][a-z0-9-]*(?::(?P<options>(?:{PRESET}|{_OPTION})(?:,{_OPTION})*))?")
_TOPOLOGIES = ("ring", "ps")
_MEANT_TOPOLOGY = {
    **dict.fromkeys(("allreduce", "all-reduce", "ring-allreduce", "ring-all-reduce"), "ring"),
    **dict.fromkeys(("parameter-server", "parameter_server", "parameterserver"), "ps"),
}
WORKS = ("thrown", "kept", "beside")
"""What may become of the work of trials."""
_WEEK_MINUTES = 7 * 24 * 60


def job_name(node: YamlNode) -> str:
    """A job name. It is valid as part of a file name and of a cluster name."""
    name = node.text(allowed=_NAME_FORM)
    if not _NAME.fullmatch(name):
        raise node.error("is not a valid job name", allowed=_NAME_FORM, nearest=_slug(name))
    return name


def instance_types(node: YamlNode) -> tuple[str, ...]:
    """Names, globs and sets, without duplicates. The catalog checks whether they exist."""
    types: list[str] = []
    for item in node.items():
        name = item.text(allowed=_TYPE_FORM)
        if not _TYPE.fullmatch(name):
            split = [part for part in re.split(r"[,\s]+", name) if _TYPE.fullmatch(part)]
            meant = f"[{', '.join(split)}]" if len(split) > 1 else ""
            raise item.error("is not a valid instance type", allowed=_TYPE_FORM, nearest=meant)
        if name in types:
            raise item.error("is given twice")
        types.append(name)
    if not types:
        raise node.error("must not be empty", allowed=_TYPE_FORM)
    return tuple(types)


def accelerators(node: YamlNode) -> tuple[Accelerator, ...]:
    """`H100:8`, `H100`, a list of such, or a mapping such as `{L4: 1, A100: 1..2}`. The catalog checks them."""
    found: list[Accelerator] = []
    if isinstance(node.value, Mapping):
        items = [
            (child, name if count is None else f"{name}:{count}")
            for name, child in node.mapping().items()
            for count in ((None,) if child.value is None else _PER_NODE(child))
        ]
    else:
        for item in node.items():
            if isinstance(item.value, int | float):
                raise item.error("is a number", allowed=_ACCELERATOR_FORM, nearest=f"resources.gpus: {item.written}")
        items = [(item, item.text(allowed=_ACCELERATOR_FORM)) for item in node.items()]
    for item, written in items:
        accelerator = parse_accelerator(written)
        if accelerator is None:
            count = re.fullmatch(
                r"(?:(?P<n>[0-9]{1,4}) ?[xX*] ?)?(?P<name>[A-Za-z][\w-]*)(?: ?[xX*] ?(?P<m>[0-9]{1,4}))?", written
            )
            meant = f"{count['name']}:{count['n'] or count['m']}" if count and (count["n"] or count["m"]) else ""
            raise item.error("is not an accelerator", allowed=_ACCELERATOR_FORM, nearest=meant)
        if accelerator in found:
            raise item.error("is given twice")
        found.append(accelerator)
    if not found:
        raise node.error("must not be empty", allowed=_ACCELERATOR_FORM)
    return tuple(found)


def strategy(node: YamlNode) -> str:
    """`NAME`, `NAME:OPTION=VALUE,...`, `NAME:PRESET`, or an object's name. The strategies check whether they exist."""
    form = "NAME or NAME:OPTION=VALUE,..., such as heterbo:prune=off,start=2"
    value = node.text(allowed=form)
    if is_object_name(value):
        return value
    match = _STRATEGY.fullmatch(value)
    if match is None:
        name, _, word = value.partition(":")
        preset = nearest(word, (PRESET,))
        raise node.error("is not a strategy with options", allowed=form, nearest=f"{name}:{preset}" if preset else "")
    options = [option.partition("=")[0] for option in (match["options"] or "").split(",")]
    for option in options:
        if options.count(option) > 1:
            raise node.error(f"gives the option {option!r} twice", allowed=form)
    return value


_GPUS_FORM = "a range such as 1..8, a list such as [1, 2, 4], 0 for none, or shares of one such as [0.25, 0.5, 1]"


def gpus(node: YamlNode) -> tuple[float, ...]:
    """`1..8`, `[0.25, 0.5, 1]` or `0`: GPUs of a node, in ascending order."""
    found = []
    for value in knob_values(node):
        if isinstance(value, str | bool) or not 0 <= value <= MOST_PER_NODE or (value > 1 and value % 1):
            raise node.error("is not a number of GPUs", allowed=_GPUS_FORM)
        found.append(float(value))
    return tuple(sorted(found))


def environment(node: YamlNode) -> dict[str, str | None]:
    """Environment variables by name; a number keeps the text that was written. None must be given: `--env NAME=VALUE`.

    Values may be keys: no message shows one.
    """
    variables: dict[str, str | None] = {}
    if not isinstance(node.filled().value, Mapping):
        raise node.unshown("must be a mapping of names to values", allowed="{NAME: value}")
    for name, child in node.mapping().items():
        if not _ENV.fullmatch(name):
            raise child.unshown("is not a valid variable name", allowed="letters, digits and _, no digit first")
        if isinstance(child.value, tuple | Mapping):
            raise child.unshown("must be text")
        is_number = isinstance(child.value, int | float) and not isinstance(child.value, bool)
        variables[name] = None if child.value is None else child.written if is_number else child.text()
    return variables


def _topology(node: YamlNode) -> str:
    return node.choice(_TOPOLOGIES, meant=_MEANT_TOPOLOGY)


def _work(node: YamlNode) -> str:
    return node.choice(WORKS, meant={"parallel": "beside", "discarded": "thrown", "keep": "kept"})


RESOURCES = FieldTable(
    make=Resources,
    fields={
        "infra": Field(read=infra),
        "instance_type": Field(read=instance_types),
        "accelerators": Field(read=accelerators),
        "use_spot": Field(read=use_spot),
        "prices": Field(read=prices),
        "region": Field(read=line_of_text),
        "zone": Field(read=line_of_text),
        "image_id": Field(read=line_of_text),
        "warm_workers": Field(read=flag),
        "gpus": Field(read=gpus),
    },
    later={
        "cloud": "write infra, such as infra: sim/aws",
        "cpus": "choose types by instance_type",
        "memory": "choose types by instance_type",
        **dict.fromkeys(("disk_size", "ports", "any_of"), ""),
    },
    meant={"gpu": "gpus", "spot": "use_spot", "type": "instance_type"},
)

_SIZE = number(least=1, most=1e15)
_TRANSFORMER = FieldTable(
    make=Transformer,
    fields={
        "parameters": Field(read=_SIZE, required=True, allowed="such as 1.3e9"),
        "layers": Field(read=whole(least=1, most=100_000), required=True),
        "hidden": Field(read=whole(least=1, most=10**7), required=True),
        "heads": Field(read=whole(least=1, most=10**6), required=True),
        "sequence": Field(read=whole(least=1, most=10**9), required=True, allowed="tokens of one sample"),
    },
    meant={"params": "parameters", "width": "hidden", "hidden_size": "hidden", "seq": "sequence", "depth": "layers"},
)


def _model(node: YamlNode) -> str | Transformer:
    """A name, or the sizes of a transformer."""
    return _TRANSFORMER(node) if isinstance(node.value, Mapping) else line_of_text(node)


def _samples(node: YamlNode) -> float:
    found = node.number(Bounds(above=0, most=1e18))
    if found != int(found):
        raise node.error("must be a whole number", allowed="a whole number, at least 1")
    return found


def _batch(node: YamlNode) -> int:
    if isinstance(node.value, tuple):
        raise node.error("is the one batch of the job", allowed="to choose it, batch: [32, 64] at the top of the file")
    return node.whole(Bounds(least=1, most=10**9))


def _work_of(*, model: str | Transformer | None = None, **given: Any) -> Work:
    if isinstance(model, Transformer):
        return Work(transformer=model, **given)
    return Work(model=model, **given)


WORK = FieldTable(
    make=_work_of,
    fields={
        "samples": Field(read=_samples),
        "epochs": Field(read=number(above=0, most=1e9)),
        "model": Field(read=_model),
        "batch": Field(read=_batch),
        "topology": Field(read=_topology),
        "workload": Field(read=line_of_text),
        "hours": Field(read=number(above=0, most=87_600)),
        "target": Field(read=TARGET),
    },
    later=dict.fromkeys(("steps", "max_steps", "iterations"), "write samples instead: steps x batch"),
)

TRIAL = FieldTable(
    make=lambda **given: TrialRules(tuple(given.items())),
    fields={
        "minutes": Field(read=minutes(above=0, most=_WEEK_MINUTES), into="seconds"),
        "extra_minutes_per_3_nodes": Field(read=minutes(least=0, most=_WEEK_MINUTES), into="extra_seconds_per_3_nodes"),
        "extension": Field(read=number(least=0, most=10)),
        "watchdog_minutes": Field(read=minutes(least=0, most=_WEEK_MINUTES), into="watchdog_seconds"),
        "precision": Field(read=number(above=0, below=1)),
        "retries": Field(read=whole(least=0, most=100)),
    },
    meant={"seconds": "minutes", "hours": "minutes", "watchdog": "watchdog_minutes"},
)

SEARCH = FieldTable(
    make=SearchSettings,
    fields={
        "strategy": Field(read=strategy),
        "max_trials": Field(read=whole(least=1, most=100_000)),
        "parallel": Field(read=whole(least=1, most=1000)),
        "assurance": Field(read=number(least=0.5, below=1)),
        "noise": Field(read=number(least=0, below=1)),
        "slowdown": Field(read=number(least=0, most=MOST_SLOWDOWN)),
        "work": Field(read=_work),
        "restart_minutes": Field(read=minutes(least=0, most=_WEEK_MINUTES), into="restart_seconds"),
        "spot": Field(read=SPOT),
        "trial": Field(read=TRIAL),
    },
    later={"seed": "give --seed on the command line"},
    meant={"timeout": "goal.deadline", "trials": "max_trials"},
)


def train_record(now: datetime | None = None) -> FieldTable[TrainSpec]:
    """The reader of a whole job file; a deadline that is a point in time is counted from `now`."""
    return FieldTable(
        make=TrainSpec,
        fields={
            "name": Field(read=job_name, required=True, allowed=_NAME_FORM),
            "resources": Field(read=RESOURCES),
            "num_nodes": Field(read=node_counts),
            "batch": Field(read=batches),
            "knobs": Field(read=settings),
            "data": Field(read=DATA),
            "learning_rate": Field(read=LEARNING_RATE),
            "pricing": Field(read=pricing),
            "workdir": Field(read=line_of_text),
            "envs": Field(read=environment),
            "secrets": Field(read=secret_names),
            "file_mounts": Field(read=file_mounts),
            "setup": Field(read=text),
            "run": Field(read=text),
            "platform": Field(read=platform),
            "progress": Field(read=progress),
            "checkpoints": Field(read=flag),
            "outputs": Field(read=relative_paths),
            "job": Field(read=WORK),
            "goal": Field(read=goal_record(now), required=True, allowed="{minimize: time | cost | knee, ...}"),
            "search": Field(read=SEARCH),
        },
        later={
            **dict.fromkeys(("volumes", "service", "config"), ""),
        },
        meant={
            "spot": "resources.use_spot",
            "gpus": "resources.gpus",
            "gpu": "resources.gpus",
            "cloud": "resources.infra",
            "nodes": "num_nodes",
            "command": "run",
            "script": "run",
        },
    )


def _checked(spec: TrainSpec) -> TrainSpec:
    """The job. One with a command and nothing to simulate runs on this machine."""
    if "resources.infra" not in spec.places and spec.run.strip() and spec.job.model is None:
        return replace(spec, resources=replace(spec.resources, infra="local"))
    return spec


def _slug(name: str) -> str:
    """`name` with the characters that are not allowed replaced, or "" if none remain."""
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")[:80]
    return slug if _NAME.fullmatch(slug) else ""


TRAIN = JobFile(
    command="train",
    record=train_record,
    check=_checked,
    flags={
        "goal": Flag(path="goal"),
        "on": Flag(path="resources.infra"),
        "budget": Flag(path="goal.budget", spell=as_written),
        "deadline": Flag(path="goal.deadline"),
        "strategy": Flag(path="search.strategy"),
        "parallel": Flag(path="search.parallel", spell=as_written),
        "envs": Flag(path="envs", each=True),
    },
    sample="`mlcd init` writes one",
)
"""Job files of `mlcd train`."""
parse_train = TRAIN.parse
read_train = TRAIN.read
spec_from_mapping = TRAIN.from_mapping
