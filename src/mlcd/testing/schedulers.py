"""The contract of every scheduler (mlcd.schedulers.scheduler.Scheduler)."""

import builtins
import math
import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from mlcd.catalog.functions import function_prices
from mlcd.epoch_ledger import EpochLedger
from mlcd.errors import BadInput
from mlcd.functions import FunctionProblem
from mlcd.goal import Goal, Objective
from mlcd.run.authorisation import Authorisation
from mlcd.schedulers.registry import scheduler
from mlcd.schedulers.scheduler import Scheduler
from mlcd.trial.epoch import Epoch, FailedEpoch, Fleet, Phase, RemainingEpochs
from mlcd.units import Usd

GOALS = {
    "budget": Goal(minimize=Objective.TIME, budget=Usd.of(2)),
    "tight": Goal(minimize=Objective.TIME, budget=Usd.of("0.3")),
    "hopeless": Goal(minimize=Objective.TIME, budget=Usd.of("0.002")),
    "deadline": Goal(minimize=Objective.COST, deadline_seconds=1200.0),
    "both": Goal(minimize=Objective.COST, budget=Usd.of(2), deadline_seconds=1200.0),
    "fastest": Goal(minimize=Objective.TIME),
}
"""Goals of a serverless training, by name."""

FUNCTIONS = (1, 2, 4, 8, 16, 24, 32, 48, 64)
MEMORY_MB = (512, 1024, 1769, 3008)
FIRST_LOSS, FLOOR_LOSS, TARGET_LOSS = 0.7, 0.2, 0.3
WORK_SECONDS, ROUND_SECONDS = 900.0, 4.0
LEAST_MEMORY_MB = 800
"""With less memory than this, every epoch fails."""


def made_problem(goal: str) -> FunctionProblem:
    """A synthetic training of five or six epochs under one of GOALS."""
    return FunctionProblem(
        name="made-up",
        functions=FUNCTIONS,
        memory_mb=MEMORY_MB,
        samples=100_000,
        batch=256,
        model_bytes=400_000,
        target_loss=TARGET_LOSS,
        first_loss=FIRST_LOSS,
        max_epochs=12,
        goal=GOALS[goal],
        prices=function_prices(),
        puts_per_function=10,
        gets_per_function=20,
    )


Outcome = Callable[[FunctionProblem, Authorisation, int, tuple[Epoch, ...]], Epoch | FailedEpoch]


def succeeds(
    problem: FunctionProblem, authorised: Authorisation, number: int, history: tuple[Epoch, ...]
) -> Epoch | FailedEpoch:
    """seconds = share x (900 / (n min(1, m / 1,769)) + 4), loss = floor + (loss before - floor) x 0.75^share.

    Both have an error of some percent, seeded by the epoch. An epoch with too little memory, or too slow, fails.
    """
    fleet = authorised.fleet
    chance = random.Random(f"epoch|{number}|{fleet}")
    speed = min(1.0, fleet.memory_mb / 1769)
    seconds = fleet.share * (WORK_SECONDS / fleet.functions / speed + ROUND_SECONDS) * math.exp(0.03 * chance.gauss())
    if fleet.memory_mb < LEAST_MEMORY_MB or seconds > authorised.seconds:
        ended = min(seconds, authorised.seconds, 20.0 if fleet.memory_mb < LEAST_MEMORY_MB else math.inf)
        usd = min(authorised.usd, _price(problem, fleet, ended))
        return FailedEpoch(number=number, fleet=fleet, seconds=ended, usd=usd, message="made to fail")
    before = history[-1].loss if history else FIRST_LOSS
    step = 1 - 0.75 ** (fleet.share * math.exp(0.05 * chance.gauss()))
    compute = 0.9 * seconds
    return Epoch(
        number=number,
        fleet=fleet,
        loss=before - (before - FLOOR_LOSS) * step,
        seconds=seconds,
        usd=_price(problem, fleet, seconds),
        fetch=Phase(mean_seconds=0.05 * seconds, max_seconds=0.05 * seconds),
        compute=Phase(mean_seconds=compute, max_seconds=compute),
        update=Phase(mean_seconds=0.05 * seconds, max_seconds=0.05 * seconds),
        calls=fleet.functions,
    )


def fails(problem: FunctionProblem, authorised: Authorisation, number: int, history: tuple[Epoch, ...]) -> FailedEpoch:
    """Every epoch fails after ten seconds."""
    ended = min(10.0, authorised.seconds)
    usd = min(authorised.usd, _price(problem, authorised.fleet, ended))
    return FailedEpoch(number=number, fleet=authorised.fleet, seconds=ended, usd=usd, message="made to fail")


