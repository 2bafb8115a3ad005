"""Synthetic data from a seed, the same on every machine: clicks, digits, short reviews. Nothing is downloaded."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcd.workloads.logistic import BUCKETS
from mlcd.workloads.text_cnn import LENGTH, WORDS

Arrays = tuple[NDArray[Any], NDArray[Any]]

_GLYPHS = (
    "01110 10001 10011 10101 11001 10001 01110",
    "00100 01100 00100 00100 00100 00100 01110",
    "01110 10001 00001 00010 00100 01000 11111",
    "11111 00010 00100 00010 00001 10001 01110",
    "00010 00110 01010 10010 11111 00010 00010",
    "11111 10000 11110 00001 00001 10001 01110",
    "00110 01000 10000 11110 10001 10001 01110",
    "11111 00001 00010 00100 01000 01000 01000",
    "01110 10001 10001 01110 10001 10001 01110",
    "01110 10001 10001 01111 00001 00010 01100",
)
"""The digits as 5 x 7 bitmaps."""


def clicks(rows: int = 12_000, seed: int = 0) -> Arrays:
    """Click-through data: 12 fields of very unequal sizes, value frequencies of 1/rank, hashed; about 1 in 5 clicks.

    x  (rows, 12) uint16 feature numbers below 16,384
    y  (rows,) uint8
    """
    random = np.random.default_rng([seed, 1])
    sizes = (4, 7, 12, 24, 50, 100, 200, 400, 800, 1500, 3000, 6000)
    fields, logits = [], np.full(rows, -1.35)
    for field, size in enumerate(sizes):
        chances = 1.0 / np.arange(1, size + 1)
        values = random.choice(size, size=rows, p=chances / chances.sum())
        weights = random.normal(0.0, 0.8, size)
        logits += weights[values]
        fields.append((values * 2654435761 + (field + 1) * 40503) % BUCKETS)
    y = random.random(rows) < 1 / (1 + np.exp(-logits))
    return np.stack(fields, axis=1).astype(np.uint16), y.astype(np.uint8)


def digits(rows: int = 4_000, seed: int = 0) -> Arrays:
    """Digits on 20 x 20 pixels, each randomly shifted, slanted, stretched and dimmed, with noise.

    x  (rows, 400) uint8
    y  (rows,) uint8
    """
    random = np.random.default_rng([seed, 2])
    glyphs = np.array([[list(map(int, line)) for line in glyph.split()] for glyph in _GLYPHS], dtype=np.float64)
    y = random.integers(0, 10, rows)
    down, across = np.meshgrid(np.arange(20.0), np.arange(20.0), indexing="ij")
    stretch = random.uniform(1.7, 2.4, (2, rows, 1, 1))
    centre = 9.5 + random.uniform(-2.0, 2.0, (2, rows, 1, 1))
    slant = random.uniform(-0.25, 0.25, (rows, 1, 1))
    line = np.rint((down - centre[0]) / stretch[0] + 3).astype(np.int64)
    column = np.rint((across - centre[1] + slant * (down - centre[0])) / stretch[1] + 2).astype(np.int64)
    inside = (line >= 0) & (line < 7) & (column >= 0) & (column < 5)
    ink = glyphs[y[:, None, None], np.clip(line, 0, 6), np.clip(column, 0, 4)] * inside
    pictures = ink * random.uniform(120, 255, (rows, 1, 1)) + random.normal(0, 25, ink.shape)
    return np.clip(pictures, 0, 255).astype(np.uint8).reshape(rows, 400), y.astype(np.uint8)


def reviews(rows: int = 6_000, seed: int = 0) -> Arrays:
    """Short reviews of 24 word numbers: praise and blame among filler; a `not` before a word reverses it.

    x  (rows, 24) uint16 below 2,000; 1 is `not`, 2..61 praise, 62..121 blame, the rest filler
    y  (rows,) uint8; 1 in 25 has the wrong label
    """
    random = np.random.default_rng([seed, 3])
    frequent = 1.0 / np.arange(1, WORDS - 122 + 1)
    x = 122 + random.choice(WORDS - 122, size=(rows, LENGTH), p=frequent / frequent.sum())
    y = random.integers(0, 2, rows)
    for _ in range(3):
        place = random.integers(1, LENGTH, rows)
        turned = random.random(rows) < 0.35
        praises = (y == 1) ^ turned
        word = np.where(praises, 2, 62) + random.integers(0, 60, rows)
        at = np.arange(rows)
        x[at, place] = word
        x[at, place - 1] = np.where(turned, 1, np.where(x[at, place - 1] < 122, 122, x[at, place - 1]))
    y = y ^ (random.random(rows) < 0.04)
    return x.astype(np.uint16), y.astype(np.uint8)


MADE = {"logistic": clicks, "lenet": digits, "text-cnn": reviews}
"""The default data of each built-in model."""
