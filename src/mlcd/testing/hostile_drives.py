"""Runs on hostile clouds, driven by mlcd's engine, and what may be wrong with how they end."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

from mlcd.catalog.functions import function_prices
from mlcd.deciders.epochs import EpochDecider
from mlcd.deciders.search import SearchDecider
from mlcd.deciders.training import TrainingDecider
from mlcd.deciders.verification import VerificationDecider
from mlcd.engine import Engine
from mlcd.engine.epochs import EpochPerformer
from mlcd.engine.on_nodes import NodePerformer
from mlcd.engine.serving import LoadTestPerformer
from mlcd.engine.watchdog import Bounds
from mlcd.errors import MlcdError, ProviderError
from mlcd.events import Event, Warned
from mlcd.findings import findings_of
from mlcd.functions import FunctionProblem
from mlcd.goal import Goal, Objective, Slo
from mlcd.loadgen import LoadInput, LoadResult, Scenario
from mlcd.problem import Problem, TrialPolicy
from mlcd.profiler.load import LoadTest
from mlcd.run.header import FunctionFacts, Header, ServingFacts
from mlcd.run.kind import Kind
from mlcd.run.run import AnyRun, Run
from mlcd.search.registry import strategy
from mlcd.space import Config, Knob, Space
from mlcd.store.store import Store
from mlcd.testing.hostile_clouds import SPEED, HostileCloud, HostileFunctions, HostileServers
from mlcd.testing.made import Machine, make_problem
from mlcd.trial.epoch import Epoch, Fleet, RemainingEpochs
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
RUN_ID = "hostile"


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


def drive(cloud: HostileCloud, store: Store, bounds: Bounds = BOUNDS, *, add: bool = True) -> Driven:
    """Drive a training on `cloud` to its end. Raises what is no MlcdError: no engine may.

    add  False: continue the run that the store has
    """
    cloud.work_samples = WORK_SAMPLES
    problem = hostile_problem()
    if add:
        store.add(_run(problem, Kind.TRAIN, simulated=cloud.simulated is True), spec={})

    def engine(hear: Callable[[Event], None]) -> Engine[Problem]:
        return Engine(
            run=cast(Run[Problem], store.load(RUN_ID)),
            decider=SearchDecider(strategy=strategy("exhaustive"), aftermath=TrainingDecider(), guarded=True),
            performer=NodePerformer(cloud=cloud, bounds=bounds),
            journal=store,
            observer=hear,
            findings=findings_of,
        )

    return _driven(engine, store)


SERVING_TRIAL = TrialPolicy(seconds=5.0, extra_seconds_per_3_nodes=0.0, extension=0.0, watchdog_seconds=0.0, retries=0)
"""The shortest load test that mlcd allows."""


class PromptTest(LoadTest):
    """A load test that sends nothing: it asks the lease where the server is, and makes its answers up."""

    def run(self, lease: Any, config: Config, *, seconds: float, seed: int, rate: float | None) -> LoadResult:
        """100 requests/s at 10 ms."""
        try:
            _ = lease.endpoint
            return LoadResult(
                scenario="server",
                requests_per_second=100.0,
                offered_per_second=100.0,
                kept=True,
                requests=100,
                errors=0,
                p50_seconds=0.01,
                p95_seconds=0.01,
                p99_seconds=0.01,
                seconds=1.0,
                total_seconds=1.0,
                relative_error=0.0,
                processor_share=0.1,
                saturated="",
            )
        finally:
            lease.memory_gib()
            lease.check()


def drive_servers(cloud: HostileServers, store: Store, bounds: Bounds = BOUNDS) -> Driven:
    """Drive a search for a server of one configuration."""
    knobs = (
        Knob(name="batch", values=(1,)),
        Knob(name="threads", values=(1,)),
        Knob(name="replicas", values=(1,)),
        Knob(name="precision", values=("fp32",), features={"fp32": (5.0,)}),
    )
    config = Config.of({"batch": 1, "threads": 1, "replicas": 1, "precision": "fp32"})
    problem = Problem(
        name="hostile",
        work_samples=1e6,
        space=Space(knobs, (config,)),
        goal=Goal(minimize=Objective.COST, slo=Slo(seconds=0.05), budget=Usd.of("0.04")),
        usd_per_hour=(Usd.of(USD_PER_HOUR),),
        trial=SERVING_TRIAL,
        max_trials=1,
        noise=0.01,
        verify_seconds=3.0,
    )
    test = PromptTest(
        inputs=(LoadInput(name="x", datatype="FP32", shape=(1, 4)),),
        scenario=Scenario.SERVER,
        slo=problem.goal.slo,
        verify_seconds=1.0,
    )
    facts = ServingFacts(model="toy.onnx", scenario="server", headroom=test.headroom, verify_seconds=1.0)
    store.add(_run(problem, Kind.SERVE, simulated=False, serving=facts), spec={})

    def engine(hear: Callable[[Event], None]) -> Engine[Problem]:
        return Engine(
            run=cast(Run[Problem], store.load(RUN_ID)),
            decider=SearchDecider(
                strategy=strategy("exhaustive"), aftermath=VerificationDecider(seconds=1.0), guarded=True
            ),
            performer=LoadTestPerformer(cloud=cast(Any, cloud), test=test, bounds=bounds),
            journal=store,
            observer=hear,
            findings=findings_of,
        )

    return _driven(engine, store)


class _Always:
    name: ClassVar[str] = "always"

    def decide(self, problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs) -> Fleet | None:
        return Fleet(2, 1024)

    def ending(self, problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs) -> str:
        return "never"

    def smallest_budget(
        self, problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs
    ) -> Usd | None:
        return None


def drive_functions(cloud: HostileFunctions, store: Store, bounds: Bounds = BOUNDS) -> Driven:
    """Drive a training on functions, of about three epochs of at most half a second."""
    problem = FunctionProblem(
        name="hostile",
        functions=(1, 2, 4),
        memory_mb=(1024,),
        samples=1000,
        batch=100,
        model_bytes=4,
        target_loss=0.26,
        max_epochs=9,
        goal=Goal(minimize=Objective.TIME, budget=Usd.of("0.001")),
        prices=function_prices(),
        longest_epoch_seconds=0.5,
    )
    facts = FunctionFacts(model="logistic", sync="hsp")
    store.add(_run(problem, Kind.SERVERLESS, simulated=cloud.simulated, functions=facts), spec={})

    def engine(hear: Callable[[Event], None]) -> Engine[FunctionProblem]:
        return Engine(
            run=cast(Run[FunctionProblem], store.load(RUN_ID)),
            decider=EpochDecider(scheduler=_Always()),
            performer=EpochPerformer(cloud=cloud, bounds=bounds),
            journal=store,
            observer=hear,
            findings=findings_of,
        )

    return _driven(engine, store)


def _run(problem: Any, kind: Kind, *, simulated: bool, **facts: Any) -> AnyRun:
    return Run(
        header=Header(
            run_id=RUN_ID,
            created="2026-01-01T00:00:00+00:00",
            kind=kind,
            cloud="hostile",
            simulated=simulated,
            strategy="exhaustive",
            seed=0,
            version="0",
            catalog_date="",
            **facts,
        ),
        problem=problem,
    )


def _driven(engine: Callable[[Callable[[Event], None]], Engine[Any]], store: Store) -> Driven:
    warned: list[str] = []

    def hear(event: Event) -> None:
        if isinstance(event, Warned):
            warned.append(event.text)

    began, error = time.monotonic(), None
    try:
        engine(hear).drive()
    except MlcdError as raised:
        error = raised
    return Driven(run=store.load(RUN_ID), error=error, seconds=time.monotonic() - began, warned=warned)


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
