"""Everything known of one run: what the store keeps and what reports, the command line and the web page show."""

from dataclasses import dataclass

from mlcd.problem import Problem
from mlcd.trial.outcome import Status
from mlcd.trial.plan import Plan
from mlcd.trial.trial import History, Trial
from mlcd.units import ZERO, Usd


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRow:
    """One trial with its circumstances. `number` counts from 1; trials of one `round` ran side by side."""

    number: int
    round: int
    reason: str
    usd_per_hour: Usd
    authorised_usd: Usd
    authorised_seconds: float
    started_seconds: float
    trial: Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalRun:
    """The training itself, as it went; `is_done` is False where it failed or was lost with mlcd."""

    seconds: float
    usd: Usd
    is_done: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Naive:
    """What someone who does not search would have taken, for comparison.

    measured  False where seconds and usd come from the model because that deployment was not tried
    """

    label: str
    plan: Plan
    measured: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxation:
    """The smallest change of a limit that would have made a measured deployment fit."""

    text: str
    budget: Usd | None = None
    deadline_seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """A run, from its question to its receipt.

    choice    the deployment recommended (and trained, unless the run was ended before)
    lost      trainings that died with mlcd on a real cloud: paid, and begun again
    stopped   why the search ended, in words
    """

    run_id: str
    created: str
    cloud: str
    simulated: bool
    strategy: str
    seed: int
    parallel: int
    version: str
    catalog_date: str
    problem: Problem
    status: Status
    rows: tuple[TrialRow, ...] = ()
    search_seconds: float = 0.0
    choice: Plan | None = None
    stopped: str = ""
    final: FinalRun | None = None
    lost: tuple[FinalRun, ...] = ()
    naive: tuple[Naive, ...] = ()
    relaxations: tuple[Relaxation, ...] = ()

    @property
    def history(self) -> History:
        """The trials in order."""
        return History(tuple(row.trial for row in self.rows))

    @property
    def search_usd(self) -> Usd:
        """Every node-second of every trial."""
        return sum((row.trial.usd for row in self.rows), ZERO)

    @property
    def total_usd(self) -> Usd:
        """Search and run."""
        return sum((run.usd for run in self._runs), self.search_usd)

    @property
    def total_seconds(self) -> float:
        """Search and run, on the wall clock (simulated time on simulated clouds)."""
        return self.search_seconds + sum(run.seconds for run in self._runs)

    @property
    def _runs(self) -> tuple[FinalRun, ...]:
        return (*self.lost, self.final) if self.final else self.lost
