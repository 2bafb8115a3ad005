"""The file cloudwatch.json of a lease's folder, read into a summary; its data comes from the provider."""

import math
from pathlib import Path

from mlcd.trial.node_metrics import MOST_BYTES, NodeMetrics
from mlcd.untrusted import Fields, Malformed, read_json

FILE = "cloudwatch.json"
SOURCE = "CloudWatch"
MOST_FILE_BYTES = 64 * 2**20
"""A node has at most 3 x 1,440 points (cloudwatch.MOST_POINTS) of about 35 bytes: this is enough for 400 nodes."""
MOST_NODES = 10_000
MOST_POINTS = 10_000
"""Of one metric of one node."""
ROUNDING_PERCENT = 0.5
"""By how much a processor's utilisation may exceed 100%: the service's own averages are not exact."""


def read_node_metrics(folder: Path) -> NodeMetrics | None:
    """Means over the nodes that have data; None where none has, or there is no file. Raises Malformed, OSError."""
    path = folder / FILE
    try:
        data = Fields(read_json(path, most_bytes=MOST_FILE_BYTES, below=folder), str(path))
    except FileNotFoundError:
        return None
    if "instances" not in data:  # the file says why
        return None
    nodes = data.fields("instances")
    if len(nodes.data) > MOST_NODES:
        raise Malformed(str(path), f"has {len(nodes.data):,} instances; at most {MOST_NODES:,} are read")
    cpu: list[float] = []
    received: list[float] = []
    sent: list[float] = []
    count = 0
    for name in nodes.data:
        node = nodes.fields(name)
        percents = _values(node, "CPUUtilization", most=100.0 + ROUNDING_PERCENT)
        cpu += [min(math.fsum(percents) / len(percents), 100.0)] if percents else []
        sums = [_values(node, metric, most=MOST_BYTES) for metric in ("NetworkIn", "NetworkOut")]
        received += [min(math.fsum(sums[0]), MOST_BYTES)] if sums[0] else []
        sent += [min(math.fsum(sums[1]), MOST_BYTES)] if sums[1] else []
        count += any((percents, *sums))
    if not count:
        return None
    return NodeMetrics(
        source=SOURCE, nodes=count, cpu_percent=_mean(cpu), received_bytes=_mean(received), sent_bytes=_mean(sent)
    )


def _values(node: Fields, metric: str, *, most: float) -> list[float]:
    """The values of a metric's points, which are pairs of seconds and value."""
    found = []
    for point in node.items(metric, most=MOST_POINTS) if metric in node else ():
        if not isinstance(point, list) or len(point) != 2:
            raise Malformed(node.source, f"{metric} should have pairs of seconds and value")
        found.append(Fields({metric: point[1]}, node.source).number(metric, least=0.0, most=most))
    return found


def _mean(values: list[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
