"""The toy table of Siren's paper next to the simulator's: logistic regression on 20, 150 and X functions."""

from dataclasses import asdict, dataclass, replace

from mlcd.catalog.functions import function_prices
from mlcd.clouds.functions.provider import EpochOrder
from mlcd.clouds.functions.sim import NO_DEVIATION, SimFunctionCloud
from mlcd.clouds.functions.sim.workloads import TOY
from mlcd.goal import Goal, Objective
from mlcd.trial.epoch import Epoch, Fleet
from mlcd.units import Usd

MEMORY_MB = 256
EC2_USD_PER_HOUR = 0.34
EC2_CORES = 8
EC2_CORE_SPEED = 720.7 / 8 / (307.87 / 6)
"""Speed of a c5.2xlarge's core relative to a 256 MB function; derived from the paper's row, so it reproduces it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToyRow:
    """One way to train: the paper's figures and the simulator's.

    usd  of the functions alone, as in the paper: 150 x 50.04 s x 0.25 GB come to its $0.031
    usd_with_storage  with the storage requests, which dominate
    """

    what: str
    epochs: int
    paper_loss: float
    loss: float
    paper_seconds: float
    seconds: float
    paper_usd: float
    usd: float
    usd_with_storage: float


def toy_table() -> list[ToyRow]:
    """The paper's four rows, without randomness."""
    return [
        _functions("20 functions", (20,) * 40, (0.009725, 237.40, 0.019)),
        _ec2(),
        _functions("150 functions", (150,) * 40, (0.009699, 50.04, 0.031)),
        _functions("X: 120, then 20, then 10", (120, 20, 20, 20, 10), (0.009761, 202.55, 0.019)),
    ]


def as_json() -> dict[str, object]:
    """As `siren.py -o json` prints it under `toy`."""
    return {"simulated": True, "rows": [asdict(row) for row in toy_table()]}


def _functions(what: str, numbers: tuple[int, ...], paper: tuple[float, float, float]) -> ToyRow:
    problem = TOY.problem(Goal(minimize=Objective.TIME))
    cloud = SimFunctionCloud(problem=problem, laws=replace(TOY.laws, chance=NO_DEVIATION))
    epochs = []
    for number, functions in enumerate(numbers, start=1):
        fleet = Fleet(functions, MEMORY_MB)
        epochs.append(cloud.run_epoch(EpochOrder(number=number, fleet=fleet, seconds=1e9, usd=Usd.of(1e6))))
        if epochs[-1].loss <= problem.target_loss:
            break
    return ToyRow(
        what=what,
        epochs=len(epochs),
        paper_loss=paper[0],
        loss=epochs[-1].loss,
        paper_seconds=paper[1],
        seconds=sum(epoch.seconds for epoch in epochs),
        paper_usd=paper[2],
        usd=sum(_without_storage(epoch) for epoch in epochs),
        usd_with_storage=sum(epoch.usd.dollars for epoch in epochs),
    )


def _without_storage(epoch: Epoch) -> float:
    prices, fleet = function_prices(TOY.prices), epoch.fleet
    return prices.charge_alike(memory_mb=fleet.memory_mb, calls=[(epoch.seconds, fleet.functions)]).dollars


def _ec2() -> ToyRow:
    laws, progress, epochs = TOY.laws, 0.0, 0
    while progress < laws.target_epochs:
        progress += laws.gain(EC2_CORES, progress)
        epochs += 1
    work = laws.parallel_seconds(1, MEMORY_MB)
    seconds = epochs * work / (EC2_CORES * EC2_CORE_SPEED)
    return ToyRow(
        what="c5.2xlarge, 8 cores",
        epochs=epochs,
        paper_loss=0.009779,
        loss=laws.loss(progress),
        paper_seconds=307.87,
        seconds=seconds,
        paper_usd=0.029,
        usd=seconds / 3600 * EC2_USD_PER_HOUR,
        usd_with_storage=seconds / 3600 * EC2_USD_PER_HOUR,
    )
