"""Instance types with prices, from a dated snapshot. Only `fetch` uses the network, for `mlcd catalog refresh`."""

from mlcd.catalog.accelerators import Accelerator, accelerators_of, nearest_accelerator, parse_accelerator
from mlcd.catalog.catalog import Catalog, NotOffered, family_globs
from mlcd.catalog.instance import Instance
from mlcd.catalog.load import load_catalog

__all__ = [
    "Accelerator",
    "Catalog",
    "Instance",
    "NotOffered",
    "accelerators_of",
    "family_globs",
    "load_catalog",
    "nearest_accelerator",
    "parse_accelerator",
]
