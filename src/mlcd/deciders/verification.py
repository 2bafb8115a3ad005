"""The verification after a search for a server: load-test the choice, and replace it if it fails.

A choice that fails counts from then on with FAILED_RATE_FACTOR of its rate, and the best one after that is verified
next, authorised by the ledger each time. Only a choice that passed is recommended.
"""

from dataclasses import dataclass

from mlcd.deciders.account import Account
from mlcd.deciders.decision import End, Start
from mlcd.deciders.training import attempt_at
from mlcd.run.attempt import Ending
from mlcd.run.run import SearchRun
from mlcd.run.step import Role
from mlcd.trial.outcome import Status
from mlcd.trial.plan import Plan, best_fitting
from mlcd.trial.watched import Place

MOST_VERIFICATIONS = 5
"""Failed verifications that end the run: if the best choices all fail, the trials did not measure what is served."""


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
        place = None if plan is None else Place(plan=plan)
        return attempt_at(account, place, role=Role.VERIFICATION)


def failed_verifications(run: SearchRun) -> int:
    """How many choices failed; a verification that mlcd itself lost says nothing about its choice."""
    return sum(attempt.ending is Ending.MOVED for attempt in run.attempts)
