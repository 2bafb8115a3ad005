"""Strategies by name, with options as the user writes them: `heterbo:prune=off,start=2`."""

import dataclasses
from importlib import import_module
from typing import Any, Literal, get_args, get_origin, get_type_hints

from mlcd.errors import BadInput, nearest
from mlcd.search.strategy import Strategy

STRATEGIES = {
    "heterbo": ("mlcd.search.heterbo", "HeterBO"),
    "convbo": ("mlcd.search.convbo", "ConvBO"),
    "convbo-budget": ("mlcd.search.convbo_budget", "ConvBOBudget"),
    "cherrypick": ("mlcd.search.cherrypick", "CherryPick"),
    "cherrypick-budget": ("mlcd.search.cherrypick_budget", "CherryPickBudget"),
    "random": ("mlcd.search.random", "Random"),
    "exhaustive": ("mlcd.search.exhaustive", "Exhaustive"),
    "paleo": ("mlcd.search.paleo", "Paleo"),
}

_SWITCH = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}


def strategy_class(name: str) -> Any:
    """The strategy's class. Raises BadInput with the nearest name."""
    if name not in STRATEGIES:
        near = nearest(name, list(STRATEGIES))
        hint = f"; did you mean {near!r}?" if near else ""
        raise BadInput(f"search.strategy: unknown strategy {name!r}; allowed: {', '.join(STRATEGIES)}{hint}")
    module, attribute = STRATEGIES[name]
    return getattr(import_module(module), attribute)


def strategy(text: str, *, seed: int = 0) -> Strategy:
    """The strategy that `name[:option=value,...]` describes. Raises BadInput naming the option and what is allowed."""
    name, _, tail = text.partition(":")
    cls = strategy_class(name.strip())
    fields = {f.name.replace("_", "-"): f.name for f in dataclasses.fields(cls) if f.init and f.name != "seed"}
    hints = get_type_hints(cls)
    values: dict[str, Any] = {}
    for part in filter(None, (piece.strip() for piece in tail.split(","))):
        option, equals, value = (piece.strip() for piece in part.partition("="))
        if option not in fields or not equals:
            near = nearest(option, list(fields))
            hint = f"; did you mean {near!r}?" if near else ""
            allowed = ", ".join(f"{known}=" for known in fields) or "none"
            raise BadInput(f"search.strategy: {name} has no option {part!r}; allowed: {allowed}{hint}")
        values[fields[option]] = _convert(f"search.strategy: {name}:{option}", value, hints[fields[option]])
    try:
        made: Strategy = cls(seed=seed, **values)
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
            raise BadInput(f"{where}: not known (got {value!r}); allowed: {', '.join(get_args(kind))}")
        return value
    if kind in (int, float):
        try:
            return kind(value)
        except ValueError as error:
            what = "a whole number" if kind is int else "a number"
            raise BadInput(f"{where}: not {what} (got {value!r})") from error
    return value
