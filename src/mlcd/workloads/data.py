"""Data as functions read it: two arrays of rows of fixed width, so that any slice is one range of bytes."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The layout of one array in its object: rows in C order, without a header."""

    dtype: str
    row_shape: tuple[int, ...]

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return np.dtype(self.dtype).itemsize * math.prod(self.row_shape)

    @classmethod
    def of(cls, array: NDArray[Any]) -> "Layout":
        """The layout of an array."""
        return cls(dtype=array.dtype.str, row_shape=tuple(array.shape[1:]))

    def span(self, first: int, last: int) -> tuple[int, int]:
        """(first byte, last byte) of rows first..last-1; both inclusive, as in an HTTP range."""
        return first * self.row_bytes, last * self.row_bytes - 1

    def rows(self, data: bytes) -> NDArray[Any]:
        """The rows in these bytes. Raises ValueError for an incomplete row."""
        return np.frombuffer(data, dtype=self.dtype).reshape(-1, *self.row_shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """All samples of a training, shuffled once; the last `held` are held out to measure the loss."""

    x: NDArray[Any]
    y: NDArray[Any]
    held: int

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise ValueError(f"x has {len(self.x):,} rows and y has {len(self.y):,}")
        if not 0 < self.held < len(self.x):
            raise ValueError("there must be rows to train on, and rows held out for the loss")

    @property
    def train_rows(self) -> int:
        """How many are trained on."""
        return len(self.x) - self.held


def shuffled(x: NDArray[Any], y: NDArray[Any], *, held_share: float = 0.2, most_held: int = 4096) -> Samples:
    """The samples, shuffled with a fixed seed; holds out `held_share` of them, at most `most_held`."""
    order = np.random.default_rng(0).permutation(len(x))
    held = min(max(1, round(held_share * len(x))), most_held)
    return Samples(x=np.ascontiguousarray(x[order]), y=np.ascontiguousarray(y[order]), held=held)


def shard(rows: int, shards: int, index: int) -> tuple[int, int]:
    """(first, last) of shard `index` of `shards`: sizes differ by one at most, and every row is in one shard."""
    return rows * index // shards, rows * (index + 1) // shards
