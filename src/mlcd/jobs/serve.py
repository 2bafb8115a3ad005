"""The serving job: from a model or a job file to all that a run needs."""

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mlcd.catalog import load_catalog
from mlcd.clouds.busy import busy_notes
from mlcd.clouds.serving import LocalServing
from mlcd.clouds.serving.local import ServersHere
from mlcd.clouds.serving.on_nodes import NodeServing
from mlcd.deciders.search import SearchDecider
from mlcd.deciders.verification import VerificationDecider
from mlcd.engine.serving import LoadTestPerformer
from mlcd.errors import BadInput
from mlcd.extras import require
from mlcd.gpus import find_gpus
from mlcd.jobs.gpu_space import gpu_for, gpu_work
from mlcd.jobs.language_knowledge import STRATEGIES as LANGUAGE_STRATEGIES
from mlcd.jobs.language_knowledge import language_knowledge, machine_here, machines_of, model_sizes
from mlcd.jobs.load_files import day_rates
from mlcd.jobs.prepared import Prepared
from mlcd.jobs.run_script import missing_program
from mlcd.jobs.serve_command import COMMAND_TRIAL, command_job
from mlcd.jobs.serve_nodes import Leasable, leasable, verifiable_notes
from mlcd.jobs.served_model import read_model
from mlcd.jobs.serving_space import SERVING_TRIAL, START_STOP_SECONDS, verification_seconds, work, work_on_nodes
from mlcd.known import Known, TargetModel
from mlcd.known.cpu import cpu, cpu_noise
from mlcd.known.gpus import Machine
from mlcd.known.h200 import known_on_gpu
from mlcd.known.language_models import TokenLengths
from mlcd.known.resemblance import resemblance
from mlcd.plugins import check_methods, check_object, is_object_name, object_missing, object_name
from mlcd.problem import Problem, TrialPolicy
from mlcd.profiler.load import LoadTest, ServerTest
from mlcd.run.header import CHAT, ServingFacts
from mlcd.run.kind import Kind
from mlcd.search.registry import strategy as strategy_by_name
from mlcd.search.serving.per_replica import PerReplica
from mlcd.search.strategy import Strategy
from mlcd.server.options import Engine, engine_of
from mlcd.spec.serve import Api, ServerCommand, ServeSpec
from mlcd.spec.serving import parse_serve, with_flags
from mlcd.spec.serving_checks import GPU_SHARE
from mlcd.store.store import home

REQUESTS_PER_PLAN = 1e6
"""A plan of serving is for a million requests."""
PRICES_DATE = "nominal"
TABLES_STRATEGY = "falcon-transfer"
"""The default where other models were measured on the same kind of machine."""


@dataclass(frozen=True, kw_only=True)
class PreparedServing(Prepared[Problem]):
    """A serving job resolved against this machine.

    server  how servers are started, including the one that `--deploy` leaves running on this machine
    test    how they are loaded
    nodes   that are leased for them; None: this machine
    """

    server: ServersHere
    test: ServerTest
    nodes: Leasable | None = None


