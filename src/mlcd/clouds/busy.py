"""Whether other programs keep this machine busy: jobs that run on it are then slower than the machine is."""

import os
from collections.abc import Callable

from mlcd.clouds.local import usable_cpus

BUSY_LOAD = 1.5
"""Processes that want to run, per processor, from which the machine counts as busy: one job uses all of it at 1."""


def busy_text(load: Callable[[], tuple[float, float, float]] | None = None, processors: int | None = None) -> str:
    """How busy the machine is, as a clause: the load average of the last minute; "" if it is not, or nobody says."""
    load = load or getattr(os, "getloadavg", None)
    count = processors or len(usable_cpus())
    try:
        now = load()[0] if load is not None else 0.0
    except OSError:  # a system without the figure
        return ""
    if now < BUSY_LOAD * count:
        return ""
    words = "1 processor" if count == 1 else f"{count} processors"
    return f"this machine is busy: {now:.0f} processes want to run on its {words} (load average)"


SLOWER = "what is measured now is slower than on a quiet machine"


def busy_notes() -> tuple[str, ...]:
    """The note for a job that is to run on this machine; () if it is not busy."""
    text = busy_text()
    return (f"{text}; {SLOWER}",) if text else ()
