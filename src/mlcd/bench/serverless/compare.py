"""`mlcd bench serverless`: schedulers side by side on simulated workloads, over budgets and seeds."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from statistics import fmean

from mlcd.bench.serverless.grid import grid_search
from mlcd.bench.serverless.past import past_prior
from mlcd.bench.serverless.training import train
from mlcd.bench.tasks import run_tasks
from mlcd.clouds.functions.sim import SimFunctionCloud
from mlcd.clouds.functions.sim.laws import REFERENCE_MB, FunctionLaws
from mlcd.clouds.functions.sim.workloads import PAPER, UNSEEN_COUNT, WIDE_COUNT, SimWorkload, wide_names, workload
from mlcd.errors import BadInput, nearest
from mlcd.functions import Floats, FunctionProblem
from mlcd.goal import Goal, Objective
from mlcd.models.epochs import EpochPrior
from mlcd.schedulers.informed import Informed
from mlcd.schedulers.registry import scheduler as scheduler_by_name
from mlcd.schedulers.scheduler import Scheduler
from mlcd.trial.epoch import Epoch
from mlcd.trial.outcome import Status
from mlcd.units import Usd

DEFAULT_SCHEDULERS = ("static-n", "static", "siren-untrained", "siren", "mpc", "informed")
EXTRA_SCHEDULERS = ("mpc-first", "mpc-again", "informed-whole")
"""`mpc-first` and `mpc-again` are mpc without and with knowledge of four earlier trainings of the workload, on every
workload. `informed-whole` is `informed` limited to whole epochs, as Siren decides. `siren-untrained`, above, is siren
with its network set to 0."""


@dataclass(frozen=True, slots=True)
class LawsOfRun:
    """What `informed` is told of a run: the laws with this run's own speed, and the true progress."""

    laws: FunctionLaws
    cloud: SimFunctionCloud = field(compare=False, repr=False)

    @classmethod
    def of(cls, cloud: SimFunctionCloud) -> "LawsOfRun":
        """Of the run that `cloud` simulates."""
        return cls(cloud.run_laws, cloud)

    @property
    def target_epochs(self) -> float:  # noqa: D102
        return self.laws.target_epochs

    @property
    def working_set_mb(self) -> float:  # noqa: D102
        return self.laws.working_set_mb

    @property
    def target_deviation(self) -> float:  # noqa: D102
        laws, step = self.laws, 0.05 * self.laws.target_epochs
        above = laws.loss(laws.target_epochs) - laws.floor_loss
        slope = (laws.loss(laws.target_epochs - step) - laws.loss(laws.target_epochs)) / step
        return laws.chance.loss * above / slope

    def seconds(self, functions: Floats, memory_mb: float) -> Floats:  # noqa: D102
        return self.laws.seconds(functions, memory_mb)

    def waiting_seconds(self, functions: Floats) -> Floats:  # noqa: D102
        return self.laws.waiting_seconds(functions)

    def gain(self, functions: Floats, progress: float) -> Floats:  # noqa: D102
        return self.laws.gain(functions, progress)

    def progress(self, history: Sequence[Epoch]) -> float:  # noqa: D102
        return self.cloud.progress_after(history)


