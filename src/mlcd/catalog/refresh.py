"""Prices of today: fetched, checked, and kept in the home beside the packaged snapshot, which stays the fallback.

A table changes the prices of types that the snapshot has; new types have no known network speed and are left out. A
malformed file is refused as a whole. A type with an implausible price keeps its old one, if there are few of them.
"""

import csv
import io
import json
import math
import os
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from statistics import median

from mlcd.catalog.fetch import MOST_BYTES, Fetched, fetch
from mlcd.catalog.instance import Instance
from mlcd.catalog.sanity import implausibility
from mlcd.errors import CatalogError
from mlcd.home import home, private_folder, write_private
from mlcd.units import Usd
from mlcd.untrusted import Malformed, read_named

HOSTED = (
    "https://raw.githubusercontent.com/skypilot-org/skypilot-catalog/master/catalogs/v8",
    "https://skypilot-catalog.s3.us-east-1.amazonaws.com/catalogs/v8",
)
"""Where SkyPilot keeps the tables that its versions of 2026 read, and their mirror: CLOUD/vms.csv."""
REGIONS: Mapping[str, str] = {"aws": "us-east-1", "azure": "eastus", "gcp": "us-central1"}
"""The region whose prices the snapshot has, by cloud."""
FILE = "prices.json"
SCHEMA = 1
LEAST_COVERED = 0.5
"""A table with fewer of the known types of its cloud is cut off, or of something else. AWS has retired 15% of them."""
MOST_KEPT = 0.05
"""More implausible prices than this share, and the whole table is refused."""
MOST_CHANGE = 5.0
"""A price that rose or fell by more than this factor is implausible. Our judgement."""
MOST_LINE_CHARACTERS = 20_000
"""SkyPilot's longest line of 2026 has under 2,000."""
_COLUMNS = ("InstanceType", "Price", "SpotPrice", "Region")

