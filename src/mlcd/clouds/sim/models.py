"""The jobs the simulator knows: what one training sample costs in arithmetic, memory and traffic.

Parameters are the published ones (AlexNet at CIFAR size 6.4M, ResNet-152 60.3M, Inception-v3 23.8M, BERT-large 340M).
FLOPs are 2 x multiply-adds, times 3 for forward and backward. Efficiencies are chosen so that single-node speeds lie
near those reported for TensorFlow 1.x around 2019; they are the simulator's calibration, not measurements.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from mlcd.errors import BadInput, nearest

TOPOLOGIES = ("ring", "ps", "ps-single")
"""ring all-reduce; parameter servers sharded over all nodes; one parameter server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimModel:
    """One network and its input.

    gflop_per_sample      forward and backward together
    activation_mib        kept per sample until the backward pass
    state_bytes           per parameter: weights, gradients, optimiser
    gradient_bytes        per parameter on the wire; `tensor_gradient_bytes` from accelerators with 16-bit units
    cpu_efficiency        share of a core's vector peak
    fp32_efficiency       share of an accelerator's peak where that is fp32 (K80, M60)
    tensor_efficiency     share of an accelerator's 16-bit peak
    kernels               launches per step: a lower bound on the time of a small batch
    host_ms               vCPU time to read and prepare a sample
    half_batch            per-device batch at which an accelerator reaches half of its efficiency
    sharded               states are split over all devices as in ZeRO, and gathered when needed
    """

    name: str
    parameters: float
    gflop_per_sample: float
    activation_mib: float
    state_bytes: float = 16.0
    gradient_bytes: float = 4.0
    tensor_gradient_bytes: float = 4.0
    cpu_efficiency: float
    fp32_efficiency: float
    tensor_efficiency: float
    kernels: int
    host_ms: float
    half_batch: float
    sharded: bool = False


_ALL = (
    SimModel(
        name="alexnet",
        parameters=6.4e6,
        gflop_per_sample=0.9,
        activation_mib=1.5,
        cpu_efficiency=0.21,
        fp32_efficiency=0.25,
        tensor_efficiency=0.02,
        kernels=120,
        host_ms=2.0,
        half_batch=24,
    ),
    SimModel(
        name="resnet152",
        parameters=60.3e6,
        gflop_per_sample=22.0,
        activation_mib=10.0,
        cpu_efficiency=0.375,
        fp32_efficiency=0.19,
        tensor_efficiency=0.026,
        kernels=4500,
        host_ms=3.0,
        half_batch=10,
    ),
    SimModel(
        name="inception-v3",
        parameters=23.8e6,
        gflop_per_sample=34.0,
        activation_mib=70.0,
        cpu_efficiency=0.34,
        fp32_efficiency=0.20,
        tensor_efficiency=0.045,
        kernels=3000,
        host_ms=14.0,
        half_batch=8,
    ),
    SimModel(
        name="char-rnn",
        parameters=12.0e6,
        gflop_per_sample=7.2,
        activation_mib=6.0,
        cpu_efficiency=0.28,
        fp32_efficiency=0.075,
        tensor_efficiency=0.006,
        kernels=14000,
        host_ms=0.5,
        half_batch=32,
    ),
    SimModel(
        name="bert-large",
        parameters=340e6,
        gflop_per_sample=261.0,
        activation_mib=150.0,
        tensor_gradient_bytes=2.0,
        cpu_efficiency=0.38,
        fp32_efficiency=0.30,
        tensor_efficiency=0.16,
        kernels=6000,
        host_ms=1.0,
        half_batch=4,
    ),
    SimModel(
        name="zero-8b",
        parameters=8e9,
        gflop_per_sample=49_000.0,
        activation_mib=380.0,
        tensor_gradient_bytes=2.0,
        cpu_efficiency=0.35,
        fp32_efficiency=0.30,
        tensor_efficiency=0.33,
        kernels=20_000,
        host_ms=1.0,
        half_batch=1,
        sharded=True,
    ),
    SimModel(
        name="zero-20b",
        parameters=20e9,
        gflop_per_sample=123_000.0,
        activation_mib=560.0,
        tensor_gradient_bytes=2.0,
        cpu_efficiency=0.35,
        fp32_efficiency=0.30,
        tensor_efficiency=0.35,
        kernels=28_000,
        host_ms=1.0,
        half_batch=1,
        sharded=True,
    ),
)

MODELS: Mapping[str, SimModel] = {model.name: model for model in _ALL}
ALIASES: Mapping[str, str] = {
    "resnet": "resnet152",
    "resnet-152": "resnet152",
    "inception": "inception-v3",
    "inception_v3": "inception-v3",
    "charrnn": "char-rnn",
    "bert": "bert-large",
}


def nearest_model(name: str) -> str:
    """The model of MODELS whose name or alias is most like `name`, or ""."""
    near = nearest(name.lower(), [*MODELS, *ALIASES])
    return ALIASES.get(near, near)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimJob:
    """The training: a model of MODELS (or an alias), the global batch size (fixed: strong scaling) and the topology."""

    model: str
    batch: int = 512
    topology: str = "ring"

    def __post_init__(self) -> None:
        if self.model not in MODELS and self.model not in ALIASES:
            near = nearest_model(self.model)
            hint = f"; did you mean {near!r}?" if near else ""
            raise BadInput(
                f"job.model: unknown to the simulator (got {self.model!r}); allowed: {', '.join(MODELS)}{hint}"
            )
        if self.topology not in TOPOLOGIES:
            near = nearest(self.topology, TOPOLOGIES)
            hint = f"; did you mean {near!r}?" if near else ""
            raise BadInput(f"job.topology: unknown (got {self.topology!r}); allowed: {', '.join(TOPOLOGIES)}{hint}")
        if self.batch < 1:
            raise BadInput(f"job.batch: must be at least 1 (got {self.batch})")

    @property
    def spec(self) -> SimModel:
        """The model's figures."""
        return MODELS[ALIASES.get(self.model, self.model)]
