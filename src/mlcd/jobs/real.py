"""A job on real nodes: the engine its infra names, the types that engine offers, and the problem they make."""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Protocol

from mlcd.catalog import Instance, load_catalog
from mlcd.catalog.sets import cloud_of
from mlcd.clouds.busy import busy_notes
from mlcd.clouds.job import SAVE_SECONDS, JobCloud, RealJob
from mlcd.clouds.nodes import NodeEngine
from mlcd.errors import ProviderError, nearest
from mlcd.jobs.accelerators import check_accelerators, with_accelerators
from mlcd.jobs.batches import with_batches
from mlcd.jobs.choice import check_size, listed, may_train, type_field, unfit_notes
from mlcd.jobs.resolved_job import CLOUD_TRIAL, REAL_SLOWDOWN, ResolvedJob, deployments, naive_choices, problem_of
from mlcd.jobs.run_script import check_script, outputs_notes
from mlcd.jobs.work import LOCAL_RESTART_SECONDS, RESTART_SECONDS, with_work
from mlcd.problem import STOP_SECONDS, Target, TrialPolicy
from mlcd.spec import NodeCounts, TrainSpec
from mlcd.units import Usd

NOMINAL_PRICE_CLOUDS = ("local", "minicloud")
"""Engines on this machine: their prices only weigh time against money; nobody is charged."""

LOCAL_TRIAL = TrialPolicy(seconds=20.0, extra_seconds_per_3_nodes=2.0, watchdog_seconds=30.0)
"""Trials on this machine, where nodes start in seconds."""

SKYPILOT = ("aws", "gcp", "azure", "kubernetes", "k8s", "ssh", "lambda", "runpod", "oci", "nebius", "vast", "sky")
"""Clouds that are reached through SkyPilot, under its names."""

DEFAULT_REAL_NODES = NodeCounts(default=tuple(range(1, 9)))


def engine_for(kind: str, rest: str, home: Path, spec: TrainSpec | None = None) -> NodeEngine:
    """The engine called `kind`, with the settings of the job if there is one. Starts nothing. Raises ProviderError."""
    if kind in _ENGINES:
        return _ENGINES[kind](kind, rest, home, spec)
    if kind in (*SKYPILOT, "skypilot"):
        return _skypilot(kind, rest, home, spec)
    raise ProviderError(f"{kind}: no engine starts nodes there; there are: {', '.join((*DIRECT, *SKYPILOT))}")


class TypesOffered(Protocol):
    """The part of a NodeEngine that lists instance types."""

    @property
    def name(self) -> str: ...  # noqa: D102

    def offer(self) -> tuple[Instance, ...]:
        """As NodeEngine.offer."""
        ...

    def most_nodes(self, instance: str) -> int | None:
        """As NodeEngine.most_nodes."""
        ...


def on_nodes(spec: TrainSpec, kind: str, rest: str, home: Path, *, engine: NodeEngine | None = None) -> ResolvedJob:
    """A job on `kind` nodes; `engine` if a plug-in provides it. Raises SpecError, ProviderError; starts nothing."""
    engine = engine or engine_for(kind, rest, home, spec)
    job = _job(spec)
    _check_secrets(spec)
    instances, counts, notes = types_and_counts(spec, engine)
    prices = {instance.name: type_price(spec, instance) for instance in instances}
    usual = LOCAL_TRIAL if kind in NOMINAL_PRICE_CLOUDS else CLOUD_TRIAL
    noise = engine.noise if spec.search.noise is None else spec.search.noise
    work = spec.job.all_samples
    space = deployments(instances, counts)
    samples = 1.0 if work is None else work
    problem = problem_of(spec, space, prices, work_samples=samples, noise=noise, trial=usual, slowdown=REAL_SLOWDOWN)
    aim = spec.job.target
    target = None if aim is None else Target(metric=aim.metric, value=aim.value, higher=aim.higher)
    problem = replace(problem, work_known=work is not None, target=target)
    if spec.batch is not None:
        problem, remarks = with_batches(spec, problem, prices)
        notes = (*notes, *remarks)
    restart_seconds = LOCAL_RESTART_SECONDS if kind in NOMINAL_PRICE_CLOUDS else RESTART_SECONDS
    has_room = kind not in NOMINAL_PRICE_CLOUDS  # those share this machine
    outlives = getattr(engine, "outlives_mlcd", False) is True
    problem = with_work(
        spec, problem, restart_seconds=restart_seconds, simulated=False, has_room=has_room, outlives=outlives
    )
    if spec.checkpoints and kind not in NOMINAL_PRICE_CLOUDS:
        problem = replace(problem, stop_seconds=SAVE_SECONDS + STOP_SECONDS)
    if kind in NOMINAL_PRICE_CLOUDS:
        notes = (*notes, f"{kind} runs on this machine: its prices are nominal, nobody is charged", *busy_notes())
    if spec.batch is None and (spec.job.samples or math.inf) < (spec.job.batch or 0):
        notes = (
            *notes,
            f"job.batch ({spec.job.batch:,}) is more than job.samples, the {spec.job.samples:,} of an epoch",
        )
    notes = (*notes, *outputs_notes(spec, job.workdir))
    return ResolvedJob(
        problem=problem,
        cloud=JobCloud(engine, job, home=home, noise=noise),
        naive=naive_choices(problem.space, prices, ()),
        notes=notes,
        charged=kind not in NOMINAL_PRICE_CLOUDS,
    )