Key = tuple[str, str]
"""Cloud and name of a type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Dollars an hour: on demand, and on the spot market where there is one."""

    usd_per_hour: Usd
    spot_usd_per_hour: Usd | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Where the prices of one cloud are from, and of when."""

    source: str
    date: date


@dataclass(frozen=True, slots=True, kw_only=True)
class Refreshed:
    """Prices that replace those of the snapshot.

    tables  cloud -> where its prices are from, and of when: as their source says, else of the day they were fetched
    kept    types that keep their old price, each with the reason
    """

    tables: Mapping[str, Table]
    prices: Mapping[Key, Price]
    kept: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """For the notes of a catalog: a sentence a cloud, and what keeps its old price."""
        counts = Counter(cloud for cloud, _ in self.prices)
        found = (f"{cloud}: {counts[cloud]} prices are from {t.source}, {t.date}." for cloud, t in self.tables.items())
        return (*found, *(f"{line}; its old price is kept." for line in self.kept))

    def oldest(self, clouds: Sequence[str], otherwise: date) -> date:
        """The date of the oldest prices of these clouds, if those of others are of `otherwise`."""
        return min((self.tables[c].date if c in self.tables else otherwise for c in clouds), default=otherwise)

    def beside(self, earlier: "Refreshed | None") -> "Refreshed":
        """These, and those of other clouds that were fetched earlier."""
        if earlier is None:
            return self
        return Refreshed(
            tables={**earlier.tables, **self.tables},
            prices={**{k: p for k, p in earlier.prices.items() if k[0] not in self.tables}, **self.prices},
            kept=(*(line for line in earlier.kept if line.partition(" ")[0] not in self.tables), *self.kept),
        )


def refresh(
    source: str | None,
    known: Sequence[Instance],
    *,
    used: Mapping[str, date],
    today: date,
    get: Callable[[str], Fetched] = fetch,
) -> Refreshed:
    """Prices from `source`, checked against what is known; nothing is written.

    source  None: SkyPilot's hosted tables; an address or folder with CLOUD/vms.csv; or one such file
    used    cloud -> the date of its prices in use: older ones are refused

    Raises CatalogError with the reason; what is in use then stays in use.
    """
    prices: dict[Key, Price] = {}
    kept: list[str] = []
    tables: dict[str, Table] = {}
    for cloud, places in _tables(source).items():
        place, found = _first(places, get)
        day = found.modified or today
        if day > today + timedelta(days=2):
            raise CatalogError(f"{place}: is dated {day}, in the future; is this machine's clock right?")
        if day < used[cloud]:
            old = f"its prices are of {day}, older than those in use ({used[cloud]})"
            raise CatalogError(f"{place}: {old}; nothing is changed")
        tables[cloud] = Table(source=place, date=day)
        ours = {i.name: i for i in known if i.cloud == cloud and not (cloud == "gcp" and i.accelerators)}
        new, odd = _checked(_read(found.content, place, REGIONS[cloud], ours), ours, place)
        prices.update({(cloud, name): price for name, price in new.items()})
        kept += [f"{cloud} {line}" for line in odd]
    return Refreshed(tables=tables, prices=prices, kept=tuple(kept))


def save(refreshed: Refreshed) -> Path:
    """Keep them in the home. Raises CatalogError."""
    file = private_folder(home()) / FILE
    rows = [
        {
            "cloud": cloud,
            "name": name,
            "usd_per_hour": str(price.usd_per_hour.dollars),
            "spot_usd_per_hour": None if price.spot_usd_per_hour is None else str(price.spot_usd_per_hour.dollars),
        }
        for (cloud, name), price in refreshed.prices.items()
    ]
    whole = {
        "schema": SCHEMA,
        "tables": {cloud: {"source": t.source, "date": t.date.isoformat()} for cloud, t in refreshed.tables.items()},
        "kept": list(refreshed.kept),
        "prices": rows,
    }
    try:
        write_private(file, json.dumps(whole, indent=1))
    except OSError as error:
        raise CatalogError(f"{file} cannot be written: {error.strerror or error}") from error
    return file


def forget() -> bool:
    """Go back to the packaged snapshot; whether there was anything else. Raises CatalogError."""
    file = home() / FILE
    try:
        file.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise CatalogError(f"{file} cannot be removed: {error.strerror or error}") from error
    return True


def refreshed_prices() -> Refreshed | None:
    """What `save` kept; None where there is nothing. Raises CatalogError for a file that cannot be used."""
    file = home() / FILE
    try:
        whole = json.loads(read_named(file, most_bytes=MOST_BYTES))
        if whole["schema"] != SCHEMA:
            raise ValueError(f"schema {whole['schema']}")
        prices = {
            (str(row["cloud"]), str(row["name"])): Price(
                usd_per_hour=_usd(row["usd_per_hour"]),
                spot_usd_per_hour=None if row["spot_usd_per_hour"] is None else _usd(row["spot_usd_per_hour"]),
            )
            for row in whole["prices"]
        }
        kept = tuple(map(str, whole["kept"]))
        tables = {
            str(cloud): Table(source=str(of["source"]), date=date.fromisoformat(of["date"]))
            for cloud, of in whole["tables"].items()
        }
        return Refreshed(tables=tables, prices=prices, kept=kept)
    except FileNotFoundError:
        return None
    except (OSError, Malformed, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CatalogError(f"{file} cannot be used ({error}); run: mlcd catalog refresh") from error


def with_prices(instances: Sequence[Instance], refreshed: Refreshed) -> tuple[Instance, ...]:
    """The instances at their new prices; one that would not be plausible keeps its own."""
    found = []
    for instance in instances:
        price = refreshed.prices.get((instance.cloud, instance.name))
        new = None if price is None else _priced(instance, price)
        found.append(instance if new is None or implausibility(new) else new)
    return tuple(found)


def _priced(instance: Instance, price: Price) -> Instance:
    return replace(instance, usd_per_hour=price.usd_per_hour, spot_usd_per_hour=price.spot_usd_per_hour)


def _tables(source: str | None) -> dict[str, tuple[str, ...]]:
    """Where the table of each cloud may be, in order of preference."""
    if source is None:
        return {cloud: tuple(f"{base}/{cloud}/vms.csv" for base in HOSTED) for cloud in REGIONS}
    if "://" not in source and not os.path.exists(source):  # noqa: PTH110 - False where the name is too long
        raise CatalogError(f"{source}: there is no such file or folder")
    if not source.endswith(".csv") and os.path.isfile(source):  # noqa: PTH113 - as above
        raise CatalogError(f"{source}: is no table of prices; allowed: a folder, or a file such as aws/vms.csv")
    if not source.endswith(".csv"):
        return {cloud: (f"{source.rstrip('/')}/{cloud}/vms.csv",) for cloud in REGIONS}
    cloud = source.replace("\\", "/").rpartition("/")[0].rpartition("/")[2]
    if cloud not in REGIONS:
        allowed = ", ".join(f"{name}/vms.csv" for name in REGIONS)
        raise CatalogError(f"{source}: the folder of a table must say of which cloud it is; allowed: .../{allowed}")
    return {cloud: (source,)}


def _first(places: Sequence[str], get: Callable[[str], Fetched]) -> tuple[str, Fetched]:
    problems: list[CatalogError] = []
    for place in places:
        try:
            return place, get(place) if "://" in place else _from_disk(Path(place))
        except CatalogError as error:
            problems.append(error)
    raise problems[0]


def _from_disk(path: Path) -> Fetched:
    try:
        content = read_named(path, most_bytes=MOST_BYTES)
        return Fetched(content=content, modified=datetime.fromtimestamp(path.stat().st_mtime, UTC).date())
    except OSError as error:
        raise CatalogError(f"{path}: cannot be read: {error.strerror or error}") from error
    except Malformed as error:
        raise CatalogError(f"{path}: {error.problem}") from error


def _read(content: bytes, place: str, region: str, wanted: Container[str]) -> dict[str, Price]:
    """Prices by type in one region, as SkyPilot writes them: a line a zone. Spot is the median zone's."""
    demand: dict[str, float] = {}
    spots: dict[str, list[float]] = {}
    reader = csv.reader(_lines(content, place), strict=True)
    try:
        header = next(reader, [])
        if missing := [name for name in _COLUMNS if name not in header]:
            raise CatalogError(f"{place}: is no table of prices: its first line lacks {', '.join(missing)}")
        at = {name: header.index(name) for name in _COLUMNS}
        for cells in reader:
            if len(cells) != len(header):
                cells_seen = f"has {len(cells)} cells, the first line has {len(header)}"
                raise CatalogError(f"{place}:{reader.line_num}: {cells_seen}: is it cut off?")
            name = cells[at["InstanceType"]]
            if cells[at["Region"]] != region or name not in wanted:
                continue
            price = _number(cells[at["Price"]], place, reader.line_num, "Price")
            spot = _number(cells[at["SpotPrice"]], place, reader.line_num, "SpotPrice")
            if price is not None:
                demand[name] = max(price, demand.get(name, 0.0))
            if spot is not None:
                spots.setdefault(name, []).append(spot)
    except UnicodeDecodeError as error:
        raise CatalogError(f"{place}: is not a text file in UTF-8") from error
    except csv.Error as error:
        raise CatalogError(f"{place}:{reader.line_num}: not CSV: {error}") from error
    return {
        name: Price(
            usd_per_hour=Usd.of(price), spot_usd_per_hour=Usd.of(median(spots[name])) if name in spots else None
        )
        for name, price in demand.items()
    }


