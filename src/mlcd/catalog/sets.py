"""Named sets of instance types, and the types that people take by default."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from mlcd.catalog.accelerators import Accelerator
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
"""Set name -> (cloud, globs), in addition to CLOUD-gpu, CLOUD-cpu and CLOUD-accelerators for every cloud."""

TRAINING_GPUS = tuple(Accelerator(name=name) for name in ("L4", "L40S", "A10", "A10G", "A100", "H100", "H200", "B200"))
"""The GPUs on which people train in 2026: NVIDIA's data-centre cards from 2020 (Ampere) on. Older ones (K80, M60, V100,
T4) are still in the catalog; Inferentia, Trainium and TPUs are accelerators with software of their own, not GPUs."""

PREVIOUS_GENERATION = {"aws": ("c4.", "m4.", "r4.")}
"""By cloud, how the names of CPU types begin that the vendor lists as previous generation (EC2's page, 2026-08)."""

DEFAULT_SETS = ("gpu", "cpu")
"""A job that names no types chooses from CLOUD-gpu and CLOUD-cpu."""

POPULAR: Mapping[str, tuple[str, ...]] = {
    "aws": ("m5.xlarge", "m4.xlarge", "c5.xlarge", "m6i.xlarge", "t3.xlarge", "g5.xlarge", "p3.2xlarge"),
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
        sets[f"{cloud}-gpu"] = tuple(i.name for i in ours if any(gpu.fits(i) for gpu in TRAINING_GPUS))
        sets[f"{cloud}-cpu"] = tuple(i.name for i in ours if _is_current_cpu(i))
        sets[f"{cloud}-accelerators"] = tuple(i.name for i in ours if i.accelerators)
    return sets


def _is_current_cpu(instance: Instance) -> bool:
    old = instance.name.startswith(PREVIOUS_GENERATION.get(instance.cloud, ()))
    return not (instance.accelerators or old or instance.unfit_for_training)


def cloud_of(set_name: str) -> str:
    """The cloud a named set belongs to."""
    return GLOBS[set_name][0] if set_name in GLOBS else set_name.rpartition("-")[0]
