"""Servers on made-up nodes: types with a rate of one node, settings with a factor, and how well several add up."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mlcd.deciders.search import SearchDecider
from mlcd.deciders.verification import VerificationDecider
from mlcd.engine import Engine
from mlcd.engine.performer import Situation
from mlcd.findings import findings_of
from mlcd.goal import Goal, Slo
from mlcd.problem import Problem, TrialPolicy
from mlcd.run.attempt import Attempt, Ending
from mlcd.run.header import Header, ServingFacts
from mlcd.run.kind import Kind
from mlcd.run.run import Run, SearchRun
from mlcd.run.step import Outcome, Role, Step
from mlcd.search.registry import strategy
from mlcd.search.serving.per_replica import PerReplica
from mlcd.space import Config, Knob, Space
from mlcd.trial.call import FunctionCall
from mlcd.trial.trial import Failure, FailureKind, Load, Measurement
from mlcd.units import Usd

BATCHES = {1: 1.0, 8: 3.0}
"""The settings, and what each does to the rate."""
SLO = Slo(seconds=0.05)
LOAD = Load(p50_seconds=0.01, p95_seconds=0.02, p99_seconds=0.03, requests=100)


def nodes_problem(types: Mapping[str, float], counts: tuple[int, ...], goal: Goal, **changes: Any) -> Problem:
    """`types`: USD an hour of one node of each."""
    configs = tuple(
        Config.of({"instance": name, "nodes": count, "batch": batch})
        for name in types
        for batch in BATCHES
        for count in counts
    )
    knobs = (
        Knob(name="instance", values=tuple(types), features={name: (usd,) for name, usd in types.items()}),
        Knob(name="nodes", values=counts),
        Knob(name="batch", values=tuple(BATCHES)),
    )
    given: dict[str, Any] = {
        "name": "toy",
        "work_samples": 1e6,
        "space": Space(knobs, configs),
        "goal": goal,
        "usd_per_hour": tuple(Usd.of(str(types[c.instance])) * c.nodes for c in configs),
        "trial": TrialPolicy(seconds=10.0, extra_seconds_per_3_nodes=0.0, watchdog_seconds=5.0, retries=0),
        "max_trials": 6,
        "noise": 0.02,
        "verify_seconds": 100.0,
        "scales_out": True,
    }
    return Problem(**{**given, **changes})


@dataclass
class MadeUpServers:
    """A performer without servers.

    rate     of one node of a configuration
    add_up   the share of n times that rate that n nodes really hold
    fails    whether a trial fails, by its number
    share    of the authorised seconds that a step takes, by its number
    """

    rate: Callable[[Config], float]
    add_up: Callable[[int], float] = lambda _nodes: 1.0
    fails: Callable[[int], FailureKind | None] = lambda _number: None
    share: Callable[[int], float] = lambda _number: 0.8
    performed: list[tuple[Role, Config]] = field(default_factory=list)

    simulated = True

    def restore(self, run: SearchRun) -> None: ...

    def calls(self) -> tuple[FunctionCall, ...]:
        return ()

    def lost(self, step: Step, situation: Situation[Problem], *, interrupted: bool) -> Outcome:
        raise AssertionError("nothing is lost here")

    def holds(self, config: Config) -> float:
        return self.rate(config) * config.nodes * self.add_up(config.nodes)

    def perform(self, step: Step, situation: Situation[Problem]) -> Outcome:
        config, number = step.config, len(self.performed)
        self.performed.append((step.role, config))
        seconds = step.authorised_seconds * self.share(number)
        usd = step.price.for_seconds(seconds)
        if step.role is Role.VERIFICATION:
            asked = situation.run.problem.goal.rate or self.holds(config) * 0.7
            held = self.holds(config) >= asked
            return Attempt(
                config=config,
                seconds=seconds,
                usd=usd,
                ending=Ending.DONE if held else Ending.MOVED,
                samples_per_second=asked if held else asked * 0.9,
                message="" if held else "too slow",
                load=LOAD,
            )
        kind = self.fails(number)
        if kind is not None:
            return Failure(
                config=config, attempt=step.authorisation.attempt, kind=kind, message="made", seconds=seconds, usd=usd
            )
        return Measurement(
            config=config,
            attempt=step.authorisation.attempt,
            samples_per_second=self.holds(config),
            relative_error=0.02,
            iterations=100,
            startup_seconds=min(1.0, seconds),
            seconds=seconds,
            usd=usd,
            load=LOAD,
        )


def run_of(problem: Problem, servers: MadeUpServers, name: str = "heterbo", seed: int = 0) -> SearchRun:
    """A whole run, with its findings."""
    facts = ServingFacts(model="toy.onnx", scenario="server", headroom=0.3, verify_seconds=60.0)
    header = Header(
        run_id="toy-1",
        created="2026-01-01",
        kind=Kind.SERVE,
        cloud="minicloud",
        simulated=True,
        strategy=name,
        seed=seed,
        parallel=1,
        version="0",
        catalog_date="",
        serving=facts,
    )
    inner = strategy(name, seed=seed, serving=True)
    decider = SearchDecider(
        strategy=PerReplica(inner=inner) if problem.scales_out else inner,
        aftermath=VerificationDecider(seconds=60.0),
        guarded=True,
    )
    engine = Engine(run=Run(header=header, problem=problem), decider=decider, performer=servers)
    ended = engine.drive()
    return replace(ended, findings=findings_of(ended))
