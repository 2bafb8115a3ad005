"""What follows when a training is looked at: it stays where it is, moves, or ends."""

from dataclasses import dataclass

from mlcd.deciders.account import Account
from mlcd.deciders.watched import best_place, better_place, is_too_slow, spot_watch
from mlcd.run.attempt import Ending
from mlcd.trial.plan import Plan
from mlcd.trial.watched import Watch, seconds_to_use
from mlcd.units import format_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """How an attempt ends after a look, why, and where the training continues; None: nowhere that is known."""

    ending: Ending
    message: str = ""
    next_plan: Plan | None = None


def is_due(watch: Watch, seconds: float, *, stop_seconds: float) -> bool:
    """Whether a training that has run for so long is looked at now; saving and releasing then take `stop_seconds`."""
    return seconds >= max(watch.seconds - stop_seconds, 0.0)


def after_stretch(account: Account, watch: Watch | None) -> Looked:
    """Beside a search, after a stretch: it continues, or moves to where the rest of the work is better done by now.

    Where a trial did all of the work, it ends: nothing follows that would give its nodes back and charge them.

    watch  how it was watched in that stretch; None where it was certain to fit
    """
    if account.run.finished_trial is not None:
        return Looked(ending=Ending.MOVED, message="a trial beside it did all of the work")
    here = account.run.attempts[-1].config
    there = better_place(account, watch)
    if there is not None:
        said = f"{there.plan.config} is better than {here} for the rest of the work, restart included"
        return Looked(ending=Ending.MOVED, message=said, next_plan=there.plan)
    if watch is not None and is_too_slow(account, watch):
        return Looked(ending=Ending.MOVED, message=f"{_slow(account)}; nothing else that was measured fits")
    return Looked(ending=Ending.CONTINUED)


def after_look(account: Account, watch: Watch) -> Looked | None:
    """After the search, when a training is watched: None if it stays; else it moves to its fallback, if it has one."""
    if not is_too_slow(account, watch):
        return None
    where = "nothing else that was measured fits"
    if watch.fallback is not None:
        where = f"continues on {watch.fallback.config}"
    return Looked(ending=Ending.MOVED, message=f"{_slow(account)}; {where}", next_plan=watch.fallback)


def after_spot_look(account: Account, seconds: float, unsaved_samples: float) -> Looked | Watch | None:
    """After the search, when a training on spot nodes is looked at: where it moves, or how it is watched on.

    None: it stays, because it is certain to fit, or because nothing else is.

    seconds          how long this attempt has run
    unsaved_samples  of it that would be lost with the nodes
    """
    watch = spot_watch(account, seconds, unsaved_samples)
    if watch is not None:
        return watch
    rest = account.training
    if rest is not None and account.ledger.fits(rest):
        return None
    certain = best_place(account, account.restarting)
    if certain is None or certain.plan.config.is_spot:
        return None
    here, there = account.run.attempts[-1].config, certain.plan.config
    said = f"another interruption of {here} could break a limit; continues on {there}"
    return Looked(ending=Ending.MOVED, message=said, next_plan=certain.plan)


def _slow(account: Account) -> str:
    """That the training is too slow, with how long the rest would take and how much time there is."""
    rest, last = account.training, account.run.attempts[-1]
    if rest is None or last.samples_per_second is None:
        return f"{last.config} made no measurable progress in {format_seconds(last.seconds)}"
    left = seconds_to_use(account.remaining, last.config, account.ledger.remaining(), last.seconds)
    needs = f"needs {format_seconds(rest.seconds)} for the rest, at most {format_seconds(rest.worst_seconds)}"
    return f"{last.config} is too slow: it {needs}; {format_seconds(max(left, 0.0))} remain"
