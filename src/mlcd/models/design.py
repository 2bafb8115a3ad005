"""Which (K, B) to run briefly: Scavenger's corners, a centre that tests the fit, and more runs if the test fails."""

from collections.abc import Sequence

from mlcd.errors import BadInput
from mlcd.models.parallel import ClusterSetting, ParallelModel


def three_batches(settings: Sequence[ClusterSetting]) -> tuple[float, float, float]:
    """The smallest, the middle and the largest batch; of two middle ones the smaller."""
    batches = sorted({s.batch for s in settings})
    if not batches:
        raise BadInput("there is no configuration to choose runs from")
    return batches[0], batches[(len(batches) - 1) // 2], batches[-1]


def corners_and_centre(settings: Sequence[ClusterSetting]) -> tuple[ClusterSetting, ...]:
    """Up to five runs: the fewest and the most workers at the smallest and the largest batch, and the centre last.

    The region need not be a rectangle: many workers cannot share a small batch, so each batch has its own fewest and
    most workers. The centre is the middle batch on the workers nearest to the geometric mean of the overall fewest and
    most; of two equally near, the fewer. A grid too small for five runs gives fewer.
    """
    low, middle, high = three_batches(settings)
    workers = [s.workers for s in settings]
    aim = (min(workers) * max(workers)) ** 0.5
    ends = []
    for batch in (low, high):
        here = sorted((s for s in settings if s.batch == batch), key=lambda s: s.workers)
        ends += [here[0], here[-1]]

    def apart(setting: ClusterSetting) -> tuple[float, int]:
        return round(max(setting.workers / aim, aim / setting.workers), 9), setting.workers

    centre = min((s for s in settings if s.batch == middle), key=apart)
    return tuple(dict.fromkeys([*ends, centre]))


def most_doubtful(
    model: ParallelModel, settings: Sequence[ClusterSetting], tried: Sequence[ClusterSetting], count: int = 1
) -> tuple[ClusterSetting, ...]:
    """The untried settings whose predicted step time is least certain, for when the centre does not fit."""
    left = [s for s in settings if s not in tried]
    return tuple(sorted(left, key=lambda s: (-model.deviation(s), s.workers, s.batch))[:count])
