"""Servers side by side: what a load test on some nodes says about more or fewer nodes of the same kind.

Servers share nothing but the load, so n of them hold n times the rate of one. A choice that rests on this is measured
with all of its nodes when it is verified.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from mlcd.problem import Problem
from mlcd.space import Config, Value
from mlcd.trial.plan import Plan, best
from mlcd.trial.trial import History, Load, Measurement, TokenPoint
from mlcd.units import ZERO

SCALING_ERROR = 0.05
"""Relative deviation of the rate of n servers from n times that of one, besides noise: an assumption. On the bed of
benchmarks/serve_nodes.py, on a busy machine, the median of that ratio is 0.91 to 0.96, and noise hides the rest."""

Settings = tuple[tuple[str, Value], ...]
"""A configuration without its number of nodes."""


def settings_of(config: Config) -> Settings:
    """The configuration without its number of nodes."""
    return tuple((name, value) for name, value in config.values if name != "nodes")


def by_settings(configs: Iterable[Config]) -> Mapping[Settings, tuple[Config, ...]]:
    """The configurations that differ in their number of nodes only, fewest nodes first."""
    found: dict[Settings, list[Config]] = {}
    for config in configs:
        found.setdefault(settings_of(config), []).append(config)
    return {key: tuple(sorted(group, key=lambda config: config.nodes)) for key, group in found.items()}


def with_replicas(problem: Problem, history: History) -> History:
    """The trials, and what they say about other numbers of nodes; the same history where the problem does not scale."""
    if not problem.scales_out or not history.measured:
        return history
    groups = by_settings(problem.space)
    tried = history.tried
    last = {settings_of(trial.config): trial for trial in history.measured}
    more = (at_nodes(trial, config) for key, trial in last.items() for config in groups[key] if config not in tried)
    return history.with_trials(*more)


def at_nodes(trial: Measurement, config: Config) -> Measurement:
    """What `trial` says about `config`, which differs in its number of nodes only."""
    if trial.config == config:
        return trial
    return replace(
        trial,
        config=config,
        attempt=1,
        samples_per_second=trial.samples_per_second * config.nodes / trial.config.nodes,
        relative_error=math.hypot(trial.relative_error, SCALING_ERROR),
        usd=ZERO,
        load=None if trial.load is None else _scaled(trial.load, config.nodes / trial.config.nodes),
    )


def scaled_paces(front: Iterable[TokenPoint], factor: float) -> tuple[TokenPoint, ...]:
    """Paces of so many times the servers: times stay, what is in flight and the rates add up."""
    return tuple(
        replace(
            point,
            concurrency=point.concurrency * factor,
            output_tokens_per_second=point.output_tokens_per_second * factor,
            requests_per_second=point.requests_per_second * factor,
            good_per_second=point.good_per_second * factor,
        )
        for point in front
    )


def _scaled(load: Load, factor: float) -> Load:
    tokens = load.tokens
    if tokens is None:
        return load
    return replace(
        load,
        tokens=replace(
            tokens,
            concurrency=tokens.concurrency * factor,
            requests_per_second=tokens.requests_per_second * factor,
            good_per_second=tokens.good_per_second * factor,
            input_tokens_per_second=tokens.input_tokens_per_second * factor,
            output_tokens_per_second=tokens.output_tokens_per_second * factor,
            front=scaled_paces(tokens.front, factor),
        ),
    )


def best_forms(problem: Problem, history: History) -> tuple[Measurement, ...]:
    """For each measured setting its best number of nodes: the best that meets the goal, else the largest.

    Just the measurements where the problem does not scale.
    """
    if not problem.scales_out:
        return history.measured
    groups: dict[Settings, list[Measurement]] = {}
    for trial in with_replicas(problem, history).measured:
        groups.setdefault(settings_of(trial.config), []).append(trial)
    return tuple(_best_form(problem, trials) for trials in groups.values())


def _best_form(problem: Problem, trials: list[Measurement]) -> Measurement:
    by_config = {trial.config: trial for trial in trials}
    plan = best(problem, (Plan.of(problem, trial) for trial in trials if trial.meets(problem.goal)))
    return max(trials, key=lambda trial: trial.samples_per_second) if plan is None else by_config[plan.config]
