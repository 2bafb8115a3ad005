"""A job on real nodes: the engine its infra names, the types that engine offers, and the problem they make."""

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from mlcd.catalog import Instance, load_catalog
from mlcd.catalog.places import cloud_and_region
from mlcd.catalog.sets import cloud_of
from mlcd.clouds.busy import busy_notes
from mlcd.clouds.gpu_types import GPU_PRICE
from mlcd.clouds.job import SAVE_SECONDS, JobCloud, RealJob
from mlcd.clouds.local import job_path
from mlcd.clouds.nodes import NodeEngine
from mlcd.clouds.several import SeveralPlaces
from mlcd.errors import ProviderError, nearest
from mlcd.jobs.accelerators import check_accelerators, with_accelerators
from mlcd.jobs.batches import with_batches
from mlcd.jobs.choice import check_prices, check_size, listed, may_train, type_field, unfit_notes
from mlcd.jobs.gpus_of_node import with_gpus
from mlcd.jobs.knobs import unmentioned, with_knobs
from mlcd.jobs.markets import with_market
from mlcd.jobs.moves import ignored_note, with_moves
from mlcd.jobs.resolved_job import CLOUD_TRIAL, REAL_SLOWDOWN, ResolvedJob, deployments, naive_choices, problem_of
from mlcd.jobs.run_script import check_script, missing_program, outputs_notes
from mlcd.jobs.work import LOCAL_RESTART_SECONDS, RESTART_SECONDS, with_work
from mlcd.problem import STOP_SECONDS, Target, TrialPolicy
from mlcd.space.placed import matches, plain_name
from mlcd.spec import NodeCounts, TrainSpec
from mlcd.spec.serve import ServeSpec
from mlcd.units import Usd

NOMINAL_PRICE_CLOUDS = ("local", "minicloud")
MOST_LISTED = 8
"""Types that a message names."""
"""Engines on this machine: their prices only weigh time against money; nobody is charged."""

LOCAL_TRIAL = TrialPolicy(seconds=20.0, extra_seconds_per_3_nodes=2.0, watchdog_seconds=30.0)
"""Trials on this machine, where nodes start in seconds."""

SKYPILOT = ("aws", "gcp", "azure", "kubernetes", "k8s", "ssh", "lambda", "runpod", "oci", "nebius", "vast", "sky")
"""Clouds that are reached through SkyPilot, under its names."""

AnySpec = TrainSpec | ServeSpec | None

DEFAULT_REAL_NODES = NodeCounts(default=tuple(range(1, 9)))


def engine_for(kind: str, rest: str, home: Path, spec: TrainSpec | ServeSpec | None = None) -> NodeEngine:
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
    if kind == "local" and not spec.setup.strip() and "PATH" not in spec.envs:
        missing = missing_program(spec.run, path=job_path())
        if missing:
            raise spec.error("run", missing, value=spec.run.strip()[:200])
    check_secrets(spec)
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
    problem = replace(
        problem,
        work_known=work is not None,
        target=target,
        transformer=spec.job.transformer,
        samples_per_step=spec.job.batch,
    )
    problem, remarks = with_market(spec, problem, instances, prices)
    notes = (*notes, *remarks)
    if kind in SKYPILOT:
        problem, remarks = with_moves(spec, problem)
    else:
        remarks = ignored_note(spec, kind)
        if spec.file_mounts:
            remarks = (*remarks, f"{kind} mounts nothing: file_mounts is ignored; the script has the files of workdir")
    notes = (*notes, *remarks)
    if spec.batch is not None:
        problem, remarks = with_batches(spec, problem, prices)
        notes = (*notes, *remarks)
    if spec.knobs:
        problem, remarks = with_knobs(spec, problem)
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


def type_price(spec: TrainSpec | ServeSpec, instance: Instance) -> Usd:
    """USD per hour of one node: the user's price, else spot if wanted and known, else on demand (never too low)."""
    own = spec.resources.prices.get(instance.name) or spec.resources.prices.get(plain_name(instance.name))
    use_spot = isinstance(spec, TrainSpec) and spec.resources.only_spot
    return own or instance.price(spot=use_spot) or instance.usd_per_hour


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
        secrets=secret_values(spec),
        workdir=folder,
        platform=spec.platform.name,
        topology=spec.platform.chosen_topology,
        batch=spec.job.batch,
        samples=None if work.target is not None else work.all_samples,
        learning_rate=spec.learning_rate,
        target=work.target,
        noise=spec.batch is not None,
        knobs=unmentioned(spec, folder),
        progress=spec.progress,
        checkpoints=spec.checkpoints,
        outputs=spec.outputs,
    )


