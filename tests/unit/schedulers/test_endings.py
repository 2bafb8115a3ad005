"""When no scheduler can go on, and what each says of it: no money, no time, no epochs, or memory that failed."""

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from mlcd.bench.serverless.compare import LawsOfRun
from mlcd.bench.serverless.past import past_prior, past_runs
from mlcd.clouds.functions.sim import SimFunctionCloud
from mlcd.clouds.functions.sim.workloads import PAPER
from mlcd.epoch_ledger import EpochLedger
from mlcd.errors import BadInput
from mlcd.functions import FunctionProblem
from mlcd.goal import Goal, Objective
from mlcd.schedulers.epoch_forecast import EpochForecast
from mlcd.schedulers.informed import Informed
from mlcd.schedulers.keeping import only_memory
from mlcd.schedulers.mpc import Mpc
from mlcd.schedulers.registry import scheduler
from mlcd.schedulers.scheduler import Scheduler
from mlcd.schedulers.siren import Siren
from mlcd.schedulers.siren_state import SirenSettings, observe
from mlcd.schedulers.static import Static
from mlcd.schedulers.static_n import StaticN
from mlcd.trial.epoch import Epoch, FailedEpoch, Fleet, RemainingEpochs
from mlcd.units import Usd

COUNTS = (1, 5, 20, 100, 138, 300, 500, 1000, 3000)
SIZES = (512, 1024, 1536, 2048, 3008)
FITTED: list[Callable[[], Scheduler]] = [Static, StaticN, Mpc, Siren]


def problem_of(usd: float | None, *, seconds: float | None = None, **changed: object) -> FunctionProblem:
    goal = Goal(
        minimize=Objective.TIME if usd is not None else Objective.COST,
        budget=None if usd is None else Usd.of(usd),
        deadline_seconds=seconds,
    )
    made = PAPER.problem(goal, functions=COUNTS, memory_mb=SIZES)
    return replace(made, **changed)  # type: ignore[arg-type]


def informed(problem: FunctionProblem) -> Informed:
    return Informed(truth=LawsOfRun.of(SimFunctionCloud(problem=problem, laws=PAPER.laws, seed=3)))


def epochs(count: int, *, usd: float = 1.0) -> tuple[Epoch, ...]:
    return tuple(replace(epoch, usd=Usd.of(usd)) for epoch in past_runs(PAPER)[0][:count])


def left(problem: FunctionProblem, history: tuple[Epoch, ...] = (), *failed: FailedEpoch) -> RemainingEpochs:
    return EpochLedger(problem=problem, epochs=history, failed=failed).remaining()


def said(problem: FunctionProblem, history: tuple[Epoch, ...] = ()) -> str:
    remaining = left(problem, history)
    return EpochForecast.of(problem, history, remaining).ending(problem, history, remaining)


@pytest.mark.parametrize("make", FITTED)
def test_no_scheduler_starts_what_no_money_pays_for(make: Callable[[], Scheduler]) -> None:
    problem = problem_of(0.0001)
    assert make().decide(problem, (), left(problem)) is None
    assert make().ending(problem, (), left(problem)) == "no fleet can finish an epoch for the remaining $0.0001"
    assert make().smallest_budget(problem, (), left(problem)) is None, "nothing is known yet"


@pytest.mark.parametrize("make", FITTED)
def test_after_a_few_epochs_every_scheduler_names_the_same_missing_budget(make: Callable[[], Scheduler]) -> None:
    problem = problem_of(50.0)
    history = epochs(4, usd=12.0)
    remaining = left(problem, history)
    assert make().decide(problem, history, remaining) is None
    needed = make().smallest_budget(problem, history, remaining)
    assert needed is not None
    assert needed > Usd.of(50)
    assert f"a budget of about {needed} would suffice" in make().ending(problem, history, remaining)


def test_a_budget_that_was_spent_elsewhere_is_told_from_one_that_is_too_small() -> None:
    problem, history = problem_of(900.0), epochs(4, usd=224.0)
    remaining = left(problem, history)
    outlook = EpochForecast.of(problem, history, remaining)
    needed = outlook.smallest_budget(problem, history)
    assert needed is not None
    assert needed.dollars > outlook.spent_usd + outlook.cheapest_usd, "with what was spent, and room for chance"


def test_epochs_that_are_used_up_are_the_reason() -> None:
    history = epochs(2)
    problem = problem_of(500.0, max_epochs=2)
    assert said(problem, history) == f"2 epochs did not reach a loss of {problem.target_loss:.4g}"
    few = problem_of(500.0, max_epochs=3)
    assert said(few, history).endswith("more would be needed, and max_epochs allows 1")
    remaining = left(few, history)
    assert EpochForecast.of(few, history, remaining).smallest_budget(few, history) is None, "no money buys more epochs"


