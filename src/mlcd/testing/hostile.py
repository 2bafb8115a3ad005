"""The contract of an engine on clouds that lie, fail and hang (mlcd.testing.hostile_clouds).

Whatever a cloud does, a run ends, within bounds, in the books: nothing that was paid is left out, what overran is
called so, and no exception of a cloud becomes one of mlcd. `HostileCloudContract` runs mlcd's own engine; a subclass
may drive another one.
"""

from collections.abc import Iterator

import pytest

from mlcd.clouds.provider import Purpose
from mlcd.report.verdict import verdict
from mlcd.store.store import Store
from mlcd.testing.hostile_clouds import (
    HANGS,
    REFUSED,
    UNDERSTATED_SECONDS,
    Fault,
    FunctionFault,
    HostileCloud,
    HostileFunctions,
)
from mlcd.testing.hostile_drives import BUDGET, RUN_ID, TRIAL, Driven, defects, drive, drive_functions
from mlcd.trial.outcome import Status

SLOW = frozenset({*HANGS, Fault.SECONDS_STILL, Fault.SAMPLES_STILL, Fault.NEVER_ENDS, Fault.FLOODS})
"""Faults that take all the time of a training."""
QUICK = (*sorted(HANGS), Fault.PROGRESS_RAISES, Fault.SECONDS_STILL, Fault.SETTLED_UNDER, Fault.FAILED_UNDER)
"""Faults whose real time is tested by default; the others are also tested on a simulated cloud."""


class HostileCloudContract:
    """Each test holds for every engine. A subclass that drives another engine than mlcd's overrides `drive`."""

    def drive(self, cloud: HostileCloud, store: Store) -> Driven:
        """Drive one run on `cloud` to its end."""
        return drive(cloud, store)

    @pytest.fixture
    def store(self) -> Iterator[Store]:
        with Store(None) as opened:
            yield opened

    def check(self, cloud: HostileCloud, store: Store) -> Driven:
        try:
            driven = self.drive(cloud, store)
        finally:
            cloud.let_go()
        # Two trials and a training, each to its bound; a machine that runs the tests may be busy.
        most = 2 * (TRIAL.worst_seconds(1) + 1.0) + 9.0 + 20.0
        assert defects(driven, held_seconds=cloud.charged_at_least(), most_seconds=most) == []
        if cloud.fault in REFUSED:
            assert driven.error is not None
            assert "hostile" in str(driven.error)
        else:
            assert driven.error is None
            assert verdict(driven.run)  # type: ignore[arg-type]  # a run of nodes
            assert store.load(RUN_ID) == driven.run
        return driven

    @pytest.mark.parametrize("fault", QUICK, ids=lambda fault: fault.name)
    def test_a_fault_in_real_trials(self, store: Store, fault: Fault) -> None:
        driven = self.check(HostileCloud(fault), store)
        if fault in HANGS and fault is not Fault.REACHED_HANGS:
            assert any("may still run" in text for text in driven.warned)

    @pytest.mark.extra
    @pytest.mark.parametrize("fault", [f for f in Fault if f not in QUICK], ids=lambda fault: fault.name)
    def test_any_other_fault_in_real_trials(self, store: Store, fault: Fault) -> None:
        self.check(HostileCloud(fault), store)

    @pytest.mark.parametrize("fault", [f for f in Fault if f not in HANGS], ids=lambda fault: fault.name)
    @pytest.mark.parametrize("purpose", list(Purpose))
    def test_a_fault_of_a_simulated_cloud(self, store: Store, fault: Fault, purpose: Purpose) -> None:
        self.check(HostileCloud(fault, simulated=True, at=purpose), store)

    @pytest.mark.extra
    @pytest.mark.parametrize("fault", [f for f in Fault if f not in SLOW], ids=lambda fault: fault.name)
    def test_a_fault_in_a_real_training(self, store: Store, fault: Fault) -> None:
        self.check(HostileCloud(fault, at=Purpose.RUN), store)

    @pytest.mark.extra
    @pytest.mark.parametrize("fault", sorted(SLOW), ids=lambda fault: fault.name)
    def test_a_fault_that_uses_up_the_time_of_a_real_training(self, store: Store, fault: Fault) -> None:
        self.check(HostileCloud(fault, at=Purpose.RUN), store)

    def test_an_honest_cloud_is_trained_on(self, store: Store) -> None:
        driven = self.check(HostileCloud(None, simulated=True), store)
        assert driven.run.status is Status.DONE
        assert driven.warned == []

    @pytest.mark.parametrize("fault", [Fault.SETTLED_OVER, Fault.FAILED_OVER])
    @pytest.mark.parametrize("purpose", list(Purpose))
    def test_what_overran_is_charged_in_full_and_called_so(self, store: Store, fault: Fault, purpose: Purpose) -> None:
        run = self.check(HostileCloud(fault, at=purpose), store).run
        assert run.status is Status.OVERRAN
        assert run.spent > BUDGET * 100

    # ---- functions

    @pytest.mark.parametrize("fault", list(FunctionFault), ids=lambda fault: fault.name)
    @pytest.mark.parametrize("simulated", [False, True])
    def test_a_fault_of_a_cloud_of_functions(self, store: Store, fault: FunctionFault, simulated: bool) -> None:
        cloud = HostileFunctions(fault, simulated=simulated)
        try:
            driven = drive_functions(cloud, store)
        finally:
            cloud.let_go()
        assert defects(driven, held_seconds=0.0, most_seconds=60.0) == []
        assert store.load(RUN_ID) == driven.run
        if fault in (FunctionFault.RESTORE_RAISES, FunctionFault.RESTORE_HANGS):
            assert "hostile" in str(driven.error)
        elif fault in (FunctionFault.OVER, FunctionFault.FAILED_OVER):
            assert driven.run.status is Status.OVERRAN
            assert driven.run.spent > (driven.run.problem.goal.budget or 0)
            assert any("overran" in text for text in driven.warned)
        elif fault is FunctionFault.CALLS or (fault is FunctionFault.UNDER and not simulated):
            assert driven.run.status is Status.DONE
            if fault is FunctionFault.UNDER:
                assert all(step.epoch.seconds >= UNDERSTATED_SECONDS for step in driven.run.epoch_steps)
        elif fault is not FunctionFault.LATE:
            assert driven.run.status in (Status.ALL_FAILED, Status.OVERRAN)
            assert driven.run.spent.micros > 0
