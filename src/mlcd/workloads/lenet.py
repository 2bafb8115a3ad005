"""LeNet on greyscale images of 20 x 20, in numpy: two convolutions with max pooling, then two dense layers."""

from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from mlcd.workloads.flat import Flat, log_softmax
from mlcd.workloads.model import Floats, Rows

SIDE, CLASSES = 20, 10
FLAT = Flat(
    {
        "filters1": (25, 6),
        "bias1": (6,),
        "filters2": (150, 16),
        "bias2": (16,),
        "full1": (64, 84),
        "bias3": (84,),
        "full2": (84, CLASSES),
        "bias4": (CLASSES,),
    }
)


class _Pass(NamedTuple):
    """Values of the forward pass that the backward pass needs."""

    patches1: Floats
    conv1: Floats
    pooled1: Floats
    patches2: Floats
    conv2: Floats
    pooled2: Floats
    hidden: Floats
    logits: Floats


class LeNet:
    """After LeCun et al. 1998, with ReLU and 2 x 2 max pooling in place of tanh and average pooling.

    x  (B, 400) or (B, 20, 20), 0 to 255
    y  (B,) 0 to 9
    """

    def start(self, seed: int) -> Floats:
        """(8882,)."""
        return FLAT.start(seed)

    def gradient(self, parameters: Floats, x: Rows, y: Rows) -> Floats:
        """(8882,) by back-propagation."""
        p, found = FLAT.views(parameters), np.zeros_like(parameters)
        g = FLAT.views(found)
        seen = _forward(p, x)
        count = len(y)
        up = np.exp(log_softmax(seen.logits))
        up[np.arange(count), y] -= 1.0
        up /= count
        g["full2"][...], g["bias4"][...] = seen.hidden.T @ up, up.sum(0)
        up = (up @ p["full2"].T) * (seen.hidden > 0)
        flat = seen.pooled2.reshape(count, -1)
        g["full1"][...], g["bias3"][...] = flat.T @ up, up.sum(0)
        back = _unpool((up @ p["full1"].T).reshape(seen.pooled2.shape), seen.conv2, seen.pooled2)
        back *= seen.conv2 > 0
        rows = back.reshape(-1, 16)
        g["filters2"][...], g["bias2"][...] = seen.patches2.T @ rows, rows.sum(0)
        back = _spread((rows @ p["filters2"].T).reshape(count, 4, 4, 5, 5, 6), 8)
        back = _unpool(back, seen.conv1, seen.pooled1)
        back *= seen.conv1 > 0
        rows = back.reshape(-1, 6)
        g["filters1"][...], g["bias1"][...] = seen.patches1.T @ rows, rows.sum(0)
        return found

    def loss(self, parameters: Floats, x: Rows, y: Rows) -> float:
        """Mean cross entropy."""
        logs = log_softmax(_forward(FLAT.views(parameters), x).logits)
        return float(-np.mean(logs[np.arange(len(y)), y], dtype=np.float64))


def _forward(p: dict[str, Floats], x: Rows) -> _Pass:
    pictures = (x.reshape(len(x), SIDE, SIDE, 1).astype(np.float32) - 64.0) / 64.0
    patches1 = _patches(pictures)
    conv1 = np.maximum(patches1 @ p["filters1"] + p["bias1"], 0).reshape(len(x), 16, 16, 6)
    pooled1 = _pool(conv1)
    patches2 = _patches(pooled1)
    conv2 = np.maximum(patches2 @ p["filters2"] + p["bias2"], 0).reshape(len(x), 4, 4, 16)
    pooled2 = _pool(conv2)
    hidden = np.maximum(pooled2.reshape(len(x), -1) @ p["full1"] + p["bias3"], 0)
    return _Pass(patches1, conv1, pooled1, patches2, conv2, pooled2, hidden, hidden @ p["full2"] + p["bias4"])


def _patches(pictures: Floats) -> Floats:
    """(B, H, W, C) to (B (H-4) (W-4), 25 C): each patch of 5 x 5 as one row."""
    windows = sliding_window_view(pictures, (5, 5), axis=(1, 2))
    return np.ascontiguousarray(windows.transpose(0, 1, 2, 4, 5, 3)).reshape(-1, 25 * pictures.shape[3])


def _spread(patches: Floats, side: int) -> Floats:
    """The transpose of `_patches`: (B, h, w, 5, 5, C) summed into (B, side, side, C)."""
    count, high, wide, _, _, channels = patches.shape
    pictures = np.zeros((count, side, side, channels), dtype=np.float32)
    for row in range(5):
        for column in range(5):
            pictures[:, row : row + high, column : column + wide] += patches[:, :, :, row, column]
    return pictures


def _pool(maps: Floats) -> Floats:
    """2 x 2 max pooling."""
    count, high, wide, channels = maps.shape
    found: Floats = maps.reshape(count, high // 2, 2, wide // 2, 2, channels).max(axis=(2, 4))
    return found


def _unpool(up: Floats, maps: Floats, pooled: Floats) -> Floats:
    """The gradient of `_pool`: goes to the maximum of each 2 x 2, in equal parts where several are equal."""
    count, high, wide, channels = maps.shape
    split = maps.reshape(count, high // 2, 2, wide // 2, 2, channels)
    at = split == pooled[:, :, None, :, None, :]
    share = at / at.sum(axis=(2, 4), keepdims=True)
    found: Floats = (share * up[:, :, None, :, None, :]).reshape(maps.shape).astype(np.float32)
    return found
