"""What is known of a language model before its first load test: its sizes, the GPUs, and runs of other models."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mlcd.catalog import Instance
from mlcd.errors import MlcdError
from mlcd.gpus import Gpu
from mlcd.jobs.choice import listed
from mlcd.jobs.earlier_runs import MOST_LOOKED_AT
from mlcd.known import Known, KnownModel, TargetModel
from mlcd.known.gpus import Machine, gpu_of
from mlcd.known.language_models import LanguageModel, TokenLengths, read_config
from mlcd.problem import Problem
from mlcd.run.header import CHAT
from mlcd.run.kind import Kind
from mlcd.run.run import AnyRun
from mlcd.space import Config
from mlcd.store.damage import DamagedStore
from mlcd.store.store import Store, has_store
from mlcd.trial.trial import TokenLoad
from mlcd.untrusted import Malformed

STRATEGIES = ("auto", "falcon-transfer", "roofline")
"""Those that use it."""
MOST_RUNS = 20
"""Most runs to look at, the newest first."""
MOST_OTHER_LENGTH = 2.0
"""Earlier runs whose mean prompts or answers were so many times longer or shorter tell nothing: their time went
elsewhere. Not less, because a chat template adds a few dozen tokens to a prompt."""
HERE = ""
"""Stands for the machine that mlcd runs on, where configurations have no instance type."""


@dataclass(frozen=True, kw_only=True)
class LanguageKnowledge:
    """What strategies are given, what the user is told about it, and the runs that it comes from."""

    known: Known
    target: TargetModel
    notes: tuple[str, ...]
    earlier: tuple[str, ...]


def model_sizes(model: str) -> tuple[LanguageModel | None, tuple[str, ...]]:
    """A model folder's sizes by its config.json, and a note where that cannot be used."""
    if not model or not Path(model).is_dir():
        return None, ()
    try:
        return read_config(Path(model)), ()
    except Malformed as error:
        return None, (f"the model's sizes are not used: {error}",)


def machines_of(instances: Iterable[Instance]) -> dict[str, Machine]:
    """The GPUs of instance types, as far as their data sheets are known."""
    found = {}
    for instance in instances:
        gpu = gpu_of(instance.accelerator or "")
        if gpu is not None and instance.accelerators:
            found[instance.name] = Machine(gpu=gpu, count=instance.accelerators)
    return found


def machine_here(gpus: tuple[Gpu, ...]) -> dict[str, Machine]:
    """The GPUs of this machine, with the memory that their driver tells; empty if there are none, or unknown ones."""
    sheet = gpu_of(gpus[0].model) if gpus else None
    if sheet is None:
        return {}
    return {HERE: Machine(gpu=replace(sheet, memory_gib=gpus[0].memory_gib or sheet.memory_gib), count=len(gpus))}


