"""Schedulers by name, with options as the user writes them: `mpc`, `static:functions=64,memory=1769`."""

from importlib import import_module
from typing import Any

from mlcd.errors import BadInput, nearest
from mlcd.models.epochs import EpochPrior
from mlcd.options import with_options
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
    """Whether the scheduler that `name[:option=value,...]` describes uses earlier trainings; False if unknown."""
    name = text.partition(":")[0].strip()
    if is_object_name(text) or name not in (*SCHEDULERS, *plugin_names(PLUGIN_GROUP, built_in=SCHEDULERS)):
        return False
    return _takes_prior(scheduler_class(name))


def _takes_prior(cls: Any) -> bool:
    return "prior" in getattr(cls, "given", ())


def scheduler(text: str, *, seed: int = 0, prior: EpochPrior | None = None) -> Scheduler:
    """The scheduler that `name[:option=value,...]` describes. Raises BadInput naming the option and what is allowed.

    prior  from earlier trainings, for schedulers that use one

    `informed` cannot be created by name: it needs the truth, which only a simulated cloud knows.
    """
    name = text.partition(":")[0].strip()
    cls = scheduler_class(name)
    if getattr(cls, "needs_truth", False):
        raise BadInput(f"search.strategy: {name} runs only in `mlcd bench serverless`: it needs the simulator's truth")
    passed = {} if prior is None or not _takes_prior(cls) else {"prior": prior}
    made: Scheduler = with_options(cls, text, seed=seed, given=passed)
    return made
