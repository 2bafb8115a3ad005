"""Knobs that a job file declares: their values, when each applies, what each changes. Of trainings and of servers."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mlcd.errors import nearest
from mlcd.space import DEPLOYMENT, UNSET, Value
from mlcd.space.settings import (
    INSTANCE,
    MACHINE_WORDS,
    NODES,
    CircularConditions,
    Condition,
    Setting,
    Settings,
    in_order_of_conditions,
)
from mlcd.space.space import MEMORY
from mlcd.spec.knob_presets import PRESETS
from mlcd.spec.mapping import tree
from mlcd.spec.node import YamlNode
from mlcd.spec.record import Field, FieldTable

MOST_VALUES = 1000
MOST_KNOBS = 32
EXCLUDE, PRESET = "exclude", "preset"
CHANGES = ("speed", "learning")
PER = ("server", "node")
"""For what a server's knob has a value."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_RANGE = re.compile(r"(-?[0-9]{1,9})\s*\.\.\s*(-?[0-9]{1,9})")
_LIKE_A_NUMBER = re.compile(r"[-+0-9.eE]+")
_WHOLE = re.compile(r"[0-9]+")
_VALUES_FORM = "a list such as [1, 2, 4], a range such as 0..8, or {values: [...], when: {...}}"
_WHEN_FORM = "{NAME: VALUE, NAME: [VALUE, ...]} of other knobs, instance_type or num_nodes"
_TAKEN = frozenset(
    (
        *("PATH", "HOME", "USER", "SHELL", "PWD", "LANG", "TMPDIR", "PYTHONPATH", "LD_LIBRARY_PATH"),
        *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK"),
        *("MASTER_ADDR", "MASTER_PORT", "TF_CONFIG", "CUDA_VISIBLE_DEVICES"),
    )
)
"""Variables that the system, the platforms or mlcd set for a job."""
_GIVEN_TO_SERVERS = ("MODEL", "PORT", "HOST")
_OWN_OF_SERVERS = (INSTANCE, "instance", "nodes", "batch", "replicas", "threads")
_TAKEN_PREFIXES = ("MLCD_", "SKYPILOT_", "SLURM_", "DMLC_")
_MEANT_FIELDS = {"if": "when", "only": "when", "choices": "values"}


@dataclass(frozen=True, kw_only=True)
class _Program:
    """The programs whose knobs are read: trainings or servers.

    words    what conditions may name beside knobs
    presets  ready sets by name
    fields   of a knob that is written as a mapping
    check    raises SpecError for a name that no knob of such a program can have
    """

    words: tuple[str, ...]
    presets: Mapping[str, Mapping[str, Any]]
    fields: Callable[[YamlNode], dict[str, Any]]
    check: Callable[[YamlNode, str], None]


def knob_values(node: YamlNode) -> tuple[Value, ...]:
    """`[16, 64]`, `[fp32, bf16]`, `[true, false]`, `0..8` or one value: at least one, without duplicates."""
    values: list[Value] = []
    for item in node.filled().items():
        values += _range(item) or (_value(item),)
    if not values:
        raise node.error("must not be empty", allowed="a list such as [16, 64]")
    if len(values) > MOST_VALUES:
        raise node.error("has too many values", allowed=f"at most {MOST_VALUES:,}")
    found: set[str] = set()
    for value in map(str, values):
        if value in found:
            raise node.error(f"has the value {value} twice", allowed="each value once")
        found.add(value)
    return tuple(values)


def _range(node: YamlNode) -> tuple[int, ...]:
    span = _RANGE.fullmatch(node.value.strip()) if isinstance(node.value, str) else None
    if span is None and isinstance(node.value, str) and _is_like_a_range(node.value):
        raise node.error("is not a range of whole numbers", allowed="a range such as 0..8, or a list: [0.1, 0.5]")
    if span is None:
        return ()
    first, last = int(span[1]), int(span[2])
    if first > last:
        raise node.error("is an empty range", nearest=f"{last}..{first}")
    if last - first >= MOST_VALUES:
        raise node.error("has too many values", allowed=f"at most {MOST_VALUES:,}")
    return tuple(range(first, last + 1))


