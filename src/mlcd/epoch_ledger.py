"""The budget guarantee for functions: an epoch's worst case is authorised before it starts, and it is ended at its cap.

The worst case of n functions of m MB that run for at most s seconds, with r repeated calls (r = problem.repeats(n)):

    (n + r) x (price of m x (s + granules) + request x calls + storage)

where a slot makes at most calls = s/limit + 1 calls, each rounded up by one granule. Repeated calls are counted as if
each ran for the whole epoch. An epoch is authorised only if this fits in what remains, and it cannot cost more,
whatever happens. So, by induction, no scheduler can overspend.
"""

import math
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from mlcd.functions import Floats, FunctionProblem
from mlcd.run.authorisation import Authorisation, Refusal
from mlcd.trial.epoch import LEAST_SHARE, Epoch, FailedEpoch, Fleet, RemainingEpochs
from mlcd.units import Usd, format_seconds

_ROUNDING_MARGIN = 1e-9
MORE_PARTS = 20
"""Parts of epochs that a run may have beyond `max_epochs`: small ones at the beginning, and a few at the end that fell
short of the target (the opening ones of `mpc` are at most 7). So `max_epochs` also limits how many times functions are
started."""


@dataclass(frozen=True, kw_only=True)
class EpochLedger:
    """The account between two epochs. Frozen: each epoch makes a new one.

    elapsed_seconds  since the first start, including decisions; compared with the deadline
    """

    problem: FunctionProblem
    epochs: tuple[Epoch, ...] = ()
    failed: tuple[FailedEpoch, ...] = ()
    elapsed_seconds: float | None = None

    @property
    def spent(self) -> Usd:
        """The cost of all epochs, failed ones included."""
        return Usd(sum(e.usd.micros for e in self.epochs) + sum(f.usd.micros for f in self.failed))

    @property
    def passes(self) -> float:
        """Epochs that were run; a part of an epoch counts as its share."""
        return math.fsum(e.fleet.share for e in self.epochs)

    @property
    def epochs_left(self) -> float:
        """How many more epochs may be run; 0 if less than the smallest part remains, or after too many parts."""
        if len(self.epochs) >= self.problem.max_epochs + MORE_PARTS:
            return 0.0
        remaining = self.problem.max_epochs - self.passes
        return remaining if remaining >= LEAST_SHARE else 0.0

    @property
    def seconds(self) -> float:
        """Seconds since the first start; the sum of the epochs if `elapsed_seconds` is None."""
        if self.elapsed_seconds is not None:
            return self.elapsed_seconds
        return math.fsum([*(e.seconds for e in self.epochs), *(f.seconds for f in self.failed)])

    @property
    def usd_left(self) -> Usd | None:
        """The budget that is not spent; None without a budget."""
        budget = self.problem.goal.budget
        return None if budget is None else budget - self.spent

    @property
    def seconds_left(self) -> float | None:
        """Time until the deadline; None without a deadline."""
        deadline = self.problem.goal.deadline_seconds
        return None if deadline is None else deadline - self.seconds

    def worst_usd(self, fleet: Fleet, seconds: float) -> Usd:
        """The exact upper bound, rounded up, of an epoch of `fleet` that is ended after `seconds`."""
        calls = fleet.functions + self.problem.repeats(fleet.functions)
        fixed, per_second = self.problem.slot_terms[self.problem.memory_mb.index(fleet.memory_mb)]
        return Usd.of(calls * (fixed + per_second * Decimal(repr(seconds))))

    def remaining(self) -> RemainingEpochs:
        """What remains, for a scheduler to use."""
        return RemainingEpochs(
            usd=self.usd_left,
            seconds=self.seconds_left,
            epochs=self.epochs_left,
            cap_seconds=self._caps(),
            failed=tuple(failed for failed in self.failed if not failed.lost),  # mlcd lost them, not their functions
        )

    def authorise(self, fleet: Fleet, seconds: float | None = None) -> Authorisation | Refusal:
        """Authorisation for one more epoch, or a refusal with its reason.

        seconds  the longest that it may run; None means as long as the remaining budget and time allow
        """
        problem = self.problem
        if fleet.functions not in problem.functions or fleet.memory_mb not in problem.memory_mb:
            return Refusal(choice=fleet, reason="not among the allowed function counts and memory sizes")
        if fleet.share > self.epochs_left + _ROUNDING_MARGIN:
            return Refusal(choice=fleet, reason=f"exceeds the limit of {problem.max_epochs} epochs")
        cap = self._cap(fleet)
        wanted = cap if seconds is None else min(seconds, problem.longest_epoch_seconds)
        if not 0 < wanted <= cap:
            return Refusal(choice=fleet, reason=self._reason(fleet, max(wanted, _granule(problem))))
        usd = self.worst_usd(fleet, wanted)
        if self.usd_left is not None and usd > self.usd_left:
            return Refusal(choice=fleet, reason=self._reason(fleet, wanted))
        attempt = len(self.epochs) + len(self.failed) + 1
        return Authorisation(choice=fleet, attempt=attempt, seconds=wanted, usd=usd)

    def _cap(self, fleet: Fleet) -> float:
        fixed, per_second = self.problem.slot_terms[self.problem.memory_mb.index(fleet.memory_mb)]
        functions = np.array([[float(fleet.functions)]])
        return float(self._caps_of(functions, np.array([[float(fixed)]]), np.array([[float(per_second)]]))[0, 0])

    def _caps(self) -> Floats:
        """(F, M) the longest epoch of each fleet, in seconds."""
        return self._caps_of(self.problem.functions_array, *self.problem.slot_term_arrays)

    def _caps_of(self, functions: Floats, fixed: Floats, per_second: Floats) -> Floats:
        """The caps in seconds, slightly below the exact bound, so that `worst_usd` of a cap always fits."""
        problem = self.problem
        caps = np.full(np.broadcast_shapes(functions.shape, fixed.shape), problem.longest_epoch_seconds)
        if self.usd_left is not None:
            calls = np.ceil(problem.repeat_share * functions - _ROUNDING_MARGIN) + functions
            share = (self.usd_left.micros - 1) / 1e6 / calls - fixed
            caps = np.minimum(caps, np.where(share > 0, share / per_second * (1 - _ROUNDING_MARGIN), 0.0))
        if self.seconds_left is not None:
            caps = np.minimum(caps, max(0.0, self.seconds_left))
        if not self.epochs_left:
            caps = np.zeros_like(caps)
        return np.where(caps >= _granule(problem), caps, 0.0)

    def _reason(self, fleet: Fleet, seconds: float) -> str:
        parts = [f"an epoch of {fleet} that takes {format_seconds(seconds)} may cost {self.worst_usd(fleet, seconds)}"]
        if self.usd_left is not None:
            parts.append(f"{self.usd_left} left")
        if self.seconds_left is not None:
            parts.append(f"{format_seconds(max(0.0, self.seconds_left))} left")
        return "; ".join(parts)


def _granule(problem: FunctionProblem) -> float:
    return float(problem.prices.granule_seconds)
