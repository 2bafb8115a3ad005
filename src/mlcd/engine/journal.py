"""Where the engine records what it does before it does it. The store is a journal; benchmarks use NoJournal."""

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
        """Record the authorised steps of a round, before anything is spent on them."""
        ...

    def end(self, run_id: str, step: Step, calls: Sequence[FunctionCall] = ()) -> None:
        """Record the outcome of a step. From then on the step is never run or paid again."""
        ...

    def conclude(self, run_id: str, verdict: Verdict) -> None:
        """Record the verdict."""
        ...

    def set_status(self, run_id: str, status: Status) -> None:
        """Record a change of status."""
        ...

    def finish(self, run_id: str, status: Status, findings: Findings | None) -> None:
        """Record the end of the run, with its findings."""
        ...

    def reread(self, run: R) -> R:
        """The run as recorded here; `run` is the engine's copy."""
        ...


class NoJournal:
    """Records nothing: for benchmarks, whose runs end with their process."""

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
        """Return `run` itself: there is no other copy."""
        return run
