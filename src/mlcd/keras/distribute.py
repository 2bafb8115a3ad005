"""SGD noise under tf.distribute: squared norms of the replicas' gradients and of their mean, as they are added up."""

from collections.abc import Sequence
from functools import cache
from typing import Any

from mlcd.training.training_progress import TrainingProgress, course

EVERY = 10
"""Steps from one measured step to the next, where MLCD_NOISE_EVERY says nothing."""


def all_reduce(gradients: Sequence[Any], op: str = "SUM", *, noise: bool | None = None) -> list[Any]:
    """The gradients added up (`op` "SUM") or averaged ("MEAN") over all replicas, for tf.distribute's replica context.

    As tf.distribute.get_replica_context().all_reduce(op, gradients) does. With `noise`, by default where mlcd asks for
    it (MLCD_NOISE=1), the gradients' squared norms are reported every few steps: the replicas' own travels with the
    gradients as one number more. "SUM" is for losses that are divided by the batch of all replicas, which have equal
    shares. Raises ValueError for another op.
    """
    import tensorflow as tf  # noqa: PLC0415  keras has other backends, for which it is not there

    context = tf.distribute.get_replica_context()
    if op not in ("SUM", "MEAN"):
        raise ValueError(f"mlcd.keras.all_reduce: op is SUM or MEAN (got {op!r})")
    wanted = course().surroundings.noise if noise is None else noise
    if not wanted:
        return list(context.all_reduce(op, list(gradients)))
    if context.num_replicas_in_sync == 1:
        _see_alone(tf, gradients)
        return list(context.all_reduce(op, list(gradients)))
    *reduced, squares = context.all_reduce(op, [*gradients, _square(tf, gradients)])
    if course().surroundings.head:
        # A part of a sum is a replica's own gradient over their number.
        local = squares * context.num_replicas_in_sync if op == "SUM" else squares
        seen = (context.replica_id_in_sync_group, context.num_replicas_in_sync, local, _square(tf, reduced))
        tf.numpy_function(_reporter().see, seen, [], stateful=True)
    return list(reduced)


def _see_alone(tf: Any, gradients: Sequence[Any]) -> None:
    def look() -> Any:
        flat = [tf.reshape(tf.cast(gradient, tf.float32), [-1]) for gradient in _dense(tf, gradients)]
        with tf.control_dependencies(
            [tf.numpy_function(_reporter().see_alone, [tf.concat(flat, 0)], [], stateful=True)]
        ):
            return tf.constant(value=True)

    due = tf.ensure_shape(tf.numpy_function(_reporter().due, [], tf.bool, stateful=True), [])
    tf.cond(due, look, lambda: tf.constant(value=False))


def _square(tf: Any, gradients: Sequence[Any]) -> Any:
    return tf.add_n([tf.reduce_sum(tf.square(tf.cast(gradient, tf.float32))) for gradient in _dense(tf, gradients)])


def _dense(tf: Any, gradients: Sequence[Any]) -> list[Any]:
    return [tf.convert_to_tensor(gradient) for gradient in gradients]


class _Reporter:
    """Is told of every step from inside TensorFlow's graph, and reports some when they are counted: one step later."""

    def __init__(self, course: TrainingProgress) -> None:
        self._course = course
        self._every = course.surroundings.noise_every or EVERY
        self._steps = 0
        self._pending: dict[str, float] | None = None
        self._before: Any = None

    def see(self, replica: Any, replicas: Any, local: Any, total: Any) -> None:
        """Of several replicas, the first one's call counts."""
        if int(replica) != 0:
            return
        self._report(int(replicas))
        self._steps += 1
        if self._steps % self._every == 0:
            self._pending = {"local": float(local), "total": float(total)}

    def due(self) -> Any:
        """Whether a single replica's gradient is looked at in this step."""
        import numpy as np  # noqa: PLC0415

        self._report(1)
        self._steps += 1
        return np.bool_(self._steps % max(self._every, 2) < 2)

    def see_alone(self, now: Any) -> None:
        """Two gradients in succession, of every so many."""
        if self._steps % max(self._every, 2) == 0:
            self._before = now.copy()  # its memory is TensorFlow's
        elif self._before is not None:
            before, self._before = self._before, None
            dot = {"before": before @ before, "now": now @ now, "dot": before @ now}
            self._pending = {name: float(value) for name, value in dot.items()}

    def _report(self, replicas: int) -> None:
        if self._pending is not None:
            self._course.noise(workers=replicas, batch=None, **self._pending)
            self._pending = None


@cache
def _reporter() -> _Reporter:
    return _Reporter(course())