SEEN = (PAPER.name,)
"""Workloads that the policy was trained on, and whose earlier trainings mpc knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerlessComparison:
    """What to compare."""

    workloads: tuple[str, ...] = (PAPER.name,)
    schedulers: tuple[str, ...] = DEFAULT_SCHEDULERS
    budgets: tuple[float, ...] = (50.0, 100.0, 200.0, 300.0)
    seeds: int = 20
    first_seed: int = 0
    jobs: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerlessRow:
    """One training. `seconds` and `usd` are the total, whether the target was reached or not.

    status               done | infeasible, with an estimate of the smallest budget that would suffice
    smallest_budget_usd  that estimate
    violated             whether it spent more than the budget
    functions, memory_mb  least and most in any epoch
    """

    workload: str
    scheduler: str
    budget_usd: float
    seed: int
    status: str
    seconds: float
    usd: float
    epochs: int
    failed_epochs: int
    functions: tuple[int, int] | None
    memory_mb: tuple[int, int] | None
    smallest_budget_usd: float | None
    violated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerlessSummary:
    """A scheduler under a budget; means are over trainings that reached their target, None without any."""

    scheduler: str
    budget_usd: float
    runs: int
    mean_seconds: float | None
    mean_usd: float | None
    violations: int
    infeasible: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Versus:
    """A scheduler's time divided by another's, minus 1, over trainings that both finished (pairs: workload, seed)."""

    scheduler: str
    budget_usd: float
    pairs: int
    against_static_n: float | None
    against_static: float | None
    against_untrained: float | None
    against_siren: float | None
    against_informed: float | None


def workload_names(text: str) -> tuple[str, ...]:
    """Comma-separated names; `unseen` and `wide` stand for all unseen workloads of that kind. Raises BadInput."""
    groups = {
        "unseen": tuple(f"unseen-{index}" for index in range(UNSEEN_COUNT)),
        "wide": wide_names(WIDE_COUNT, unseen=True),
    }
    found: list[str] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        found += groups.get(part) or (workload(part).name,)
    if not found:
        raise BadInput("--workloads: name at least one, such as paper or unseen")
    return tuple(dict.fromkeys(found))


def scheduler_names(text: str) -> tuple[str, ...]:
    """Comma-separated names. Raises BadInput with the nearest name."""
    known = (*DEFAULT_SCHEDULERS, *EXTRA_SCHEDULERS)
    found = tuple(piece.strip() for piece in text.split(",") if piece.strip())
    for name in found:
        if name not in known:
            near = nearest(name, known)
            hint = f"; did you mean {near!r}?" if near else ""
            raise BadInput(f"--schedulers: unknown scheduler {name!r}; allowed: {', '.join(known)}{hint}")
    if not found:
        raise BadInput("--schedulers: name at least one")
    return tuple(dict.fromkeys(found))


def compare(comparison: ServerlessComparison) -> list[ServerlessRow]:
    """Every training of the comparison, in order."""
    tasks = [
        (name, scheduler, budget, comparison.first_seed + seed)
        for name in comparison.workloads
        for scheduler in comparison.schedulers
        for budget in comparison.budgets
        for seed in range(comparison.seeds)
    ]
    return run_tasks(run_one, tasks, jobs=comparison.jobs)


def run_one(name: str, scheduler: str, budget: float, seed: int) -> ServerlessRow:
    """One training of one scheduler."""
    made, problem = _setting(name, budget)
    cloud = SimFunctionCloud(problem=problem, laws=made.laws, seed=seed)
    decides = _scheduler(scheduler, name, budget, cloud)
    if decides is None:
        return _refused(name, scheduler, budget, seed)
    run = train(problem, cloud, decides)
    functions = [epoch.fleet.functions for epoch in run.epochs]
    memory = [epoch.fleet.memory_mb for epoch in run.epochs]
    needed = run.smallest_budget
    return ServerlessRow(
        workload=name,
        scheduler=scheduler,
        budget_usd=budget,
        seed=seed,
        status="done" if run.status is Status.DONE else "infeasible",
        seconds=math.fsum(step.epoch.seconds for step in run.epoch_steps),
        usd=run.spent.dollars,
        epochs=len(run.epochs),
        failed_epochs=len(run.failed_epochs),
        functions=(min(functions), max(functions)) if functions else None,
        memory_mb=(min(memory), max(memory)) if memory else None,
        smallest_budget_usd=needed.dollars if needed is not None else None,
        violated=run.spent > Usd.of(budget),
    )


@lru_cache(maxsize=64)
def _setting(name: str, budget: float) -> tuple[SimWorkload, FunctionProblem]:
    made = workload(name)
    return made, made.problem(Goal(minimize=Objective.TIME, budget=Usd.of(budget)))


@lru_cache(maxsize=64)
def _prior(name: str) -> EpochPrior | None:
    return past_prior(workload(name))


@lru_cache(maxsize=256)
def _grid(name: str, budget: float, memory_mb: tuple[int, ...]) -> Scheduler | None:
    made, problem = _setting(name, budget)
    fleet = grid_search(problem, made.laws, memory_mb=memory_mb)
    if fleet is None:
        return None
    kind = "static-n" if len(memory_mb) == 1 else "static"
    return scheduler_by_name(f"{kind}:functions={fleet.functions},memory={fleet.memory_mb}")


def _scheduler(scheduler: str, name: str, budget: float, cloud: SimFunctionCloud) -> Scheduler | None:
    """The scheduler as it is compared; None where its grid search finds nothing."""
    match scheduler:
        case "static-n":
            return _grid(name, budget, (_grid_memory(cloud.problem),))
        case "static":
            return _grid(name, budget, cloud.problem.memory_mb)
        case "siren":
            return scheduler_by_name("siren")
        case "siren-untrained":
            return scheduler_by_name("siren:untrained=on")
        case "mpc":
            return scheduler_by_name("mpc", prior=_prior(name) if name in SEEN else None)
        case "mpc-first":
            return scheduler_by_name("mpc")
        case "mpc-again":
            return scheduler_by_name("mpc", prior=_prior(name))
        case "informed-whole":
            return Informed(truth=LawsOfRun.of(cloud), least_share=1.0)
        case _:
            return Informed(truth=LawsOfRun.of(cloud))


def _grid_memory(problem: FunctionProblem) -> int:
    """The memory size of the paper's grid search, 1,536 MB, or the nearest that the workload has."""
    return min(problem.memory_mb, key=lambda memory_mb: abs(memory_mb - REFERENCE_MB))


