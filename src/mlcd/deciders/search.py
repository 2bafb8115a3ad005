"""The search: ask the strategy, authorise, start a round of trials; then choose, and hand over to the next phase."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from mlcd.deciders.account import Account, Accounts
from mlcd.deciders.decision import Conclude, Decision, End, Start
from mlcd.deciders.training import is_certain, place_beside, plan_taken, stretch_at
from mlcd.deciders.watched import seconds_per_usd, seconds_to_better
from mlcd.errors import BadInput
from mlcd.goal import Objective
from mlcd.ledger import Ledger
from mlcd.models.remaining import whole_problem
from mlcd.models.speed import speed_model
from mlcd.problem import Problem
from mlcd.relaxation import relaxations
from mlcd.run.attempt import Ending
from mlcd.run.authorisation import Refusal
from mlcd.run.findings import Z95
from mlcd.run.money import Money
from mlcd.run.run import SearchRun
from mlcd.run.step import Request, Role
from mlcd.run.verdict import Naive, Verdict
from mlcd.search.learning import learning_first
from mlcd.search.markets import per_market
from mlcd.search.strategy import Strategy
from mlcd.space import Config
from mlcd.trial.outcome import Status
from mlcd.trial.plan import Plan, Remaining, best_fitting
from mlcd.trial.trial import History, Measurement, Suggestion
from mlcd.trial.watched import Place, best_watched
from mlcd.units import MOST_SECONDS, ZERO, format_seconds

MODEL_TRIALS = 100
"""With more trials than this, the receipt's comparisons do not use the model: an exhaustive search measured enough."""

TRIALS_DID_ALL = "the trials did all of the work"
"""Why a search ended whose training has nothing left to do."""


class Aftermath(Protocol):
    """What follows a search that has chosen something: the training, or the verification of a server."""

    def next(self, account: Account, choice: Plan) -> Start | End:
        """The next attempt at `choice` or at what replaced it, or the end of the run."""
        ...


SURE_TO_FIT, LEAST_TOLD = 0.995, 0.005
"""Probabilities from which a trial's reason says nothing of them, and under which it says that only."""

AMPLE_TRAININGS = 10
"""A budget for so many times the training that could start now is no reason to try one thing at a time. Budgets in the
benchmarks are at most 3 times the least."""


