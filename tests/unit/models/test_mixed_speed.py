"""The mixture of beliefs: its prior, its weights, and what a trial that goes as expected changes."""

import numpy as np
import pytest
from tests.synthetic import Machine, make_problem, measured, true_trial

from mlcd.catalog import load_catalog
from mlcd.jobs.resolved_job import simulated
from mlcd.models import gp
from mlcd.models.mixed_speed import BELIEFS, Level, as_expected, mixed_model
from mlcd.models.speed import TrendPrior, families, trend
from mlcd.problem import Problem
from mlcd.space import Config
from mlcd.spec import spec_from_mapping
from mlcd.trial.trial import History

D = Config.deployment


def after(problem: Problem, *configs: Config) -> History:
    return History(tuple(true_trial(problem, config) for config in configs))


def test_before_the_first_trial_a_deadline_says_how_long_the_fastest_run_takes() -> None:
    problem = make_problem()
    level = Level(log_seconds=float(np.log(3600.0)), log_usd=None, deviation=0.5)
    model = mixed_model(problem, History(), level=level)
    assert np.exp(model.log_seconds.min(axis=1)) == pytest.approx(np.full(len(BELIEFS), 3600.0))


def test_before_the_first_trial_a_budget_says_what_the_cheapest_run_costs() -> None:
    problem = make_problem()
    level = Level(log_seconds=None, log_usd=float(np.log(7.0)), deviation=0.5)
    model = mixed_model(problem, History(), level=level)
    usd = np.exp(model.log_seconds) * problem.dollars_per_second
    assert usd.min(axis=1) == pytest.approx(np.full(len(BELIEFS), 7.0))


def test_one_belief_is_one_gaussian_process() -> None:
    problem = make_problem()
    history = after(problem, D("c5.small", 1), D("c5.big", 4), D("p2.one", 2))
    model = mixed_model(problem, history, BELIEFS[:1])
    inputs, theta = model.processes[0]
    mean, variance = gp.at(inputs, model.data, theta).predict()
    assert model.weights == pytest.approx([1.0])
    assert model.log_speed[0] == pytest.approx(mean)
    assert model.variance[0] == pytest.approx(variance)


def test_a_belief_weighs_as_much_as_it_predicted() -> None:
    problem = make_problem()
    history = after(problem, D("c5.small", 1), D("c5.small", 16), D("c5.big", 4))
    model = mixed_model(problem, history)
    likelihoods = np.exp([gp.at(inputs, model.data, theta).log_likelihood for inputs, theta in model.processes])
    expected = likelihoods * [belief.weight for belief in BELIEFS]
    assert model.weights == pytest.approx(expected / expected.sum())


def test_a_job_that_does_not_scale_speaks_against_the_common_belief() -> None:
    problem = make_problem()
    flat = History(tuple(measured(problem, D("c5.small", nodes), 10.0) for nodes in (1, 4, 16)))
    scales = History(tuple(measured(problem, D("c5.small", nodes), 10.0 * nodes**0.9) for nodes in (1, 4, 16)))
    common = int(np.argmax([belief.weight for belief in BELIEFS]))
    assert mixed_model(problem, flat).weights[common] < 0.5 * mixed_model(problem, scales).weights[common]


def test_a_trial_that_goes_as_expected_changes_nothing_but_what_is_uncertain() -> None:
    problem = make_problem()
    model = mixed_model(problem, after(problem, D("c5.small", 1)))
    row = problem.space.index[D("p2.one", 8)]
    then = as_expected(model, row, 0.03)
    assert then.log_seconds is model.log_seconds
    assert then.weights is model.weights
    assert (then.variance <= model.variance + 1e-9).all()
    assert (then.variance[:, row] < 0.03**2 + 1e-9).all()


def test_a_trial_can_be_assumed_before_the_first_one() -> None:
    problem = make_problem()
    then = as_expected(mixed_model(problem, History()), 0, 0.03)
    assert (then.variance[:, 0] < 0.03**2 + 1e-9).all()


def test_what_a_trial_is_expected_to_measure_is_the_mixture() -> None:
    problem = make_problem()
    assert mixed_model(problem, History()).expectation(0) is None
    model = mixed_model(problem, after(problem, D("c5.small", 1)))
    row = problem.space.index[D("p2.one", 8)]
    found = model.expectation(row)
    assert found is not None
    draws = np.random.default_rng(0).normal(size=200_000)
    which = np.random.default_rng(1).choice(len(model.weights), size=len(draws), p=model.weights)
    logs = model.log_speed[which, row] + np.sqrt(model.variance[which, row]) * draws
    assert np.log(found.samples_per_second) == pytest.approx(logs.mean(), abs=0.01)
    assert found.deviation == pytest.approx(logs.std(), rel=0.01)


def job_on(*types: str) -> Problem:
    """ResNet-152 on these types of AWS, one to four nodes, as `mlcd train` prepares it."""
    file = {
        "name": "job",
        "resources": {"infra": "sim/aws", "instance_type": list(types)},
        "num_nodes": "1..4",
        "job": {"model": "resnet152", "batch": 256, "samples": 1e6},
        "goal": {"minimize": "cost"},
    }
    return simulated(spec_from_mapping(file), ["aws"], load_catalog(), 0).problem


def test_data_sheets_say_that_an_accelerator_is_faster_than_processors_for_the_same_money() -> None:
    problem = job_on("c5.4xlarge", "g4dn.xlarge")  # $0.68 and $0.53 an hour
    speed = mixed_model(problem, History()).log_speed
    faster = speed[:, problem.space.index[D("g4dn.xlarge", 1)]] - speed[:, problem.space.index[D("c5.4xlarge", 1)]]
    assert (faster > np.log(4)).all()


def test_data_sheets_say_nothing_about_processors_alone() -> None:
    problem = job_on("c5.large", "c5.4xlarge")
    assert problem.space.node_tflops is None
    with_peaks, without = (trend(problem, TrendPrior(peak=peak)).columns.shape[1] for peak in ((0.5, 0.25), None))
    assert with_peaks == without


def test_a_larger_type_of_a_family_is_told_from_a_dearer_family() -> None:
    machines = {
        "m5.large": Machine(usd_per_hour=0.1, speed=1.0),
        "m5.xlarge": Machine(usd_per_hour=0.2, speed=1.0),
        "x1.large": Machine(usd_per_hour=0.8, speed=1.0),
    }
    problem = make_problem(machines=machines, counts=(1, 2))
    small, large, dear = (problem.space.index[Config.deployment(name, 1)] for name in machines)
    family = families(problem)
    assert family[small] == family[large] != family[dear]
    prior = trend(problem, TrendPrior(price=(0.1, 0.1), size=(0.5, 0.1)))
    expected = prior.columns @ prior.means
    assert expected[large] - expected[small] == pytest.approx(0.5)  # twice the price, within the family
    assert expected[dear] - expected[small] == pytest.approx(3 * 0.1)  # eight times the price, of another one
    plain = trend(problem, TrendPrior(price=(0.1, 0.1)))
    expected = plain.columns @ plain.means
    assert expected[large] - expected[small] == pytest.approx(0.1)
