"""Handwritten digits by MXNet's parameter server (dist_sync); runs on Python 3.8, where mlcd itself does not.

mlcd reads the lines it prints. In the scheduler and the server `import mxnet` does not return.
"""

import json
import os
import sys
from pathlib import Path

import mxnet as mx
import numpy as np
from digits import load
from mxnet import autograd, gluon


def main():
    """Train, then write model.params and metrics.json."""
    batch, epochs = int(os.environ.get("MLCD_BATCH", "192")), int(sys.argv[1]) if len(sys.argv) > 1 else 60
    store = mx.kv.create("dist_sync" if "DMLC_ROLE" in os.environ else "local")
    rank, workers = store.rank, store.num_workers
    mx.random.seed(0)
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
    net.hybridize()
    rule = {"learning_rate": 0.05, "momentum": 0.9}
    trainer = gluon.Trainer(net.collect_params(), "sgd", rule, kvstore=store, update_on_kvstore=True)
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()

    # Every worker takes its share of each global batch; the server adds the gradients up.
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
            trainer.step(batch)
            losses.append(float(loss.mean().asscalar()))
            samples += batch
            if rank == 0:
                print("samples: %d loss: %.4f" % (samples, losses[-1]), flush=True)  # noqa: T201, UP031

    if rank == 0:
        right = net(mx.nd.array(test_images[:, None])).argmax(axis=1).asnumpy() == test_labels
        metrics = {"accuracy": float(right.mean()), "first_loss": losses[0], "last_loss": losses[-1]}
        net.save_parameters("model.params")
        Path("metrics.json").write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