def _is_like_a_range(text: str) -> bool:
    """Whether a range was meant: `0.1..0.5`, `1..`, `1..4 GB`. One pattern for all of it would take cubic time."""
    text = text.strip()
    at = text.find("..", 1)
    before, after = text[: max(at, 0)].rstrip(), text[at + 2 :].lstrip(".").lstrip()
    if not _LIKE_A_NUMBER.fullmatch(before):
        return False
    is_one_to_more = _WHOLE.fullmatch(before) and _WHOLE.match(after)
    return not after or is_one_to_more is not None or _LIKE_A_NUMBER.fullmatch(after) is not None


def _value(node: YamlNode) -> Value:
    value = node.filled().value
    if not isinstance(value, bool | int | float | str):
        raise node.error("must be a number, text, true or false", allowed=_VALUES_FORM)
    if isinstance(value, float) and not math.isfinite(value):
        raise node.error("must be a finite number, text, true or false", allowed=_VALUES_FORM)
    if isinstance(value, str) and (not value.strip() or any(letter < " " for letter in value) or value == UNSET):
        raise node.error(f"must be a line of text that is neither blank nor {UNSET!r}")
    return value


def settings(node: YamlNode) -> Settings:
    """`knobs` of a training: `{precision: [fp32, bf16], workers: {values: 0..8, when: {...}}, exclude: [...]}`."""
    return _settings(node, _TRAINING)


def server_settings(node: YamlNode) -> Settings:
    """`knobs` of a server that is a command: `{SLOTS: [16, 64], GPUS: {values: [2, 4], when: {...}}}`."""
    return _settings(node, _SERVER)


def _settings(node: YamlNode, program: _Program) -> Settings:
    given = dict(node.mapping(allowed="{NAME: [VALUE, ...]} such as {precision: [fp32, bf16]}"))
    excluded = given.pop(EXCLUDE, None)
    preset = given.pop(PRESET, None) if program.presets else None
    nodes = {**_preset(preset, program.presets), **given} if preset is not None else given
    knobs = tuple(_setting(name, child, program) for name, child in nodes.items())
    if not knobs:
        form = f", or {{{PRESET}: {next(iter(program.presets))}}}" if program.presets else ""
        raise node.error("names no knob", allowed=f"{{precision: [fp32, bf16]}}{form}")
    if len(knobs) > MOST_KNOBS:
        raise node.error(f"names {len(knobs)} knobs", allowed=f"at most {MOST_KNOBS}")
    lowered: dict[str, str] = {}
    for knob in knobs:
        if (other := lowered.setdefault(knob.name.upper(), knob.name)) != knob.name:
            raise nodes[knob.name].error(f"has the same variable in capitals as {other}", allowed="another name")
    for knob in knobs:
        if knob.when is not None:
            when = nodes[knob.name].mapping()["when"]
            _check_condition(when, knob.when, knobs, program.words, own=knob.name)
    try:
        in_order_of_conditions(knobs)
    except CircularConditions as circle:
        raise (
            nodes[circle.names[0]].mapping()["when"].error(str(circle), allowed="conditions without a circle")
        ) from None
    conditions = []
    for item in excluded.filled().items() if excluded is not None else ():
        condition = _condition(item)
        _check_condition(item, condition, knobs, program.words)
        conditions.append(condition)
    return Settings(knobs, tuple(conditions))


def _preset(node: YamlNode, presets: Mapping[str, Mapping[str, Any]]) -> dict[str, YamlNode]:
    """The knobs of a ready set, at the position of its name."""
    name = node.choice(tuple(presets), meant={"hf": "trainer", "huggingface": "trainer", "pytorch": "ddp"})
    return {knob: _placed(tree(values, path=f"knobs.{knob}"), node) for knob, values in presets[name].items()}


def _placed(node: YamlNode, at: YamlNode) -> YamlNode:
    """`node`, with errors at the line of `at`."""
    value: Any = node.value
    if isinstance(value, tuple):
        value = tuple(_placed(item, at) for item in value)
    elif isinstance(value, Mapping):
        value = {key: _placed(child, at) for key, child in value.items()}
    return YamlNode(value=value, file=at.file, line=at.line, path=node.path, written=node.written)


