"""The cloud `lab`: two kinds of machines whose speed is a formula. Simulated, so that nobody is charged."""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType

from mlcd.interfaces import BadInput, CloudJob, CloudOffer, Config, Instance, JobProgress, Order, Purpose, Settled, Usd

MACHINES = {
    # name: (USD per hour, samples per second of one node, how much each further node slows the others)
    "desk": (0.30, 40.0, 0.03),
    "rack": (1.10, 210.0, 0.08),
}
STARTUP_SECONDS = 45.0


@dataclass(frozen=True)
class LabCloud:
    """Leases the machines; see mlcd.interfaces.Cloud for the contract."""

    name: str = "lab"
    simulated: bool = True
    noise: float = 0.02
    seed: int = 0

    def true_samples_per_second(self, config: Config) -> float:
        """The mean speed: v n / (1 + d (n - 1)). Optional; the contract tests use it."""
        _, speed, drag = MACHINES[config.instance]
        return speed * config.nodes / (1 + drag * (config.nodes - 1))

    def lease(self, order: Order) -> "LabLease":
        """Trials are noisy, and always the same for the same seed, configuration and attempt; the training is not."""
        speed = self.true_samples_per_second(order.config)
        if order.purpose is Purpose.TRIAL:
            chance = random.Random(f"{self.seed}|{order.config}|{order.attempt}")
            speed *= math.exp(self.noise * chance.gauss())
        return LabLease(speed)


@dataclass(frozen=True)
class LabLease:
    """The machines of one lease. A real cloud would give them back in __exit__."""

    samples_per_second: float

    def __enter__(self) -> "LabLease":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing was started."""

    def progress(self) -> Iterator[JobProgress]:
        """Every 10 seconds at first, then less often; without end, as simulated time costs nothing."""
        seconds = 0.0
        while True:
            yield JobProgress(STARTUP_SECONDS + seconds, seconds * self.samples_per_second)
            seconds += max(10.0, (seconds - 3600) / 8)

    def finish(self, at: JobProgress) -> Settled:
        """Everything until the last progress is paid for."""
        return Settled(seconds=at.seconds)


class Lab:
    """The plug-in: what `resources.infra: lab` or `lab/desk` offers."""

    def prepare(self, job: CloudJob) -> CloudOffer:
        """Both kinds of machines, or the one that is named after the slash."""
        if job.where and job.where not in MACHINES:
            raise BadInput(f"resources.infra: lab has no {job.where!r}; allowed: lab, lab/desk, lab/rack")
        instances = tuple(
            Instance(cloud="lab", name=name, vcpus=8, memory_gib=32, network_gbps=10, usd_per_hour=Usd.of(price))
            for name, (price, _, _) in MACHINES.items()
            if job.where in ("", name)
        )
        return CloudOffer(
            cloud=LabCloud(seed=job.seed),
            instances=instances,
            most_nodes={"rack": 4},
            charged=False,
            notes=("lab is simulated: nobody is charged",),
        )
