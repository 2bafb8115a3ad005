"""All settings of HeterBO, each with its source."""

from dataclasses import dataclass
from typing import Literal

from mlcd.search.memory_rules import MemoryRules
from mlcd.untrusted import whole_number


@dataclass(frozen=True, slots=True, kw_only=True)
class HeterBOSettings:
    """Options of `heterbo:option=value`. "Paper" is Yi et al., IPDPS 2020; docs/ablations.md shows the effect of each.

    Raises ValueError for a `start` that is not `all`, `auto` or a whole number from 1.
    """

    start: str = "auto"
    """How many types are tried on their fewest nodes first: a number, `all`, or `auto` (mlcd.search.first_looks).
    Paper III-C: `all`. `auto` was chosen on the seen tables and the simulator (docs/strategies/heterbo.md)."""

    acquisition: Literal["auto", "net", "pandora", "tei"] = "auto"
    """How a trial's gain is computed. `tei`: paper equations 4 to 8, as the reading that works best of those that the
    text allows (docs/paper.md). `pandora`: Weitzman 1979; Xie et al. 2024. `auto` was chosen on the seen tables and
    the simulator."""

    price: bool = True
    """Whether the price of a trial counts. Paper III-B: heterogeneous profiling cost."""

    prune: bool = True
    """Whether the speed of a type is assumed to rise and then fall with the nodes. Paper III-C: concave prior."""

    gate: bool = True
    """Whether the optimistic bound must pay for the trial. Paper III-C: confidence interval."""

    reserve: bool = True
    """Whether the cost of training on the incumbent is reserved. Paper III-C; `off` on simulated clouds only."""

    limit_share: Literal["on", "off", "always"] = "on"
    """Whether a share of the limits costs a trial as much as that share of the run. `on`: for a single type under
    `minimize: time`, only after a faster trial did not fit. `always`: from the start; no worse on single types, except
    in the paper's Fig. 11. Chosen on single types of the simulator's jobs, 80 cases, and checked on 60 others
    (docs/strategies/heterbo.md)."""

    single_type_pandora: bool = True
    """Whether `auto` uses `pandora` also under limits, for a single type under `minimize: time`. Chosen on the
    simulator (commit b7713e9)."""

    deadline_first_try: bool = True
    """Whether the first tries for `minimize: cost` may be cheaper and less certain than `unfinished_runs` asks for.
    Chosen on Fig. 10's job, single types of the simulator's jobs and the seen tables (docs/strategies/heterbo.md)."""

    unfinished_runs: float = 3.0
    """While nothing measured fits, finding nothing costs this many times the run that most probably fits. The same
    factor applies to an unfinished run in `mlcd bench train`."""

    first_try_runs: float = 1.75
    """The same for the first try under `deadline_first_try`; `unfinished_runs` decides whether to continue at all.
    Chosen as above; with 1.5, 2 of 100 runs of Fig. 10 find nothing; with 2.5, 33 nodes are chosen instead of 27."""

    first_try_growth: float = 1.5
    """`first_try_runs` is multiplied by this for every trial beyond the first looks: less remains for another miss.
    Chosen as above. It stays although the seen tables are 1 to 2% better without it: one held-out workload is 21% worse
    then (docs/ablations.md), and serving under 30 ms (`bench serve --sim`) drops from 0.94 to 0.79 after 6 trials."""

    tail_degrees: float = 2.0
    """Degrees of freedom of Student's t in the probability that a configuration fits: a model of few trials is wrong
    more often than it expects. Chosen on the seen tables and the simulator."""

    round_target: bool = True
    """Whether the second trial of a round must beat the expected result of the first. Chosen on the seen tables,
    8 trials at once (commit c2edc8f)."""

    bound_sigmas: float = 1.645
    """One-sided 95%, as in paper III-C: how optimistic the bound of `gate` is, and how certain a decline must be
    for `prune` (the paper prunes on any decline)."""

    prune_gap_nodes: int = 4
    """`prune` compares deployments of one type that are at most this many nodes apart, or `prune_gap_share` of the
    larger: the paper's "nearby". On average it earns nothing (docs/ablations.md), but without it simulated BERT jobs
    end at 2.2 times the best instead of 1.7 (`mlcd bench train --sim --goal cheapest`)."""

    prune_gap_share: float = 0.25
    """See `prune_gap_nodes`."""

    memory: MemoryRules = "named"
    """What running out of memory says about other configurations (mlcd.search.memory_rules). Not in the paper."""

    def __post_init__(self) -> None:
        if self.start not in ("auto", "all") and not whole_number(self.start):
            raise ValueError(f"start must be all, auto or a whole number from 1 (got {self.start[:80]!r})")
