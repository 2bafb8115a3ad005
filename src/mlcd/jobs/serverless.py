"""The job of training on functions: from a job file to a run, and from a stored run back to work."""

import math
import secrets
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mlcd.catalog import load_catalog
from mlcd.catalog.functions import DEFAULT_PRICES, FunctionPrices, all_function_prices, function_prices
from mlcd.clouds.functions.lithops.call import Sync
from mlcd.clouds.functions.lithops.cloud import LithopsCloud, Workload
from mlcd.clouds.functions.provider import FunctionCloud
from mlcd.clouds.functions.sim import SimFunctionCloud
from mlcd.clouds.functions.sim.workloads import SimWorkload
from mlcd.clouds.functions.sim.workloads import workload as simulated_workload
from mlcd.engine.epochs import EpochEngine
from mlcd.epoch_ledger import EpochLedger
from mlcd.errors import BadInput, ProviderError, nearest
from mlcd.events import EpochObserver, ignore_epochs
from mlcd.functions import FunctionProblem
from mlcd.jobs.function_data import module, samples
from mlcd.jobs.plain_instances import plain_instances
from mlcd.schedulers.registry import scheduler
from mlcd.schedulers.scheduler import Scheduler
from mlcd.spec.functions import DEFAULT_BATCH, parse_serverless
from mlcd.spec.serverless import ServerlessSpec
from mlcd.store.epochs import EpochBook
from mlcd.store.store import Store, home
from mlcd.trial.epoch import Epoch
from mlcd.trial.outcome import Status
from mlcd.trial.serverless import PlainInstance, ServerlessRecord
from mlcd.version import __version__
from mlcd.workloads.data import Samples
from mlcd.workloads.model import BUILT_IN

BACK_ENDS = {"localhost": DEFAULT_PRICES, "aws_lambda": DEFAULT_PRICES, "gcp_functions": "google-functions"}
"""Lithops' back ends that we have prices for, and which."""
SIMULATED = "sim/lambda"
ALLOWED = f"lithops/localhost, lithops/aws_lambda, {SIMULATED}"
AS_SIMULATED = {"logistic": "linear-ctr", "lenet": "lenet-mnist", "text-cnn": "cnn-movie-review"}
"""The simulated workload that is most like a built-in model."""
LONGEST_LOCAL_SECONDS = 1800.0
"""No epoch on this machine is let run longer."""
POLLS_PER_STEP = 60
DRIVER_PUTS, DRIVER_GETS = 16, 8
"""What mlcd itself asks of the storage in an epoch, counted as a function's, which is too much where there are many."""


@dataclass(frozen=True, kw_only=True)
class PreparedTraining:
    """A job resolved: the problem, and all that is needed to run it; nothing is connected to yet."""

    problem: FunctionProblem
    scheduler: Scheduler
    simulated: bool
    charged: bool
    workload: Workload | None = None
    laws: SimWorkload | None = None


def prepare(spec: ServerlessSpec, *, seed: int = 0) -> PreparedTraining:
    """Names become prices, data and a problem. Raises SpecError, BadInput, ProviderError; spends nothing."""
    infra = spec.resources.infra
    try:
        chosen = scheduler(spec.search.strategy, seed=seed)
    except BadInput as error:
        raise spec.error("search.strategy", str(error).removeprefix("search.strategy: ")) from error
    if infra == SIMULATED:
        laws = _simulated(spec)
        problem = _simulated_problem(spec, laws)
        return _tried(PreparedTraining(problem=problem, scheduler=chosen, simulated=True, charged=False, laws=laws))
    backend = _backend(spec)
    code, found = module(spec), samples(spec)
    workload = Workload(
        model=spec.workload.model,
        samples=found,
        rate=_rate(spec),
        sync=Sync(spec.sync),
        seed=seed,
        pushes=spec.search.pushes,
        fan_in=spec.search.fan_in,
        module=code,
    )
    problem = _real_problem(spec, found, backend)
    return _tried(
        PreparedTraining(
            problem=problem, scheduler=chosen, simulated=False, charged=backend != "localhost", workload=workload
        )
    )


def _tried(prepared: PreparedTraining) -> PreparedTraining:
    """As it is, once its scheduler has decided something: one that cannot is refused before there is a run."""
    prepared.scheduler.decide(prepared.problem, (), EpochLedger(problem=prepared.problem).left())
    return prepared