def workdir(spec: TrainSpec | ServeSpec) -> Path | None:
    """The user's folder, relative to the job file."""
    if not spec.workdir:
        return None
    folder = (Path(spec.file).parent if spec.file else Path()) / spec.path("workdir", spec.workdir)
    if not folder.is_dir():
        problem = "is a file" if folder.is_file() else "there is no such folder, relative to the job file"
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


def secret_values(spec: TrainSpec | ServeSpec) -> dict[str, str]:
    """The values of the job's secrets that this process's environment has."""
    return {name: os.environ[name] for name in spec.secrets if name in os.environ}


def check_secrets(spec: TrainSpec | ServeSpec) -> None:
    """Raises SpecError for a secret that this process's environment lacks."""
    missing = [name for name in spec.secrets if name not in os.environ]
    if missing:
        raise spec.error("secrets", f"{missing[0]} is not in your environment", allowed=f"export {missing[0]}=...")


def types_and_counts(
    spec: TrainSpec, engine: TypesOffered
) -> tuple[tuple[Instance, ...], Callable[[str], tuple[int, ...]], tuple[str, ...]]:
    """The types and node counts that the job may choose from, and notes on what was excluded."""
    counts = spec.num_nodes or DEFAULT_REAL_NODES
    largest = spec.job.batch if spec.batch is None else math.inf  # with_batches checks which batches can be split
    kept, by_type, notes = types_with_counts(
        spec, engine, lambda name: tuple(n for n in counts.for_instance(name) if n <= largest), field="num_nodes"
    )
    check_size(spec, "num_nodes", sum(map(len, by_type.values())), narrow="num_nodes or resources.instance_type")
    return kept, by_type.__getitem__, notes


def types_with_counts(
    spec: TrainSpec | ServeSpec,
    engine: TypesOffered,
    counts: Callable[[str], tuple[int, ...]],
    *,
    field: str,
    besides: int = 0,
) -> tuple[tuple[Instance, ...], dict[str, tuple[int, ...]], tuple[str, ...]]:
    """The types that the job may choose from, how many nodes of each, and notes on what was excluded.

    counts  those that the job allows, by type
    field   where the job gives them
    besides  further nodes that each lease has
    """
    there = engine.offer()
    priced = [instance.name for instance in there]
    check_prices(spec, [*priced, GPU_PRICE] if engine.name == "local" else priced)
    notes = list(getattr(engine, "notes", ()))
    offered = with_gpus(spec, there, engine.name, notes)
    by_type: dict[str, tuple[int, ...]] = {}
    beside = " beside the node that sends the load" if besides else ""
    refused = engine.refused() if isinstance(engine, SeveralPlaces) else {}
    instances = _wanted(spec, offered, notes, refused)
    for instance in instances:
        most = _most_nodes(engine, instance.name, besides)
        every = counts(instance.name)
        fitting = tuple(n for n in every if most is None or n <= most)
        if len(fitting) < len(every):
            notes.append(f"{engine.name} has room for at most {most} x {instance.name}{beside}: more are excluded")
        if fitting:
            by_type[instance.name] = fitting
    if not by_type:
        room = ", ".join(f"{_most_nodes(engine, i.name, besides)} x {i.name}" for i in instances[:MOST_LISTED])
        raise spec.error(
            field, f"{engine.name} has no room for this many nodes of any type{beside}", allowed=f"at most {room}"
        )
    return tuple(instance for instance in instances if instance.name in by_type), by_type, tuple(notes)


def _most_nodes(engine: TypesOffered, name: str, besides: int) -> int | None:
    """The most nodes of a type that a lease can have besides so many; None where only the provider knows."""
    most = engine.most_nodes(name)
    return None if most is None else max(most - besides, 0)


