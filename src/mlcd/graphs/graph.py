"""What is known of a model before it runs."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """All calls of one operator with one shape.

    name          canonical: ONNX's name for it, whatever format the model was read from
    shape         its sizes for one item, as text (mlcd.graphs.grammar); equal texts are equal work
    count         how often it is called in one run of the model
    flops, bytes  of all these calls, for one item; a multiply-add is two FLOPs, a number is four bytes
    known         whether the grammar has the name; of other operators only the output's size is known
    nodes         names of the nodes in the file that it represents; empty for a PyTorch module
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
            raise ValueError("an operator must have count >= 1 and no negative work")


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphInput:
    """One input of a model.

    datatype  as the Open Inference Protocol names it: FP32, INT64, ...
    sizes     of one item, without the batch axis
    high      whole numbers must be below this, because they index a table; None where unknown
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
        """FLOPs of one item."""
        return sum(operator.flops for operator in self.operators)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Names of operators that are not in the grammar."""
        return tuple(sorted({operator.name for operator in self.operators if not operator.known}))
