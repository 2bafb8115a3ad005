"""What the four modes share: the (K, B) grid, the models of its step times, and a plan for every point of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from mlcd.errors import BadInput
from mlcd.goal import Objective
from mlcd.models.parallel import ClusterSetting, ParallelModel, StepTime, choose
from mlcd.models.timed import Steps, foreseen, setting_of, timed
from mlcd.models.tradeoff import knee
from mlcd.problem import Problem
from mlcd.search.strategy import MeasuredStrategy, at_least
from mlcd.space import Config
from mlcd.trial.plan import Plan, Remaining, plans
from mlcd.trial.trial import History, Suggestion


@dataclass(frozen=True, slots=True, kw_only=True)
class ScavengerSettings:
    """Options of every mode. Raises ValueError for a `confirm` below 1."""

    confirm: int = 3
    """After the planned runs, how many more may measure what is predicted to be best. Unmeasured."""

    diverged_share: float = 0.5
    """A batch diverges when the metric of its trial moves away from the target by this share of the distance to it.
    Unmeasured: no batch of the measured trainings diverges."""

    def __post_init__(self) -> None:
        at_least(1, confirm=self.confirm)


DEFAULTS = ScavengerSettings()


@lru_cache(maxsize=64)
def law_of(runs: tuple[StepTime, ...]) -> ParallelModel:
    """The law that predicts these runs best in leave-one-out tests; cached, since a fit is slow."""
    return choose(runs)


def by_type(problem: Problem) -> dict[str, dict[ClusterSetting, Config]]:
    """The grid of each instance type. Raises BadInput if there is no batch to choose."""
    if problem.batching is None:
        raise BadInput("search.strategy: a scavenger strategy also chooses the batch: give batch: [64, 128, ...]")
    grids: dict[str, dict[ClusterSetting, Config]] = {}
    for config in problem.space:
        grids.setdefault(config.instance, {})[setting_of(config)] = config
    return grids


def diverging(problem: Problem, history: History, share: float = DEFAULTS.diverged_share) -> frozenset[float]:
    """The batches whose trials moved the metric away from the target: their steps to the target are unknown."""
    if problem.target is None:
        return frozenset()
    sign = 1.0 if problem.target.higher else -1.0
    found = set()
    for trial in history.measured:
        seen = [sign * point.metric for point in trial.learned]
        missing = sign * problem.target.value - max(seen) if seen else 0.0
        if len(seen) >= 3 and seen[0] - seen[-1] > share * max(missing, 1e-9) and seen[-1] <= min(seen):
            found.add(float(trial.config["batch"]))
    return frozenset(found)


def predicted(problem: Problem, history: History, config: Config, steps: Steps) -> Plan:
    """The plan of a configuration: measured, or predicted by the model of its step time."""
    own = [t for t in history.measured if t.config == config]
    if own:
        return Plan.of(problem, own[-1])
    return foreseen(problem, history, config, steps)


def chosen(problem: Problem, options: Sequence[Plan]) -> Plan | None:
    """The best plan for the goal, ties to the cheaper; the knee is Kneedle's over all of them (algorithms: 3.2)."""
    if options and problem.goal.minimize is Objective.KNEE:
        return options[knee([(plan.seconds, plan.usd.dollars) for plan in options])]
    return min(options, key=lambda plan: (plan.value(problem), plan.usd, plan.seconds), default=None)


@dataclass(frozen=True, kw_only=True)
class GridStrategy(MeasuredStrategy):
    """A mode: which runs come first, and how step times are modelled after them."""

    settings: ScavengerSettings = DEFAULTS

    def planned(
        self, problem: Problem, history: History, settings: Sequence[ClusterSetting]
    ) -> tuple[ClusterSetting, ...]:
        """The runs of one instance type that this mode asks for before it predicts."""
        raise NotImplementedError

    def steps(self, runs: tuple[StepTime, ...]) -> Steps | None:
        """The model of step times after these runs; None with too few."""
        return law_of(runs) if len(runs) >= 2 else None

    def suggest(self, problem: Problem, history: History, remaining: Remaining, count: int) -> tuple[Suggestion, ...]:
        """The planned runs, the cheapest first; then what is predicted to be best, until that was measured."""
        wanted = self._design(problem, history, remaining)
        if wanted:
            return wanted[:count]
        if self._confirmed(problem, history) >= self.settings.confirm:
            return ()
        aim = self._aim(
            problem, history, remaining, lambda config: bool(remaining.allowed[problem.space.index[config]])
        )
        if aim is None or aim.config in history.tried:
            return ()
        reason = f"predicted best: {aim.seconds:,.0f} s and {aim.usd} for the rest"
        return (Suggestion(config=aim.config, reason=reason),)

    def recommend(self, problem: Problem, history: History, remaining: Remaining) -> Plan | None:
        """Of the measured configurations that fit, the goal's best; none whose batch diverges."""
        bad = diverging(problem, history, self.settings.diverged_share)
        fitting = [p for p in plans(problem, history) if remaining.fits(p) and float(p.config["batch"]) not in bad]
        return chosen(problem, fitting)

    def prospects(self, problem: Problem, history: History) -> tuple[Plan, ...]:
        """A plan for every configuration."""
        found: list[Plan] = []
        bad = diverging(problem, history, self.settings.diverged_share)
        for instance, grid in by_type(problem).items():
            model = self.steps(timed(history, instance))
            if model is not None:
                found += [predicted(problem, history, c, model) for s, c in grid.items() if s.batch not in bad]
        return tuple(found)

    def ending(self, problem: Problem, history: History, remaining: Remaining) -> str:
        """See Strategy."""
        if len(history.tried) < len(problem.space) and any(
            not remaining.allowed[problem.space.index[config]] for config in problem.space
        ):
            return "what is still worth a trial does not fit in what remains"
        unseen = "" if problem.batching is None or problem.batching.noise_scale else "; the job reports no SGD noise"
        return f"the configuration predicted to be best was measured{unseen}"

    def _design(self, problem: Problem, history: History, remaining: Remaining) -> tuple[Suggestion, ...]:
        found = []
        for grid in by_type(problem).values():
            planned = self.planned(problem, history, tuple(grid))
            open_runs = [grid[s] for s in planned if grid[s] not in history.tried]
            found += [c for c in open_runs if remaining.allowed[problem.space.index[c]]]
        found.sort(key=lambda c: (problem.price(c), c.nodes, float(c["batch"])))
        return tuple(Suggestion(config=c, reason=f"one of the runs that {self.name} starts with") for c in found)

    def _confirmed(self, problem: Problem, history: History) -> int:
        """Runs so far beyond the number in the design."""
        grids = by_type(problem).values()
        return len(history.tried) - sum(len(self.planned(problem, history, tuple(grid))) for grid in grids)

    def _aim(
        self, problem: Problem, history: History, remaining: Remaining, allowed: Callable[[Config], bool]
    ) -> Plan | None:
        options = [p for p in self.prospects(problem, history) if p.config in history.tried or allowed(p.config)]
        fitting = [p for p in options if remaining.fits(p)]
        return chosen(problem, fitting or options)
