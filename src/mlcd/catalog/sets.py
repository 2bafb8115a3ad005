"""Named sets of instance types, and the types that people take by default."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from mlcd.catalog.instance import Instance

PAPER_FAMILIES = ("c4.*", "c5.*", "c5n.*", "m4.*", "p2.*", "p3.*", "p3dn.*", "g3.*", "g3s.*")
"""The families of HeterBO's Figs. 1, 3 and 9-18, with their direct variants."""

GLOBS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "aws-paper": ("aws", PAPER_FAMILIES),
    # 36 types of the papers' families, then other types of EC2 in 2019: 62 types x 50 nodes = 3,100 deployments.
    "aws-62": (
        "aws",
        (*PAPER_FAMILIES, "m5.*", "r5.*", "g4dn.*", "t3.medium", "t3.large", "t3.xlarge", "t3.2xlarge"),
    ),
}
"""Set name -> (cloud, globs), in addition to CLOUD-gpu and CLOUD-cpu for every cloud."""

DEFAULTS: Mapping[str, tuple[str, ...]] = {"aws": ("aws-62",)}
"""The patterns for a job that names no types, for clouds where that is not every type."""

POPULAR: Mapping[str, tuple[str, ...]] = {
    "aws": ("m5.xlarge", "m4.xlarge", "c5.xlarge", "m6i.xlarge", "t3.xlarge", "p3.2xlarge"),
    "azure": ("Standard_D4s_v5", "Standard_F4s_v2", "Standard_D8s_v5", "Standard_NC6s_v3"),
    "gcp": ("n1-standard-4", "n2-standard-4", "c2-standard-4", "n1-standard-8", "g2-standard-4"),
}
"""The general-purpose sizes that each vendor's guides start with, in order: the "naive choice" of a receipt."""


def resolve_sets(instances: Sequence[Instance]) -> dict[str, tuple[str, ...]]:
    """Every named set as names of `instances`, in their order; names are unique within a cloud."""
    sets = {
        name: tuple(i.name for i in instances if i.cloud == cloud and any(fnmatchcase(i.name, glob) for glob in globs))
        for name, (cloud, globs) in GLOBS.items()
    }
    for cloud in dict.fromkeys(i.cloud for i in instances):
        ours = [i for i in instances if i.cloud == cloud]
        sets[f"{cloud}-gpu"] = tuple(i.name for i in ours if i.accelerators)
        sets[f"{cloud}-cpu"] = tuple(i.name for i in ours if not i.accelerators)
    return sets


def cloud_of(set_name: str) -> str:
    """The cloud a named set belongs to."""
    return GLOBS[set_name][0] if set_name in GLOBS else set_name.rpartition("-")[0]