def train(
    spec: ServerlessSpec, *, store: Store, seed: int = 0, observer: EpochObserver = ignore_epochs
) -> ServerlessRecord:
    """To the target loss inside the limits, all of it in the store. Raises as `prepare`, StoreError, Interrupted."""
    prepared = prepare(spec, seed=seed)
    now = datetime.now(UTC)
    with ExitStack() as leaving:
        cloud = connect(spec, prepared, folder=store.folder, seed=seed, leaving=leaving)
        record = ServerlessRecord(
            run_id=f"{spec.name}-{secrets.token_hex(3)}",
            created=now.isoformat(timespec="seconds"),
            cloud=cloud.name,
            simulated=cloud.simulated,
            strategy=spec.search.strategy,
            seed=seed,
            version=__version__,
            sync=spec.sync,
            model=spec.workload.model,
            problem=prepared.problem,
            status=Status.RUNNING,
        )
        book = EpochBook(store)
        book.add_run(record, spec=_spec_to_json(spec, now))
        return _engine(record, prepared, cloud, book, observer).run()


def resume(run_id: str, *, store: Store, observer: EpochObserver = ignore_epochs) -> ServerlessRecord:
    """Go on with a run from where the store says it stands; a finished run is only shown again."""
    book = EpochBook(store)
    record = book.record(run_id)
    if record.status.is_final:
        return record
    spec = _spec_from_json(store.spec(record.run_id))
    prepared = replace(prepare(spec, seed=record.seed), problem=record.problem)
    with ExitStack() as leaving:
        cloud = connect(spec, prepared, folder=store.folder, seed=record.seed, leaving=leaving)
        return _engine(record, prepared, cloud, book, observer).run()


def connect(
    spec: ServerlessSpec, prepared: PreparedTraining, *, folder: Path | None, seed: int, leaving: ExitStack
) -> FunctionCloud:
    """The cloud that the job names; `leaving` closes it. Raises ProviderError where it cannot be used."""
    if prepared.laws is not None:
        return SimFunctionCloud(problem=prepared.problem, laws=prepared.laws.laws, seed=seed)
    if prepared.workload is None:
        raise ValueError("a job on real functions has a workload")
    cloud = LithopsCloud(
        backend=_backend(spec),
        problem=prepared.problem,
        workload=prepared.workload,
        folder=(folder or home()) / "functions",
        settings=_settings(spec),
    )
    leaving.callback(cloud.close)
    return cloud


def _engine(
    record: ServerlessRecord,
    prepared: PreparedTraining,
    cloud: FunctionCloud,
    book: EpochBook,
    observer: EpochObserver,
) -> EpochEngine:
    return EpochEngine(
        run_id=record.run_id,
        problem=record.problem,
        cloud=cloud,
        scheduler=prepared.scheduler,
        book=book,
        observer=observer,
        compare=_compared,
    )


def _compared(epochs: tuple[Epoch, ...]) -> Sequence[PlainInstance]:
    return plain_instances(epochs, load_catalog())


# ---- where


def _backend(spec: ServerlessSpec) -> str:
    infra = spec.resources.infra
    kind, _, rest = infra.partition("/")
    if kind == "lithops" and rest in BACK_ENDS:
        return rest
    near = nearest(infra.lower(), [*(f"lithops/{name}" for name in BACK_ENDS), SIMULATED])
    if kind == "lithops" and rest:
        problem = f"Lithops' back end {rest!r} has no prices here"
        raise ProviderError(str(spec.error("resources.infra", problem, value=infra, allowed=ALLOWED, nearest=near)))
    raise spec.error("resources.infra", "functions do not run there", value=infra, allowed=ALLOWED, nearest=near)


def _prices(spec: ServerlessSpec, usual: str) -> FunctionPrices:
    name = spec.resources.prices or usual
    try:
        prices = function_prices(name)
    except BadInput as error:
        known = all_function_prices()
        raise spec.error(
            "resources.prices",
            "no such table",
            value=name,
            allowed=", ".join(known),
            nearest=nearest(name, list(known)),
        ) from error
    for size in spec.memory_mb:
        if not prices.offers(size):
            problem = f"{prices.name} has no functions of this size"
            raise spec.error("memory", problem, value=size, allowed=prices.sizes_in_words)
    return prices


