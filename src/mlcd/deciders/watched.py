"""Where a training may run that is watched (mlcd.trial.watched), when it is looked at, and whether it then stays."""

import math
from dataclasses import replace

from mlcd.deciders.account import Account
from mlcd.run.attempt import Ending
from mlcd.space import Config
from mlcd.trial.plan import Plan, best, plans, tie
from mlcd.trial.trial import History
from mlcd.trial.watched import (
    LEAST_CHANCE,
    Place,
    Watch,
    best_watched,
    look_seconds,
    may_be_watched,
    seconds_on_spot,
    seconds_to_use,
    watched,
)
from mlcd.units import ZERO, Usd

LIKELY_SHARE = 0.4
"""The share of the upper bound's margin at which a deployment is expected to be worth watching once that fits. At the
default assurance this is two standard deviations of 4.75: one such training in 40 has to move."""


def best_place(account: Account, history: History, *, searches: bool = False) -> Place | None:
    """Where a training starts: the best that fits at its upper bound, or a watched one that is expected to be better.

    history   as `Account.history`, or `Account.restarting` for a training that moves
    searches  whether the search goes on: a training without a fallback then waits for what it may still find
    """
    problem, ledger = account.remaining, account.ledger
    certain = best(problem, (plan for plan in plans(problem, history) if ledger.fits(plan)))
    if certain is None and searches:
        return None
    begun = bool(account.run.attempts)
    better = best_watched(problem, history, ledger.remaining(), certain, _left(account), has_begun=begun)
    return better if better is not None or certain is None else Place(plan=certain)


def place_at(account: Account, history: History, plan: Plan) -> Place | None:
    """The training at `plan`, watched where that is needed; None if it may not start there now."""
    if account.ledger.fits(plan):
        return Place(plan=plan)
    begun = bool(account.run.attempts)
    found = watched(account.remaining, history, account.ledger.remaining(), _left(account), has_begun=begun)
    return next((place for place in found if place.plan.config == plan.config), None)


def staying(account: Account) -> Place | None:
    """The training where it runs; watched where its rest is expected to fit but not certain to; None: it does not fit.

    A look at it takes as long as it has run, so that there are few.
    """
    stay, problem, ledger = account.training, account.remaining, account.ledger
    if stay is None:
        return None
    if ledger.fits(stay):
        return Place(plan=stay)
    remaining = ledger.remaining()
    chance = _chance_to_stay(account, stay)
    if not may_be_watched(problem, remaining) or chance < LEAST_CHANCE:
        return None
    seconds = max(_first_look(account, stay.config), account.run.attempts[-1].seconds)
    seconds = min(seconds, max(seconds_to_use(problem, stay.config, remaining), 1.0))
    watch = Watch(seconds=seconds, usd=problem.price(stay.config).for_seconds(seconds), chance=chance)
    return Place(plan=stay, watch=watch) if watch.is_covered(remaining) else None


def better_place(account: Account, watch: Watch | None = None) -> Place | None:
    """Where the training that runs should move: better for the rest of the work, restart included; None: nowhere.

    A gain within a `tie` of what staying takes is not worth a restart: the measurements are no more precise. Where the
    rest does not fit, any other deployment where it does is better.

    watch  how it was watched in the stretch that ended
    """
    stay, problem, ledger = account.training, account.remaining, account.ledger
    if stay is None:
        return None
    others = [plan for plan in plans(problem, account.restarting) if plan.config != stay.config]
    certain = best(problem, (plan for plan in others if ledger.fits(plan)))
    least = math.inf if certain is None else certain.value(problem)
    fits = ledger.fits(stay) if watch is None else not is_too_slow(account, watch)
    if fits and stay.value(problem) * (1 - tie(problem)) <= least:
        certain, least = None, stay.value(problem) * (1 - tie(problem))
    left = {*_left(account), stay.config}
    found = (p for p in watched(problem, account.restarting, ledger.remaining(), left) if p.watch and p.watch.fallback)
    likely = min(found, key=lambda place: place.value(problem), default=None)
    if likely is not None and likely.value(problem) < least:
        return likely
    return None if certain is None else Place(plan=certain)


def is_too_slow(account: Account, watch: Watch) -> bool:
    """Whether the training that was looked at leaves: its rest does not fit what remains.

    With a fallback, at the upper bound of its own speed; without one, as that is expected to go. A speed that is still
    unknown counts as too slow.
    """
    rest, last = account.training, account.run.attempts[-1]
    if rest is None or last.samples_per_second is None:
        return True
    if watch.fallback is not None and not account.ledger.fits(rest):
        return True
    return _chance_to_stay(account, rest) < LEAST_CHANCE


def first_spot_watch(account: Account, config: Config) -> Watch | None:
    """How a training on spot nodes is watched that is certain to fit at the rates known by now; None: not at all.

    It may leave before it must: another rate, or slower nodes, would show too late.
    """
    problem, remaining = account.remaining, account.ledger.remaining()
    if not may_be_watched(problem, remaining) or problem.checkpoint_seconds(config) is None:
        return None
    seconds, fallback = seconds_on_spot(problem, config, plans(problem, account.restarting), remaining)
    if fallback is None:
        return None
    usd = problem.price(config).for_seconds(seconds) + problem.move_to(config).usd
    return Watch(seconds=seconds, usd=usd, chance=1.0, fallback=fallback, renews=True)


