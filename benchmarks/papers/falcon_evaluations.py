"""The seven evaluations of Falcon's paper, each as a table and, where it helps, a picture.

The paper's figures have no numbers, so its statements are quoted in words next to our numbers. All figures of one
evaluation come from the same searches: every strategy, every target, every seed, up to 30 trials each.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean

import numpy as np

from mlcd.bench.serve.case import Bed, Case, Walk, searcher, walk
from mlcd.bench.tasks import run_tasks
from mlcd.errors import BadInput
from mlcd.space import Config
from papers.falcon_pictures import cold_start_picture, path_picture, sweep_picture

STRATEGIES = (
    "falcon",
    "falcon-transfer",
    "morphling",
    "morphling:learns=latency",
    "vesta",
    "vesta:learns=latency",
    "ernest",
    "heterbo",
    "source-mean",
    "random",
)
"""The strategies that the record compares; Falcon's own first."""
EVALUATED_MS = 150.0
"""A limit under which each of the 12 targets can be served in the simulated space."""
CHECKPOINTS = (6, 15, 30)
"""Trials; at 15 minutes each 1.5 h, 3 h 45 min and 7.5 h."""
THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
CUTOFFS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
GOOD = 0.85
"""A configuration is in a good region if its value is at least this share of the best."""
POOR = 0.1
"""A poor choice: better than this share of the configurations that keep the latency limit."""
APPLICATIONS = {"resnet-101": "image classification", "bert-large": "language", "transformer": "translation"}
"""Targets that represent three tasks of MLPerf's inference benchmark."""

Cell = str | int | float
Walks = Mapping[tuple[str, str], tuple["Timed", ...]]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The searches to make: `strategies` with Falcon's own first; evaluations 2 and 4 compare it with `rival`."""

    bed: Bed
    slo_ms: float
    strategies: tuple[str, ...]
    rival: str = "morphling"
    seeds: int = 3
    first_seed: int = 0
    noise: float = 0.01
    jobs: int = 1

    @property
    def own(self) -> str:
        """The strategy that is evaluated."""
        return self.strategies[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A search, and the strategy's own computing time in seconds."""

    walk: Walk
    own_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One of the seven. `paper` is the paper's statement; `picture` an SVG, or empty."""

    number: int
    title: str
    paper: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    picture: str = ""


def evaluate(setting: Setting, numbers: Sequence[int]) -> list[Evaluation]:
    """The evaluations with these numbers, in order. Raises BadInput for an unknown number."""
    unknown = [number for number in numbers if number not in _EVALUATIONS]
    if unknown:
        raise BadInput(f"--figures: there is no evaluation {unknown[0]}; allowed: 1 to {max(_EVALUATIONS)}")
    if not setting.bed.has_operators:
        raise BadInput("--figures: Falcon looks at operators, and these tables have none")
    needed = dict.fromkeys(text for number in numbers for text in _needed(setting, number))
    made = search_all(setting, tuple(needed))
    return [_EVALUATIONS[number](setting, made) for number in sorted(set(numbers))]


def search_all(setting: Setting, texts: Sequence[str]) -> Walks:
    """Every search: (strategy, target) -> one per seed. Skips a target that nothing serves within the limit."""
    limit = setting.slo_ms / 1000
    names = [n for n in setting.bed.targets if setting.bed.known.throughput(setting.bed.model(n), limit).max() > 0]
    if not names:
        raise BadInput(f"--slo: nothing serves any of these models within {setting.slo_ms:g} ms")
    tasks = [(text, name) for text in texts for name in names]
    found = run_tasks(_searches, [(setting, *task) for task in tasks], jobs=setting.jobs)
    return dict(zip(tasks, found, strict=True))


def _needed(setting: Setting, number: int) -> tuple[str, ...]:
    if number in (2, 4):
        return tuple(dict.fromkeys((*setting.strategies[:2], setting.rival, f"{setting.rival}:learns=latency")))
    sweeps = {5: ("threshold", THRESHOLDS), 6: ("cutoff", CUTOFFS)}
    if number in sweeps:
        option, values = sweeps[number]
        return tuple(f"{setting.own}:{option}={value:g}" for value in values)
    return setting.strategies


def _searches(setting: Setting, text: str, name: str) -> tuple[Timed, ...]:
    case, sources = _case(setting, name), setting.bed.sources(name)
    found = []
    for seed in range(setting.first_seed, setting.first_seed + setting.seeds):
        began = time.process_time()
        made = walk(case, searcher(text, case, sources, seed=seed), seed=seed)
        found.append(Timed(walk=made, own_seconds=time.process_time() - began))
    return tuple(found)


def _case(setting: Setting, name: str) -> Case:
    found = Case.of(setting.bed, name, setting.slo_ms / 1000, noise=setting.noise, max_trials=max(CHECKPOINTS))
    if found is None:
        raise BadInput(f"--slo: nothing serves {name} within {setting.slo_ms:g} ms")
    return found


def _targets(made: Walks) -> list[str]:
    return list(dict.fromkeys(name for _, name in made))


def _accuracy(made: Walks, text: str, name: str, trials: int) -> float:
    return fmean(timed.walk.accuracy_after(trials) for timed in made[text, name])


def _mean(made: Walks, text: str, trials: int) -> float:
    return fmean(_accuracy(made, text, name, trials) for name in _targets(made))


def _to_95(made: Walks, text: str, name: str) -> float:
    """Trials to 95%; a search that did not reach it counts as one more than the maximum."""
    return fmean(timed.walk.trials_to(0.95) or max(CHECKPOINTS) + 1 for timed in made[text, name])


def _origin(setting: Setting) -> str:
    word = "SIMULATED" if setting.bed.known.simulated else "REPLAYED"
    return f"{word}: {setting.bed.name}, latency limit {setting.slo_ms:g} ms"


def _cold_start(setting: Setting, made: Walks) -> Evaluation:
    names = _targets(made)
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            text,
            *(_mean(made, text, trials) for trials in (1, *CHECKPOINTS)),
            min(_accuracy(made, text, name, CHECKPOINTS[0]) for name in names),
            fmean(_to_95(made, text, name) for name in names),
        )
        for text in setting.strategies
    )
    curves = {text: [_mean(made, text, t) for t in range(1, max(CHECKPOINTS) + 1)] for text in setting.strategies}
    return Evaluation(
        number=1,
        title="Alleviating the cold start: search accuracy after 6, 15 and 30 trials",
        paper="Falcon is nearest to the optimum at every count, and its lead is largest at 6 trials.",
        columns=("strategy", "after 1", "after 6", "after 15", "after 30", "worst model at 6", "trials to 95%"),
        rows=rows,
        note=f"{len(names)} unseen models, {setting.seeds} seeds; a search that misses 95% counts as 31 trials.",
        picture=cold_start_picture(curves, _origin(setting)),
    )


