"""The serving job: from a model or a job file to a run, and from a stored run back to work."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mlcd.clouds.serving import LocalServing
from mlcd.engine.serving import ServingEngine
from mlcd.errors import BadInput, ProviderError, nearest
from mlcd.events import Observer, ignore
from mlcd.jobs.served_model import ServedModel, read_model
from mlcd.jobs.serving_space import SERVING_TRIAL, verification_seconds, work
from mlcd.known import Known
from mlcd.known.cpu import cpu, cpu_noise
from mlcd.known.resemblance import resemblance
from mlcd.problem import Problem
from mlcd.profiler.load import LoadTest
from mlcd.search.registry import strategy
from mlcd.search.strategy import Strategy
from mlcd.spec.serve import ServeSpec
from mlcd.spec.serving import parse_serve
from mlcd.store.serving_codec import serving_to_json
from mlcd.store.store import Store, home
from mlcd.trial.outcome import Status
from mlcd.trial.record import RunRecord, ServingFacts
from mlcd.version import __version__

REQUESTS = 1e6
"""What plans are made for: a million requests."""
PRICES_DATE = "nominal"


@dataclass(frozen=True, kw_only=True)
class PreparedServing:
    """A job resolved against this machine: all that a run needs."""

    problem: Problem
    cloud: LocalServing
    strategy: Strategy
    test: LoadTest
    facts: ServingFacts


def prepare(spec: ServeSpec, *, seed: int = 0, folder: Path | None = None) -> PreparedServing:
    """Read the model, look up what is known, lay out the space. Raises BadInput, SpecError; spends nothing."""
    if spec.resources.infra != "local":
        raise _elsewhere(spec)
    model = read_model(spec)
    space, prices, notes = work(spec, model)
    noise = cpu_noise() if spec.search.noise is None else spec.search.noise
    known = _known()
    problem = Problem(
        name=spec.name,
        work_samples=REQUESTS,
        space=space,
        goal=spec.goal,
        usd_per_hour=prices,
        trial=spec.search.trial.over(SERVING_TRIAL),
        max_trials=spec.search.max_trials,
        noise=noise,
        verify_seconds=verification_seconds(spec),
    )
    facts = ServingFacts(
        model=str(model.path),
        scenario=str(spec.scenario),
        headroom=spec.load.headroom,
        verify_seconds=spec.load.verify_seconds,
        resemblance=resemblance(known, model.target) if known is not None and model.target is not None else None,
        notes=notes,
    )
    return PreparedServing(
        problem=problem,
        cloud=LocalServing(model.path, home=folder or home(), noise=noise, sizes=spec.sizes),
        strategy=_strategy(spec, seed, known, model),
        test=LoadTest(
            inputs=model.inputs,
            scenario=spec.scenario,
            slo=spec.goal.slo,
            rate=spec.goal.rate,
            headroom=spec.load.headroom,
            verify_seconds=spec.load.verify_seconds,
            seed=seed,
        ),
        facts=facts,
    )


def serve(spec: ServeSpec, *, store: Store, seed: int = 0, observer: Observer = ignore) -> RunRecord:
    """Search, choose, verify; everything is in the store. Raises what `prepare` raises, StoreError, Interrupted."""
    prepared = prepare(spec, seed=seed, folder=store.folder)
    return serve_prepared(spec, prepared, store=store, seed=seed, observer=observer)


def serve_prepared(
    spec: ServeSpec, prepared: PreparedServing, *, store: Store, seed: int = 0, observer: Observer = ignore
) -> RunRecord:
    """`serve` of a job that was prepared for this store's folder."""
    now = datetime.now(UTC)
    record = RunRecord(
        run_id=f"{spec.name}-{secrets.token_hex(3)}",
        created=now.isoformat(timespec="seconds"),
        cloud=prepared.cloud.name,
        simulated=False,
        strategy=spec.search.strategy,
        seed=seed,
        parallel=1,
        version=__version__,
        catalog_date=PRICES_DATE,
        problem=prepared.problem,
        status=Status.RUNNING,
        kind="serve",
        serving=prepared.facts,
    )
    store.add_run(record, kind="serve", spec=_spec_to_json(spec, prepared.facts, now))
    return _engine(record, prepared, store, observer).run()


def resume(run_id: str, *, store: Store, observer: Observer = ignore) -> RunRecord:
    """Go on with a run from where the store says it stands; a finished run is only shown again."""
    record = store.record(run_id)
    if record.status.is_final:
        return record
    spec = _spec_from_json(store.spec(record.run_id))
    return _engine(record, prepare(spec, seed=record.seed, folder=store.folder), store, observer).run()


def _engine(record: RunRecord, prepared: PreparedServing, store: Store, observer: Observer) -> ServingEngine:
    return ServingEngine(
        run_id=record.run_id,
        problem=record.problem,
        cloud=prepared.cloud,
        strategy=prepared.strategy,
        store=store,
        observer=observer,
        test=prepared.test,
    )


def _known() -> Known | None:
    """What was measured beforehand on machines like this one."""
    return cpu()


def _strategy(spec: ServeSpec, seed: int, known: Known | None, model: ServedModel) -> Strategy:
    """The job's strategy. Raises SpecError at the place where it was named."""
    try:
        return strategy(spec.search.strategy, seed=seed, known=known, target=model.target)
    except BadInput as error:
        raise spec.error("search.strategy", str(error).removeprefix("search.strategy: ")) from error


def _elsewhere(spec: ServeSpec) -> Exception:
    infra = spec.resources.infra
    problem = "a model is served on the machine that mlcd runs on, in this version"
    near = nearest(infra.lower(), ("local",))
    error = spec.error("resources.infra", problem, value=infra, allowed="local", nearest=near)
    return error if near or "/" not in infra else ProviderError(str(error))


def _spec_to_json(spec: ServeSpec, facts: ServingFacts, now: datetime) -> dict[str, Any]:
    file = str(Path(spec.file or "job.yaml").resolve())  # also without a file its paths are seen from here, later
    said = {"overrides": dict(spec.overrides), "now": now.isoformat(), "serving": serving_to_json(facts)}
    return {"source": spec.source, "file": file, **said}


def _spec_from_json(data: Mapping[str, Any]) -> ServeSpec:
    now, flags = datetime.fromisoformat(data["now"]), data.get("overrides")  # once, the source said what flags said
    return parse_serve(data["source"], file=data["file"] or "job.yaml", now=now, flags=flags)
