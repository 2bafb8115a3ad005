"""What the same training would take on one plain instance: a rough estimate that shows when functions do not pay.

The processor time of an epoch is n x the mean time of a function x the share of its processors that it used x the
processors that its memory pays for. An instance with v vCPUs divides it among them and needs no storage between steps:

    seconds = start + epochs x processor time / v,    usd = price x max(seconds, 60 s)

This favours the instance a little (its processes are assumed never to wait), and functions a little (an asynchronous
epoch may achieve less than a synchronous one). LambdaML (SIGMOD 2021) measured this carefully: functions are faster for
short or wide jobs, and rarely cheaper.
"""

from collections.abc import Sequence

from mlcd.catalog import Catalog
from mlcd.run.verdict import PlainInstance
from mlcd.trial.epoch import Epoch

START_SECONDS = 90.0
"""From the order to the first sample: an instance and its libraries start (typical for EC2)."""
LEAST_BILLED_SECONDS = 60.0
MB_PER_PROCESSOR = 1769.0
MOST_PROCESSORS = 6.0
"""Processors of a function with 10,240 MB (AWS Lambda's developer guide, 2024)."""
FAMILIES = ("c5.", "m5.", "m4.")


def plain_instances(epochs: Sequence[Epoch], catalog: Catalog, *, most: int = 4) -> tuple[PlainInstance, ...]:
    """The Pareto-optimal instances in time and cost, cheapest first, at most `most`."""
    if not epochs:
        return ()
    work = sum(map(_processor_seconds, epochs))
    found = []
    for instance in catalog.instances:
        price = instance.price(spot=False)
        if instance.cloud != "aws" or not instance.name.startswith(FAMILIES) or price is None or instance.accelerators:
            continue
        seconds = START_SECONDS + work / instance.vcpus
        usd = price.for_seconds(max(seconds, LEAST_BILLED_SECONDS))
        found.append(PlainInstance(name=instance.name, usd_per_hour=price, seconds=seconds, usd=usd))
    return _front(found)[:most]


def _processor_seconds(epoch: Epoch) -> float:
    """Processor seconds of all functions of an epoch; their full compute time if utilisation is unknown."""
    processors = min(epoch.fleet.memory_mb / MB_PER_PROCESSOR, MOST_PROCESSORS)
    each = epoch.compute.mean_seconds
    if epoch.cpu_share is not None:
        each = (epoch.fetch.mean_seconds + each + epoch.update.mean_seconds) * min(epoch.cpu_share, 1.0)
    return epoch.fleet.functions * each * processors


def _front(found: list[PlainInstance]) -> tuple[PlainInstance, ...]:
    """The instances that no other beats in both time and money."""
    kept: list[PlainInstance] = []
    fastest = float("inf")
    for plan in sorted(found, key=lambda plan: (plan.usd, plan.seconds)):
        if plan.seconds < fastest * 0.99:
            kept.append(plan)
            fastest = plan.seconds
    return tuple(kept)
