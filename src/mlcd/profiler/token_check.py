"""Whether a server counts tokens as its model's tokenizer does."""

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from mlcd.loadgen.chat import Sample

FILE = "tokenizer.json"
_MOST_APART = 0.02
"""Of prompts: what special tokens within a text may make."""
_MOST_ANSWER_APART = 0.25
"""Of answers: tokens need not come back from their text as they were."""
_ANSWER_SLACK = 3


def counted_text(samples: Sequence[Sample], tokens_from: str, folder: Path | None) -> str:
    """How tokens were counted, in words: by whom, and what the tokenizer of the model's folder says to that."""
    if tokens_from != "usage":
        return "pieces of the stream, because the server does not count tokens"
    if folder is None or not (folder / FILE).is_file():
        return f"by the server; not checked: there is no folder of the model with {FILE}"
    count = _counter(folder / FILE)
    if count is None:
        return f"by the server; not checked against {FILE}: pip install tokenizers"
    doubt = token_doubt(samples, count)
    return f"by the server, but {doubt}" if doubt else f"by the server, as {FILE} does"


def token_doubt(samples: Sequence[Sample], count: Callable[[str], int]) -> str:
    """How the server's counts differ from `count`'s; "" where they agree, or there are too few to tell.

    Of two prompts, their difference is compared: the frame that a chat template puts around both is in neither.
    """
    if len(samples) < 2:
        return ""
    few, many = sorted(samples, key=lambda sample: len(sample.prompt))[:: len(samples) - 1]
    own = count(many.prompt) - count(few.prompt)
    seen = many.input_tokens - few.input_tokens
    if abs(seen - own) > _MOST_APART * own:
        return f"it counts {seen:,} tokens where {FILE} has {own:,}"
    answers = [sample for sample in samples if sample.answer]
    own, seen = sum(count(each.answer) for each in answers), sum(each.output_tokens for each in answers)
    if abs(seen - own) > max(_MOST_ANSWER_APART * own, _ANSWER_SLACK):
        return f"it counts {seen:,} tokens of answers where {FILE} makes {own:,} of their text"
    return ""


def _counter(file: Path) -> Callable[[str], int] | None:
    """Counts the tokens of a text, without special ones; None without the tokenizers package, or for another file."""
    if find_spec("tokenizers") is None:
        return None
    try:
        tokenizer = import_module("tokenizers").Tokenizer.from_file(str(file))
    except Exception:  # a plain one is what it raises for a file that it cannot read
        return None
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)
