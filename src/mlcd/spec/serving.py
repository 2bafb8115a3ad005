"""The job file of `mlcd serve`: tables of its fields, which the command line and Python use too."""

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from mlcd.errors import SpecError, nearest
from mlcd.goal import Goal, Objective, Slo
from mlcd.loadgen.plan import MOST_CONNECTIONS, Scenario
from mlcd.server.options import Precision
from mlcd.server.tensors import TensorSpec, input_of
from mlcd.spec.choices import Choices
from mlcd.spec.document import STANDARD_INPUT
from mlcd.spec.infra import one_infra
from mlcd.spec.job_file import Flag, JobFile, as_written
from mlcd.spec.knobs import server_settings
from mlcd.spec.node import Bounds, YamlNode, shortened
from mlcd.spec.parse import accelerators, instance_types, job_name, strategy
from mlcd.spec.quantity import budget, deadline, flag, line_of_text, number, text, whole
from mlcd.spec.real import file_mounts, prices, secret_names
from mlcd.spec.record import Field, FieldTable, Reader
from mlcd.spec.serve import Api, LoadSettings, ServeSpec, ServingKnobs, ServingResources, ServingSearch
from mlcd.spec.server import SERVER, STREAMS, TOKENS, lengths, token_limits, token_load
from mlcd.spec.serving_checks import checked
from mlcd.spec.train import TrialRules
from mlcd.units import parse_seconds
from mlcd.untrusted import Malformed, expanded

PRECISIONS = tuple(precision.value for precision in Precision)
SWITCH = ("off", "on")
PERCENTILES = ("p50", "p95", "p99")
NUM_NODES = "write resources: {replicas: 1..3}, the number of servers, each on a node of its own"
JOB_FILES = (".yaml", ".yml")
"""Suffixes of job files; any other file is a model."""
MOST_LATENCY_SECONDS = 3600.0
MOST_REPLICAS = 100
"""Servers at the same time: each has a port of its own, of those that a lease has."""

_LATENCY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*(ms|msec|milliseconds?|s|sec|seconds?|us|µs)\s*")
_LATENCY_FORM = "a time such as 50ms or 0.2s"
_RATE = re.compile(r"\s*([0-9][0-9_,]*(?:\.[0-9]+)?)(?:\s*(?:requests?|req|rps|qps))?(?:\s*/\s*s(?:ec(?:ond)?)?)?\s*")
_RATE_FORM = "requests per second, such as 500/s or 500"
_SLO_FORM = "{p99: 50ms}; p50 and p95 are allowed too"
_REQUESTS_PER_DOLLAR, _TOKENS_PER_DOLLAR, _REQUEST_RATE = "requests per dollar", "tokens per dollar", "rate"
_MEANT_MOST = {
    **dict.fromkeys(("requests-per-dollar", "requests_per_dollar", "rpd", "value", "cost"), _REQUESTS_PER_DOLLAR),
    **dict.fromkeys(("throughput", "speed", "qps", "rps", "requests", "requests/s"), _REQUEST_RATE),
}
_MEANT_TOKENS = {
    **dict.fromkeys(("tokens-per-dollar", "tokens_per_dollar", "value", "cost"), _TOKENS_PER_DOLLAR),
    **dict.fromkeys(("requests per dollar", "tokens"), _TOKENS_PER_DOLLAR),
    **dict.fromkeys(("tokens/s", "tokens per second", "goodput"), _REQUEST_RATE),
}
_IN_FLIGHT, _RANDOM = "in-flight", "random"
_MEANT_ARRIVALS = {
    **dict.fromkeys(("closed", "concurrency", "closed-loop", "in flight", "in_flight"), _IN_FLIGHT),
    **dict.fromkeys(("open", "poisson", "open-loop", "rate"), _RANDOM),
}
_MEANT_PLACES = {name: f"goal.{name}" for name in ("slo", "rate", "budget", "deadline", "maximize", "minimize")}
"""`goal` has several forms, so its fields are not among the places that are suggested by themselves."""
_HERE, _NODE = "here", "node"
_MEANT_SENDER = {
    **dict.fromkeys(("local", "mlcd", "this machine", "localhost", "client"), _HERE),
    **dict.fromkeys(("nodes", "second node", "second", "own node", "remote", "cloud"), _NODE),
}
_MEANT_SCENARIO = {
    **dict.fromkeys(("poisson", "open"), "server"),
    **dict.fromkeys(("singlestream", "single_stream", "single"), "single-stream"),
    **dict.fromkeys(("multistream", "multi_stream", "multi"), "multi-stream"),
    **dict.fromkeys(("batch", "throughput"), "offline"),
}


