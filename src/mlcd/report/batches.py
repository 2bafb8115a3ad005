"""A run whose global batch was chosen: its curves over (K, B) under both price policies, and its noise in words."""

from dataclasses import replace

import numpy as np

from mlcd.models.parallel import Law, Refined, choose, fit
from mlcd.models.standing import standing
from mlcd.models.timed import Steps, foreseen, timed
from mlcd.problem import Problem
from mlcd.report.batch_picture import BatchCurve, BatchPoint, batch_picture
from mlcd.report.frame import empty, origin_mark
from mlcd.report.origin import origin_word
from mlcd.report.svg import Drawing
from mlcd.run.run import SearchRun
from mlcd.space import Config
from mlcd.spec.batches import Pricing
from mlcd.trial.counted import counted
from mlcd.trial.plan import Plan, plans
from mlcd.units import HOUR

BLACK_BOX = (
    "The job reports no SGD noise, so only its parallel performance was modelled: for the statistics of its batches it"
    " is a black box (docs/progress.md says how to report it)."
)
EVEN = 1e-4
"""Prices of a node that differ by less are one price: they are kept in whole micro-dollars."""


def batches_picture(record: SearchRun, width: float) -> str:
    """Time against cost as this run pays: a curve a batch over K, predicted and measured, front and choice."""
    return _drawn(record, paid_by(record.problem), width, key="batches")


def repriced_picture(record: SearchRun, width: float) -> str:
    """The same under the other price policy, by memory or by the node; the ring is its own knee."""
    paid = paid_by(record.problem)
    other = Pricing() if paid.is_by_memory else Pricing(by="memory-proportional")
    return _drawn(record, other, width, key="batches-repriced")


def paid_by(problem: Problem) -> Pricing:
    """The policy that the prices of a problem's configurations follow, read from them."""
    if problem.batching is None:
        return Pricing()
    full, fixed = _price_line(problem, problem.space.configs[0].instance)
    part = fixed / full
    return Pricing() if part > 1 - EVEN else Pricing(by="memory-proportional", fixed=part)


def batch_notes(record: SearchRun) -> list[str]:
    """What the search found of noise, of the worth of samples and of the target, a sentence each; none without."""
    if record.problem.batching is None:
        return []
    return [*_noise_notes(record), *_target_notes(record)]


def share_done(record: SearchRun) -> float:
    """The part of the training that its trials did, each sample counted for what it is worth; 0 where unknown."""
    left = standing(record.problem, record.history)
    if not left.work_known:
        return 0.0
    done = counted(left, record.history.trials).samples
    return min(done / (done + left.work_samples), 1.0)


def work_text(problem: Problem) -> str:
    """`75,000 samples`, or where a target ends the training that."""
    samples = f"{problem.work_samples:,.0f} samples"
    if problem.target is None:
        return samples
    return f"until {problem.target}, at most {samples}" if problem.work_known else f"until {problem.target}"


def _noise_notes(record: SearchRun) -> list[str]:
    now = standing(record.problem, record.history)
    if now.batching is None:
        return []
    noise = now.batching.noise_scale
    if noise is None:
        return [BLACK_BOX]
    meaning = "up to there a larger batch saves steps in proportion, far beyond it hardly any"
    samples = "1 sample" if round(noise) == 1 else f"{noise:,.0f} samples"
    notes = [f"The gradients' noise scale is about {samples}: {meaning}."]
    sizes = sorted({int(config["batch"]) for config in now.space})
    worths = [(size, now.batching.worth(size)) for size in (sizes[0], sizes[-1])]
    if any(abs(worth - 1) > 0.005 for _, worth in worths):
        why = "By its learning-rate rule" if now.batching.decay is not None else "By this noise"
        parts = " and ".join(f"at {size:,} for {worth:.0%}" for size, worth in worths if abs(worth - 1) > 0.005)
        notes.append(f"{why} a sample counts {parts} of one at a batch of {now.batching.reference:,}.")
    return notes