def prepare(
    spec: ServeSpec,
    *,
    seed: int = 0,
    folder: Path | None = None,
    strategy: Strategy | None = None,
    earlier: tuple[str, ...] | None = None,
) -> PreparedServing:
    """Read the model, look up known models, build the space. Raises BadInput, SpecError, MissingExtra; spends nothing.

    strategy  an object instead of the strategy that the job names; see `with_strategy`
    earlier   runs of other language models that the strategy may learn from; None: those in the store
    """
    spec = with_strategy(spec, strategy)
    nodes = leasable(spec, folder or home())
    if spec.server is not None:
        place = folder or home()
        return _prepare_command(
            spec, spec.server, seed=seed, folder=place, strategy=strategy, nodes=nodes, earlier=earlier
        )
    is_torch = engine_of(Path(spec.model)) is Engine.PYTORCH
    require("serve-torch" if is_torch else "serve", "mlcd serve")
    model = read_model(spec)
    gpu = gpu_for(spec, model) if nodes is None else None
    if nodes is not None:
        space, prices, notes = work_on_nodes(spec, model, nodes)
    else:
        space, prices, notes = work(spec, model) if gpu is None else gpu_work(spec, model, gpu)
    usual_noise = cpu_noise() if nodes is None else nodes.engine.noise
    noise = usual_noise if spec.search.noise is None else spec.search.noise
    known = known_on_gpu(gpu) if gpu is not None else None if is_torch else _known()
    if gpu is not None and known is not None and model.target is not None and "search.strategy" not in spec.places:
        spec = replace(spec, search=replace(spec.search, strategy=TABLES_STRATEGY))
    trial = spec.search.trial.over(SERVING_TRIAL if nodes is None else nodes.trial)
    problem = Problem(
        name=spec.name,
        work_samples=REQUESTS_PER_PLAN,
        space=space,
        goal=spec.goal,
        usd_per_hour=prices,
        lease_usd_per_hour=() if nodes is None else nodes.lease_prices(space, prices),
        trial=trial,
        max_trials=spec.search.max_trials,
        noise=noise,
        verify_seconds=_verification_seconds(spec, nodes, trial),
        scales_out=_scales_out(spec, nodes),
    )
    facts = ServingFacts(
        model=str(model.path),
        scenario=str(spec.scenario),
        headroom=spec.load.headroom,
        verify_seconds=spec.load.verify_seconds,
        from_node=spec.load.from_node,
        profile=day_rates(spec),
        resemblance=resemblance(known, model.target) if known is not None and model.target is not None else None,
        notes=notes,
    )
    test = LoadTest(
        inputs=model.inputs,
        scenario=spec.scenario,
        slo=spec.goal.slo,
        rate=spec.goal.rate,
        headroom=spec.load.headroom,
        verify_seconds=spec.load.verify_seconds,
        seed=seed,
    )
    return _prepared(
        spec,
        problem=problem,
        strategy=strategy or _strategy(spec, seed, known, model.target),
        server=LocalServing(
            model.path, home=folder or home(), noise=noise, sizes=spec.sizes, inputs=spec.inputs, gpu=gpu
        ),
        test=test,
        facts=facts,
        seed=seed,
        nodes=nodes,
    )


def _verification_seconds(spec: ServeSpec, nodes: Leasable | None, trial: TrialPolicy) -> float:
    """See verification_seconds: a server that starts slowly, for which trials were made longer, has as much time."""
    usual_seconds = START_STOP_SECONDS if nodes is None else nodes.start_stop_seconds
    return verification_seconds(spec, max(usual_seconds, trial.seconds))


def _scales_out(spec: ServeSpec, nodes: Leasable | None) -> bool:
    """Whether load tests are made with the fewest nodes, and more count as so many times their rate."""
    return nodes is not None and nodes.has_choice and not spec.search.every_replica


def _prepared(
    spec: ServeSpec,
    *,
    problem: Problem,
    strategy: Strategy,
    server: ServersHere,
    test: ServerTest,
    facts: ServingFacts,
    seed: int,
    nodes: Leasable | None,
    missing: str = "",
) -> PreparedServing:
    """The job. `missing` is why its server cannot start on this machine: a note, and an error once it has to."""
    now = datetime.now(UTC)
    cloud = server if nodes is None else nodes.cloud(server, noise=problem.noise)
    if problem.scales_out:
        facts = replace(facts, notes=(*facts.notes, *verifiable_notes(problem)))

    def connect(_problem: Problem, leaving: ExitStack) -> LoadTestPerformer:
        if missing:
            raise spec.error("server.run", missing)
        if isinstance(cloud, NodeServing):
            leaving.callback(cloud.close)
        return LoadTestPerformer(cloud=cloud, test=test)

    return PreparedServing(
        kind=Kind.SERVE,
        name=spec.name,
        problem=problem,
        # Guarded for every strategy: each trial leaves room for the verification, which has to fit.
        decider=SearchDecider(
            strategy=PerReplica(inner=strategy) if problem.scales_out else strategy,
            aftermath=VerificationDecider(seconds=spec.load.verify_seconds),
            guarded=True,
        ),
        connect=connect,
        cloud=cloud.name,
        simulated=False,
        charged=nodes is not None and not nodes.is_here,
        strategy=spec.search.strategy,
        seed=seed,
        catalog_date=load_catalog().date.isoformat() if nodes is not None and nodes.is_rented else PRICES_DATE,
        spec=_spec_to_json(spec, now),
        notes=(*facts.notes, *([f"server.run {missing}"] if missing else []), *busy_notes()),
        serving=facts,
        now=now,
        server=server,
        test=test,
        nodes=nodes,
    )


def _machines(spec: ServeSpec, nodes: Leasable | None) -> dict[str, Machine]:
    """What is known of the GPUs that a command has; nothing of shares of one: no data sheet is about them."""
    if nodes is not None:
        return machines_of(nodes.instances)
    return {} if GPU_SHARE in spec.declared_knobs.names else machine_here(find_gpus())


