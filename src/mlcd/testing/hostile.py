"""The contract of an engine on clouds that lie, fail and hang (mlcd.testing.hostile_clouds).

Whatever a cloud does, a run ends, within bounds, in the books: nothing that was paid is left out, what overran is
called so, and no exception of a cloud becomes one of mlcd. `HostileCloudContract` runs mlcd's own engine; a subclass
may drive another one.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

import pytest

from mlcd.clouds.provider import Purpose
from mlcd.deciders.search import SearchDecider
from mlcd.deciders.training import TrainingDecider
from mlcd.engine import Engine
from mlcd.engine.on_nodes import NodePerformer
from mlcd.engine.watchdog import Bounds
from mlcd.errors import MlcdError, ProviderError
from mlcd.events import Event, Warned
from mlcd.findings import findings_of
from mlcd.goal import Goal, Objective
from mlcd.problem import Problem, TrialPolicy
from mlcd.report.verdict import verdict
from mlcd.run.header import Header
from mlcd.run.kind import Kind
from mlcd.run.run import AnyRun, Run, SearchRun
from mlcd.search.registry import strategy
from mlcd.store.store import Store
from mlcd.testing.hostile_clouds import HANGS, REFUSED, SPEED, Fault, HostileCloud
from mlcd.testing.made import Machine, make_problem
from mlcd.trial.outcome import Status
from mlcd.units import Usd

BOUNDS = Bounds(
    late_seconds=0.2, abandon_seconds=0.4, simulated_seconds=0.4, recover_seconds=0.4, interrupt_seconds=0.4
)
"""As the engine's own, in seconds instead of minutes."""
BUDGET = Usd.of("0.009")
USD_PER_HOUR = 3.6
"""$0.001 a second: the budget is for 9 s, so that a training that hangs is abandoned soon."""
WORK_SAMPLES = 0.3 * SPEED
TRIAL = TrialPolicy(seconds=0.1, extra_seconds_per_3_nodes=0.0, watchdog_seconds=0.2, precision=0.5, retries=0)
TIMING_SECONDS = 0.3
"""What the engine may miss of a lease: the moments before its order and after its release."""
SLOW = frozenset({*HANGS, Fault.SECONDS_STILL, Fault.SAMPLES_STILL, Fault.NEVER_ENDS, Fault.FLOODS})
"""Faults that take all the time of a training."""


@dataclass(kw_only=True)
class Driven:
    """What came of a run on a hostile cloud: the run, or the error that ended it, and what the user was told."""

    run: AnyRun
    error: MlcdError | None
    seconds: float
    warned: list[str] = field(default_factory=list)


def hostile_problem() -> Problem:
    """Two types of one node each, in a budget of 9 s."""
    machines = {name: Machine(usd_per_hour=USD_PER_HOUR, speed=SPEED) for name in ("a", "b")}
    goal = Goal(minimize=Objective.TIME, budget=BUDGET)
    return make_problem(machines=machines, counts=(1,), goal=goal, work_samples=WORK_SAMPLES, trial=TRIAL)


def hostile_run(problem: Problem, *, simulated: bool, run_id: str = "hostile") -> SearchRun:
    """A new run of `problem`."""
    return Run(
        header=Header(
            run_id=run_id,
            created="2026-01-01T00:00:00+00:00",
            kind=Kind.TRAIN,
            cloud="hostile",
            simulated=simulated,
            strategy="exhaustive",
            seed=0,
            version="0",
            catalog_date="",
        ),
        problem=problem,
    )


def drive(cloud: HostileCloud, store: Store, bounds: Bounds = BOUNDS) -> Driven:
    """Drive a run on `cloud` to its end with mlcd's engine. Raises what is no MlcdError: no engine may."""
    cloud.work_samples = WORK_SAMPLES
    store.add(hostile_run(hostile_problem(), simulated=cloud.simulated is True), spec={})
    warned: list[str] = []

    def hear(event: Event) -> None:
        if isinstance(event, Warned):
            warned.append(event.text)

    began, error = time.monotonic(), None
    try:
        Engine(
            run=cast(SearchRun, store.load("hostile")),
            decider=SearchDecider(strategy=strategy("exhaustive"), aftermath=TrainingDecider(), guarded=True),
            performer=NodePerformer(cloud=cloud, bounds=bounds),
            journal=store,
            observer=hear,
            findings=findings_of,
        ).drive()
    except MlcdError as raised:
        error = raised
    return Driven(run=store.load("hostile"), error=error, seconds=time.monotonic() - began, warned=warned)


def defects(driven: Driven, *, held_seconds: float, most_seconds: float) -> list[str]:
    """What is wrong with how a run on a hostile cloud ended; [] where nothing is.

    held_seconds  time in which the cloud had nodes: it has to be charged
    most_seconds  when the run must have ended
    """
    run = driven.run
    found: list[str] = []
    if driven.seconds > most_seconds:
        found.append(f"it took {driven.seconds:.1f} s, at most {most_seconds:.1f} s are allowed")
    if driven.error is not None:
        if not isinstance(driven.error, ProviderError):
            found.append(f"it ended with {type(driven.error).__name__}: {driven.error}")
        return found
    if not run.status.is_final or run.in_flight:
        found.append(f"it ended as {run.status} with {len(run.in_flight)} steps in flight")
    for step in run.ended:
        seconds, usd = (step.outcome.seconds, step.outcome.usd) if step.outcome else (math.nan, Usd(-1))
        if not (math.isfinite(seconds) and seconds >= 0 and usd.micros >= 0):
            found.append(f"step {step.number} is charged {usd} for {seconds} s")
        if "\x1b" in str(getattr(step.outcome, "message", "")):
            found.append(f"the message of step {step.number} has terminal escapes")
    charged = sum(step.outcome.seconds for step in run.ended if step.outcome is not None)
    if charged < held_seconds - TIMING_SECONDS:
        found.append(f"{charged:.2f} s are charged, the nodes were held for {held_seconds:.2f} s")
    budget = run.problem.goal.budget
    if budget is not None and run.spent > budget and run.status is not Status.OVERRAN:
        found.append(f"{run.spent} of {budget} are spent, and it ended as {run.status}")
    return found


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
            assert store.load("hostile") == driven.run
        return driven

    @pytest.mark.parametrize("fault", list(Fault), ids=lambda fault: fault.name)
    def test_a_fault_in_real_trials(self, store: Store, fault: Fault) -> None:
        driven = self.check(HostileCloud(fault), store)
        if fault in HANGS and fault is not Fault.REACHED_HANGS:
            assert any("may still run" in text for text in driven.warned)

    @pytest.mark.parametrize("fault", [f for f in Fault if f not in HANGS], ids=lambda fault: fault.name)
    @pytest.mark.parametrize("purpose", list(Purpose))
    def test_a_fault_of_a_simulated_cloud(self, store: Store, fault: Fault, purpose: Purpose) -> None:
        self.check(HostileCloud(fault, simulated=True, at=purpose), store)

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
