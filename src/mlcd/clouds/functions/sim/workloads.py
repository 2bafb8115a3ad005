"""Simulated workloads: the paper's, calibrated to its tables, and random ones to train and test policies on.

`paper` is the simulation of Siren's evaluation. Its grid search at one memory size (we take 1,536 MB) has three rows:
138 / 482 / 828 functions took 4,979.7 / 2,816.9 / 2,452.3 s and $99.99 / $199.67 / $299.89. Ten epochs of

    194.78 s + 41,842 s / n        at 1.433e-4 USD per function and second, plus 1.073e-3 USD per function

fit all six numbers within 0.1%. The last term is the cost of 198 rounds of one PUT and one GET, and 9 GETs for data.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache

from mlcd.catalog.functions import function_prices
from mlcd.clouds.chance import generator
from mlcd.clouds.functions.sim.laws import REFERENCE_MB, Chance, FunctionLaws
from mlcd.clouds.functions.sim.wide import is_unseen, with_laws
from mlcd.errors import BadInput, nearest
from mlcd.functions import FunctionProblem
from mlcd.goal import Goal
from mlcd.untrusted import whole_number

DATA_GETS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class SimWorkload:
    """A workload and where it runs: everything of a problem except its goal."""

    name: str
    laws: FunctionLaws
    prices: str = "siren-paper"
    max_functions: int = 3000
    memory_mb: tuple[int, ...] = ()
    samples: int = 10_000_000
    batch: int = 256
    model_bytes: int = 4_000_000
    max_epochs: int = 40
    repeat_share: float = 0.02

    def problem(
        self, goal: Goal, *, functions: tuple[int, ...] = (), memory_mb: tuple[int, ...] = ()
    ) -> FunctionProblem:
        """The problem under `goal`; `functions` and `memory_mb` restrict the choice where given."""
        prices = function_prices(self.prices)
        return FunctionProblem(
            name=self.name,
            functions=functions or tuple(range(1, self.max_functions + 1)),
            memory_mb=memory_mb or self.memory_mb or prices.memory_sizes,
            samples=self.samples,
            batch=self.batch,
            model_bytes=self.model_bytes,
            target_loss=self.laws.target_loss,
            first_loss=self.laws.first_loss,
            max_epochs=self.max_epochs,
            goal=goal,
            prices=prices,
            puts_per_function=self.laws.rounds,
            gets_per_function=self.laws.rounds + DATA_GETS,
            repeat_share=self.repeat_share,
        )

    def cheapest_usd(self) -> float:
        """The least cost of a training with a fixed fleet, without chance: about that of one function."""
        price = float(function_prices(self.prices).usd_per_second(1536))
        return self.laws.epochs(1) * price * self.laws.seconds(1, 1536)


PAPER = SimWorkload(name="paper", laws=FunctionLaws(work_seconds=41_842.0, round_seconds=194.78 / 198))

FLAT = SimWorkload(
    name="flat",
    laws=replace(PAPER.laws, early_gain=0.0, staleness=0.0, target_epochs=9.9),
)
"""The paper's rows, assuming that n has no effect on progress: then a fixed fleet is best, apart from chance."""

TOY = SimWorkload(
    # Six epochs of 3.533 s + 720.7 s / n at 256 MB fit both fixed rows; at 1,536 MB a sixth of it. The early gain and
    # late loss are set so that 120, 20, 20, 20, 10 functions need five epochs: one possible interpretation.
    name="toy",
    laws=FunctionLaws(
        work_seconds=720.7 / 6,
        round_seconds=3.533 / 6 / 10,
        rounds=10,
        working_set_mb=120.0,
        floor_loss=0.009431,
        rate=548.0,
        target_epochs=5.507,
        early_gain=0.9165,
        half_gain_functions=142.0,
        staleness=0.00246,
    ),
    prices="aws-lambda-2018",
    max_functions=1000,
    samples=1_000_000,
    model_bytes=100_000,
)

_TESTBED = {
    "lenet-mnist": FunctionLaws(
        work_seconds=900.0, round_seconds=0.25, rounds=40, target_epochs=8.4, working_set_mb=350.0, contention=0.3
    ),
    "cnn-movie-review": FunctionLaws(
        work_seconds=1500.0, round_seconds=0.35, rounds=30, target_epochs=6.5, working_set_mb=450.0, contention=0.4
    ),
    "linear-ctr": FunctionLaws(
        work_seconds=500.0, round_seconds=0.12, rounds=60, target_epochs=11.3, working_set_mb=250.0, contention=0.2
    ),
}
TESTBED: Mapping[str, SimWorkload] = {
    name: SimWorkload(name=name, laws=laws, prices="aws-lambda-2018", max_functions=1000, samples=100_000)
    for name, laws in _TESTBED.items()
}
"""The three models of the paper's testbed. It gives no times; these are our own, for the comparison with instances."""

