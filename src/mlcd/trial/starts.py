"""How long trials are planned once it is known how long they take to start: rented nodes, images, data loaders."""

import math
from dataclasses import replace

from mlcd.problem import Problem
from mlcd.trial.trial import History

START_MARGIN = 1.25
"""Over the slowest start of this run's trials. On the seen workloads of scout, multicloud and trimtuner (4 seeds, a
budget and both limits), 1, 1.25, 1.5 and 2 times differ by at most 0.03."""
START_STEP_SECONDS = 10.0
"""Starts are rounded up to this, so that the plan does not change with every trial."""


def with_known_start(problem: Problem, history: History) -> Problem:
    """The problem with what its trials took until their first sample; unchanged where none may end early.

    A trial is then planned, priced and authorised for that and the time that is measured at least, instead of its full
    time: short limits have room for more trials. Where the limits have room for the full time, it is authorised.
    """
    if not (problem.trial.may_end_early and history.measured):
        return problem
    slowest = START_MARGIN * max(trial.startup_seconds for trial in history.measured)
    start = START_STEP_SECONDS * math.ceil(slowest / START_STEP_SECONDS)
    return replace(problem, trial=replace(problem.trial, start_seconds=start))