def spot_watch(account: Account, passed_seconds: float, unsaved_samples: float) -> Watch | None:
    """How a training on spot nodes is watched that stays after a look; None: nothing on demand would fit any longer.

    passed_seconds   how long this attempt has run
    unsaved_samples  of it that would be lost with the nodes
    """
    stay, ledger = account.training, account.ledger
    if stay is None:
        return None
    lost = unsaved_samples * account.remaining.worth(stay.config)
    problem = replace(account.remaining, work_samples=account.remaining.work_samples + lost)
    remaining = ledger.remaining()
    known = plans(problem, account.restarting)
    seconds, fallback = seconds_on_spot(problem, stay.config, known, remaining, has_data=stay.moved_usd == ZERO)
    if fallback is None or seconds < problem.stop_seconds + (problem.checkpoint_seconds(stay.config) or 0.0):
        return None
    until = passed_seconds + seconds
    usd = problem.price(stay.config).for_seconds(until) + problem.move_to(stay.config).usd
    return Watch(seconds=until, usd=usd, chance=1.0, fallback=fallback, renews=True)


def seconds_to_look(account: Account, config: Config) -> float:
    """How long a training there runs until it is looked at, if it is certain to fit.

    Until a better deployment is expected to be worth watching; without one, twice as long each time.
    """
    stay, first = account.training, _first_look(account, config)
    if stay is None or stay.config != config or not account.ledger.fits(stay):
        return first
    better = seconds_to_better(account, stay)
    return max(first, account.run.attempts[-1].seconds if better is None else better)


def seconds_to_better(account: Account, stay: Plan) -> float | None:
    """When a deployment that is better for the rest of the work than `stay` is expected to be admissible; None: never.

    Better by more than a `tie`, restart included. While the training stays, the part of the limits that must remain for
    what is left of the work shrinks.
    """
    back, ledger, problem = _least_demanding(account), account.ledger, account.remaining
    if back is None or not problem.goal.is_limited:
        return None
    found: float | None = None
    for plan in plans(problem, account.restarting):
        seconds, usd = _needed(account, plan, back)
        share = 1.0
        if ledger.usd_left is not None:
            share = min(share, _share_left(ledger.usd_left, stay.usd, usd))
        if ledger.seconds_left is not None:
            share = min(share, _share_left(ledger.seconds_left, stay.seconds, seconds))
        restart = (problem.price(plan.config).for_seconds(problem.restart_seconds) + plan.moved_usd).dollars
        gain = share * (stay.value(problem) - plan.value(problem))
        gain -= (1 - share) * problem.goal.value(problem.restart_seconds, restart)
        if plan.config == stay.config or share >= 1 or gain <= tie(problem) * share * stay.value(problem):
            continue
        until = (1 - share) * stay.seconds
        found = until if found is None else min(found, until)
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


def _left(account: Account) -> frozenset[Config]:
    """The deployments that the training has left."""
    return frozenset(attempt.config for attempt in account.run.earlier if attempt.ending is Ending.MOVED)


def _chance_to_stay(account: Account, stay: Plan) -> float:
    """The probability that the rest of the work fits where the training runs: 1 or 0, because its speed is its own."""
    problem = account.remaining
    passed = account.run.attempts[-1].seconds if account.run.attempts else 0.0
    room = seconds_to_use(problem, stay.config, account.ledger.remaining(), passed)
    return float(stay.seconds * (1 + problem.slowdown) <= room)


def _least_demanding(account: Account) -> Plan | None:
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


def _needed(account: Account, plan: Plan, back: Plan) -> tuple[float, Usd]:
    """The time and money that must remain so that a training at `plan` is worth watching, with `back` as fallback."""
    price = account.run.problem.price(plan.config)
    look = _first_look(account, plan.config)
    margin = math.log(max(plan.worst_seconds / plan.seconds, 1.0)) if plan.seconds > 0 else 0.0
    seconds = plan.seconds * math.exp(LIKELY_SHARE * margin)
    usd = max(price.for_seconds(seconds), price.for_seconds(look) + back.worst_usd) + plan.moved_usd
    return max(seconds, look + back.worst_seconds), usd


def _share_left(left: Usd | float, stay: Usd | float, need: Usd | float) -> float:
    """The largest share r of the work for which `need` x r remains after 1 - r of it was done where the training is."""
    at_hand, used, needed = (x.dollars if isinstance(x, Usd) else x for x in (left, stay, need))
    if needed <= at_hand:
        return 1.0
    return max((at_hand - used) / (needed - used), 0.0) if needed > used else 0.0


def _first_look(account: Account, config: Config) -> float:
    measured = [trial for trial in account.history.measured if trial.config == config]
    return look_seconds(account.run.problem, config, measured[-1] if measured else None)
