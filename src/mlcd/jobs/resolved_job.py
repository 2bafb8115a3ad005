"""Resolve where a job runs: names become machines, prices and a problem to search."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mlcd.catalog import Catalog, Instance
from mlcd.clouds.provider import Cloud
from mlcd.clouds.replay import ReplayCloud, ReplayInstance, ReplayWorkload, load_workloads
from mlcd.clouds.sim import ALIASES, MODELS, REHEARSALS, SimCloud, SimJob, nearest_model
from mlcd.errors import nearest
from mlcd.jobs.choice import TypeOffer, check_prices, listed, measured, offer
from mlcd.jobs.gpus_of_node import with_gpus
from mlcd.jobs.markets import with_market
from mlcd.jobs.moves import ignored_note, with_moves
from mlcd.jobs.work import RESTART_SECONDS, with_work
from mlcd.known.published import published_parameters
from mlcd.problem import Blueprint, Problem, TrialPolicy
from mlcd.space import Config, Knob, Space, Workers
from mlcd.space.placed import placed_name, plain_name
from mlcd.spec import TrainSpec
from mlcd.units import Usd

FLOPS_PER_VCPU = 40e9
"""Peak fp32 of a vCPU (half a core, 8-wide fused multiply-add at 2.5 GHz): data-sheet arithmetic, for paleo only."""

CLOUD_TRIAL = TrialPolicy()
"""Ten minutes, as in the paper, on machines that take minutes to start."""

REAL_SLOWDOWN = 0.1
"""Real trainings may be this much slower than their trials and must still fit: on the minicloud, where no training was
disturbed on purpose, the median of 36 took 6 to 10% longer than predicted (benchmarks/final_speed.py --report).
A simulated training has exactly the mean speed of its trials."""
DEFAULT_NOISE = 0.03
"""Relative deviation between two runs of one configuration, if the job states none."""


@dataclass(frozen=True, kw_only=True)
class ResolvedJob:
    """A problem, the cloud that answers it, and what the receipt compares the answer with.

    notes    which of the job's types are excluded, and why
    charged  whether somebody is charged for what runs there
    """

    problem: Problem
    cloud: Cloud
    naive: tuple[tuple[str, Config], ...]
    notes: tuple[str, ...] = ()
    charged: bool = False


def offered(spec: TrainSpec, clouds: Sequence[str], catalog: Catalog) -> Problem:
    """The types of clouds in the catalog with their prices; any caller may run the trials."""
    chosen = _as_asked(spec, clouds, catalog)
    problem = with_market(spec, _problem_of(spec, chosen), chosen.instances, _prices(spec, chosen))[0]
    return with_moves(spec, problem)[0]


def simulated(spec: TrainSpec, names: Sequence[str], catalog: Catalog, seed: int) -> ResolvedJob:
    """A job on `sim/NAME`, or on several of them. A name is a cloud, or CLOUD/HOW where it refuses every order."""
    work = spec.job
    parts = [name.partition("/") for name in names]
    clouds = [cloud for cloud, _, _ in parts]
    refusing = {cloud: REHEARSALS[how] for cloud, _, how in parts if how}
    model = _known_model(spec)
    chosen = _as_asked(spec, clouds, catalog)
    problem, remarks = with_market(spec, _problem_of(spec, chosen), chosen.instances, _prices(spec, chosen))
    _check_batch(spec, problem)
    problem, moved = with_moves(spec, problem)
    instances = {i.name: replace(i, name=plain_name(i.name)) for i in chosen.instances}
    job = SimJob(model=model, batch=work.batch, topology=work.topology)
    use_spot = spec.resources.only_spot
    cloud = SimCloud(
        cloud=",".join(names),
        instances=instances,
        job=job,
        seed=seed,
        use_spot=use_spot,
        noise=problem.noise,
        refusing=refusing,
        moves=problem.moves,
    )
    stretch = tuple(cloud.stretch(config) for config in problem.space) if use_spot else ()
    problem = replace(problem, noise=cloud.noise, blueprint=blueprint(job, chosen.instances), stretch=stretch)
    restart_seconds = statistics.median(cloud.startup_seconds(config) for config in problem.space)
    return ResolvedJob(
        problem=with_work(spec, problem, restart_seconds=restart_seconds, simulated=True),
        cloud=cloud,
        naive=naive_choices(problem.space, _prices(spec, chosen), _popular(catalog, clouds)),
        notes=(*chosen.notes, *remarks, *moved),
    )


def _as_asked(spec: TrainSpec, clouds: Sequence[str], catalog: Catalog) -> TypeOffer:
    """The types that the job may use, with its numbers of GPUs and at its own prices. Raises SpecError."""
    infra, wanted = spec.resources.infra, spec.resources
    known = ((each.name, cloud) for cloud in clouds for each in catalog.select(("*",), cloud=cloud))
    check_prices(spec, [placed_name(name, cloud) if len(clouds) > 1 else name for name, cloud in known])
    chosen = offer(spec, clouds, catalog)
    notes = list(chosen.notes)
    kept = with_gpus(spec, chosen.instances, infra, notes)
    given = (("region", wanted.region), ("zone", wanted.zone), ("image_id", wanted.image_id))
    if ignored := [f"resources.{name}" for name, value in given if value]:
        are = "is" if len(ignored) == 1 else "are"
        notes.append(f"{infra} has one region and no images: {' and '.join(ignored)} {are} ignored")
    return replace(chosen, instances=tuple(_at_own_price(spec, each) for each in kept), notes=tuple(notes))


def _at_own_price(spec: TrainSpec, instance: Instance) -> Instance:
    """The type at the price that the job gives, if it gives one."""
    prices = spec.resources.prices
    own = prices.get(instance.name) or prices.get(plain_name(instance.name))
    if own is None:
        return instance
    return replace(instance, spot_usd_per_hour=own) if spec.resources.only_spot else replace(instance, usd_per_hour=own)


def _popular(catalog: Catalog, clouds: Sequence[str]) -> tuple[str, ...]:
    """The types that people take by default, by the names that they have in the space."""
    usual = ((name, cloud) for cloud in clouds for name in catalog.popular.get(cloud, ()))
    return tuple(placed_name(name, cloud) if len(clouds) > 1 else name for name, cloud in usual)


def replayed(spec: TrainSpec, folder: str, catalog: Catalog) -> ResolvedJob:
    """A job on `replay/FOLDER`: the whole job is one sample of work."""
    refuse_batches(spec)
    path = spec.path("resources.infra", folder)
    workload = _workload(spec, path)
    if spec.job.hours is not None:
        workload = workload.scaled(spec.job.hours)
    chosen = measured(spec, workload, catalog)
    cloud = ReplayCloud(workload, folder=path.resolve().name)
    space = replay_space(chosen.instances, chosen.configs)
    prices = {name: instance.usd_per_hour for name, instance in chosen.instances.items()}
    noise = cloud.noise if spec.search.noise is None else spec.search.noise
    popular = tuple(name for names in catalog.popular.values() for name in names)
    problem = problem_of(spec, space, prices, work_samples=1.0, noise=noise)
    problem = with_work(spec, problem, restart_seconds=RESTART_SECONDS, simulated=True)
    notes = (*chosen.notes, *ignored_note(spec, "a measured table"))
    return ResolvedJob(problem=problem, cloud=cloud, naive=naive_choices(space, prices, popular), notes=notes)


def blueprint(job: SimJob, instances: Sequence[Instance]) -> Blueprint:
    """Data-sheet figures of a network and of machines, for models that measure nothing."""
    return Blueprint(
        flops_per_sample=job.spec.gflop_per_sample * 1e9,
        parameter_bytes=job.spec.parameters * 4,
        batch=job.batch,
        machines={i.name: (_peak_flops(i), i.network_gbps * 1e9 / 8) for i in instances},
    )


def deployments(instances: Sequence[Instance], counts: Callable[[str], tuple[int, ...]]) -> Space:
    """Every type with each of its node counts."""
    return _space(
        tuple(Config.deployment(i.name, n) for i in instances for n in counts(i.name)),
        features={i.name: i.features for i in instances},
        memory_gib={i.name: i.memory_gib for i in instances},
        kinds={i.name: i.accelerator or "cpu" for i in instances},
        workers={i.name: _workers(i) for i in instances},
    )


def _workers(instance: Instance) -> Workers:
    if instance.accelerators and instance.accelerator_memory_gib:
        name = instance.accelerator or "accelerator"
        return Workers(
            count=instance.accelerators,
            memory_gib=instance.accelerator_memory_gib,
            accelerator=name,
            tflops=instance.accelerator_tflops,
            network_gbps=instance.network_gbps,
        )
    tflops = _peak_flops(instance) / 1e12
    return Workers(memory_gib=instance.memory_gib, tflops=tflops, network_gbps=instance.network_gbps)


def replay_space(instances: Mapping[str, ReplayInstance], configs: tuple[Config, ...]) -> Space:
    """The space of a measured table."""
    memory = {name: instance.memory_gib for name, instance in instances.items()}
    known = {name: size for name, size in memory.items() if size is not None}
    return _space(
        configs,
        features={name: instance.features for name, instance in instances.items()},
        memory_gib=known if len(known) == len(memory) else None,
    )


def _space(
    configs: tuple[Config, ...],
    *,
    features: Mapping[str, tuple[float, ...]],
    memory_gib: Mapping[str, float] | None,
    kinds: Mapping[str, str] | None = None,
    workers: Mapping[str, Workers] | None = None,
) -> Space:
    sizes = None if memory_gib is None else {name: math.log2(size) for name, size in memory_gib.items()}
    instance = Knob(
        name="instance", values=tuple(features), features=features, log2_sizes=sizes, kinds=kinds, workers=workers
    )
    return Space((instance, Knob(name="nodes", values=tuple(sorted({c.nodes for c in configs})))), configs)


def _problem_of(spec: TrainSpec, chosen: TypeOffer) -> Problem:
    work = spec.job
    refuse_batches(spec)
    for field, value in (("workload", work.workload), ("hours", work.hours)):
        if value is not None:
            problem = "is only for measured tables, on replay/FOLDER"
            raise spec.error(f"job.{field}", problem, value=value, allowed="job.samples and job.epochs")
    if work.samples is None:
        raise spec.error("job.samples", "the number of samples is missing", allowed="a number more than 0")
    return problem_of(
        spec,
        deployments(chosen.instances, chosen.counts.for_instance),
        _prices(spec, chosen),
        work_samples=work.all_samples or work.samples,
        noise=DEFAULT_NOISE if spec.search.noise is None else spec.search.noise,
    )


def refuse_batches(spec: TrainSpec) -> None:
    """Raises SpecError if the job leaves its batch or knobs open: choosing them needs a real job."""
    real = "resources.infra: local, minicloud, slurm or a cloud"
    for field, value, lacks, instead in (
        ("batch", spec.batch, "job that could learn", f"job.batch, or {real}"),
        ("job.target", spec.job.target, "job that could learn", f"job.epochs, or {real}"),
        ("knobs", spec.knobs or None, "script that could use them", real),
    ):
        if value is not None:
            raise spec.error(
                field, f"only works on real nodes: {spec.resources.infra} runs no {lacks}", allowed=instead
            )


def _prices(spec: TrainSpec, chosen: TypeOffer) -> dict[str, Usd]:
    """USD per hour of one node of each type, spot or on demand as the job asks."""
    prices = {i.name: i.price(spot=spec.resources.only_spot) for i in chosen.instances}
    return {name: price for name, price in prices.items() if price is not None}


def _known_model(spec: TrainSpec) -> str:
    model = spec.job.model
    if model is None:
        raise spec.error("job.model", "a simulated cloud needs a model it knows", allowed=", ".join(MODELS))
    if model not in MODELS and model not in ALIASES:
        raise spec.error(
            "job.model",
            "the simulator knows no such model",
            value=model,
            allowed=", ".join(MODELS),
            nearest=nearest_model(model),
        )
    return model


def _check_batch(spec: TrainSpec, problem: Problem) -> None:
    """Strong scaling: every node needs a sample of the global batch."""
    fewest = int(problem.nodes.min())
    if fewest > spec.job.batch:
        raise spec.error(
            "job.batch",
            f"is split over all nodes, and num_nodes starts at {fewest:,}",
            value=spec.job.batch,
            allowed=f"at least {fewest}, or num_nodes of at most {spec.job.batch}",
        )


def _workload(spec: TrainSpec, folder: Path) -> ReplayWorkload:
    """The table that the job names, else the one with the name of the job."""
    if not folder.is_dir():
        problem = "there is no such folder of measured tables"
        allowed = "replay/FOLDER relative to the current folder, or replay//FOLDER from the root (docs/replay.md)"
        raise spec.error("resources.infra", problem, value=spec.resources.infra, allowed=allowed)
    if not (folder / "instances.csv").exists():
        raise spec.error("resources.infra", f"{folder} has no file instances.csv: it holds no measured tables")
    workloads = load_workloads(folder)
    name = spec.job.workload or spec.name
    if name not in workloads:
        named = spec.job.workload is not None
        raise spec.error(
            "job.workload",
            f"{folder} has no such workload" if named else f"is missing, and {folder} has no workload {name!r}",
            value=spec.job.workload,
            allowed=listed(workloads),
            nearest=nearest(name, list(workloads)),
        )
    return workloads[name]


def problem_of(
    spec: TrainSpec,
    space: Space,
    prices: Mapping[str, Usd],
    *,
    work_samples: float,
    noise: float,
    trial: TrialPolicy = CLOUD_TRIAL,
    slowdown: float = 0.0,
) -> Problem:
    """The problem of the job over a space with these prices per node; `trial` and `slowdown` are the defaults there."""
    return Problem(
        name=spec.name,
        work_samples=work_samples,
        space=space,
        goal=spec.goal,
        usd_per_hour=tuple(prices[config.instance] * config.nodes for config in space),
        trial=spec.search.trial.over(trial),
        max_trials=spec.search.max_trials,
        noise=noise,
        assurance=spec.search.assurance,
        parameters=None if spec.job.model is None else published_parameters(spec.job.model),
        slowdown=slowdown if spec.search.slowdown is None else spec.search.slowdown,
    )


def naive_choices(space: Space, prices: Mapping[str, Usd], popular: Sequence[str]) -> tuple[tuple[str, Config], ...]:
    """Fewest nodes of the most popular type offered (else the cheapest), and of the most expensive type if another."""
    fewest: dict[str, Config] = {}
    for config in space:
        kept = fewest.get(config.instance)
        if kept is None or config.nodes < kept.nodes:
            fewest[config.instance] = config
    usual = next((name for name in popular if name in fewest), None)
    label = "the most popular type" if usual else "the cheapest type"
    usual = usual or min(fewest, key=lambda name: prices[name])
    most_expensive = max(fewest, key=lambda name: prices[name])
    if most_expensive == usual:
        return ((label if len(fewest) > 1 else "the only type", fewest[usual]),)
    return ((label, fewest[usual]), ("the most expensive type", fewest[most_expensive]))


def _peak_flops(instance: Instance) -> float:
    if instance.accelerators:
        return instance.accelerators * instance.accelerator_tflops * 1e12
    return instance.vcpus * FLOPS_PER_VCPU
