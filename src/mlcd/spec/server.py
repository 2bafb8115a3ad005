"""The fields of a job file that describe a server as a command, its knobs, and the answers that it must give."""

import re
from collections.abc import Mapping
from typing import Any

from mlcd.errors import SpecError, nearest
from mlcd.loadgen.chat.plan import MOST_STREAMS, PERCENTILES, ChatLimit, ChatMetric
from mlcd.spec.node import Bounds, YamlNode
from mlcd.spec.quantity import line_of_text
from mlcd.spec.record import Field, FieldTable
from mlcd.spec.serve import Api, Lengths, LoadSettings, ServerCommand

APIS = tuple(str(api) for api in Api)
_MEANT_API = {
    **dict.fromkeys(("openai-compatible", "chat", "vllm", "openai_chat"), "openai"),
    **dict.fromkeys(("kserve", "v2", "triton", "open-inference-protocol"), "oip"),
    **dict.fromkeys(("rest", "json", "https", "post"), "http"),
}
TOKEN_LIMITS = tuple(f"{metric}_p{percent}" for metric in ChatMetric for percent in PERCENTILES)
"""The names of limits in `goal.slo` of a language model."""
_PATH_FORM = "a path such as /health or /v1/chat/completions"
_MEANT_METRIC = {"itl": "tpot", "tbt": "tpot", "latency": "e2e", "time_to_first_token": "ttft"}
"""Other names of what is measured of a language model's answers."""
MOST_SERVER_NODES = 32
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/@:-]{0,254}")
_IMAGE_FORM = "a name such as vllm/vllm-openai:latest"


def path(node: YamlNode) -> str:
    """The path of an address, such as /health."""
    text = node.line_of_text(allowed=_PATH_FORM)
    if not text.startswith("/") or any(not "!" <= letter <= "~" for letter in text):
        raise node.error("is not a path", allowed=_PATH_FORM)
    return text


def image(node: YamlNode) -> str:
    """The name of a container image, such as vllm/vllm-openai:v0.11.0."""
    text = node.line_of_text(allowed=_IMAGE_FORM)
    if not _IMAGE.fullmatch(text):
        raise node.error("is not the name of a container image", allowed=_IMAGE_FORM)
    return text


def body(node: YamlNode) -> Mapping[str, object]:
    """Further fields of every request, as they are sent."""
    node.mapping()
    found: Any = node.plain()
    return dict(found)


SERVER = FieldTable(
    make=ServerCommand,
    fields={
        "run": Field(read=lambda node: node.text(allowed="a command"), required=True, allowed="the server's command"),
        "api": Field(read=lambda node: Api(node.choice(APIS, meant=_MEANT_API))),
        "ready": Field(read=path),
        "path": Field(read=path),
        "name": Field(read=line_of_text, into="served_name"),
        "body": Field(read=body),
        "image": Field(read=image),
        "nodes": Field(read=lambda node: node.whole(Bounds(least=1, most=MOST_SERVER_NODES))),
    },
    meant={
        "command": "run",
        "cmd": "run",
        "health": "ready",
        "endpoint": "path",
        "model": "name",
        "url": "path",
        "num_nodes": "nodes",
    },
    later={
        "envs": "export them before mlcd is started: the server inherits its environment",
        "setup": "write setup beside server, for nodes that are rented",
        "port": "mlcd chooses it: the command finds it as $PORT",
    },
)


def _nearest_limit(name: str) -> str:
    metric, mark, percentile = name.partition("_p")
    return nearest(f"{_MEANT_METRIC.get(metric, metric)}{mark}{percentile}", TOKEN_LIMITS)


def token_limits(node: YamlNode, latency: Any) -> tuple[ChatLimit, ...]:
    """`{ttft_p99: 500ms, tpot_p95: 50ms}`: limits, all of which must be kept. `latency` reads a time."""
    found = []
    for name, child in node.mapping().items():
        if name not in TOKEN_LIMITS:
            raise SpecError(
                "is not a limit on a language model's answers",
                file=child.file,
                line=child.line,
                field=child.path,
                allowed=", ".join(TOKEN_LIMITS),
                nearest=_nearest_limit(name.lower()),
            )
        metric, _, percentile = name.partition("_p")
        found.append(ChatLimit(metric=ChatMetric(metric), percentile=int(percentile), seconds=latency(child)))
    return tuple(found)


TOKENS = Bounds(least=1, most=1_000_000)
_LENGTHS_FORM = "a number such as 512, {mean: 512, std: 128}, or {file: lengths.csv}"
_LENGTHS: FieldTable[dict[str, Any]] = FieldTable(
    make=dict,
    fields={
        "mean": Field(read=lambda node: node.whole(TOKENS)),
        "std": Field(read=lambda node: node.number(Bounds(least=0, most=TOKENS.most), unit="tokens")),
        "file": Field(read=line_of_text),
    },
)


def lengths(node: YamlNode) -> Lengths:
    """`512`, `{mean: 512, std: 128}` or `{file: lengths.csv}`."""
    if not isinstance(node.filled().value, Mapping):
        if isinstance(node.value, str | tuple):
            raise node.error("is not a length in tokens", allowed=_LENGTHS_FORM)
        return Lengths(mean=node.whole(TOKENS))
    given = _LENGTHS(node)
    if ("file" in given) == ("mean" in given) or ("file" in given and "std" in given):
        raise node.error("needs either mean, with std where lengths vary, or file", allowed=_LENGTHS_FORM)
    return Lengths(mean=given.get("mean", 1), std=given.get("std", 0.0), file=given.get("file", ""))


def token_load(
    *, input_tokens: Lengths | None = None, output_tokens: Lengths | None = None, **given: Any
) -> LoadSettings:
    """The load of a language model's server."""
    if input_tokens is not None:
        given |= {"input_tokens": input_tokens.mean, "input_lengths": input_tokens}
    if output_tokens is not None:
        given |= {"output_tokens": output_tokens.mean, "output_lengths": output_tokens}
    return LoadSettings(**given)


STREAMS = Bounds(least=1, most=MOST_STREAMS)
