"""On what should I run this, and how many? Answers with few trials, inside your money and time.

    import mlcd
    result = mlcd.train("job.yaml")        # or a mapping; also mlcd.serve, mlcd.serverless; see docs/python.md
    print(result.explain())

Names are loaded when they are first used, so that `import mlcd` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mlcd.version import __version__

if TYPE_CHECKING:
    from mlcd.api import Result, ServeResult, ServerlessResult, resume, serve, serverless, train
    from mlcd.asktell import Search
    from mlcd.training.steps import checkpoint, learning_rate, score, share_of_batch, steps

__all__ = [
    "Result",
    "Search",
    "ServeResult",
    "ServerlessResult",
    "__version__",
    "checkpoint",
    "learning_rate",
    "resume",
    "score",
    "serve",
    "serverless",
    "share_of_batch",
    "steps",
    "train",
]


def __getattr__(name: str) -> Any:
    # Here is where the heavy parts are loaded.
    if name in ("Result", "ServeResult", "ServerlessResult", "resume", "serve", "serverless", "train"):
        return getattr(import_module("mlcd.api"), name)
    if name == "Search":
        return getattr(import_module("mlcd.asktell"), name)
    if name in ("checkpoint", "learning_rate", "score", "share_of_batch", "steps"):
        return getattr(import_module("mlcd.training.steps"), name)
    raise AttributeError(f"module 'mlcd' has no attribute {name!r}")
