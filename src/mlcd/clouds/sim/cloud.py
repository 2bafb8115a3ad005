"""The simulated cloud: leases run in simulated time, return at once, and repeat exactly for the same order."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from mlcd.catalog.instance import Instance
from mlcd.clouds.chance import generator, share
from mlcd.clouds.provider import Lease, LeaseFailed, Order, Purpose
from mlcd.clouds.sim.lease import STRAGGLER_SPEED_SHARE, OutOfMemoryLease, RunLease, TrialLease
from mlcd.clouds.sim.models import SimJob
from mlcd.clouds.sim.physics import samples_per_second
from mlcd.errors import BadInput, nearest
from mlcd.problem import DataMove
from mlcd.space import Config
from mlcd.space.placed import place_of
from mlcd.trial.trial import FailureKind
from mlcd.units import HOUR

RECOVERY_SECONDS = 600.0
"""Time lost to a spot interruption besides starting new nodes: half a checkpoint interval of 20 minutes is redone."""

SAVED_BYTES_PER_SECOND = 250e6
"""Of a network disk, as the sellers' usual general-purpose volumes promise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Failure rates of a trial. All are probabilities for a small cluster and grow with the nodes.

    launch      a node does not start; a few minutes are paid for
    capacity    the order is refused, unpaid; for 50 nodes at $1/h each, rising with nodes and price
    straggler   share of the time in which a slow node delays the others
    hang        the job stops making progress
    spot        interruptions per node-hour, where spot is used; each type has 0.5 to 1.5 times this rate
    """

    launch: float = 0.003
    capacity: float = 0.01
    straggler: float = 0.01
    hang: float = 0.001
    spot: float = 0.005

    def __post_init__(self) -> None:
        if not all(0 <= rate < 1 for rate in (self.launch, self.capacity, self.straggler, self.hang, self.spot)):
            raise ValueError(f"rates: each must be in [0, 1) (got {self})")


REHEARSALS = {"no-access": FailureKind.REFUSED, "no-capacity": FailureKind.CAPACITY}
"""`sim/CLOUD/no-access`: how a simulated cloud may refuse every order."""

NO_FAILURES = Rates(launch=0.0, capacity=0.0, straggler=0.0, hang=0.0, spot=0.0)
"""Nothing ever goes wrong."""


MOST_NOISE = math.nextafter(1.0, 0.0)
"""A problem's noise is below 1."""


