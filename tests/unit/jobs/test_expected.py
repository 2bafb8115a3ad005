"""What a dry run expects: the real decider on made-up jobs of stated lengths."""

from dataclasses import replace

import pytest

from mlcd.jobs.expected import JOBS, LENGTHS_SECONDS, MOST_COUNTS, MOST_TYPES, _made_up, _thinned, expected
from mlcd.jobs.prepared import Prepared
from mlcd.jobs.train import prepare
from mlcd.problem import Problem
from mlcd.spec import parse_train
from mlcd.units import HOUR

JOB = """
name: j
resources: {{infra: sim/aws, instance_type: [{types}]}}
num_nodes: 1..{nodes}
job: {{model: resnet152, samples: 1e6}}
goal: {{{goal}}}
search: {{max_trials: 5{search}}}
"""


def job(
    goal: str = "minimize: cost", types: str = "c5.xlarge, c5.4xlarge", nodes: int = 3, search: str = ""
) -> Prepared[Problem]:
    return prepare(parse_train(JOB.format(goal=goal, types=types, nodes=nodes, search=search)))


def test_each_length_has_a_search_and_a_run_on_top_of_it() -> None:
    found = expected(job())
    assert [each.run_seconds for each in found] == list(LENGTHS_SECONDS)
    for each in found:
        assert (each.jobs, each.finished) == (JOBS, JOBS)
        assert 1 <= each.trials[0] <= each.trials[1] <= 5
        assert each.search_usd[0] < each.total_usd[0]
        assert each.search_seconds[0] < each.total_seconds[0]
    assert found[0].total_usd[0] < found[-1].total_usd[0]


def test_the_run_is_never_shorter_than_the_length_that_it_stands_for() -> None:
    for each in expected(job("minimize: time")):
        assert each.total_seconds[0] >= (each.run_seconds + each.search_seconds[0]) * (1 - 1e-9)


def test_limits_count_and_a_deadline_gives_the_lengths() -> None:
    first, second = expected(job("minimize: cost, deadline: 10h"))
    assert (first.run_seconds, second.run_seconds) == (2 * HOUR, 5 * HOUR)
    assert first.total_seconds[1] <= 10 * HOUR
    assert [each.finished for each in expected(job("minimize: time, budget: 1 USD"))][-1] == 0


def test_a_strategy_without_trials_has_no_search_to_expect() -> None:
    assert expected(job(search=", strategy: paleo")) == ()


@pytest.mark.parametrize(("types", "nodes"), [("aws-62", 50), ("c5.xlarge", 2)])
def test_a_large_space_is_thinned_and_keeps_its_ends(types: str, nodes: int) -> None:
    problem = job(types=types, nodes=nodes).problem
    thin = _thinned(replace(problem, similar=tuple(float(n) for n in problem.nodes)))
    assert thin.similar == tuple(float(n) for n in thin.nodes)
    names = {config.instance for config in thin.space}
    assert len(names) == min(MOST_TYPES, len({config.instance for config in problem.space}))
    for name in names:
        counts = [config.nodes for config in thin.space if config.instance == name]
        assert (min(counts), max(counts)) == (1, nodes)
        assert len(counts) <= MOST_COUNTS
    assert all(thin.price(config) == problem.price(config) for config in thin.space)


def test_the_best_run_of_a_made_up_job_has_the_length() -> None:
    problem = job().problem
    workload = _made_up(problem, 6 * HOUR, 0)
    costs = [problem.price(config).dollars * (workload.seconds[config] or 0.0) for config in problem.space]
    best = problem.space.configs[costs.index(min(costs))]
    assert workload.seconds[best] == pytest.approx(6 * HOUR)
    assert workload.seconds != _made_up(problem, 6 * HOUR, 1).seconds
