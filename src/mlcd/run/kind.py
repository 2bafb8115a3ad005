"""The three kinds of job."""

from enum import StrEnum


class Kind(StrEnum):
    """What a run does: train on nodes, serve a model, or train on functions."""

    TRAIN = "train"
    SERVE = "serve"
    SERVERLESS = "serverless"
