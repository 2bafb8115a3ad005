"""mlcd from Python: `train`, `serve`, `serverless` and `resume`, and what they give back.

For those who run the trials themselves: mlcd.asktell.
"""

from mlcd.api.results import Picture, Result, ServeResult, ServerlessResult
from mlcd.api.runs import resume, serve, serverless, train

__all__ = ["Picture", "Result", "ServeResult", "ServerlessResult", "resume", "serve", "serverless", "train"]
