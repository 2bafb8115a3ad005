"""The serverless job: from a job file to all that a run needs."""

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mlcd.catalog import load_catalog
from mlcd.catalog.functions import DEFAULT_PRICES, FunctionPrices, all_function_prices, function_prices
from mlcd.clouds.functions.lithops.call import Sync
from mlcd.clouds.functions.lithops.cloud import FunctionWorkload, LithopsCloud
from mlcd.clouds.functions.sim import SimFunctionCloud
from mlcd.clouds.functions.sim.workloads import SimWorkload
from mlcd.clouds.functions.sim.workloads import workload as simulated_workload
from mlcd.deciders.epochs import EpochDecider, first_fleet
from mlcd.engine.epochs import EpochPerformer
from mlcd.errors import BadInput, ProviderError, SpecError, nearest
from mlcd.functions import FunctionProblem
from mlcd.jobs.earlier_trainings import earlier_trainings, epochs_of, learning_notes, prior_of
from mlcd.jobs.function_data import module, samples
from mlcd.jobs.plain_instances import plain_instances
from mlcd.jobs.prepared import Prepared
from mlcd.models.epochs import PRIOR, EpochPrior
from mlcd.plugins import check_methods, check_object, is_object_name, object_missing, object_name
from mlcd.run.header import FunctionFacts
from mlcd.run.kind import Kind
from mlcd.run.verdict import PlainInstance
from mlcd.schedulers.registry import learns_from_runs, scheduler
from mlcd.schedulers.scheduler import Scheduler
from mlcd.spec.document import document, read_text
from mlcd.spec.functions import DEFAULT_BATCH, parse_serverless, with_function_flags
from mlcd.spec.serverless import ServerlessSpec
from mlcd.store.store import home
from mlcd.trial.epoch import Epoch
from mlcd.workloads.data import Samples
from mlcd.workloads.model import BUILT_IN

BACK_ENDS = {"localhost": DEFAULT_PRICES, "aws_lambda": DEFAULT_PRICES, "gcp_functions": "google-functions"}
"""Lithops' back ends with known prices -> the price table."""
SIMULATED_INFRA = "sim/lambda"
ALLOWED_INFRA = f"lithops/localhost, lithops/aws_lambda, {SIMULATED_INFRA}"
SIMULATED_WORKLOADS = {"logistic": "linear-ctr", "lenet": "lenet-mnist", "text-cnn": "cnn-movie-review"}
"""The simulated workload most similar to each built-in model."""
LONGEST_LOCAL_SECONDS = 1800.0
"""Limit of one epoch on this machine."""
POLLS_PER_STEP = 60
DRIVER_PUTS, DRIVER_GETS = 16, 8
"""Storage requests of mlcd itself in an epoch; added to each function's, which overestimates large fleets."""


def prepare(
    spec: ServerlessSpec,
    *,
    seed: int = 0,
    folder: Path | None = None,
    strategy: Scheduler | None = None,
    earlier: tuple[str, ...] | None = None,
    fresh: bool = False,
) -> Prepared[FunctionProblem]:
    """Names become prices, data and a problem. Raises SpecError, BadInput, ProviderError; spends nothing.

    folder    the store of earlier runs, and the objects of functions on this machine (None: $MLCD_HOME)
    strategy  an object instead of the scheduler that the job names; see `with_scheduler`
    earlier   runs that the scheduler may learn from; None: those in the store that trained the same model and data
    fresh     whether earlier runs are ignored
    """
    spec = with_scheduler(spec, strategy)
    try:
        return _prepared(spec, seed, folder or home(), strategy, () if fresh else earlier)
    except SpecError:
        raise
    except BadInput as error:  # of the problem or the scheduler: it names the field, the job knows its line
        field, colon, reason = str(error).partition(": ")
        raise spec.error(field, reason) if colon else error from error


