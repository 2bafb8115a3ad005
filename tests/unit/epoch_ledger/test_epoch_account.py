"""The account of a training on functions: what is left, what an epoch may cost, and why one may not start."""

from dataclasses import replace

import numpy as np
import pytest

from mlcd.catalog.functions import function_prices
from mlcd.epoch_ledger import EpochLedger
from mlcd.functions import FunctionProblem
from mlcd.goal import Goal, Objective
from mlcd.run.authorisation import Authorisation, Refusal
from mlcd.trial.epoch import LEAST_SHARE, Epoch, FailedEpoch, Fleet, Phase
from mlcd.units import ZERO, Usd

PHASE = Phase(mean_seconds=1.0, max_seconds=1.0)
FLEET = Fleet(8, 1024)
PROBLEM = FunctionProblem(
    name="ctr",
    functions=(1, 8, 64),
    memory_mb=(512, 1024),
    samples=1000,
    batch=10,
    model_bytes=100,
    target_loss=0.3,
    max_epochs=3,
    goal=Goal(minimize=Objective.TIME, budget=Usd.of(1)),
    prices=function_prices("aws-lambda"),
)
FREE = replace(PROBLEM, goal=Goal(minimize=Objective.TIME))


def epoch(number: int = 1, *, share: float = 1.0, usd: str = "0.25", seconds: float = 100.0) -> Epoch:
    fleet = replace(FLEET, share=share)
    return Epoch(
        number=number, fleet=fleet, loss=0.5, seconds=seconds, usd=Usd.of(usd),
        fetch=PHASE, compute=PHASE, update=PHASE, calls=8,
    )  # fmt: skip


def failed(*, usd: str = "0.5", seconds: float = 40.0, lost: bool = False) -> FailedEpoch:
    return FailedEpoch(number=1, fleet=FLEET, seconds=seconds, usd=Usd.of(usd), message="too slow", lost=lost)


def authorised(answer: Authorisation | Refusal) -> Authorisation:
    assert isinstance(answer, Authorisation), answer
    return answer


def refused(answer: Authorisation | Refusal) -> str:
    assert isinstance(answer, Refusal), answer
    return answer.reason


def test_epochs_that_failed_are_paid_too() -> None:
    ledger = EpochLedger(problem=PROBLEM, epochs=(epoch(),), failed=(failed(),))
    assert ledger.spent == Usd.of("0.75")
    assert ledger.usd_left == Usd.of("0.25")
    assert ledger.seconds == 140.0


def test_the_loops_clock_counts_where_it_says_more() -> None:
    late = replace(PROBLEM, goal=replace(PROBLEM.goal, deadline_seconds=500.0))
    ledger = EpochLedger(problem=late, epochs=(epoch(),), elapsed_seconds=460.0)
    assert ledger.seconds == 460.0
    assert ledger.seconds_left == 40.0
    assert EpochLedger(problem=late, epochs=(epoch(),)).seconds_left == 400.0
    assert float(ledger.remaining().cap_seconds.max()) == 40.0


def test_without_limits_an_epoch_may_take_as_long_as_any_may() -> None:
    ledger = EpochLedger(problem=FREE)
    assert ledger.usd_left is None
    assert ledger.seconds_left is None
    assert np.all(ledger.remaining().cap_seconds == FREE.longest_epoch_seconds)
    leave = authorised(ledger.authorise(FLEET))
    assert leave.seconds == FREE.longest_epoch_seconds
    assert leave.usd == ledger.worst_usd(FLEET, leave.seconds)
    assert authorised(ledger.authorise(FLEET, 1e9)).seconds == FREE.longest_epoch_seconds


def test_the_worst_case_by_hand() -> None:
    # 8 functions and 1 repeated call; 1 GB at $0.0000166667/s, one call of at most 900 s, rounded up by 1 ms;
    # a request is $0.0000002, and each slot puts once and gets twice.
    prices = PROBLEM.prices
    second, storage = prices.usd_per_second(1024), prices.usd_per_put + 2 * prices.usd_per_get
    once = prices.usd_per_request + second * prices.granule_seconds
    by_hand = 9 * (once + storage + 90 * (second + once / 900))
    assert EpochLedger(problem=PROBLEM).worst_usd(FLEET, 90.0) == Usd.of(by_hand)


