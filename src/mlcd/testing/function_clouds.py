"""The contract of every cloud of functions (mlcd.clouds.functions.provider.FunctionCloud)."""

from collections.abc import Callable, Iterator
from typing import ClassVar, cast

import pytest

from mlcd.clouds.functions.provider import EpochFailed, EpochOrder, FunctionCloud
from mlcd.engine.checked_epochs import CheckedFunctions
from mlcd.epoch_ledger import EpochLedger
from mlcd.functions import FunctionProblem
from mlcd.run.authorisation import Authorisation
from mlcd.trial.call import FunctionCall
from mlcd.trial.epoch import Epoch, Fleet
from mlcd.units import Usd

Make = Callable[[int], FunctionCloud]


class FunctionCloudContract:
    """Each test holds for every cloud of functions.

    good     fleets on which an epoch completes
    broken   a fleet on which every epoch fails; None if there is none
    short_seconds   a time limit that is too short for an epoch of good[0], which then fails
    ending_seconds  how much longer than its time limit an epoch may take, on real clouds
    own_usd  upper bound of the cost of mlcd's own storage requests in an epoch, beyond the cost of its calls
    connect  makes a cloud with a given seed, for `problem`; the fixture `make` closes it if it has a `close`
    """

    cloud_name: ClassVar[str]
    good: ClassVar[tuple[Fleet, ...]]
    broken: ClassVar[Fleet | None] = None
    short_seconds: ClassVar[float] = 0.5
    ending_seconds: ClassVar[float] = 0.0
    own_usd: ClassVar[Usd] = Usd.of("0.0002")

    @pytest.fixture
    def problem(self) -> FunctionProblem:
        raise NotImplementedError

    @pytest.fixture
    def connect(self, problem: FunctionProblem) -> Make:
        raise NotImplementedError

    @pytest.fixture
    def make(self, connect: Make) -> Iterator[Make]:
        """Makes a cloud with a given seed."""
        made: list[FunctionCloud] = []

        def opened(seed: int) -> FunctionCloud:
            made.append(connect(seed))
            return made[-1]

        yield opened
        for cloud in made:
            if callable(close := getattr(cloud, "close", None)):
                close()

    def order(
        self,
        problem: FunctionProblem,
        fleet: Fleet,
        number: int = 1,
        *,
        seconds: float | None = None,
        run_id: str = "contract",
    ) -> EpochOrder:
        """An order as the engine makes it: with the limits that the ledger authorises for `fleet`."""
        authorised = EpochLedger(problem=problem).authorise(fleet, seconds)
        assert isinstance(authorised, Authorisation), f"the problem's budget must cover {fleet}: {authorised.reason}"
        return EpochOrder(number=number, fleet=fleet, seconds=authorised.seconds, usd=authorised.usd, run_id=run_id)

    def check_epoch(self, order: EpochOrder, epoch: Epoch) -> None:
        assert epoch.number == order.number
        assert epoch.fleet == order.fleet
        assert 0 < epoch.seconds <= order.seconds
        assert epoch.usd.micros > 0
        assert epoch.usd <= order.usd
        assert epoch.calls >= order.fleet.functions
        assert epoch.calls - epoch.failed >= order.fleet.functions

    def test_describes_itself(self, make: Make) -> None:
        cloud = make(1)
        assert cloud.name.strip() == cloud.name != ""
        assert isinstance(cloud.simulated, bool)

    def test_epochs_follow_each_other_within_their_orders_and_lower_the_loss(
        self, make: Make, problem: FunctionProblem
    ) -> None:
        cloud = make(1)
        losses = []
        for number, fleet in enumerate((*self.good, self.good[0]), 1):
            order = self.order(problem, fleet, number)
            epoch = cloud.run_epoch(order)
            self.check_epoch(order, epoch)
            losses.append(epoch.loss)
        assert losses[-1] < losses[0]

    def test_it_says_nothing_that_the_engine_does_not_believe(self, make: Make, problem: FunctionProblem) -> None:
        """Finite, within its promise: the engine's own checks, which fail an epoch otherwise."""
        warned: list[str] = []
        order = self.order(problem, self.good[0])
        outcome, calls = CheckedFunctions(cloud=make(1), warn=warned.append).run_epoch(order)
        assert isinstance(outcome, Epoch), outcome.message
        self.check_epoch(order, outcome)
        assert all(call.epoch == order.number for call in calls)
        assert warned == []

    def test_a_part_of_an_epoch_is_an_epoch(self, make: Make, problem: FunctionProblem) -> None:
        part = Fleet(self.good[0].functions, self.good[0].memory_mb, 0.5)
        order = self.order(problem, part)
        self.check_epoch(order, make(1).run_epoch(order))

    def test_an_epoch_that_takes_too_long_is_ended_and_charged_within_its_order(
        self, make: Make, problem: FunctionProblem
    ) -> None:
        order = self.order(problem, self.good[0], seconds=self.short_seconds)
        with pytest.raises(EpochFailed) as failed:
            make(1).run_epoch(order)
        self.check_failure(order, failed.value)
        assert not failed.value.hopeless

    def test_an_epoch_that_failed_is_charged(self, make: Make, problem: FunctionProblem) -> None:
        if self.broken is None:
            pytest.skip("no fleet always fails here")
        cloud = make(1)
        order = self.order(problem, self.broken)
        with pytest.raises(EpochFailed) as failed:
            cloud.run_epoch(order)
        self.check_failure(order, failed.value)
        assert failed.value.usd.micros > 0
        again = self.order(problem, self.good[0])
        self.check_epoch(again, cloud.run_epoch(again))  # the same epoch with another fleet

    def check_failure(self, order: EpochOrder, failure: EpochFailed) -> None:
        assert failure.message.strip()
        assert isinstance(failure.hopeless, bool)
        assert 0 <= failure.seconds <= order.seconds + self.ending_seconds
        assert Usd(0) <= failure.usd <= order.usd

    def test_every_call_is_itemised_and_the_prices_add_up(self, make: Make, problem: FunctionProblem) -> None:
        cloud = make(1)
        if not hasattr(cloud, "calls"):
            pytest.skip("does not list its calls")
        order = self.order(problem, self.good[0])
        epoch = cloud.run_epoch(order)
        calls = cast(tuple[FunctionCall, ...], cloud.calls)
        assert len(calls) == epoch.calls
        assert {call.shard for call in calls} == set(range(order.fleet.functions))
        assert len({(call.shard, call.attempt) for call in calls}) == len(calls)
        for call in calls:
            assert (call.epoch, call.memory_mb) == (order.number, order.fleet.memory_mb)
            assert call.usd > 0
            charged = problem.prices.charge(
                memory_mb=call.memory_mb, call_seconds=[call.seconds], puts=call.puts, gets=call.gets
            )
            assert Usd.of(call.usd) == charged
        itemised = Usd.of(sum(call.usd for call in calls))
        assert itemised <= epoch.usd <= itemised + self.own_usd

    def test_simulated_epochs_are_the_same_for_the_same_seed(self, make: Make, problem: FunctionProblem) -> None:
        if not make(1).simulated:
            pytest.skip("real time is not deterministic")

        def epochs(seed: int, *, again: bool = False) -> list[Epoch]:
            cloud, found = make(seed), []
            for number, fleet in enumerate(self.good, 1):
                order = self.order(problem, fleet, number)
                found.append(cloud.run_epoch(order))
                if again:
                    # Run again after a kill, from the same parameters: no update is applied twice.
                    assert cloud.run_epoch(order) == found[-1]
            return found

        first = epochs(3)
        assert epochs(3) == first
        assert epochs(3, again=True) == first

    def test_runs_do_not_disturb_each_other(self, make: Make, problem: FunctionProblem) -> None:
        cloud = make(1)
        order = self.order(problem, self.good[0], run_id="one")
        one = cloud.run_epoch(order)
        other = self.order(problem, self.good[0], run_id="other")
        self.check_epoch(other, cloud.run_epoch(other))
        second = self.order(problem, self.good[0], 2, run_id="one")
        self.check_epoch(second, cloud.run_epoch(second))
        if cloud.simulated:
            assert make(1).run_epoch(other) == one

    def test_a_run_continues_in_another_process(self, make: Make, problem: FunctionProblem) -> None:
        cloud = make(1)
        if not hasattr(cloud, "restore"):
            pytest.skip("does not need the state of an earlier process")
        first = self.order(problem, self.good[0])
        epochs = [cloud.run_epoch(first)]
        second = self.order(problem, self.good[0], 2)
        later = make(1)
        later.restore(second.run_id, epochs)  # type: ignore[attr-defined]  # it has one
        epoch = later.run_epoch(second)
        self.check_epoch(second, epoch)
        if cloud.simulated:
            assert epoch.loss == pytest.approx(cloud.run_epoch(second).loss, rel=1e-9)
