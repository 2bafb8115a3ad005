"""Handwritten digits by TensorFlow's MultiWorkerMirroredStrategy: each worker takes its share of every batch."""

import argparse

import tensorflow as tf
from digits import load
from tensorflow_model import Network

import mlcd
import mlcd.keras


def main() -> None:
    """Train, then write model.npz and metrics.json."""
    options = argparse.ArgumentParser()
    options.add_argument("--epochs", type=int, default=60)
    options.add_argument("--batch", type=int, default=192, help="of all workers together")
    given = options.parse_args()

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    (images, labels), test = load()
    data = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(len(images), seed=0)
    shares = strategy.experimental_distribute_dataset(data.batch(given.batch, drop_remainder=True))
    with strategy.scope():
        network = Network()

    @tf.function
    def train(batch: tuple) -> tf.Tensor:
        def on_one_worker(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
            loss, gradients = network.loss_and_gradients(images, labels, given.batch)
            network.apply(mlcd.keras.all_reduce(gradients))  # also measures their noise, for mlcd
            return loss

        return strategy.reduce("SUM", strategy.run(on_one_worker, args=batch), axis=None)

    mlcd.checkpoint(save=network.save, load=network.load)  # line 1: goes on where the last trial stopped
    losses = []
    # Line 2: the loop that mlcd watches.
    for batch in mlcd.steps(shares, batch_size=given.batch, total=given.epochs * len(images)):
        loss = train(batch)
        losses.append(float(loss))

    if strategy.cluster_resolver.task_id in (None, 0):
        network.write_outputs(test, losses)


if __name__ == "__main__":
    main()
