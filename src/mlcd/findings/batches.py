"""A run whose global batch was chosen: its curves over (K, B) under both price policies, and what its noise means."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mlcd.models.parallel import Law, Refined, choose, fit
from mlcd.models.timed import Steps, foreseen, timed
from mlcd.models.tradeoff import front, knee
from mlcd.problem import Batching, Problem
from mlcd.run.findings import BatchCurve, BatchFindings, BatchPoint, BatchTradeoff, TargetState
from mlcd.run.run import SearchRun
from mlcd.space import Config
from mlcd.spec.batches import Pricing
from mlcd.trial.plan import Plan, plans
from mlcd.trial.work_done import work_done
from mlcd.units import HOUR

SAME_PRICE_TOLERANCE = 1e-4
"""Node prices whose relative difference is smaller count as equal: prices are rounded to whole micro-dollars."""


def batch_findings(run: SearchRun, remaining: Problem) -> BatchFindings | None:
    """What the run found about nodes and batches; None if the batch was not chosen.

    remaining  the problem with the work that remains after the trials
    """
    batching = remaining.batching
    if batching is None:
        return None
    paid = paid_by(run.problem)
    other = Pricing() if paid.is_by_memory else Pricing(by="memory-proportional")
    instance, chosen = _shown_type(run), run.choice.config if run.choice else None
    own = (chosen.nodes, int(chosen["batch"])) if chosen and chosen.instance == instance else None
    problem = remaining if remaining.work_known else replace(remaining, work_samples=1e6)
    as_paid, repriced = (_curves(run, problem, instance, pricing) for pricing in (paid, other))
    target, samples = _target(run, remaining)
    return BatchFindings(
        instance=instance,
        paid_by_memory=paid.is_by_memory,
        as_paid=batch_tradeoff(as_paid, own),
        repriced=batch_tradeoff(repriced),
        per_million=not remaining.work_known,
        noise_scale=run.history.noise_scale,
        expected_noise_scale=batching.noise_scale,
        worths=_worths(remaining, batching),
        reference=batching.reference,
        by_learning_rate_rule=batching.noise_scale is None,
        target=target,
        target_samples=samples,
    )


def batch_tradeoff(curves: Sequence[BatchCurve], chosen: tuple[int, int] | None = None) -> BatchTradeoff:
    """The curves with their Pareto front; preferred is the chosen (K, B), else the knee of all points."""
    made = BatchTradeoff(curves=tuple(curves), front=(), preferred=None)
    named = [(point.workers, batch) for batch, point in made.points]
    points = [(point.seconds, point.usd) for _, point in made.points]
    if not points:
        return made
    preferred = chosen if chosen in named else named[knee(points)]
    return replace(made, front=tuple(named[at] for at in front(points)), preferred=preferred)


def paid_by(problem: Problem) -> Pricing:
    """The pricing policy, inferred from the prices of a problem's configurations."""
    if problem.batching is None:
        return Pricing()
    full, fixed = _price_line(problem, problem.space.configs[0].instance)
    part = fixed / full
    return Pricing() if part > 1 - SAME_PRICE_TOLERANCE else Pricing(by="memory-proportional", fixed=part)


def _worths(problem: Problem, batching: Batching) -> tuple[tuple[int, float], ...]:
    sizes = sorted({int(config["batch"]) for config in problem.space})
    return tuple((size, batching.worth(size)) for size in (sizes[0], sizes[-1]))


def _target(run: SearchRun, remaining: Problem) -> tuple[TargetState | None, float | None]:
    """What the trials show about the target, and the total samples needed to reach it, where known."""
    problem, target = run.problem, run.problem.target
    if target is None:
        return None, None
    if not remaining.work_known:
        return TargetState.UNKNOWN, None
    done = work_done(remaining, run.history.trials)
    if any((metric >= target.value) if target.higher else (metric <= target.value) for _, metric in done.learned):
        return TargetState.MET, None
    whole = done.samples + remaining.work_samples
    is_allowed = problem.work_known and remaining.work_samples + done.samples >= problem.work_samples
    return TargetState.ALLOWED if is_allowed else TargetState.EXPECTED, whole


def _curves(run: SearchRun, problem: Problem, instance: str, pricing: Pricing) -> list[BatchCurve]:
    steps = _steps(run, instance)
    measured = {plan.config: plan for plan in plans(problem, run.history)}
    curves = []
    for batch in sorted({int(config["batch"]) for config in problem.space}):
        line = [c for c in problem.space if c.instance == instance and int(c["batch"]) == batch]
        line.sort(key=lambda c: c.nodes)
        seen = tuple(_point(problem, pricing, measured[c]) for c in line if c in measured)
        lines = tuple(_point(problem, pricing, foreseen(problem, run.history, c, steps)) for c in line if steps)
        if seen or lines:
            curves.append(BatchCurve(batch=batch, measured=seen, predicted=lines))
    return curves


def _steps(run: SearchRun, instance: str) -> Steps | None:
    """The model that the run's strategy predicts with; None with fewer than two runs."""
    runs = timed(run.history, instance)
    if len(runs) < 2:
        return None
    name = run.strategy.partition(":")[0]
    if name == "scavenger-goodput":
        return Refined(model=fit(runs, Law.OVERLAP), runs=runs)
    model = choose(runs)
    return Refined(model=model, runs=runs) if name == "scavenger-full" else model


def _shown_type(run: SearchRun) -> str:
    """The chosen instance type, else the one with the most trials, else the first."""
    if run.choice is not None:
        return run.choice.config.instance
    tried = [trial.config.instance for trial in run.history]
    return max(tried, key=tried.count) if tried else run.problem.space.configs[0].instance


def _point(problem: Problem, pricing: Pricing, plan: Plan) -> BatchPoint:
    config = plan.config
    node, _ = _price_line(problem, config.instance)
    usd_per_hour = config.nodes * node * pricing.share_of_price(_samples(config), _largest(problem))
    return BatchPoint(workers=config.nodes, seconds=plan.seconds, usd=plan.seconds / HOUR * usd_per_hour)


def _price_line(problem: Problem, instance: str) -> tuple[float, float]:
    """USD per hour of a full node of the type, and of a node without samples; the two are equal for a fixed price."""
    largest = _largest(problem)
    configs = [config for config in problem.space if config.instance == instance]
    shares = np.array([_samples(config) / largest for config in configs])
    prices = np.array([problem.price(config).dollars / config.nodes for config in configs])
    if np.ptp(shares) == 0:
        return float(prices.mean()), float(prices.mean())
    slope, level = np.polyfit(shares, prices, 1)
    return float(level + slope), float(level)


def _samples(config: Config) -> int:
    """Samples per step on the fullest worker."""
    return -(-int(config["batch"]) // config.nodes)


def _largest(problem: Problem) -> int:
    return max(_samples(config) for config in problem.space)
