"""Where the engine writes what it does, before it does it. The store is one; a benchmark needs none."""

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from mlcd.run.findings import Findings
from mlcd.run.run import Run
from mlcd.run.step import Step
from mlcd.run.verdict import Verdict
from mlcd.trial.call import FunctionCall
from mlcd.trial.outcome import Status

R = TypeVar("R", bound=Run[Any])


class Journal(Protocol):
    """Append-only; each call is written durably, all or nothing, before it returns."""

    def start(self, run_id: str, steps: Sequence[Step]) -> None:
        """Permission to start a round of steps, before anything is spent on them."""
        ...

    def end(self, run_id: str, step: Step, calls: Sequence[FunctionCall] = ()) -> None:
        """What came of a step; from here on it is never run or paid again."""
        ...

    def conclude(self, run_id: str, verdict: Verdict) -> None:
        """What was decided."""
        ...

    def set_status(self, run_id: str, status: Status) -> None:
        """A change of state."""
        ...

    def finish(self, run_id: str, status: Status, findings: Findings | None) -> None:
        """The run's end, with what reports say of it."""
        ...

    def reread(self, run: R) -> R:
        """The run as it is written here; `run` is as the engine has it."""
        ...


class NoJournal:
    """Keeps nothing: for benchmarks, whose runs are over when their process is."""

    def start(self, run_id: str, steps: Sequence[Step]) -> None:
        """See Journal."""

    def end(self, run_id: str, step: Step, calls: Sequence[FunctionCall] = ()) -> None:
        """See Journal."""

    def conclude(self, run_id: str, verdict: Verdict) -> None:
        """See Journal."""

    def set_status(self, run_id: str, status: Status) -> None:
        """See Journal."""

    def finish(self, run_id: str, status: Status, findings: Findings | None) -> None:
        """See Journal."""

    def reread(self, run: R) -> R:
        """Nothing else knows of it."""
        return run
