"""Serving on leased nodes: the types, settings and numbers of servers to choose from, their prices, and the cloud."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mlcd.catalog import Instance
from mlcd.clouds.nodes import NodeEngine
from mlcd.clouds.serving.local import ServersHere
from mlcd.clouds.serving.on_nodes import NodeServing
from mlcd.errors import nearest
from mlcd.goal import Objective
from mlcd.jobs.choice import check_size
from mlcd.jobs.real import (
    NOMINAL_PRICE_CLOUDS,
    SKYPILOT,
    check_secrets,
    engine_for,
    secret_values,
    type_price,
    types_with_counts,
)
from mlcd.problem import Problem, TrialPolicy
from mlcd.server.options import Engine, engine_of
from mlcd.space import Config, Knob, Space, Value
from mlcd.spec.serve import ServeSpec
from mlcd.spec.serving_checks import GPU_SHARE
from mlcd.trial.replicas import by_settings
from mlcd.units import Usd

SHARING_FILES = ("minicloud", "slurm")
"""Where mlcd reaches the nodes, and they share the files of its machine."""
WHERE = ("local", *SHARING_FILES, *SKYPILOT)
MOST_SERVING_CONFIGURATIONS = 5000
"""Strategies for serving keep the covariance of all pairs of configurations: 200 MB of this many."""
NODE_TRIAL = TrialPolicy(
    seconds=30.0, extra_seconds_per_3_nodes=0.0, extension=0.5, watchdog_seconds=60.0, precision=0.15
)
"""As on `local`, and time for a node that has an eighth of a processor to start mlcd's server: about 10 s."""
NODE_START_STOP_SECONDS = 120.0
"""Time in a verification to lease the nodes, start the servers and give the nodes back."""
RENTED_TRIAL = TrialPolicy(
    seconds=900.0,
    extra_seconds_per_3_nodes=0.0,
    extension=0.25,
    watchdog_seconds=600.0,
    precision=0.15,
    most_measured_seconds=120.0,
)
"""A rented node starts in minutes, is set up, and a large model is fetched and loaded: most of a trial is not load."""
RENTED_START_STOP_SECONDS = 1500.0
"""Time in a verification to rent the nodes, start the servers and give the nodes back: as much as a trial may wait."""
LOAD_NODE_NOTE = "one node more of each lease sends the load: load tests and verifications pay for it, requests do not"
_FOR_RENTED = ("workdir", "setup", "secrets", "file_mounts", "resources.image_id")
"""Fields for nodes that have nothing of this machine."""


