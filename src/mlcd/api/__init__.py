"""mlcd from Python: `train`, `serve`, `serverless`, `resume`, `runs` and `load`, and their results.

To run the trials yourself, see mlcd.asktell.
"""

from mlcd.api.jobs import load, resume, runs, serve, serverless, train
from mlcd.api.results import Picture, Result, ServeResult, ServerlessResult

__all__ = [
    "Picture",
    "Result",
    "ServeResult",
    "ServerlessResult",
    "load",
    "resume",
    "runs",
    "serve",
    "serverless",
    "train",
]
