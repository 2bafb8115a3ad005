"""On what should I run this, and how many? Answers with few trials, inside your money and time.

    import mlcd
    result = mlcd.train("job.yaml")        # or a mapping; see docs/python.md
    print(result.explain())

Names are loaded when they are first used, so that `import mlcd` is quick.
"""

from typing import TYPE_CHECKING, Any

from mlcd.version import __version__

if TYPE_CHECKING:
    from mlcd.api import Result, Search, resume, train

__all__ = ["Result", "Search", "__version__", "resume", "train"]


def __getattr__(name: str) -> Any:
    if name in ("Result", "Search", "resume", "train"):
        from mlcd import api  # noqa: PLC0415 - here is where the heavy parts are loaded

        return getattr(api, name)
    raise AttributeError(f"module 'mlcd' has no attribute {name!r}")
