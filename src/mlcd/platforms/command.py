"""Any command: one process a node, with the job's own MLCD_* and SKYPILOT_* variables and no others."""

from mlcd.platforms.placement import Placement, Process

TOPOLOGIES = ("ring", "ps")


def processes(placement: Placement) -> tuple[Process, ...]:  # noqa: ARG001  every platform is called alike
    """One worker; what it does with its rank and the others' addresses is its own affair."""
    return (Process(),)
