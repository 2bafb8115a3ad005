"""Strategies by name, with options as the user writes them: `heterbo:prune=off,start=2`, `heterbo:paper`."""

import dataclasses
from importlib import import_module
from typing import Any, Literal, get_args, get_origin, get_type_hints

from mlcd.errors import BadInput, nearest
from mlcd.known.measured_jobs import MeasuredJob
from mlcd.known.tables import Known, TargetModel
from mlcd.models.universal import KnownJob
from mlcd.plugins import STRATEGIES as PLUGIN_GROUP
from mlcd.plugins import load_class, plugin_names
from mlcd.search.strategy import Strategy

STRATEGIES = {
    "auto": ("mlcd.search.auto", "Auto"),
    "heterbo": ("mlcd.search.heterbo", "HeterBO"),
    "convbo": ("mlcd.search.convbo", "ConvBO"),
    "convbo-budget": ("mlcd.search.convbo_budget", "ConvBOBudget"),
    "cherrypick": ("mlcd.search.cherrypick", "CherryPick"),
    "cherrypick-budget": ("mlcd.search.cherrypick_budget", "CherryPickBudget"),
    "lynceus": ("mlcd.search.lynceus", "Lynceus"),
    "ernest": ("mlcd.search.ernest", "Ernest"),
    "arrow": ("mlcd.search.arrow", "Arrow"),
    "paris": ("mlcd.search.paris", "Paris"),
    "random": ("mlcd.search.random", "Random"),
    "exhaustive": ("mlcd.search.exhaustive", "Exhaustive"),
    "scavenger-partial": ("mlcd.search.scavenger.partial", "ScavengerPartial"),
    "scavenger-full": ("mlcd.search.scavenger.full", "ScavengerFull"),
    "scavenger-universal": ("mlcd.search.scavenger.universal", "ScavengerUniversal"),
    "scavenger-goodput": ("mlcd.search.scavenger.goodput", "ScavengerGoodput"),
    "paleo": ("mlcd.search.paleo", "Paleo"),
}

SERVING: dict[str, tuple[str, str]] = {
    "falcon": ("mlcd.search.serving.falcon", "Falcon"),
    "falcon-transfer": ("mlcd.search.serving.falcon_transfer", "FalconTransfer"),
    "morphling": ("mlcd.search.serving.morphling", "Morphling"),
    "vesta": ("mlcd.search.serving.vesta", "Vesta"),
    "ernest": ("mlcd.search.serving.ernest", "Ernest"),
    "source-mean": ("mlcd.search.serving.source_mean", "SourceMean"),
    "heterbo": ("mlcd.search.serving.heterbo", "ServingHeterBO"),
    "random": ("mlcd.search.serving.chance", "ServingRandom"),
    "exhaustive": ("mlcd.search.serving.chance", "ServingExhaustive"),
}
"""Strategies for `mlcd serve`, where they take precedence over STRATEGIES of the same name."""

KNOBS: dict[str, tuple[str, str]] = {
    "bayesian": ("mlcd.search.bayesian", "Bayesian"),
    "heterbo": STRATEGIES["heterbo"],
    "random": SERVING["random"],
    "exhaustive": SERVING["exhaustive"],
}
"""Strategies for `mlcd.Search(knobs=...)`, the default first. They search any knobs, and all keep the limits."""

_NEEDED_INPUT = {
    "known": "tables of other models",
    "target": "the operators of the model to serve",
}

MOST_OPTION = 10**18
"""Numbers of options, and their inverses, are at most this large, so that arithmetic with them stays finite."""
_SWITCH = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}


BUILT_IN = frozenset((*STRATEGIES, *SERVING, *KNOBS))
"""Names that no plug-in may use."""

_PLUGIN_ATTRIBUTES = ("name", "guarded", "suggest", "recommend", "ending")


def strategy_class(name: str, *, serving: bool = False, own_knobs: bool = False) -> Any:
    """The strategy's class, built in or from a plug-in. Raises BadInput with the nearest name.

    own_knobs  only strategies that search any knobs
    """
    found = KNOBS if own_knobs else {**STRATEGIES, **SERVING} if serving else {**SERVING, **STRATEGIES}
    if name in found:
        module, attribute = found[name]
        return getattr(import_module(module), attribute)
    cls = load_class(PLUGIN_GROUP, name, needs=_PLUGIN_ATTRIBUTES, built_in=BUILT_IN)
    if cls is None:
        allowed = [*(found if serving or own_knobs else STRATEGIES), *plugin_names(PLUGIN_GROUP, built_in=BUILT_IN)]
        near = nearest(name, allowed)
        hint = f"; did you mean {near!r}?" if near else ""
        raise BadInput(f"search.strategy: unknown strategy {name!r}; allowed: {', '.join(allowed)}{hint}")
    return cls


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """What a user may write as `name=value`.

    in_settings  a field of the class's settings, not of the class itself
    """

    name: str
    field: str
    kind: Any
    default: object
    in_settings: bool


