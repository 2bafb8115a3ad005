"""No scheduler can overspend, whatever fleets it requests and whatever the functions do."""

from dataclasses import replace
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcd.bench.serverless.training import train
from mlcd.catalog.functions import function_prices
from mlcd.clouds.functions.provider import EpochFailed, EpochOrder
from mlcd.clouds.functions.sim import Chance, SimFunctionCloud
from mlcd.clouds.functions.sim.workloads import PAPER
from mlcd.epoch_ledger import EpochLedger
from mlcd.functions import FunctionProblem
from mlcd.goal import Goal, Objective
from mlcd.run.authorisation import Authorisation, Refusal
from mlcd.trial.epoch import Epoch, FailedEpoch, Fleet, RemainingEpochs
from mlcd.units import Usd

FUNCTIONS = (1, 2, 7, 40, 138, 482, 828, 2000, 3000)
MEMORY = (128, 512, 1536, 3008)
WILD = Chance(run=0.5, weather=0.6, straggler=0.2, slowness=20.0, failure=0.05, cold_seconds=5.0, progress=0.3)


def problem_of(budget: float, prices: str = "siren-paper", **changes: object) -> FunctionProblem:
    goal = Goal(minimize=Objective.TIME, budget=Usd.of(round(budget, 6)))
    made = PAPER.problem(goal, functions=FUNCTIONS, memory_mb=MEMORY)
    return replace(made, prices=function_prices(prices), **changes)  # type: ignore[arg-type]


class Careless:
    """Requests the given fleets, affordable or not."""

    name: ClassVar[str] = "careless"

    def __init__(self, wishes: list[tuple[int, int, float]]) -> None:
        self.wishes = wishes

    def decide(self, problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs) -> Fleet | None:
        turn = len(history) + len(remaining.failed)
        if turn >= len(self.wishes):
            return None
        number, size, part = self.wishes[turn]
        return Fleet(problem.functions[number % len(FUNCTIONS)], problem.memory_mb[size % len(MEMORY)], part)

    def ending(self, problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs) -> str:
        return "out of wishes"

    def smallest_budget(
        self, problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs
    ) -> Usd | None:
        return None


@settings(max_examples=150, deadline=None)
@given(
    budget=st.floats(0.0001, 2000),
    wishes=st.lists(
        st.tuples(st.integers(0, 8), st.integers(0, 3), st.sampled_from([1.0, 1.0, 0.3, 0.01])), min_size=1, max_size=12
    ),
    seed=st.integers(0, 10_000),
    share=st.sampled_from([0.0, 0.02, 0.1, 1.0]),
)
def test_no_scheduler_overspends_on_a_wild_cloud(
    budget: float, wishes: list[tuple[int, int, float]], seed: int, share: float
) -> None:
    problem = problem_of(budget, repeat_share=share)
    cloud = SimFunctionCloud(problem=problem, laws=replace(PAPER.laws, chance=WILD), seed=seed)
    run = train(problem, cloud, Careless(wishes))
    assert problem.goal.budget is not None
    assert run.spent <= problem.goal.budget
    for step in run.epoch_steps:
        assert step.epoch.usd <= step.authorised_usd
        assert step.epoch.seconds <= step.authorised_seconds


@settings(max_examples=150, deadline=None)
@given(
    budget=st.floats(0.001, 5000),
    number=st.sampled_from(FUNCTIONS),
    size=st.sampled_from((512, 1024)),
    seconds=st.floats(0.001, 20_000),
    prices=st.sampled_from(["aws-lambda", "aws-lambda-2018", "google-functions", "azure-functions"]),
)
def test_an_authorisation_covers_the_worst_cost_of_its_calls(
    budget: float, number: int, size: int, seconds: float, prices: str
) -> None:
    table = function_prices(prices)
    problem = replace(problem_of(budget), memory_mb=(512, 1024), prices=table, limit_seconds=table.limit_seconds)
    ledger = EpochLedger(problem=problem)
    answer = ledger.authorise(Fleet(number, size), seconds)
    if isinstance(answer, Refusal):
        assert ledger.worst_usd(Fleet(number, size), seconds) > Usd.of(round(budget * 0.999, 6)) - Usd(2)
        return
    assert problem.goal.budget is not None
    assert answer.usd <= problem.goal.budget
    # Every slot, repeated ones too, runs until the cap in as many calls as the limit makes.
    slots = number + problem.repeats(number)
    full, rest = divmod(seconds, problem.limit_seconds)
    spent = table.charge_alike(
        memory_mb=size,
        calls=[(problem.limit_seconds, int(full) * slots), (rest, slots)],
        puts=problem.puts_per_function * slots,
        gets=problem.gets_per_function * slots,
    )
    assert spent <= answer.usd


@given(budget=st.floats(0.0001, 2000))
@settings(max_examples=60, deadline=None)
def test_exactly_the_allowed_fleets_are_authorised(budget: float) -> None:
    ledger = EpochLedger(problem=problem_of(budget))
    remaining = ledger.remaining()
    for row, number in enumerate(FUNCTIONS):
        for column, size in enumerate(MEMORY):
            answer = ledger.authorise(Fleet(number, size))
            assert isinstance(answer, Authorisation) == bool(remaining.allowed[row, column])
            if isinstance(answer, Authorisation):
                assert answer.seconds == pytest.approx(remaining.cap_seconds[row, column])


def test_failed_epochs_are_paid_for_and_a_deadline_caps_epochs() -> None:
    problem = problem_of(100.0)
    failure = FailedEpoch(number=1, fleet=Fleet(138, 1536), seconds=60.0, usd=Usd.of(30), message="x")
    ledger = EpochLedger(problem=problem, failed=(failure,))
    assert ledger.usd_left == Usd.of(70)
    limited = replace(problem, goal=replace(problem.goal, deadline_seconds=100.0))
    later = EpochLedger(problem=limited, failed=(failure,))
    assert later.remaining().cap_seconds.max() <= 40.0
    assert isinstance(later.authorise(Fleet(138, 1536), 41.0), Refusal)


def test_refusals_say_why() -> None:
    ledger = EpochLedger(problem=problem_of(1.0))
    refusal = ledger.authorise(Fleet(3000, 3008), 600.0)
    assert isinstance(refusal, Refusal)
    assert "3000 x 3,008 MB" in refusal.reason
    assert "$1.00 left" in refusal.reason
    assert isinstance(ledger.authorise(Fleet(5, 1536)), Refusal), "five is not to be chosen"


def test_an_epoch_that_outlasts_its_authorisation_is_ended_and_charged_no_more() -> None:
    problem = problem_of(100.0)
    cloud = SimFunctionCloud(problem=problem, laws=PAPER.laws)
    order = EpochOrder(number=1, fleet=Fleet(138, 1536), seconds=50.0, usd=Usd.of(1.2))
    with pytest.raises(EpochFailed) as caught:
        cloud.run_epoch(order)
    assert caught.value.seconds == 50.0
    assert caught.value.usd <= Usd.of(1.2)
