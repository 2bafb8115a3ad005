"""The training job: from a job file to all that a run needs."""

from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mlcd.catalog import Catalog, load_catalog
from mlcd.clouds.job import JobCloud
from mlcd.clouds.plugin import CloudPlugin
from mlcd.deciders.search import SearchDecider
from mlcd.deciders.training import TrainingDecider
from mlcd.engine.on_nodes import NodePerformer
from mlcd.errors import BadInput
from mlcd.jobs.earlier_runs import EarlierRuns, earlier_runs, reuse_notes
from mlcd.jobs.known_jobs import known_jobs
from mlcd.jobs.plugin import cloud_plugin, on_plugin
from mlcd.jobs.prepared import Prepared
from mlcd.jobs.real import env_values, on_nodes
from mlcd.jobs.regions import several_places
from mlcd.jobs.resolved_job import replayed, simulated
from mlcd.jobs.where import BUILT_IN, where
from mlcd.models.similar import similar_speeds
from mlcd.models.universal import KnownJob
from mlcd.plugins import check_methods, check_object, is_object_name, object_missing, object_name
from mlcd.problem import Problem
from mlcd.run.kind import Kind
from mlcd.search.registry import strategy as strategy_by_name
from mlcd.search.strategy import Elastic, Strategy, uses_other_jobs, with_wishes
from mlcd.spec import TrainSpec, with_overrides
from mlcd.spec.env_values import without_env_values
from mlcd.store.store import Store, has_store, home

DEFAULT_BATCH_STRATEGY = "scavenger-goodput"
"""The default strategy of a job that leaves its batch open."""


def prepare(
    spec: TrainSpec,
    *,
    seed: int = 0,
    catalog: Catalog | None = None,
    folder: Path | None = None,
    strategy: Strategy | None = None,
    cloud: CloudPlugin | None = None,
    reuse: bool | None = None,
) -> Prepared[Problem]:
    """Names become machines and prices. Files of a real job go under `folder` (None: $MLCD_HOME).

    strategy, cloud  objects instead of those that the job names; see `with_objects`
    reuse            whether trials of the same job in earlier runs count; None: where somebody is charged for trials

    Raises BadInput, SpecError, CatalogError, ProviderError; spends nothing.
    """
    spec = with_objects(with_default_strategy(spec), strategy=strategy, cloud=cloud)
    catalog = catalog or load_catalog()
    folder = folder or home()
    places = (("", ""),) if cloud is not None else where(spec, catalog)
    kind, rest = places[0]
    uses_envs = kind not in ("sim", "replay")
    chosen = strategy or strategy_of(spec, seed, folder=folder)
    if cloud is not None:
        setting = on_plugin(spec, cloud, where="", folder=folder, seed=seed)
    elif kind == "sim":
        setting = simulated(spec, [name for _, name in places], catalog, seed)
    elif kind == "replay":
        setting = replayed(spec, rest, catalog)
    elif kind in BUILT_IN:
        engine = several_places(spec, places, folder) if len(places) > 1 else None
        setting = on_nodes(spec, kind, rest, folder, engine=engine)
    else:
        setting = on_plugin(spec, cloud_plugin(kind, BUILT_IN), where=rest, folder=folder, seed=seed)
    if not chosen.guarded and setting.charged:
        said = "does not keep limits, so it runs only on clouds that charge nobody"
        raise spec.error("search.strategy", said, value=spec.search.strategy)
    now = datetime.now(UTC)
    earlier = EarlierRuns()
    problem = with_wishes(setting.problem, chosen)
    if setting.charged if reuse is None else reuse:
        earlier = earlier_runs(folder, setting.cloud.name, spec, problem)
        if not uses_other_jobs(chosen):
            earlier = replace(earlier, similar=(), similar_names=())
        problem = replace(problem, similar=similar_speeds(problem, earlier.similar))

    def connect(_: Problem, leaving: ExitStack) -> NodePerformer:
        if isinstance(setting.cloud, JobCloud):
            leaving.callback(setting.cloud.close)
        elastic = chosen if isinstance(chosen, Elastic) else None
        performer = NodePerformer(cloud=setting.cloud, guarded=chosen.guarded, elastic=elastic)
        leaving.callback(performer.close)
        return performer

    return Prepared(
        kind=Kind.TRAIN,
        name=spec.name,
        problem=problem,
        decider=SearchDecider(
            strategy=chosen, aftermath=TrainingDecider(), parallel=spec.search.parallel, naive=setting.naive
        ),
        connect=connect,
        cloud=setting.cloud.name,
        simulated=setting.cloud.simulated,
        charged=setting.charged,
        strategy=spec.search.strategy,
        seed=seed,
        catalog_date=catalog.date.isoformat(),
        spec=_spec_to_json(_anchored(spec), now),
        envs=env_values(spec) if uses_envs else {},
        parallel=spec.search.parallel,
        notes=(*setting.notes, *reuse_notes(earlier, now)),
        reused=earlier.reused,
        now=now,
    )


