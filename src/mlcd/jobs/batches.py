"""The global batch as part of what is chosen: checked bounds, the space with its knob, prices by memory."""

from collections.abc import Mapping
from dataclasses import replace

from mlcd.jobs.choice import check_size
from mlcd.problem import Batching, Problem
from mlcd.space import Config, Knob, Space
from mlcd.spec import TrainSpec
from mlcd.spec.batches import LearningRate, RateRule
from mlcd.units import Usd

MOST_NOTES = 8
"""Notes on numbers of nodes that do not divide a batch."""


def with_batches(spec: TrainSpec, problem: Problem, prices: Mapping[str, Usd]) -> tuple[Problem, tuple[str, ...]]:
    """The problem with the job's batches as a knob, and notes on what was excluded or is uneven. Raises SpecError."""
    batches = spec.batch or (spec.job.batch,)
    _check(spec, batches)
    check_size(spec, "batch", len(batches) * len(problem.space), narrow="batch, num_nodes or resources.instance_type")
    notes: list[str] = []
    configs = []
    uneven: dict[int, int] = {}
    for config in problem.space:
        for batch in batches:
            if batch < config.nodes:
                continue
            configs.append(Config((*config.values, ("batch", batch))))
            if batch % config.nodes:
                uneven.setdefault(config.nodes, batch)
    if not configs:
        fewest = min(config.nodes for config in problem.space)
        raise spec.error(
            "batch",
            f"is split over all nodes, and num_nodes starts at {fewest}",
            value=list(batches),
            allowed=f"at least {fewest}",
        )
    most = max(config.nodes for config in problem.space)
    if min(batches) < most:
        notes.append(
            f"a batch smaller than the number of nodes cannot be split: {min(batches)} on {most} nodes is excluded"
        )
    for nodes, batch in list(uneven.items())[:MOST_NOTES]:
        notes.append(f"{batch} samples on {nodes} nodes do not divide evenly: shares differ by one sample")
    if len(uneven) > MOST_NOTES:
        notes.append(f"the same holds for {len(uneven) - MOST_NOTES:,} more numbers of nodes")
    sizes = tuple(sorted({int(config["batch"]) for config in configs}))
    space = Space((*problem.space.knobs, Knob(name="batch", values=sizes)), tuple(configs))
    largest = max(_samples_of_a_worker(config) for config in space)
    rate = spec.learning_rate or LearningRate(base=1.0, at_batch=min(batches), rule=RateRule.FIXED)
    return (
        replace(
            problem,
            space=space,
            usd_per_hour=tuple(_price(spec, config, prices, largest) for config in space),
            batching=Batching(reference=rate.at_batch, decay=rate.rule.decay),
        ),
        tuple(notes),
    )


def _check(spec: TrainSpec, batches: tuple[int, ...]) -> None:
    if spec.job.target is None:
        problem = "is needed to choose the batch: the batch decides how many samples the same result takes"
        raise spec.error("job.target", problem, allowed="such as target: {metric: accuracy, value: 0.97}")
    if "job.batch" in spec.places:
        raise spec.error(
            "job.batch", "conflicts with batch, which lists the batches to choose from", allowed="one of the two"
        )
    if spec.learning_rate is None and len(batches) > 1:
        problem = "is needed to choose the batch: another batch needs another rate"
        raise spec.error("learning_rate", problem, allowed="{base: 0.1, at_batch: 64, rule: linear}, or rule: fixed")
    if not spec.checkpoints:
        problem = "the training continues from its trials, and changes its batch through a checkpoint"
        raise spec.error("checkpoints", problem, allowed="checkpoints: true, and mlcd.checkpoint in the script")
    samples = spec.job.samples
    if samples is not None and max(batches) > samples:
        problem = f"is larger than the {samples:,.0f} samples of an epoch"
        raise spec.error("batch", problem, value=max(batches), allowed=f"at most {samples:,.0f}")


def _price(spec: TrainSpec, config: Config, prices: Mapping[str, Usd], largest: int) -> Usd:
    """USD per hour of the whole configuration; the fullest worker of all configurations has `largest` samples."""
    whole = prices[config.instance] * config.nodes
    if not spec.pricing.is_by_memory:
        return whole
    return Usd.of(whole.dollars * spec.pricing.share_of_price(_samples_of_a_worker(config), largest))


def _samples_of_a_worker(config: Config) -> int:
    """Samples per step on the fullest worker."""
    return -(-int(config["batch"]) // config.nodes)
