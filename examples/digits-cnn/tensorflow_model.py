"""The network of both TensorFlow examples. Keras 3 cannot `fit` on several workers, so its steps are written out."""

import json
from pathlib import Path

import numpy as np
import tensorflow as tf


class Network(tf.Module):
    """One convolution and two dense layers; stochastic gradient descent with momentum."""

    def __init__(self) -> None:
        super().__init__()
        draw = tf.random.stateless_normal
        shapes = [((3, 3, 1, 16), 9), ((256, 64), 256), ((64, 10), 64)]
        self.weights = [
            tf.Variable(draw(shape, seed=(0, i)) * (2 / inputs) ** 0.5) for i, (shape, inputs) in enumerate(shapes)
        ]
        self.biases = [tf.Variable(tf.zeros(size)) for size in (16, 64, 10)]
        self.speeds = [tf.Variable(tf.zeros_like(variable)) for variable in (*self.weights, *self.biases)]

    def __call__(self, images: tf.Tensor) -> tf.Tensor:
        """The scores of the ten digits."""
        x = tf.nn.relu(tf.nn.conv2d(images[..., None], self.weights[0], 1, "SAME") + self.biases[0])
        x = tf.reshape(tf.nn.max_pool2d(x, 2, 2, "SAME"), (-1, 256))
        x = tf.nn.relu(x @ self.weights[1] + self.biases[1])
        return x @ self.weights[2] + self.biases[2]

    def loss_and_gradients(self, images: tf.Tensor, labels: tf.Tensor, batch: int) -> tuple:
        """Summed over these images, divided by the batch of all workers: what the workers' parts have to add up to."""
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, self(images))
            loss = tf.reduce_sum(losses) / batch
        return loss, tape.gradient(loss, [*self.weights, *self.biases])

    def apply(self, gradients: list, *, rate: float = 0.05, momentum: float = 0.9) -> None:
        """One step downhill."""
        for variable, speed, gradient in zip((*self.weights, *self.biases), self.speeds, gradients, strict=True):
            speed.assign(momentum * speed + gradient)
            variable.assign_sub(rate * speed)

    def save(self, folder: Path) -> None:
        """Everything the training needs to go on."""
        np.savez(folder / "network.npz", *[variable.numpy() for variable in self.variables])

    def load(self, folder: Path) -> None:
        """What `save` saved."""
        with np.load(folder / "network.npz") as saved:
            for variable, name in zip(self.variables, saved.files, strict=True):
                variable.assign(saved[name])

    def write_outputs(self, test: tuple, losses: list) -> None:
        """model.npz and metrics.json, where the script runs."""
        right = tf.argmax(self(test[0]), 1).numpy() == test[1]
        metrics = {"accuracy": float(right.mean()), "first_loss": losses[0], "last_loss": losses[-1]}
        np.savez("model.npz", *[variable.numpy() for variable in (*self.weights, *self.biases)])
        Path("metrics.json").write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")
