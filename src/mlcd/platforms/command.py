"""Any command: one process per node, with the job's own MLCD_* and SKYPILOT_* variables and no others."""

from mlcd.platforms.placement import Placement, Process

TOPOLOGIES = ("ring", "ps")


def processes(placement: Placement) -> tuple[Process, ...]:  # noqa: ARG001  every platform is called alike
    """One worker; the command itself decides how to use its rank and the other nodes' addresses."""
    return (Process(),)
