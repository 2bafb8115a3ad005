"""Plausibility checks for the rows of a catalog."""

from typing import NamedTuple

from mlcd.catalog.instance import Instance

USD_PER_ACCELERATOR_HOUR = (0.02, 40.0)
"""From an eighth of an old card on spot ($0.026, azure NV4as_v4) to over twice the most expensive (B200, $14.24)."""
USD_PER_VCPU_HOUR = (0.0001, 50.0)
VCPUS = (0.25, 2048.0)
GIB_PER_VCPU = (0.1, 200.0)
NETWORK_GBPS = (0.01, 10_000.0)
TFLOPS = (0.1, 100_000.0)


class Implausibility(NamedTuple):
    """Why a row is refused: the field, its value, what is wrong, what is allowed."""

    field: str
    value: object
    problem: str
    allowed: str


def _outside(field: str, value: float, limits: tuple[float, float], what: str) -> Implausibility | None:
    if limits[0] <= value <= limits[1]:
        return None
    return Implausibility(field, value, f"{what} is not plausible", f"{limits[0]:g} to {limits[1]:,.10g}")


def implausibility(instance: Instance) -> Implausibility | None:
    """The first check that `instance` fails, or None."""
    price, spot = instance.usd_per_hour, instance.spot_usd_per_hour
    if spot is not None and spot > price:
        problem = "spot costs more than on demand"
        return Implausibility("spot_usd_per_hour", spot.dollars, problem, f"at most {price.dollars}")
    checks = [
        _outside("vcpus", instance.vcpus, VCPUS, "the number of vCPUs"),
        _outside("memory_gib", instance.memory_gib / instance.vcpus, GIB_PER_VCPU, "memory per vCPU"),
        _outside("network_gbps", instance.network_gbps, NETWORK_GBPS, "the network"),
        _outside("usd_per_hour", price.dollars / instance.vcpus, USD_PER_VCPU_HOUR, "the price per vCPU-hour"),
    ]
    if instance.accelerators:
        count, limits = instance.accelerators, USD_PER_ACCELERATOR_HOUR
        what = "the price per accelerator-hour"
        checks.append(_outside("usd_per_hour", price.dollars / count, limits, what))
        if spot is not None:
            checks.append(_outside("spot_usd_per_hour", spot.dollars / count, limits, what))
        checks.append(_outside("accelerator_tflops", instance.accelerator_tflops, TFLOPS, "accelerator speed"))
        checks.append(
            _outside("accelerator_memory_gib", instance.accelerator_memory_gib, (0.5, 4096.0), "accelerator memory")
        )
    return next((check for check in checks if check is not None), None)
