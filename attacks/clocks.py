"""Runs that are killed, and clocks that are changed before they are resumed.

In this process, through a store: the clocks are made up, so that an hour takes no time and the true time is known.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from attacks.attack import Attack, Kind, Tally
from mlcd.clouds.provider import JobProgress, Lease, Order, Purpose, Settled
from mlcd.deciders.search import SearchDecider
from mlcd.deciders.training import TrainingDecider
from mlcd.engine import Engine
from mlcd.engine.on_nodes import NodePerformer
from mlcd.events import Event, Warned
from mlcd.goal import Goal, Objective
from mlcd.problem import Problem, TrialPolicy
from mlcd.run.header import Header
from mlcd.run.kind import Kind as JobKind
from mlcd.run.moment import AGREEMENT_SECONDS, Moment
from mlcd.run.run import Run
from mlcd.search.registry import strategy
from mlcd.store.store import Store
from mlcd.testing.made import Machine, make_problem
from mlcd.trial.outcome import Status

HOUR, DAY, YEAR = 3600.0, 86_400.0, 31_536_000.0
DEADLINE_SECONDS = 40 * HOUR
MACHINES = {"a": Machine(usd_per_hour=3.6, speed=10.0)}
WORK_SAMPLES = 36_000.0


class Killed(BaseException):
    """mlcd died here."""


@dataclass
class Clocks:
    """The clocks of the machine that works on the run. `true_seconds` is what really passed."""

    random: random.Random
    wall: float = 1.7e9
    boot: float = 1e5
    starts: int = 1
    moves: int = 0
    machine: str = "one"
    true_seconds: float = 0.0

    def __call__(self) -> Moment:
        """Read them."""
        return Moment(
            wall_seconds=self.wall, boot_seconds=self.boot, boot=f"{self.machine}/{self.starts}", machine=self.machine
        )

    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.wall += seconds
        self.boot += seconds
        self.true_seconds += seconds

    def change(self) -> str:
        """One change, as a kill may come with."""
        kind = self.random.choice(("nothing", "set", "set", "restart", "restart and set", "other machine", "suspended"))
        if "restart" in kind:
            down = self.random.uniform(5.0, HOUR)
            self.wall, self.true_seconds, self.boot = self.wall + down, self.true_seconds + down, 0.0
            self.starts += 1
            self.wait(self.random.uniform(1.0, HOUR))
        if kind == "other machine":
            self.moves += 1
            self.machine, self.starts, self.boot = f"other-{self.moves}", 1, self.random.uniform(0.0, YEAR)
            self.wall += self.random.choice((0.0, self.random.uniform(-DAY, DAY)))
        if kind == "suspended":
            self.wait(self.random.uniform(60.0, 10 * HOUR))
        if "set" in kind:
            size = self.random.choice((1.0, 30.0, HOUR, DAY, YEAR, 30 * YEAR)) * self.random.uniform(0.5, 1.0)
            self.wall += self.random.choice((-1, 1)) * size
        return kind


class Nodes:
    """A cloud that looks real; `during` is called in a lease, and may kill mlcd."""

    name, simulated, noise = "made", False, 0.0

    def __init__(self, during: Callable[[Purpose], None]) -> None:
        self.during = during

    def lease(self, order: Order) -> Lease:
        """Nodes that process 10 samples a second."""
        return _Lease(self, order.purpose)


class _Lease:
    def __init__(self, cloud: Nodes, purpose: Purpose) -> None:
        self.cloud, self.purpose = cloud, purpose

    def __enter__(self) -> "_Lease":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing was started."""

    def progress(self):  # type: ignore[no-untyped-def]
        yield JobProgress(0.0, 0.0)
        self.cloud.during(self.purpose)
        for step in range(1, 100):
            yield JobProgress(10.0 * step, 100.0 * step)

    def finish(self, at: JobProgress) -> Settled:
        return Settled(seconds=at.seconds)


def _engine(store: Store, clocks: Clocks, during: Callable[[Purpose], None], warned: list[str]) -> Engine[Problem]:
    def hear(event: Event) -> None:
        if isinstance(event, Warned):
            warned.append(event.text)

    return Engine(
        run=store.load("clocks"),  # type: ignore[arg-type]  # a training on nodes
        decider=SearchDecider(strategy=strategy("exhaustive"), aftermath=TrainingDecider(), guarded=True),
        performer=NodePerformer(cloud=Nodes(during)),
        journal=store,
        observer=hear,
        moments=clocks,
    )


def _attack(count: int, seed: int, folder: Path) -> Tally:  # noqa: ARG001 - nothing is kept on disk
    tally = Tally()
    for case in range(count):
        _case(case, seed, tally)
    return tally


