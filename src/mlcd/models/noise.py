"""SGD noise: how much the gradients of K workers disagree, and the consequences for other cluster sizes and batches.

With the true gradient G, s2 the variance of one sample's gradient and b = B/K, a worker's gradient has
E|g_k|^2 = |G|^2 + s2/b and the average of K workers E|g|^2 = |G|^2 + s2/B. So from

    local = mean over workers of |g_k|^2,   total = |mean over workers of g_k|^2

follow, without bias,

    |G|^2 = (K total - local)/(K - 1),   s2 = (local - total) B/(K - 1),   phi = s2/|G|^2        (the noise scale)

A ratio of noisy numbers is biased, so numerator and denominator are averaged separately and divided last
(mlcd.profiler.noise). One worker shows no noise within a step: two gradients of successive steps, between which the
weights have hardly moved, count as two workers.
"""

import math
from dataclasses import dataclass

from mlcd.errors import BadInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Norms:
    """Squared norms of one step's gradients: of the workers, averaged, and of their average."""

    local: float
    total: float
    workers: int
    batch: float

    def __post_init__(self) -> None:
        if self.workers < 2:
            raise BadInput("one worker's gradient shows no noise; use successive()")
        if not self.batch >= self.workers:
            raise BadInput(f"a batch of {self.batch:g} leaves some of {self.workers} workers without a sample")
        if not (math.isfinite(self.local) and math.isfinite(self.total)) or self.local < 0 or self.total < 0:
            raise BadInput("the gradient's norm is not a number: the training has diverged; lower the learning rate")

    @property
    def signal(self) -> float:
        """An unbiased estimate of |G|^2; below 0 in some steps where noise is large."""
        return (self.workers * self.total - self.local) / (self.workers - 1)

    @property
    def variance(self) -> float:
        """An unbiased estimate of one sample's gradient variance s2."""
        return (self.local - self.total) * self.batch / (self.workers - 1)


def successive(*, before: float, now: float, dot: float, batch: float) -> Norms:
    """One worker's two steps as two workers: squared norms of both gradients and their inner product.

    Each had `batch` samples, so together they count as 2 batch. The weights moved in between, which counts as noise.
    """
    return Norms(local=(before + now) / 2, total=(before + now + 2 * dot) / 4, workers=2, batch=2 * batch)