def language_knowledge(
    problem: Problem,
    *,
    model: str,
    language: LanguageModel | None,
    lengths: TokenLengths,
    concurrency: int,
    machines: Mapping[str, Machine],
    folder: Path,
    cloud: str,
    names: tuple[str, ...] | None = None,
) -> LanguageKnowledge:
    """What the model's sizes, the GPUs and the store in `folder` tell of it. Load tests go up to `concurrency`.

    names  the runs to learn from, of a search that continues; None: those that have ended, the newest
    """
    users = tuple(2**power for power in range(concurrency.bit_length()) if 2**power <= concurrency)
    earlier = _earlier(folder, cloud, frozenset(machines), lengths, names)
    paces = _paces(earlier, machines, lengths)
    known = Known(
        configs=problem.space.configs,
        usd_per_hour=np.array([price.dollars for price in problem.usd_per_hour]),
        models=(),
        curves=(),
        source=f"{len(earlier)} earlier runs of language models",
        simulated=False,
        machines=machines,
        lengths=lengths,
        users=users,
        paces=paces,
    )
    notes: tuple[str, ...] = ()
    if earlier:
        notes = (f"expects speeds by the model's sizes and those of {listed(run.name for run in earlier)}",)
    elif language is not None and machines:
        notes = ("expects speeds by the model's sizes and the GPUs' data sheets",)
    return LanguageKnowledge(
        earlier=tuple(run.name for run in earlier),
        known=known,
        target=TargetModel(name=model, operators=(), language=language),
        notes=notes,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _EarlierRun:
    """An earlier run: seconds of a request at each instance type and number of requests in flight."""

    name: str
    language: LanguageModel
    seconds: Mapping[tuple[str, int], float]


def _earlier(
    folder: Path, cloud: str, instances: frozenset[str], lengths: TokenLengths, names: tuple[str, ...] | None
) -> tuple[_EarlierRun, ...]:
    """Runs of language models in the same place on the same types with requests like these, the newest first."""
    if not instances or names == () or not has_store(folder):
        return ()
    found: list[_EarlierRun] = []
    looked = 0
    with Store(folder, reading=True) as store:
        for summary in store.newest(MOST_LOOKED_AT):
            if looked == MOST_RUNS:
                break
            if summary.kind is not Kind.SERVE or summary.cloud != cloud or not summary.trials:
                continue
            if not (
                summary.status is not None and summary.status.is_final if names is None else summary.run_id in names
            ):
                continue
            looked += 1
            with suppress(DamagedStore, MlcdError):
                run = store.load(summary.run_id)
                facts = run.header.serving
                if facts is None or facts.scenario != CHAT or facts.language is None:
                    continue
                seconds = _seconds(run, instances, lengths)
                if seconds:
                    found.append(_EarlierRun(name=run.run_id, language=facts.language, seconds=seconds))
    return tuple(found)


def _seconds(run: AnyRun, instances: frozenset[str], lengths: TokenLengths) -> dict[tuple[str, int], float]:
    """Requests in flight / rate at each pace, with the settings that were fastest there; for answers of this length."""
    found: dict[tuple[str, int], float] = {}
    for trial in run.history.measured:
        tokens = None if trial.load is None else trial.load.tokens
        instance = str(dict(trial.config.values).get("instance", HERE))
        if tokens is None or instance not in instances or not _is_alike(tokens, lengths):
            continue
        for point in tokens.front:
            rate = point.output_tokens_per_second / lengths.output_tokens
            if point.concurrency > 0 and rate > 0:
                key = (instance, 2 ** max(round(float(np.log2(point.concurrency))), 0))
                found[key] = min(found.get(key, np.inf), point.concurrency / rate)
    return found


def _is_alike(tokens: TokenLoad, lengths: TokenLengths) -> bool:
    """Whether the requests of a load test were about as long."""
    pairs = ((tokens.input_tokens, lengths.input_tokens), (tokens.output_tokens, lengths.output_tokens))
    return all(max(seen, 1e-9) / MOST_OTHER_LENGTH <= wanted <= seen * MOST_OTHER_LENGTH for seen, wanted in pairs)


def _paces(earlier: tuple[_EarlierRun, ...], machines: Mapping[str, Machine], lengths: TokenLengths) -> Known | None:
    """The earlier runs as tables by instance type and requests in flight; None without any."""
    cells = tuple(dict.fromkeys(cell for run in earlier for cell in run.seconds))
    if not cells:
        return None
    configs = tuple(Config.of({"instance": instance, "batch": users}) for instance, users in cells)
    models = tuple(
        KnownModel(
            target=TargetModel(name=run.name, operators=(), language=run.language),
            family=run.name,
            latency_seconds=np.array([run.seconds.get(cell, np.nan) for cell in cells]),
            memory_gib=np.full(len(cells), np.nan),
        )
        for run in earlier
    )
    return Known(
        configs=configs,
        usd_per_hour=np.ones(len(cells)),
        models=models,
        curves=(),
        source="earlier runs",
        simulated=False,
        machines=machines,
        lengths=lengths,
    )