def with_objects(spec: TrainSpec, *, strategy: Strategy | None = None, cloud: CloudPlugin | None = None) -> TrainSpec:
    """The job as it is recorded with objects instead of names: each is named `python:module:Class`.

    Raises BadInput for an object that lacks a required method.
    """
    check_methods(strategy, ("suggest", "recommend", "ending"), argument="strategy")
    check_methods(cloud, ("prepare",), argument="on")
    return with_overrides(
        spec,
        strategy=None if strategy is None else object_name(strategy),
        on=None if cloud is None else object_name(cloud),
        mark="",
    )


def check_objects(spec: TrainSpec, *, strategy: Strategy | None = None, cloud: CloudPlugin | None = None) -> None:
    """Raises BadInput if the recorded job cannot continue with these objects.

    A job recorded with an object continues only with one of the same class; any other job only without.
    """
    check_object(spec.search.strategy, strategy, argument="strategy")
    check_object(spec.resources.infra, cloud, argument="on")


def with_default_strategy(spec: TrainSpec) -> TrainSpec:
    """The job with its default strategy if it names none: one that chooses the batch, if that is open."""
    named = "search.strategy" in spec.places or "strategy" in dict(spec.overrides)
    if spec.batch is None or named:
        return spec
    return replace(spec, search=replace(spec.search, strategy=DEFAULT_BATCH_STRATEGY))


def strategy_of(spec: TrainSpec, seed: int, *, folder: Path | None = None) -> Strategy:
    """The job's strategy; `folder` has the store of earlier runs. Raises SpecError at the field that names it."""
    text = spec.search.strategy
    name = text.partition(":")[0]
    if is_object_name(text):
        raise spec.error("search.strategy", object_missing(text, argument="strategy"))
    if name.startswith("scavenger-") and spec.batch is None:
        raise spec.error("batch", f"is missing: {name} chooses it", allowed="such as batch: [64, 128, 256]")
    jobs: tuple[KnownJob, ...] = ()
    if name == "scavenger-universal" and folder is not None and has_store(folder):
        with Store(folder) as store:
            jobs = known_jobs(store, spec.resources.infra)
    try:
        return strategy_by_name(text, seed=seed, jobs=jobs)
    except BadInput as error:
        raise spec.error("search.strategy", str(error).removeprefix("search.strategy: ")) from error


def _anchored(spec: TrainSpec) -> TrainSpec:
    """The job with an absolute folder, so that the run can be resumed from any folder."""
    kind, _, folder = spec.resources.infra.partition("/")
    if kind != "replay":
        return spec
    return with_overrides(spec, on=f"replay/{spec.path('resources.infra', folder).resolve()}")


def _spec_to_json(spec: TrainSpec, now: datetime) -> dict[str, Any]:
    file = (
        str(Path(spec.file).resolve()) if spec.file and spec.workdir else spec.file
    )  # absolute, to resume from any folder
    source, _ = without_env_values(spec.source)
    overrides = {name: value for name, value in spec.overrides if name != "envs"}
    return {"source": source, "file": file, "overrides": overrides, "now": now.isoformat(), "envs": sorted(spec.envs)}
