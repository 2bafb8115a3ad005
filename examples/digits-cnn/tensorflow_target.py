"""Handwritten digits by MultiWorkerMirroredStrategy until they are read well: mlcd chooses batch and learning rate.

What mlcd needs is marked; by hand, without mlcd's variables: python tensorflow_target.py --batch 64
"""

import argparse
import os

import tensorflow as tf
from digits import load
from tensorflow_model import Network

import mlcd
import mlcd.keras


def main() -> None:
    """Train, then write model.npz and metrics.json."""
    options = argparse.ArgumentParser()
    options.add_argument("--epochs", type=int, default=400, help="at most")
    chosen = int(os.environ.get("MLCD_BATCH", "192"))
    options.add_argument(
        "--batch", type=int, default=chosen, help="of all workers together; by default what mlcd chose"
    )
    given = options.parse_args()

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    (images, labels), (test_images, test_labels) = load()
    data = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(len(images), seed=0)
    shares = strategy.experimental_distribute_dataset(data.batch(given.batch, drop_remainder=True))
    with strategy.scope():
        network = Network()
    rate = mlcd.learning_rate(0.02)  # by the job file's rule

    @tf.function
    def train(batch: tuple) -> tf.Tensor:
        def on_one_worker(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
            loss, gradients = network.loss_and_gradients(images, labels, given.batch)
            network.apply(mlcd.keras.all_reduce(gradients), rate=rate)  # line 1: their noise is measured
            return loss

        return strategy.reduce("SUM", strategy.run(on_one_worker, args=batch), axis=None)

    mlcd.checkpoint(save=network.save, load=network.load)  # a trial with another batch goes on from here
    losses = []
    for step, batch in enumerate(mlcd.steps(shares, batch_size=given.batch, total=given.epochs * len(images)), start=1):
        losses.append(float(train(batch)))
        if step % (len(images) // given.batch) == 0:
            right = tf.argmax(network(test_images), 1).numpy() == test_labels
            mlcd.score(accuracy=float(right.mean()))  # line 2: the loop ends when the job's target is met

    if strategy.cluster_resolver.task_id in (None, 0):
        network.write_outputs((test_images, test_labels), losses)


if __name__ == "__main__":
    main()
