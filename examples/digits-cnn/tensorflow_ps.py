"""Handwritten digits by TensorFlow's ParameterServerStrategy: variables live on the server, workers compute gradients.

The chief hands out the shares of each batch and waits for them: the batch stays what it is, however many workers.
"""

import argparse

import tensorflow as tf
from digits import load
from tensorflow_model import Network

import mlcd
import mlcd.keras


def main() -> None:
    """As chief train, then write model.npz and metrics.json; as worker or server serve until the end."""
    options = argparse.ArgumentParser()
    options.add_argument("--epochs", type=int, default=60)
    options.add_argument("--batch", type=int, default=192, help="of all workers together")
    given = options.parse_args()

    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if cluster.task_type in ("worker", "ps"):
        server = tf.distribute.Server(
            cluster.cluster_spec(), job_name=cluster.task_type, task_index=cluster.task_id, protocol="grpc"
        )
        server.join()

    strategy = tf.distribute.ParameterServerStrategy(cluster)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    workers = cluster.cluster_spec().num_tasks("worker")
    (images, labels), test = load()
    with strategy.scope():
        network = Network()

    @tf.function
    def gradients_of(images: tf.Tensor, labels: tf.Tensor) -> tuple:
        return network.loss_and_gradients(images, labels, given.batch)

    @tf.function
    def apply(gradients: list) -> None:
        network.apply(gradients)

    data = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(len(images), seed=0)
    mlcd.checkpoint(save=network.save, load=network.load)  # line 1: goes on where the last trial stopped
    losses = []
    # Line 2: the loop that mlcd watches.
    for batch_images, batch_labels in mlcd.steps(
        data.batch(given.batch, drop_remainder=True), batch_size=given.batch, total=given.epochs * len(images)
    ):
        shares = [slice(i * given.batch // workers, (i + 1) * given.batch // workers) for i in range(workers)]
        parts = [coordinator.schedule(gradients_of, args=(batch_images[s], batch_labels[s])) for s in shares]
        coordinator.join()
        computed = [part.fetch() for part in parts]
        apply(mlcd.keras.aggregate([part[1] for part in computed]))  # also measures their noise, for mlcd
        losses.append(float(sum(part[0] for part in computed)))

    network.write_outputs(test, losses)


if __name__ == "__main__":
    main()
