"""A Slurm cluster as a cloud: partitions are instance types, and a lease is a batch job with an agent on each node."""

from mlcd.clouds.slurm.engine import Slurm

__all__ = ["Slurm"]