def options_of(cls: Any) -> tuple[Option, ...]:
    """The options of a strategy's class: its own fields, except those that mlcd passes, then those of its settings."""
    not_options = ("seed", "settings", *getattr(cls, "given", ()))
    own = [f for f in dataclasses.fields(cls) if f.init and f.name not in not_options]
    found = [(f.name, get_type_hints(cls)[f.name], f.default, False) for f in own]
    settings = _default_settings(cls)
    if settings is not None:
        hints = get_type_hints(type(settings))
        found += [(f.name, hints[f.name], getattr(settings, f.name), True) for f in dataclasses.fields(settings)]
    return tuple(
        Option(name=field.replace("_", "-"), field=field, kind=kind, default=default, in_settings=inside)
        for field, kind, default, inside in found
    )


def _default_settings(cls: Any) -> Any:
    """The default settings of a strategy's class; None if it has no such field."""
    return next((f.default for f in dataclasses.fields(cls) if f.name == "settings"), None)


def strategy(
    text: str,
    *,
    seed: int = 0,
    known: Known | None = None,
    target: TargetModel | None = None,
    jobs: tuple[KnownJob, ...] = (),
    others: tuple[MeasuredJob, ...] = (),
    own_knobs: bool = False,
) -> Strategy:
    """The strategy that `name[:[preset,]option=value,...]` describes. Raises BadInput naming what is allowed.

    A preset is a name for settings that the class has in `presets`; options after it change single ones.
    `known`, `target`, `jobs` and `others` go to classes that list them in `given`; a class that lists one in `needs`
    requires it.
    `own_knobs` allows only strategies that search any knobs.
    """
    name, _, tail = text.partition(":")
    cls = strategy_class(name.strip(), serving=known is not None, own_knobs=own_knobs)
    offered = {"known": known, "target": target, "jobs": jobs, "others": others}
    given = {field: offered[field] for field in getattr(cls, "given", ())}
    fields = {option.name: option for option in options_of(cls)}
    values: dict[str, Any] = {}
    presets = getattr(cls, "presets", {})
    settings = _default_settings(cls)
    for at, part in enumerate(filter(None, (piece.strip() for piece in tail.split(",")))):
        option, equals, value = (piece.strip() for piece in part.partition("="))
        if at == 0 and part in presets:
            settings = presets[part]
            continue
        if option not in fields or not equals:
            near = nearest(option, [*presets, *fields])
            hint = f"; did you mean {near!r}?" if near else ""
            allowed = ", ".join((*presets, *(f"{known}=" for known in fields))) or "none"
            raise BadInput(f"search.strategy: {name} has no option {part!r}; allowed: {allowed}{hint}")
        values[option] = _convert(f"search.strategy: {name}:{option}", value, fields[option].kind)
    for field in sorted(getattr(cls, "needs", ())):
        if given[field] is None:
            raise BadInput(
                f"search.strategy: {name.strip()} needs {_NEEDED_INPUT[field]}, which only `mlcd serve` provides: "
                f"use it there, or choose heterbo"
            )
    try:
        own = {fields[name].field: value for name, value in values.items() if not fields[name].in_settings}
        changed = {fields[name].field: value for name, value in values.items() if fields[name].in_settings}
        if settings is not None:
            own["settings"] = dataclasses.replace(settings, **changed)
        made: Strategy = cls(seed=seed, **own, **given)
    except ValueError as error:
        raise BadInput(f"search.strategy: {text}: {error}") from error
    return made


def _convert(where: str, value: str, kind: Any) -> Any:
    if kind is bool:
        if value.lower() not in _SWITCH:
            raise BadInput(f"{where}: not a switch (got {value!r}); allowed: on, off")
        return _SWITCH[value.lower()]
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise BadInput(f"{where}: unknown value (got {value!r}); allowed: {', '.join(get_args(kind))}")
        return value
    if kind in (int, float):
        what = "a whole number" if kind is int else "a number"
        try:
            number = kind(value)
        except ValueError as error:
            raise BadInput(f"{where}: not {what} (got {value[:80]!r})") from error
        if number != 0 and not 1 / MOST_OPTION <= abs(number) <= MOST_OPTION:
            raise BadInput(f"{where}: out of range (got {value[:80]!r}); allowed: {what} up to {MOST_OPTION:.0e}")
        return number
    return value
