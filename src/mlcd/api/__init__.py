"""mlcd from Python: `train`, `serve`, `serverless`, `resume`, `runs`, `load`, `what_if` and `ui`, and their results.

To run the trials yourself, see mlcd.asktell.
"""

from mlcd.api.jobs import load, resume, runs, serve, serverless, train, what_if
from mlcd.api.live_page import LivePage, ui
from mlcd.api.results import Picture, Result, ServeResult, ServerlessResult

__all__ = [
    "LivePage",
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
    "ui",
    "what_if",
]
