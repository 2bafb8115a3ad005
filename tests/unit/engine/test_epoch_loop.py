"""The loop of a training on functions: what is paid once, what a kill loses (nothing), and how it ends."""

import time
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from mlcd.catalog.functions import function_prices
from mlcd.clouds.functions.provider import EpochFailed, EpochOrder
from mlcd.clouds.functions.sim import SimFunctionCloud
from mlcd.clouds.functions.sim.workloads import TESTBED
from mlcd.deciders.epochs import EpochDecider
from mlcd.engine import Engine
from mlcd.engine.epochs import EpochPerformer
from mlcd.errors import Interrupted, ProviderError
from mlcd.functions import FunctionProblem
from mlcd.goal import Goal, Objective
from mlcd.run.header import FunctionFacts, Header
from mlcd.run.kind import Kind
from mlcd.run.run import EpochRun, Run
from mlcd.store.store import Store
from mlcd.trial.call import FunctionCall
from mlcd.trial.epoch import Epoch, Fleet, Phase, RemainingEpochs
from mlcd.trial.outcome import Status
from mlcd.units import ZERO, Usd

NOTHING = Phase(mean_seconds=0.0, max_seconds=0.0)


def problem(budget: float | None = 1.0, **changes: Any) -> FunctionProblem:
    goal = Goal(minimize=Objective.TIME, budget=None if budget is None else Usd.of(budget))
    base: dict[str, Any] = {
        "name": "t",
        "functions": (1, 2, 4, 8),
        "memory_mb": (512, 1024),
        "samples": 1000,
        "batch": 100,
        "model_bytes": 4,
        "target_loss": 0.2,
        "max_epochs": 20,
        "goal": goal,
        "prices": function_prices(),
        "repeat_share": 0.25,
    }
    return FunctionProblem(**{**base, **changes})


class Always:
    """A scheduler that always chooses one fleet."""

    name: ClassVar[str] = "always"

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet

    def decide(self, problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs) -> Fleet | None:
        return self.fleet

    def ending(self, problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs) -> str:
        return "never"

    def smallest_budget(
        self, problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs
    ) -> Usd | None:
        return Usd.of(7)


class FakeCloud:
    """Functions that look real to the loop: loss 1/(1 + number), $0.01 and 0 s an epoch.

    script  epoch -> what goes wrong: an exception to raise, or a function to call first
    """

    name, simulated = "lithops/fake", False

    def __init__(self, script: dict[int, Any] | None = None) -> None:
        self.script = script or {}
        self.ran: list[int] = []
        self.calls: tuple[FunctionCall, ...] = ()
        self.outcomes: dict[int, Epoch] = {}
        self.restored: tuple[Epoch, ...] | None = None

    def restore(self, run_id: str, epochs: Any) -> None:
        self.restored = tuple(epochs)

    def finished(self, run_id: str, number: int) -> Epoch | None:
        return self.outcomes.get(number)

    def lost(self, order: EpochOrder, *, elapsed_seconds: float) -> Usd:
        return Usd.of("0.001")

    def run_epoch(self, order: EpochOrder) -> Epoch:
        self.ran.append(order.number)
        self.calls = ()
        trouble = self.script.pop(order.number, None)
        if isinstance(trouble, BaseException):
            raise trouble
        epoch = Epoch(
            number=order.number,
            fleet=order.fleet,
            loss=1 / (1 + order.number),
            seconds=0.0,
            usd=Usd.of("0.01"),
            fetch=NOTHING,
            compute=NOTHING,
            update=NOTHING,
            calls=order.fleet.functions,
        )
        self.outcomes[order.number] = epoch
        if trouble is not None:
            trouble()
        self.calls = (_call(order.number),)
        return epoch


def _call(number: int) -> FunctionCall:
    return FunctionCall(
        epoch=number,
        shard=0,
        attempt=1,
        memory_mb=512,
        seconds=1.5,
        usd=Decimal("0.0000123456"),
        fetch_seconds=0.1,
        compute_seconds=1.0,
        update_seconds=0.3,
        waited_seconds=0.0,
        puts=3,
        gets=4,
        cold=True,
        ending="done",
        peak_mb=44.0,
    )


