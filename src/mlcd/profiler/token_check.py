"""Whether a server counts tokens as its model's tokenizer does."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from mlcd.loadgen.chat import Sample
from mlcd.untrusted import Malformed, parse_json

FILE = "tokenizer.json"
_MOST_APART = 0.02
"""Of prompts: what special tokens within a text may make."""
_MOST_ANSWER_APART = 0.25
"""Of answers: tokens need not come back from their text as they were."""
_ANSWER_SLACK = 3
COUNT_SECONDS = 5.0
"""How long counting may take: nodes are paid for meanwhile. Reading the largest published tokenizers takes a second."""
MOST_FILE_BYTES = 256 * 1024 * 1024
_COUNTER = Path(__file__).with_name("token_counter.py")


def counted_text(samples: Sequence[Sample], tokens_from: str, folder: Path | None) -> str:
    """How tokens were counted, in words: by whom, and what the tokenizer of the model's folder says to that."""
    if tokens_from != "usage":
        return "pieces of the stream, because the server does not count tokens"
    if folder is None or not (folder / FILE).is_file():
        return f"by the server; not checked: there is no folder of the model with {FILE}"
    if find_spec("tokenizers") is None:
        return f"by the server; not checked against {FILE}: pip install tokenizers"
    counts = _counts(folder / FILE, [text for each in samples for text in (each.prompt, each.answer)])
    if counts is None:
        return f"by the server; not checked against {FILE}, which cannot be used"
    doubt = token_doubt(samples, counts.__getitem__)
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


def _counts(file: Path, texts: Sequence[str]) -> Mapping[str, int] | None:
    """The tokens of each text, without special ones; None where the file is no tokenizer, or takes too much."""
    if file.stat().st_size > MOST_FILE_BYTES:
        return None
    try:
        done = subprocess.run(  # noqa: S603 - our own script
            [sys.executable, "-P", str(_COUNTER), str(file)],
            input=json.dumps(list(texts)).encode(),
            capture_output=True,
            timeout=COUNT_SECONDS,
            check=True,
            env={**os.environ, "TOKENIZERS_PARALLELISM": "false"},
        )
        found = parse_json(done.stdout)
    except (OSError, subprocess.SubprocessError, Malformed):
        return None
    if not isinstance(found, list) or len(found) != len(texts) or not all(type(each) is int for each in found):
        return None
    return dict(zip(texts, found, strict=True))
