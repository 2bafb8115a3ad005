"""Instance types with their prices, from a dated snapshot; no network access."""

from mlcd.catalog.catalog import Catalog, NotOffered, family_globs
from mlcd.catalog.instance import Instance
from mlcd.catalog.load import load_catalog

__all__ = ["Catalog", "Instance", "NotOffered", "family_globs", "load_catalog"]
