"""What is known of a language model before its first load test: sizes, GPUs, and earlier runs of other models."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.llm_tables import write_tables

from mlcd.bench.new_run import after_trials, new_run
from mlcd.bench.serve.beds import beds
from mlcd.bench.serve.load_tests import LoadTestCase
from mlcd.catalog import Instance
from mlcd.gpus import Gpu
from mlcd.jobs.language_knowledge import (
    LanguageKnowledge,
    language_knowledge,
    machine_here,
    machines_of,
    model_sizes,
)
from mlcd.known.gpus import GPUS
from mlcd.known.language_models import TokenLengths
from mlcd.run.header import CHAT, ServingFacts
from mlcd.run.kind import Kind
from mlcd.search.serving.auto import ServingAuto
from mlcd.store.store import Store
from mlcd.trial.outcome import Status
from mlcd.trial.plan import Remaining
from mlcd.trial.trial import History
from mlcd.units import Usd

LENGTHS = TokenLengths(input_tokens=500.0, output_tokens=15.0)
CONFIG = {"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "vocab_size": 32000}


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> LoadTestCase:
    bed = beds(tables=write_tables(tmp_path_factory.mktemp("tables") / "t"), load_tests=True)[0]
    found = LoadTestCase.of(bed, "llama-7b", 30.0, noise=0.0, max_trials=8)
    assert found is not None
    return found


def knowledge_of(
    case: LoadTestCase,
    folder: Path,
    *,
    cloud: str = "somewhere",
    lengths: TokenLengths = LENGTHS,
    names: tuple[str, ...] | None = None,
) -> LanguageKnowledge:
    return language_knowledge(
        case.problem,
        model="new",
        language=case.target.target.language,
        lengths=lengths,
        concurrency=64,
        machines=case.bed.known.machines,
        folder=folder,
        cloud=cloud,
        names=names,
    )


def stored_run(case: LoadTestCase, name: str, folder: Path, *, ended: bool = True) -> None:
    """A search of another model, as the store keeps it."""
    other = LoadTestCase.of(case.bed, name, 30.0, noise=0.0, max_trials=8)
    assert other is not None
    run = new_run(Kind.SERVE, other.problem, cloud="somewhere", strategy="auto")
    facts = ServingFacts(
        model=name, scenario=CHAT, headroom=0.3, verify_seconds=60.0, language=other.target.target.language
    )
    run = replace(run, header=replace(run.header, run_id=f"run-{name[-3:]}", created="2026-11-16", serving=facts))
    made = after_trials(run, [other.trial(config, 0) for config in other.problem.space])
    with Store(folder) as store:
        store.add(run, spec={})
        for step in made.steps:
            store.start(run.run_id, [replace(step, outcome=None)])
            store.end(run.run_id, step)
        if ended:
            store.finish(run.run_id, Status.DONE, None)


def test_earlier_runs_of_other_models_are_known_at_every_pace(case: LoadTestCase, tmp_path: Path) -> None:
    stored_run(case, "bigcode__starcoder", tmp_path)
    stored_run(case, "google__flan-t5-xxl", tmp_path)
    found = knowledge_of(case, tmp_path)
    paces = found.known.paces
    assert paces is not None
    assert {model.name for model in paces.models} == {"run-der", "run-xxl"}
    starcoder = next(model for model in paces.models if model.name == "run-der")
    source = case.bed.model("bigcode__starcoder")
    for row, config in enumerate(paces.configs):
        truth = source.latency_seconds[case.bed.known.configs.index(config)]
        np.testing.assert_allclose(starcoder.latency_seconds[row], truth, rtol=1e-6)
    assert "run-der" in found.notes[0]
    assert knowledge_of(case, tmp_path, cloud="elsewhere").known.paces is None


@pytest.mark.parametrize(("inputs", "outputs"), [(500.0, 60.0), (500.0, 4.0), (2000.0, 15.0)])
def test_runs_with_requests_of_other_lengths_tell_nothing(
    case: LoadTestCase, tmp_path: Path, inputs: float, outputs: float
) -> None:
    stored_run(case, "bigcode__starcoder", tmp_path)
    other = knowledge_of(case, tmp_path, lengths=TokenLengths(input_tokens=inputs, output_tokens=outputs))
    assert other.known.paces is None
    assert not any("run-der" in note for note in other.notes)


def test_a_search_that_continues_knows_what_it_knew_when_it_began(case: LoadTestCase, tmp_path: Path) -> None:
    """Neither its own trials nor runs that ended since count as runs of another model."""
    stored_run(case, "bigcode__starcoder", tmp_path)
    began = knowledge_of(case, tmp_path)
    assert began.earlier == ("run-der",)
    stored_run(case, "llama-7b", tmp_path, ended=False)  # itself, interrupted
    assert knowledge_of(case, tmp_path).earlier == ("run-der",)
    stored_run(case, "google__flan-t5-xxl", tmp_path)
    assert knowledge_of(case, tmp_path).earlier != began.earlier
    assert knowledge_of(case, tmp_path, names=began.earlier).earlier == began.earlier
    assert knowledge_of(case, tmp_path, names=()).known.paces is None


def test_auto_uses_them(case: LoadTestCase, tmp_path: Path) -> None:
    """After runs of two other models on the same types, the first choice is near the best."""
    stored_run(case, "bigcode__starcoder", tmp_path)
    stored_run(case, "google__flan-t5-xxl", tmp_path)
    found = knowledge_of(case, tmp_path)
    auto = ServingAuto(known=found.known, target=found.target)
    anything = Remaining(usd=None, seconds=None, allowed=np.ones(len(case.problem.space), dtype=bool))
    first = auto.suggest(case.problem, History(), anything, 1)[0]
    assert case.accuracy(first.config) > 0.8
    prior = auto.prior(case.problem).language
    assert prior is not None
    assert prior.known_models == 2


def test_a_model_folder_says_its_sizes(tmp_path: Path) -> None:
    assert model_sizes("meta-llama/Llama-3.1-8B") == (None, ())
    assert model_sizes(str(tmp_path)) == (None, ())
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    language, notes = model_sizes(str(tmp_path))
    assert language is not None
    assert (language.layers, notes) == (32, ())
    (tmp_path / "config.json").write_text("{")
    language, notes = model_sizes(str(tmp_path))
    assert language is None
    assert "the model's sizes are not used" in notes[0]


def test_gpus_of_types_and_of_this_machine() -> None:
    made = Instance(
        cloud="aws",
        name="g5.12xlarge",
        vcpus=48,
        memory_gib=192,
        network_gbps=40,
        usd_per_hour=Usd.of("5.67"),
        accelerator="A10G",
        accelerators=4,
        accelerator_tflops=70,
        accelerator_memory_gib=24,
    )
    assert machines_of([made, replace(made, name="odd", accelerator="Gaudi")]) == {
        "g5.12xlarge": machines_of([made])["g5.12xlarge"]
    }
    assert machines_of([made])["g5.12xlarge"].count == 4
    here = Gpu(index=0, uuid="x", name="NVIDIA H200", memory_gib=139.8, driver="1")
    machine = machine_here((here,))[""]
    assert (machine.gpu.tflops, machine.gpu.memory_gib) == (GPUS["H200"].tflops, 139.8)
    assert machine_here(()) == {}
    assert machine_here((replace(here, name="NVIDIA Abacus"),)) == {}
