"""What is known of a model before it runs."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """All calls of one operator with one shape.

    name          canonical: ONNX's name for it, whichever way the model came
    shape         its sizes for one item, as text (mlcd.graphs.grammar); equal texts are equal work
    count         how often it is called in one run of the model
    flops, bytes  of all these calls, for one item; a multiply-add is two FLOPs, a number is four bytes
    known         whether the name is one of the grammar's; of others only the output's size is known
    nodes         names of the nodes in the file that it stands for; empty where the model came from PyTorch
    """

    name: str
    shape: str
    count: int
    flops: float
    bytes: float
    known: bool = True
    nodes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.count < 1 or min(self.flops, self.bytes) < 0:
            raise ValueError("an operator is called at least once, and does no negative work")


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphInput:
    """One input of a model.

    datatype  as the Open Inference Protocol names it: FP32, INT64, ...
    sizes     of one item, without the batch axis
    high      whole numbers must be below this, since they choose a row of a table; None where nothing tells
    """

    name: str
    datatype: str
    sizes: tuple[int, ...]
    high: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A model's operators, those with the most work first.

    parameters_bytes  of its weights
    fixed_batch       the only batch it takes; None where the batch axis is dynamic
    """

    name: str
    inputs: tuple[GraphInput, ...]
    operators: tuple[Operator, ...]
    parameters_bytes: float
    fixed_batch: int | None = None

    @property
    def flops(self) -> float:
        """Of one item."""
        return sum(operator.flops for operator in self.operators)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Names of operators that the grammar does not have."""
        return tuple(sorted({operator.name for operator in self.operators if not operator.known}))