def type_price(spec: TrainSpec, instance: Instance) -> Usd:
    """USD per hour of one node: the user's price, else spot if wanted and known, else on demand (never too low)."""
    own = spec.resources.prices.get(instance.name)
    return own or instance.price(spot=spec.resources.use_spot) or instance.usd_per_hour


def _job(spec: TrainSpec) -> RealJob:
    if not spec.run.strip():
        raise spec.error(
            "run", "is missing: a real job needs the command that trains", allowed="such as run: python train.py"
        )
    work = spec.job
    for field, value in (("workload", work.workload), ("hours", work.hours)):
        if value is not None:
            raise spec.error(f"job.{field}", "is only for measured tables, on replay/FOLDER", value=value)
    if work.samples is None and (spec.progress.pattern or spec.progress.file):
        problem = "the number of samples of an epoch is missing"
        raise spec.error("job.samples", problem, allowed="a number more than 0, or mlcd.steps(loader, total=...)")
    folder = workdir(spec)
    check_script(spec, folder)
    return RealJob(
        run=spec.run,
        setup=spec.setup,
        envs=env_values(spec),
        secrets=_secret_values(spec),
        workdir=folder,
        platform=spec.platform.name,
        topology=spec.platform.chosen_topology,
        batch=spec.job.batch,
        samples=None if work.target is not None else work.all_samples,
        learning_rate=spec.learning_rate,
        target=work.target,
        noise=spec.batch is not None,
        progress=spec.progress,
        checkpoints=spec.checkpoints,
        outputs=spec.outputs,
    )


def workdir(spec: TrainSpec) -> Path | None:
    """The user's folder, relative to the job file."""
    if not spec.workdir:
        return None
    folder = (Path(spec.file).parent if spec.file else Path()) / spec.path("workdir", spec.workdir)
    if not folder.is_dir():
        problem = "there is no such folder, relative to the job file"
        raise spec.error("workdir", problem, value=spec.workdir, allowed="a folder with the job's files")
    return folder.resolve()


def env_values(spec: TrainSpec) -> dict[str, str]:
    """The job's environment variables. Raises SpecError for one without a value."""
    missing = [name for name, value in spec.envs.items() if value is None]
    if missing:
        options = " ".join(f"--env {name}=VALUE" for name in missing)
        raise spec.error(
            f"envs.{missing[0]}",
            f"the value of {' and of '.join(missing)} is not known",
            allowed=f"{options}, or --env {missing[0]} to take it from your environment (Python: envs={{...}})",
        )
    return {name: value for name, value in spec.envs.items() if value is not None}


def _secret_values(spec: TrainSpec) -> dict[str, str]:
    return {name: os.environ[name] for name in spec.secrets if name in os.environ}


def _check_secrets(spec: TrainSpec) -> None:
    missing = [name for name in spec.secrets if name not in os.environ]
    if missing:
        raise spec.error("secrets", f"{missing[0]} is not in your environment", allowed=f"export {missing[0]}=...")


def types_and_counts(
    spec: TrainSpec, engine: TypesOffered
) -> tuple[tuple[Instance, ...], Callable[[str], tuple[int, ...]], tuple[str, ...]]:
    """The types and node counts that the job may choose from, and notes on what was excluded."""
    offered = engine.offer()
    notes = list(getattr(engine, "notes", ()))
    instances = _wanted(spec, offered, notes)
    counts = spec.num_nodes or DEFAULT_REAL_NODES
    by_type: dict[str, tuple[int, ...]] = {}
    largest = spec.job.batch if spec.batch is None else math.inf  # with_batches checks which batches can be split
    for instance in instances:
        most = engine.most_nodes(instance.name)
        every = [n for n in counts.for_instance(instance.name) if n <= largest]
        fitting = tuple(n for n in every if most is None or n <= most)
        if len(fitting) < len(every):
            notes.append(f"{engine.name} has room for at most {most} x {instance.name}: more are excluded")
        if fitting:
            by_type[instance.name] = fitting
    if not by_type:
        raise spec.error(
            "num_nodes", f"{engine.name} has no room for this many nodes of any type", allowed="fewer nodes"
        )
    check_size(spec, "num_nodes", sum(map(len, by_type.values())), narrow="num_nodes or resources.instance_type")
    kept = tuple(instance for instance in instances if instance.name in by_type)
    return kept, by_type.__getitem__, tuple(notes)


