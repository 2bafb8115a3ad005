"""Time against money: which configurations are worth having, and the knee between the fastest and the cheapest."""

from collections.abc import Sequence

from mlcd.errors import BadInput

Point = tuple[float, float]
"""(seconds, dollars) of one configuration."""


def front(points: Sequence[Point]) -> list[int]:
    """The indices of the points that no other dominates, fastest first; of equal points the first."""
    kept: list[int] = []
    for at in sorted(range(len(points)), key=lambda i: (points[i], i)):
        if not kept or points[at][1] < points[kept[-1]][1]:
            kept.append(at)
    return kept


def knee(points: Sequence[Point]) -> int:
    """The index of the Pareto front's knee (Kneedle, Satopaa et al. 2011).

    Both axes are normalised to 0..1 over the front; the knee lies farthest below the chord from the fastest to the
    cheapest point, where 1 - x - y is largest. Ties go to the cheaper point; so does a front of two points or one that
    never bends below its chord. Raises BadInput without points.
    """
    if not points:
        raise BadInput("there is no configuration to choose a knee from")
    kept = front(points)
    depths = depth(points)
    best = kept[-1]
    for at in reversed(kept):
        if depths[at] > depths[best] + 1e-12:
            best = at
    return best


def depth(points: Sequence[Point]) -> list[float]:
    """How far each point lies below the chord of the Pareto front, 1 - x - y in its normalised axes: the knee's worth.

    0 at both ends, below 0 above the chord, and 0 for every point where the front is a single one.
    """
    if not points:
        return []
    kept = front(points)
    (quick, expensive), (slow, cheap) = points[kept[0]], points[kept[-1]]
    if len(kept) < 2:
        return [0.0] * len(points)
    return [1 - (s - quick) / (slow - quick) - (u - cheap) / (expensive - cheap) for s, u in points]


def weighted(points: Sequence[Point], time_weight: float) -> int:
    """The index with the least seconds^a dollars^(1-a); ties go to the cheaper."""
    if not 0 <= time_weight <= 1:
        raise BadInput(f"the weight of time must be between 0 and 1 (got {time_weight:g})")
    if not points:
        raise BadInput("there is no configuration to choose from")
    worth = [seconds**time_weight * usd ** (1 - time_weight) for seconds, usd in points]
    return min(range(len(points)), key=lambda i: (worth[i], points[i][1], i))
