"""The probability that a job fits the memory of a deployment: in order, bounded, and right on the simulator's jobs."""

from dataclasses import replace

import numpy as np
import pytest
from tests.synthetic import failed, measured

from mlcd.catalog import load_catalog
from mlcd.clouds.sim import MODELS, SimCloud, SimJob
from mlcd.goal import Goal, Objective
from mlcd.jobs.resolved_job import deployments
from mlcd.models.footprint import chance_to_fit, too_small
from mlcd.problem import Problem
from mlcd.space import Config
from mlcd.trial.trial import FailureKind, History, Trial

D = Config.deployment


def problem_of(*types: str, nodes: int = 16) -> Problem:
    instances = load_catalog().select(types, cloud="aws")
    space = deployments(instances, lambda _: tuple(range(1, nodes + 1)))
    prices = {i.name: i.usd_per_hour for i in instances}
    return Problem(
        name="job",
        work_samples=1e6,
        space=space,
        goal=Goal(minimize=Objective.COST),
        usd_per_hour=tuple(prices[c.instance] * c.nodes for c in space),
    )


PROBLEM = problem_of("m5.*", "r5.*", "g4dn.*", "g5.*")


def chances(*trials: Trial, parameters: float | None = None) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    found = chance_to_fit(replace(PROBLEM, parameters=parameters), History(trials))
    assert found is not None
    assert ((found >= 0) & (found <= 1)).all()
    return found


def exhausted(config: Config) -> Trial:
    return failed(PROBLEM, config, FailureKind.OUT_OF_MEMORY)


def at(config: Config) -> int:
    return PROBLEM.space.index[config]


def test_nothing_is_known_without_a_failure_or_a_name() -> None:
    assert chance_to_fit(PROBLEM, History()) is None
    assert chance_to_fit(PROBLEM, History((measured(PROBLEM, D("m5.large", 1), 5.0),))) is None
    assert chance_to_fit(replace(PROBLEM, parameters=1e9), History(), use_name=False) is None


def test_more_memory_or_more_workers_never_fit_worse() -> None:
    found = chances(
        exhausted(D("m5.large", 2)), exhausted(D("g4dn.xlarge", 1)), measured(PROBLEM, D("r5.4xlarge", 2), 9.0)
    )
    sizes = ["m5.large", "m5.xlarge", "m5.2xlarge", "m5.4xlarge", "m5.8xlarge"]
    assert (np.diff([found[at(D(name, 2))] for name in sizes]) >= 0).all()
    for name in ("m5.large", "r5.large", "g4dn.xlarge", "g5.12xlarge"):
        assert (np.diff([found[at(D(name, n))] for n in range(1, 17)]) >= -1e-12).all()
    assert found[at(D("r5.4xlarge", 2))] > 0.9
    assert found[at(D("m5.large", 2))] < 0.1


def test_a_failure_on_accelerators_says_something_about_processors_and_the_reverse() -> None:
    before = chances(exhausted(D("m5.large", 1)))
    after = chances(exhausted(D("m5.large", 1)), exhausted(D("r5.12xlarge", 1)))
    assert after[at(D("g4dn.xlarge", 1))] < before[at(D("g4dn.xlarge", 1))] / 2


def test_contradicting_trials_leave_something_to_try() -> None:
    found = chances(exhausted(D("r5.12xlarge", 8)), measured(PROBLEM, D("m5.large", 1), 5.0))
    assert np.isfinite(found).all()


def test_a_large_model_is_not_expected_on_small_workers() -> None:
    found = chances(parameters=8e9)  # 60 to 149 GiB of states
    assert found[at(D("m5.large", 1))] == 0
    assert found[at(D("r5.12xlarge", 1))] > 0.3
    assert chances(parameters=11.7e6)[at(D("m5.large", 1))] > 0.4


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("batch", [64, 512])
def test_what_is_ruled_out_never_fits_in_the_simulator(model: str, batch: int) -> None:
    instances = {i.name: i for i in load_catalog().select(("m5.*", "r5.*", "g4dn.*", "g5.*"), cloud="aws")}
    cloud = SimCloud(cloud="aws", instances=instances, job=SimJob(model=model, batch=batch))
    fits = np.array([cloud.true_samples_per_second(config) is not None for config in PROBLEM.space])
    memory = PROBLEM.space.worker_memory
    assert memory is not None
    for row in np.flatnonzero(~fits).tolist():
        assert not fits[too_small(memory, [row])].any()