class SimCloud:
    """`instances`, by their names in the space, that train `job`; see mlcd.clouds.provider for the contract.

    cloud     one of the catalog's, or several with commas between them
    moves     what bringing the data takes, by place
    refusing  clouds that give no nodes, for rehearsals: REFUSED (no access) or CAPACITY

    Trials differ from the truth, in speed and in start-up, by log-normal noise of deviation `noise`, keyed by (seed,
    configuration, attempt); the final run takes the true mean. Where the configuration says spot (the knob `market`),
    its nodes are taken away at random; with `use_spot`, it is stretched by the interruptions to be expected.
    """

    simulated = True

    def __init__(
        self,
        *,
        cloud: str,
        instances: Mapping[str, Instance],
        job: SimJob,
        seed: int = 0,
        use_spot: bool = False,
        noise: float = 0.03,
        rates: Rates | None = None,
        refusing: Mapping[str, FailureKind] | None = None,
        moves: Mapping[str, DataMove] | None = None,
    ) -> None:
        if not 0 <= noise < 1:
            raise ValueError(f"noise: must be in [0, 1) (got {noise})")
        self.name = ",".join(f"sim/{each}" for each in cloud.split(","))
        self.rates = rates if rates is not None else Rates()
        self.sigma = noise
        # Two trials differ by the draw, and by whether stragglers occur among the twenty or so steady steps.
        luck = self.rates.straggler * (1 - self.rates.straggler) / 20
        self.noise = min(math.hypot(noise, (1 - STRAGGLER_SPEED_SHARE) * math.sqrt(luck)), MOST_NOISE)
        self.instances, self.job, self.seed, self.use_spot = dict(instances), job, seed, use_spot
        self.refusing = dict(refusing or {})
        self.moves = dict(moves or {})
        self._speeds: dict[Config, float | None] = {}

    def true_samples_per_second(self, config: Config) -> float | None:
        """The mean speed without failures; None where the job cannot run (out of memory, fewer samples than nodes)."""
        if config not in self._speeds:
            self._speeds[config] = samples_per_second(self._instance(config), self.job, config.nodes)
        return self._speeds[config]

    def startup_seconds(self, config: Config) -> float:
        """Mean time from the order to the first sample: boot, drivers, data, rendezvous of all nodes."""
        is_accelerated = self._instance(config).accelerators > 0
        return (110.0 if is_accelerated else 80.0) + 9.0 * math.sqrt(config.nodes) + 0.4 * config.nodes

    @property
    def save_seconds(self) -> float:
        """Time to save a checkpoint: parameters and two moments in fp32, to a disk that is shared."""
        return 2.0 + self.job.spec.parameters * 12 / SAVED_BYTES_PER_SECOND

    def stretch(self, config: Config) -> float:
        """Expected time of a run over its time without interruptions, at least 1: redone work and new nodes."""
        return 1 + self._interruptions_per_second(config) * (RECOVERY_SECONDS + self.startup_seconds(config))

    def lease(self, order: Order) -> Lease:
        """Raises LeaseFailed for trials that get no nodes, BadInput for an unknown type."""
        config, attempt, purpose = order.config, order.attempt, order.purpose
        speed = self.true_samples_per_second(config)
        startup_seconds = self.startup_seconds(config)
        if (move := self.moves.get(place_of(config.instance))) is not None:
            startup_seconds += move.trial_seconds if purpose is Purpose.TRIAL else move.seconds
        if purpose is Purpose.TRIAL:
            self._refuse(order)
        if speed is None:
            seconds = min(startup_seconds + 45.0, order.seconds)
            return OutOfMemoryLease(config, seconds=seconds, too_many=config.nodes > self.job.batch)
        if purpose is Purpose.RUN and config.is_spot:
            return RunLease(
                startup_seconds=startup_seconds,
                samples_per_second=speed,
                interrupted_at=self._interrupted_at(config, attempt, "run-interrupted"),
                checkpoint_seconds=order.checkpoint_seconds,
                save_seconds=self.save_seconds,
            )
        if purpose is Purpose.RUN:
            return RunLease(startup_seconds=startup_seconds, samples_per_second=speed / self.stretch(config))
        random = generator("trial", self.seed, config, attempt)
        factor = math.exp(self.sigma * random.gauss())
        return TrialLease(
            startup_seconds=startup_seconds * math.exp(self.sigma * random.gauss()),
            samples_per_second=speed * factor,
            step_seconds=self.job.batch / speed,
            straggler=self.rates.straggler,
            interrupted_at=self._interrupted_at(config, attempt),
            hangs_at=self._hangs_at(config, attempt),
            random=random,
        )

    def _instance(self, config: Config) -> Instance:
        name = config.instance
        if name not in self.instances:
            near = nearest(name, list(self.instances))
            hint = f"; did you mean {near!r}?" if near else ""
            raise BadInput(f"{self.name} has no instance type {name!r}{hint}")
        return self.instances[name]

    def _chance(self, what: str, config: Config, attempt: int) -> float:
        return share(what, self.seed, config, attempt)

    def _refuse(self, order: Order) -> None:
        """Raises LeaseFailed if the nodes cannot be obtained, after at most the time that was authorised."""
        config, attempt = order.config, order.attempt
        instance, nodes = self._instance(config), config.nodes
        if (kind := self.refusing.get(instance.cloud)) is not None:
            why = "no access" if kind is FailureKind.REFUSED else "no capacity"
            message = f"{instance.cloud} gives no nodes ({why}): a rehearsal"
            raise LeaseFailed(kind, message, seconds=min(5.0, order.seconds), billed=False)
        price = instance.price(spot=self.use_spot or config.is_spot)
        if price is None:
            raise LeaseFailed(
                FailureKind.CAPACITY,
                f"{instance.name} has no spot market",
                seconds=min(5.0, order.seconds),
                billed=False,
            )
        scarcity = self.rates.capacity * (nodes / 50) ** 1.5 * (0.5 + instance.usd_per_hour.dollars) ** 0.5
        chance = self._chance("capacity", config, attempt)
        if chance < scarcity / (1 + scarcity):
            seconds = min(60 + 60 * self._chance("capacity-seconds", config, attempt), order.seconds)
            raise LeaseFailed(FailureKind.CAPACITY, f"no capacity for {config}", seconds=seconds, billed=False)
        broken = 1 - (1 - self.rates.launch) ** (1 + nodes / 20)
        if self._chance("launch", config, attempt) < broken:
            seconds = min(90 + 120 * self._chance("launch-seconds", config, attempt), order.seconds)
            raise LeaseFailed(FailureKind.LAUNCH, f"a node of {config} did not come up", seconds=seconds)

    def _interruptions_per_second(self, config: Config) -> float:
        if not (self.use_spot or config.is_spot):
            return 0.0
        eagerness = 0.5 + share("spot", self._instance(config).cloud, self._instance(config).name)
        return self.rates.spot * eagerness * config.nodes / HOUR

    def _interrupted_at(self, config: Config, attempt: int, what: str = "interrupted") -> float | None:
        rate = self._interruptions_per_second(config)
        return generator(what, self.seed, config, attempt).expovariate(rate) if rate > 0 else None

    def _hangs_at(self, config: Config, attempt: int) -> float | None:
        hangs = self._chance("hang", config, attempt) < 1 - (1 - self.rates.hang) ** (1 + config.nodes / 20)
        return self.startup_seconds(config) + 300 * self._chance("hang-at", config, attempt) if hangs else None