LEAST_RATE = 1e-6
"""Requests per second: one in eleven days. Nobody sizes a server for less, and much less is beyond arithmetic."""


def latency(node: YamlNode) -> float:
    """`50ms`, `0.2s` as seconds."""
    value = node.filled().value
    if isinstance(value, int | float) and not isinstance(value, bool):
        unit = "s" if 0 < value < 1 else "ms"
        raise node.error("a latency needs a unit", allowed=_LATENCY_FORM, nearest=f"{value:g}{unit}")
    match = _LATENCY.fullmatch(value.lower()) if isinstance(value, str) else None
    if match is None:
        raise node.error("is not a latency", allowed=_LATENCY_FORM)
    scale = {"m": 1e-3, "s": 1.0, "u": 1e-6, "µ": 1e-6}[match[2][0]]
    seconds = float(match[1]) * scale
    if not 0 < seconds <= MOST_LATENCY_SECONDS:
        raise node.error("is out of range", allowed="more than 0 and at most an hour")
    return seconds


def rate(node: YamlNode) -> float:
    """`500/s`, `500 requests/s`, `500` as requests per second."""
    value = node.filled().value
    if isinstance(value, str):
        match = _RATE.fullmatch(value.lower())
        if match is None:
            raise node.error("is not a rate", allowed=_RATE_FORM)
        node = replace(node, value=float(match[1].replace(",", "").replace("_", "")))
    return node.number(Bounds(least=LEAST_RATE, most=1e9), unit="requests per second")


def slo(node: YamlNode) -> Slo:
    """`{p99: 50ms}`: one percentile of the latency and its limit."""
    given = node.mapping(allowed="{p99: 50ms}")
    for name, child in given.items():
        if name not in PERCENTILES:
            near = nearest(name.lower(), PERCENTILES)
            raise SpecError(
                "is not a percentile that is measured",
                file=child.file,
                line=child.line,
                field=child.path,
                allowed=_SLO_FORM,
                nearest=near,
            )
    if len(given) != 1:
        raise node.error("must have exactly one percentile with its limit", allowed=_SLO_FORM)
    ((name, child),) = given.items()
    return Slo(seconds=latency(child), percentile=int(name[1:]))


def counts(most: int) -> Choices:
    """A reader of whole numbers to choose from: a list, a range, or one number; sorted, without duplicates."""
    return Choices(form="a list such as [1, 4, 16], a range such as 1..2, or a whole number", most=most)


def precisions(node: YamlNode) -> tuple[str, ...]:
    """`[fp32, int8]`, without duplicates."""
    meant = {"float32": "fp32", "float": "fp32", "float16": "fp16", "half": "fp16", "bfloat16": "bf16"}
    meant |= {"qint8": "int8", "quantized": "int8"}
    found: list[str] = []
    for item in node.items():
        name = item.choice(PRECISIONS, meant=meant)
        if name in found:
            raise item.error("is given twice")
        found.append(name)
    if not found:
        raise node.error("must not be empty", allowed=", ".join(PRECISIONS))
    return tuple(found)


def switches(node: YamlNode) -> tuple[str, ...]:
    """`[off, on]`, without duplicates; YAML reads both words as booleans."""
    found = []
    for item in node.items():
        value = item.filled().value
        name = SWITCH[value] if isinstance(value, bool) else item.choice(SWITCH)
        if name in found:
            raise item.error("is given twice")
        found.append(name)
    if not found:
        raise node.error("must not be empty", allowed="[off, on]")
    return tuple(found)


def inputs(node: YamlNode) -> tuple[TensorSpec, ...]:
    """`{image: FP32:3x224x224}`: the inputs of one item, in the order in which the model takes them."""
    form = "a type and the sizes of one item, such as FP32:3x224x224"
    found = []
    for name, child in node.mapping().items():
        spec = input_of(f"{name}={child.line_of_text(allowed=form)}")
        if spec is None:
            raise child.error("is not an input", allowed=form)
        found.append(spec)
    return tuple(found)


