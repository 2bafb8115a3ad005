"""A convolution over words with max pooling over time (Kim 2014), in numpy; one logit: good or bad."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from mlcd.workloads.flat import Flat
from mlcd.workloads.model import Floats, Rows

WORDS, WIDTH, LENGTH, FILTERS, REACH = 2000, 16, 24, 50, 3
FLAT = Flat(
    {
        "words": (WORDS, WIDTH),
        "filters": (REACH * WIDTH, FILTERS),
        "bias": (FILTERS,),
        "out": (FILTERS, 1),
        "out_bias": (1,),
    }
)
_INITIAL_DEVIATION = 0.25


class TextCnn:
    """Word vectors, windows of 3 words through 50 filters, the maximum of each filter, one logit; log loss.

    x  (B, 24) word numbers below 2,000
    y  (B,) 0 or 1
    """

    def start(self, seed: int) -> Floats:
        """(34501,)."""
        vector = FLAT.start(seed)
        words = FLAT.views(vector)["words"]
        words[...] = np.random.default_rng(seed).normal(0.0, _INITIAL_DEVIATION, words.shape)
        return vector

    def gradient(self, parameters: Floats, x: Rows, y: Rows) -> Floats:
        """(34501,) by back-propagation."""
        p, found = FLAT.views(parameters), np.zeros_like(parameters)
        g = FLAT.views(found)
        windows, maps, top, at, logits = _forward(p, x)
        share = ((0.5 * (1 + np.tanh(0.5 * logits)) - y) / len(y)).astype(np.float32)
        g["out"][:, 0], g["out_bias"][...] = top.T @ share, share.sum()
        up = (share[:, None] * p["out"][:, 0]) * (top > 0)
        back = np.zeros_like(maps)
        np.put_along_axis(back, at[:, None, :], up[:, None, :], axis=1)
        rows = back.reshape(-1, FILTERS)
        g["filters"][...], g["bias"][...] = windows.reshape(-1, REACH * WIDTH).T @ rows, rows.sum(0)
        down = (rows @ p["filters"].T).reshape(len(x), -1, REACH, WIDTH)
        words = np.zeros((len(x), LENGTH, WIDTH), dtype=np.float32)
        for place in range(REACH):
            words[:, place : place + down.shape[1]] += down[:, :, place]
        np.add.at(g["words"], x.astype(np.int64), words)
        return found

    def loss(self, parameters: Floats, x: Rows, y: Rows) -> float:
        """Mean log loss."""
        logits = _forward(FLAT.views(parameters), x)[-1].astype(np.float64)
        return float(np.mean(np.logaddexp(0.0, logits) - y * logits))


def _forward(p: dict[str, Floats], x: Rows) -> tuple[Floats, Floats, Floats, Rows, Floats]:
    """(windows, feature maps, the maximum of each, its position, logits)."""
    words = p["words"][x.astype(np.int64)]
    windows = np.ascontiguousarray(sliding_window_view(words, REACH, axis=1).transpose(0, 1, 3, 2))
    windows = windows.reshape(len(x), LENGTH - REACH + 1, REACH * WIDTH)
    maps: Floats = np.maximum(windows @ p["filters"] + p["bias"], 0)
    at = maps.argmax(axis=1)
    top = np.take_along_axis(maps, at[:, None, :], axis=1)[:, 0]
    return windows, maps, top, at, (top @ p["out"])[:, 0] + p["out_bias"][0]