class Killed(BaseException):
    """Like kill -9: nothing of mlcd runs after it."""


def add(store: Store, asked: FunctionProblem, cloud: Any, run_id: str = "run") -> None:
    run = Run(
        header=Header(
            run_id=run_id,
            created="2026-11-15T12:00:00+00:00",
            kind=Kind.SERVERLESS,
            cloud=cloud.name,
            simulated=cloud.simulated,
            strategy="always",
            seed=0,
            version="0",
            catalog_date="",
            functions=FunctionFacts(model="logistic", sync="hsp"),
        ),
        problem=asked,
    )
    store.add(run, spec={"source": ""})


def stored(store: Store) -> EpochRun:
    return cast(EpochRun, store.load("run"))


def train(store: Store, cloud: Any, who: Any = None, **more: Any) -> EpochRun:
    """Drive the stored run to its end; checks that the engine's copy equals the stored run."""
    engine = Engine(
        run=stored(store),
        decider=EpochDecider(scheduler=who or Always(Fleet(2, 512))),
        performer=EpochPerformer(cloud=cloud),
        journal=store,
        **more,
    )
    run = engine.drive()
    assert stored(store) == run
    return run


def test_it_trains_to_the_target_and_keeps_every_epoch_and_call() -> None:
    asked, cloud = problem(), FakeCloud()
    with Store(None) as store:
        add(store, asked, cloud)
        record = train(store, cloud)
        assert record.status is Status.DONE
        assert [epoch.number for epoch in record.epochs] == [1, 2, 3, 4]
        assert record.total_usd == Usd.of("0.04")
        assert record.is_target_reached
        calls = store.calls("run")
        assert [call.epoch for call in calls] == [1, 2, 3, 4]
        assert calls[0] == _call(1)
        assert stored(store).problem == asked
        assert store.runs()[0].spent == Usd.of("0.04")
        assert train(store, FakeCloud()) == record  # a finished run is only read again


def test_failed_epochs_are_charged_and_tried_again() -> None:
    trouble = EpochFailed("three calls died", seconds=2.0, usd=Usd.of("0.005"))
    asked, cloud = problem(), FakeCloud({2: trouble})
    with Store(None) as store:
        add(store, asked, cloud)
        record = train(store, cloud)
        assert record.status is Status.DONE
        assert cloud.ran == [1, 2, 2, 3, 4]
        assert record.total_usd == Usd.of("0.045")
        assert [each.message for each in record.failed_epochs] == ["three calls died"]


class Doomed(FakeCloud):
    def run_epoch(self, order: EpochOrder) -> Epoch:
        raise EpochFailed("no luck", seconds=1.0, usd=Usd.of("0.001"))


def test_three_failures_in_a_row_end_the_run() -> None:
    asked, cloud = problem(), Doomed()
    with Store(None) as store:
        add(store, asked, cloud)
        record = train(store, cloud)
        assert record.status is Status.ALL_FAILED
        assert record.status.exit_code == 6
        assert record.total_usd == Usd.of("0.003")
        assert "no luck" in record.stopped


def test_an_error_in_the_model_ends_the_run_at_once() -> None:
    trouble = EpochFailed("mine:make: NameError", seconds=1.0, usd=ZERO, hopeless=True)
    asked, cloud = problem(), FakeCloud({1: trouble})
    with Store(None) as store:
        add(store, asked, cloud)
        record = train(store, cloud)
        assert (record.status, cloud.ran) == (Status.RUN_FAILED, [1])
        assert "the model cannot be trained: mine:make: NameError" in record.stopped


def test_a_target_that_is_never_reached_is_a_status_not_an_error() -> None:
    asked, cloud = problem(target_loss=0.01, max_epochs=5), FakeCloud()
    with Store(None) as store:
        add(store, asked, cloud)
        record = train(store, cloud)
        assert record.status is Status.NOTHING_FITS
        assert record.status.exit_code == 4
        assert "the limit of 5 epochs is reached; the lowest loss was 0.1667" in record.stopped