@dataclass(frozen=True, kw_only=True)
class Leasable:
    """The nodes that a job may lease.

    counts   how many nodes of each type
    loads_from_node  whether each lease has one node more, which sends the load
    secrets  values that reach servers there through SkyPilot, to be kept out of messages
    """

    kind: str
    engine: NodeEngine
    instances: tuple[Instance, ...]
    counts: Mapping[str, tuple[int, ...]]
    notes: tuple[str, ...]
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    loads_from_node: bool = False

    @property
    def has_choice(self) -> bool:
        """Whether the number of nodes can be chosen."""
        return any(len(counts) > 1 for counts in self.counts.values())

    @property
    def is_here(self) -> bool:
        """Whether they are parts of this machine; their prices are nominal."""
        return self.kind in NOMINAL_PRICE_CLOUDS

    @property
    def is_rented(self) -> bool:
        """Whether they are rented through SkyPilot, and have nothing of this machine."""
        return self.kind in SKYPILOT

    @property
    def trial(self) -> TrialPolicy:
        """The default rules of a load test of a model that mlcd's own server serves."""
        return RENTED_TRIAL if self.is_rented else NODE_TRIAL

    @property
    def start_stop_seconds(self) -> float:
        """Time in a verification besides the load."""
        return RENTED_START_STOP_SECONDS if self.is_rented else NODE_START_STOP_SECONDS

    def cloud(self, program: ServersHere, *, noise: float | None) -> NodeServing:
        """The servers of `program` on these nodes; `noise` None: what the engine states."""
        known = self.engine.noise if noise is None else noise
        return NodeServing(
            self.engine,
            program,
            noise=known,
            is_here=self.is_here,
            shares_files=not self.is_rented,
            secrets=self.secrets,
            load_processors={i.name: i.vcpus for i in self.instances} if self.loads_from_node else None,
        )

    def lease_prices(self, space: Space, prices: Sequence[Usd]) -> tuple[Usd, ...]:
        """What a lease of each configuration costs an hour, where it has one node more; else nothing of its own."""
        if not self.loads_from_node:
            return ()
        return tuple(price + Usd(price.micros // c.nodes) for c, price in zip(space, prices, strict=True))


def leasable(spec: ServeSpec, home: Path) -> Leasable | None:
    """The nodes of the job's infra; None for `local`. Raises SpecError, ProviderError; starts nothing."""
    infra = spec.resources.infra
    kind, _, rest = infra.partition("/")
    is_rented = kind in SKYPILOT
    if given := [name for name in _FOR_RENTED if name in spec.places and not is_rented]:
        problem = f"is for nodes that are rented: on {infra} servers have the files and the environment of this machine"
        raise spec.error(given[0], problem, allowed=f"no {given[0]}, or resources.infra: {', '.join(SKYPILOT[:4])}")
    if infra == "local":
        return None
    if not is_rented and (kind not in SHARING_FILES or rest):
        raise spec.error(
            "resources.infra",
            "mlcd serves no models there in this version",
            value=infra,
            allowed=", ".join(WHERE),
            nearest=nearest(infra.lower(), WHERE),
        )
    if GPU_SHARE in spec.declared_knobs.names:
        raise spec.error(f"knobs.{GPU_SHARE}", "a server has all of its leased node", allowed=f"no {GPU_SHARE}")
    if is_rented:
        _check_rented(spec)
    engine = engine_for(kind, rest, home, spec)
    each = 1 if spec.server is None else spec.server.nodes
    replicas, goal = spec.resources.replicas, spec.goal
    notes: tuple[str, ...] = ()
    has_rate = goal.rate is not None or (bool(spec.load.trace) and "goal.minimize" in spec.places)
    if len(replicas) > 1 and not has_rate and goal.minimize is Objective.COST and not spec.search.every_replica:
        notes = (f"without goal.rate, requests per dollar do not depend on the replicas: {replicas[0]} is used",)
        replicas = replicas[:1]
    besides = int(spec.load.from_node)
    instances, counts, more = types_with_counts(
        spec, engine, lambda _: tuple(each * n for n in replicas), field="resources.replicas", besides=besides
    )
    if besides:
        more = (*more, LOAD_NODE_NOTE)
    return Leasable(
        kind=kind,
        engine=engine,
        instances=instances,
        counts=counts,
        notes=(*notes, *more),
        secrets=secret_values(spec),
        loads_from_node=spec.load.from_node,
    )


def _check_rented(spec: ServeSpec) -> None:
    """Raises SpecError for what cannot run on nodes that have nothing of this machine."""
    check_secrets(spec)
    if spec.load.from_node:
        problem = "is not for rented nodes in this version"
        raise spec.error(
            "load.from", problem, value="node", allowed=f"here, or resources.infra: {' or '.join(SHARING_FILES)}"
        )
    if spec.server is None and engine_of(Path(spec.model)) is Engine.PYTORCH:
        problem = "files of PyTorch are served on local, minicloud and slurm; for rented nodes, export it to ONNX"
        raise spec.error("model", problem, value=spec.model, allowed="a file such as model.onnx, or server: {run: ...}")


def node_space(
    spec: ServeSpec,
    nodes: Leasable,
    settings: Sequence[Knob],
    fitting: Callable[[Instance], Sequence[Sequence[Value]]],
) -> tuple[Space, tuple[Usd, ...]]:
    """Every type with each fitting combination of settings and each number of nodes; the prices. Raises SpecError.

    settings  the server's knobs
    fitting   values of those knobs, in their order, that a node of a type has room for
    """
    options = {instance.name: [tuple(values) for values in fitting(instance)] for instance in nodes.instances}
    size = sum(len(options[name]) * len(nodes.counts[name]) for name in options)
    narrow = "knobs, resources.instance_type or resources.replicas"
    check_size(spec, "knobs", size, narrow=narrow, most=MOST_SERVING_CONFIGURATIONS)
    names = ("instance", "nodes", *(knob.name for knob in settings))
    configs = tuple(
        Config(tuple(zip(names, (name, count, *values), strict=True)))
        for name, found in options.items()
        for values in found
        for count in nodes.counts[name]
    )
    instances = {i.name: i for i in nodes.instances if options[i.name]}
    used = {name: {config[name] for config in configs} for name in names}
    knobs = (
        Knob(
            name="instance",
            values=tuple(instances),
            features={name: i.features for name, i in instances.items()},
            kinds={name: i.accelerator or "cpu" for name, i in instances.items()},
        ),
        Knob(name="nodes", values=tuple(sorted({config.nodes for config in configs}))),
        *(
            Knob(
                name=knob.name,
                values=tuple(value for value in knob.values if value in used[knob.name]),
                features=knob.features,
            )
            for knob in settings
        ),
    )
    prices = {name: type_price(spec, i) for name, i in instances.items()}
    return Space(knobs, configs), tuple(prices[config.instance] * config.nodes for config in configs)


def verifiable_notes(problem: Problem) -> tuple[str, ...]:
    """What the budget can verify after one load test, where that is less than every number of nodes.

    How many nodes a rate needs is known once one was measured: then the verification of so many is kept.
    """
    budget = problem.goal.budget
    if budget is None or not problem.verify_seconds:
        return ()
    most: dict[str, int] = {}
    for group in by_settings(problem.space).values():
        index = problem.space.index
        free = budget.micros - int(problem.worst_trial_micros[index[group[0]]])
        fitting = [c.nodes for c in group if int(problem.verification_micros[index[c]]) <= free]
        if len(fitting) < len(group):
            most[group[0].instance] = max((*fitting, most.get(group[0].instance, 0)))
    if not most:
        return ()
    few = ", ".join(f"{count} x {name}" for name, count in most.items())
    return (f"goal.budget of {budget} covers one load test and the verification of at most {few}",)
