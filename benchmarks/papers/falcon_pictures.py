"""Pictures of the paper's evaluations."""

from collections.abc import Mapping, Sequence

from papers.curve_picture import Curve, curve_picture


def cold_start_picture(accuracies: Mapping[str, Sequence[float]], origin: str) -> str:
    """Mean search accuracy after every trial, one line per strategy."""
    return curve_picture(
        [
            Curve(name=name, points=tuple((float(at), value) for at, value in enumerate(values, start=1)))
            for name, values in accuracies.items()
        ],
        title="Search accuracy over trials, mean of the unseen models",
        across="trials",
        up="worth of the choice as a share of the best",
        origin=origin,
    )


def path_picture(paths: Mapping[str, Sequence[float]], model: str, good: float, origin: str) -> str:
    """The value of each trial of a search, in order."""
    return curve_picture(
        [
            Curve(name=name, points=tuple((float(at), value) for at, value in enumerate(values, start=1)))
            for name, values in paths.items()
            if values
        ],
        title=f"The search paths for {model}: worth of every configuration that was tried",
        across="trial",
        up="worth of the trial as a share of the best; above the line: a good region",
        origin=origin,
        good=good,
    )


def sweep_picture(points: Mapping[str, Sequence[tuple[float, float]]], option: str, origin: str) -> str:
    """Mean search accuracy over values of one of Falcon's settings."""
    return curve_picture(
        [Curve(name=name, points=tuple(line)) for name, line in points.items()],
        title=f"Search accuracy over Falcon's {option}",
        across=option,
        up="worth of the choice as a share of the best",
        origin=origin,
    )
