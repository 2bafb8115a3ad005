"""The handwritten digits of this folder, as arrays; see README.md for where they come from."""

from pathlib import Path

import numpy as np

TRAIN = 1500


def load():
    """((images, labels) to train on, (images, labels) to test with); images are 8 x 8, from 0 to 1."""
    with np.load(str(Path(__file__).resolve().parent / "digits.npz")) as data:
        images, labels = data["images"].astype("float32") / 16, data["labels"].astype("int64")
    order = np.random.RandomState(0).permutation(len(images))
    images, labels = images[order], labels[order]
    return (images[:TRAIN], labels[:TRAIN]), (images[TRAIN:], labels[TRAIN:])
