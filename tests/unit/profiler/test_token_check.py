"""The server's counts of tokens against the tokenizer's."""

import os
from pathlib import Path

import pytest

from mlcd.loadgen.chat import Sample
from mlcd.profiler import token_check
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


TOKENIZERS = """
import sys, time

class Panic(BaseException):
    pass

class Tokenizer:
    @classmethod
    def from_file(cls, file):
        {reads}
        return cls()

    def encode(self, text, add_special_tokens):
        {encodes}
        self.ids = text.split()
        return self
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for a made-up `tokenizers`, which this process and those that it starts import."""
    folder = tmp_path / "library"
    folder.mkdir()
    (tmp_path / "tokenizer.json").write_text("{}")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setattr(token_check, "find_spec", lambda _: object())
    return folder


def test_the_tokenizer_of_the_model_is_asked(library: Path, tmp_path: Path) -> None:
    (library / "tokenizers.py").write_text(TOKENIZERS.format(reads="pass", encodes="pass"))
    assert counted_text([sample(16, 16), sample(272, 16)], "usage", tmp_path) == "by the server, as tokenizer.json does"
    doubted = counted_text([sample(16, 16, factor=1.3), sample(272, 16, factor=1.3)], "usage", tmp_path)
    assert doubted == "by the server, but it counts 333 tokens where tokenizer.json has 256"


@pytest.mark.parametrize(
    ("reads", "encodes"),
    [
        ("raise Panic", "pass"),
        ("pass", "raise Panic"),
        ("sys.exit(0)", "pass"),
        ("pass", "print('[1, 2]')"),
        ("pass", "bytearray(2**33)"),
        ("pass", "time.sleep(1000)"),
    ],
)
def test_a_tokenizer_that_does_harm_is_not_used(
    reads: str, encodes: str, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load test that is paid for is recorded all the same."""
    (library / "tokenizers.py").write_text(TOKENIZERS.format(reads=reads, encodes=encodes))
    if "sleep" in encodes:
        monkeypatch.setattr(token_check, "COUNT_SECONDS", 0.5)
    said = counted_text([sample(16, 16), sample(272, 16)], "usage", tmp_path)
    assert said == "by the server; not checked against tokenizer.json, which cannot be used"


@pytest.mark.usefixtures("library")
def test_a_huge_tokenizer_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "tokenizer.json").open("wb") as file:
        file.truncate(2**40)
    assert counted_text([sample(16, 16), sample(272, 16)], "usage", tmp_path).endswith("which cannot be used")