@dataclass(kw_only=True)
class SearchDecider:
    """Trials until the strategy ends the search or nothing more may start; then the verdict; then `aftermath`.

    parallel  most trials at the same time
    naive     (label, configuration) pairs that the receipt compares the choice with
    guarded   whether the ledger keeps the limits; None: as the strategy does
    """

    strategy: Strategy
    aftermath: Aftermath
    parallel: int = 1
    naive: Sequence[tuple[str, Config]] = ()
    guarded: bool | None = None
    accounts: Accounts = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.accounts = Accounts(guarded=self.strategy.guarded if self.guarded is None else self.guarded)

    def next(self, run: SearchRun, elapsed_seconds: float) -> Decision:
        """See Decider."""
        account = self.accounts.at(run, elapsed_seconds)
        if run.verdict is None:
            if run.final is not None:
                return Conclude(verdict=self._verdict(account, "the training ended beside the trials"))
            if run.finished_trial is not None:
                return Conclude(verdict=self._verdict(account, TRIALS_DID_ALL))
            requests, stopped = self.round(run, elapsed_seconds, self.parallel)
            return Start(requests=requests) if requests else Conclude(verdict=self._verdict(account, stopped))
        if run.verdict.choice is None:
            return End(status=_status_without_choice(run, guarded=account.guarded))
        return self.aftermath.next(account, run.verdict.choice)

    def money(self, run: SearchRun, elapsed_seconds: float) -> Money:
        """See Decider."""
        return self.accounts.at(run, elapsed_seconds).money()

    def incumbent(self, run: SearchRun, elapsed_seconds: float) -> Plan | None:
        """See Decider."""
        return self.accounts.at(run, elapsed_seconds).incumbent()

    def round(self, run: SearchRun, elapsed_seconds: float, count: int) -> tuple[tuple[Request, ...], str]:
        """At most `count` authorised trials to start now in addition to those in flight; or none, and why."""
        account = self.accounts.at(run, elapsed_seconds)
        ledger, problem = account.ledger, account.remaining
        # If trials are part of the training, each continues from the last: one at a time.
        one_by_one = not problem.work_known or problem.batching is not None
        most = 1 if one_by_one else count
        room = min(most, problem.max_trials - len(run.trials) - len(ledger.open))
        if room <= 0:
            return (), problem.limit_of_trials_text
        if not problem.work_known and ledger.history.measured and problem.target is None:
            raise BadInput(
                "the job did not report how much work there is: give job.samples, mlcd.epochs(N) around its loop, or"
                " mlcd.steps(loader, total=...)"
            )
        if _is_met(problem, ledger.history):
            return (), "the target was met in a trial"
        if run.problem.is_done_by(run.reached_samples):
            return (), TRIALS_DID_ALL
        if problem.beside:
            return self._beside(account, room)
        return self._authorised(ledger, *self._wanted(ledger, room))

    def choice(self, run: SearchRun, elapsed_seconds: float) -> Plan | None:
        """What would be chosen if the search ended now. If the limits are kept: measured, and certain to fit.

        Or expected to fit, where the training is watched (mlcd.trial.watched).
        """
        place = self._place(self.accounts.at(run, elapsed_seconds))
        return None if place is None else place.plan

    def startable(self, run: SearchRun, elapsed_seconds: float) -> int:
        """The number of configurations of which a trial may start now."""
        return int(self.accounts.at(run, elapsed_seconds).ledger.remaining().allowed.sum())

    # ---- a round

    def _beside(self, account: Account, room: int) -> tuple[tuple[Request, ...], str]:
        """Trials, and a stretch of the training for as long as they run, once something measured fits.

        Until then trials are parts of the training. Where money is short, that is cheaper than a training beside them:
        it waits, and they are made one at a time, however many may run at once, until none may start or is worth its
        price.
        """
        ledger, place, goal = account.ledger, place_beside(account), account.remaining.goal
        waits = not account.run.attempts and (goal.minimize is Objective.COST or _is_short_of_money(ledger, place))
        if place is None or waits:
            count = 1 if waits else room
            if count == 1:  # of several at once, only the work of the one that gets furthest is kept
                ledger = replace(ledger, problem=replace(ledger.problem, beside=False, keeps_work=True))
            requests, stopped = self._authorised(ledger, *self._wanted(ledger, count))
            if requests or place is None:
                return requests, stopped
        attempts = account.run.attempts
        restarts = bool(attempts) and attempts[-1].ending is Ending.RESTARTED
        if restarts or (account.guarded and not is_certain(account, place)):  # nothing else runs until that is settled
            stretch = stretch_at(account, place)
            return ((stretch,), "") if stretch is not None else ((), "the training takes all that is left")
        plan = place.plan
        beside = replace(account.ledger, training=plan, seconds_per_usd=seconds_per_usd(account, plan))
        requests, stopped = self._authorised(beside, *self._wanted(beside, room))
        goes_on = requests or seconds_to_better(account, plan) is not None or self._has_hope(beside, plan)
        stretch = stretch_at(account, place) if goes_on else None
        return ((*requests, stretch), "") if stretch is not None else ((), stopped)

    def _has_hope(self, ledger: Ledger, place: Plan) -> bool:
        """Whether a trial may start later: the budget has room for it as soon as the training is known to be on time.

        What is kept for the training then shrinks, because its own speed is more certain than that of a trial.
        """
        if not ledger.guarded or ledger.problem.goal.budget is None:
            return False
        on_time = replace(place, worst_seconds=place.seconds, worst_usd=place.usd)
        later = replace(ledger, training=on_time)
        requests, _ = self._authorised(later, *self._wanted(later, 1))
        return bool(requests)

    def _wanted(self, ledger: Ledger, room: int) -> tuple[list[Suggestion], str]:
        """Trials worth making, retries first; or none, and why."""
        problem, history, remaining = ledger.problem, ledger.history, ledger.remaining()
        strategy = learning_first(per_market(self.strategy, problem), problem)
        if remaining.training is not None:  # a trial that ends after the training is no use
            in_time = problem.planned_trial_seconds < remaining.training.seconds
            remaining = replace(remaining, allowed=remaining.allowed & in_time)
        running = [authorisation.config for authorisation in ledger.open]
        again = history.to_retry(problem.trial.retries)
        wanted = [
            retry
            for retry in again
            if retry.config not in running and remaining.allowed[problem.space.index[retry.config]]
        ][:room]
        if running:
            allowed = remaining.allowed.copy()
            for config in (*running, *(retry.config for retry in wanted)):
                allowed[problem.space.index[config]] = False
            remaining = replace(remaining, allowed=allowed)
        if not wanted and ledger.guarded and (shorter := _shorter_than_a_trial(problem, history, remaining)):
            return [], shorter
        if len(wanted) < room:
            wanted += strategy.suggest(problem, history, remaining, room - len(wanted))
        return wanted, "" if wanted else strategy.ending(problem, history, remaining)

    def _authorised(
        self, ledger: Ledger, wanted: Sequence[Suggestion], stopped: str
    ) -> tuple[tuple[Request, ...], str]:
        """The wanted trials that may start; each authorisation counts those before it as in flight."""
        requests: list[Request] = []
        for suggestion in wanted:
            with_open = replace(ledger, open=(*ledger.open, *(request.authorisation for request in requests)))
            answer = with_open.authorise(suggestion.config)
            if isinstance(answer, Refusal):
                stopped = f"a {ledger.problem.trial_noun} of {answer.choice} was refused: {answer.reason}"
                continue
            price = ledger.problem.lease_price(suggestion.config)
            reason = _reason(ledger.problem, suggestion)
            requests.append(Request(role=Role.TRIAL, authorisation=answer, reason=reason, usd_per_hour=price))
        return tuple(requests), stopped

    # ---- the verdict

    def _place(self, account: Account) -> Place | None:
        """Where the training would run if the search ended now."""
        run, ledger = account.run, account.ledger
        if run.final is not None:
            return Place(plan=plan_taken(run.final))
        if run.finished_trial is not None:
            return Place(plan=plan_taken(run.finished_trial))
        if run.attempts:  # the training has begun
            return place_beside(account, searches=False)
        remaining = ledger.remaining()
        plan = per_market(self.strategy, ledger.problem).recommend(ledger.problem, ledger.history, remaining)
        if not ledger.guarded:
            return None if plan is None else Place(plan=plan)
        better = best_watched(ledger.problem, ledger.history, remaining, plan)
        if better is not None or plan is None:
            return better
        measured = {trial.config for trial in ledger.history.measured}
        if plan.config not in measured or isinstance(ledger.authorise_run(plan), Refusal):
            return None
        return Place(plan=plan)

    def _verdict(self, account: Account, stopped: str) -> Verdict:
        ledger, problem = account.ledger, account.remaining
        place = self._place(account)
        if place is not None and not problem.work_known and problem.goal.is_limited:
            place, stopped = None, f"{stopped}; {end_unknown_message(problem)}"
        choice = None if place is None else place.plan
        return Verdict(
            stopped=stopped,
            search_seconds=account.elapsed_seconds,
            choice=choice,
            watch=None if place is None else place.watch,
            naive=self._naive_choices(account),
            relaxations=() if choice or not problem.work_known else relaxations(ledger),
        )

    def _naive_choices(self, account: Account) -> tuple[Naive, ...]:
        """What the naive choices would have taken: measured if they were tried, else predicted by the model."""
        if not self.naive:
            return ()
        history = account.history
        problem = whole_problem(account.run.problem, history, account.run.earlier)
        by_config = {trial.config: trial for trial in history.measured}
        model = speed_model(problem, history) if len(history.measured) <= MODEL_TRIALS else None
        answers = []
        for label, config in self.naive:
            trial = by_config.get(config)
            if trial is None and model is not None:
                row = problem.space.index[config]
                speed = problem.work_of(config) / math.exp(model.log_seconds[row])
                trial = Measurement(
                    config=config,
                    attempt=1,
                    samples_per_second=speed * problem.stretch_of(config),
                    relative_error=float(model.variance[row]) ** 0.5,
                    iterations=1,
                    startup_seconds=0.0,
                    seconds=0.0,
                    usd=ZERO,
                )
            if trial is not None:
                answers.append(Naive(label=label, plan=Plan.of(problem, trial), measured=config in by_config))
        return tuple(answers)


