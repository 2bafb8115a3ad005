"""The training job: from a job file to a run, and from a stored run back to work."""

import secrets
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mlcd.catalog import Catalog, load_catalog
from mlcd.clouds.job import JobCloud
from mlcd.engine import Engine
from mlcd.errors import BadInput
from mlcd.events import Observer, ignore
from mlcd.jobs.known_jobs import known_jobs
from mlcd.jobs.real import on_nodes
from mlcd.jobs.setting import Setting, replayed, simulated
from mlcd.jobs.where import where
from mlcd.models.universal import KnownJob
from mlcd.search.registry import strategy
from mlcd.search.strategy import Strategy
from mlcd.spec import TrainSpec, parse_train, with_overrides
from mlcd.store.store import FILE as STORE_FILE
from mlcd.store.store import Store, home
from mlcd.trial.outcome import Status
from mlcd.trial.record import RunRecord
from mlcd.version import __version__

USUAL_WITH_BATCH = "scavenger-goodput"
"""The strategy of a job that leaves its batch open and names none."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A job resolved against catalog and cloud: all that a run needs."""

    setting: Setting
    strategy: Strategy
    catalog_date: str


def prepare(spec: TrainSpec, *, seed: int = 0, catalog: Catalog | None = None, folder: Path | None = None) -> Prepared:
    """Names become machines and prices; a real job's files will lie under `folder` (None: $MLCD_HOME).

    Raises BadInput, SpecError, CatalogError, ProviderError; spends nothing.
    """
    spec = with_usual_strategy(spec)
    catalog = catalog or load_catalog()
    kind, rest = where(spec, catalog)
    chosen = strategy_of(spec, seed, folder=folder or home())
    if kind == "sim":
        setting = simulated(spec, rest, catalog, seed)
    elif kind == "replay":
        setting = replayed(spec, rest, catalog)
    else:
        setting = on_nodes(spec, kind, rest, folder or home())
    if not chosen.guarded and setting.charged:
        problem = "does not keep limits and runs only where nobody is charged"
        raise spec.error("search.strategy", problem, value=spec.search.strategy)
    return Prepared(setting=setting, strategy=chosen, catalog_date=catalog.date.isoformat())


def with_usual_strategy(spec: TrainSpec) -> TrainSpec:
    """The job with the strategy that is meant where it names none: one that chooses the batch, where that is open."""
    named = "search.strategy" in spec.places or "strategy" in dict(spec.overrides)
    if spec.batch is None or named:
        return spec
    return replace(spec, search=replace(spec.search, strategy=USUAL_WITH_BATCH))


def strategy_of(spec: TrainSpec, seed: int, *, folder: Path | None = None) -> Strategy:
    """The job's strategy; `folder` has the store of earlier runs. Raises SpecError at the place where it was named."""
    name = spec.search.strategy.partition(":")[0]
    if name.startswith("scavenger-") and spec.batch is None:
        raise spec.error("batch", f"is missing: {name} chooses it", allowed="such as batch: [64, 128, 256]")
    jobs: tuple[KnownJob, ...] = ()
    if name == "scavenger-universal" and folder is not None and (folder / STORE_FILE).exists():
        with Store(folder) as store:
            jobs = known_jobs(store, spec.resources.infra)
    try:
        return strategy(spec.search.strategy, seed=seed, jobs=jobs)
    except BadInput as error:
        raise spec.error("search.strategy", str(error).removeprefix("search.strategy: ")) from error


def train(spec: TrainSpec, *, store: Store, seed: int = 0, observer: Observer = ignore) -> RunRecord:
    """Search, choose, train; everything is in the store. Raises what `prepare` raises, StoreError, Interrupted."""
    now = datetime.now(UTC)
    prepared = prepare(spec, seed=seed, folder=store.folder)
    spec = _anchored(with_usual_strategy(spec))
    record = RunRecord(
        run_id=f"{spec.name}-{secrets.token_hex(3)}",
        created=now.isoformat(timespec="seconds"),
        cloud=prepared.setting.cloud.name,
        simulated=prepared.setting.cloud.simulated,
        strategy=spec.search.strategy,
        seed=seed,
        parallel=spec.search.parallel,
        version=__version__,
        catalog_date=prepared.catalog_date,
        problem=prepared.setting.problem,
        status=Status.RUNNING,
    )
    store.add_run(record, kind="train", spec=_spec_to_json(spec, now))
    return _run(record, prepared, store, observer)


def resume(run_id: str, *, store: Store, observer: Observer = ignore) -> RunRecord:
    """Go on with a run from where the store says it stands; a finished run is only shown again."""
    record = store.record(run_id)
    if record.status.is_final:
        return record
    spec = _spec_from_json(store.spec(record.run_id))
    return _run(record, prepare(spec, seed=record.seed, folder=store.folder), store, observer)


def _run(record: RunRecord, prepared: Prepared, store: Store, observer: Observer) -> RunRecord:
    with ExitStack() as leaving:
        if isinstance(prepared.setting.cloud, JobCloud):
            leaving.callback(prepared.setting.cloud.close)
        return _engine(record, prepared, store, observer).run()


def _engine(record: RunRecord, prepared: Prepared, store: Store, observer: Observer) -> Engine:
    return Engine(
        run_id=record.run_id,
        problem=record.problem,
        cloud=prepared.setting.cloud,
        strategy=prepared.strategy,
        store=store,
        parallel=record.parallel,
        naive=prepared.setting.naive,
        observer=observer,
    )


def _anchored(spec: TrainSpec) -> TrainSpec:
    """A folder named from here, so that the run can be resumed from anywhere."""
    kind, _, folder = spec.resources.infra.partition("/")
    if kind != "replay":
        return spec
    return with_overrides(spec, on=f"replay/{Path(folder).expanduser().resolve()}")


def _spec_to_json(spec: TrainSpec, now: datetime) -> dict[str, Any]:
    file = str(Path(spec.file).resolve()) if spec.file and spec.workdir else spec.file  # resumed from anywhere
    return {"source": spec.source, "file": file, "overrides": dict(spec.overrides), "now": now.isoformat()}


def _spec_from_json(data: Mapping[str, Any]) -> TrainSpec:
    now = datetime.fromisoformat(data["now"])
    return parse_train(data["source"], file=data["file"], now=now, flags=data["overrides"])
