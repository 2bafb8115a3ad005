"""One authorised step of a run: a trial, a verification, a training attempt or an epoch on functions."""

from dataclasses import dataclass, field, replace
from enum import StrEnum

from mlcd.run.attempt import Attempt
from mlcd.run.authorisation import Authorisation
from mlcd.run.moment import Moment
from mlcd.space import Config
from mlcd.trial.epoch import Epoch, FailedEpoch, Fleet
from mlcd.trial.trial import Failure, Measurement, Trial
from mlcd.trial.watched import Watch
from mlcd.units import MOST_SECONDS, Usd

Outcome = Measurement | Failure | Attempt | Epoch | FailedEpoch
"""The outcome of a step. Each has `seconds` and `usd`: what the step is charged."""


class Role(StrEnum):
    """What a step is for."""

    TRIAL = "trial"
    VERIFICATION = "verification"
    TRAINING = "training"
    EPOCH = "epoch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A step that a decider wants to start now; the ledger has authorised it.

    reason        why this step, in words for the user
    usd_per_hour  the price used; None for an epoch, whose prices are in its problem
    watch         how a training is watched that is not certain to fit; None for all else
    """

    role: Role
    authorisation: Authorisation
    reason: str = ""
    usd_per_hour: Usd | None = None
    watch: Watch | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step as the store keeps it; in flight as long as `outcome` is None.

    number           from 1, over all steps of the run
    round            steps of one round run at the same time
    started_seconds  after the run's first start, on the run's clock (simulated on simulated clouds)
    started_at       wall clock, seconds since 1970
    ended_seconds    when its outcome was recorded, on the run's clock; None while in flight, and in earlier versions
    started_moment   when it started, on all clocks; None in earlier versions
    ended_moment     when its outcome was recorded, likewise
    watch            how a training is watched that is not certain to fit; None for all else, and in earlier versions
    """

    number: int
    round: int
    role: Role
    authorisation: Authorisation
    reason: str
    usd_per_hour: Usd | None
    started_seconds: float
    started_at: float
    outcome: Outcome | None = None
    ended_seconds: float | None = None
    started_moment: Moment | None = field(default=None, compare=False)
    ended_moment: Moment | None = field(default=None, compare=False)
    watch: Watch | None = None

    def __post_init__(self) -> None:
        if self.number < 1 or self.round < 1:
            raise ValueError("steps and rounds count from 1")
        if self.outcome is not None and not isinstance(self.outcome, _OUTCOMES[self.role]):
            raise ValueError(f"a {type(self.outcome).__name__} is not the outcome of a {self.role}")

    @property
    def config(self) -> Config:
        """Where a trial, training or verification runs."""
        return self.authorisation.config

    @property
    def fleet(self) -> Fleet:
        """The functions of an epoch."""
        return self.authorisation.fleet

    @property
    def authorised_usd(self) -> Usd:
        """The most it may cost."""
        return self.authorisation.usd

    @property
    def authorised_seconds(self) -> float:
        """The longest it may take."""
        return self.authorisation.seconds

    @property
    def shown_authorised_seconds(self) -> float:
        """The longest it may take, for JSON and pictures, which have no infinite numbers."""
        return min(self.authorised_seconds, MOST_SECONDS)

    @property
    def price(self) -> Usd:
        """US dollars per hour, as used. Raises ValueError for an epoch, whose prices are in its problem."""
        if self.usd_per_hour is None:
            raise ValueError(f"step {self.number} has no price per hour")
        return self.usd_per_hour

    @property
    def trial(self) -> Trial:
        """The outcome of a trial. Raises ValueError for other steps, or one that has not ended."""
        if not isinstance(self.outcome, Measurement | Failure):
            raise ValueError(f"step {self.number} is not a trial that has ended")
        return self.outcome

    @property
    def final(self) -> Attempt:
        """The outcome of a training or verification. Raises ValueError for other steps, or one that has not ended."""
        if not isinstance(self.outcome, Attempt):
            raise ValueError(f"step {self.number} is not a training or verification that has ended")
        return self.outcome

    @property
    def epoch(self) -> Epoch | FailedEpoch:
        """The outcome of an epoch. Raises ValueError for other steps, or one that has not ended."""
        if not isinstance(self.outcome, Epoch | FailedEpoch):
            raise ValueError(f"step {self.number} is not an epoch that has ended")
        return self.outcome

    @property
    def started(self) -> Moment:
        """When it started: on all clocks, or on the wall clock alone where no more was recorded."""
        return self.started_moment or Moment(wall_seconds=self.started_at)

    def ended(self, outcome: Outcome, *, seconds: float | None = None, moment: Moment | None = None) -> "Step":
        """The same step with its outcome, recorded after `seconds` of the run's clock, at `moment`."""
        return replace(self, outcome=outcome, ended_seconds=seconds, ended_moment=moment)


_OUTCOMES: dict[Role, type[Trial] | tuple[type, ...]] = {
    Role.TRIAL: (Measurement, Failure),
    Role.VERIFICATION: (Attempt,),
    Role.TRAINING: (Attempt,),
    Role.EPOCH: (Epoch, FailedEpoch),
}