def sizes(node: YamlNode) -> Mapping[str, int]:
    """`{sequence: 128}`: the sizes of the model's open axes, by name."""
    bounds = Bounds(least=1, most=10**7)
    return {name: child.whole(bounds) for name, child in node.mapping().items()}


def _least(node: YamlNode) -> str:
    if isinstance(node.value, str) and node.value.lower() in ("latency", "time", *PERCENTILES):
        raise node.error("is limited, not minimized", allowed="{maximize: rate, slo: {p99: 50ms}}, or minimize: cost")
    return node.choice(("cost",), meant={"price": "cost", "money": "cost"})


def _goal(now: datetime | None, *, tokens: bool = False) -> Reader[Goal]:
    """The reader of a goal; `tokens`: of a language model, whose answers are counted in tokens."""
    per_dollar = _TOKENS_PER_DOLLAR if tokens else _REQUESTS_PER_DOLLAR
    meant = {**_MEANT_MOST, **_MEANT_TOKENS} if tokens else _MEANT_MOST
    limits = Field(read=lambda node: token_limits(node, latency), into="token_limits") if tokens else Field(read=slo)
    record: FieldTable[dict[str, Any]] = FieldTable(
        make=dict,
        fields={
            "maximize": Field(read=lambda node: node.choice((per_dollar, _REQUEST_RATE), meant=meant)),
            "minimize": Field(read=_least),
            "rate": Field(read=rate),
            "slo": limits,
            "budget": Field(read=budget),
            "deadline": Field(read=deadline(now), into="deadline_seconds"),
        },
    )

    def read(node: YamlNode) -> Goal:
        given = record(node)
        most, least = given.pop("maximize", None), given.pop("minimize", None)
        form = f"{{maximize: {per_dollar}}}, {{maximize: rate}}, or {{minimize: cost, rate: 500/s}}"
        if (most is None) == (least is None):
            problem = "has both maximize and minimize" if most else "has neither maximize nor minimize"
            raise node.error(problem, allowed=form)
        if most == _REQUEST_RATE and "rate" in given:
            raise node.mapping()["rate"].error("cannot be given when it is maximized", allowed=form)
        return Goal(minimize=Objective.TIME if most == _REQUEST_RATE else Objective.COST, **given)

    return read


def _scenario(node: YamlNode) -> Scenario:
    return Scenario(node.choice(tuple(Scenario), meant=_MEANT_SCENARIO))


def _seconds(*, least: float, most: float, needs_unit: bool = False) -> Reader[float]:
    """A reader of a duration such as `20s` or `2min`, or of a plain number of seconds.

    needs_unit  refuse a number without a unit, unless it is 0
    """
    bounds = Bounds(least=least, most=most)

    def read(node: YamlNode) -> float:
        if isinstance(node.value, str):
            try:
                seconds = parse_seconds(node.value)
            except ValueError:
                raise node.error("is not a duration", allowed="a number with a unit, such as 20s or 2min") from None
            if seconds not in bounds:
                raise node.error("is out of range", allowed=f"{bounds} seconds")
            return seconds
        if needs_unit and isinstance(node.value, int | float) and not isinstance(node.value, bool) and node.value > 0:
            raise node.error("has no unit", allowed=f"such as {node.value:g}s, or 0 for none")
        return node.number(bounds, unit="seconds")

    return read


def _arrivals(node: YamlNode) -> bool:
    """Whether load tests offer rates at which requests arrive at random, instead of so many in flight."""
    return node.choice((_IN_FLIGHT, _RANDOM), meant=_MEANT_ARRIVALS) == _RANDOM


def _sender(node: YamlNode) -> bool:
    """Whether a node sends the load, and not the machine that mlcd runs on."""
    return node.choice((_HERE, _NODE), meant=_MEANT_SENDER) == _NODE


_RESOURCES = FieldTable(
    make=ServingResources,
    fields={
        "infra": Field(read=one_infra),
        "prices": Field(read=prices),
        "instance_type": Field(read=instance_types),
        "accelerators": Field(read=accelerators),
        "replicas": Field(read=counts(MOST_REPLICAS)),
        "image_id": Field(read=line_of_text),
    },
    later={"use_spot": "", "cloud": "write infra: local"},
)

