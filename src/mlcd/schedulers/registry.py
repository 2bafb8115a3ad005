"""Schedulers by name, with options as the user writes them: `mpc`, `static:functions=64,memory=1769`."""

import dataclasses
from importlib import import_module
from typing import Any, get_type_hints

from mlcd.errors import BadInput, nearest
from mlcd.models.epochs import EpochPrior
from mlcd.plugins import SCHEDULERS as PLUGIN_GROUP
from mlcd.plugins import is_object_name, load_class, plugin_names
from mlcd.schedulers.scheduler import Scheduler

SCHEDULERS = {
    "static-n": ("mlcd.schedulers.static_n", "StaticN"),
    "static": ("mlcd.schedulers.static", "Static"),
    "siren": ("mlcd.schedulers.siren", "Siren"),
    "mpc": ("mlcd.schedulers.mpc", "Mpc"),
    "informed": ("mlcd.schedulers.informed", "Informed"),
}

ONLY_SIMULATED = "informed"
"""Needs the simulator's truth; only `mlcd bench serverless` creates it."""
_NOT_OPTIONS = ("seed", "prior", "truth", "settings")
"""Fields that are not options; the fields of `settings` are."""
MOST_OPTION = 10**18
"""Numbers of options, and their inverses, are at most this large, so that arithmetic with them stays finite."""
_SWITCH = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}


_PLUGIN_ATTRIBUTES = ("name", "decide", "ending", "smallest_budget")


def scheduler_class(name: str) -> Any:
    """The scheduler's class, built in or from a plug-in. Raises BadInput with the nearest name."""
    if name in SCHEDULERS:
        module, attribute = SCHEDULERS[name]
        return getattr(import_module(module), attribute)
    cls = load_class(PLUGIN_GROUP, name, needs=_PLUGIN_ATTRIBUTES, built_in=SCHEDULERS)
    if cls is None:
        built_in = [known for known in SCHEDULERS if known != ONLY_SIMULATED]
        allowed = [*built_in, *plugin_names(PLUGIN_GROUP, built_in=SCHEDULERS)]
        near = nearest(name, allowed)
        hint = f"; did you mean {near!r}?" if near else ""
        raise BadInput(f"search.strategy: unknown scheduler {name!r}; allowed: {', '.join(allowed)}{hint}")
    return cls


def learns_from_runs(text: str) -> bool:
    """Whether the scheduler that `name[:option=value,...]` describes uses earlier trainings; False for unknown names."""
    name = text.partition(":")[0].strip()
    if is_object_name(text) or name not in (*SCHEDULERS, *plugin_names(PLUGIN_GROUP, built_in=SCHEDULERS)):
        return False
    return _has_prior(scheduler_class(name))


def _has_prior(cls: Any) -> bool:
    return any(field.name == "prior" for field in dataclasses.fields(cls))


def scheduler(text: str, *, seed: int = 0, prior: EpochPrior | None = None) -> Scheduler:
    """The scheduler that `name[:option=value,...]` describes. Raises BadInput naming the option and what is allowed.

    prior  from earlier trainings, for schedulers that use one

    `informed` cannot be created by name: it needs the truth, which only a simulated cloud knows.
    """
    name, _, tail = text.partition(":")
    cls = scheduler_class(name.strip())
    if getattr(cls, "needs_truth", False):
        raise BadInput(
            f"search.strategy: {name.strip()} runs only in `mlcd bench serverless`: it needs the simulator's truth"
        )
    settings: Any = next((f.default for f in dataclasses.fields(cls) if f.name == "settings"), None)
    inside = [f.name for f in dataclasses.fields(settings)] if settings is not None else []
    hints = {**get_type_hints(cls), **(get_type_hints(type(settings)) if settings is not None else {})}
    own = [f.name for f in dataclasses.fields(cls) if f.init and f.name not in _NOT_OPTIONS]
    fields = {field.replace("_", "-"): field for field in (*own, *inside)}
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
        if prior is not None and _has_prior(cls):
            values["prior"] = prior
        changed = {field: values.pop(field) for field in inside if field in values}
        if changed:
            values["settings"] = dataclasses.replace(settings, **changed)
        made: Scheduler = cls(seed=seed, **values)
    except ValueError as error:
        raise BadInput(f"search.strategy: {text}: {error}") from error
    return made


def _convert(where: str, value: str, kind: Any) -> Any:
    if kind is bool:
        if value.lower() not in _SWITCH:
            raise BadInput(f"{where}: not a switch (got {value!r}); allowed: on, off")
        return _SWITCH[value.lower()]
    number = float if kind in (float, float | None) else int if kind in (int, int | None) else None
    if number is None:
        return value
    what = "a whole number" if number is int else "a number"
    try:
        found = number(value)
    except ValueError as error:
        raise BadInput(f"{where}: not {what} (got {value[:80]!r})") from error
    if found != 0 and not 1 / MOST_OPTION <= abs(found) <= MOST_OPTION:
        raise BadInput(f"{where}: out of range (got {value[:80]!r}); allowed: {what} up to {MOST_OPTION:.0e}")
    return found
