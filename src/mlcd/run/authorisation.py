"""The answers of both ledgers: authorisation to start one step, or a refusal."""

from dataclasses import dataclass

from mlcd.space import Config
from mlcd.trial.epoch import Fleet
from mlcd.units import Usd

Choice = Config | Fleet
"""What a step runs on: a configuration of nodes or of a server, or the functions of an epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorisation:
    """Permission to start one step, with the most it may cost and take. `attempt` counts from 1 per choice and role."""

    choice: Choice
    attempt: int
    usd: Usd
    seconds: float

    @property
    def config(self) -> Config:
        """The choice of a trial, training or verification. Raises TypeError for an epoch."""
        return as_config(self.choice)

    @property
    def fleet(self) -> Fleet:
        """The choice of an epoch. Raises TypeError for any other step."""
        return as_fleet(self.choice)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a step may not start, for the user."""

    choice: Choice
    reason: str


def as_config(choice: Choice) -> Config:
    """`choice` as a configuration. Raises TypeError for the functions of an epoch."""
    if not isinstance(choice, Config):
        raise TypeError(f"{choice} is not a configuration of nodes")
    return choice


def as_fleet(choice: Choice) -> Fleet:
    """`choice` as a fleet of functions. Raises TypeError for a configuration of nodes."""
    if not isinstance(choice, Fleet):
        raise TypeError(f"{choice} is not a fleet of functions")
    return choice
