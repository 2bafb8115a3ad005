"""The digits network with knobs: how gradients are exchanged, samples at once, data-loading processes.

`knobs: {communication: [fp32, fp16], micro_batch: [48, 192], workers: [0, 1]}`; by hand: python knobs.py
"""

import argparse
import json
from contextlib import nullcontext
from pathlib import Path

import torch
from digits import load
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.utils.data import TensorDataset
from train import network

import mlcd
import mlcd.torch


def main() -> None:
    """Train, then write model.pt and metrics.json."""
    options = argparse.ArgumentParser()
    options.add_argument("--epochs", type=int, default=72)
    options.add_argument("--batch", type=int, default=192, help="of all workers together")
    given = options.parse_args()

    torch.manual_seed(0)
    (images, labels), test = ((torch.from_numpy(x).unsqueeze(1), torch.from_numpy(y)) for x, y in load())
    rank, device = mlcd.torch.init(), mlcd.torch.device()
    model = mlcd.torch.parallel(network(16, 512))
    if mlcd.knob("communication", "fp32") == "fp16":
        model.register_comm_hook(None, fp16_compress_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    workers, micro = mlcd.knob("workers", 0), mlcd.knob("micro_batch", given.batch)
    loader = mlcd.torch.loader(
        TensorDataset(images, labels), batch_size=given.batch, num_workers=workers, persistent_workers=workers > 0
    )
    mlcd.torch.checkpoint(model=model, optimizer=optimizer)
    for image, label in mlcd.steps(loader, batch_size=given.batch, total=given.epochs * len(images)):
        optimizer.zero_grad()
        parts = list(zip(image.split(micro), label.split(micro), strict=True))
        for number, (some, right) in enumerate(parts):
            last = number == len(parts) - 1
            with nullcontext() if last else model.no_sync():  # gradients are exchanged once a step
                loss = nn.functional.cross_entropy(model(some.to(device)), right.to(device))
                (loss * len(some) / len(image)).backward()
        optimizer.step()

    if rank == 0:
        model.eval()
        with torch.no_grad():
            output = model.module(test[0].to(device)).cpu()
        accuracy = (output.argmax(1) == test[1]).float().mean().item()
        torch.save(model.module.state_dict(), "model.pt")
        Path("metrics.json").write_text(json.dumps({"accuracy": accuracy}) + "\n", encoding="utf-8")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
