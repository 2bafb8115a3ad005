"""How a run ended."""

from enum import StrEnum


class Status(StrEnum):
    """The state of a run; all but RUNNING and INTERRUPTED are final."""

    RUNNING = "running"
    DONE = "done"
    INFEASIBLE = "infeasible"
    NOTHING_FITS = "nothing-fits"
    OVERRAN = "overran"
    ALL_FAILED = "all-failed"
    RUN_FAILED = "run-failed"
    INTERRUPTED = "interrupted"

    @property
    def exit_code(self) -> int:
        """The command line's exit code for this state."""
        return _EXIT_CODES[self]

    @property
    def is_final(self) -> bool:
        """Whether the run has nothing to resume."""
        return self not in (Status.RUNNING, Status.INTERRUPTED)


_EXIT_CODES = {
    Status.RUNNING: 1,
    Status.DONE: 0,
    Status.INFEASIBLE: 3,
    Status.NOTHING_FITS: 4,
    Status.OVERRAN: 5,
    Status.ALL_FAILED: 6,
    Status.RUN_FAILED: 1,
    Status.INTERRUPTED: 130,
}
