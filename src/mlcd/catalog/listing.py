"""The catalog as rows and as JSON, for `mlcd catalog` and the page of `mlcd ui`."""

from collections.abc import Sequence

from mlcd.catalog.catalog import Catalog
from mlcd.catalog.instance import Instance


def catalog_rows(shown: Sequence[Instance]) -> list[dict[str, object]]:
    """A row for each type, with the columns of a catalog file."""
    return [
        {
            "cloud": i.cloud,
            "name": i.name,
            "vcpus": i.vcpus,
            "memory_gib": i.memory_gib,
            "network_gbps": i.network_gbps,
            "accelerator": i.accelerator,
            "accelerators": i.accelerators,
            "accelerator_tflops": i.accelerator_tflops,
            "accelerator_memory_gib": i.accelerator_memory_gib,
            "usd_per_hour": i.usd_per_hour.dollars,
            "spot_usd_per_hour": None if i.spot_usd_per_hour is None else i.spot_usd_per_hour.dollars,
        }
        for i in shown
    ]


def catalog_file_rows(shown: Sequence[Instance]) -> list[dict[str, object]]:
    """The rows of a catalog file that MLCD_CATALOG can name: no figures of accelerators where there are none."""
    rows = zip(shown, catalog_rows(shown), strict=True)
    return [{k: v if i.accelerators or "accelerator" not in k else None for k, v in row.items()} for i, row in rows]


def catalog_json(loaded: Catalog, shown: Sequence[Instance], age_days: int) -> dict[str, object]:
    """The instance types in `shown`, with the date, the age and the sources of the prices."""
    return {
        "date": loaded.date.isoformat(),
        "age_days": age_days,
        "sources": list(loaded.notes),
        "sets": {name: list(types) for name, types in loaded.sets.items()},
        "instances": catalog_rows(shown),
    }
