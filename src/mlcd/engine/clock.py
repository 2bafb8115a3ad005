"""The clock of a run: seconds since its first start."""

import time
from typing import Protocol

from mlcd.run.run import AnyRun


class Clock(Protocol):
    """How much time a run has used."""

    def elapsed_seconds(self, run: AnyRun) -> float:
        """Since the run's first start; 0 before it."""
        ...


class WallClock:
    """Real time, including the downtime between two sessions of mlcd."""

    def elapsed_seconds(self, run: AnyRun) -> float:
        """See Clock."""
        first = run.first_start
        return 0.0 if first is None else max(time.time() - first, 0.0)


class SimulatedClock:
    """The time that the steps themselves took: rounds run one after another, and deciding takes no time."""

    def elapsed_seconds(self, run: AnyRun) -> float:
        """See Clock."""
        return run.step_seconds


def clock_of(*, simulated: bool) -> Clock:
    """The clock for a simulated cloud, or for a real one."""
    return SimulatedClock() if simulated else WallClock()
