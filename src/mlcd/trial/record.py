"""Everything known of one run: what the store keeps and what reports, the command line and the web page show."""

from dataclasses import dataclass
from enum import StrEnum

from mlcd.known.resemblance import Resemblance
from mlcd.problem import Problem
from mlcd.space import Config
from mlcd.trial.outcome import Status
from mlcd.trial.plan import Plan
from mlcd.trial.trial import History, Load, Trial
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


class Ending(StrEnum):
    """How a training ended; after the last three it was begun again, from its checkpoint where it has one."""

    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"
    """At the budget's end."""
    LOST = "lost"
    """mlcd died while it ran."""
    RESTARTED = "restarted"
    """Its nodes were taken back or broke."""
    MOVED = "moved"
    """It fell so far behind that another deployment was better."""

    @property
    def is_begun_again(self) -> bool:
        """Whether another attempt came after it."""
        return self in (Ending.LOST, Ending.RESTARTED, Ending.MOVED)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalRun:
    """The training itself, or one attempt at it, as it went.

    config              where it ran
    reached_samples     how far the training was saved when it ended
    samples_per_second  as measured while it trained; None where it was too short to say
    message             why it ended so, where it is not done
    load                serving: what the verification saw
    """

    config: Config
    seconds: float
    usd: Usd
    ending: Ending = Ending.DONE
    reached_samples: float = 0.0
    samples_per_second: float | None = None
    message: str = ""
    load: Load | None = None

    @property
    def is_done(self) -> bool:
        """Whether it trained to the end."""
        return self.ending is Ending.DONE


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingFacts:
    """What of a serving job is no part of its problem.

    model           the file that is served
    scenario        how requests arrive
    headroom        the share of the measured rate that is kept free
    verify_seconds  how long the choice is loaded before it is recommended
    resemblance     what was known of the model beforehand; None where nothing is known of other models
    notes           what was left out of the space, and why
    """

    model: str
    scenario: str
    headroom: float
    verify_seconds: float
    resemblance: Resemblance | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """A run, from its question to its receipt.

    choice    the deployment recommended (and trained, unless the run was ended before)
    earlier   attempts at the training that were begun again: paid, and in the totals
    stopped   why the search ended, in words
    outputs   the folder with what the training brought home; "" where there is none
    kind      of job: train, serve
    serving   the facts of a serving job
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
    earlier: tuple[FinalRun, ...] = ()
    naive: tuple[Naive, ...] = ()
    relaxations: tuple[Relaxation, ...] = ()
    outputs: str = ""
    kind: str = "train"
    serving: ServingFacts | None = None

    @property
    def history(self) -> History:
        """The trials in order."""
        return History(tuple(row.trial for row in self.rows))

    @property
    def reached_samples(self) -> float:
        """How far the training was saved by trials and earlier attempts."""
        return max(self.history.reached_samples, *(run.reached_samples for run in self.earlier), 0.0)

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
        return (*self.earlier, self.final) if self.final else self.earlier