def _refused(name: str, scheduler: str, budget: float, seed: int) -> ServerlessRow:
    """The row of a grid search without a fleet: nothing runs; the smallest budget is the least that gives one."""
    problem = _setting(name, budget)[1]
    sizes = (_grid_memory(problem),) if scheduler == "static-n" else problem.memory_mb
    return ServerlessRow(
        workload=name,
        scheduler=scheduler,
        budget_usd=budget,
        seed=seed,
        status="infeasible",
        seconds=0.0,
        usd=0.0,
        epochs=0,
        failed_epochs=0,
        functions=None,
        memory_mb=None,
        smallest_budget_usd=_smallest_grid_budget(name, sizes),
        violated=False,
    )


@lru_cache(maxsize=64)
def _smallest_grid_budget(name: str, memory_mb: tuple[int, ...]) -> float:
    low, high = 1.0, 2.0
    while _grid(name, high, memory_mb) is None:
        low, high = high, high * 2
    while high - low > 0.01 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _grid(name, middle, memory_mb) is None else (low, middle)
    return math.ceil(high * 10) / 10


def summarise(rows: Sequence[ServerlessRow]) -> list[ServerlessSummary]:
    """One summary per scheduler and budget, in the order they appear."""
    found = []
    for scheduler, budget in dict.fromkeys((row.scheduler, row.budget_usd) for row in rows):
        of = [row for row in rows if (row.scheduler, row.budget_usd) == (scheduler, budget)]
        done = [row for row in of if row.status == "done"]
        found.append(
            ServerlessSummary(
                scheduler=scheduler,
                budget_usd=budget,
                runs=len(of),
                mean_seconds=fmean(row.seconds for row in done) if done else None,
                mean_usd=fmean(row.usd for row in done) if done else None,
                violations=sum(row.violated for row in of),
                infeasible=sum(row.status == "infeasible" for row in of),
            )
        )
    return found


def versus(rows: Sequence[ServerlessRow]) -> list[Versus]:
    """How the schedulers compare: one line per scheduler and budget."""
    times = {
        (row.scheduler, row.budget_usd, row.workload, row.seed): row.seconds for row in rows if row.status == "done"
    }

    def against(scheduler: str, budget: float, other: str) -> float | None:
        ratios = [
            seconds / times[other, budget, name, seed]
            for (mine, at, name, seed), seconds in times.items()
            if mine == scheduler and at == budget and (other, budget, name, seed) in times
        ]
        return fmean(ratios) - 1 if ratios else None

    return [
        Versus(
            scheduler=scheduler,
            budget_usd=budget,
            pairs=sum(key[:2] == (scheduler, budget) for key in times),
            against_static_n=against(scheduler, budget, "static-n"),
            against_static=against(scheduler, budget, "static"),
            against_untrained=against(scheduler, budget, "siren-untrained"),
            against_siren=against(scheduler, budget, "siren"),
            against_informed=against(scheduler, budget, "informed"),
        )
        for scheduler, budget in dict.fromkeys((row.scheduler, row.budget_usd) for row in rows)
        if any(key[:2] == (scheduler, budget) for key in times)
    ]


def smallest_budgets(rows: Sequence[ServerlessRow]) -> dict[tuple[str, float], float]:
    """(scheduler, budget) to the largest smallest_budget_usd of its infeasible runs."""
    found: dict[tuple[str, float], float] = {}
    for row in rows:
        if row.status == "infeasible" and row.smallest_budget_usd is not None:
            key = row.scheduler, row.budget_usd
            found[key] = max(found.get(key, 0.0), row.smallest_budget_usd)
    return found


def as_json(rows: Sequence[ServerlessRow]) -> dict[str, object]:
    """As `mlcd bench serverless -o json` prints them."""
    return {
        "simulated": True,
        "summary": [asdict(line) for line in summarise(rows)],
        "versus": [asdict(line) for line in versus(rows)],
        "rows": [asdict(row) for row in rows],
    }
