"""The clock of a run: seconds since its first start, on clocks that nobody can set as far as there are any."""

import hashlib
import math
import os
import secrets
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

from mlcd.run.moment import Elapsed, Moment, elapsed_along, elapsed_between
from mlcd.run.run import AnyRun
from mlcd.run.step import Step

Moments = Callable[[], Moment]
"""Reads the clocks."""


class Clock(Protocol):
    """How much time a run has used."""

    def elapsed_seconds(self, run: AnyRun) -> float:
        """Since the run's first start; 0 before it."""
        ...


def read_moment() -> Moment:
    """Now, on this machine's clocks."""
    boot, machine = _this_boot(os.getpid())
    return Moment(wall_seconds=time.time(), boot_seconds=boot_seconds(), boot=boot, machine=machine)


def boot_seconds() -> float:
    """Seconds on a clock that cannot be set and, where the system has one, counts suspended time too."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    if sys.platform == "darwin":  # there, unlike on Linux, this clock goes on while the machine sleeps
        return time.clock_gettime(time.CLOCK_MONOTONIC_RAW)
    return time.monotonic()


@cache
def _this_boot(process: int) -> tuple[str, str]:
    """Names of this start of the machine and of the machine; of this process and "" where the system has no names."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        boot = ""
    if not boot or not hasattr(time, "CLOCK_BOOTTIME"):
        return f"process {process} {secrets.token_hex(8)}", ""
    try:
        machine = Path("/etc/machine-id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        machine = ""
    # Images that were copied share the identifier, so the name counts too. Hashed: neither is anybody else's business.
    named = hashlib.sha256(f"{machine} {socket.gethostname()}".encode()).hexdigest()[:16]
    return boot, named


@dataclass(frozen=True, kw_only=True)
class WallClock:
    """Real time, including the downtime between two sessions of mlcd.

    Each step's start and end is an anchor: a moment, and the run's time then. What has passed since the last anchor is
    added to it; so that setting the wall clock changes nothing as long as the machine is not restarted, and never takes
    back what was recorded.
    """

    moments: Moments = read_moment

    def elapsed_seconds(self, run: AnyRun) -> float:
        """See Clock."""
        anchor = last_anchor(run)
        return 0.0 if anchor is None else anchor[0] + elapsed_between(anchor[1], self.moments()).seconds

    def note(self, run: AnyRun) -> str:
        """What is assumed about the time since the last anchor; "" where the clocks agree."""
        anchor = last_anchor(run)
        return "" if anchor is None else elapsed_between(anchor[1], self.moments()).note


class SimulatedClock:
    """The time that the steps themselves took: rounds run one after another, and deciding takes no time."""

    def elapsed_seconds(self, run: AnyRun) -> float:
        """See Clock."""
        return run.step_seconds


def last_anchor(run: AnyRun) -> tuple[float, Moment] | None:
    """The last recorded (seconds on the run's clock, moment); None before the first start."""
    anchors = [(step.started_seconds, step.started) for step in run.steps]
    anchors += [
        (step.ended_seconds, step.ended_moment)
        for step in run.steps
        if step.ended_seconds is not None and step.ended_moment is not None
    ]
    return max(anchors, key=lambda anchor: anchor[0], default=None)


def lost_time(step: Step, run: AnyRun, now: Moment) -> Elapsed:
    """The time since the step started, until now, by way of the last end that was recorded after its start."""
    later = [
        (other.ended_seconds, other.ended_moment)
        for other in run.steps
        if other.round >= step.round and other.ended_seconds is not None and other.ended_moment is not None
    ]
    between = [max(later, key=lambda end: end[0])[1]] if later else []
    return elapsed_along([step.started, *between, now])


def charged_seconds(step: Step, passed: Elapsed) -> float:
    """What a lost step is charged: the most that can have passed, up to what was authorised.

    Nodes end themselves when the authorised time is over. Without such a limit, what is known to have passed.
    """
    most = passed.most_seconds if math.isfinite(passed.most_seconds) else math.inf
    limited = min(most, step.authorised_seconds)
    return limited if math.isfinite(limited) else passed.seconds
