"""Why a trial could not start, in words."""

from dataclasses import replace

import pytest
from tests.report_samples import budget_run

from mlcd.findings.outlook import refusal_text
from mlcd.ledger import Ledger
from mlcd.trial.trial import History
from mlcd.units import Usd


@pytest.mark.parametrize("short", [Usd(1), Usd.of("0.5")])
def test_refusal_never_says_that_as_much_is_free_as_is_needed(short: Usd) -> None:
    problem = budget_run().problem
    row = int(problem.worst_trial_micros.argmax())
    worst = Usd(int(problem.worst_trial_micros[row]))
    goal = replace(problem.goal, budget=worst - short, deadline_seconds=None)
    told = refusal_text(Ledger(problem=replace(problem, goal=goal), history=History()), row)
    if str(worst) == str(worst - short):
        assert told == f"its trial costs up to {worst}, {short} more than is free"
    else:
        assert told == f"its trial costs up to {worst}, and {worst - short} is free"
