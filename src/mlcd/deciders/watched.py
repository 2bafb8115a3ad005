"""Where a training may run that is watched: it can be moved, so its own upper bound need not fit.

The speed on other nodes is known from a trial, and two runs of one deployment differ (`Problem.noise`). Once the
training has run there for a look, its own speed is known much better. So it may go where it is only likely to fit, if a
fallback remains: another deployment whose upper bound for all of the work fits even if the look brings nothing.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from mlcd.deciders.account import Account
from mlcd.space import Config
from mlcd.trial.plan import Plan, plans, tie
from mlcd.units import Usd

LIKELY_SHARE = 0.4
"""The share of the upper bound's margin that must fit where the training can be moved. At the default assurance this is
two standard deviations of 4.75: one such training in 40 has to move."""


def look_seconds(account: Account, config: Config) -> float:
    """How long a training there runs until it is looked at again, at first as long as a trial.

    Once it is certain to fit: until a better deployment is expected to; without one, twice as long each time.
    """
    stay, first = account.training, _first_look(account)
    if stay is None or stay.config != config or not account.ledger.fits(stay):
        return first
    better = seconds_to_better(account, stay)
    return max(first, account.run.attempts[-1].seconds if better is None else better)


def admissible(account: Account, options: Iterable[Plan]) -> Iterator[Plan]:
    """The plans where the training may run: those that fit; and while the search goes on, those that are likely to.

    The upper bound of the latter is what must remain: for themselves, or for a look and the fallback.
    """
    fits = account.ledger.fits
    back = fallback(account)
    for plan in options:
        if fits(plan):
            yield plan
        elif back is not None and fits(back):
            likely = _likely(account, plan, back)
            if fits(likely):
                yield likely


def fallback(account: Account) -> Plan | None:
    """The measured deployment on which the rest of the work, restart included, needs least of what remains.

    None where nobody looks: after the search, without the guarantee, and where the problem is not `watched`.
    """
    ledger = account.ledger
    if account.run.verdict is not None or not (account.guarded and account.run.problem.watched):
        return None
    usd, seconds = ledger.usd_left, ledger.seconds_left

    def share(plan: Plan) -> float:
        of_money = 0.0 if usd is None else plan.worst_usd.dollars / max(usd.dollars, 1e-9)
        return max(of_money, 0.0 if seconds is None else plan.worst_seconds / max(seconds, 1e-9))

    return min(plans(account.remaining, account.restarting), key=share, default=None)


def seconds_to_better(account: Account, stay: Plan) -> float | None:
    """When a deployment that is better for the rest of the work than `stay` is expected to be admissible; None: never.

    Better by more than a `tie`, restart included. While the training stays, the part of the limits that must remain for
    what is left of the work shrinks.
    """
    back, ledger, problem = fallback(account), account.ledger, account.remaining
    if back is None or not problem.goal.is_limited:
        return None
    found: float | None = None
    for plan in plans(problem, account.restarting):
        likely = _likely(account, plan, back)
        share = 1.0
        if ledger.usd_left is not None:
            share = min(share, _share_left(ledger.usd_left, stay.usd, likely.worst_usd))
        if ledger.seconds_left is not None:
            share = min(share, _share_left(ledger.seconds_left, stay.seconds, likely.worst_seconds))
        restart = problem.price(plan.config).for_seconds(problem.restart_seconds).dollars
        gain = share * (stay.value(problem) - plan.value(problem))
        gain -= (1 - share) * problem.goal.value(problem.restart_seconds, restart)
        if plan.config == stay.config or share >= 1 or gain <= tie(problem) * share * stay.value(problem):
            continue
        seconds = (1 - share) * stay.seconds
        found = seconds if found is None else min(found, seconds)
    return found


def seconds_per_usd(account: Account, stay: Plan) -> float:
    """How much sooner the training ends for every dollar more: see Remaining."""
    left, problem = account.ledger.usd_left, account.remaining
    if left is None:
        return 0.0
    quicker = (
        plan
        for plan in plans(problem, account.restarting)
        if plan.seconds < stay.seconds * (1 - tie(problem)) and plan.worst_usd > left and plan.usd > stay.usd
    )
    rates = ((stay.seconds - plan.seconds) / (plan.usd - stay.usd).dollars for plan in quicker)
    return max(rates, default=0.0)


def _share_left(left: Usd | float, stay: Usd | float, need: Usd | float) -> float:
    """The largest share r of the work for which `need` x r remains after 1 - r of it was done where the training is."""
    at_hand, used, needed = (x.dollars if isinstance(x, Usd) else x for x in (left, stay, need))
    if needed <= at_hand:
        return 1.0
    return max((at_hand - used) / (needed - used), 0.0) if needed > used else 0.0


def _first_look(account: Account) -> float:
    return account.run.problem.restart_seconds + account.run.problem.trial.seconds


def _likely(account: Account, plan: Plan, back: Plan) -> Plan:
    """The plan with what must remain for it as its upper bound."""
    price = account.run.problem.price(plan.config)
    look = _first_look(account)
    margin = math.log(max(plan.worst_seconds / plan.seconds, 1.0)) if plan.seconds > 0 else 0.0
    seconds = plan.seconds * math.exp(LIKELY_SHARE * margin)
    return replace(
        plan,
        worst_seconds=max(seconds, look + back.worst_seconds),
        worst_usd=max(price.for_seconds(seconds), price.for_seconds(look) + back.worst_usd),
    )
