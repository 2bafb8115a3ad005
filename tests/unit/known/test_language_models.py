"""Sizes of language models from config.json, read with limits."""

import json
from pathlib import Path

import pytest

from mlcd.known.gpus import GPUS, Machine, gpu_of
from mlcd.known.language_models import described, read_config
from mlcd.untrusted import Malformed

LLAMA3 = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


def test_llama_3_8b() -> None:
    model = described(LLAMA3)
    assert model.parameters == pytest.approx(8.03e9, rel=0.005)
    assert (model.kv_heads, model.head_dim, model.kv_bytes) == (8, 128, 2 * 2 * 32 * 8 * 128)
    assert model.token_parameters == model.prompt_parameters == model.parameters


def test_a_quantised_model_is_smaller() -> None:
    four_bits = described({**LLAMA3, "quantization_config": {"quant_method": "gptq", "bits": 4}})
    assert four_bits.weight_bytes == pytest.approx(described(LLAMA3).weight_bytes / 4)
    assert described({**LLAMA3, "torch_dtype": "float32"}).bytes_per_weight == 2.0  # served in half precision


def test_an_encoder_shares_the_parameters() -> None:
    sizes = {"d_model": 2048, "num_heads": 32, "d_kv": 64, "d_ff": 5120, "vocab_size": 32128, "num_layers": 24}
    t5 = described({**sizes, "is_encoder_decoder": True, "feed_forward_proj": "gated-gelu"})
    assert (t5.layers, t5.encoder_layers) == (24, 24)
    assert t5.token_parameters > t5.prompt_parameters > 0
    assert t5.token_parameters + t5.prompt_parameters == t5.parameters


def test_the_text_part_of_a_model_that_sees_pictures() -> None:
    assert described({"model_type": "llava", "text_config": LLAMA3}) == described(LLAMA3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_hidden_layers": None}, "num_decoder_layers is missing"),
        ({"hidden_size": "wide"}, "hidden_size should be an integer, is a string"),
        ({"num_attention_heads": 0}, "num_attention_heads should be between 1 and"),
        ({"num_hidden_layers": 10**12}, "num_hidden_layers should be between 1 and 10000"),
        ({"vocab_size": -5}, "vocab_size should be between"),
        (
            {"num_hidden_layers": 10_000, "hidden_size": 10**7, "intermediate_size": 10**7, "num_experts": 4096},
            "describes 1.2e[+]22 parameters, more than 1e[+]20",
        ),
    ],
)
def test_a_config_that_is_wrong_is_named(tmp_path: Path, change: dict[str, object], message: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA3, **change}))
    with pytest.raises(Malformed, match=message) as caught:
        read_config(tmp_path)
    assert "config.json" in str(caught.value)


def test_no_config_is_no_error_and_a_huge_one_is(tmp_path: Path) -> None:
    assert read_config(tmp_path) is None
    (tmp_path / "config.json").write_text("[" + " " * 2_000_000 + "]")
    with pytest.raises(Malformed, match="larger than"):
        read_config(tmp_path)
    (tmp_path / "config.json").write_text("[1, 2]")
    with pytest.raises(Malformed, match="should be a mapping"):
        read_config(tmp_path)


def test_gpus_by_any_case_and_their_sums() -> None:
    assert gpu_of("h100") is GPUS["H100"]
    assert gpu_of("abacus") is None
    four = Machine(gpu=GPUS["A100"], count=4)
    assert (four.flops, four.bytes_per_second, four.memory_bytes) == (4 * 312e12, 4 * 1555e9, 160 * 2**30)
