"""What the search came to, as it was decided: stored once and never computed again."""

from dataclasses import dataclass

from mlcd.trial.plan import Plan
from mlcd.units import Usd


@dataclass(frozen=True, slots=True, kw_only=True)
class Naive:
    """What someone who does not search would have taken, for comparison.

    measured  False where seconds and usd come from the model because that configuration was not tried
    """

    label: str
    plan: Plan
    measured: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxation:
    """The smallest change of a limit that would have made a measured configuration fit."""

    text: str
    budget: Usd | None = None
    deadline_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainInstance:
    """What the same training would have taken on one instance, estimated from the functions' compute time."""

    name: str
    usd_per_hour: Usd
    seconds: float
    usd: Usd


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Why the search, or a training on functions, ended, and what was decided then.

    stopped          why it ended: a clause for the user
    search_seconds   on the run's clock when that was decided
    choice           the configuration to train or to serve on; None where nothing fits
    naive            configurations to compare the choice with
    relaxations      what would have helped where nothing fits
    smallest_budget  functions: what the training would have needed, where it ended short and that can be told
    instances        functions: plain instances to compare with, the cheapest first
    """

    stopped: str
    search_seconds: float = 0.0
    choice: Plan | None = None
    naive: tuple[Naive, ...] = ()
    relaxations: tuple[Relaxation, ...] = ()
    smallest_budget: Usd | None = None
    instances: tuple[PlainInstance, ...] = ()