def _wanted(spec: TrainSpec, offered: Sequence[Instance], notes: list[str]) -> tuple[Instance, ...]:
    """The offered types that the job names; where it names none, those of today that can train. Adds notes."""
    patterns = spec.resources.instance_type
    names = [instance.name for instance in offered]
    unfit: dict[str, str] = {}
    if patterns is None:
        kept = may_train(_with_accelerators(spec, offered, notes), unfit)
        notes += unfit_notes(unfit, ())
        return kept
    chosen: dict[str, Instance] = {}
    named: dict[str, Instance] = {}
    for position, pattern in enumerate(patterns):
        found = _named(pattern, offered)
        if not found and "on" in dict(spec.overrides):
            continue
        if not found:
            place = type_field(spec, position)
            raise spec.error(
                place,
                f"{spec.resources.infra} has no such type",
                value=pattern,
                allowed=listed(names),
                nearest=nearest(pattern, names),
            )
        named.update({i.name: i for i in found})
        chosen.update({i.name: i for i in may_train(with_accelerators(spec, found), unfit)})
    if named:
        check_accelerators(spec, tuple(named.values()))
    if not chosen:
        # The file names types of another cloud and `--on` moved the job: every type of this cloud may be chosen.
        kept = may_train(_with_accelerators(spec, offered, notes), unfit)
        any_of = listed(instance.name for instance in kept)
        notes.append(f"{spec.resources.infra} has none of the types in the file; any of {any_of} may be chosen")
        notes += unfit_notes(unfit, ())
        return kept
    notes += unfit_notes(unfit, chosen)
    return tuple(chosen.values())


def _named(pattern: str, offered: Sequence[Instance]) -> list[Instance]:
    """The offered types that a name, a glob or a named set of their cloud stands for."""
    sets = load_catalog().sets
    members = sets.get(pattern, ())
    return [
        i
        for i in offered
        if i.name == pattern or fnmatchcase(i.name, pattern) or (i.name in members and cloud_of(pattern) == i.cloud)
    ]


def _with_accelerators(spec: TrainSpec, offered: Sequence[Instance], notes: list[str]) -> tuple[Instance, ...]:
    """The offered types with the job's accelerators; if it names none, the current GPUs and CPUs of a public cloud.

    A job that `--on` moved to a cloud without its accelerators may use every type there, with a note.
    """
    if spec.resources.accelerators:
        kept = with_accelerators(spec, offered)
        if not kept and "on" in dict(spec.overrides):
            wanted = ", ".join(map(str, spec.resources.accelerators))
            notes.append(f"{spec.resources.infra} has no type with {wanted}; resources.accelerators is ignored")
            return tuple(offered)
        check_accelerators(spec, offered)
        return kept
    catalog = load_catalog()
    known = {name for cloud in {i.cloud for i in offered} for name in catalog.default_types(cloud)}
    usual = {i.name for name in known for i in _named(name, offered)}
    return tuple(i for i in offered if i.name in usual)


def _local(kind: str, rest: str, home: Path, spec: TrainSpec | None) -> NodeEngine:  # noqa: ARG001
    from mlcd.clouds.local import Local  # noqa: PLC0415 - loaded for those who use it

    return Local(home)


def _minicloud(kind: str, rest: str, home: Path, spec: TrainSpec | None) -> NodeEngine:  # noqa: ARG001
    from mlcd.clouds.minicloud import MiniCloud  # noqa: PLC0415 - loaded for those who use it

    return MiniCloud(warm=spec is not None and spec.resources.warm_workers)


def _slurm(kind: str, rest: str, home: Path, spec: TrainSpec | None) -> NodeEngine:  # noqa: ARG001
    from mlcd.clouds.slurm import Slurm  # noqa: PLC0415 - loaded for those who use it

    return Slurm(spec.resources.prices if spec is not None else {})


def _skypilot(kind: str, rest: str, home: Path, spec: TrainSpec | None) -> NodeEngine:
    from mlcd.clouds.skypilot import SkyPilotEngine, SkySettings  # noqa: PLC0415 - loaded for those who use it

    parts = [kind, *filter(None, rest.split("/"))]
    if spec is None:
        settings = SkySettings(infra=kind)
    else:
        wanted = spec.resources
        parts += [part for part in (wanted.region, wanted.zone) if part and part not in parts]
        settings = SkySettings(
            infra="/".join(parts),
            use_spot=wanted.use_spot,
            image_id=wanted.image_id or None,
            secrets=_secret_values(spec),
            file_mounts=spec.file_mounts,
            live=(spec.progress.file,) if spec.progress.file else (),
            outputs=spec.outputs,
        )
    return SkyPilotEngine(settings, state=home / "skypilot", catalog=load_catalog())


_ENGINES: dict[str, Callable[[str, str, Path, TrainSpec | None], NodeEngine]] = {
    "local": _local,
    "minicloud": _minicloud,
    "slurm": _slurm,
}

DIRECT = tuple(_ENGINES)
"""Clouds that mlcd itself starts nodes on. One more is one more entry above."""
