"""A small convolutional network that reads handwritten digits: PyTorch, any number of workers.

What mlcd needs is marked; the rest is PyTorch as it always is. By hand, without mlcd's variables: python train.py
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
    """With the defaults 0.15 million parameters, with hidden=512 half a million, and the network to wait for."""
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
    options.add_argument("--epochs", type=int, default=200)
    options.add_argument("--batch", type=int, default=192, help="of all workers together")
    options.add_argument("--width", type=int, default=32, help="channels of the first layer")
    options.add_argument("--hidden", type=int, default=128, help="units of the hidden layer")
    given = options.parse_args()

    torch.manual_seed(0)
    (images, labels), test = ((torch.from_numpy(x).unsqueeze(1), torch.from_numpy(y)) for x, y in load())
    rank, device = mlcd.torch.init(), mlcd.torch.device()
    model = mlcd.torch.parallel(network(given.width, given.hidden))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loader = mlcd.torch.loader(TensorDataset(images, labels), batch_size=given.batch)

    done = mlcd.torch.checkpoint(model=model, optimizer=optimizer)  # line 1: goes on where the last trial stopped
    losses = []
    # Line 2: the loop that mlcd watches.
    for image, label in mlcd.steps(loader, batch_size=given.batch, total=given.epochs * len(images)):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(image.to(device)), label.to(device))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    if rank == 0:
        model.eval()
        with torch.no_grad():
            output = model.module(test[0].to(device)).cpu()
        metrics = {
            "accuracy": (output.argmax(1) == test[1]).float().mean().item(),
            "test_loss": nn.functional.cross_entropy(output, test[1]).item(),
            "first_loss": losses[0] if losses else None,
            "last_loss": losses[-1] if losses else None,
            "restored_samples": done,
        }
        torch.save(model.module.state_dict(), "model.pt")
        Path("metrics.json").write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")
        print(json.dumps(metrics))  # noqa: T201
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
