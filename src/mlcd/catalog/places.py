"""Clouds and regions: which region a place is, and the types of a place under names that say so."""

from collections.abc import Iterable
from dataclasses import replace

from mlcd.catalog.instance import Instance
from mlcd.space.placed import placed_name

HOME_REGIONS = {"aws": "us-east-1", "gcp": "us-central1", "azure": "eastus"}
"""The regions of mlcd's prices. A bare `aws` means this region, so that SkyPilot uses no more expensive one."""


def at_place(instances: Iterable[Instance], place: str) -> tuple[Instance, ...]:
    """The types under the names that they have at `place` (mlcd.space.placed)."""
    return tuple(replace(instance, name=placed_name(instance.name, place)) for instance in instances)


def cloud_and_region(place: str) -> tuple[str, str]:
    """(`aws`, `us-east-1`) of `aws/us-east-1`, `aws/us-east-1/us-east-1a`, `aws` or `sim/aws`, which has one region.

    The region is "" where a place has none, as `kubernetes`.
    """
    if place.startswith("sim/"):
        cloud = place.split("/")[1]
        return cloud, HOME_REGIONS.get(cloud, "")
    cloud, _, rest = place.removeprefix("sky/").partition("/")
    return cloud, rest.partition("/")[0] or HOME_REGIONS.get(cloud, "")
