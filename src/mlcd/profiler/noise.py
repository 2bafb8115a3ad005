"""What a real job's reports say of its SGD noise."""

from collections.abc import Iterable, Sequence

from mlcd.clouds.reading import GradientNorms, Reading
from mlcd.models.noise import Norms, successive

FIRST_STEPS = 10
"""Of the whole training: left out, since gradients are volatile there. Our choice; no source states one."""
FEWEST = 6
"""Reports that a noise scale needs."""
UNSTABLE = 1.5


def norms(seen: GradientNorms, batch: float | None = None) -> Norms | None:
    """As the models take them; None where the gradients were not finite, or the batch is nowhere said.

    batch  of all workers, for jobs that do not say it themselves
    """
    whole = batch if seen.batch is None else seen.batch
    if whole is None:
        return None
    if seen.workers == 1:
        if seen.before is None or seen.now is None or seen.dot is None:
            return None
        return successive(before=seen.before, now=seen.now, dot=seen.dot, batch=whole)
    if seen.local is None or seen.total is None or whole < seen.workers:
        return None
    return Norms(local=seen.local, total=seen.total, workers=seen.workers, batch=whole)


def noise_scale(readings: Iterable[Reading], *, batch: float | None = None) -> float | None:
    """The noise scale phi over a stretch of training: summed variance over summed signal; None with too few reports.

    The first steps of the whole training do not count, and neither does the first half of the stretch where it differs
    from the second by more than UNSTABLE: noise is low and volatile there.
    """
    seen = []
    for reading in readings:
        found = None if reading.noise is None else norms(reading.noise, batch)
        if found is None or reading.noise is None:
            continue
        step = reading.noise.batch or batch or 0.0
        if reading.samples is None or reading.samples > FIRST_STEPS * step:
            seen.append(found)
    if len(seen) < FEWEST:
        return None
    first, second = (_ratio(half) for half in (seen[: len(seen) // 2], seen[len(seen) // 2 :]))
    if first is None or second is None or max(first, second) > UNSTABLE * min(first, second):
        return second
    return _ratio(seen)


def _ratio(some: Sequence[Norms]) -> float | None:
    """phi = s2/|G|^2, both averaged first; None where one of them is not above 0."""
    variance, signal = sum(n.variance for n in some), sum(n.signal for n in some)
    return variance / signal if variance > 0 and signal > 0 else None
