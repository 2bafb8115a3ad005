"""Tables of language models as a test bed; what a search for a left-out model may know."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.llm_tables import MODELS, USERS, disturbed, tokens_per_second, write_tables

from mlcd.bench.serve.beds import beds
from mlcd.bench.serve.case import Bed, Case, searcher, walk
from mlcd.bench.serve.llmpilot import LENGTHS, described_models
from mlcd.bench.serve.load_tests import LoadTestCase
from mlcd.bench.serve.score import ServeComparison, applicable, compare
from mlcd.errors import BadInput
from mlcd.search.serving.auto import ServingAuto
from mlcd.trial.trial import History

TARGET = "llama-7b"
PUBLISHED = {
    "llama-7b": 6.74e9,
    "bigcode__starcoder": 15.5e9,
    "google__flan-t5-xl": 2.85e9,
    "google__flan-t5-xxl": 11.1e9,
    "bigscience__mt0-xxl": 12.9e9,
    "google__flan-ul2": 19.5e9,
}


def bed_of(folder: Path, *, load_tests: bool = False) -> Bed:
    return beds(tables=folder, load_tests=load_tests)[0]


def case_of(bed: Bed, slo_seconds: float = 1.0, *, noise: float = 0.0) -> Case:
    kind = LoadTestCase if bed.load_tests else Case
    found = kind.of(bed, TARGET, slo_seconds, noise=noise, max_trials=6)
    assert found is not None
    return found


def test_rates_latencies_and_prices_are_those_of_the_tables(tmp_path: Path) -> None:
    bed = bed_of(write_tables(tmp_path / "t"))
    assert set(bed.targets) == set(MODELS)
    model = bed.model(TARGET)
    row = next(i for i, c in enumerate(bed.known.configs) if (c.instance, c["batch"]) == ("1xa100", 16))
    tokens = tokens_per_second(TARGET, "1xa100", 16)
    assert bed.known.throughput(model)[row] * LENGTHS.output_tokens == pytest.approx(tokens, rel=1e-4)
    assert model.request_seconds[row] == pytest.approx(14 * 16 / tokens, rel=1e-4)
    assert bed.known.per_dollar(model)[row] == pytest.approx(tokens / LENGTHS.output_tokens * 3600 / 4.1, rel=1e-4)
    assert np.isnan(bed.model("bigcode__starcoder").latency_seconds).any()  # does not fit everywhere


def test_the_published_sizes_are_those_of_the_configs() -> None:
    for name, parameters in PUBLISHED.items():
        assert described_models()[name].parameters == pytest.approx(parameters, rel=0.01), name


@pytest.mark.parametrize("load_tests", [False, True])
def test_a_search_knows_nothing_that_was_measured_of_the_left_out_model(tmp_path: Path, load_tests: bool) -> None:
    """The tables differ only in the left-out model: what is known and suggested before its first trial is equal."""
    made = [
        bed_of(write_tables(tmp_path / "true"), load_tests=load_tests),
        bed_of(write_tables(tmp_path / "changed", disturbed(TARGET)), load_tests=load_tests),
    ]
    firsts, priors = [], []
    for bed in made:
        case = replace(case_of(bed, 30.0))
        known = case.knowledge(bed.sources(TARGET))
        assert TARGET not in {model.name for model in known.models}
        assert known.paces is None or TARGET not in {model.name for model in known.paces.models}
        chosen = searcher("auto", case, bed.sources(TARGET), seed=0)
        assert isinstance(chosen, ServingAuto)
        priors.append(chosen.outlook(case.problem, History()))
        firsts.append(walk(case, chosen, seed=0).configs[0])
    assert firsts[0] == firsts[1]
    np.testing.assert_allclose(priors[0].log_value, priors[1].log_value, rtol=1e-9)
    np.testing.assert_allclose(priors[0].keeps, priors[1].keeps, rtol=1e-9)


def test_a_leak_would_be_noticed(tmp_path: Path) -> None:
    """The check above can fail: given the target's own measurements, the forecasts differ."""
    forecasts: list[np.ndarray] = []
    for rate in (tokens_per_second, disturbed(TARGET)):
        bed = bed_of(write_tables(tmp_path / str(len(forecasts)), rate))
        case = case_of(bed, 30.0)
        chosen = searcher("auto", case, bed.known, seed=0)
        assert isinstance(chosen, ServingAuto)
        forecasts.append(chosen.outlook(case.problem, History()).log_value)
    assert np.abs(forecasts[0] - forecasts[1]).max() > 0.1


def test_a_load_test_keeps_the_best_pace_within_the_limit(tmp_path: Path) -> None:
    bed = bed_of(write_tables(tmp_path / "t"), load_tests=True)
    case = case_of(bed, 1.0)
    config = next(config for config in case.problem.space if config.instance == "1xa100")
    trial = case.trial(config, seed=0)
    kept = [u for u in USERS if 14 * u / tokens_per_second(TARGET, "1xa100", u) <= 1.0]
    best = max(tokens_per_second(TARGET, "1xa100", u) for u in kept)
    assert trial.samples_per_second * LENGTHS.output_tokens == pytest.approx(best, rel=1e-4)  # type: ignore[union-attr]
    assert trial.load is not None  # type: ignore[union-attr]
    assert [p.kept for p in trial.load.tokens.front] == [u in kept for u in USERS]  # type: ignore[union-attr]
    assert case.accuracy(max(case.problem.space, key=case.accuracy)) == 1.0


@pytest.mark.parametrize("load_tests", [False, True])
def test_what_knows_the_sizes_is_near_the_best_after_three_trials(tmp_path: Path, load_tests: bool) -> None:
    bed = bed_of(write_tables(tmp_path / "t"), load_tests=load_tests)
    texts = ("auto", "falcon-transfer", "random")
    comparison = ServeComparison(strategies=texts, trials=(1, 3), slo_ms=(800.0, 30_000.0), seeds=2)
    assert applicable(comparison, bed) == (texts, ())
    rows = compare(comparison, [bed])
    mean = {
        (text, trials): float(np.mean([row.accuracy[trials] for row in rows if row.strategy == text]))
        for text in texts
        for trials in (1, 3)
    }
    for text in texts[:2]:
        assert mean[text, 1] > mean["random", 1] + 0.05
        assert mean[text, 3] > 0.9


def test_tables_of_another_form_are_refused(tmp_path: Path) -> None:
    folder = write_tables(tmp_path / "t")
    (folder / "instances.csv").write_text("instance,gpus,usd_per_hour\n1xz9,1,2\n")
    with pytest.raises(BadInput, match=r"instances.csv: 1xz9: unknown GPU 'z9'; allowed: "):
        bed_of(folder)
    with pytest.raises(BadInput, match="--load-tests: needs --tables"):
        beds(cpu=True, load_tests=True)