def _target_notes(record: SearchRun) -> list[str]:
    problem, target = record.problem, record.problem.target
    if target is None:
        return []
    aim = str(target)
    left = standing(problem, record.history)
    if not left.work_known:
        return [f"When {aim} will be met could not be told from the trials, and so no time of the whole training."]
    done = counted(left, record.history.trials)
    if any((metric >= target.value) if target.higher else (metric <= target.value) for _, metric in done.learned):
        return [f"{aim} was met in a trial."]
    whole = done.samples + left.work_samples
    reference = "" if left.batching is None else f" at a batch of {left.batching.reference:,}"
    if problem.work_known and left.work_samples + done.samples >= problem.work_samples:
        return [f"Reckoned with the {whole:,.0f} samples that job.epochs allows to reach {aim}."]
    return [f"After the trials {aim} was expected at about {whole:,.0f} samples{reference}."]


def _drawn(record: SearchRun, pricing: Pricing, width: float, *, key: str) -> str:
    problem = standing(record.problem, record.history)
    what = "Training time"
    if not problem.work_known:
        what, problem = "Time of a million samples", replace(problem, work_samples=1e6)
    priced = "priced by memory" if pricing.is_by_memory else "a fixed price a node"
    if problem.batching is None:
        return _nothing(record, width, key)
    instance = _shown_type(record)
    steps = _steps(record, instance)
    measured = {plan.config: plan for plan in plans(problem, record.history)}
    curves = []
    for batch in sorted({int(config["batch"]) for config in problem.space}):
        line = [c for c in problem.space if c.instance == instance and int(c["batch"]) == batch]
        line.sort(key=lambda c: c.nodes)
        seen = tuple(_point(problem, pricing, measured[c]) for c in line if c in measured)
        lines = tuple(_point(problem, pricing, foreseen(problem, record.history, c, steps)) for c in line if steps)
        if seen or lines:
            curves.append(BatchCurve(batch=batch, measured=seen, predicted=lines))
    chosen = record.choice.config if record.choice else None
    as_paid = pricing == paid_by(record.problem)
    ring = (chosen.nodes, int(chosen["batch"])) if as_paid and chosen and chosen.instance == instance else None
    return batch_picture(
        curves,
        key=key,
        title=f"{what} against cost on {instance}, a curve a global batch over K nodes, {priced}",
        origin=origin_word(record),
        chosen=ring,
        width=width,
    )


def _nothing(record: SearchRun, width: float, key: str) -> str:
    height = 440.0 if width > 560 else 400.0
    text = "The batch was not chosen in this run."
    drawing = Drawing(key=f"{key}-{width:.0f}", width=width, height=height, title="Global batches", description=text)
    empty(drawing, width, height, text)
    origin_mark(drawing, record, height)
    return drawing.render()


def _steps(record: SearchRun, instance: str) -> Steps | None:
    """The model that the run's strategy predicts with; None with fewer than two runs."""
    runs = timed(record.history, instance)
    if len(runs) < 2:
        return None
    name = record.strategy.partition(":")[0]
    if name == "scavenger-goodput":
        return Refined(model=fit(runs, Law.OVERLAP), runs=runs)
    model = choose(runs)
    return Refined(model=model, runs=runs) if name == "scavenger-full" else model


def _shown_type(record: SearchRun) -> str:
    """The chosen type, else the one with most trials, else the first."""
    if record.choice is not None:
        return record.choice.config.instance
    tried = [trial.config.instance for trial in record.history]
    return max(tried, key=tried.count) if tried else record.problem.space.configs[0].instance


def _point(problem: Problem, pricing: Pricing, plan: Plan) -> BatchPoint:
    config = plan.config
    node, _ = _price_line(problem, config.instance)
    usd_per_hour = config.nodes * node * pricing.share_of_price(_samples(config), _largest(problem))
    return BatchPoint(workers=config.nodes, seconds=plan.seconds, usd=plan.seconds / HOUR * usd_per_hour)


def _price_line(problem: Problem, instance: str) -> tuple[float, float]:
    """USD an hour of a full node of the type, and of one without samples: by memory a line, by the node a level."""
    largest = _largest(problem)
    configs = [config for config in problem.space if config.instance == instance]
    shares = np.array([_samples(config) / largest for config in configs])
    prices = np.array([problem.price(config).dollars / config.nodes for config in configs])
    if np.ptp(shares) == 0:
        return float(prices.mean()), float(prices.mean())
    slope, level = np.polyfit(shares, prices, 1)
    return float(level + slope), float(level)


def _samples(config: Config) -> int:
    """Of the fullest worker."""
    return -(-int(config["batch"]) // config.nodes)


def _largest(problem: Problem) -> int:
    return max(_samples(config) for config in problem.space)