def _setting(name: str, node: YamlNode, program: _Program) -> Setting:
    if not _VARIABLE.fullmatch(name):
        raise node.error("is not a variable's name", allowed="letters, digits and _, no digit first")
    program.check(node, name)
    fields = program.fields(node) if isinstance(node.value, Mapping) else {"values": knob_values(node)}
    return Setting(name=name, **fields)


def _check_training_name(node: YamlNode, name: str) -> None:
    if name in (*DEPLOYMENT, *MACHINE_WORDS):
        raise node.error("is chosen elsewhere in the job file: resources, num_nodes and batch", allowed="another name")
    if name.upper() in _TAKEN or name.upper().startswith(_TAKEN_PREFIXES):
        raise node.error(f"would overwrite the variable {name.upper()}, which others set", allowed="another name")


def _check_server_name(node: YamlNode, name: str) -> None:
    if name in _GIVEN_TO_SERVERS:
        raise node.error(f"is set by mlcd; call the knob something other than {', '.join(_GIVEN_TO_SERVERS)}")
    if name in _OWN_OF_SERVERS:
        problem = "is a word for what mlcd chooses itself"
        raise node.error(problem, allowed="another name for the variable", nearest=name.upper())


def _condition(node: YamlNode) -> Condition:
    given = node.mapping()
    if not given:
        raise node.error("has no condition", allowed=_WHEN_FORM)
    return Condition(tuple((name, knob_values(child)) for name, child in given.items()))


def _check_condition(
    node: YamlNode, condition: Condition, knobs: tuple[Setting, ...], words: tuple[str, ...], own: str = ""
) -> None:
    """Raises SpecError at the name or value that no knob has."""
    known = {knob.name: knob.values for knob in knobs}
    for name, values in condition.allowed:
        child = node.mapping()[name]
        if name == own:
            raise child.error("is the knob itself", allowed=_WHEN_FORM)
        if name == INSTANCE:
            continue
        if name == NODES and name in words:
            if not all(isinstance(value, int) and value >= 1 for value in values):
                raise child.error("must be whole numbers, at least 1")
            continue
        if name not in known:
            allowed = ", ".join((*(each for each in known if each != own), *words))
            near = nearest(name, tuple(known))
            raise child.error("there is no such knob", allowed=allowed, nearest=near)
        if wrong := [value for value in values if value not in known[name]]:
            allowed = ", ".join(map(str, known[name][:20]))
            near = nearest(str(wrong[0]), tuple(map(str, known[name])))
            raise child.error(f"{name} never has the value {wrong[0]!r}", allowed=allowed, nearest=near)


def _changes(node: YamlNode) -> bool:
    return node.choice(CHANGES, meant={"accuracy": "learning", "quality": "learning"}) == "learning"


def _per_node(node: YamlNode) -> bool:
    """Whether each node of a server has a value of its own."""
    return node.choice(PER, meant={"nodes": "node", "rank": "node", "host": "node", "servers": "server"}) == "node"


_VALUES = Field(read=knob_values, required=True, allowed="a list such as [1, 2, 4]")
_WHEN = Field(read=_condition)
_TRAINING_FIELDS: FieldTable[dict[str, Any]] = FieldTable(
    make=dict,
    fields={
        "values": _VALUES,
        "changes": Field(read=_changes, into="changes_learning"),
        "memory": Field(read=lambda node: node.choice(MEMORY, meant={"grows": "rises", "shrinks": "falls"})),
        "when": _WHEN,
    },
    meant={**_MEANT_FIELDS, "effect": "changes", "affects": "changes"},
    later={"per": "it is for servers over several nodes"},
)
_SERVER_FIELDS: FieldTable[dict[str, Any]] = FieldTable(
    make=dict,
    fields={"values": _VALUES, "when": _WHEN, "per": Field(read=_per_node, into="per_node")},
    meant={**_MEANT_FIELDS, "each": "per", "for": "per"},
    later={
        "changes": "it is for trainings: a server's knobs change its speed",
        "memory": "it is for trainings: a server that runs out of memory is remembered as one that does not start",
    },
)
_TRAINING = _Program(words=MACHINE_WORDS, presets=PRESETS, fields=_TRAINING_FIELDS, check=_check_training_name)
_SERVER = _Program(words=(INSTANCE,), presets={}, fields=_SERVER_FIELDS, check=_check_server_name)
