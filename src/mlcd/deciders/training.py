"""The training after a search: one attempt after another, until it is done or nothing fits any longer."""

from dataclasses import dataclass, replace

from mlcd.deciders.account import Account
from mlcd.deciders.decision import End, Start
from mlcd.deciders.watched import best_place, place_at, staying
from mlcd.run.attempt import Attempt, Ending
from mlcd.run.authorisation import Authorisation, Refusal
from mlcd.run.run import SearchRun
from mlcd.run.step import Request, Role
from mlcd.trial.outcome import Status
from mlcd.trial.plan import Plan
from mlcd.trial.trial import Measurement
from mlcd.trial.watched import Place
from mlcd.units import HOUR, ZERO


@dataclass(frozen=True, kw_only=True)
class TrainingDecider:
    """Train on the choice; after an attempt that must be restarted, where the remaining work fits best."""

    def next(self, account: Account, choice: Plan) -> Start | End:
        """See Aftermath."""
        attempts = account.run.attempts
        last = attempts[-1] if attempts else None
        if last is not None and not last.ending.is_begun_again:
            return End(status=_status(account.run, last, _ended_seconds(account)))
        if account.run.finished_trial is not None:
            return End(status=_status_within(account.run, _ended_seconds(account)))
        if account.training is not None:
            return _continued(account, account.training)
        place = _first_place(account, choice) if last is None else _next_place(account, last)
        return attempt_at(account, place, role=Role.TRAINING)


def place_beside(account: Account, *, searches: bool = True) -> Place | None:
    """Where the training runs beside the next trials: where it is, else where its next attempt starts; or nowhere.

    searches  whether the search goes on, or ends now
    """
    stay, attempts = account.training, account.run.attempts
    if stay is not None:
        return staying(account) or Place(plan=stay)
    if attempts:
        return _next_place(account, attempts[-1], searches=searches)
    return best_place(account, account.history, searches=searches)


def is_certain(account: Account, place: Place) -> bool:
    """Whether the rest of the work fits there at its upper bound; else the training is only likely to stay there."""
    return place.watch is None and account.ledger.fits(place.plan)


def plan_taken(attempt: Attempt | Measurement) -> Plan:
    """What an attempt, or a trial that did all of the work, took, as a plan."""
    seconds, usd = attempt.seconds, attempt.usd
    return Plan(config=attempt.config, seconds=seconds, usd=usd, worst_seconds=seconds, worst_usd=usd)


def stretch_at(account: Account, place: Place) -> Request | None:
    """A stretch of the training at `place`, authorised; None if it does not fit what remains."""
    answer = account.ledger.authorise_run(place.plan, place.watch)
    if isinstance(answer, Refusal):
        return None
    ended = account.run.open_stretch
    attempt = 1 + len(account.run.attempts) if ended is None else ended.authorisation.attempt
    price = account.run.problem.price(place.plan.config)
    paid = max(answer.usd - place.plan.moved_usd, ZERO)
    seconds = min(answer.seconds, paid.dollars / price.dollars * HOUR)
    return _training(account, replace(answer, attempt=attempt, seconds=seconds), place)


def _continued(account: Account, rest: Plan) -> Start | End:
    """The training goes on to its end on its nodes; within what remains, where its upper bound is more."""
    ledger, place = account.ledger, staying(account) or Place(plan=rest)
    seconds, usd = rest.worst_seconds, rest.worst_usd
    if ledger.guarded and ledger.usd_left is not None:
        if ledger.usd_left <= ZERO:
            return End(status=Status.OVERRAN if account.run.has_overrun else Status.NOTHING_FITS)
        price = account.run.problem.price(rest.config)
        seconds = min(seconds, ledger.usd_left.dollars / price.dollars * HOUR)
        usd = min(usd, ledger.usd_left)
    if place.watch is not None and ledger.seconds_left is not None:
        seconds = min(seconds, ledger.seconds_left)
    ended = account.run.open_stretch
    attempt = 1 if ended is None else ended.authorisation.attempt
    authorisation = Authorisation(choice=rest.config, attempt=attempt, usd=usd, seconds=seconds)
    return Start(requests=(_training(account, authorisation, place),))


