"""A plug-in for mlcd: the strategy `cheapest-first`, the scheduler `doubling`, the cloud `lab`."""
