"""A serving job as the user wrote it, frozen. Parsed from YAML by mlcd.spec.serving; resolved by mlcd.jobs.serve."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from mlcd.catalog import Accelerator
from mlcd.goal import Goal
from mlcd.loadgen.plan import Scenario
from mlcd.server.tensors import TensorSpec
from mlcd.space.settings import Settings
from mlcd.spec.place import PlacedSpec
from mlcd.spec.train import TrialRules
from mlcd.units import Usd


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingKnobs:
    """The allowed values of each knob; None means everything that the machine offers.

    gpu_share  percent of a GPU
    compile    whether PyTorch compiles the model: `on`, `off`
    """

    batch: tuple[int, ...] | None = None
    threads: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    precision: tuple[str, ...] | None = None
    gpu_share: tuple[int, ...] | None = None
    compile: tuple[str, ...] | None = None


class Api(StrEnum):
    """How requests of a server that is a command are made.

    openai  OpenAI's API, with streamed answers: language models
    oip     the Open Inference Protocol (KServe, Triton): tensors, by the job's `inputs`
    http    `body` as JSON to `path`; every answer with status 200 is good
    """

    OPENAI = "openai"
    OIP = "oip"
    HTTP = "http"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCommand:
    """A server that is started by a command, which finds $MODEL, $HOST, $PORT and the knobs in its environment.

    run          for the shell
    api          how requests are made
    ready        the path that answers 200 when the server is ready
    path         where requests are sent
    served_name  the model's name in requests; "": what `model` says
    body         further fields of every request; of `http`, the whole request
    image        a container image in which the command runs, for `--write`; "": none is known
    nodes        over which one server is spread: the command runs on each, and the first answers
    """

    run: str
    api: Api = Api.OPENAI
    ready: str = "/health"
    path: str = "/v1/chat/completions"
    served_name: str = ""
    body: Mapping[str, object] = field(default_factory=dict)
    image: str = ""
    nodes: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Lengths of prompts or answers in tokens: log-normal with this mean and deviation, or as a file lists them.

    file  a CSV file, relative to the job file's folder; "": none
    """

    mean: int
    std: float = 0.0
    file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSettings:
    """How the server is loaded.

    scenario        None: `server` where there is a latency limit, else `offline`
    headroom        the share of the measured rate that is kept free; the verification offers the rest
    verify_seconds  how long the choice is load-tested before it is recommended; 0 skips the verification
    from_node       whether one node more of each lease sends the load; else this machine does
    profile         a CSV file with the requests a second of every hour; "": the rate does not change

    For a language model: the mean lengths of prompts and answers in tokens, how they vary (None: not at all), how many
    tokens at the start of all prompts are the same, and the most requests in flight that are tried.

    trace    a CSV file with arrivals and lengths, relative to the job file's folder; "": none
    is_open  whether load tests offer rates at which requests arrive at random, instead of so many in flight
    """

    scenario: Scenario | None = None
    rate: float | None = None
    headroom: float = 0.3
    verify_seconds: float = 60.0
    from_node: bool = False
    input_tokens: int = 128
    output_tokens: int = 64
    shared_tokens: int = 0
    concurrency: int = 64
    profile: str = ""
    trace: str = ""
    input_lengths: Lengths | None = None
    output_lengths: Lengths | None = None
    is_open: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingSearch:
    """How to search. `noise` None means the value that the machine states.

    every_replica  whether a load test is made of each number of replicas; else of one node, and several count as
                   so many times its rate until the verification measures them
    """

    strategy: str = "falcon-transfer"
    max_trials: int = 6
    noise: float | None = None
    trial: TrialRules = field(default_factory=TrialRules)
    every_replica: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingResources:
    """Where to serve. `prices` are USD per hour by type (`local.2`); they override the nominal price.

    On nodes, which are leased:

    instance_type  names and globs of types; None: all that are offered
    accelerators   only types that have one of these
    replicas       how many servers there may be, each on a node of its own
    image_id       that rented nodes run, such as docker:vllm/vllm-openai:latest; "": what SkyPilot uses
    """

    infra: str = "local"
    prices: Mapping[str, Usd] = field(default_factory=dict)
    instance_type: tuple[str, ...] | None = None
    accelerators: tuple[Accelerator, ...] = ()
    replicas: tuple[int, ...] = (1,)
    image_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSpec(PlacedSpec):
    """A whole job file of `mlcd serve`.

    model    the file of ONNX, torch.export or TorchScript, relative to the job file's folder; for a server as a
             command, what it finds in $MODEL
    server   a server that is started by a command; None: mlcd's own
    inputs   of a TorchScript file, which does not tell them, and of a server that is a command with `api: oip`
    declared_knobs  the knobs of such a server: the variables of its command
    sizes    sizes of the model's open axes other than the batch, by name

    For a command on rented nodes, which have no files of this machine:

    workdir      the folder that is copied there, in which the command runs; "": an empty one
    setup        for the shell of each node, before the command
    secrets      variables whose values come from the environment and are never written to disk
    file_mounts  path on the nodes -> path on this machine, or bucket
    """

    name: str
    goal: Goal
    model: str = ""
    server: ServerCommand | None = None
    declared_knobs: Settings = field(default_factory=Settings)
    resources: ServingResources = field(default_factory=ServingResources)
    knobs: ServingKnobs = field(default_factory=ServingKnobs)
    sizes: Mapping[str, int] = field(default_factory=dict)
    inputs: tuple[TensorSpec, ...] = ()
    workdir: str = ""
    setup: str = ""
    secrets: tuple[str, ...] = ()
    file_mounts: Mapping[str, str] = field(default_factory=dict)
    load: LoadSettings = field(default_factory=LoadSettings)
    search: ServingSearch = field(default_factory=ServingSearch)

    @property
    def scenario(self) -> Scenario:
        """How requests arrive."""
        return self.load.scenario or (Scenario.SERVER if self.goal.slo else Scenario.OFFLINE)