def end_unknown_message(problem: Problem) -> str:
    """Why the end of a training cannot be promised."""
    metric = problem.target.metric if problem.target else "metric"
    return (
        f"the {metric} in the trials does not show when the target will be met: give job.epochs, the"
        " most it may take, or longer trials (search.trial.minutes)"
    )


def _shorter_than_a_trial(problem: Problem, history: History, remaining: Remaining) -> str:
    """Why no trial can pay for itself: the training takes no more than any of them, in the goal's unit. "" if one may.

    Not while a training runs beside the trials, because they cost it no time, and not for serving, which goes on.
    """
    incumbent = best_fitting(problem, history, remaining)
    if incumbent is None or problem.beside or problem.verify_seconds is not None:
        return ""
    open_ = remaining.allowed.copy()
    open_[[problem.space.index[config] for config in history.tried]] = False
    seconds = problem.planned_trial_seconds
    prices = problem.goal.values(seconds, problem.planned_trial_dollars)[open_]
    if not len(prices) or incumbent.value(problem) > prices.min():
        return ""
    takes = f"{format_seconds(incumbent.seconds)} and {incumbent.usd}"
    return f"the training on {incumbent.config} takes {takes}, no more than another trial would"


def _reason(problem: Problem, suggestion: Suggestion) -> str:
    """The suggestion's reason, how likely training there is to fit, and what it is expected to take.

    That is the median, and 95% of the model's belief.
    """
    expected, config = suggestion.expected, suggestion.config
    if expected is None or not problem.work_known or problem.verify_seconds is not None:
        return suggestion.reason
    told = suggestion.reason + (_chance_text(suggestion.chance) if problem.goal.is_limited else "")
    seconds = problem.work_of(config) / expected.samples_per_second * problem.stretch_of(config)
    factor = math.exp(min(Z95 * expected.deviation, 100.0))
    if not seconds * factor < MOST_SECONDS:
        return told
    low, high = format_seconds(seconds / factor), format_seconds(seconds * factor)
    usd = problem.price(config).for_seconds(seconds) + problem.move_to(config).usd
    return f"{told}; expected {format_seconds(seconds)} ({low} .. {high}) and {usd} there"


def _chance_text(chance: float | None) -> str:
    """`; fits the limits with probability 12%`; "" where it is not known, or as good as certain."""
    if chance is None or not chance < SURE_TO_FIT:
        return ""
    return f"; fits the limits with probability {f'{chance:.0%}' if chance >= LEAST_TOLD else 'under 1%'}"


def _is_met(problem: Problem, history: History) -> bool:
    target = problem.target
    return target is not None and any(target.is_met_by(p.metric) for trial in history.measured for p in trial.learned)


def _status_without_choice(run: SearchRun, *, guarded: bool) -> Status:
    history = run.history
    if guarded and run.has_overrun:  # a cloud did not keep what was authorised
        return Status.OVERRAN
    if not run.trials and not history.measured:
        return Status.INFEASIBLE
    if history.refused_places >= set(run.problem.places):
        return Status.REFUSED
    return Status.NOTHING_FITS if history.measured else Status.ALL_FAILED


def _is_short_of_money(ledger: Ledger, place: Place | None) -> bool:
    """Whether trials may have to be given up for the training's sake; so it is while nothing is known to fit."""
    left = ledger.usd_left
    return left is not None and (place is None or left.dollars < AMPLE_TRAININGS * place.plan.worst_usd.dollars)
