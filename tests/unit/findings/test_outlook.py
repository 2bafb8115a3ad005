"""Why a trial could not start, in words."""

from dataclasses import replace

import pytest
from tests.report_samples import budget_run

from mlcd.findings.outlook import kept_text, refusal_text
from mlcd.ledger import Ledger
from mlcd.trial.trial import History
from mlcd.units import Usd, format_seconds


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


def test_refusal_says_what_is_kept_and_for_what() -> None:
    run = budget_run()
    problem, history = run.problem, History(tuple(step.trial for step in run.trials[:6]))
    row = int(problem.worst_trial_micros.argmax())
    best = Ledger(problem=problem, history=history).incumbent()
    assert best is not None
    cents = Usd.of("0.01")
    goal = replace(problem.goal, budget=best.worst_usd + cents, deadline_seconds=None)
    told = refusal_text(Ledger(problem=replace(problem, goal=goal), history=history), row)
    assert told.endswith(f", and {cents} is free besides {best.worst_usd} kept to train on {best.config}")
    late = replace(problem.goal, budget=None, deadline_seconds=best.worst_seconds + 60.0)
    told = refusal_text(Ledger(problem=replace(problem, goal=late), history=history), row)
    assert told.endswith(
        f", and 1 min is free besides {format_seconds(best.worst_seconds)} kept to train on {best.config}"
    )
    server = replace(problem, goal=goal, verify_seconds=60.0)
    assert kept_text(server, best, lambda _: "$1") == f" besides $1 kept to verify {best.config}"