def test_attempts_are_counted_over_all_epochs() -> None:
    ledger = EpochLedger(problem=PROBLEM, epochs=(epoch(usd="0.1"),), failed=(failed(usd="0.1"),))
    assert authorised(ledger.authorise(FLEET, 60.0)).attempt == 3


def test_what_is_authorised_fits_in_what_is_left_to_the_last_micro() -> None:
    for micros in (137, 5_000, 999_999, 1_000_000):
        ledger = EpochLedger(problem=replace(PROBLEM, goal=replace(PROBLEM.goal, budget=Usd(micros))))
        for functions in PROBLEM.functions:
            leave = ledger.authorise(Fleet(functions, 512))
            assert isinstance(leave, Refusal) or leave.usd <= Usd(micros)


@pytest.mark.parametrize("fleet", [Fleet(5, 1024), Fleet(8, 2048)])
def test_fleets_that_are_not_offered_are_refused(fleet: Fleet) -> None:
    reason = refused(EpochLedger(problem=PROBLEM).authorise(fleet))
    assert reason == "not among the allowed function counts and memory sizes"


def test_no_more_epochs_than_are_wanted() -> None:
    done = tuple(epoch(n, usd="0.01") for n in (1, 2))
    ledger = EpochLedger(problem=PROBLEM, epochs=(*done, epoch(3, share=0.5, usd="0.01")))
    assert ledger.passes == 2.5
    assert ledger.epochs_left == 0.5
    assert refused(ledger.authorise(FLEET)) == "exceeds the limit of 3 epochs"
    assert authorised(ledger.authorise(replace(FLEET, share=0.5))).choice == replace(FLEET, share=0.5)


def test_less_than_the_smallest_part_is_nothing() -> None:
    done = tuple(epoch(n, usd="0.01") for n in (1, 2, 3))
    ledger = EpochLedger(problem=PROBLEM, epochs=(*done[:2], epoch(3, share=1 - LEAST_SHARE / 2, usd="0.01")))
    assert ledger.epochs_left == 0.0
    assert not ledger.remaining().cap_seconds.any()
    assert "exceeds the limit" in refused(ledger.authorise(Fleet(1, 512, LEAST_SHARE)))


def test_a_refusal_says_what_it_would_cost_and_what_is_left() -> None:
    limited = replace(PROBLEM, goal=replace(PROBLEM.goal, deadline_seconds=50.0))
    ledger = EpochLedger(problem=limited)
    reason = refused(ledger.authorise(FLEET, 60.0))
    assert f"an epoch of 8 x 1,024 MB that takes 1 min may cost {ledger.worst_usd(FLEET, 60.0)}" in reason
    assert "$1.00 left" in reason
    assert "50 s left" in reason
    assert "left" not in refused(EpochLedger(problem=FREE).authorise(FLEET, 0.0)), "there are no limits to name"


@pytest.mark.parametrize("spent", ["1", "0.999999"])
def test_where_no_granule_can_be_paid_nothing_starts(spent: str) -> None:
    ledger = EpochLedger(problem=PROBLEM, failed=(failed(usd=spent),))
    assert not ledger.remaining().cap_seconds.any()
    assert "left" in refused(ledger.authorise(FLEET))


def test_a_deadline_that_has_passed_leaves_nothing() -> None:
    limited = replace(PROBLEM, goal=replace(PROBLEM.goal, deadline_seconds=50.0))
    ledger = EpochLedger(problem=limited, epochs=(epoch(usd="0"),))
    assert ledger.seconds_left == -50.0
    assert ledger.spent == ZERO
    assert "0 s left" in refused(ledger.authorise(FLEET))


def test_a_scheduler_is_not_told_of_epochs_that_mlcd_lost() -> None:
    slow, lost = failed(usd="0.1"), failed(usd="0.1", lost=True)
    ledger = EpochLedger(problem=PROBLEM, failed=(slow, lost))
    assert ledger.remaining().failed == (slow,)
    assert ledger.spent == Usd.of("0.2"), "both are paid"


def test_the_price_decides_even_where_a_cap_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EpochLedger, "_cap", lambda _self, _fleet: 1e9)
    ledger = EpochLedger(problem=PROBLEM, epochs=(epoch(),))
    assert authorised(ledger.authorise(FLEET, 1.0)).usd <= Usd.of("0.75")
    assert refused(ledger.authorise(FLEET, PROBLEM.longest_epoch_seconds))
