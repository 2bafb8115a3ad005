"""`mlcd catalog refresh`."""

from datetime import UTC, datetime

from mlcd.cli.output import print_json, print_text
from mlcd.errors import CatalogError

SNAPSHOT = "snapshot"
"""The source that stands for the packaged prices."""
SHOWN = 5
"""Prices that changed most, and types that keep theirs, shown at most."""


def refresh_prices(source: str | None, output: str) -> None:
    """Fetch, check and keep prices, or with SNAPSHOT forget them; print what changed. Raises CatalogError."""
    from mlcd.catalog import load_catalog
    from mlcd.catalog.refresh import REGIONS, forget, refresh, refreshed_prices, save

    before = load_catalog()
    today = datetime.now(UTC).date()
    if source == SNAPSHOT:
        removed = forget()
        packaged = load_catalog(refreshed=False)
        if output == "json":
            print_json({"tables": {}, "file": None, "prices": 0, "changed": 0, "kept": []})
        else:
            print_text(f"Prices are those of the package, {packaged.date}{'' if removed else ', as before'}.")
        return
    packaged = load_catalog(refreshed=False)
    try:
        earlier = refreshed_prices()
    except CatalogError:  # it is replaced
        earlier = None
    used = {cloud: earlier.oldest((cloud,), packaged.date) if earlier else packaged.date for cloud in REGIONS}
    found = refresh(source, packaged.instances, used=used, today=today)
    file = save(found.beside(earlier))
    after = {(i.cloud, i.name): i for i in load_catalog().instances}
    changes = sorted(
        (
            (after[i.cloud, i.name].usd_per_hour / i.usd_per_hour - 1, i)
            for i in before.instances
            if after[i.cloud, i.name].usd_per_hour != i.usd_per_hour
        ),
        key=lambda change: -abs(change[0]),
    )
    if output == "json":
        print_json(
            {
                "tables": {
                    cloud: {"source": table.source, "date": table.date.isoformat()}
                    for cloud, table in found.tables.items()
                },
                "file": str(file),
                "prices": len(found.prices),
                "changed": len(changes),
                "kept": list(found.kept),
            }
        )
        return
    for cloud, table in found.tables.items():
        count = sum(of == cloud for of, _ in found.prices)
        print_text(f"{cloud}: {count} prices of {table.date} from {table.source}")
    print_text(f"Kept in {file}.")
    print_text(f"{len(changes)} differ from those used before{':' if changes else '.'}")
    for share, old in changes[:SHOWN]:
        new = after[old.cloud, old.name].usd_per_hour
        print_text(f"  {old.cloud} {old.name}: ${old.usd_per_hour.dollars:.4f} -> ${new.dollars:.4f} ({share:+.0%})")
    for line in found.kept[:SHOWN]:
        print_text(f"  kept at its old price: {line}")
    print_text("To go back to the packaged prices: mlcd catalog refresh --from snapshot")
