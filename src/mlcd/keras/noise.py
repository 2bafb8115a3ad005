"""SGD noise in Keras' own `fit`, on one replica: squared norms and inner product of two successive gradients.

They are measured in the optimizer's `apply` and kept in TensorFlow variables, so that the step may be compiled; Python
reads the variables every few steps.
"""

from collections.abc import Sequence
from typing import Any

import keras

from mlcd.keras.distribute import DEFAULT_INTERVAL_STEPS
from mlcd.training.training_progress import TrainingProgress


class Pairs:
    """Measures the gradients of a built model from now on."""

    def __init__(self, model: Any, progress: TrainingProgress, batch: int) -> None:
        import tensorflow as tf  # noqa: PLC0415  keras has other backends, for which it is not there

        self._progress, self._batch = progress, batch
        self._every = max(progress.env.noise_every or DEFAULT_INTERVAL_STEPS, 2)
        self._before = [
            tf.Variable(tf.zeros(variable.shape), trainable=False) for variable in model.trainable_variables
        ]
        self._steps = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._numbers = tf.Variable(tf.zeros(3), trainable=False)
        self._done = 0
        optimizer, self._tf = model.optimizer, tf
        self._apply = optimizer.apply
        optimizer.apply = self._see_and_apply
        model.make_train_function(force=True)  # an existing one would not call the new `apply`

    def _see_and_apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        gradients = list(grads)
        if len(gradients) == len(self._before):
            self._see(gradients)
        return self._apply(gradients, trainable_variables)

    def _see(self, gradients: Sequence[Any]) -> None:
        tf = self._tf
        pairs = [
            (before, tf.cast(tf.convert_to_tensor(gradient), tf.float32))
            for before, gradient in zip(self._before, gradients, strict=True)
            if gradient is not None
        ]

        def keep() -> Any:
            for before, now in pairs:
                before.assign(now)
            return tf.constant(value=True)

        def compare() -> Any:
            products = [(before * before, now * now, before * now) for before, now in pairs]
            sums = [tf.add_n([tf.reduce_sum(product) for product in kind]) for kind in zip(*products, strict=True)]
            self._numbers.assign(tf.stack(sums))
            return tf.constant(value=True)

        def pass_by() -> Any:
            return tf.constant(value=False)

        phase = self._steps.assign_add(1) % self._every
        tf.cond(tf.equal(phase, self._every - 1), keep, pass_by)
        tf.cond(tf.equal(phase, 0), compare, pass_by)

    def report(self, steps: int) -> None:
        """Count `steps` more steps, and report the numbers measured in them, if any."""
        # Counted in Python too: reading a variable would wait for the device at every step.
        seen, self._done = self._done // self._every, self._done + steps
        if self._done // self._every > seen:
            before, now, dot = (float(number) for number in self._numbers.numpy())
            self._progress.noise(workers=1, batch=self._batch, before=before, now=now, dot=dot)


def why_not(model: Any) -> str:
    """Why the noise of this model's `fit` cannot be measured; empty where it can."""
    if keras.backend.backend() != "tensorflow":
        return f"Keras has the {keras.backend.backend()} backend, and only TensorFlow's can be measured"
    strategy = getattr(model, "distribute_strategy", None)
    if strategy is not None and strategy.num_replicas_in_sync > 1:
        return "fit on several replicas hides the gradients; write a custom training step with mlcd.keras.all_reduce"
    return ""