def _against_rival(setting: Setting, made: Walks) -> Evaluation:
    hours = setting.bed.trial_seconds / 3600
    texts = _needed(setting, 2)
    rows: list[tuple[Cell, ...]] = []
    for name in _targets(made):
        trials = [_to_95(made, text, name) for text in texts]
        saved = 1 - trials[0] / trials[texts.index(setting.rival)]
        rows.append((name, *(n * hours for n in trials), f"{saved:.0%}"))
    total = [fmean(_to_95(made, text, name) for name in _targets(made)) for text in texts]
    saved = 1 - total[0] / total[texts.index(setting.rival)]
    rows.append(("mean", *(n * hours for n in total), f"{saved:.0%}"))
    own = {text: fmean(_own_seconds(made, text, name) for name in _targets(made)) for text in texts}
    spent = ", ".join(f"{text} {seconds * 1000:.0f} ms" for text, seconds in own.items())
    return Evaluation(
        number=2,
        title=f"End-to-end search time against {setting.rival}: hours until 95% of the best",
        paper="Falcon takes up to 80% less search time than Morphling.",
        columns=("model", *texts, f"{setting.own} takes less than {setting.rival} by"),
        rows=tuple(rows),
        note=f"A trial takes {setting.bed.trial_seconds / 60:g} min. Deciding on one takes, on average: {spent}.",
    )


def _own_seconds(made: Walks, text: str, name: str) -> float:
    """Seconds of one decision; excludes the first search for a model, which also does the learning in advance."""
    counted = made[text, name][1:] or made[text, name]
    return sum(t.own_seconds for t in counted) / max(sum(len(t.walk.configs) for t in counted), 1)


def _model_by_model(setting: Setting, made: Walks) -> Evaluation:
    names = _targets(made)
    found = {
        (n, name): [_accuracy(made, text, name, n) for text in setting.strategies]
        for n in CHECKPOINTS
        for name in names
    }
    rows: tuple[tuple[Cell, ...], ...] = tuple((name, n, *values) for (n, name), values in found.items())
    wins = {n: sum(found[n, name][0] >= max(found[n, name]) - 0.005 for name in names) for n in CHECKPOINTS}
    told = ", ".join(f"{won} of {len(names)} after {n}" for n, won in wins.items())
    return Evaluation(
        number=3,
        title="Model by model: requests per dollar as a share of the best",
        paper="Falcon is best or near the best for each of the 12 models after 6, 15 and 30 trials.",
        columns=("model", "trials", *setting.strategies),
        rows=rows,
        note=f"{setting.own} is best or within 0.005 of it for {told} trials.",
    )