def _price(problem: FunctionProblem, fleet: Fleet, seconds: float) -> Usd:
    return problem.prices.charge_alike(
        memory_mb=fleet.memory_mb, calls=[(seconds, fleet.functions)], puts=fleet.functions, gets=2 * fleet.functions
    )


@dataclass(frozen=True, kw_only=True)
class Decision:
    """One question to a scheduler and its answer."""

    history: tuple[Epoch, ...]
    remaining: RemainingEpochs
    fleet: Fleet | None
    spent: Usd


MOST_FAILURES_IN_A_ROW = 4
"""A walk ends after this many successive failures, as a run does."""


def walk(decides: Scheduler, problem: FunctionProblem, *, outcome: Outcome = succeeds) -> Iterator[Decision]:
    """The scheduler's decisions until the target is reached, or until nothing is decided or authorised any more."""
    epochs: tuple[Epoch, ...] = ()
    failed: tuple[FailedEpoch, ...] = ()
    in_a_row = 0
    while in_a_row < MOST_FAILURES_IN_A_ROW and not (epochs and epochs[-1].loss <= problem.target_loss):
        ledger = EpochLedger(problem=problem, epochs=epochs, failed=failed)
        if not ledger.epochs_left:
            return
        remaining = ledger.remaining()
        remaining.cap_seconds.flags.writeable = False
        fleet = decides.decide(problem, epochs, remaining)
        yield Decision(history=epochs, remaining=remaining, fleet=fleet, spent=ledger.spent)
        if fleet is None:
            return
        authorised = ledger.authorise(fleet)
        assert isinstance(authorised, Authorisation), f"an epoch of {fleet} was refused: {authorised.reason}"
        came = outcome(problem, authorised, len(epochs) + 1, epochs)
        if isinstance(came, Epoch):
            epochs, in_a_row = (*epochs, came), 0
        else:
            failed, in_a_row = (*failed, came), in_a_row + 1


def check_allowed(problem: FunctionProblem, remaining: RemainingEpochs, fleet: Fleet) -> None:
    """Asserts that the problem has this fleet, and that `remaining` allows it."""
    assert fleet.functions in problem.functions
    assert fleet.memory_mb in problem.memory_mb
    row, column = problem.functions.index(fleet.functions), problem.memory_mb.index(fleet.memory_mb)
    assert remaining.allowed[row, column], f"{fleet} is not allowed"
    assert fleet.share <= remaining.epochs + 1e-9, (
        f"{fleet} is more than the {remaining.epochs:g} epochs that may still be run"
    )


