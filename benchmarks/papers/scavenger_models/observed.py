"""What a mode may see of a model: brief runs at some configurations and trainings at some batches, nothing else.

full     the step time of every K at three batches, and the convergence of those three
partial  step time and convergence at the four corners and the centre
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlcd.bench.scavenger.truth import ClusterChoice, ScavengerTruth
from mlcd.models import design
from mlcd.models.convergence import Reached
from mlcd.models.parallel import ClusterSetting, StepTime


@dataclass(frozen=True, kw_only=True)
class Observed:
    """The grid to predict over, from the user's bounds, and what was observed of it.

    largest_local_batch  samples that fit one GPU's memory: a bound from the user, not a measured time
    courses  for each batch whose training is known: (steps, noise scale phi) of its stretches up to the target
    """

    settings: Mapping[ClusterChoice, ClusterSetting]
    largest_local_batch: float
    tried: tuple[ClusterChoice, ...]
    runs: tuple[StepTime, ...]
    reached: tuple[Reached, ...]
    courses: Mapping[int, tuple[tuple[float, float], ...]]

    @property
    def first_batch(self) -> int:
        """The smallest batch of the grid."""
        return min(choice.batch for choice in self.settings)


def three_batches(truth: ScavengerTruth) -> tuple[int, int, int]:
    """The smallest, the middle one (of two the smaller), and the largest."""
    low, middle, high = design.three_batches([truth.setting(choice) for choice in truth.choices])
    return int(low), int(middle), int(high)


def corners_and_centre(truth: ScavengerTruth) -> tuple[ClusterChoice, ...]:
    """The design of mlcd.models.design, over the configurations that have a truth."""
    chosen = design.corners_and_centre([truth.setting(choice) for choice in truth.choices])
    return tuple(ClusterChoice(workers=setting.workers, batch=int(setting.batch)) for setting in chosen)


def observe_full(truth: ScavengerTruth) -> Observed:
    """See the module."""
    batches = three_batches(truth)
    return observe(truth, [choice for choice in truth.choices if choice.batch in batches])


def observe_partial(truth: ScavengerTruth) -> Observed:
    """See the module."""
    return observe(truth, corners_and_centre(truth))


def observe_nothing(truth: ScavengerTruth) -> Observed:
    """The grid alone."""
    return observe(truth, ())


def observe_all(truth: ScavengerTruth) -> Observed:
    """Everything: for the other jobs, from which a universal model takes its coefficients."""
    return observe(truth, truth.choices)


def observe(truth: ScavengerTruth, tried: Sequence[ClusterChoice]) -> Observed:
    """The step time of the tried configurations, and the convergence of their batches."""
    batches = sorted({choice.batch for choice in tried})
    return Observed(
        settings={choice: truth.setting(choice) for choice in truth.choices},
        largest_local_batch=max(rows[-1].local_batch for rows in truth.steps.values()),
        tried=tuple(tried),
        runs=tuple(StepTime(setting=truth.setting(c), seconds=truth.step_seconds(c)) for c in tried),
        reached=tuple(Reached(batch=batch, steps=truth.iterations[batch]) for batch in batches),
        courses={batch: noise_course(truth, batch) for batch in batches},
    )


def noise_course(truth: ScavengerTruth, batch: int) -> tuple[tuple[float, float], ...]:
    """(steps, phi) of each epoch of the training at `batch`, up to the target.

    The tables give the variance of a gradient of the *first* batch M0 (AdaptDL's form), so phi = M0 var / sqr. An epoch
    with a reported gradient of 0 has no phi: its steps are added to epochs that have one. Empty where none has.
    """
    end, before = truth.iterations[batch], 0.0
    found: list[tuple[float, float]] = []
    for epoch in truth.epochs[batch]:
        steps = min(epoch.iteration, end) - before
        if steps <= 0:
            break
        before = epoch.iteration
        if epoch.grad_sqr > 0 and epoch.grad_var >= 0:
            found.append((steps, truth.batches[0] * epoch.grad_var / epoch.grad_sqr))
    known = sum(steps for steps, _ in found)
    return tuple((steps * end / known, phi) for steps, phi in found) if known else ()
