"""SGD noise under tf.distribute: squared norms of the workers' gradients and of their mean.

all_reduce  in a replica context (MultiWorkerMirroredStrategy): each replica sends the square of its own gradient along
aggregate   on the chief of a ParameterServerStrategy, which collects the gradients of a step from all workers
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

from mlcd.training.training_progress import TrainingProgress, current_progress

DEFAULT_INTERVAL_STEPS = 10
"""Steps from one measured step to the next, unless MLCD_NOISE_EVERY sets it."""


def all_reduce(gradients: Sequence[Any], op: str = "SUM", *, noise: bool | None = None) -> list[Any]:
    """The gradients summed (`op` "SUM") or averaged ("MEAN") over all replicas, for tf.distribute's replica context.

    As tf.distribute.get_replica_context().all_reduce(op, gradients) does. With `noise`, by default where mlcd asks for
    it (MLCD_NOISE=1), the gradients' squared norms are reported every few steps; each replica sends its own with the
    gradients as one more number. "SUM" is for losses that are divided by the batch of all replicas; all replicas must
    have equal shares. Raises ValueError for another op.
    """
    import tensorflow as tf  # noqa: PLC0415  keras has other backends, for which it is not there

    context = tf.distribute.get_replica_context()
    if op not in ("SUM", "MEAN"):
        raise ValueError(f"mlcd.keras.all_reduce: op must be SUM or MEAN (got {op!r})")
    wanted = current_progress().env.noise if noise is None else noise
    if not wanted:
        return list(context.all_reduce(op, list(gradients)))
    if context.num_replicas_in_sync == 1:
        _see_alone(tf, gradients)
        return list(context.all_reduce(op, list(gradients)))
    *reduced, squares = context.all_reduce(op, [*gradients, _square(tf, gradients)])
    if current_progress().env.head:
        # In a sum, each replica contributes its own gradient divided by the number of replicas.
        local = squares * context.num_replicas_in_sync if op == "SUM" else squares
        seen = (context.replica_id_in_sync_group, context.num_replicas_in_sync, local, _square(tf, reduced))
        tf.numpy_function(_reporter().see, seen, [], stateful=True)
    return list(reduced)


def aggregate(parts: Sequence[Sequence[Any]], op: str = "SUM", *, noise: bool | None = None) -> list[Any]:
    """The gradients of one step summed (`op` "SUM") or averaged ("MEAN") over the workers; for the chief.

    parts  of each worker the gradients that it computed with the same weights, as `coordinator.schedule` gives them

    With `noise`, by default where mlcd asks for it (MLCD_NOISE=1), the gradients' squared norms are reported every few
    steps; on a single worker those of two successive steps. "SUM" is for losses that are divided by the batch of all
    workers; all workers must have equal shares. Raises ValueError for another op, and where there is no part.
    """
    import tensorflow as tf  # noqa: PLC0415

    if op not in ("SUM", "MEAN"):
        raise ValueError(f"mlcd.keras.aggregate: op must be SUM or MEAN (got {op!r})")
    if not parts:
        raise ValueError("mlcd.keras.aggregate: parts must hold the gradients of at least one worker")
    workers = len(parts)
    whole = [tf.add_n([tf.convert_to_tensor(one) for one in same]) for same in zip(*parts, strict=True)]
    if op == "MEAN":
        whole = [gradient / workers for gradient in whole]
    progress = current_progress()
    if (progress.env.noise if noise is None else noise) and progress.env.head:
        reporter = _reporter()
        if workers == 1:
            if reporter.due():
                reporter.see_alone(_flat(tf, whole).numpy())
        elif reporter.is_due(workers):
            # In a sum, each worker contributes its own gradient divided by the number of workers.
            scale = workers**2 if op == "SUM" else 1
            local = scale * sum(float(_square(tf, part)) for part in parts) / workers
            reporter.take(local, float(_square(tf, whole)))
    return whole


def _see_alone(tf: Any, gradients: Sequence[Any]) -> None:
    def look() -> Any:
        flat = _flat(tf, gradients)
        with tf.control_dependencies([tf.numpy_function(_reporter().see_alone, [flat], [], stateful=True)]):
            return tf.constant(value=True)

    due = tf.ensure_shape(tf.numpy_function(_reporter().due, [], tf.bool, stateful=True), [])
    tf.cond(due, look, lambda: tf.constant(value=False))


def _square(tf: Any, gradients: Sequence[Any]) -> Any:
    return tf.add_n([tf.reduce_sum(tf.square(tf.cast(gradient, tf.float32))) for gradient in _dense(tf, gradients)])


def _flat(tf: Any, gradients: Sequence[Any]) -> Any:
    return tf.concat([tf.reshape(tf.cast(gradient, tf.float32), [-1]) for gradient in _dense(tf, gradients)], 0)


def _dense(tf: Any, gradients: Sequence[Any]) -> list[Any]:
    return [tf.convert_to_tensor(gradient) for gradient in gradients]


class _Reporter:
    """Called at every step, in TensorFlow's graph or by a chief; reports some of them one step later, once counted."""

    def __init__(self, progress: TrainingProgress) -> None:
        self._progress = progress
        self._every = progress.env.noise_every or DEFAULT_INTERVAL_STEPS
        self._steps = 0
        self._pending: dict[str, float] | None = None
        self._before: Any = None

    def see(self, replica: Any, replicas: Any, local: Any, total: Any) -> None:
        """Count a step of several replicas; only the call of the first one counts."""
        if int(replica) == 0 and self.is_due(int(replicas)):
            self.take(float(local), float(total))

    def is_due(self, replicas: int) -> bool:
        """Whether to measure this step of several replicas; counts the step."""
        self._report(replicas)
        self._steps += 1
        return self._steps % self._every == 0

    def take(self, local: float, total: float) -> None:
        """Keep the norms of this step, to be reported with the next."""
        self._pending = {"local": local, "total": total}

    def due(self) -> Any:
        """Whether to measure a single replica's gradient in this step; counts the step."""
        import numpy as np  # noqa: PLC0415

        self._report(1)
        self._steps += 1
        return np.bool_(self._steps % max(self._every, 2) < 2)

    def see_alone(self, now: Any) -> None:
        """Compare two successive gradients, once per interval."""
        if self._steps % max(self._every, 2) == 0:
            self._before = now.copy()  # TensorFlow owns its memory
        elif self._before is not None:
            before, self._before = self._before, None
            dot = {"before": before @ before, "now": now @ now, "dot": before @ now}
            self._pending = {name: float(value) for name, value in dot.items()}

    def _report(self, replicas: int) -> None:
        if self._pending is not None:
            self._progress.noise(workers=replicas, batch=None, **self._pending)
            self._pending = None


@cache
def _reporter() -> _Reporter:
    return _Reporter(current_progress())
