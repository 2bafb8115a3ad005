"""The sources of the benchmark's truths: measured tables, and the simulator's jobs."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from mlcd.bench.case import TrainTruth
from mlcd.bench.protocol import REPORT_SECONDS, START_SECONDS, TrainProtocol, Work
from mlcd.catalog import load_catalog
from mlcd.clouds.chance import generator
from mlcd.clouds.provider import Cloud
from mlcd.clouds.replay import ReplayCloud, ReplayWorkload, load_workloads
from mlcd.clouds.sim import PAPER_JOBS, SimCloud, SimJob
from mlcd.clouds.wrappers import Noisy, NoisyRun, Reporting
from mlcd.errors import BadInput
from mlcd.goal import Goal, Objective
from mlcd.jobs.resolved_job import blueprint, deployments, replay_space
from mlcd.known.measured_jobs import MeasuredJob
from mlcd.problem import Problem, TrialPolicy
from mlcd.space import Config
from mlcd.units import HOUR

EXACT_TRIALS = TrialPolicy(extension=0.0, watchdog_seconds=0.0)
"""The paper's trial times without extension or watchdog: a table's speed is constant and its jobs never hang."""
MOST_DRAWS = 100
"""Sub-spaces drawn in search of one where the workload can run at all."""


def table_workloads(folder: Path, pattern: str = "*") -> dict[str, ReplayWorkload]:
    """The workloads of a folder that match. Raises BadInput when none does."""
    found = {name: w for name, w in load_workloads(folder).items() if fnmatchcase(name, pattern)}
    if not found:
        raise BadInput(f"{folder}: no workload matches {pattern!r}")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class SimWorkload:
    """A job of the simulator, and the deployments it is offered: names, globs or sets of aws, and the most nodes."""

    name: str
    job: SimJob
    instances: tuple[str, ...]
    max_nodes: int


Source = ReplayWorkload | SimWorkload


def sim_workloads(pattern: str = "*") -> tuple[SimWorkload, ...]:
    """The simulator's jobs that match. Raises BadInput when none does."""
    found = tuple(
        SimWorkload(name=name, job=job.job, instances=job.instances, max_nodes=job.max_nodes)
        for name, job in PAPER_JOBS.items()
        if fnmatchcase(name, pattern)
    )
    if not found:
        raise BadInput(f"no simulated job matches {pattern!r}; allowed: {', '.join(PAPER_JOBS)}")
    return found


def case_of(source: Source, protocol: TrainProtocol, *, seed: int) -> tuple[TrainTruth, Cloud]:
    """A workload under a protocol: its truth, and the cloud that runs it."""
    if isinstance(source, SimWorkload):
        return sim_case(source, protocol, seed=seed)
    part = sub_table(source, protocol, seed=seed)
    return table_truth(part, protocol), table_cloud(part, protocol, seed=seed)


def sub_table(workload: ReplayWorkload, protocol: TrainProtocol, *, seed: int) -> ReplayWorkload:
    """The rows of some instance types and node counts. A draw without a row that finished is drawn again."""
    most = protocol.most_nodes or max(config.nodes for config in workload.seconds)
    for names in _drawn_types(tuple(workload.instances), workload.name, protocol, seed):
        rows = {c: s for c, s in workload.seconds.items() if c.instance in names and c.nodes <= most}
        if any(rows.values()):
            kept = {name: workload.instances[name] for name in workload.instances if name in names}
            return replace(workload, seconds=rows, instances=kept)
    raise BadInput(f"workload {workload.name!r}: no drawn sub-space has a configuration that finished")


def _drawn_types(
    names: tuple[str, ...], workload: str, protocol: TrainProtocol, seed: int
) -> Iterator[tuple[str, ...]]:
    """Sets of `protocol.types` of the names, by workload and seed; all names where there are no more."""
    if protocol.types is None or protocol.types >= len(names):
        yield names
        return
    random = generator("types", workload, seed, protocol.types)
    for _ in range(MOST_DRAWS):
        yield tuple(sorted(random.sample(sorted(names), protocol.types)))


def table_truth(workload: ReplayWorkload, protocol: TrainProtocol) -> TrainTruth:
    """A table scaled so that its fastest training takes the protocol's hours."""
    scaled = workload.scaled(protocol.hours)
    configs = tuple(scaled.seconds)
    problem = Problem(
        name=workload.name,
        work_samples=1.0,
        space=replay_space(scaled.instances, configs),
        goal=Goal(minimize=Objective.TIME),
        usd_per_hour=tuple(scaled.instances[c.instance].usd_per_hour * c.nodes for c in configs),
        trial=EXACT_TRIALS if protocol.report_noise is None else TrialPolicy(),
        noise=protocol.noise,
    )
    problem = _under(problem, protocol)
    return TrainTruth(name=workload.name, problem=problem, seconds=tuple(scaled.seconds.values()))


