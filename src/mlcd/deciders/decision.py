"""What deciders return to drivers: start these steps, write this verdict, or end the run."""

from dataclasses import dataclass
from typing import Protocol, TypeVar

from mlcd.functions import FunctionProblem
from mlcd.problem import Problem
from mlcd.run.money import Money
from mlcd.run.run import Run
from mlcd.run.step import Request
from mlcd.run.verdict import Verdict
from mlcd.trial.outcome import Status
from mlcd.trial.plan import Plan

P = TypeVar("P", bound=Problem | FunctionProblem)
P_contra = TypeVar("P_contra", bound=Problem | FunctionProblem, contravariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Start these steps now, in parallel; each authorisation takes the others into account."""

    requests: tuple[Request, ...]

    def __post_init__(self) -> None:
        if not self.requests:
            raise ValueError("a decision to start must name at least one step")


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclude:
    """The search is over: write its verdict, then ask again."""

    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The run is over. `verdict` is set if none was written before."""

    status: Status
    verdict: Verdict | None = None


Decision = Start | Conclude | End


class Decider(Protocol[P_contra]):
    """Decides what comes next. Pure: a function of the run so far, its clock in seconds, its options and its seed."""

    def next(self, run: Run[P_contra], elapsed_seconds: float) -> Decision:
        """What to do now; the run has no step in flight, unless its driver lets steps overlap.

        Raises BadInput if the job itself makes it impossible to continue.
        """
        ...

    def money(self, run: Run[P_contra], elapsed_seconds: float) -> Money:
        """What is spent, committed to steps in flight, reserved and remaining."""
        ...

    def incumbent(self, run: Run[P_contra], elapsed_seconds: float) -> Plan | None:
        """The best measured configuration that fits what remains; None if there is none."""
        ...
