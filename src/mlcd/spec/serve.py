"""A serving job as the user wrote it, frozen. Parsed from YAML by mlcd.spec.serving; resolved by mlcd.jobs.serve."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mlcd.goal import Goal
from mlcd.loadgen.plan import Scenario
from mlcd.spec.place import PlacedSpec
from mlcd.spec.train import TrialRules
from mlcd.units import Usd


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingKnobs:
    """The allowed values of each knob; None means everything that the machine offers."""

    batch: tuple[int, ...] | None = None
    threads: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    precision: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSettings:
    """How the server is loaded.

    scenario        None: `server` where there is a latency limit, else `offline`
    headroom        the share of the measured rate that is kept free; the verification offers the rest
    verify_seconds  how long the choice is load-tested before it is recommended; 0 skips the verification
    """

    scenario: Scenario | None = None
    rate: float | None = None
    headroom: float = 0.3
    verify_seconds: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingSearch:
    """How to search. `noise` None means the value that the machine states."""

    strategy: str = "falcon-transfer"
    max_trials: int = 6
    noise: float | None = None
    trial: TrialRules = field(default_factory=TrialRules)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingResources:
    """Where to serve. `prices` are USD per hour by type (`local.2`); they override the nominal price."""

    infra: str = "local"
    prices: Mapping[str, Usd] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSpec(PlacedSpec):
    """A whole job file of `mlcd serve`.

    model    the ONNX file, relative to the job file's folder
    sizes    sizes of the model's open axes other than the batch, by name
    """

    name: str
    model: str
    goal: Goal
    resources: ServingResources = field(default_factory=ServingResources)
    knobs: ServingKnobs = field(default_factory=ServingKnobs)
    sizes: Mapping[str, int] = field(default_factory=dict)
    load: LoadSettings = field(default_factory=LoadSettings)
    search: ServingSearch = field(default_factory=ServingSearch)

    @property
    def scenario(self) -> Scenario:
        """How requests arrive."""
        return self.load.scenario or (Scenario.SERVER if self.goal.slo else Scenario.OFFLINE)
