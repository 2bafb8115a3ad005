"""PARIS: what it learns from whom, its references, and what it tries."""

import math

import numpy as np
import pytest
from tests.synthetic import make_problem, measured

from mlcd.bench.case import GoalKind
from mlcd.bench.protocol import TrainProtocol
from mlcd.bench.train import learns_from_others, run_one
from mlcd.bench.workloads import case_of, other_jobs, sim_workloads, table_truth
from mlcd.clouds.replay import ReplayInstance, ReplayWorkload
from mlcd.errors import BadInput
from mlcd.goal import Goal, Objective
from mlcd.known.measured_jobs import MeasuredJob
from mlcd.ledger import Ledger
from mlcd.problem import Problem
from mlcd.search.registry import strategy
from mlcd.space import Config
from mlcd.trial.plan import Remaining
from mlcd.trial.trial import History
from mlcd.units import Usd

D = Config.deployment
COUNTS = (1, 2, 4, 8)
TYPES = ("c5.small", "c5.big", "p2.one")


def speed(config: Config, taste: float) -> float:
    """A job with taste 1 likes p2.one, one with 0 likes c5.big."""
    base = {"c5.small": 1.0, "c5.big": 4.0 * (1.5 - taste), "p2.one": 1.0 + 12.0 * taste}[config.instance]
    return float(base * config.nodes**0.8)


PROBLEM = make_problem(goal=Goal(minimize=Objective.TIME), counts=COUNTS, work_samples=1e5)
OTHERS = tuple(
    MeasuredJob(name=f"job-{at}", speeds={c: (3.0 + at) * speed(c, taste) for c in PROBLEM.space})
    for at, taste in enumerate((0.0, 0.1, 0.3, 0.6, 0.8, 1.0))
)


def remaining(problem: Problem, history: History) -> Remaining:
    return Ledger(problem=problem, history=history, spent=Usd(sum(t.usd.micros for t in history))).remaining()


def walk(taste: float, text: str = "paris", others: tuple[MeasuredJob, ...] = OTHERS) -> list[Config]:
    chosen, history = strategy(text, others=others), History()
    while found := chosen.suggest(PROBLEM, history, remaining(PROBLEM, history), 1):
        history = history.with_trials(measured(PROBLEM, found[0].config, 50 * speed(found[0].config, taste)))
    return [trial.config for trial in history]


@pytest.mark.parametrize(("taste", "best"), [(0.05, "c5.big"), (0.9, "p2.one")])
def test_the_fingerprint_finds_the_type_that_such_jobs_like(taste: float, best: str) -> None:
    tried = walk(taste)
    assert tried[0] == D("c5.small", 1), "the cheapest trial"
    assert tried[1].instance == "p2.one", "where jobs differ most"
    assert tried[2].instance == best
    assert len(tried) <= 4, "two references and two predictions"
    assert len(walk(taste, "paris:confirm=1")) <= 3


def test_it_refuses_to_search_without_other_jobs() -> None:
    for others in ((), OTHERS[:2]):
        with pytest.raises(BadInput, match="other jobs"):
            walk(0.5, others=others)


def test_jobs_that_did_not_run_somewhere_do_not_count_there() -> None:
    some = tuple(
        MeasuredJob(name=job.name, speeds={c: s for c, s in job.speeds.items() if c.nodes > 1}) for job in OTHERS
    )
    assert walk(0.9, others=some)[0] == D("c5.small", 2)


def test_a_measured_speed_is_a_number() -> None:
    with pytest.raises(ValueError, match="job: a measured speed"):
        MeasuredJob(name="job", speeds={D("c5.small", 1): math.nan})


# ---- who the others are


def table(name: str) -> ReplayWorkload:
    rng = np.random.default_rng(len(name))
    return ReplayWorkload(
        name=name,
        seconds={D(each, n): float(rng.uniform(500, 5000)) / n for each in "ab" for n in COUNTS},
        instances={each: ReplayInstance(name=each, usd_per_hour=Usd.of("0.1")) for each in "ab"},
    )


def test_the_workload_and_its_kin_are_left_out() -> None:
    names = ["cnn-b16-lr1", "cnn-b32-lr1", "rnn-b16-lr1", "kmeans_huge", "kmeans_bigdata", "lr_huge"]
    tables = [table(name) for name in names]
    problem = table_truth(tables[0], TrainProtocol()).problem
    assert [job.name for job in other_jobs(tables[0], tables, problem)] == names[2:]
    assert [job.name for job in other_jobs(tables[3], tables, problem)] == [*names[:3], "lr_huge"]
    (job, *_) = other_jobs(tables[0], tables, problem)
    assert job.speeds[D("a", 2)] == pytest.approx(1 / (tables[2].seconds[D("a", 2)] or 0.0))


def test_the_simulators_jobs_know_each_other() -> None:
    by_name = {source.name: source for source in sim_workloads()}
    problem = case_of(by_name["bert-mxnet"], TrainProtocol(most_nodes=2), seed=0)[0].problem
    found = {job.name for job in other_jobs(by_name["bert-mxnet"], list(by_name.values()), problem)}
    assert found == set(by_name) - {"bert-mxnet", "bert-tensorflow"}


def test_the_benchmark_gives_it_the_others_and_nobody_else() -> None:
    assert [learns_from_others(text) for text in ("paris:confirm=1", "heterbo", "oracle")] == [True, False, False]
    tables = [table(f"{letter}-job") for letter in "abcde"]
    found = run_one(
        tables[0], TrainProtocol(hours=2.0), kind=GoalKind.FASTEST, strategy_text="paris", seed=0, known=tables
    )
    assert found is not None
    assert found.row.status == "done"
    assert found.row.trials <= 4
