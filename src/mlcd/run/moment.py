"""An instant on several clocks, and the time between two instants.

The wall clock can be set by anyone, back or forward, while mlcd is down. The boot clock of a machine cannot, and it
counts suspended time too; but it starts again with the machine, and other machines have their own.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from mlcd.units import format_seconds

AGREEMENT_SECONDS = 60.0
"""Clocks that differ by less are said to agree: network time corrects a wall clock by this much without being set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One instant.

    wall_seconds  since 1970
    boot_seconds  on a clock that cannot be set and that counts suspended time; None where it was not recorded
    boot          what `boot_seconds` counts from: one start of the machine, or of the process where the system does not
                  name its start. Only moments of one `boot` can be compared by it
    machine       names the machine whose uptime `boot_seconds` is; "" where that is not known
    """

    wall_seconds: float
    boot_seconds: float | None = None
    boot: str = ""
    machine: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Elapsed:
    """The time between two moments.

    seconds       what is known to have passed, at the least
    most_seconds  the most that can have passed; infinite where the clocks contradict each other
    note          what was assumed, for the user; "" where the clocks agree
    """

    seconds: float
    most_seconds: float
    note: str = ""


def elapsed_between(then: Moment, now: Moment) -> Elapsed:
    """The time from `then` to `now`; never negative.

    Within one start of a machine, the boot clock is exact. Otherwise the wall clock counts, unless it contradicts what
    is certain: time does not run backwards, and a machine that was restarted since `then` has been up for less.
    """
    wall = now.wall_seconds - then.wall_seconds
    if then.boot and then.boot == now.boot and then.boot_seconds is not None and now.boot_seconds is not None:
        passed = now.boot_seconds - then.boot_seconds
        if math.isfinite(passed) and passed >= 0:
            return Elapsed(seconds=passed, most_seconds=passed, note=_set_note(wall - passed))
    is_restarted = bool(then.machine) and then.machine == now.machine and then.boot != now.boot
    least = max(now.boot_seconds or 0.0, 0.0) if is_restarted else 0.0
    if not math.isfinite(wall) or wall < least - AGREEMENT_SECONDS:
        known = f"at least {format_seconds(least)} passed" if least else "how much time passed is not known"
        why = "the wall clock was set back" if wall < 0 else "the wall clock contradicts the machine's uptime"
        return Elapsed(seconds=least, most_seconds=math.inf, note=f"{why} while mlcd was down: {known}")
    passed = max(wall, least)
    note = "" if not then.boot else f"{_where(is_restarted)}: {format_seconds(passed)} passed by the wall clock alone"
    return Elapsed(seconds=passed, most_seconds=passed, note=note)


def elapsed_along(moments: Sequence[Moment]) -> Elapsed:
    """The time from the first moment to the last, by way of those between: each was recorded after the one before."""
    parts = [elapsed_between(then, now) for then, now in pairwise(moments)]
    notes = dict.fromkeys(part.note for part in parts if part.note)
    return Elapsed(
        seconds=math.fsum(part.seconds for part in parts),
        most_seconds=math.fsum(part.most_seconds for part in parts),
        note="; ".join(notes),
    )


def _set_note(jump: float) -> str:
    if abs(jump) <= AGREEMENT_SECONDS:
        return ""
    if not math.isfinite(jump):
        return "the wall clock is not readable: the machine's boot clock counts"
    way = "forward" if jump > 0 else "back"
    return f"the wall clock was set {way} by {format_seconds(abs(jump))}: the machine's boot clock counts"


def _where(is_restarted: bool) -> str:
    return "the machine was restarted" if is_restarted else "another machine or an unknown start of this one continues"
