"""Paleo (Qi et al., ICLR 2017), as the paper compares with it: an analytical model, and no trial at all."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from mlcd.errors import BadInput
from mlcd.problem import Problem
from mlcd.trial.plan import Plan, Remaining, best
from mlcd.trial.trial import History, Suggestion

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Paleo:
    """Chooses from data sheets and trains there without a trial, so it can break a limit.

    A step is its FLOPs at a share `compute` of the peak, then the exchange of the gradients at a share `network` of the
    bandwidth, over `topology`. Paleo has tree, butterfly and one-to-all; ring is ours, as most jobs here exchange so.
    """

    name: ClassVar[str] = "paleo"
    seed: int = 0
    compute: float = 0.35
    network: float = 0.6
    topology: Literal["ring", "butterfly", "tree", "one-to-all"] = "ring"

    def __post_init__(self) -> None:
        if not (0 < self.compute <= 1 and 0 < self.network <= 1):
            raise ValueError("compute and network must be above 0 and at most 1")

    @property
    def guarded(self) -> bool:
        """False: it measures nothing."""
        return False

    def suggest(self, problem: Problem, history: History, remaining: Remaining, count: int) -> tuple[Suggestion, ...]:  # noqa: ARG002
        """No trials."""
        return ()

    def ending(self, problem: Problem, history: History, remaining: Remaining) -> str:  # noqa: ARG002
        """It makes no trials."""
        return "paleo makes no trials: it predicts speed from data sheets"

    def recommend(self, problem: Problem, history: History, remaining: Remaining) -> Plan | None:  # noqa: ARG002
        """The best deployment by the model whose training fits the limits."""
        seconds = problem.work_samples / self.samples_per_second(problem)
        plans = (
            Plan(config=c, seconds=float(s), usd=usd, worst_seconds=float(s), worst_usd=usd, moved_usd=moved)
            for c, s in zip(problem.space, seconds, strict=True)
            for moved in (problem.move_to(c).usd,)
            for usd in (problem.price(c).for_seconds(s) + moved,)
        )
        return best(problem, (plan for plan in plans if remaining.fits(plan)))

    def samples_per_second(self, problem: Problem) -> Floats:
        """(N,) batch / (compute + exchange). Raises BadInput if the network is unknown."""
        if problem.blueprint is None:
            raise BadInput("search.strategy: paleo needs to know the trained network: set job.model, on a sim/CLOUD")
        blueprint, nodes = problem.blueprint, problem.nodes
        peaks = np.array([blueprint.machines[c.instance] for c in problem.space])
        compute = blueprint.flops_per_sample * blueprint.batch / nodes / (peaks[:, 0] * self.compute)
        exchange = self._transfers(nodes) * blueprint.parameter_bytes / (peaks[:, 1] * self.network)
        return np.asarray(blueprint.batch / (compute + exchange))

    def _transfers(self, nodes: NDArray[np.signedinteger]) -> Floats:
        """(N,) how many times all gradients pass one link, one after the other, until every node has their sum."""
        if self.topology == "ring":
            return np.asarray(2 * (nodes - 1) / nodes)
        if self.topology == "one-to-all":
            return np.asarray(2 * (nodes - 1))
        return np.asarray((2 if self.topology == "tree" else 1) * np.ceil(np.log2(nodes)))
