"""What data costs that leaves a region: the clouds' list prices, without free allowances and volume discounts."""

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mlcd.catalog.places import cloud_and_region

SNAPSHOT = Path(__file__).parent / "snapshots" / "egress-2026-08.csv"

_CONTINENTS: dict[str, dict[str, tuple[str, ...]]] = {
    "aws": {"NA": ("us-", "ca-"), "EU": ("eu-",)},
    "gcp": {"NA": ("us-", "northamerica-northeast"), "EU": ("europe-",)},
    "azure": {
        "NA": ("eastus", "westus", "centralus", "northcentralus", "southcentralus", "westcentralus", "canada"),
        "EU": (
            "northeurope", "westeurope", "uksouth", "ukwest", "france", "germany", "norway", "sweden", "switzerland",
            "italy", "poland", "spain",
        ),
    },
}  # fmt: skip
"""By cloud, how the names of regions in North America and Europe begin; us-gov- is another offer."""
_OTHER_OFFERS = ("us-gov-", "us-iso")


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressPrice:
    """USD for each GB (10^9 bytes), with where the price is from."""

    usd_per_gb: float
    date: str
    source: str


FREE = EgressPrice(usd_per_gb=0.0, date="", source="within one region")


def egress_price(location: str, place: str) -> EgressPrice | None:
    """What a GB costs on its way from `location` to `place`; None where no price is known."""
    (cloud, region), (to_cloud, to_region) = cloud_and_region(location), cloud_and_region(place)
    if (cloud, region) == (to_cloud, to_region):
        return FREE
    to = "internet" if to_cloud != cloud else _continent(cloud, to_region)
    return _prices().get((cloud, _continent(cloud, region), to))


def known_clouds() -> tuple[str, ...]:
    """The clouds whose egress prices are known."""
    return tuple(_CONTINENTS)


def _continent(cloud: str, region: str) -> str:
    if region.startswith(_OTHER_OFFERS):
        return ""
    found = _CONTINENTS.get(cloud, {}).items()
    return next((continent for continent, starts in found if region.startswith(starts)), "")


@cache
def _prices() -> dict[tuple[str, str, str], EgressPrice]:
    with SNAPSHOT.open(encoding="utf-8", newline="") as lines:
        return {
            (row["cloud"], row["from"], row["to"]): EgressPrice(
                usd_per_gb=float(row["usd_per_gb"]), date=row["date"], source=row["source"]
            )
            for row in csv.DictReader(lines)
        }
