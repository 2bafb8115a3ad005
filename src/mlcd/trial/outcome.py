"""How a run ended."""

from enum import StrEnum


class Status(StrEnum):
    """The state of a run; all but RUNNING, SEARCHED and INTERRUPTED are final."""

    RUNNING = "running"
    SEARCHED = "searched"
    """The search is over and has chosen; the training was not asked for yet."""
    DONE = "done"
    INFEASIBLE = "infeasible"
    NOTHING_FITS = "nothing-fits"
    OVERRAN = "overran"
    ALL_FAILED = "all-failed"
    REFUSED = "refused"
    """Every cloud of the job refused to give nodes."""
    RUN_FAILED = "run-failed"
    OUTPUT_MISSING = "output-missing"
    """The training ended by itself, and a file that the job file names under `outputs` is not there."""
    INTERRUPTED = "interrupted"

    @property
    def exit_code(self) -> int:
        """The command line's exit code for this state."""
        return _EXIT_CODES[self]

    @property
    def is_final(self) -> bool:
        """Whether the run has nothing to resume."""
        return self not in (Status.RUNNING, Status.SEARCHED, Status.INTERRUPTED)


_EXIT_CODES = {
    Status.RUNNING: 1,
    Status.SEARCHED: 0,
    Status.DONE: 0,
    Status.INFEASIBLE: 3,
    Status.NOTHING_FITS: 4,
    Status.OVERRAN: 5,
    Status.ALL_FAILED: 6,
    Status.REFUSED: 7,
    Status.RUN_FAILED: 1,
    Status.OUTPUT_MISSING: 8,
    Status.INTERRUPTED: 130,
}
