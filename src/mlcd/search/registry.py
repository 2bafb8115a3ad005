"""Strategies by name, with options as the user writes them: `heterbo:prune=off,start=2`, `heterbo:paper`."""

from importlib import import_module
from typing import Any

from mlcd.errors import BadInput, nearest
from mlcd.known.measured_jobs import MeasuredJob
from mlcd.known.tables import Known, TargetModel
from mlcd.models.universal import KnownJob
from mlcd.options import with_options
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
    "auto": ("mlcd.search.serving.auto", "ServingAuto"),
    "falcon": ("mlcd.search.serving.falcon", "Falcon"),
    "falcon-transfer": ("mlcd.search.serving.falcon_transfer", "FalconTransfer"),
    "morphling": ("mlcd.search.serving.morphling", "Morphling"),
    "vesta": ("mlcd.search.serving.vesta", "Vesta"),
    "ernest": ("mlcd.search.serving.ernest", "Ernest"),
    "roofline": ("mlcd.search.serving.roofline", "Roofline"),
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

BUILT_IN = frozenset((*STRATEGIES, *SERVING, *KNOBS))
"""Names that no plug-in may use."""

_MEANT = {
    **dict.fromkeys(("grid", "grid-search", "all", "brute-force"), ("exhaustive",)),
    **dict.fromkeys(("bo", "bayesian", "bayes", "gp", "optuna", "tpe"), ("auto", "falcon")),
}
"""Other words for a strategy -> the first that may be chosen."""

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
        near = nearest(name, allowed) or next((meant for meant in _MEANT.get(name, ()) if meant in allowed), "")
        hint = f"; did you mean {near!r}?" if near else ""
        raise BadInput(f"search.strategy: unknown strategy {name!r}; allowed: {', '.join(allowed)}{hint}")
    return cls


def strategy(
    text: str,
    *,
    seed: int = 0,
    known: Known | None = None,
    target: TargetModel | None = None,
    jobs: tuple[KnownJob, ...] = (),
    others: tuple[MeasuredJob, ...] = (),
    own_knobs: bool = False,
    serving: bool = False,
) -> Strategy:
    """The strategy that `name[:[preset,]option=value,...]` describes. Raises BadInput naming what is allowed.

    `known`, `target`, `jobs` and `others` go to classes that list them in `given`; a class that lists one in `needs`
    requires it.
    `own_knobs` allows only strategies that search any knobs; with `serving`, those of `mlcd serve` take precedence.
    """
    name = text.partition(":")[0].strip()
    cls = strategy_class(name, serving=serving or known is not None, own_knobs=own_knobs)
    offered = {"known": known, "target": target, "jobs": jobs, "others": others}
    given = {field: offered[field] for field in getattr(cls, "given", ())}
    for field in sorted(getattr(cls, "needs", ())):
        if given[field] is None:
            raise BadInput(
                f"search.strategy: {name} needs {_NEEDED_INPUT[field]}, which only `mlcd serve` of an ONNX model "
                f"provides: use it there, or choose heterbo"
            )
    made: Strategy = with_options(cls, text, seed=seed, given=given)
    return made
