"""What a run did on spot nodes: how often they were taken away, what that took, and the same on demand."""

from itertools import pairwise

from mlcd.run.attempt import Attempt
from mlcd.run.run import SearchRun
from mlcd.run.spot_use import SpotUse
from mlcd.run.step import Step
from mlcd.trial.trial import Failure, Measurement
from mlcd.units import ZERO


def spot_use(run: SearchRun) -> SpotUse | None:
    """None where the market is not chosen, or nothing ran on spot nodes."""
    known, steps = run.problem.interruptions, run.spot_steps
    if known is None or not steps:
        return None
    lost = {step.number: _lost_seconds(run, step) for step in run.interrupted_steps}
    spot_usd, same_usd = ZERO, ZERO
    for step in steps:
        if step.outcome is not None:
            spot_usd += step.outcome.usd
            price = known.on_demand[step.config.instance] * step.config.nodes
            same_usd += price.for_seconds(step.outcome.seconds - lost.get(step.number, 0.0))
    lost_usd = sum((step.price.for_seconds(lost[step.number]) for step in run.interrupted_steps), ZERO)
    return SpotUse(
        interruptions=len(lost),
        lost_seconds=sum(lost.values()),
        lost_usd=lost_usd,
        spot_usd=spot_usd,
        on_demand_usd=run.spent - spot_usd + same_usd,
        on_demand_seconds=max(run.total_seconds - sum(lost.values()), 0.0),
        fallbacks=sum(a.config.is_spot and not b.config.is_spot for a, b in pairwise(run.attempts)),
    )


def _lost_seconds(run: SearchRun, step: Step) -> float:
    """The time of an interrupted step that no checkpoint kept: all of it but what its saved samples took."""
    outcome = step.outcome
    if not isinstance(outcome, Failure | Attempt):
        return 0.0
    earlier = (each.outcome for each in run.ended if each.number < step.number)
    before = max((o.reached_samples for o in earlier if isinstance(o, Measurement | Failure | Attempt)), default=0.0)
    speeds = [t.samples_per_second for t in run.history.measured if t.config.machine == step.config.machine]
    speed = outcome.samples_per_second if isinstance(outcome, Attempt) else None
    speed = speed or (speeds[-1] if speeds else None)
    kept = max(outcome.reached_samples - before, 0.0)
    return max(outcome.seconds - (kept / speed if speed else 0.0), 0.0)
