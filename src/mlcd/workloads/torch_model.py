"""A PyTorch module as a model for functions. The only file of this room that imports torch."""

from collections.abc import Callable
from typing import Any

import numpy as np

from mlcd.workloads.model import Floats, Rows


class TorchModel:
    """Returned by a user's `make_model()` to train a `torch.nn.Module` on functions.

    make    builds the module, untrained
    loss    maps (output, target) to the mean loss, such as torch.nn.functional.cross_entropy
    inputs  converts rows of x and of y to tensors; default: float32 and int64

    Buffers, such as those of batch normalisation, are not parameters and are not trained.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        loss: Callable[[Any, Any], Any],
        *,
        inputs: Callable[[Rows, Rows], tuple[Any, Any]] | None = None,
    ) -> None:
        import torch  # noqa: PLC0415 - heavy, and only where such a model is trained

        torch.set_num_threads(1)  # a function has about one processor
        self._torch, self._make, self._loss = torch, make, loss
        self._inputs = inputs or self._usual
        self._module = make()

    def start(self, seed: int) -> Floats:
        """(P,) as PyTorch initialises the module with this seed."""
        self._torch.manual_seed(seed)
        return self._flat(self._make().parameters())

    def gradient(self, parameters: Floats, x: Rows, y: Rows) -> Floats:
        """(P,) by back-propagation."""
        self._set(parameters)
        self._module.zero_grad()
        given, wanted = self._inputs(x, y)
        self._loss(self._module(given), wanted).backward()
        return self._flat(
            self._torch.zeros_like(each) if each.grad is None else each.grad for each in self._module.parameters()
        )

    def loss(self, parameters: Floats, x: Rows, y: Rows) -> float:
        """The mean loss over these rows."""
        self._set(parameters)
        given, wanted = self._inputs(x, y)
        with self._torch.no_grad():
            return float(self._loss(self._module(given), wanted))

    def _set(self, parameters: Floats) -> None:
        flat = self._torch.from_numpy(np.array(parameters, dtype=np.float32))
        self._torch.nn.utils.vector_to_parameters(flat, self._module.parameters())

    def _flat(self, tensors: Any) -> Floats:
        flat: Floats = self._torch.cat([each.detach().reshape(-1) for each in tensors]).numpy()
        return flat.astype(np.float32, copy=True)

    def _usual(self, x: Rows, y: Rows) -> tuple[Any, Any]:
        return self._torch.tensor(x, dtype=self._torch.float32), self._torch.tensor(y, dtype=self._torch.int64)