def _case(case: int, seed: int, tally: Tally) -> None:
    """One to three kills, each with changed clocks; then the run is driven to its end."""
    chance = random.Random(f"clocks|{seed}|{case}")
    clocks = Clocks(chance)
    problem = make_problem(
        machines=MACHINES,
        counts=(1,),
        work_samples=WORK_SAMPLES,
        goal=Goal(minimize=Objective.TIME, deadline_seconds=DEADLINE_SECONDS),
        trial=TrialPolicy(retries=5),
    )
    warned: list[str] = []
    with Store(None) as store:
        header = Header(
            run_id="clocks", created="", kind=JobKind.TRAIN, cloud="made", simulated=False, strategy="exhaustive",
            seed=0, version="0", catalog_date="",
        )  # fmt: skip
        store.add(Run(header=header, problem=problem), spec={})
        least, told = 0.0, []
        for _ in range(chance.randint(1, 3)):
            ran = chance.uniform(1.0, 500.0)
            at = chance.choice(list(Purpose))

            def die(purpose: Purpose, ran: float = ran, at: Purpose = at) -> None:
                if purpose is at:
                    clocks.wait(ran)
                    raise Killed

            try:
                _engine(store, clocks, die, warned).drive()
                break  # it ended before it could be killed at this purpose
            except Killed:
                pass
            (step,) = store.load("clocks").in_flight
            before, started = clocks(), clocks.true_seconds - ran
            told.append(clocks.change())
            least = _check_lost(store, clocks, step.number, started, before, tally, case, told[-1], warned)
        what = f"case with {', '.join(told) or 'no kill'}"
        run = _engine(store, clocks, lambda _purpose: None, warned).drive()
    if run.step_seconds < 0 or any(step.ended_seconds is None or step.ended_seconds < 0 for step in run.ended):
        tally.find(Kind.WRONG, case, f"{what}: negative time")
    ends = [step.ended_seconds or 0.0 for step in run.ended]
    if ends != sorted(ends):
        tally.find(Kind.WRONG, case, f"{what}: time ran backwards: {ends}")
    if ends and ends[-1] < least - 1.0:
        tally.find(Kind.WRONG, case, f"{what}: the deadline's clock shows {ends[-1]:.0f} s, {least:.0f} s are certain")
    if all(kind in ("nothing", "set", "suspended") for kind in told):
        if abs(ends[-1] - clocks.true_seconds) > 1.0:
            tally.find(
                Kind.WRONG, case, f"{what}: {ends[-1]:.0f} s by the run's clock, {clocks.true_seconds:.0f} s passed"
            )
        if run.status is not Status.DONE and clocks.true_seconds < 30 * HOUR:
            tally.find(Kind.WRONG, case, f"{what}: ended as {run.status}")
    tally.count(str(run.status))


def _check_lost(
    store: Store, clocks: Clocks, number: int, started: float, before: Moment, tally: Tally, case: int, what: str,
    warned: list[str],
) -> float:  # fmt: skip
    """Settle the step that was in flight, as a resume does, and compare its charge with what really passed."""
    engine = _engine(store, clocks, lambda _purpose: None, warned)
    engine._settle_in_flight(interrupted=False)
    step = next(step for step in store.load("clocks").steps if step.number == number)
    outcome, true = step.outcome, clocks.true_seconds - started
    if outcome is None:
        tally.find(Kind.WRONG, case, f"{what}: step {number} was not settled")
        return 0.0
    now = clocks()
    is_exact = now.boot == before.boot
    certain = true if is_exact else 0.0
    if now.machine == before.machine and not is_exact:
        certain = now.boot_seconds or 0.0
    plausible = min(certain, step.authorised_seconds)
    if outcome.seconds < plausible - 1e-6 or outcome.seconds > step.authorised_seconds:
        tally.find(Kind.OVERSPEND, case, f"{what}: {outcome.seconds:.0f} s charged, {plausible:.0f} s are certain")
    if is_exact and abs(outcome.seconds - min(true, step.authorised_seconds)) > 1e-6:
        tally.find(Kind.OVERSPEND, case, f"{what}: {outcome.seconds:.1f} s charged, {true:.1f} s passed")
    wall = now.wall_seconds - before.wall_seconds
    if outcome.usd.micros <= 0 and not (not is_exact and 0 <= wall < 1.0):
        tally.find(Kind.OVERSPEND, case, f"{what}: nothing is charged for {true:.0f} s")
    disagree = abs((clocks.wall - before.wall_seconds) - (clocks.true_seconds - started)) > 600 + AGREEMENT_SECONDS
    if disagree and not getattr(outcome, "message", "").partition(";")[2]:
        tally.find(Kind.WRONG, case, f"{what}: the outcome does not say what was assumed")
    return (step.started_seconds + plausible) if step.started_seconds >= 0 else 0.0


ATTACKS = (Attack(name="clocks", what="killed run whose clocks were changed", count=200, run=_attack),)
