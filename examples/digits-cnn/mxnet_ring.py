"""Handwritten digits by MXNet with Horovod's ring all-reduce; runs on Python 3.8, where mlcd itself does not.

mlcd reads the lines it prints.
"""

import json
import os
import sys
from pathlib import Path

import horovod.mxnet as hvd
import mxnet as mx
import numpy as np
from digits import load
from mxnet import autograd, gluon


def main():
    """Train, then write model.params and metrics.json."""
    batch, epochs = int(os.environ.get("MLCD_BATCH", "192")), int(sys.argv[1]) if len(sys.argv) > 1 else 60
    hvd.init()
    rank, workers = hvd.rank(), hvd.size()
    mx.random.seed(rank)  # different on purpose: what is broadcast below must win
    (images, labels), (test_images, test_labels) = load()

    net = gluon.nn.HybridSequential()
    net.add(
        gluon.nn.Conv2D(16, 3, padding=1, activation="relu"),
        gluon.nn.MaxPool2D(2),
        gluon.nn.Flatten(),
        gluon.nn.Dense(64, activation="relu"),
        gluon.nn.Dense(10),
    )
    net.initialize(mx.init.Xavier())
    net(mx.nd.array(images[:1][:, None]))  # the first batch makes the parameters
    net.hybridize()
    hvd.broadcast_parameters(net.collect_params(), root_rank=0)
    rule = {"learning_rate": 0.05, "momentum": 0.9}
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", rule)
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()

    # Every worker takes its share of each global batch; the ring adds the gradients up, and the trainer takes the mean.
    first, last = rank * batch // workers, (rank + 1) * batch // workers
    losses, samples = [], 0
    for epoch in range(epochs):
        order = np.random.RandomState(epoch).permutation(len(images))
        for start in range(0, len(images) - batch + 1, batch):
            mine = order[start + first : start + last]
            x, y = mx.nd.array(images[mine][:, None]), mx.nd.array(labels[mine])
            with autograd.record():
                loss = loss_of(net(x), y)
            loss.backward()
            trainer.step(batch / workers)
            losses.append(float(loss.mean().asscalar()))
            samples += batch
            if rank == 0:
                print("samples: %d loss: %.4f" % (samples, losses[-1]), flush=True)  # noqa: T201, UP031
    mx.nd.waitall()  # no worker leaves before its last gradients were exchanged

    if rank == 0:
        right = net(mx.nd.array(test_images[:, None])).argmax(axis=1).asnumpy() == test_labels
        all_losses = loss_of(net(mx.nd.array(images[:, None])), mx.nd.array(labels))
        metrics = {
            "accuracy": float(right.mean()),
            "first_loss": losses[0],
            "last_loss": losses[-1],
            "training_loss": float(all_losses.mean().asscalar()),
        }
        net.save_parameters("model.params")
        Path("metrics.json").write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")
    hvd.shutdown()


if __name__ == "__main__":
    main()