def _prepare_command(
    spec: ServeSpec,
    command: ServerCommand,
    *,
    seed: int,
    folder: Path,
    strategy: Strategy | None,
    nodes: Leasable | None,
    earlier: tuple[str, ...] | None,
) -> PreparedServing:
    """A job whose server is a command."""
    job = command_job(spec, command, seed=seed, folder=folder, nodes=nodes)
    spec = job.spec
    trial = spec.search.trial.over(nodes.trial if nodes is not None and nodes.is_rented else COMMAND_TRIAL)
    problem = Problem(
        name=spec.name,
        work_samples=REQUESTS_PER_PLAN,
        space=job.space,
        goal=spec.goal,
        usd_per_hour=job.prices,
        lease_usd_per_hour=() if nodes is None else nodes.lease_prices(job.space, job.prices),
        trial=trial,
        max_trials=spec.search.max_trials,
        noise=job.noise,
        verify_seconds=_verification_seconds(spec, nodes, trial),
        scales_out=_scales_out(spec, nodes),
    )
    language, notes = model_sizes(job.cloud.model)
    known, target = None, None
    learnt_from: tuple[str, ...] = ()
    is_chat = command.api is Api.OPENAI
    if is_chat and strategy is None and spec.search.strategy.partition(":")[0] in LANGUAGE_STRATEGIES:
        knowledge = language_knowledge(
            problem,
            model=spec.model or command.served_name,
            language=language,
            lengths=TokenLengths(input_tokens=spec.load.input_tokens, output_tokens=spec.load.output_tokens),
            concurrency=spec.load.concurrency,
            machines=_machines(spec, nodes),
            folder=folder,
            cloud=job.cloud.name if nodes is None else nodes.engine.name,
            names=earlier,
        )
        known, target, notes = knowledge.known, knowledge.target, (*notes, *knowledge.notes)
        learnt_from = knowledge.earlier
    facts = ServingFacts(
        model=spec.model or command.served_name or spec.name,
        scenario=CHAT if is_chat else str(spec.scenario),
        headroom=spec.load.headroom,
        verify_seconds=spec.load.verify_seconds,
        from_node=spec.load.from_node,
        profile=day_rates(spec),
        language=language,
        earlier=learnt_from,
        machines=_machines(spec, nodes) if is_chat else {},
        notes=(*(nodes.notes if nodes is not None else ()), *job.notes, *notes),
    )
    return _prepared(
        spec,
        problem=problem,
        strategy=strategy or _strategy(spec, seed, known, target),
        server=job.cloud,
        test=job.test,
        facts=facts,
        seed=seed,
        nodes=nodes,
        missing="" if nodes is not None else missing_program(command.run, path=os.environ.get("PATH", "")),
    )


def with_strategy(spec: ServeSpec, strategy: Strategy | None) -> ServeSpec:
    """The job as it is recorded with a strategy object: its name is `python:module:Class`. Raises BadInput."""
    check_methods(strategy, ("suggest", "recommend", "ending"), argument="strategy")
    return spec if strategy is None else with_flags(spec, {"strategy": object_name(strategy)}, mark="")


def check_strategy(spec: ServeSpec, strategy: Strategy | None = None) -> None:
    """Raises BadInput if the recorded job cannot continue with this object, or without one."""
    check_object(spec.search.strategy, strategy, argument="strategy")


def _known() -> Known | None:
    """What was measured earlier on machines like this one."""
    return cpu()


def _strategy(spec: ServeSpec, seed: int, known: Known | None, target: TargetModel | None) -> Strategy:
    """The job's strategy. Raises SpecError at the place where it was named."""
    if is_object_name(spec.search.strategy):
        raise spec.error("search.strategy", object_missing(spec.search.strategy, argument="strategy"))
    try:
        return strategy_by_name(spec.search.strategy, seed=seed, known=known, target=target, serving=True)
    except BadInput as error:
        raise spec.error("search.strategy", str(error).removeprefix("search.strategy: ")) from error


def _spec_to_json(spec: ServeSpec, now: datetime) -> dict[str, Any]:
    file = str(Path(spec.file or "job.yaml").resolve())  # without a file, paths are relative to the current folder
    return {"source": spec.source, "file": file, "overrides": dict(spec.overrides), "now": now.isoformat()}


def stored_spec(data: Mapping[str, Any]) -> ServeSpec:
    """The job of a stored run."""
    now, flags = (
        datetime.fromisoformat(data["now"]),
        data.get("overrides"),
    )  # older versions stored the flags in the source
    return parse_serve(data["source"], file=data["file"] or "job.yaml", now=now, flags=flags)