class SchedulerContract:
    """Each test holds for every scheduler and every set of options.

    text    fixture: the scheduler as a user writes it, `NAME[:OPTION=VALUE,...]`
    make    makes the scheduler from `text` and a seed; override it for a scheduler without a name
    goals   which of GOALS it supports; for the others it must raise BadInput at its first decision
    """

    goals: ClassVar[tuple[str, ...]] = tuple(GOALS)

    @pytest.fixture
    def text(self) -> str:
        raise NotImplementedError

    def make(self, text: str, seed: int = 0) -> Scheduler:
        return scheduler(text, seed=seed)

    @pytest.fixture(params=list(GOALS))
    def problem(self, request: pytest.FixtureRequest) -> FunctionProblem:
        if request.param not in self.goals:
            pytest.skip("not for this goal")
        return made_problem(request.param)

    def test_describes_itself(self, text: str) -> None:
        name = self.make(text).name
        assert name.strip() == name != ""

    def test_refuses_an_unsupported_goal(self, text: str) -> None:
        for goal in set(GOALS) - set(self.goals):
            problem = made_problem(goal)
            with pytest.raises(BadInput):
                self.make(text).decide(problem, (), EpochLedger(problem=problem).remaining())

    def test_decides_what_is_allowed_and_ends_within_the_limits(self, text: str, problem: FunctionProblem) -> None:
        decisions = list(walk(self.make(text, 1), problem))
        for made in decisions:
            if made.fleet is not None:
                check_allowed(problem, made.remaining, made.fleet)
            if problem.goal.budget is not None:
                assert made.spent <= problem.goal.budget
        assert len(decisions) <= 100 * problem.max_epochs

    def test_reaches_the_target_with_an_ample_budget(self, text: str) -> None:
        goal = next(name for name in ("budget", "both", "fastest", "deadline") if name in self.goals)
        problem = made_problem(goal)
        *_, last = walk(self.make(text, 1), problem)
        assert last.fleet is not None, "it gave up before the target"

    def test_never_decides_what_the_ledger_refuses(self, text: str, problem: FunctionProblem) -> None:
        chance = np.random.default_rng(7)
        decides = self.make(text, 1)
        for made in walk(self.make(text, 1), problem):
            caps = np.where(chance.random(problem.shape) < 0.5, made.remaining.cap_seconds, 0.0)
            caps.flags.writeable = False
            narrowed = replace(made.remaining, cap_seconds=caps)
            fleet = decides.decide(problem, made.history, narrowed)
            if fleet is not None:
                check_allowed(problem, narrowed, fleet)

    def test_nothing_allowed_means_none_with_a_reason(self, text: str, problem: FunctionProblem) -> None:
        decides = self.make(text)
        remaining = EpochLedger(problem=problem).remaining()
        nothing = replace(
            remaining,
            usd=None if remaining.usd is None else Usd(0),
            seconds=None if remaining.seconds is None else 0.0,
            cap_seconds=np.zeros(problem.shape),
        )
        for history in ((), self._some_epochs(problem)):
            assert decides.decide(problem, history, nothing) is None
            reason = decides.ending(problem, history, nothing)
            assert reason.strip(" .")
            assert not reason.rstrip().endswith(".")

    def test_the_smallest_budget_is_an_amount_or_unknown(self, text: str, problem: FunctionProblem) -> None:
        decides = self.make(text)
        for history in ((), self._some_epochs(problem)):
            remaining = EpochLedger(problem=problem, epochs=history).remaining()
            least = decides.smallest_budget(problem, history, remaining)
            assert least is None or least.micros > 0

    def test_the_same_question_gets_the_same_answer(self, text: str, problem: FunctionProblem) -> None:
        random.seed(1)
        np.random.seed(1)
        first = list(walk(self.make(text, 3), problem))
        random.seed(2)
        np.random.seed(2)
        states = random.getstate(), repr(np.random.get_state(legacy=True))
        for made in reversed(first):  # in another order, with another object, to show that no state is carried over
            assert self.make(text, 3).decide(problem, made.history, made.remaining) == made.fleet
        assert states == (random.getstate(), repr(np.random.get_state(legacy=True)))

    def test_is_pure(self, text: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        problem = made_problem(self.goals[0])
        list(walk(self.make(text), problem))  # triggers late imports
        capfd.readouterr()
        decides = self.make(text)
        history = self._some_epochs(problem)
        before = repr(history)
        remaining = EpochLedger(problem=problem, epochs=history).remaining()
        remaining.cap_seconds.flags.writeable = False

        def forbidden(*args: object, **kwargs: object) -> object:
            raise AssertionError("a scheduler reads no clock, no file and no environment")

        for clock in ("time", "monotonic", "perf_counter", "time_ns", "sleep"):
            monkeypatch.setattr(time, clock, forbidden)
        monkeypatch.setattr(builtins, "open", forbidden)
        monkeypatch.setattr(os, "open", forbidden)
        monkeypatch.setattr(os, "getenv", forbidden)
        decides.decide(problem, history, remaining)
        decides.ending(problem, history, remaining)
        decides.smallest_budget(problem, history, remaining)
        monkeypatch.undo()
        assert repr(history) == before
        assert capfd.readouterr() == ("", "")

    def test_survives_epochs_that_all_fail(self, text: str, problem: FunctionProblem) -> None:
        for made in walk(self.make(text, 1), problem, outcome=fails):
            assert made.history == ()
            if made.fleet is not None:
                check_allowed(problem, made.remaining, made.fleet)

    def test_works_with_a_single_fleet(self, text: str, problem: FunctionProblem) -> None:
        single = replace(problem, functions=(16,), memory_mb=(1769,))
        for made in walk(self.make(text), single):
            assert made.fleet is None or (made.fleet.functions, made.fleet.memory_mb) == (16, 1769)

    def _some_epochs(self, problem: FunctionProblem) -> tuple[Epoch, ...]:
        """Two epochs that another scheduler would have run; fewer where the limits do not allow them."""
        epochs: tuple[Epoch, ...] = ()
        for fleet in (Fleet(16, 1769), Fleet(8, 1769, 0.5)):
            authorised = EpochLedger(problem=problem, epochs=epochs).authorise(fleet)
            if isinstance(authorised, Authorisation):
                came = succeeds(problem, authorised, len(epochs) + 1, epochs)
                epochs = (*epochs, came) if isinstance(came, Epoch) else epochs
        return epochs
