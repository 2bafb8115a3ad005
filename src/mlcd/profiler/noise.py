"""The SGD noise scale of a real job, from its reports."""

from collections.abc import Iterable, Sequence

from mlcd.clouds.reading import MOST_SAMPLES, GradientNorms, Reading
from mlcd.errors import BadInput
from mlcd.models.noise import Norms, successive

IGNORED_FIRST_STEPS = 10
"""Steps at the start of the training that are ignored, since gradients are volatile there. Our choice; no source."""
FEWEST_REPORTS = 6
"""Fewest reports for a noise scale."""
UNSTABLE_RATIO = 1.5
"""Where the two halves of a stretch differ by more than this factor, only the second counts."""


def norms(seen: GradientNorms, batch: float | None = None) -> Norms | None:
    """The norms in the form of the models; None if they are not finite or impossible, or the batch is unknown.

    batch  of all workers, for jobs that do not report it
    """
    whole = batch if seen.batch is None else seen.batch
    if whole is None:
        return None
    try:
        if seen.workers == 1:
            if seen.before is None or seen.now is None or seen.dot is None:
                return None
            return successive(before=seen.before, now=seen.now, dot=seen.dot, batch=whole)
        if seen.local is None or seen.total is None:
            return None
        return Norms(local=seen.local, total=seen.total, workers=seen.workers, batch=whole)
    except BadInput:  # a job may report anything, such as a product of two vectors beyond their lengths'
        return None


def noise_scale(readings: Iterable[Reading], *, batch: float | None = None) -> float | None:
    """The noise scale phi over a stretch of training: summed variance / summed signal; None with too few reports.

    The first steps of the whole training are ignored, and so is the first half of the stretch if it differs from the
    second by more than UNSTABLE_RATIO: noise is low and volatile there.
    """
    seen = []
    for reading in readings:
        found = None if reading.noise is None else norms(reading.noise, batch)
        if found is None or reading.noise is None:
            continue
        step = reading.noise.batch or batch or 0.0
        if reading.samples is None or reading.samples > IGNORED_FIRST_STEPS * step:
            seen.append(found)
    if len(seen) < FEWEST_REPORTS:
        return None
    first, second = (_ratio(half) for half in (seen[: len(seen) // 2], seen[len(seen) // 2 :]))
    if first is None or second is None or max(first, second) > UNSTABLE_RATIO * min(first, second):
        return second
    return _ratio(seen)


def _ratio(some: Sequence[Norms]) -> float | None:
    """phi = s2/|G|^2, both averaged first; None if either is not above 0, or the signal as good as 0."""
    variance, signal = sum(n.variance for n in some), sum(n.signal for n in some)
    ratio = variance / signal if variance > 0 and signal > 0 else None
    return ratio if ratio is not None and ratio <= MOST_SAMPLES else None