def test_the_ledger_refuses_what_the_budget_cannot_pay() -> None:
    asked, cloud = problem(budget=0.000001), FakeCloud()
    with Store(None) as store:
        add(store, asked, cloud)
        record = train(store, cloud, Always(Fleet(8, 1024)))
        assert (record.status, cloud.ran) == (Status.INFEASIBLE, [])
        assert "was refused" in record.stopped
        assert record.smallest_budget == Usd.of(7)


class Greedy(FakeCloud):
    """Every epoch takes all that was authorised."""

    def run_epoch(self, order: EpochOrder) -> Epoch:
        raise EpochFailed("took it all", seconds=order.seconds, usd=order.usd)


def test_no_epoch_can_spend_more_than_the_budget() -> None:
    asked, cloud = problem(budget=0.01), Greedy()
    with Store(None) as store:
        add(store, asked, cloud)
        record = train(store, cloud, Always(Fleet(8, 1024)))
        assert record.total_usd <= Usd.of("0.01")
        assert record.status is Status.ALL_FAILED


def test_a_hung_epoch_ends_long_before_the_budget_is_spent() -> None:
    orders: list[EpochOrder] = []

    class Noting(FakeCloud):
        def run_epoch(self, order: EpochOrder) -> Epoch:
            orders.append(order)
            return super().run_epoch(order)

    asked, cloud = problem(budget=100), Noting()
    with Store(None) as store:
        add(store, asked, cloud)
        train(store, cloud)
    assert orders[0].seconds > 3600
    assert all(order.seconds <= 60 for order in orders[1:])


def test_an_interrupted_run_is_charged_and_can_be_resumed() -> None:
    asked, cloud = problem(), FakeCloud({3: KeyboardInterrupt()})
    with Store(None) as store:
        add(store, asked, cloud)
        with pytest.raises(Interrupted, match="mlcd resume run"):
            train(store, cloud)
        assert store.status("run") is Status.INTERRUPTED
        record = train(store, cloud)
        assert record.status is Status.DONE
        assert cloud.ran == [1, 2, 3, 3, 4]
        assert record.total_usd == Usd.of("0.041")
        assert cloud.restored == record.epochs[:2]


def test_an_interruption_between_two_epochs_charges_nothing() -> None:
    class Breaking(Always):
        def decide(
            self, problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs
        ) -> Fleet | None:
            if len(history) == 2:
                raise KeyboardInterrupt
            return super().decide(problem, history, remaining)

    asked, cloud = problem(), FakeCloud()
    with Store(None) as store:
        add(store, asked, cloud)
        with pytest.raises(Interrupted):
            train(store, cloud, Breaking(Fleet(8, 1024)))
        record = stored(store)
        assert record.status is Status.INTERRUPTED
        assert record.failed_epochs == ()
        assert record.total_usd == Usd.of("0.02")


def test_an_interrupted_epoch_is_charged_for_its_itemised_calls() -> None:
    call = FunctionCall(
        epoch=2, shard=0, attempt=1, memory_mb=1024, seconds=1.0, usd=Decimal("0.0004"), fetch_seconds=0.0,
        compute_seconds=1.0, update_seconds=0.0, waited_seconds=0.0, puts=1, gets=1, cold=False, ending="failed",
    )  # fmt: skip

    class Telling(FakeCloud):
        def run_epoch(self, order: EpochOrder) -> Epoch:
            if order.number == 2:
                self.calls = (call,)
                raise KeyboardInterrupt
            return super().run_epoch(order)

    asked, cloud = problem(), Telling()
    with Store(None) as store:
        add(store, asked, cloud)
        with pytest.raises(Interrupted):
            train(store, cloud)
        record = stored(store)
        assert [each.message for each in record.failed_epochs] == ["interrupted with the run"]
        assert record.failed_epochs[0].usd == Usd.of("0.0004")


