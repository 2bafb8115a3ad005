"""The server's counts of tokens against the tokenizer's."""

from pathlib import Path

import pytest

from mlcd.loadgen.chat import Sample
from mlcd.profiler.token_check import counted_text, token_doubt


def words(text: str) -> int:
    return len(text.split())


def sample(prompt: int, answer: int, *, frame: int = 9, factor: float = 1.0, answered: int | None = None) -> Sample:
    return Sample(
        prompt="word " * prompt,
        answer="word " * answer,
        input_tokens=round(prompt * factor) + frame,
        output_tokens=answer if answered is None else answered,
    )


def test_counts_that_agree() -> None:
    assert not token_doubt([sample(16, 16), sample(272, 16)], words), "the frame of a chat template is in neither"
    assert not token_doubt([sample(272, 16), sample(16, 16, answered=18)], words)
    assert not token_doubt([sample(16, 16)], words), "one alone says nothing"


@pytest.mark.parametrize("order", [1, -1])
def test_prompts_and_answers_that_are_counted_otherwise(order: int) -> None:
    doubt = token_doubt([sample(16, 16, factor=1.3), sample(272, 16, factor=1.3)][::order], words)
    assert doubt == "it counts 333 tokens where tokenizer.json has 256"
    doubt = token_doubt([sample(16, 16, answered=8), sample(272, 16, answered=8)][::order], words)
    assert doubt == "it counts 16 tokens of answers where tokenizer.json makes 32 of their text"


def test_what_is_said_where_nothing_can_be_checked(tmp_path: Path) -> None:
    assert "pieces" in counted_text([], "pieces", tmp_path)
    assert "no folder" in counted_text([], "usage", None)
    assert "no folder" in counted_text([], "usage", tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    assert "not checked against tokenizer.json" in counted_text([], "usage", tmp_path)
