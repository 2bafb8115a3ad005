"""Handwritten digits by softmax regression, in NumPy alone: workers send their gradients to the first one.

Shows what any command is given: MLCD_RANK, MLCD_NUM_NODES, MLCD_HEAD, MLCD_PORT, MLCD_LEASE. By hand: python softmax.py
"""

import argparse
import json
import os
import time
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path

import numpy as np
from digits import load

RANK, WORKERS = int(os.environ.get("MLCD_RANK", "0")), int(os.environ.get("MLCD_NUM_NODES", "1"))
HEAD = (os.environ.get("MLCD_HEAD", "127.0.0.1"), int(os.environ.get("MLCD_PORT", "29500")))
KEY = os.environ.get("MLCD_LEASE", "by hand").encode()


def meet() -> list[Connection]:
    """Connections to all others on the first worker, to the first one on the others."""
    if RANK == 0:
        with Listener(HEAD, backlog=WORKERS, authkey=KEY) as door:
            return [door.accept() for _ in range(WORKERS - 1)]
    while True:
        try:
            return [Client(HEAD, authkey=KEY)]
        except ConnectionRefusedError:  # the first worker is not there yet
            time.sleep(0.1)


def added_up(gradient: np.ndarray, others: list[Connection]) -> np.ndarray:
    """The sum of all workers' gradients."""
    if RANK > 0:
        others[0].send(gradient)
        return others[0].recv()
    for other in others:
        gradient = gradient + other.recv()
    for other in others:
        other.send(gradient)
    return gradient


def main() -> None:
    """Train, then write model.npz and metrics.json."""
    options = argparse.ArgumentParser()
    options.add_argument("--epochs", type=int, default=200)
    options.add_argument("--batch", type=int, default=192, help="of all workers together")
    given = options.parse_args()

    (images, labels), (test_images, test_labels) = load()
    inputs, truth = images.reshape(-1, 64), np.eye(10, dtype="float32")[labels]
    weights = np.zeros((64, 10), "float32")
    others = meet()
    first, last = RANK * given.batch // WORKERS, (RANK + 1) * given.batch // WORKERS
    losses, step = [], 0
    for epoch in range(given.epochs):
        order = np.random.RandomState(epoch).permutation(len(inputs))
        for start in range(0, len(inputs) - given.batch + 1, given.batch):
            mine = order[start + first : start + last]
            scores = np.exp(inputs[mine] @ weights)
            guess = scores / scores.sum(1, keepdims=True)
            losses.append(float(-np.log(guess[np.arange(len(mine)), labels[mine]]).mean()))
            weights -= 0.1 * added_up(inputs[mine].T @ (guess - truth[mine]) / given.batch, others)
            step += 1
            if RANK == 0 and step % 10 == 0:
                print(f"step {step} loss {losses[-1]:.4f}", flush=True)  # noqa: T201

    if RANK == 0:
        right = (test_images.reshape(-1, 64) @ weights).argmax(1) == test_labels
        metrics = {"accuracy": float(right.mean()), "first_loss": losses[0], "last_loss": losses[-1]}
        np.savez("model.npz", weights)
        Path("metrics.json").write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
