"""What a run did on spot nodes, where spot or on-demand is chosen."""

from dataclasses import dataclass

from mlcd.units import Usd


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotUse:
    """Interruptions, what they took, and what the same steps would have cost on demand.

    interruptions     of trials and trainings
    lost_seconds      time that the interrupted steps were charged for and that no checkpoint kept; lost_usd: its money
    spot_usd          paid for spot nodes
    on_demand_usd     what the run would have cost with every node on demand, without what interruptions took
    on_demand_seconds how long it would have taken
    fallbacks         how often the training moved from spot nodes to on-demand ones
    """

    interruptions: int
    lost_seconds: float
    lost_usd: Usd
    spot_usd: Usd
    on_demand_usd: Usd
    on_demand_seconds: float
    fallbacks: int