def _good_regions(setting: Setting, made: Walks) -> Evaluation:
    texts = _needed(setting, 4)
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (text, *(fmean(_in_good_region(setting, made, text, name, n) for name in _targets(made)) for n in (3, 6, 15)))
        for text in texts
    )
    shown = next((name for name in APPLICATIONS if (texts[0], name) in made), _targets(made)[0])
    case = _case(setting, shown)
    paths = {text: [case.accuracy(config) for config in made[text, shown][0].walk.configs[:15]] for text in texts}
    return Evaluation(
        number=4,
        title="Searching in good regions: the share of trials there",
        paper="Falcon's path enters the good region at once and stays; others wander.",
        columns=("strategy", "of the first 3", "of the first 6", "of the first 15"),
        rows=rows,
        note=f"Good: worth at least {GOOD:.0%} of the best, limit kept. A search that ended counts the trials it made. "
        f"The picture shows the paths for {shown}.",
        picture=path_picture(paths, shown, GOOD, _origin(setting)),
    )


def _in_good_region(setting: Setting, made: Walks, text: str, name: str, trials: int) -> float:
    case = _case(setting, name)
    return fmean(
        fmean(float(case.accuracy(config) >= GOOD) for config in timed.walk.configs[:trials])
        for timed in made[text, name]
    )


def _sweep(setting: Setting, made: Walks, number: int) -> Evaluation:
    option, values = {5: ("threshold", THRESHOLDS), 6: ("cutoff", CUTOFFS)}[number]
    texts = _needed(setting, number)
    names = _targets(made)
    rows = tuple(
        (
            value,
            *(_mean(made, text, n) for n in (3, 6, 15)),
            fmean(_to_95(made, text, name) for name in names),
            fmean(len(timed.walk.configs) for name in names for timed in made[text, name]),
        )
        for value, text in zip(values, texts, strict=True)
    )
    points = {
        f"after {n}": [(value, _mean(made, t, n)) for value, t in zip(values, texts, strict=True)] for n in (3, 6)
    }
    what = {
        5: ("The threshold of key operators", "A threshold in the middle balances accuracy against overhead."),
        6: ("The cut-off of pruning", "A cut-off in the middle balances accuracy against overhead."),
    }[number]
    return Evaluation(
        number=number,
        title=f"{what[0]}: accuracy and trials",
        paper=what[1],
        columns=(option, "after 3", "after 6", "after 15", "trials to 95%", "trials made"),
        rows=rows,
        picture=sweep_picture(points, option, _origin(setting)),
    )


def _benefits(setting: Setting, made: Walks) -> Evaluation:
    rows: list[tuple[Cell, ...]] = []
    known = setting.bed.known
    shown = [name for name in APPLICATIONS if (setting.own, name) in made] or _targets(made)[:3]
    for name in shown:
        case = _case(setting, name)
        speeds = known.throughput(case.target, setting.slo_ms / 1000)[case.rows]
        kept = np.flatnonzero(case.values > 0)
        poor = kept[np.argsort(case.values[kept])[int(len(kept) * POOR)]]
        best = int(case.values.argmax())
        chosen = case.problem.space.index[_choice(case, made[setting.own, name][0].walk)]
        label = APPLICATIONS.get(name, name)
        for what, row in (("exhaustive best", best), (f"{setting.own}, 6 trials", chosen), ("poor choice", poor)):
            worth = float(case.values[row])
            rows.append(
                (
                    f"{name} ({label})",
                    what,
                    str(case.problem.space.configs[row]),
                    float(speeds[row]),
                    f"${1e6 / worth:.3f}" if worth else "none tried kept the limit",
                    float(speeds[row] / speeds[poor]),
                    f"{1 - case.values[poor] / worth:.0%}" if worth else "-",
                )
            )
    return Evaluation(
        number=7,
        title="Practical benefit for three applications",
        paper="Up to 8 times the performance and over 60% less money than a poor configuration; Falcon's choice is the "
        "optimal one or nearly so.",
        columns=("model", "choice", "configuration", "requests/s", "1 M requests", "x the poor's speed", "money saved"),
        rows=tuple(rows),
        note=f"Poor: better than {POOR:.0%} of the configurations that keep the limit. Seed {setting.first_seed}.",
    )


def _choice(case: Case, made: Walk) -> Config:
    """The choice after six trials: the tried configuration whose true value gives the accuracy at that point."""
    wanted = made.accuracy_after(CHECKPOINTS[0])
    return min(made.configs[: CHECKPOINTS[0]], key=lambda config: abs(case.accuracy(config) - wanted))


_EVALUATIONS: Mapping[int, Callable[[Setting, Walks], Evaluation]] = {
    1: _cold_start,
    2: _against_rival,
    3: _model_by_model,
    4: _good_regions,
    5: lambda setting, made: _sweep(setting, made, 5),
    6: lambda setting, made: _sweep(setting, made, 6),
    7: _benefits,
}


def as_json(setting: Setting, found: Sequence[Evaluation]) -> dict[str, object]:
    """For programs: the setting and every evaluation, without pictures."""
    kept = [{key: value for key, value in asdict(one).items() if key != "picture"} for one in found]
    return {
        "table": setting.bed.name,
        "source": setting.bed.known.source,
        "simulated": setting.bed.known.simulated,
        "slo_ms": setting.slo_ms,
        "seeds": setting.seeds,
        "first_seed": setting.first_seed,
        "noise": setting.noise,
        "evaluations": kept,
    }
