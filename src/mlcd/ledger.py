"""The budget guarantee: what was spent, what is reserved, and whether a trial may start.

A trial starts only if its worst case, plus the incumbent's upper bound for finishing the job, fits in what remains, in
money and in time. While nothing measured fits, nothing is reserved, and the trial alone must fit. By induction the
limits hold at every instant, whatever the outcomes of the trials.

Beside a training, the reserve is what that training may still take. Its money and a trial's add up; their times do not,
since they run at the same time. A training in stretches on the same nodes takes no longer than in one piece: each
stretch is authorised what the one before it left of its upper bound.

A training whose upper bound does not fit may start if it is watched (mlcd.trial.watched). It is authorised at most what
remains, and only if that covers the look and, after it, the fallback at its upper bound. So at every instant, what is
open and the fallback fit the limits.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mlcd.problem import Problem
from mlcd.run.authorisation import Authorisation, Refusal
from mlcd.space import Config
from mlcd.trial.plan import Plan, Remaining, best_fitting
from mlcd.trial.trial import History
from mlcd.trial.watched import Watch, may_be_watched
from mlcd.units import HOUR, MOST_USD, ZERO, Usd, format_seconds

Amounts = NDArray[np.int64]
Times = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """The account at one instant. Frozen: each step of the engine makes a new one from the store's records.

    spent            cost of all trials paid so far
    elapsed_seconds  since the first start: wall-clock time on real clouds, simulated time on simulated ones
    open             trials that are authorised and not yet settled
    guarded          False only for rival strategies on simulated clouds, to show what happens without the guarantee
    training         the rest of the training that runs, or starts, beside the trials; None while there is none
    seconds_per_usd  see Remaining
    """

    problem: Problem
    history: History
    spent: Usd = ZERO
    elapsed_seconds: float = 0.0
    open: tuple[Authorisation, ...] = ()
    guarded: bool = True
    training: Plan | None = None
    seconds_per_usd: float = 0.0

    @property
    def committed(self) -> Usd:
        """The worst-case cost of the running trials."""
        return Usd(sum(a.usd.micros for a in self.open))

    @property
    def usd_left(self) -> Usd | None:
        """The budget that is neither spent nor committed; None without a budget."""
        budget = self.problem.goal.budget
        return None if budget is None else budget - self.spent - self.committed

    @property
    def seconds_left(self) -> float | None:
        """Time until the deadline after the running trials' worst case; None without a deadline."""
        deadline = self.problem.goal.deadline_seconds
        if deadline is None:
            return None
        return deadline - self.elapsed_seconds - max((a.seconds for a in self.open), default=0.0)

    def seconds_after(self, reserve: Plan | None) -> float | None:
        """Time until the deadline after the running trials and `reserve`, at their worst; None without a deadline."""
        if self.seconds_left is None or reserve is None:
            return self.seconds_left
        if self.training is None:
            return self.seconds_left - reserve.worst_seconds
        running = max((a.seconds for a in self.open), default=0.0)
        return self.seconds_left + running - max(running, reserve.worst_seconds)

    def incumbent(self) -> Plan | None:
        """The deployment that would be trained if the search ended now; its upper bound is reserved."""
        if self.training is not None:
            return self.training
        return self._best_fitting

    @cached_property
    def _best_fitting(self) -> Plan | None:
        return best_fitting(self.problem, self.history, self._bare_left())

    def remaining(self) -> Remaining:
        """What remains, for a strategy to use."""
        problem = self.problem
        bookable = MOST_USD - self.spent - self.committed
        allowed = problem.worst_trial_micros <= bookable.micros
        bare = self._bare_left()
        allowed &= bare.allowed
        if not self.guarded:
            return replace(bare, allowed=allowed, training=self.training)
        own = problem.verification_micros if self.incumbent() is None else 0  # the first one is for nothing without it
        allowed &= self._leaves_the_reserve(problem.worst_trial_micros + own, problem.worst_trial_seconds)
        return replace(bare, allowed=allowed, training=self.training, seconds_per_usd=self.seconds_per_usd)

    def _leaves_the_reserve(self, micros: Amounts, seconds: Times) -> NDArray[np.bool_]:
        """Whether a trial that costs and takes so much, for each of them, leaves what is reserved."""
        reserve, left = self.incumbent(), self.usd_left
        fits = np.ones(np.shape(micros), dtype=bool)
        if left is not None:
            free = left - (reserve.worst_usd if reserve else ZERO)
            fits &= np.less_equal(micros, free.micros)
        deadline = self.problem.goal.deadline_seconds
        if deadline is not None:
            running = max((a.seconds for a in self.open), default=0.0)
            until = deadline - self.elapsed_seconds
            if self.training is not None:
                running = max(running, self.training.worst_seconds)
            else:
                until -= reserve.worst_seconds if reserve is not None else self.problem.verify_seconds or 0.0
            fits &= np.maximum(seconds, running) <= until
        return fits

    def authorise(self, config: Config) -> Authorisation | Refusal:
        """Authorisation for one more trial of `config` in addition to the open ones, or a refusal with its reason."""
        problem = self.problem
        index = problem.space.index[config]
        if not self.remaining().allowed[index]:
            return Refusal(choice=config, reason=self._reason(index))
        usd, seconds = Usd(int(problem.worst_trial_micros[index])), float(problem.worst_trial_seconds[index])
        # Where starts are known, it is planned shorter; it may take its full time all the same if there is room.
        full = problem.trial_at(config).at_full_length.worst_seconds(config.nodes)
        full_usd = problem.lease_price(config).for_seconds(full) + problem.move_to(config).trial_usd
        is_bookable = self.spent + self.committed + full_usd <= MOST_USD
        if is_bookable and self._leaves_the_reserve(np.array([full_usd.micros]), np.array([full])).all():
            usd, seconds = full_usd, full
        return Authorisation(choice=config, attempt=self.history.attempts(config) + 1, usd=usd, seconds=seconds)

    def fits(self, plan: Plan) -> bool:
        """Whether the plan fits what remains, with nothing reserved: its upper bound if guarded."""
        return self._bare_left().fits(plan)

    def authorise_run(self, plan: Plan, watch: Watch | None = None) -> Authorisation | Refusal:
        """Authorisation for the training or verification, or a refusal. If guarded, its upper bound is the limit.

        With `watch`, the limit is what remains, and that must cover the look and the fallback.
        """
        bare = self._bare_left()
        usd, seconds = plan.worst_usd, plan.worst_seconds
        if watch is not None:
            if self.open or not (may_be_watched(self.problem, bare) and watch.is_covered(bare)):
                return Refusal(choice=plan.config, reason="what remains does not cover the look and the fallback")
            if bare.usd is not None:
                usd = min(usd, bare.usd)
                paid = max(usd - plan.moved_usd, ZERO)
                seconds = min(seconds, paid.dollars / self.problem.price(plan.config).dollars * HOUR)
            seconds = seconds if bare.seconds is None else min(seconds, bare.seconds)
        elif not bare.fits(plan):
            return Refusal(choice=plan.config, reason="its upper bound exceeds the remaining budget or time")
        if self.spent + self.committed + usd > MOST_USD:
            return Refusal(choice=plan.config, reason=f"with it the run might spend more than {MOST_USD}")
        return Authorisation(choice=plan.config, attempt=1, usd=usd, seconds=seconds)

    def _bare_left(self) -> Remaining:
        allowed = np.ones(len(self.problem.space), dtype=bool)
        if refused := self.history.refused_places:
            allowed = np.array([place not in refused for place in self.problem.places])
        if self.guarded:
            return Remaining(usd=self.usd_left, seconds=self.seconds_left, allowed=allowed)
        goal = self.problem.goal
        return Remaining(usd=goal.budget, seconds=goal.deadline_seconds, allowed=allowed, guarded=False)

    def _reason(self, index: int) -> str:
        if self.problem.places[index] in self.history.refused_places:
            return f"{self.problem.places[index] or 'the cloud'} refused to give nodes"
        usd, seconds = Usd(int(self.problem.worst_trial_micros[index])), float(self.problem.worst_trial_seconds[index])
        reserve = self.incumbent()
        parts = [f"a {self.problem.trial_noun} may take {usd} and {format_seconds(seconds)}"]
        if reserve is not None:
            use = "train on" if self.problem.verify_seconds is None else "verify"
            parts.append(
                f"{reserve.worst_usd} and {format_seconds(reserve.worst_seconds)} are kept to {use} {reserve.config}"
            )
        if self.usd_left is not None:
            parts.append(f"{self.usd_left} left")
        if self.seconds_left is not None:
            parts.append(f"{format_seconds(self.seconds_left)} left")
        return "; ".join(parts)
