"""Whether a loss can still reach its target: the epochs that it would take if it went on falling as fast as now.

A loss curve that flattens out is convex, so that a straight line from its end lies below it: what the line does not
reach within a limit, the curve does not reach either. No law of the curve is assumed, and no prior. Curves that begin
late, with a plateau and then a fall, are convex only after the fall: they are waited for.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEAST_EPOCHS = 5.0
"""Epochs before any answer. This and what follows is chosen on the made-up curves of
tests/unit/models/test_loss_trend.py."""
LEAST_SHARE_OF_LIMIT = 1 / 8
"""And this share of the limit."""
WINDOW_EPOCHS, WINDOW_SHARE = 4.0, 1 / 3
"""The line is fitted to the last third of the epochs, and to at least the last four."""
ERRORS = 3.0
"""The fall is taken this many standard errors steeper than fitted: a measured loss has noise."""
FLATTENING = 2.0
"""A curve flattens out if it fell this many times as fast before the window ..."""
LEAST_PROGRESS = 0.1
"""... and has come this share of the way from its first loss to the target: a network that has not begun to learn has
not."""
PATIENCE = 0.5
"""A curve that does not flatten out so is answered for after this share of the limit."""

ROUNDING = 1e-12
"""A fall per epoch that is a smaller share of the loss is none."""


def epochs_at_best(points: Sequence[tuple[float, float]], target: float, *, limit: float) -> float | None:
    """Epochs from the last of (epochs done, loss) to the target at the present rate; None while that is not clear.

    At most a few per cent too many for a convex curve; inf for a loss that does not fall.

    limit  the most epochs that the training may take, from its beginning
    """
    done = points[-1][0] if points else 0.0
    if done < max(LEAST_EPOCHS, LEAST_SHARE_OF_LIMIT * limit):
        return None
    begin = done - max(WINDOW_EPOCHS, WINDOW_SHARE * done)
    recent = [point for point in points if point[0] >= begin - 1e-9]
    if len(recent) < WINDOW_EPOCHS:
        return None
    at, losses = np.array(recent).T
    rate, now = _fall(at - done, losses)
    now = min(now, float(losses.min()))
    before = (points[0][1] - recent[0][1]) / max(recent[0][0] - points[0][0], 1e-9)
    has_learnt = points[0][1] - now >= LEAST_PROGRESS * (points[0][1] - target)
    if not (has_learnt and before > FLATTENING * rate) and done < PATIENCE * limit:
        return None
    return max(now - target, 0.0) / rate if rate > ROUNDING * abs(now) else math.inf


def _fall(at: Floats, losses: Floats) -> tuple[float, float]:
    """(fastest plausible fall per epoch, loss at 0) by least squares."""
    centre = at - at.mean()
    spread = float((centre**2).sum())
    slope = float((centre * losses).sum()) / spread
    fitted = losses.mean() + slope * centre
    error = math.sqrt(float(((losses - fitted) ** 2).sum()) / max(len(at) - 2, 1) / spread)
    return ERRORS * error - slope, float(losses.mean() - slope * at.mean())
