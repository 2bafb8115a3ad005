"""Requests with prompts of given lengths, built without the model's tokenizer."""

import itertools
import json
import random
from collections.abc import Iterator

from mlcd.errors import BadInput
from mlcd.loadgen.chat.plan import ChatPlan, Exchange

WORDS = ("time", "year", "people", "way", "day", "man", "thing", "life", "child", "world", "school", "state", "family")
"""Common words, which most tokenizers know as one token each; how many tokens a word makes is measured."""
PROBE_WORDS = (16, 272)
"""Lengths of the two prompts from whose counted tokens follow the tokens of a word and those of the frame around it."""


TOKENS_PER_WORD = (0.2, 32.0)
"""What is believed of a server's count: words of five letters are one token each, and at most a token a byte."""


class Prompts:
    """Builds requests: so many words that the prompt has its tokens, given the tokens of a word and of the frame."""

    def __init__(self, plan: ChatPlan, host: str) -> None:
        self._plan, self._host = plan, host
        self._rng = random.Random(plan.seed)  # noqa: S311
        self.tokens_per_word, self.frame_tokens = 1.0, 0.0
        self._shared = self._words(random.Random(plan.seed + 1), 65536) if plan.shared_tokens else []  # noqa: S311

    def calibrate(self, seen: list[tuple[int, int]]) -> None:
        """Learn from (words, counted tokens) of two prompts. Raises BadInput for counts that no tokenizer makes."""
        (few, less), (many, more) = sorted(seen)
        if many > few and more > less:
            found = (more - less) / (many - few)
            least, most = TOKENS_PER_WORD
            if not least <= found <= most:
                raise BadInput(
                    f"the server counts {less:,} tokens in a prompt of {few} words and {more:,} in one of {many}: its"
                    " `usage` cannot be right"
                )
            self.tokens_per_word = found
            self.frame_tokens = max(less - few * found, 0.0)

    def probe(self, words: int, *, output_tokens: int) -> tuple[str, bytes]:
        """A prompt of so many words, and its request."""
        text = " ".join(self._words(self._rng, words))
        return text, self._request(text, output_tokens=output_tokens)

    def requests(self) -> Iterator[tuple[bytes, Exchange]]:
        """The plan's requests, for ever, in turn."""
        for exchange in itertools.cycle(self._plan.exchanges):
            yield self._request(self.text(exchange), output_tokens=exchange.output_tokens), exchange

    def text(self, exchange: Exchange) -> str:
        """A prompt of the exchange's length: the shared words first, then its own."""
        shared = self._count(self._plan.shared_tokens)
        own = max(self._count(exchange.input_tokens - self.frame_tokens) - shared, 1)
        return " ".join((*self._shared[:shared], *self._words(self._rng, own)))

    def _count(self, tokens: float) -> int:
        return max(round(tokens / self.tokens_per_word), 0)

    def _words(self, rng: random.Random, count: int) -> list[str]:
        return rng.choices(WORDS, k=count)

    def _request(self, text: str, *, output_tokens: int) -> bytes:
        plan = self._plan
        prompt = {"messages": [{"role": "user", "content": text}]} if plan.is_chat else {"prompt": text}
        document = {
            "model": plan.model,
            **prompt,
            "max_tokens": output_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
            **plan.extra,
        }
        body = json.dumps(document).encode()
        head = (
            f"POST {plan.path} HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: application/json\r\n"
            f"Accept: text/event-stream\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body
