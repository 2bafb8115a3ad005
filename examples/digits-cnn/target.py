"""The digits network, trained until it is good enough: the global batch and the learning rate are mlcd's to choose.

What mlcd needs is marked; by hand, without mlcd's variables: python target.py --batch 64
"""

import argparse
import json
from pathlib import Path

import torch
from digits import load
from torch import nn
from torch.utils.data import TensorDataset

import mlcd
import mlcd.torch


def network(width: int, hidden: int) -> nn.Module:
    """Two convolutions and two linear layers."""
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(2 * width * 16, hidden),
        nn.ReLU(),
        nn.Linear(hidden, 10),
    )


def main() -> None:
    """Train, then write model.pt and metrics.json."""
    options = argparse.ArgumentParser()
    options.add_argument("--batch", type=int, help="of all workers together; by default what mlcd chose")
    options.add_argument("--epochs", type=int, default=400, help="at most")
    options.add_argument("--width", type=int, default=16, help="channels of the first layer")
    options.add_argument("--hidden", type=int, default=64, help="units of the hidden layer")
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()

    torch.manual_seed(given.seed)
    (images, labels), (test_images, test_labels) = (
        (torch.from_numpy(x).unsqueeze(1), torch.from_numpy(y)) for x, y in load()
    )
    rank = mlcd.torch.init()
    model = mlcd.torch.parallel(network(given.width, given.hidden))  # line 1: gradients are averaged, noise is measured
    optimizer = torch.optim.SGD(model.parameters(), lr=mlcd.learning_rate(0.05))  # by the job file's rule
    loader = mlcd.torch.loader(TensorDataset(images, labels), batch_size=given.batch, seed=given.seed)
    mlcd.torch.checkpoint(model=model, optimizer=optimizer)  # a trial with another batch goes on from here

    accuracy = 0.0
    for step, (image, label) in enumerate(
        mlcd.steps(loader, batch_size=given.batch, total=given.epochs * len(images)), start=1
    ):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(image), label).backward()
        optimizer.step()
        if step % len(loader) == 0:
            with torch.no_grad():
                accuracy = (model.module(test_images).argmax(1) == test_labels).float().mean().item()
            mlcd.score(accuracy=accuracy)  # line 2: the loop ends when the job's target is met

    if rank == 0:
        torch.save(model.module.state_dict(), "model.pt")
        Path("metrics.json").write_text(json.dumps({"accuracy": accuracy}) + "\n", encoding="utf-8")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
