"""Processes that tests interrupt are not measured: coverage holds a lock in which a Ctrl-C hangs for ever."""

import sys

UNMEASURED = {"COVERAGE_PROCESS_START": "", "COVERAGE_PROCESS_CONFIG": ""}
"""The variables of a process that coverage does not measure."""


def stop_measuring() -> None:
    """The same for a process that was forked from a measured one."""
    coverage = sys.modules.get("coverage")
    measuring = coverage.Coverage.current() if coverage is not None else None
    if measuring is not None:
        measuring.stop()
