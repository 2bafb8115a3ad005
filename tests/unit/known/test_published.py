import pytest

from mlcd.clouds.sim import MODELS
from mlcd.known.published import published_parameters


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("bert-large", 340e6),
        ("BERT_large", 340e6),
        ("bert", 340e6),
        ("resnet-152", 60.2e6),
        ("zero-8b", 8e9),
        ("Llama-3.1-8B", 8e9),
        ("pythia_1.4b", 1.4e9),
        ("opt-350m-tuned", 350e6),
        ("my-own-net", None),
        ("b2b", None),
        ("0b", None),
        ("v8", None),
        ("", None),
    ],
)
def test_a_name_gives_the_published_number_or_the_one_it_states(name: str, parameters: float | None) -> None:
    assert published_parameters(name) == parameters


def test_the_simulators_models_are_known_by_what_is_published_about_them() -> None:
    """Within a factor of 10: a name is a hint (AlexNet is published for larger pictures), not the simulator's truth."""
    known = {name: published_parameters(name) for name in MODELS}
    assert [name for name, found in known.items() if found is None] == ["char-rnn"]
    assert all(0.1 < found / MODELS[name].parameters < 10 for name, found in known.items() if found is not None)
