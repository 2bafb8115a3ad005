"""What a run is called, and what made it: enough to run it again."""

from dataclasses import dataclass

from mlcd.known.resemblance import Resemblance
from mlcd.run.kind import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingFacts:
    """What of a serving job is not part of its problem.

    model           the file that is served
    scenario        how requests arrive
    headroom        the share of the measured rate that is kept free
    verify_seconds  how long the choice is loaded before it is recommended
    resemblance     what was known of the model beforehand; None where nothing is known of other models
    notes           what was left out of the space, and why
    """

    model: str
    scenario: str
    headroom: float
    verify_seconds: float
    resemblance: Resemblance | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionFacts:
    """What of a serverless job is not part of its problem.

    model    that is trained
    sync     how functions keep in step
    earlier  the runs that the scheduler knew when this one began
    """

    model: str
    sync: str
    earlier: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The question's circumstances, written once when the run begins.

    created       ISO 8601, UTC
    cloud         as in `resources.infra`
    simulated     whether time and money there are not real
    parallel      trials side by side at most
    version       of mlcd
    catalog_date  of the prices
    serving       of a serving job; `functions` of a serverless one
    """

    run_id: str
    created: str
    kind: Kind
    cloud: str
    simulated: bool
    strategy: str
    seed: int
    version: str
    catalog_date: str
    parallel: int = 1
    serving: ServingFacts | None = None
    functions: FunctionFacts | None = None
