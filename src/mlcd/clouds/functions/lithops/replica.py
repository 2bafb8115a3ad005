"""One function's copy of the parameters.

The parameters are those at the epoch's start plus one part per shard, the sum of the updates that its steps made:

    w = w0 + sum over shards s of d[s],    d[s] = - rate/n x sum of the gradients of the steps of s

where each of the n functions takes 1/n of the mini-batch: together they make a step of the whole batch. In BSP that is
plain mini-batch SGD; in HSP the parts of the others are as old as their last push.

Only calls that work on shard s extend d[s], each version has its number of steps in its name, and a version with more
steps replaces one with fewer. So it does not matter how often, in what order or by how many attempts a part is sent:
nothing is applied twice (a state-based counter as in Shapiro et al. 2011).
"""

import numpy as np

from mlcd.workloads.model import Floats


class Replica:
    """The parameters as one function sees them, its own steps always included.

    parameters  (P,) to compute gradients at
    own         (P,) this shard's part
    """

    def __init__(self, start: Floats, shard: int) -> None:
        self.shard = shard
        self.parameters = start.astype(np.float32, copy=True)
        self.own = np.zeros_like(self.parameters)
        self._others: dict[int, tuple[int, Floats]] = {}

    def adopt(self, own: Floats) -> None:
        """Continue from the part that an earlier attempt at this shard saved."""
        self.parameters += own - self.own
        self.own = own.astype(np.float32, copy=True)

    def step(self, change: Floats) -> None:
        """Apply one step of this shard."""
        self.own += change
        self.parameters += change

    def known_steps(self, shard: int) -> int:
        """How many steps of another shard are merged."""
        return self._others[shard][0] if shard in self._others else 0

    def merge(self, shard: int, steps: int, part: Floats) -> bool:
        """Merge another shard's part, replacing the one known so far; False where that has as many steps or more."""
        if shard == self.shard or steps <= self.known_steps(shard):
            return False
        self.parameters += part
        if shard in self._others:
            self.parameters -= self._others[shard][1]
        self._others[shard] = steps, part
        return True


def closed(start: Floats, parts: list[Floats]) -> Floats:
    """The parameters at the barrier: summed in double precision and in the order of the shards."""
    total = start.astype(np.float64)
    for part in parts:
        total += part
    return total.astype(np.float32)