def attempt_at(account: Account, place: Place | None, *, role: Role) -> Start | End:
    """Start the next attempt at `place`, authorised; end the run if there is no place or it does not fit."""
    answer = None if place is None else account.ledger.authorise_run(place.plan, place.watch)
    if place is None or answer is None or isinstance(answer, Refusal):
        overran = account.guarded and account.run.has_overrun  # a cloud did not keep what was authorised
        return End(status=Status.OVERRAN if overran else Status.NOTHING_FITS)
    answer = replace(answer, attempt=1 + len(account.run.attempts))
    return Start(requests=(_training(account, answer, place, role),))


def _training(account: Account, answer: Authorisation, place: Place, role: Role = Role.TRAINING) -> Request:
    price = account.run.problem.lease_price(place.plan.config)
    return Request(role=role, authorisation=answer, usd_per_hour=price, watch=place.watch)


def _first_place(account: Account, choice: Plan) -> Place | None:
    """The choice replanned for the remaining work, if trials have done some of it.

    Time may have passed since it was chosen. If it may no longer start, what is best now.
    """
    plan = choice
    if account.run.reached_samples:
        plan = _plan_on(account, choice) or choice
    if not account.guarded:
        return Place(plan=plan)
    return place_at(account, account.history, plan) or best_place(account, account.history)


def _plan_on(account: Account, there: Plan | Attempt) -> Plan | None:
    measured = [trial for trial in account.restarting.measured if trial.config == there.config]
    return Plan.of(account.remaining, measured[-1]) if measured else None


def _next_place(account: Account, ended: Attempt, *, searches: bool = False) -> Place | None:
    """After a move, its destination; after a restart or a loss, the same configuration; else the best for the rest."""
    remaining = account.ledger.remaining()
    if ended.next_plan is not None:  # planned for the work done by then; what was saved may be less
        there = place_at(account, account.restarting, _plan_on(account, ended.next_plan) or ended.next_plan)
        if there is not None:
            return there
    same = _plan_on(account, ended)
    # Spot nodes were taken away: with what is known of that now, on-demand may be better.
    same_place = not ended.interrupted and ended.ending in (Ending.RESTARTED, Ending.LOST, Ending.INTERRUPTED)
    if same_place and same is not None and remaining.fits(same):
        return Place(plan=same)
    return best_place(account, account.restarting, searches=searches)


def _ended_seconds(account: Account) -> float:
    """When the last attempt ended, on the run's clock: time after it, such as until a resume, breaks no deadline.

    Where trials did all of the work, when the last of them ended.
    """
    steps = account.run.ended
    ends = [step.ended_seconds for step in steps if isinstance(step.outcome, Attempt) or not account.run.attempts]
    return account.elapsed_seconds if not ends or ends[-1] is None else min(ends[-1], account.elapsed_seconds)


def _status(run: SearchRun, final: Attempt, elapsed_seconds: float) -> Status:
    if final.ending is Ending.FAILED:
        return Status.RUN_FAILED
    if final.missing_outputs:
        return Status.OUTPUT_MISSING
    stopped = final.ending in (Ending.STOPPED, Ending.OVERRAN)
    return Status.OVERRAN if stopped else _status_within(run, elapsed_seconds)


def _status_within(run: SearchRun, elapsed_seconds: float) -> Status:
    """The status of a run whose work is done: whether it kept its limits."""
    goal = run.problem.goal
    over_time = goal.deadline_seconds is not None and elapsed_seconds > goal.deadline_seconds
    over_money = goal.budget is not None and run.spent > goal.budget
    return Status.OVERRAN if over_time or over_money else Status.DONE