def test_a_deadline_is_the_reason_where_time_is_short() -> None:
    assert (
        said(problem_of(None, seconds=0.0005))
        == "no fleet can finish an epoch in time: 0.5 ms remains until the deadline"
    )
    history = epochs(3)
    late = problem_of(None, seconds=sum(epoch.seconds for epoch in history) + 60.0)
    found = re.search(r"would take about (\d+) min.*, (\d+) min.* at best, and 1 min remains", said(late, history))
    assert found
    assert int(found[2]) < int(found[1]), "the best case, by which it was given up, is less than what is expected"


def test_a_limit_that_nothing_has_shown_is_called_a_guess() -> None:
    short = problem_of(None, seconds=0.0005)
    ways = EpochForecast.of(short, (), left(short)).relaxations(short, (), left(short))
    assert ways
    assert all("a guess" in way.text for way in ways)
    history = epochs(3)
    late = problem_of(None, seconds=sum(epoch.seconds for epoch in history) + 60.0)
    known = EpochForecast.of(late, history, left(late, history)).relaxations(late, history, left(late, history))
    assert known
    assert not any("a guess" in way.text for way in known)


def test_without_limits_only_the_longest_epoch_is_the_reason() -> None:
    problem = problem_of(None, longest_epoch_seconds=0.01)
    assert said(problem) == "no fleet can finish an epoch"
    known = past_prior(PAPER)
    assert known is not None
    outlook = EpochForecast.of(problem, (), left(problem), known)
    assert outlook.cheapest_usd == float("inf")
    assert outlook.smallest_budget(problem, ()) is None


def test_memory_is_as_small_as_it_was_seen_to_do() -> None:
    problem = problem_of(500.0)
    told = tuple(replace(epoch, memory_share=0.5, fleet=Fleet(138, 2048)) for epoch in epochs(2))
    untold = tuple(replace(epoch, memory_share=None, fleet=Fleet(138, 2048)) for epoch in epochs(2))
    smallest = [EpochForecast.of(problem, h, left(problem, h)).smallest_mb for h in ((), told, untold)]
    assert smallest == pytest.approx([3008 / 2, 1.1 * 1024, 2048.0])


def test_what_starting_takes_can_be_left_unlearnt() -> None:
    problem, history = problem_of(500.0), epochs(3)
    model = EpochForecast.of(problem, history, left(problem, history), learn_startup=False).model
    assert float(model.overhead(np.array([100.0]))[0]) == 0.0


def test_a_memory_size_that_is_no_candidate_is_added_for_a_fleet_that_keeps_it() -> None:
    sizes = tuple(range(512, 3009, 64))
    problem = replace(problem_of(500.0), memory_mb=sizes)
    remaining = left(problem)
    outlook = EpochForecast.of(problem, (), remaining)
    missing = next(size for size in sizes if not (outlook.fleets.memory_mb == size).any())
    fleets = only_memory(problem, outlook, remaining, missing)
    assert set(fleets.memory_mb) == {missing}
    assert fleets.payable.any()
    assert (fleets.usd > 0).all()


def test_the_informed_scheduler_plans_for_a_budget_and_names_the_one_it_needs() -> None:
    poor = problem_of(1.0)
    knows = informed(poor)
    assert knows.decide(poor, (), left(poor)) is None
    needed = knows.smallest_budget(poor, (), left(poor))
    assert needed is not None
    assert needed > Usd.of(1)
    assert knows.ending(poor, (), left(poor))
    rich = problem_of(needed.dollars * 1.5)
    assert informed(rich).decide(rich, (), left(rich)) is not None
    free = problem_of(None)
    with pytest.raises(BadInput, match=r"goal\.budget: missing"):
        knows.decide(free, (), left(free))


def test_siren_tries_more_functions_or_memory_where_an_epoch_failed() -> None:
    problem = problem_of(500.0)
    failure = FailedEpoch(number=1, fleet=Fleet(100, 3008), seconds=5.0, usd=Usd.of(1), message="too slow")
    fleet = Siren().decide(problem, (), left(problem, (), failure))
    assert fleet is not None
    assert fleet.functions > 100
    most = replace(failure, fleet=Fleet(3000, 3008))
    assert Siren().decide(problem, (), left(problem, (), most)) is None, "there is no more of either"


def test_siren_need_not_cut_its_last_epoch() -> None:
    problem, history = problem_of(500.0), epochs(9)
    near = (*history[:-1], replace(history[-1], loss=problem.target_loss * 1.0004))
    remaining = left(problem, near)
    assert observe(problem, near, remaining).share < 1
    assert observe(problem, near, remaining, SirenSettings(cut_last=False)).share == 1.0


def test_switches_are_on_or_off() -> None:
    assert scheduler("siren:cut-last=no") == Siren(settings=SirenSettings(cut_last=False))
    with pytest.raises(BadInput, match=r"search\.strategy: siren:cut-last: not a switch .*'maybe'.*; allowed: on, off"):
        scheduler("siren:cut-last=maybe")
    assert scheduler("siren:weights=mine.npz") == Siren(weights="mine.npz")
    with pytest.raises(BadInput, match="not a number"):
        scheduler("siren:opening-share=much")
