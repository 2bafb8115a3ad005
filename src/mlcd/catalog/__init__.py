"""Instance types with prices, from a dated snapshot. Only `fetch` uses the network, for `mlcd catalog refresh`."""

from mlcd.catalog.catalog import Catalog, NotOffered, family_globs
from mlcd.catalog.instance import Instance
from mlcd.catalog.load import load_catalog

__all__ = ["Catalog", "Instance", "NotOffered", "family_globs", "load_catalog"]