def _prepared(
    spec: ServerlessSpec, seed: int, folder: Path, strategy: Scheduler | None, earlier: tuple[str, ...] | None
) -> Prepared[FunctionProblem]:
    laws, workload, backend = None, None, ""
    if spec.resources.infra == SIMULATED_INFRA:
        laws = _simulated(spec)
        problem = _simulated_problem(spec, laws)
    else:
        backend = _backend(spec)
        code, found = module(spec), samples(spec)
        workload = FunctionWorkload(
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
    facts = FunctionFacts(model=spec.workload.model, sync=spec.sync)
    if strategy is not None or not learns_from_runs(spec.search.strategy):
        earlier = ()
    if earlier is None:
        earlier = earlier_trainings(folder, spec.resources.infra, facts, problem)
    facts = replace(facts, earlier=earlier)
    prior = prior_of(epochs_of(folder, earlier), problem)
    chosen = strategy or _scheduler(spec, seed, prior)
    first_fleet(problem, chosen)  # refuse a scheduler that cannot serve the goal before a run exists
    now = datetime.now(UTC)

    def connect(problem: FunctionProblem, leaving: ExitStack) -> EpochPerformer:
        if laws is not None:
            return EpochPerformer(cloud=SimFunctionCloud(problem=problem, laws=laws.laws, seed=seed))
        return EpochPerformer(cloud=_lithops(spec, problem, workload, folder, leaving))

    return Prepared(
        kind=Kind.SERVERLESS,
        name=spec.name,
        problem=problem,
        decider=EpochDecider(scheduler=chosen, compare=_compared, prior=prior or PRIOR, explains=True),
        connect=connect,
        cloud=spec.resources.infra,
        simulated=laws is not None,
        charged=laws is None and backend != "localhost",
        strategy=spec.search.strategy,
        seed=seed,
        catalog_date=problem.prices.date.isoformat(),
        spec=_spec_to_json(spec, now),
        notes=(*_ignored_notes(spec), *learning_notes(folder, earlier, now)),
        functions=facts,
        now=now,
    )


def with_scheduler(spec: ServerlessSpec, strategy: Scheduler | None) -> ServerlessSpec:
    """The job as it is recorded with a scheduler object: its name is `python:module:Class`. Raises BadInput."""
    check_methods(strategy, ("decide", "ending", "smallest_budget"), argument="strategy")
    return spec if strategy is None else with_function_flags(spec, {"strategy": object_name(strategy)}, mark="")


def check_scheduler(spec: ServerlessSpec, strategy: Scheduler | None = None) -> None:
    """Raises BadInput if the recorded job cannot continue with this object, or without one."""
    check_object(spec.search.strategy, strategy, argument="strategy")


def _scheduler(spec: ServerlessSpec, seed: int, prior: EpochPrior | None) -> Scheduler:
    text = spec.search.strategy
    if is_object_name(text):
        raise spec.error("search.strategy", object_missing(text, argument="strategy"))
    try:
        return scheduler(text, seed=seed, prior=prior)
    except BadInput as error:
        raise spec.error("search.strategy", str(error).removeprefix("search.strategy: ")) from error


def _lithops(
    spec: ServerlessSpec, problem: FunctionProblem, workload: FunctionWorkload | None, folder: Path, leaving: ExitStack
) -> LithopsCloud:
    """The Lithops cloud. Raises ProviderError if it cannot be used."""
    if workload is None:
        raise ValueError("a job on real functions has a workload")
    cloud = LithopsCloud(
        backend=_backend(spec),
        problem=problem,
        workload=workload,
        folder=folder / "functions",
        settings=_settings(spec),
    )
    leaving.callback(cloud.close)
    return cloud


def _compared(epochs: tuple[Epoch, ...]) -> Sequence[PlainInstance]:
    return plain_instances(epochs, load_catalog())


# ---- where


def _backend(spec: ServerlessSpec) -> str:
    infra = spec.resources.infra
    kind, _, rest = infra.partition("/")
    if kind == "lithops" and rest in BACK_ENDS:
        return rest
    near = nearest(infra.lower(), [*(f"lithops/{name}" for name in BACK_ENDS), SIMULATED_INFRA])
    if kind == "lithops" and rest:
        problem = f"Lithops' back end {rest!r} has no prices here"
        raise ProviderError(
            str(spec.error("resources.infra", problem, value=infra, allowed=ALLOWED_INFRA, nearest=near))
        )
    raise spec.error("resources.infra", "functions do not run there", value=infra, allowed=ALLOWED_INFRA, nearest=near)


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
    path = spec.path("resources.settings", spec.resources.settings)
    own = Path(spec.file).parent / path if spec.file and not path.is_absolute() else path
    try:
        found = document(read_text(own), file=str(own)).plain()
    except SpecError as error:
        raise spec.error("resources.settings", str(error), value=spec.resources.settings) from error
    if not isinstance(found, dict):
        raise spec.error("resources.settings", "is not a configuration of Lithops", value=spec.resources.settings)
    return found


# ---- what


def _rate(spec: ServerlessSpec) -> float:
    known = BUILT_IN.get(spec.workload.model)
    if spec.workload.rate is not None:
        return spec.workload.rate
    if known is None:
        raise spec.error("workload.rate", "is missing: your own model has no default", allowed="a number, such as 0.1")
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
    """(puts and listings, gets): the most that one function makes in an epoch; doubled, for a shard in two calls.

    A function puts its part and lists the others' `pushes` times, or at every step (BSP, with polls); it reads its
    data, the parameters and the parts of its neighbours; the one that closes the epoch reads all parts once more.
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
        raise spec.error("workload.model", problem, value=name, allowed=", ".join(SIMULATED_WORKLOADS))
    try:
        return simulated_workload(SIMULATED_WORKLOADS.get(name, name))
    except BadInput as error:
        problem = "the simulator knows no such workload"
        allowed = ", ".join((*SIMULATED_WORKLOADS, "paper", "toy"))
        raise spec.error(
            "workload.model",
            problem,
            value=name,
            allowed=allowed,
            nearest=nearest(name, [*SIMULATED_WORKLOADS, "paper", "toy"]),
        ) from error


def _ignored_notes(spec: ServerlessSpec) -> tuple[str, ...]:
    """That a simulated training reads no data."""
    is_ignored = spec.resources.infra == SIMULATED_INFRA and bool(spec.workload.data)
    return (f"{SIMULATED_INFRA} reads no data: workload.data is ignored",) if is_ignored else ()


def _simulated_problem(spec: ServerlessSpec, laws: SimWorkload) -> FunctionProblem:
    base = laws.problem(spec.goal)
    target = spec.workload.target_loss
    usual = DEFAULT_PRICES if spec.workload.model in SIMULATED_WORKLOADS else laws.prices
    return FunctionProblem(
        name=spec.name,
        functions=spec.functions if "functions" in spec.places else base.functions,
        memory_mb=spec.memory_mb if "memory" in spec.places else base.memory_mb,
        samples=base.samples,
        batch=base.batch if spec.workload.batch is None else spec.workload.batch,
        model_bytes=base.model_bytes,
        target_loss=base.target_loss if target is None else target,
        first_loss=base.first_loss,
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
    file = str(Path(spec.file or "job.yaml").resolve())  # without a file, paths are relative to the current folder
    return {"source": spec.source, "file": file, "overrides": dict(spec.overrides), "now": now.isoformat()}


def stored_spec(data: Mapping[str, Any]) -> ServerlessSpec:
    """The job of a stored run."""
    now, flags = (
        datetime.fromisoformat(data["now"]),
        data.get("overrides"),
    )  # older versions stored the flags in the source
    return parse_serverless(data["source"], file=data["file"] or "job.yaml", now=now, flags=flags)
