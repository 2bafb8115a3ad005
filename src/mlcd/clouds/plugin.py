"""The interface of a plug-in's cloud: one method that turns a job into instance types and a `Cloud`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from mlcd.catalog import Instance
from mlcd.clouds.nodes import NodeEngine
from mlcd.clouds.provider import Cloud
from mlcd.problem import TrialPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudJob:
    """The training job, as a plug-in's cloud sees it.

    where     what follows the cloud's name in `resources.infra`: "eu/a" for `mycloud/eu/a`, "" for nothing
    seed      of everything random that is simulated
    folder    where the plug-in may keep files, in a folder of its own name; not created yet
    model     `job.model`, None where the job file has none
    samples   of the whole training; None where the job file does not state them
    run, setup, envs, workdir   what to run on the nodes, and the folder with the user's files (None: none)
    """

    name: str
    where: str = ""
    seed: int = 0
    folder: Path = field(default_factory=Path)
    model: str | None = None
    samples: float | None = None
    batch: int = 512
    use_spot: bool = False
    run: str = ""
    setup: str = ""
    envs: Mapping[str, str] = field(default_factory=dict)
    workdir: Path | None = None


@dataclass(frozen=True, kw_only=True)
class CloudOffer:
    """What a job can choose from, and the cloud that leases it.

    instances   the instance types, with their prices
    most_nodes  the most nodes of a type at once; types that are not in it have no limit
    charged     whether leases cost real money; then mlcd asks the user before it starts
    notes       what the user should know, one sentence each
    trial       the rules of a trial where the job file does not set them

    Raises ValueError where nothing is offered, or a type twice.
    """

    cloud: Cloud
    instances: Sequence[Instance]
    most_nodes: Mapping[str, int] = field(default_factory=dict)
    charged: bool = True
    notes: tuple[str, ...] = ()
    trial: TrialPolicy = field(default_factory=TrialPolicy)

    def __post_init__(self) -> None:
        names = [instance.name for instance in self.instances]
        if not names:
            raise ValueError("a cloud must offer at least one instance type")
        if len(set(names)) < len(names):
            raise ValueError(f"a cloud must offer each instance type once (got {', '.join(names)})")


class CloudPlugin(Protocol):
    """A cloud named in the entry-point group `mlcd.clouds`, or the object given as `mlcd.train(on=...)`."""

    def prepare(self, job: CloudJob) -> CloudOffer | NodeEngine:
        """What is offered for `job`. Starts nothing and spends nothing. Raises BadInput, ProviderError.

        A CloudOffer brings its own `Cloud`, which runs the job in its own way. A NodeEngine only starts nodes: mlcd
        then copies the user's files there, runs the job, watches its progress and fetches its checkpoints and outputs.
        `mlcd down` calls this with a job without a name, to find what earlier runs left running: return the same
        NodeEngine then.
        """
        ...
