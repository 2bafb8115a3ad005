"""Coverage and interrupts: it has a lock, and an interrupt in the functions that take and give it back keeps it taken.

So processes that tests interrupt are not measured, and threads take and give back the lock by functions without Python
code, in which no interrupt can arrive.
"""

import os
import sys

from coverage.collector import Collector

UNMEASURED = {"COVERAGE_PROCESS_START": "", "COVERAGE_PROCESS_CONFIG": ""}
"""The variables of a process that coverage does not measure."""

MEASURED = {name: os.environ[name] for name in UNMEASURED if name in os.environ}
"""The variables of a process that coverage measures as it measures this one."""
UNMEASURED_CHILDREN = f"import os\nfor name in {list(UNMEASURED)}:\n    os.environ.pop(name, None)\n"
"""Before the code of a measured process: what it starts is not measured."""


def stop_measuring() -> None:
    """The same for a process that was forked from a measured one."""
    coverage = sys.modules.get("coverage")
    measuring = coverage.Coverage.current() if coverage is not None else None
    if measuring is not None:
        measuring.stop()


def make_threads_interruptible() -> None:
    """For threads that start from now on in this process."""
    Collector.lock_data = property(lambda self: self.data_lock.acquire)  # type: ignore[method-assign, assignment]
    Collector.unlock_data = property(lambda self: self.data_lock.release)  # type: ignore[method-assign, assignment]
