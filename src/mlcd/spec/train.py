"""A training job as the user wrote it, frozen. Parsed from YAML by mlcd.spec.parse; resolved by mlcd.jobs.train."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from mlcd.catalog import Accelerator
from mlcd.goal import Goal
from mlcd.problem import TrialPolicy
from mlcd.space.placed import matches
from mlcd.space.settings import Settings
from mlcd.spec.batches import LearningRate, Pricing, TargetSpec
from mlcd.spec.data import DataSpec
from mlcd.spec.infra import infras_of
from mlcd.spec.place import PlacedSpec
from mlcd.spec.real import Platform, ProgressRule
from mlcd.spec.spot import SpotSettings
from mlcd.transformer import Transformer
from mlcd.units import Usd


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCounts:
    """How many nodes may be chosen: one set for all types, or by glob with a default (first match wins)."""

    default: tuple[int, ...]
    by_glob: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def for_instance(self, name: str) -> tuple[int, ...]:
        """The allowed counts for the instance type `name`."""
        for glob, counts in self.by_glob:
            if matches(name, glob):
                return counts
        return self.default


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Where to run and on what. `instance_type` None means CLOUD-gpu and CLOUD-cpu, or all that another cloud offers.

    infra         a cloud; several are joined by commas, see `infras`
    use_spot      whether nodes are of the spot market: True, False, or "any" where that is chosen
    accelerators  only types with one of these; () for any type
    prices        USD per hour of one node, by type; they override the cloud's prices
    warm_workers  whether minicloud keeps processes with the platform loaded between trials
    region, zone, image_id  as in SkyPilot
    gpus          GPUs of a node to choose from, a share of one as a fraction; None: whole ones where there are some
    """

    infra: str = "sim/aws"
    instance_type: tuple[str, ...] | None = None
    accelerators: tuple[Accelerator, ...] = ()
    use_spot: bool | str = False
    prices: Mapping[str, Usd] = field(default_factory=dict)
    region: str = ""
    zone: str = ""
    image_id: str = ""
    warm_workers: bool = False
    gpus: tuple[float, ...] | None = None

    @property
    def infras(self) -> tuple[str, ...]:
        """The clouds and regions that the job may choose from; one, unless the job lists several."""
        return infras_of(self.infra)

    @property
    def only_spot(self) -> bool:
        """Whether every node is of the spot market."""
        return self.use_spot is True


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The work S = samples x epochs; the rest tells simulated clouds what is trained (or which table is replayed).

    epochs       None means 1; with a `target`, which ends the training, it is the upper limit
    transformer  the sizes of the trained model, where the job describes it
    """

    samples: float | None = None
    epochs: float | None = None
    model: str | None = None
    batch: int = 512
    topology: str = "ring"
    workload: str | None = None
    hours: float | None = None
    target: TargetSpec | None = None
    transformer: Transformer | None = None

    @property
    def all_samples(self) -> float | None:
        """The work in samples; None if the file does not state it."""
        if self.samples is None or (self.target is not None and self.epochs is None):
            return None
        return self.samples * (1.0 if self.epochs is None else self.epochs)


@dataclass(frozen=True, slots=True)
class TrialRules:
    """The job's own trial settings, as (field of TrialPolicy, value); the cloud's defaults apply to the rest."""

    given: tuple[tuple[str, float], ...] = ()

    def over(self, usual: TrialPolicy) -> TrialPolicy:
        """The cloud's default policy with the job's settings applied."""
        return replace(usual, **dict(self.given))  # type: ignore[arg-type]  # the parser names its fields


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    """How to search. None means: for `noise` the value that the cloud states, for the others the default there.

    work             what becomes of the work of trials: "thrown" away, "kept" as a part of the training, or thrown away
                     while the training runs "beside" them
    restart_seconds  expected time to move a training to other nodes
    spot             what is known of the interruptions of spot nodes
    """

    strategy: str = "auto"
    max_trials: int = 30
    parallel: int = 1
    assurance: float = 0.999999
    noise: float | None = None
    slowdown: float | None = None
    work: str | None = None
    restart_seconds: float | None = None
    spot: SpotSettings = field(default_factory=SpotSettings)
    trial: TrialRules = field(default_factory=TrialRules)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSpec(PlacedSpec):
    """A whole job file of `mlcd train`.

    `num_nodes` None means 1..50, or every count that was measured. `batch` lists the global batches that may be chosen;
    None means that the batch is fixed. `knobs` are settings of the script to choose from. A variable of `envs` that is
    None must be given before the job runs on nodes. `data` None means that bringing data to the nodes costs nothing.
    """

    name: str
    goal: Goal
    resources: Resources = field(default_factory=Resources)
    num_nodes: NodeCounts | None = None
    batch: tuple[int, ...] | None = None
    knobs: Settings = field(default_factory=Settings)
    learning_rate: LearningRate | None = None
    pricing: Pricing = field(default_factory=Pricing)
    job: Work = field(default_factory=Work)
    search: SearchSettings = field(default_factory=SearchSettings)
    run: str = ""
    setup: str = ""
    workdir: str = ""
    envs: Mapping[str, str | None] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    file_mounts: Mapping[str, str] = field(default_factory=dict)
    platform: Platform = field(default_factory=Platform)
    progress: ProgressRule = field(default_factory=ProgressRule)
    checkpoints: bool = False
    outputs: tuple[str, ...] = ()
    data: DataSpec | None = None
