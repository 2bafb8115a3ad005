"""When a target will be met, predicted from the metric so far.

The metric is treated as falling (y = -metric if higher is better) along

    y(u) = 1/(rate u + start) + floor                                     (Optimus, EuroSys 2018; algorithms: 3.2)

with u the samples done, each weighted by its worth at its batch, so that trials with different batches lie on one
curve.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from mlcd.errors import BadInput
from mlcd.models.loss_curve import fit_loss
from mlcd.problem import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetForecast:
    """The work of the whole training in samples at the reference batch, with the standard error of its logarithm."""

    samples: float
    error: float


def forecast(points: Sequence[tuple[float, float]], target: Target) -> TargetForecast | None:
    """From (weighted samples, metric) in order; None if the curve predicts no end.

    That is: too few points, a metric that does not improve, or a curve that levels off before the target.
    """
    sign = -1.0 if target.higher else 1.0
    met = next((samples for samples, metric in points if target.is_met_by(metric)), None)
    if met is not None:
        return TargetForecast(samples=max(met, 1.0), error=0.0)
    try:
        curve = fit_loss([(samples, sign * metric) for samples, metric in points])
    except BadInput:
        return None
    samples = curve.steps_to(sign * target.value)
    if samples is None or not points:
        return None
    last = points[-1][0]
    return TargetForecast(samples=max(samples, last * 1.02), error=curve.deviation_log_steps)
