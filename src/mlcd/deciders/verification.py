"""The verification after a search for a server: load-test the choice, and replace it if it fails.

A choice that fails counts from then on with FAILED_RATE_FACTOR of its rate, and the best one after that is verified
next, authorised by the ledger each time. Only a choice that passed is recommended.

A load test of seconds has noise: a cheaper configuration that fell just short of the asked rate may hold it. It is
verified first, where the verification of the choice still fits after it.
"""

import math
from dataclasses import dataclass, replace
from statistics import NormalDist

from mlcd.deciders.account import Account
from mlcd.deciders.decision import End, Start
from mlcd.deciders.training import attempt_at
from mlcd.run.attempt import Ending
from mlcd.run.run import SearchRun
from mlcd.run.step import Role
from mlcd.trial.outcome import Status
from mlcd.trial.plan import Plan, best_fitting
from mlcd.trial.replicas import with_replicas
from mlcd.trial.trial import Measurement
from mlcd.trial.watched import Place

MOST_VERIFICATIONS = 5
"""Failed verifications that end the run: if the best choices all fail, the trials did not measure what is served."""


MOST_NEAR_MISSES = 2
"""Verifications of configurations that fell short of the rate in their load test."""
LEAST_CHANCE = 0.1
"""The least chance to hold the rate with which such a configuration is verified."""
CHEAPER = 0.9
"""The most that it may cost / the choice's price: less of a difference is not worth a verification."""


@dataclass(frozen=True, kw_only=True)
class VerificationDecider:
    """Verify the choice, then the next best, until one passes. With `seconds` 0, recommend what was measured."""

    seconds: float

    def next(self, account: Account, choice: Plan) -> Start | End:
        """See Aftermath."""
        attempts = account.run.attempts
        if not self.seconds or (attempts and attempts[-1].is_done):
            return End(status=Status.DONE)
        if attempts and attempts[-1].ending is Ending.OVERRAN:
            return End(status=Status.OVERRAN)
        if failed_verifications(account.run) >= MOST_VERIFICATIONS:
            return End(status=Status.NOTHING_FITS)
        plan: Plan | None = choice
        if attempts:
            plan = best_fitting(account.remaining, account.history, account.ledger.remaining())
        if plan is not None:
            plan = _near_miss(account, plan) or plan
        place = None if plan is None else Place(plan=plan)
        return attempt_at(account, place, role=Role.VERIFICATION)


def failed_verifications(run: SearchRun) -> int:
    """How many choices failed; a verification that mlcd itself lost says nothing about its choice."""
    return sum(attempt.ending is Ending.MOVED for attempt in run.attempts)


def _near_miss(account: Account, plan: Plan) -> Plan | None:
    """The cheapest configuration that may hold the rate though its load test did not, if it costs less than `plan`.

    Only while both verifications fit what remains, one after the other: the sure choice is never given up for it.
    """
    problem, rate = account.remaining, account.run.problem.goal.rate
    if rate is None or not plan.is_bookable:
        return None
    tried = {attempt.config for attempt in account.run.attempts}
    history = with_replicas(problem, account.run.history)
    short = {trial.config for trial in history.measured if trial.samples_per_second < rate}
    if len(tried & short) >= MOST_NEAR_MISSES:
        return None
    most = problem.price(plan.config).micros * CHEAPER
    options = [
        Plan.of(problem, replace(trial, samples_per_second=rate))
        for trial in history.measured
        if trial.config in short - tried
        and problem.price(trial.config).micros <= most
        and replace(trial, samples_per_second=rate).meets(problem.goal)
        and _chance(trial, rate, problem.noise) >= LEAST_CHANCE
    ]
    left = account.ledger.remaining()
    fitting = (option for option in options if left.fits(_both(option, plan)))
    return min(fitting, key=lambda option: option.usd, default=None)


def _chance(trial: Measurement, rate: float, noise: float) -> float:
    """The chance that a configuration holds `rate`, by its load test; log rates are taken to be normal."""
    error = max(trial.relative_error, noise)
    return NormalDist().cdf(math.log(trial.samples_per_second / rate) / error) if error > 0 else 0.0


def _both(first: Plan, then: Plan) -> Plan:
    """Two verifications, one after the other, as one plan."""
    return replace(
        first,
        seconds=first.seconds + then.seconds,
        usd=first.usd + then.usd,
        worst_seconds=first.worst_seconds + then.worst_seconds,
        worst_usd=first.worst_usd + then.worst_usd,
    )