def _lines(content: bytes, place: str) -> Iterator[str]:
    """Its lines, one at a time. Raises CatalogError for one that is longer than any of a table; UnicodeDecodeError."""
    with io.TextIOWrapper(io.BytesIO(content), encoding="utf-8-sig", newline="") as file:
        while line := file.readline(MOST_LINE_CHARACTERS + 1):
            if len(line) > MOST_LINE_CHARACTERS:
                raise CatalogError(
                    f"{place}: is no table of prices: it has a line of over {MOST_LINE_CHARACTERS:,} characters"
                )
            yield line


def _number(text: str, place: str, line: int, field: str) -> float | None:
    """None for an empty cell and for 0, which mean "not offered". Raises CatalogError for what is no price."""
    if not text.strip():
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < 1e6:
        raise CatalogError(f"{place}:{line}: {field} is no price (got {text[:40]!r}); nothing is changed")
    return value or None


def _checked(
    found: Mapping[str, Price], ours: Mapping[str, Instance], place: str
) -> tuple[dict[str, Price], list[str]]:
    """The prices of types that we know, and what is odd about those that keep their old ones."""
    new: dict[str, Price] = {}
    odd: list[str] = []
    for name in (name for name in ours if name in found):
        price, old = found[name], ours[name]
        change = price.usd_per_hour / old.usd_per_hour
        if not 1 / MOST_CHANGE <= change <= MOST_CHANGE:
            odd.append(f"{name}: ${price.usd_per_hour.dollars:g} an hour is {change:.2g} times the old price")
        elif (problem := implausibility(_priced(old, price))) is not None:
            odd.append(f"{name}: {problem.problem} ({problem.value})")
        else:
            new[name] = price
    covered = len(new) + len(odd)
    if covered < LEAST_COVERED * len(ours):
        raise CatalogError(
            f"{place}: has only {covered} of {len(ours)} known types in that region: it is cut off, or another table"
        )
    if len(odd) > MOST_KEPT * len(ours):
        raise CatalogError(
            f"{place}: {len(odd)} of {covered} prices are not plausible, such as {odd[0]}; nothing is changed"
        )
    return new, odd


def _usd(text: object) -> Usd:
    price = Usd.of(str(text))
    if price.micros <= 0:
        raise ValueError(f"a price must be above 0 (got {text!r})")
    return price
