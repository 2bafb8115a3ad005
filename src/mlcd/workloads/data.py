"""Data as functions read it: two arrays of rows of fixed width, of which any part is one range of bytes."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How the rows of one array lie in its object: C order, without a header."""

    dtype: str
    row_shape: tuple[int, ...]

    @property
    def row_bytes(self) -> int:
        """Of one row."""
        return np.dtype(self.dtype).itemsize * math.prod(self.row_shape)

    @classmethod
    def of(cls, array: NDArray[Any]) -> "Layout":
        """That of an array's rows."""
        return cls(dtype=array.dtype.str, row_shape=tuple(array.shape[1:]))

    def span(self, first: int, last: int) -> tuple[int, int]:
        """(first byte, last byte) of rows first..last-1; both ends count, as in an HTTP range."""
        return first * self.row_bytes, last * self.row_bytes - 1

    def rows(self, data: bytes) -> NDArray[Any]:
        """The rows that these bytes hold. Raises ValueError for half a row."""
        return np.frombuffer(data, dtype=self.dtype).reshape(-1, *self.row_shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """All samples of a training, shuffled once; the last `held` are only for telling the loss."""

    x: NDArray[Any]
    y: NDArray[Any]
    held: int

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise ValueError(f"x has {len(self.x):,} rows and y has {len(self.y):,}")
        if not 0 < self.held < len(self.x):
            raise ValueError("some rows must be there to train on, and some to tell the loss by")

    @property
    def train_rows(self) -> int:
        """How many are trained on."""
        return len(self.x) - self.held


def shuffled(x: NDArray[Any], y: NDArray[Any], *, held_share: float = 0.2, most_held: int = 4096) -> Samples:
    """The samples in an order that does not depend on how they were stored; held: a share of them, at most so many."""
    order = np.random.default_rng(0).permutation(len(x))
    held = min(max(1, round(held_share * len(x))), most_held)
    return Samples(x=np.ascontiguousarray(x[order]), y=np.ascontiguousarray(y[order]), held=held)


def shard(rows: int, shards: int, index: int) -> tuple[int, int]:
    """(first, last) of shard `index` of so many: sizes differ by one at most, and nothing is left out."""
    return rows * index // shards, rows * (index + 1) // shards
