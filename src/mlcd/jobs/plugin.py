"""A training job on the cloud of a plug-in, or on a cloud object."""

from dataclasses import dataclass
from pathlib import Path

from mlcd.catalog import Instance
from mlcd.clouds.nodes import NodeEngine
from mlcd.clouds.plugin import CloudJob, CloudOffer, CloudPlugin
from mlcd.errors import BadInput
from mlcd.jobs.moves import ignored_note
from mlcd.jobs.real import env_values, on_nodes, type_price, types_and_counts, workdir
from mlcd.jobs.resolved_job import REAL_SLOWDOWN, ResolvedJob, deployments, naive_choices, problem_of, refuse_batches
from mlcd.jobs.work import RESTART_SECONDS, with_work
from mlcd.plugins import CLOUDS, is_object_name, load_object, plugin_names
from mlcd.spec import TrainSpec
from mlcd.spec.spot import ANY


def cloud_names(built_in: frozenset[str]) -> tuple[str, ...]:
    """The names of clouds that plug-ins offer. Nothing is imported."""
    return plugin_names(CLOUDS, built_in=built_in)


def cloud_plugin(name: str, built_in: frozenset[str]) -> CloudPlugin:
    """The cloud of a plug-in. A class is called without arguments. Raises BadInput that names the package."""
    made: CloudPlugin | None = load_object(CLOUDS, name, needs=("prepare",), built_in=built_in)
    if made is None:
        raise BadInput(f"resources.infra: no installed package offers a cloud {name!r}")
    return made


def on_plugin(spec: TrainSpec, plugin: CloudPlugin, *, where: str, folder: Path, seed: int) -> ResolvedJob:
    """A job on the plug-in's cloud. Raises SpecError, and what the plug-in raises; starts nothing."""
    job = CloudJob(
        name=spec.name,
        where=where,
        seed=seed,
        folder=folder,
        model=spec.job.model,
        samples=spec.job.all_samples,
        batch=spec.job.batch,
        use_spot=spec.resources.only_spot,
        run=spec.run,
        setup=spec.setup,
        envs=env_values(spec),
        workdir=workdir(spec),
    )
    if spec.resources.use_spot == ANY:
        said = "is not yet for clouds of plug-ins"
        raise spec.error("resources.use_spot", said, value=ANY, allowed="true or false")
    offer = plugin.prepare(job)
    if isinstance(offer, CloudOffer):
        return _offered(spec, offer)
    if not hasattr(offer, "start"):
        raise BadInput(
            f"{_name(spec)}: prepare() must return a CloudOffer or a NodeEngine (got {type(offer).__name__})"
        )
    return on_nodes(spec, _name(spec), where, folder, engine=offer)


def plugin_engine(name: str, built_in: frozenset[str], folder: Path) -> NodeEngine | None:
    """The engine of a plug-in's nodes, without a job, to find leftovers. None if the plug-in has no engine."""
    offer = cloud_plugin(name, built_in).prepare(CloudJob(name="", folder=folder))
    return None if isinstance(offer, CloudOffer) else offer


@dataclass(frozen=True, kw_only=True)
class _Types:
    """A CloudOffer's types, in the form that jobs on nodes are resolved against."""

    name: str
    offered: CloudOffer

    def offer(self) -> tuple[Instance, ...]:
        return tuple(self.offered.instances)

    def most_nodes(self, instance: str) -> int | None:
        return self.offered.most_nodes.get(instance)


def _offered(spec: TrainSpec, offer: CloudOffer) -> ResolvedJob:
    refuse_batches(spec)
    work = spec.job.all_samples
    if work is None:
        raise spec.error("job.samples", "the number of samples is missing", allowed="a number more than 0")
    instances, counts, notes = types_and_counts(spec, _Types(name=_name(spec), offered=offer))
    prices = {instance.name: type_price(spec, instance) for instance in instances}
    noise = offer.cloud.noise if spec.search.noise is None else spec.search.noise
    space = deployments(instances, counts)
    problem = problem_of(
        spec,
        space,
        prices,
        work_samples=work,
        noise=noise,
        trial=offer.trial,
        slowdown=0.0 if offer.cloud.simulated else REAL_SLOWDOWN,
    )
    if not offer.cloud.simulated and spec.search.work not in (None, "thrown"):
        allowed = "thrown: the plug-in's cloud does not say whether it keeps checkpoints"
        raise spec.error("search.work", "is not offered there", value=spec.search.work, allowed=allowed)
    if offer.cloud.simulated:
        problem = with_work(spec, problem, restart_seconds=RESTART_SECONDS, simulated=True)
    return ResolvedJob(
        problem=problem,
        cloud=offer.cloud,
        naive=naive_choices(space, prices, ()),
        notes=(*offer.notes, *notes, *ignored_note(spec, _name(spec))),
        charged=offer.charged,
    )


def _name(spec: TrainSpec) -> str:
    infra = spec.resources.infra
    return infra if is_object_name(infra) else infra.partition("/")[0]
