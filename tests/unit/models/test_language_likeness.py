"""What runs of one language model say of another: the more, the nearer their sizes are."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.llm_tables import tokens_per_second, write_tables

from mlcd.bench.serve.beds import beds
from mlcd.bench.serve.llmpilot import described_models
from mlcd.known import Known
from mlcd.known.language_models import LanguageModel
from mlcd.models.serving import language
from mlcd.models.serving.language import LIKENESS, alike, language_prior

LLAMA, STARCODER, FLAN = (described_models()[name] for name in ("llama-7b", "bigcode__starcoder", "google__flan-t5-xl"))


def odd_rate(model: str, instance: str, users: int) -> float:
    """Llama is slow on one GPU for a reason that no data sheet and no other model shows."""
    slower = 0.6 if (model, instance) == ("llama-7b", "1xa100") else 1.0
    return tokens_per_second(model, instance, users) * slower


@pytest.fixture
def known(tmp_path: Path) -> Known:
    return beds(tables=write_tables(tmp_path / "tables", odd_rate))[0].known


def expected(known: Known, model: LanguageModel) -> tuple[float, float]:
    """(ln seconds on the odd GPU less those on a larger one of its kind, its deviation) at one request."""
    found = language_prior(known, model, known.configs)
    assert found is not None
    assert found.described is not None
    rows = [
        next(at for at, c in enumerate(known.configs) if (c.instance, c["batch"]) == (instance, 1))
        for instance in ("1xa100", "1xh100")
    ]
    mean = found.described.mean[rows]
    return float(mean[0] - mean[1]), float(np.sqrt(found.described.covariance[rows[0], rows[0]]))


def test_a_model_of_the_same_sizes_is_expected_to_run_as_its_base(
    known: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = float(np.log(odd_rate("llama-7b", "1xh100", 1) / odd_rate("llama-7b", "1xa100", 1)))
    tuned = replace(LLAMA, parameters=LLAMA.parameters * 1.001)
    found, deviation = expected(known, tuned)
    monkeypatch.setattr(language, "LIKENESS", 0.0)
    language._experience.cache_clear()
    without, without_deviation = expected(known, tuned)
    language._experience.cache_clear()
    assert abs(found - truth) < abs(without - truth) / 2, "what is odd about it is odd about a fine-tuned one"
    assert deviation < without_deviation / 2


def test_likeness_falls_with_the_distance_of_sizes_and_ends_between_kinds() -> None:
    near = replace(LLAMA, parameters=LLAMA.parameters * 1.1)
    assert alike(LLAMA, LLAMA, 0.3) == pytest.approx(LIKENESS)
    assert LIKENESS > alike(LLAMA, near, 0.3) > alike(LLAMA, STARCODER, 0.3) > 0
    assert alike(LLAMA, STARCODER, 1.0) > alike(LLAMA, STARCODER, 0.3)
    assert alike(LLAMA, FLAN, 1.0) == 0
