"""Whether a training that may change its nodes or batch should change them now."""

from dataclasses import replace

from mlcd.deciders.account import Account
from mlcd.engine.looks import Looked
from mlcd.problem import STOP_SECONDS, Problem
from mlcd.run.attempt import Ending
from mlcd.search.strategy import Elastic
from mlcd.space import Config
from mlcd.trial.plan import Plan
from mlcd.trial.trial import History, Measurement
from mlcd.units import HOUR, ZERO, Usd

SWITCH_GAIN = 0.05
"""Relative gain that a change of nodes or batch must promise, restart included: predictions are no more precise."""


def better_switch(
    elastic: Elastic, account: Account, problem: Problem, config: Config, *, speed: float, startup_seconds: float
) -> Looked | None:
    """Where the training moves from `config`; None if it stays.

    One step of receding-horizon control: replan the remaining work on every configuration, restart cost included.

    problem          the work that remains, at the noise scale measured now
    speed            of the training on `config`, samples per second
    startup_seconds  that `config` has already paid for
    """
    seen = tuple(
        replace(t, samples_per_second=speed) if isinstance(t, Measurement) and t.config == config else t
        for t in account.history
    )
    options = {p.config: p for p in elastic.outlook(problem, History(seen))}
    stay, remaining = options.get(config), account.ledger.remaining()
    if stay is None:
        return None

    def value(option: Plan, seconds: float, moved_usd: Usd = ZERO) -> float:
        usd = problem.price(option.config).dollars * seconds / HOUR
        return problem.goal.value(seconds, usd + moved_usd.dollars)

    def moved(option: Plan) -> float:
        # The plan includes the start-up on the new nodes.
        return value(option, option.seconds + STOP_SECONDS, option.moved_usd)

    fitting = [p for p in options.values() if p.config != config and remaining.fits(p)]
    there = min(fitting, key=moved, default=None)
    staying = value(stay, max(stay.seconds - startup_seconds, 0.0))
    if there is None or moved(there) > staying * (1 - SWITCH_GAIN):
        return None
    noise = problem.batching.noise_scale if problem.batching is not None else None
    why = f"at an expected noise scale of {noise:,.0f} samples" if noise is not None else "at the measured speed"
    said = f"{why}, {there.config} is better than {config} for the remaining work"
    return Looked(ending=Ending.MOVED, message=said, next_plan=there)
