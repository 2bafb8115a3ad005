"""The result of the search, as it was decided: stored once and never computed again."""

from dataclasses import dataclass

from mlcd.trial.plan import Plan
from mlcd.trial.watched import Watch
from mlcd.units import Usd


@dataclass(frozen=True, slots=True, kw_only=True)
class Naive:
    """A configuration that someone would choose without a search, for comparison.

    measured  False if seconds and usd come from the model because that configuration was not tried
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
    """The time and cost of the same training on one instance, estimated from the functions' compute time."""

    name: str
    usd_per_hour: Usd
    seconds: float
    usd: Usd


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Why the search, or a serverless training, ended, and what was decided then.

    stopped          why it ended: a clause for the user
    search_seconds   time on the run's clock when that was decided
    choice           the configuration to train or serve on; None if nothing fits
    watch            how the training there is watched, if it is expected to fit but not certain to; None if it is
    naive            configurations to compare the choice with
    relaxations      changes of the limits that would have helped, if nothing fits
    smallest_budget  serverless: the budget that the training would have needed, if it fell short and that is known
    instances        serverless: plain instances to compare with, cheapest first
    """

    stopped: str
    search_seconds: float = 0.0
    choice: Plan | None = None
    naive: tuple[Naive, ...] = ()
    relaxations: tuple[Relaxation, ...] = ()
    smallest_budget: Usd | None = None
    instances: tuple[PlainInstance, ...] = ()
    watch: Watch | None = None
