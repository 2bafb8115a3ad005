"""The sources of the benchmark's truths: measured tables, and the simulator's jobs."""

from fnmatch import fnmatchcase
from pathlib import Path

from mlcd.bench.case import TrainTruth
from mlcd.catalog import load_catalog
from mlcd.clouds.provider import Cloud
from mlcd.clouds.replay import ReplayCloud, ReplayWorkload, load_workloads
from mlcd.clouds.sim import PAPER_JOBS, SimCloud
from mlcd.clouds.wrappers import Noisy, NoisyRun
from mlcd.errors import BadInput
from mlcd.goal import Goal, Objective
from mlcd.jobs.resolved_job import blueprint, deployments, replay_space
from mlcd.problem import Problem, TrialPolicy
from mlcd.units import HOUR

EXACT_TRIALS = TrialPolicy(extension=0.0, watchdog_seconds=0.0)
"""The paper's trial times without extension or watchdog: a table's speed is constant and its jobs never hang."""


def table_workloads(folder: Path, pattern: str = "*") -> dict[str, ReplayWorkload]:
    """The workloads of a folder that match. Raises BadInput when none does."""
    found = {name: w for name, w in load_workloads(folder).items() if fnmatchcase(name, pattern)}
    if not found:
        raise BadInput(f"{folder}: no workload matches {pattern!r}")
    return found


def sim_workloads(pattern: str = "*") -> tuple[str, ...]:
    """The simulator's jobs that match. Raises BadInput when none does."""
    found = tuple(name for name in PAPER_JOBS if fnmatchcase(name, pattern))
    if not found:
        raise BadInput(f"no simulated job matches {pattern!r}; allowed: {', '.join(PAPER_JOBS)}")
    return found


def table_truth(workload: ReplayWorkload, hours: float, noise: float) -> TrainTruth:
    """A table scaled so that its fastest training takes `hours`."""
    scaled = workload.scaled(hours)
    configs = tuple(scaled.seconds)
    problem = Problem(
        name=workload.name,
        work_samples=1.0,
        space=replay_space(scaled.instances, configs),
        goal=Goal(minimize=Objective.TIME),
        usd_per_hour=tuple(scaled.instances[c.instance].usd_per_hour * c.nodes for c in configs),
        trial=EXACT_TRIALS,
        noise=noise,
    )
    return TrainTruth(name=workload.name, problem=problem, seconds=tuple(scaled.seconds.values()))


def table_cloud(workload: ReplayWorkload, hours: float, *, noise: float, run_noise: float, seed: int) -> Cloud:
    """The same table as a cloud, with noise on trials (on the final run only in a separate experiment)."""
    cloud: Cloud = Noisy(ReplayCloud(workload.scaled(hours)), sigma=noise, seed=seed)
    return NoisyRun(cloud, sigma=run_noise, seed=seed) if run_noise else cloud


def sim_case(name: str, hours: float, *, noise: float, seed: int) -> tuple[TrainTruth, SimCloud]:
    """A simulated job with its work scaled so that the fastest training takes `hours`; the seed is the cloud's."""
    job = PAPER_JOBS[name]
    instances = load_catalog().select(job.instances, cloud="aws")
    cloud = SimCloud(
        cloud="aws",
        instances={i.name: i for i in instances},
        job=job.job,
        seed=seed,
        noise=noise,
    )
    space = deployments(instances, lambda _: tuple(range(1, job.max_nodes + 1)))
    speeds = [cloud.true_samples_per_second(config) for config in space]
    fastest = max(speed for speed in speeds if speed is not None)
    problem = Problem(
        name=name,
        work_samples=fastest * hours * HOUR,
        space=space,
        goal=Goal(minimize=Objective.TIME),
        usd_per_hour=tuple(cloud.instances[c.instance].usd_per_hour * c.nodes for c in space),
        noise=cloud.noise,
        blueprint=blueprint(job.job, instances),
    )
    seconds = tuple(
        None if speed is None else cloud.startup_seconds(config) + problem.work_samples / speed
        for config, speed in zip(space, speeds, strict=True)
    )
    return TrainTruth(name=name, problem=problem, seconds=seconds), cloud