LOCALHOST = SimWorkload(
    # LeNet on functions that are processes of a machine with two CPUs: an epoch takes 0.39 n + 0.73 / (n
    # min(1, m / 1,769)) + 0.83 seconds, and the target is reached after 3 to 6 epochs of 8 to 12 functions
    # (benchmarks/serverless_sync.py). An effect of n on progress was not visible with so few functions.
    name="lenet-localhost",
    laws=FunctionLaws(
        work_seconds=0.728 * 1769 / REFERENCE_MB,
        round_seconds=0.01,
        rounds=1,
        fetch_share=0.05,
        call_seconds=0.3878,
        epoch_seconds=0.819,
        memory_power=1.0,
        fastest_mb=1769.0,
        working_set_mb=200.0,
        first_loss=2.303,
        floor_loss=0.02,
        rate=8.0,
        target_epochs=4.1,
        early_gain=0.0,
        staleness=0.0,
        chance=Chance(run=0.04, weather=0.08, straggler=0.0, failure=0.0, cold_seconds=0.0, progress=0.15),
    ),
    prices="aws-lambda",
    max_functions=12,
    memory_mb=(512, 1024, 1769),
    samples=1347,
    batch=64,
    model_bytes=250_000,
)
"""A second calibration, to real epochs on `lithops/localhost`."""

UNSEEN_COUNT = 12
WIDE_COUNT = 12
"""Workloads of the groups `unseen` and `wide` of `mlcd bench serverless`."""


def training_workload(index: int) -> SimWorkload:
    """A workload to train a policy on, or to choose a fit's constants on; for nothing else."""
    return _drawn(f"train-{index}", wide=False)


def tuning_workload(index: int) -> SimWorkload:
    """A workload to choose a scheduler's constants on: different draws from the ranges of the unseen ones."""
    return _drawn(f"tune-{index}", wide=True)


@cache
def unseen_workload(index: int) -> SimWorkload:
    """A workload to test on that nothing was trained or tuned on: different draws, from wider ranges."""
    return _drawn(f"unseen-{index}", wide=True)


@cache
def wide_workload(index: int) -> SimWorkload:
    """A workload with laws of its own (mlcd.clouds.functions.sim.wide); unseen where its name's SHA-256 is even."""
    return _drawn(f"wide-{index}", wide=True)


@cache
def wide_names(count: int, *, unseen: bool, first: int = 0) -> tuple[str, ...]:
    """The first `count` unseen workloads `wide-N`, N from `first`, or those for tuning and training."""
    found: list[str] = []
    index = first
    while len(found) < count:
        if is_unseen(f"wide-{index}") is unseen:
            found.append(f"wide-{index}")
        index += 1
    return tuple(found)


_DRAWN: Mapping[str, Callable[[int], SimWorkload]] = {
    "train": training_workload,
    "tune": tuning_workload,
    "unseen": unseen_workload,
    "wide": wide_workload,
}


def workload(name: str) -> SimWorkload:
    """By name: paper, flat, toy, lenet-localhost, the testbed's, train-N, tune-N, unseen-N, wide-N. Raises BadInput."""
    kind, _, number = name.partition("-")
    if kind in _DRAWN and (drawn := whole_number(number)) is not None:
        return _DRAWN[kind](drawn)
    known = {"paper": PAPER, "flat": FLAT, "toy": TOY, LOCALHOST.name: LOCALHOST, **TESTBED}
    if name not in known:
        near = nearest(name, list(known))
        hint = f"; did you mean {near!r}?" if near else ""
        allowed = ", ".join((*known, *(f"{kind}-N" for kind in _DRAWN)))
        raise BadInput(f"workloads: unknown simulated workload (got {name!r}); allowed: {allowed}{hint}")
    return known[name]


def _drawn(name: str, *, wide: bool) -> SimWorkload:
    """The paper's workload with all its properties changed at random.

    Scaled so that its cheapest training costs $52 to $68, which makes the paper's budgets comparable.
    """
    random = generator("workload", name)
    reach = 1.35 if wide else 1.0

    def spread(factor: float) -> float:
        return float(factor ** (reach * random.uniform(-1, 1)))

    target = PAPER.laws.target_epochs * spread(1.5)
    first = random.uniform(0.5, 2.5)
    laws = replace(
        PAPER.laws,
        work_seconds=PAPER.laws.work_seconds * spread(1.6),
        round_seconds=PAPER.laws.round_seconds * spread(2.0),
        fetch_share=random.uniform(0.05, 0.3),
        contention=random.uniform(0.0, 0.1 * reach),
        memory_power=random.uniform(0.9 - 0.1 * reach, 0.98),
        working_set_mb=random.uniform(200, 900),
        first_loss=first,
        floor_loss=first * random.uniform(0.1, 0.5),
        rate=spread(3.0),
        target_epochs=target,
        early_gain=PAPER.laws.early_gain * random.uniform(0.5, 1.5),
        half_gain_functions=PAPER.laws.half_gain_functions * spread(1.5),
        staleness=PAPER.laws.staleness * spread(1.6),
    )
    if name.startswith("wide-"):
        laws = with_laws(name, laws)
    drawn = SimWorkload(name=name, laws=laws)
    scale = random.uniform(52, 68) / drawn.cheapest_usd()
    return replace(
        drawn,
        laws=replace(laws, work_seconds=laws.work_seconds * scale, round_seconds=laws.round_seconds * scale),
    )
