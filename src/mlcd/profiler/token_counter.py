"""Counts the tokens of texts: `python token_counter.py tokenizer.json`, a list of texts as JSON on standard input.

Run as a script, in a process of its own: whoever made the file of the tokenizer says how long it takes, how much memory
it needs, and whether it ends the process (its library panics on some). Prints a list of numbers.
"""

import json
import sys

MOST_MEMORY_BYTES = 4 * 2**30


def main(file: str) -> int:
    """Print the number of tokens of each text, without special ones."""
    limit_memory()
    import tokenizers  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415 - within the limit

    tokenizer = tokenizers.Tokenizer.from_file(file)
    texts = json.load(sys.stdin)
    json.dump([len(tokenizer.encode(text, add_special_tokens=False).ids) for text in texts], sys.stdout)
    return 0


def limit_memory() -> None:
    """Keep this process within MOST_MEMORY_BYTES, where the system can."""
    try:
        import resource  # noqa: PLC0415 - not on every system
    except ImportError:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = MOST_MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(MOST_MEMORY_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
