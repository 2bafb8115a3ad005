"""The account of a run at one instant, for display."""

from dataclasses import dataclass

from mlcd.units import Usd


@dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    """The account at one instant; None if there is no limit.

    reserved  kept to train on the incumbent, at its upper bound
    left      neither spent, committed to running steps, nor reserved
    """

    spent: Usd
    reserved: Usd
    left: Usd | None
    elapsed_seconds: float
    reserved_seconds: float
    seconds_left: float | None
