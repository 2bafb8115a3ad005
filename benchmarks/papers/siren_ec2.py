"""Functions against instances, simulated: the paper's comparison with EC2, and where LambdaML's finding holds.

A cluster of w machines trains in startup + epochs x (work / (w cores speed) + rounds x 2 (w - 1)/w parameters /
network), a ring, as in LambdaML (SIGMOD 2021). It is paid from its start: by the hour, as in the paper (with one
instance of each type, because the paper names no clusters), or by the second, as today.
"""

import math
from dataclasses import asdict, dataclass

from mlcd.catalog.functions import function_prices
from mlcd.catalog.load import load_catalog
from mlcd.clouds.functions.sim.workloads import TESTBED, SimWorkload
from mlcd.functions import FunctionProblem
from mlcd.goal import Goal, Objective
from mlcd.units import HOUR

TYPES = ("m4.large", "m4.xlarge", "m4.2xlarge")
MOST_INSTANCES = 16
STARTUP_SECONDS = 60.0
CORE_SPEED = 3.91
"""Speed of an m4's vCPU relative to a 1,536 MB function; set so that LeNet takes up to 44.3% less time at equal
cost by the hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One way to train: `what` it runs on, its time and its cost."""

    what: str
    seconds: float
    usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Versus:
    """Functions against one instance cluster at the same cost: the fastest fleet that costs no more, if any."""

    workload: str
    instances: Point
    functions: Point | None
    less_time: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A workload: the fastest and the cheapest of both kinds. LambdaML: functions can be faster, hardly cheaper."""

    workload: str
    paid_by: str
    most_less_time: float | None
    fastest_functions: Point
    fastest_instances: Point
    cheapest_functions: Point
    cheapest_instances: Point

    @property
    def speedup(self) -> float:
        """Speed-up of the fastest functions over the fastest instances."""
        return self.fastest_instances.seconds / self.fastest_functions.seconds

    @property
    def cheaper(self) -> float:
        """The cheapest instances' cost divided by the cheapest functions'; below 1, instances are cheaper."""
        return self.cheapest_instances.usd / self.cheapest_functions.usd


def function_points(workload: SimWorkload) -> list[Point]:
    """Fixed fleets, without randomness, including every Pareto-optimal one."""
    problem = workload.problem(Goal(minimize=Objective.TIME))
    found = []
    for size in problem.memory_mb[::4] + problem.memory_mb[-1:]:
        if size < workload.laws.working_set_mb:
            continue
        found += [_fleet(workload, problem, number, size) for number in _numbers(workload.max_functions)]
    return found


def instance_points(workload: SimWorkload, *, hourly: bool, core_speed: float = CORE_SPEED) -> list[Point]:
    """The paper's three types: one instance paid by the hour, or clusters of 1 to 16 paid by the second."""
    catalog = load_catalog()
    laws, found = workload.laws, []
    for name in TYPES:
        instance = next(i for i in catalog.instances if i.cloud == "aws" and i.name == name)
        for count in range(1, 2 if hourly else MOST_INSTANCES + 1):
            cores = count * instance.vcpus
            compute = laws.work_seconds * (1 - laws.fetch_share) / (cores * core_speed)
            exchange = 2 * (count - 1) / count * workload.model_bytes * 8 / (instance.network_gbps * 1e9)
            rounds = workload.samples / workload.batch / cores
            seconds = STARTUP_SECONDS + laws.epochs(cores) * (compute + rounds * exchange)
            paid = math.ceil(seconds / HOUR) * HOUR if hourly else seconds
            usd = instance.usd_per_hour.for_seconds(paid) * count
            found.append(Point(what=f"{count} x {name}", seconds=seconds, usd=usd.dollars))
    return found


def same_cost(workload: SimWorkload, *, hourly: bool, core_speed: float = CORE_SPEED) -> list[Versus]:
    """Each cluster against the fastest functions that cost no more."""
    functions = function_points(workload)
    found = []
    for cluster in instance_points(workload, hourly=hourly, core_speed=core_speed):
        payable = [point for point in functions if point.usd <= cluster.usd]
        best = min(payable, key=lambda point: point.seconds) if payable else None
        less = 1 - best.seconds / cluster.seconds if best is not None else None
        found.append(Versus(workload=workload.name, instances=cluster, functions=best, less_time=less))
    return found


def finding(workload: SimWorkload, *, hourly: bool) -> Finding:
    """The finding for one workload."""
    functions, instances = function_points(workload), instance_points(workload, hourly=hourly)
    less = [line.less_time for line in same_cost(workload, hourly=hourly) if line.less_time is not None]
    return Finding(
        workload=workload.name,
        paid_by="hour" if hourly else "second",
        most_less_time=max(less, default=None),
        fastest_functions=min(functions, key=lambda point: point.seconds),
        fastest_instances=min(instances, key=lambda point: point.seconds),
        cheapest_functions=min(functions, key=lambda point: point.usd),
        cheapest_instances=min(instances, key=lambda point: point.usd),
    )


def findings() -> list[Finding]:
    """The paper's three testbed models, instances paid by the hour and by the second."""
    return [finding(workload, hourly=hourly) for hourly in (True, False) for workload in TESTBED.values()]


def as_json() -> dict[str, object]:
    """As `siren.py -o json` prints it under `ec2`."""
    return {
        "simulated": True,
        "findings": [{**asdict(f), "speedup": f.speedup, "cheaper": f.cheaper} for f in findings()],
        "same_cost": [asdict(line) for workload in TESTBED.values() for line in same_cost(workload, hourly=True)],
    }


def _numbers(most: int) -> list[int]:
    found, number = [], 1.0
    while number <= most:
        found.append(round(number))
        number = max(number + 1, number * 1.12)
    return found


def _fleet(workload: SimWorkload, problem: FunctionProblem, number: int, size: int) -> Point:
    laws, prices = workload.laws, function_prices(workload.prices)
    epochs, seconds = laws.epochs(number), laws.seconds(number, size)
    usd = epochs * number * (float(prices.usd_per_second(size)) * seconds + problem.usd_per_function)
    return Point(what=f"{number} x {size:,} MB", seconds=epochs * seconds, usd=usd)