def test_an_epoch_that_ended_while_mlcd_was_down_is_adopted_and_not_repeated() -> None:
    def die() -> None:
        raise Killed

    asked, cloud = problem(), FakeCloud({2: die})
    with Store(None) as store:
        add(store, asked, cloud)
        with pytest.raises(Killed):
            train(store, cloud)
        record = train(store, cloud)
        assert record.status is Status.DONE
        assert cloud.ran == [1, 2, 3, 4]
        assert record.total_usd == Usd.of("0.04")


def test_an_epoch_that_was_lost_is_charged_at_most_what_was_authorised() -> None:
    asked, cloud = problem(), FakeCloud({2: Killed()})
    with Store(None) as store:
        add(store, asked, cloud)
        with pytest.raises(Killed):
            train(store, cloud)
        record = train(store, cloud)
        assert [each.message for each in record.failed_epochs] == ["mlcd ended before the epoch did"]
        assert record.failed_epochs[0].usd == Usd.of("0.001") <= record.epoch_steps[1].authorised_usd
        assert cloud.ran == [1, 2, 2, 3, 4]


def test_a_cloud_that_cannot_be_used_leaves_the_run_to_be_resumed() -> None:
    asked, cloud = problem(), FakeCloud({2: ProviderError("the credentials are no longer good")})
    with Store(None) as store:
        add(store, asked, cloud)
        with pytest.raises(ProviderError):
            train(store, cloud)
        assert train(store, cloud).status is Status.DONE


def test_a_deadline_counts_the_time_between_the_epochs() -> None:
    goal = Goal(minimize=Objective.TIME, budget=Usd.of(1), deadline_seconds=0.2)
    asked, cloud = problem(goal=goal), FakeCloud({4: lambda: time.sleep(0.3)})
    with Store(None) as store:
        add(store, asked, cloud)
        record = train(store, cloud)
        assert record.status is Status.OVERRAN
        assert record.is_target_reached


# ---- kills at any instant, simulated: the result equals that of an uninterrupted run


def simulated() -> tuple[FunctionProblem, Callable[[], SimFunctionCloud]]:
    workload = TESTBED["linear-ctr"]
    asked = replace(workload.problem(Goal(minimize=Objective.TIME, budget=Usd.of(2))), target_loss=0.45)
    return asked, lambda: SimFunctionCloud(problem=asked, laws=workload.laws, seed=3)


def killed_at(store: Store, moment: int) -> None:
    """The store's writes with a kill at `moment`: there is one before and one after each write, counted from 1."""
    count = 0

    def wrap(write: Callable[..., Any]) -> Callable[..., Any]:
        def doing(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            if count == moment:
                raise Killed
            result = write(*args, **kwargs)
            count += 1
            if count == moment:
                raise Killed
            return result

        return doing

    for name in ("start", "end", "conclude", "finish"):
        setattr(store, name, wrap(getattr(store, name)))


def course(record: EpochRun) -> tuple[object, ...]:
    """A run without the wall clock."""
    return record.status, record.verdict, tuple(replace(step, started_at=0.0) for step in record.steps)


@pytest.mark.parametrize("share", [1.0, 0.6])
def test_a_kill_at_any_instant_loses_nothing_and_pays_nothing_twice(tmp_path: Path, share: float) -> None:
    asked, cloud = simulated()
    who = Always(Fleet(200, 3008, share))
    with Store(None) as store:
        add(store, asked, cloud())
        whole = train(store, cloud(), who)
    assert whole.status is Status.DONE
    writes = 2 * (2 * len(whole.epoch_steps) + 2)
    for moment in range(1, writes + 1):
        folder = tmp_path / str(moment)
        with Store(folder) as store:
            add(store, asked, cloud())
            killed_at(store, moment)
            with pytest.raises(Killed):
                train(store, cloud(), who)
        with Store(folder) as store:
            again = train(store, cloud(), who)
        assert course(again) == course(whole), f"killed at {moment}"
        assert again.status is Status.DONE
