"""One machine, two prices: what a trial on spot nodes says about the same nodes on demand, and the other way round."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from mlcd.problem import Problem
from mlcd.space import Config
from mlcd.trial.trial import History
from mlcd.units import ZERO


def by_machine(configs: Iterable[Config]) -> Mapping[Config, tuple[Config, ...]]:
    """The configurations that differ only in how they are bought, by `Config.machine`."""
    found: dict[Config, list[Config]] = {}
    for config in configs:
        found.setdefault(config.machine, []).append(config)
    return {machine: tuple(group) for machine, group in found.items()}


def with_markets(problem: Problem, history: History) -> History:
    """The trials, and what they say about the same machines bought otherwise; the same history without that choice.

    A configuration with a measurement of its own keeps it.
    """
    if problem.interruptions is None or not history.measured:
        return history
    own = {trial.config for trial in history.measured}
    last = {trial.config.machine: trial for trial in history.measured}
    groups = by_machine(problem.space)
    return history.with_trials(
        *(
            replace(trial, config=config, attempt=1, usd=ZERO)
            for machine, trial in last.items()
            for config in groups.get(machine, ())
            if config not in own
        )
    )