_KNOBS = FieldTable(
    make=ServingKnobs,
    fields={
        "batch": Field(read=counts(4096)),
        "threads": Field(read=counts(1024)),
        "replicas": Field(read=counts(1024)),
        "precision": Field(read=precisions),
        "gpu_share": Field(read=counts(100)),
        "compile": Field(read=switches),
    },
    later={"memory": "replicas that do not fit the machine's memory are excluded"},
)

_LOAD = FieldTable(
    make=LoadSettings,
    fields={
        "scenario": Field(read=_scenario),
        "rate": Field(read=rate),
        "headroom": Field(read=number(least=0, below=1)),
        "verify": Field(read=_seconds(least=0, most=86_400, needs_unit=True), into="verify_seconds"),
        "profile": Field(read=line_of_text),
        "from": Field(read=_sender, into="from_node"),
    },
)

_PLAIN_LOAD = FieldTable(
    make=LoadSettings,
    fields={**_LOAD.fields, "concurrency": Field(read=lambda node: node.whole(Bounds(least=1, most=MOST_CONNECTIONS)))},
    meant={"users": "concurrency", "in_flight": "concurrency"},
)

_TOKEN_LOAD = FieldTable(
    make=token_load,
    fields={
        "input_tokens": Field(read=lengths),
        "output_tokens": Field(read=lengths),
        "trace": Field(read=line_of_text),
        "profile": Field(read=line_of_text),
        "from": Field(read=_sender, into="from_node"),
        "arrivals": Field(read=_arrivals, into="is_open"),
        "rate": Field(read=rate),
        "shared_tokens": Field(read=lambda node: node.whole(Bounds(least=0, most=TOKENS.most))),
        "concurrency": Field(read=lambda node: node.whole(STREAMS)),
        "headroom": Field(read=number(least=0, below=1)),
        "verify": Field(read=_seconds(least=0, most=86_400, needs_unit=True), into="verify_seconds"),
    },
    later={"scenario": "write arrivals: random or arrivals: in-flight"},
    meant={
        "prompt_tokens": "input_tokens",
        "prompt_length": "input_tokens",
        "completion_tokens": "output_tokens",
        "max_tokens": "output_tokens",
        "prefix_tokens": "shared_tokens",
        "users": "concurrency",
        "in_flight": "concurrency",
    },
)

_TRIAL = FieldTable(
    make=lambda **given: TrialRules(tuple(given.items())),
    fields={
        "seconds": Field(read=_seconds(least=1, most=86_400)),
        "extension": Field(read=number(least=0, most=10)),
        "watchdog": Field(read=_seconds(least=1, most=86_400), into="watchdog_seconds"),
        "precision": Field(read=number(above=0, below=1)),
        "retries": Field(read=whole(least=0, most=100)),
    },
)

_SEARCH = FieldTable(
    make=ServingSearch,
    fields={
        "strategy": Field(read=strategy),
        "max_trials": Field(read=whole(least=1, most=100_000)),
        "noise": Field(read=number(least=0, below=1)),
        "trial": Field(read=_TRIAL),
        "every_replica": Field(read=flag),
    },
    later={"parallel": "parallel load tests would slow each other down"},
)


def serve_record(now: datetime | None = None) -> Reader[ServeSpec]:
    """The reader of a whole job file; a deadline that is a point in time is counted from `now`."""
    model, server, plain = model_record(now), server_record(now), plain_server_record(now)

    def read(node: YamlNode) -> ServeSpec:
        if not isinstance(node.value, Mapping) or "server" not in node.value:
            return model(node)
        given = node.mapping()["server"]
        api = given.mapping().get("api") if isinstance(given.value, Mapping) else None
        return server(node) if api is None or SERVER.fields["api"].read(api) is Api.OPENAI else plain(node)

    return read