def table_cloud(workload: ReplayWorkload, protocol: TrainProtocol, *, seed: int) -> Cloud:
    """The same table as a cloud, with noise on trials (on the final run only in a separate experiment)."""
    cloud: Cloud = ReplayCloud(workload.scaled(protocol.hours))
    if (sigma := protocol.report_noise) is not None:
        cloud = Reporting(cloud, start_seconds=START_SECONDS, every_seconds=REPORT_SECONDS, sigma=sigma, seed=seed)
    cloud = Noisy(cloud, sigma=protocol.noise, seed=seed)
    if protocol.run_noise:
        cloud = NoisyRun(cloud, sigma=protocol.run_noise, seed=seed)
    return cloud


def sim_case(source: SimWorkload, protocol: TrainProtocol, *, seed: int) -> tuple[TrainTruth, Cloud]:
    """A simulated job with its work scaled so that the fastest training takes the protocol's hours."""
    job, name = source.job, source.name
    offered = load_catalog(refreshed=False).select(source.instances, cloud="aws")
    most = min(source.max_nodes, protocol.most_nodes or source.max_nodes)
    for names in _drawn_types(tuple(i.name for i in offered), name, protocol, seed):
        instances = [i for i in offered if i.name in names]
        cloud = SimCloud(
            cloud="aws", instances={i.name: i for i in instances}, job=job, seed=seed, noise=protocol.noise
        )
        space = deployments(instances, lambda _: tuple(range(1, most + 1)))
        speeds = [cloud.true_samples_per_second(config) for config in space]
        if any(speeds):
            break
    else:
        raise BadInput(f"simulated job {name!r}: no drawn sub-space has a configuration that can run it")
    fastest = max(speed for speed in speeds if speed is not None)
    problem = Problem(
        name=name,
        work_samples=fastest * protocol.hours * HOUR,
        space=space,
        goal=Goal(minimize=Objective.TIME),
        usd_per_hour=tuple(cloud.instances[c.instance].usd_per_hour * c.nodes for c in space),
        noise=cloud.noise,
        blueprint=blueprint(job, instances),
    )
    seconds = tuple(
        None if speed is None else cloud.startup_seconds(config) + problem.work_samples / speed
        for config, speed in zip(space, speeds, strict=True)
    )
    truth = TrainTruth(name=name, problem=_under(problem, protocol), seconds=seconds)
    return truth, cloud


def other_jobs(source: Source, all_sources: Sequence[Source], problem: Problem) -> tuple[MeasuredJob, ...]:
    """The other workloads on the problem's deployments, for a strategy that learnt from them beforehand.

    Left out are the workload itself and its kin, whose names begin alike: the same program on other data (scout), the
    same network with another batch (trimtuner), the same data (multicloud), the same model (the simulator).
    """
    kept = [other for other in all_sources if _family(other.name) != _family(source.name)]
    return tuple(MeasuredJob(name=other.name, speeds=_speeds(other, problem)) for other in kept)


def _family(name: str) -> str:
    return re.split(r"[-_]", name, maxsplit=1)[0]


def _speeds(other: Source, problem: Problem) -> dict[Config, float]:
    """The speed of another workload where it runs."""
    if isinstance(other, ReplayWorkload):
        return {c: 1 / s for c in problem.space if (s := other.seconds.get(c)) is not None}
    names = {config.instance for config in problem.space}
    instances = {i.name: i for i in load_catalog(refreshed=False).select(("*",), cloud="aws") if i.name in names}
    cloud = SimCloud(cloud="aws", instances=instances, job=other.job)
    return {c: speed for c in problem.space if (speed := cloud.true_samples_per_second(c)) is not None}


def _under(problem: Problem, protocol: TrainProtocol) -> Problem:
    """The problem with the protocol's trials and what becomes of their work."""
    trial = problem.trial
    if protocol.trial_seconds is not None:
        trial = replace(trial, seconds=protocol.trial_seconds)
    return replace(
        problem,
        trial=trial,
        keeps_work=protocol.work is Work.KEPT,
        beside=protocol.work is Work.BESIDE,
        restart_seconds=protocol.restart_seconds,
    )
