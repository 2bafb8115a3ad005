"""On what should I run this, and how many? Answers with few trials, inside your money and time.

    import mlcd
    result = mlcd.train("job.yaml")        # or a mapping; also mlcd.serve, mlcd.serverless; see docs/python.md
    print(result.explain())

Names are loaded when they are first used, so that `import mlcd` is quick.
"""

from importlib import import_module

from mlcd.version import __version__

TYPE_CHECKING = False  # typing itself is not imported here
if TYPE_CHECKING:
    from typing import Any

    from mlcd.api import (
        Result,
        ServeResult,
        ServerlessResult,
        load,
        resume,
        runs,
        serve,
        serverless,
        train,
        ui,
        what_if,
    )
    from mlcd.asktell import Search
    from mlcd.goal import Goal
    from mlcd.training.knobs import describe, knob
    from mlcd.training.steps import checkpoint, epochs, learning_rate, score, share_of_batch, steps
    from mlcd.units import Usd

__all__ = [
    "Goal",
    "Result",
    "Search",
    "ServeResult",
    "ServerlessResult",
    "Usd",
    "__version__",
    "checkpoint",
    "describe",
    "epochs",
    "knob",
    "learning_rate",
    "load",
    "resume",
    "runs",
    "score",
    "serve",
    "serverless",
    "share_of_batch",
    "steps",
    "train",
    "ui",
    "what_if",
]

_MODULES = {
    "mlcd.api": (
        "Result",
        "ServeResult",
        "ServerlessResult",
        "load",
        "resume",
        "runs",
        "serve",
        "serverless",
        "train",
        "ui",
        "what_if",
    ),
    "mlcd.asktell": ("Search",),
    "mlcd.goal": ("Goal",),
    "mlcd.training.knobs": ("describe", "knob"),
    "mlcd.training.steps": ("checkpoint", "epochs", "learning_rate", "score", "share_of_batch", "steps"),
    "mlcd.units": ("Usd",),
}


def __getattr__(name: str) -> "Any":
    # Here is where the heavy parts are loaded.
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'mlcd' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
