"""What a search and its run may be expected to cost before anything is measured: the real decider, on made-up jobs.

Nobody knows a job's speed before its first trial. So jobs of stated lengths are drawn, and the job's own strategy
searches each of them in simulated time, under the job's own limits and prices.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from mlcd.clouds.replay import ReplayCloud, ReplayWorkload
from mlcd.clouds.wrappers import Noisy
from mlcd.deciders.search import SearchDecider
from mlcd.deciders.training import TrainingDecider
from mlcd.engine import Engine
from mlcd.engine.on_nodes import NodePerformer
from mlcd.jobs.prepared import Prepared
from mlcd.problem import Problem
from mlcd.space import Config, Space
from mlcd.trial.outcome import Status
from mlcd.trial.plan import best, plans
from mlcd.trial.trial import History
from mlcd.units import HOUR, Usd

T = TypeVar("T")
N = TypeVar("N", int, float, Usd)

JOBS = 2
"""Jobs drawn for each length: a range of what may happen, in a second or two."""
MOST_TYPES, MOST_COUNTS = 12, 8
"""Of a larger space, the searches see so many types, evenly by price, and so many node counts of each."""
LENGTHS_SECONDS = (HOUR, 6 * HOUR, 24 * HOUR)
"""Lengths of the best run where neither an earlier run nor a deadline says what is meant."""
DEADLINE_SHARES = (0.2, 0.5)
"""With a deadline, lengths of the best run as shares of it."""
TYPE_SPREAD = 0.5
"""Deviation of the logarithm of speed for the price of a node between types: about what measured tables have
(multicloud and scout: 0.3 to 0.7)."""
DRAG = (0.005, 0.2)
"""Each further node loses between these shares of a node's speed to the exchange, equally likely in magnitude."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The least and the most of all jobs drawn with one length. `finished` of `jobs` found something that fits.

    run_seconds  the length: the best run for the goal, found for free
    """

    run_seconds: float
    jobs: int
    finished: int
    trials: tuple[int, int]
    search_usd: tuple[Usd, Usd]
    search_seconds: tuple[float, float]
    total_usd: tuple[Usd, Usd]
    total_seconds: tuple[float, float]


def expected(prepared: Prepared[Problem]) -> tuple[Expected, ...]:
    """One for each length; empty if the job chooses its batch, or its strategy makes no trials. Spends nothing."""
    problem, decider = prepared.problem, prepared.decider
    if problem.batching is not None or not isinstance(decider, SearchDecider):
        return ()
    deadline = problem.goal.deadline_seconds
    lengths = LENGTHS_SECONDS if deadline is None else tuple(deadline * share for share in DEADLINE_SHARES)
    known = best(problem, plans(problem, History(tuple(each.trial for each in prepared.reused))))
    if known is not None and problem.work_known:
        lengths = (known.seconds,)
    # A table's job is one sample. What trials do is thrown away there, so that this is what the search costs at most.
    plain = replace(_thinned(problem), work_samples=1.0, work_known=True, target=None, keeps_work=False, beside=False)
    found = (_of_length(prepared, decider, plain, seconds) for seconds in lengths)
    return tuple(each for each in found if each is not None)


def _of_length(
    prepared: Prepared[Problem], decider: SearchDecider, problem: Problem, run_seconds: float
) -> Expected | None:
    runs = []
    for number in range(JOBS):
        cloud = Noisy(ReplayCloud(_made_up(problem, run_seconds, number)), sigma=problem.noise, seed=number)
        run = replace(prepared, problem=problem, reused=()).new_run()
        searching = SearchDecider(
            strategy=decider.strategy, aftermath=TrainingDecider(), parallel=decider.parallel, guarded=decider.guarded
        )
        performer = NodePerformer(cloud=cloud, guarded=decider.strategy.guarded)
        runs.append(Engine(run=run, decider=searching, performer=performer).drive())
    done = [run for run in runs if run.status is Status.DONE]
    if not any(run.trials for run in runs):
        return None
    ended = done or runs
    return Expected(
        run_seconds=run_seconds,
        jobs=len(runs),
        finished=len(done),
        trials=_ends([len(run.trials) for run in ended]),
        search_usd=_ends([run.search_usd for run in ended]),
        search_seconds=_ends([run.search_seconds for run in ended]),
        total_usd=_ends([run.total_usd for run in ended]),
        total_seconds=_ends([run.total_seconds for run in ended]),
    )


def _ends(values: Sequence[N]) -> tuple[N, N]:
    return min(values), max(values)


def _thinned(problem: Problem) -> Problem:
    """The problem over at most MOST_TYPES types and MOST_COUNTS node counts of each; without a stretch by spot."""
    by_type: dict[str, list[Config]] = {}
    for config in problem.space:
        by_type.setdefault(config.instance, []).append(config)
    cheapest_first = sorted(by_type, key=lambda name: problem.price(by_type[name][0]).micros / by_type[name][0].nodes)
    kept = {
        config
        for name in _at(cheapest_first, np.linspace(1, len(by_type), min(MOST_TYPES, len(by_type))))
        for config in _counts(by_type[name])
    }
    configs = tuple(config for config in problem.space if config in kept)
    prices = tuple(problem.price(config) for config in configs)
    similar = tuple(problem.similar[problem.space.index[config]] for config in configs) if problem.similar else ()
    space = Space(problem.space.knobs, configs)
    return replace(problem, space=space, usd_per_hour=prices, similar=similar, stretch=())


def _counts(configs: list[Config]) -> list[Config]:
    """At most MOST_COUNTS node counts of one type, its fewest and its most among them, in equal ratios."""
    return _at(sorted(configs, key=lambda config: config.nodes), np.geomspace(1, len(configs), MOST_COUNTS))


def _at(values: Sequence[T], places: NDArray[np.float64]) -> list[T]:
    """The values at these places, counted from 1 and rounded, each once."""
    return [values[at - 1] for at in sorted(set(places.round().astype(int).tolist()))]


def _made_up(problem: Problem, run_seconds: float, number: int) -> ReplayWorkload:
    """A job whose speed on a node follows the node's price, with a factor for each type and each setting.

    It grows with the nodes.
    """
    chance = random.Random(f"expected|{problem.name}|{number}")  # noqa: S311 - a simulation
    drag = math.exp(chance.uniform(math.log(DRAG[0]), math.log(DRAG[1])))
    factors: dict[str, float] = {}
    seconds = []
    for config, price in zip(problem.space, problem.usd_per_hour, strict=True):
        factor = 1.0
        for name in (config.instance, *(f"{knob}={value}" for knob, value in config.settings.items())):
            factor *= factors.setdefault(name, math.exp(chance.gauss(0.0, TYPE_SPREAD)))
        node = price.dollars / config.nodes * factor
        seconds.append((1 + drag * (config.nodes - 1)) / (node * config.nodes))
    dollars = problem.dollars_per_second.tolist()
    row_best = min(range(len(seconds)), key=lambda row: problem.goal.value(seconds[row], seconds[row] * dollars[row]))
    scale = run_seconds / seconds[row_best]
    return ReplayWorkload(
        name=problem.name,
        seconds={config: each * scale for config, each in zip(problem.space, seconds, strict=True)},
        instances={},
    )
