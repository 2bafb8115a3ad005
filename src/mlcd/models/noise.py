"""SGD noise: how much the gradients of K workers disagree, and what follows for other cluster sizes and batches.

With the true gradient G, s2 the variance of one sample's gradient and b = B/K, a worker's gradient has
E|g_k|^2 = |G|^2 + s2/b and the average of K workers E|g|^2 = |G|^2 + s2/B. So from

    local = mean over workers of |g_k|^2,   total = |mean over workers of g_k|^2

follow, without bias,

    |G|^2 = (K total - local)/(K - 1),   s2 = (local - total) B/(K - 1),   phi = s2/|G|^2        (the noise scale)
    gamma(K, B) = E local / E total = (B + K phi)/(B + phi), between 1 and K      (Scavenger's noise, AdaScale's gain)

A ratio of noisy numbers is biased, so numerator and denominator are averaged apart and divided last. One phi gives
gamma at every (K, B). With one worker gamma is 1 whatever the noise: the two halves of a batch stand for two workers,
or two gradients of successive steps, between which the weights have hardly moved.
"""

import math
from collections import deque
from dataclasses import dataclass, field

from mlcd.errors import BadInput

DECAY = 0.9
"""Of the averages, a step; no source states one: our choice, with the two below."""
SKIP_STEPS = 100
"""Steps at the start that do not count: gradients are volatile there and noise looks low."""
WINDOW_STEPS, TOLERANCE = 50, 0.05
"""Noise is stable when its mean over the last window is within the tolerance of the window before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Norms:
    """Squared norms of one step's gradients: of the workers (or halves), averaged, and of their average."""

    local: float
    total: float
    workers: int
    batch: float

    def __post_init__(self) -> None:
        if self.workers < 2:
            raise BadInput("one worker's gradient shows no noise; use halves() or successive()")
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


def halves(*, first: float, second: float, total: float, batch: float) -> Norms:
    """One worker's step from the squared norms of its two half batches' gradients and of their average."""
    return Norms(local=(first + second) / 2, total=total, workers=2, batch=batch)


def successive(*, before: float, now: float, dot: float, batch: float) -> Norms:
    """One worker's two steps as two workers: squared norms of both gradients and their inner product.

    Each had `batch` samples, so together they stand for 2 batch. The weights moved in between, which counts as noise:
    use halves() where the gradient of half a batch can be had.
    """
    return Norms(local=(before + now) / 2, total=(before + now + 2 * dot) / 4, workers=2, batch=2 * batch)


def gamma(phi: float, workers: int, batch: float) -> float:
    """Scavenger's SGD noise at (K, B) for the noise scale phi; K where phi is infinite."""
    if phi < 0 or math.isnan(phi):
        raise BadInput(f"the noise scale is 0 or more (got {phi!r})")
    if workers < 1 or batch < workers:
        raise BadInput(f"a batch of {batch:g} cannot be shared by {workers} workers")
    return float(workers) if math.isinf(phi) else (batch + workers * phi) / (batch + phi)


@dataclass(slots=True, kw_only=True)
class NoiseMeter:
    """Averages norms step by step. `add` each step; then `phi`, `gamma` and whether they can be trusted."""

    decay: float = DECAY
    skip_steps: int = SKIP_STEPS
    window_steps: int = WINDOW_STEPS
    tolerance: float = TOLERANCE
    steps: int = field(default=0, init=False)
    _signal: float = field(default=0.0, init=False)
    _variance: float = field(default=0.0, init=False)
    _weight: float = field(default=0.0, init=False)
    _recent: deque[tuple[float, float]] = field(default_factory=deque, init=False)

    def __post_init__(self) -> None:
        if not 0 <= self.decay < 1 or self.window_steps < 1 or self.skip_steps < 0 or self.tolerance <= 0:
            raise BadInput("a noise meter has a decay in [0, 1), a window of steps and a tolerance above 0")
        self._recent = deque(maxlen=2 * self.window_steps)

    def add(self, norms: Norms) -> None:
        """Takes one step in; the first `skip_steps` are counted and left out."""
        self.steps += 1
        if self.steps <= self.skip_steps:
            return
        self._signal = self.decay * self._signal + (1 - self.decay) * norms.signal
        self._variance = self.decay * self._variance + (1 - self.decay) * norms.variance
        self._weight = self.decay * self._weight + (1 - self.decay)
        self._recent.append((norms.signal, norms.variance))

    @property
    def signal(self) -> float | None:
        """The averaged |G|^2, not below 0; None before the first step that counts."""
        return max(0.0, self._signal / self._weight) if self._weight else None

    @property
    def variance(self) -> float | None:
        """The averaged s2, not below 0."""
        return max(0.0, self._variance / self._weight) if self._weight else None

    @property
    def phi(self) -> float | None:
        """The noise scale now: None before the first step, infinite where no signal is left."""
        return None if self._weight == 0 else _ratio(self._variance, self._signal)

    @property
    def windowed_phi(self) -> float | None:
        """The noise scale over the last window, steadier than `phi`; None before a whole window."""
        if len(self._recent) < self.window_steps:
            return None
        return _window(list(self._recent)[-self.window_steps :])

    @property
    def stable(self) -> bool:
        """Whether phi over the last whole window is within the tolerance of the window before.

        An infinite phi is stable when both windows are.
        """
        if len(self._recent) < 2 * self.window_steps:
            return False
        values = list(self._recent)
        before, now = _window(values[: self.window_steps]), _window(values[self.window_steps :])
        if math.isinf(before) or math.isinf(now):
            return math.isinf(before) and math.isinf(now)
        return abs(now - before) <= self.tolerance * max(now, before)

    def gamma(self, workers: int, batch: float) -> float | None:
        """Scavenger's noise at any (K, B) from the present phi."""
        return None if self.phi is None else gamma(self.phi, workers, batch)


def _window(values: list[tuple[float, float]]) -> float:
    return _ratio(sum(v for _, v in values), sum(s for s, _ in values))


def _ratio(variance: float, signal: float) -> float:
    """phi = s2/|G|^2 with both clipped at 0; 0 where both are."""
    variance, signal = max(0.0, variance), max(0.0, signal)
    if variance == 0:
        return 0.0
    return variance / signal if signal > 0 else math.inf
