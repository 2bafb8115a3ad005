"""Instance types with prices: from SkyPilot's catalog where this machine has it, else from mlcd's own."""

import csv
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from mlcd.catalog import Catalog, Instance, NotOffered
from mlcd.clouds.skypilot.task import SkySettings
from mlcd.errors import ProviderError
from mlcd.units import Usd

SCHEMA = "v8"
"""The catalog version of SkyPilot 0.14, which downloads the files when it first uses a cloud."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedOffer:
    """Types, and one sentence that states where their prices come from."""

    instances: tuple[Instance, ...]
    source: str


def offer(settings: SkySettings, catalog: Catalog) -> PricedOffer:
    """The types of the settings' cloud that have a price and a known network.

    SkyPilot's catalog has no network speeds. Those come from mlcd's catalog, so types unknown to it are omitted. The
    spot price is that of the most expensive zone of the region, since SkyPilot may use any of them. Raises
    ProviderError where nothing has a price.
    """
    try:
        known = catalog.for_cloud(settings.cloud)
    except NotOffered as error:
        raise ProviderError(
            f"{settings.infra}: no prices are known for {settings.cloud}; write its types into a catalog file with "
            f"cloud={settings.cloud} and set MLCD_CATALOG to it (docs/catalog.md)"
        ) from error
    own = f"mlcd's catalog of {catalog.date}"
    file = catalog_file(settings.cloud)
    if not file.exists() or settings.region is None:
        return PricedOffer(instances=tuple(known.values()), source=own)
    prices = read_prices(file, settings.region)
    offered = tuple(_priced(instance, prices) for instance in known.values() if _listed(instance, prices))
    if not offered:
        raise ProviderError(f"{settings.infra}: SkyPilot's catalog {file} has no type that mlcd knows in that region")
    day = datetime.fromtimestamp(file.stat().st_mtime, UTC).date()
    source = f"SkyPilot's catalog {file} of {day}, {settings.region}"
    if settings.cloud == "gcp" and any(instance.accelerators for instance in offered):
        source += f"; for types whose accelerators it prices separately: {own}"
    return PricedOffer(instances=offered, source=source)


def catalog_file(cloud: str) -> Path:
    """The file in which SkyPilot keeps the types of a cloud."""
    home = Path(os.environ.get("SKY_RUNTIME_DIR") or Path.home())
    return home / ".sky" / "catalogs" / SCHEMA / cloud / "vms.csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """USD per hour of one node."""

    usd_per_hour: Usd
    spot_usd_per_hour: Usd | None


def read_prices(file: Path, region: str) -> dict[str, Price]:
    """The prices of one region, by type. Raises ProviderError for a file that is not SkyPilot's."""
    found: dict[str, Price] = {}
    try:
        with file.open(encoding="utf-8", newline="") as lines:
            for row in csv.DictReader(lines):
                if row["Region"] == region and row["InstanceType"] and (price := _usd(row["Price"])) is not None:
                    found[row["InstanceType"]] = _higher_price(
                        found.get(row["InstanceType"]),
                        Price(usd_per_hour=price, spot_usd_per_hour=_usd(row["SpotPrice"])),
                    )
    except (OSError, KeyError, ValueError) as error:
        raise _unreadable(file, error) from error
    return found


def regions(file: Path) -> tuple[str, ...]:
    """The regions in SkyPilot's catalog of a cloud. Raises ProviderError for a file that is not SkyPilot's."""
    try:
        with file.open(encoding="utf-8", newline="") as lines:
            return tuple(dict.fromkeys(row["Region"] for row in csv.DictReader(lines)))
    except (OSError, KeyError, ValueError) as error:
        raise _unreadable(file, error) from error


def _unreadable(file: Path, error: Exception) -> ProviderError:
    return ProviderError(
        f"SkyPilot's catalog {file} cannot be read ({error}); delete it, and SkyPilot downloads it again"
    )


def _listed(instance: Instance, prices: Mapping[str, Price]) -> bool:
    """SkyPilot lists GCP's accelerators in separate rows, so that a type with one may be missing under its name."""
    return instance.name in prices or (instance.cloud == "gcp" and instance.accelerators > 0)


def _priced(instance: Instance, prices: Mapping[str, Price]) -> Instance:
    if instance.name not in prices or (instance.cloud == "gcp" and instance.accelerators):
        return instance
    price = prices[instance.name]
    return replace(instance, usd_per_hour=price.usd_per_hour, spot_usd_per_hour=price.spot_usd_per_hour)


def _higher_price(one: Price | None, other: Price) -> Price:
    if one is None:
        return other
    spots = [price for price in (one.spot_usd_per_hour, other.spot_usd_per_hour) if price is not None]
    return Price(
        usd_per_hour=max(one.usd_per_hour, other.usd_per_hour), spot_usd_per_hour=max(spots) if spots else None
    )


def _usd(text: str | None) -> Usd | None:
    """None for an empty cell and for 0, which means "not offered"."""
    if not text or text.lower() == "nan":
        return None
    price = Usd.of(text)
    return price if price.micros > 0 else None