def _wanted(
    spec: TrainSpec | ServeSpec,
    offered: Sequence[Instance],
    notes: list[str],
    refused: Mapping[str, ProviderError] = MappingProxyType({}),
) -> tuple[Instance, ...]:
    """The offered types that the job names; where it names none, those of today that can train. Adds notes.

    refused  places of the job that cannot be used, and why: their types are left out
    """
    patterns = spec.resources.instance_type
    lacking: list[str] = []
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
        if not found and _is_known(pattern, refused):
            lacking.append(pattern)
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
    if not chosen and lacking:
        raise ProviderError("; ".join(map(str, refused.values())))
    if not chosen:
        # The file names types of another cloud and `--on` moved the job: every type of this cloud may be chosen.
        kept = may_train(_with_accelerators(spec, offered, notes), unfit)
        any_of = listed(instance.name for instance in kept)
        notes.append(f"{spec.resources.infra} has none of the types in the file; any of {any_of} may be chosen")
        notes += unfit_notes(unfit, ())
        return kept
    notes += unfit_notes(unfit, chosen)
    return tuple(chosen.values())


def _is_known(pattern: str, places: Iterable[str]) -> bool:
    """Whether the catalog has such types for the cloud of one of these places."""
    catalog = load_catalog()
    clouds = {cloud_and_region(place)[0] for place in places}
    return bool(_named(pattern, [instance for instance in catalog.instances if instance.cloud in clouds]))


def _named(pattern: str, offered: Sequence[Instance]) -> list[Instance]:
    """The offered types that a name, a glob or a named set of their cloud stands for."""
    sets = load_catalog().sets
    members = sets.get(pattern, ())
    return [
        i
        for i in offered
        if matches(i.name, pattern) or (plain_name(i.name) in members and cloud_of(pattern) == i.cloud)
    ]


def _with_accelerators(
    spec: TrainSpec | ServeSpec, offered: Sequence[Instance], notes: list[str]
) -> tuple[Instance, ...]:
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


def _local(kind: str, rest: str, home: Path, spec: AnySpec) -> NodeEngine:  # noqa: ARG001
    from mlcd.clouds.local import Local  # noqa: PLC0415 - loaded for those who use it

    return Local(home, prices=spec.resources.prices if spec is not None else {})


def _minicloud(kind: str, rest: str, home: Path, spec: AnySpec) -> NodeEngine:  # noqa: ARG001
    from mlcd.clouds.minicloud import MiniCloud  # noqa: PLC0415 - loaded for those who use it

    return MiniCloud(warm=isinstance(spec, TrainSpec) and spec.resources.warm_workers)


def _slurm(kind: str, rest: str, home: Path, spec: AnySpec) -> NodeEngine:  # noqa: ARG001
    from mlcd.clouds.slurm import Slurm  # noqa: PLC0415 - loaded for those who use it

    return Slurm(spec.resources.prices if spec is not None else {})


def _skypilot(kind: str, rest: str, home: Path, spec: AnySpec) -> NodeEngine:
    from mlcd.clouds.shipping import NODES, SERVER  # noqa: PLC0415 - loaded for those who use it
    from mlcd.clouds.skypilot import SkyPilotEngine, SkySettings  # noqa: PLC0415 - loaded for those who use it

    parts = [kind, *filter(None, rest.split("/"))]
    if spec is None:
        settings = SkySettings(infra=kind)
    elif isinstance(spec, ServeSpec):
        image = spec.resources.image_id or (f"docker:{spec.server.image}" if spec.server and spec.server.image else "")
        settings = SkySettings(
            infra="/".join(parts),
            image_id=image or None,
            secrets=secret_values(spec),
            file_mounts=spec.file_mounts,
            outputs=(),
        )
    else:
        wanted = spec.resources
        parts += [part for part in (wanted.region, wanted.zone) if part and part not in parts]
        settings = SkySettings(
            infra="/".join(parts),
            use_spot=wanted.only_spot,
            image_id=wanted.image_id or None,
            secrets=secret_values(spec),
            file_mounts=spec.file_mounts,
            live=(spec.progress.file,) if spec.progress.file else (),
            outputs=spec.outputs,
        )
    shipped = SERVER if isinstance(spec, ServeSpec) and spec.server is None else NODES
    return SkyPilotEngine(settings, state=home / "skypilot", catalog=load_catalog(), shipped=shipped)


_ENGINES: dict[str, Callable[[str, str, Path, AnySpec], NodeEngine]] = {
    "local": _local,
    "minicloud": _minicloud,
    "slurm": _slurm,
}

DIRECT = tuple(_ENGINES)
"""Clouds that mlcd itself starts nodes on. One more is one more entry above."""