def _settings(spec: ServerlessSpec) -> Mapping[str, Any]:
    """The user's own configuration file of Lithops, as data."""
    if not spec.resources.settings:
        return {}
    import yaml  # noqa: PLC0415 - only where such a file is named

    path = Path(spec.resources.settings).expanduser()
    own = Path(spec.file).parent / path if spec.file and not path.is_absolute() else path
    try:
        found = yaml.safe_load(own.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise spec.error("resources.settings", f"cannot be read: {error}", value=spec.resources.settings) from error
    if not isinstance(found, dict):
        raise spec.error("resources.settings", "is no configuration of Lithops", value=spec.resources.settings)
    return found


# ---- what


def _rate(spec: ServerlessSpec) -> float:
    known = BUILT_IN.get(spec.workload.model)
    if spec.workload.rate is not None:
        return spec.workload.rate
    if known is None:
        raise spec.error(
            "workload.rate", "is missing: your own model has no usual one", allowed="a number, such as 0.1"
        )
    return known.rate


def _real_problem(spec: ServerlessSpec, found: Samples, backend: str) -> FunctionProblem:
    prices = _prices(spec, BACK_ENDS[backend])
    batch, most = spec.workload.batch or DEFAULT_BATCH, spec.functions[-1]
    if most > found.train_rows:
        problem = f"more functions than the {found.train_rows:,} rows to train on"
        raise spec.error("functions", problem, value=most, allowed=f"at most {found.train_rows:,}")
    puts, gets = _requests(spec, found.train_rows, batch)
    known = BUILT_IN.get(spec.workload.model)
    limit = prices.limit_seconds if spec.search.limit_seconds is None else spec.search.limit_seconds
    if limit > prices.limit_seconds:
        problem = f"a call on {prices.name} ends after {prices.limit_seconds:g} s"
        raise spec.error("search.limit", problem, value=f"{limit:g} s", allowed=f"at most {prices.limit_seconds:g} s")
    longest = LONGEST_LOCAL_SECONDS if backend == "localhost" else 6 * 3600.0
    return FunctionProblem(
        name=spec.name,
        functions=spec.functions,
        memory_mb=spec.memory_mb,
        samples=found.train_rows,
        batch=batch,
        model_bytes=4 * known.parameters if known else 0,
        target_loss=spec.workload.target_loss if spec.workload.target_loss is not None else -math.inf,
        max_epochs=spec.workload.max_epochs,
        goal=spec.goal,
        prices=prices,
        limit_seconds=limit,
        puts_per_function=puts,
        gets_per_function=gets,
        repeat_share=spec.search.repeats,
        longest_epoch_seconds=longest,
    )


def _requests(spec: ServerlessSpec, rows: int, batch: int) -> tuple[int, int]:
    """(puts and listings, gets) that one function makes in an epoch at most; twice that, for a shard in two calls.

    A function puts its part and lists the others' `pushes` times, or at every step (BSP, with polls); it reads its
    data, the parameters and the parts of its neighbours; who closes the epoch reads all parts once more.
    """
    most, search = spec.functions[-1], spec.search
    steps = math.ceil(rows / batch) + 1
    pushes = min(search.pushes, steps) + 1
    if spec.sync == "bsp":
        puts, gets = steps * (2 + POLLS_PER_STEP), steps * (most - 1)
    else:
        puts, gets = 2 * pushes, pushes * min(search.fan_in, most - 1)
    rounds = 4 if spec.sync == "asp" else 1
    return 2 * rounds * (puts + 3) + DRIVER_PUTS, 2 * rounds * (gets + 7) + most + DRIVER_GETS


def _simulated(spec: ServerlessSpec) -> SimWorkload:
    name = spec.workload.model
    if ":" in name:
        problem = "a simulated cloud cannot run your own model"
        raise spec.error("workload.model", problem, value=name, allowed=", ".join(AS_SIMULATED))
    try:
        return simulated_workload(AS_SIMULATED.get(name, name))
    except BadInput as error:
        problem = "the simulator knows no such workload"
        allowed = ", ".join((*AS_SIMULATED, "paper", "toy"))
        raise spec.error(
            "workload.model",
            problem,
            value=name,
            allowed=allowed,
            nearest=nearest(name, [*AS_SIMULATED, "paper", "toy"]),
        ) from error


def _simulated_problem(spec: ServerlessSpec, laws: SimWorkload) -> FunctionProblem:
    base = laws.problem(spec.goal)
    target = spec.workload.target_loss
    usual = DEFAULT_PRICES if spec.workload.model in AS_SIMULATED else laws.prices
    return FunctionProblem(
        name=spec.name,
        functions=spec.functions if "functions" in spec.places else base.functions,
        memory_mb=spec.memory_mb if "memory" in spec.places else base.memory_mb,
        samples=base.samples,
        batch=base.batch if spec.workload.batch is None else spec.workload.batch,
        model_bytes=base.model_bytes,
        target_loss=base.target_loss if target is None else target,
        max_epochs=spec.workload.max_epochs,
        goal=spec.goal,
        prices=_prices(spec, usual) if "memory" in spec.places or spec.resources.prices else base.prices,
        limit_seconds=base.limit_seconds,
        puts_per_function=base.puts_per_function,
        gets_per_function=base.gets_per_function,
        repeat_share=base.repeat_share,
        longest_epoch_seconds=base.longest_epoch_seconds,
    )


def _spec_to_json(spec: ServerlessSpec, now: datetime) -> dict[str, Any]:
    file = str(Path(spec.file or "job.yaml").resolve())  # also without a file its paths are seen from here, later
    return {"source": spec.source, "file": file, "overrides": dict(spec.overrides), "now": now.isoformat()}


def _spec_from_json(data: Mapping[str, Any]) -> ServerlessSpec:
    now, flags = datetime.fromisoformat(data["now"]), data.get("overrides")  # once, the source said what flags said
    return parse_serverless(data["source"], file=data["file"] or "job.yaml", now=now, flags=flags)