def server_record(now: datetime | None) -> FieldTable[ServeSpec]:
    """The reader of a job whose server is a command."""
    return FieldTable(
        make=ServeSpec,
        fields={
            "name": Field(read=job_name, required=True, allowed="a name such as llama-8b"),
            "server": Field(read=SERVER, required=True),
            "model": Field(read=line_of_text),
            "workdir": Field(read=line_of_text),
            "setup": Field(read=text),
            "secrets": Field(read=secret_names),
            "file_mounts": Field(read=file_mounts),
            "resources": Field(read=_RESOURCES),
            "knobs": Field(read=server_settings, into="declared_knobs", required=True, allowed="{MAX_SEQS: [16, 64]}"),
            "load": Field(read=_TOKEN_LOAD),
            "goal": Field(
                read=_goal(now, tokens=True),
                required=True,
                allowed="{maximize: tokens per dollar, slo: {ttft_p99: 1s}}",
            ),
            "search": Field(read=_SEARCH),
        },
        later={"num_nodes": NUM_NODES, "run": "write it as server.run"},
        meant=_MEANT_PLACES,
    )


def plain_server_record(now: datetime | None) -> FieldTable[ServeSpec]:
    """The reader of a job whose server is a command that does not stream tokens: `api: oip` or `http`."""
    tokens = server_record(now)
    fields = {
        "inputs": Field(read=inputs),
        "load": Field(read=_PLAIN_LOAD),
        "goal": Field(read=_goal(now), required=True, allowed="{maximize: requests per dollar, slo: {p99: 50ms}}"),
    }
    return replace(tokens, fields={**tokens.fields, **fields})


def model_record(now: datetime | None) -> FieldTable[ServeSpec]:
    """The reader of a job that serves a model with mlcd's own server."""
    return FieldTable(
        make=ServeSpec,
        fields={
            "name": Field(read=job_name, required=True, allowed="a name such as resnet50"),
            "model": Field(read=line_of_text, required=True, allowed="a file such as resnet50.onnx"),
            "resources": Field(read=_RESOURCES),
            "knobs": Field(read=_KNOBS),
            "sizes": Field(read=sizes),
            "inputs": Field(read=inputs),
            "load": Field(read=_LOAD),
            "goal": Field(read=_goal(now), required=True, allowed="{maximize: requests per dollar, slo: {p99: 50ms}}"),
            "search": Field(read=_SEARCH),
        },
        later={
            "num_nodes": NUM_NODES,
            "run": "mlcd serve starts the server itself; for a server of your own, write server: {run: ...}",
        },
        meant=_MEANT_PLACES,
    )


def is_job_file(path: str | os.PathLike[str]) -> bool:
    """Whether the path names a job file, by its suffix, or standard input; otherwise it names a model."""
    return Path(path).suffix.lower() in JOB_FILES or str(path) == STANDARD_INPUT


def model_job(model: str | os.PathLike[str], sizes: Mapping[str, int] | None = None) -> ServeSpec:
    """The job that serves this model with defaults for everything else, named after its file. Raises SpecError.

    sizes  sizes of the model's open axes, by name
    """
    try:
        path = expanded(os.fspath(model)).absolute()
    except Malformed as error:
        raise SpecError(error.problem, field="model", value=shortened(os.fspath(model))) from error
    fields: dict[str, object] = {
        "name": re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip("-._")[:80] or "model",
        "model": str(path),
        "goal": {"maximize": _REQUESTS_PER_DOLLAR},
        "sizes": sizes or None,
    }
    return SERVE.from_mapping(fields)


def _limit(value: object) -> object:
    """`p99=50ms` as {p99: 50ms}; `ttft_p99=1s,tpot_p95=50ms` as both."""
    if isinstance(value, Mapping):
        return value
    found = {}
    for part in value.split(",") if isinstance(value, str) else ("",):
        name, equals, limit = part.partition("=")
        if not equals:
            raise SpecError("is not a latency limit", field="goal.slo", value=value, allowed="p99=50ms")
        found[name.strip()] = as_written(limit.strip())
    return found


SERVE = JobFile(
    command="serve",
    record=serve_record,
    check=checked,
    flags={
        "on": Flag(path="resources.infra"),
        "slo": Flag(path="goal.slo", spell=_limit),
        "rate": Flag(path="goal.rate"),
        "maximize": Flag(path="goal.maximize", drops="goal.minimize"),
        "budget": Flag(path="goal.budget"),
        "deadline": Flag(path="goal.deadline"),
        "strategy": Flag(path="search.strategy"),
        "trials": Flag(path="search.max_trials", spell=as_written),
    },
    sample="docs/serve.md shows one",
)
"""Job files of `mlcd serve`."""
parse_serve = SERVE.parse
read_serve = SERVE.read
serve_mapping = SERVE.from_mapping
with_flags = SERVE.with_flags
