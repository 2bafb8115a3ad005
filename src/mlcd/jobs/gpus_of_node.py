"""How many GPUs of a node may be chosen: `resources.gpus` of a job file, against what there is."""

from collections.abc import Sequence

from mlcd.catalog import Instance
from mlcd.spec import TrainSpec
from mlcd.spec.serve import ServeSpec

LOCAL = "local"
_SHARE = "p"
"""How the last part of a type's name ends that is a share of a GPU: `local.h200.50p`."""


def gpus_of(instance: Instance) -> float:
    """GPUs of a node of this type, as a job file counts them: half of one is 0.5."""
    size = instance.name.rpartition(".")[2]
    if instance.cloud == LOCAL and instance.accelerators and size.endswith(_SHARE) and size[:-1].isdecimal():
        return int(size[:-1]) / 100
    return float(instance.accelerators)


def with_gpus(
    spec: TrainSpec | ServeSpec, offered: Sequence[Instance], cloud: str, notes: list[str]
) -> tuple[Instance, ...]:
    """The types with the job's numbers of GPUs. Where it gives none: all, but on this machine whole GPUs if there are.

    Adds notes. Raises SpecError where there is no such type.
    """
    if not isinstance(spec, TrainSpec):
        return tuple(each for each in offered if cloud != LOCAL or not each.accelerators)
    wanted = spec.resources.gpus
    if wanted is None:
        whole = tuple(each for each in offered if gpus_of(each) >= 1)
        if cloud != LOCAL or not whole or spec.resources.instance_type is not None:
            return tuple(offered)
        notes.append("the GPUs of this machine are chosen from; resources.gpus: 0 trains on its processors")
        return whole
    found = tuple(each for each in offered if gpus_of(each) in wanted)
    there = sorted({gpus_of(each) for each in offered})
    if not found:
        allowed = f"{', '.join(f'{each:g}' for each in there)} on {cloud}"
        if any(0 < each < 1 for each in wanted) and not any(0 < each < 1 for each in there):
            mps = "nvidia-cuda-mps-control" if cloud == LOCAL else "this machine: infra: local"
            allowed += f"; shares of a GPU need {mps}"
        asked = [int(each) if each == int(each) else each for each in wanted]
        raise spec.error(
            "resources.gpus",
            "no type has this number of GPUs",
            value=asked[0] if len(asked) == 1 else asked,
            allowed=allowed,
        )
    if missing := [each for each in wanted if each not in there]:
        notes.append(f"excluded, no type has this number of GPUs: {', '.join(f'{each:g}' for each in missing)}")
    return found
