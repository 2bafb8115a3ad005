"""The interface between a function and the model it trains: three methods over one flat vector of parameters."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Rows = NDArray[Any]


@runtime_checkable
class Model(Protocol):
    """What a user's `make_model()` returns. Parameters are one flat float32 vector, which functions send and add.

    A function that dies is called again with the same arguments, so no method may keep state.
    """

    def start(self, seed: int) -> Floats:
        """(P,) the parameters before the first step; the same for the same seed."""
        ...

    def gradient(self, parameters: Floats, x: Rows, y: Rows) -> Floats:
        """(P,) gradient of the mean loss over the rows of a mini-batch. Must not change `parameters`."""
        ...

    def loss(self, parameters: Floats, x: Rows, y: Rows) -> float:
        """The mean loss over these rows."""
        ...


class NotAModel(Exception):
    """What the user named is not a model; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltIn:
    """A model that comes with mlcd.

    rate        default learning rate, chosen on the model's synthetic data
    parameters  number of parameters
    """

    module: str
    attribute: str
    rate: float
    parameters: int
    summary: str


BUILT_IN = {
    "logistic": BuiltIn(
        module="mlcd.workloads.logistic",
        attribute="Logistic",
        rate=2.0,
        parameters=16_385,
        summary="logistic regression over hashed features, such as click-through",
    ),
    "lenet": BuiltIn(
        module="mlcd.workloads.lenet",
        attribute="LeNet",
        rate=0.08,
        parameters=8_882,
        summary="LeNet on greyscale images of 20 x 20",
    ),
    "text-cnn": BuiltIn(
        module="mlcd.workloads.text_cnn",
        attribute="TextCnn",
        rate=0.4,
        parameters=34_501,
        summary="a convolution over words with max pooling over time",
    ),
}


def built_in(name: str) -> Model:
    """The model that comes with mlcd under `name`. Raises KeyError."""
    known = BUILT_IN[name]
    model: Model = getattr(import_module(known.module), known.attribute)()
    return model


def checked(made: object, name: str) -> Model:
    """`made`, if it has the three methods. Raises NotAModel."""
    if not isinstance(made, Model):
        missing = [method for method in ("start", "gradient", "loss") if not callable(getattr(made, method, None))]
        raise NotAModel(f"{name} made a {type(made).__name__}, which has no {' and no '.join(missing)}")
    return made
