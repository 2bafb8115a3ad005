"""Canonical operators: a name as in ONNX, and the sizes of one item as text.

| operator                     | text                            | meaning                                           |
|------------------------------|---------------------------------|---------------------------------------------------|
| Conv, ConvTranspose          | 64x56x56>128x28x28 k3x3 s2x2 g1 | input > output, kernel, stride, groups; 1-D alike |
| Gemm                         | 128x768x3072                    | rows per item x in x out: a product with weights  |
| MatMul                       | 12x128x64x128                   | products per item x rows x inner x columns        |
| Attention                    | 12x128x128x64                   | heads x queries x keys x width                    |
| LSTM, GRU, RNN               | 64x512>512 l1 d1                | steps x inputs > hidden, layers, directions       |
| MaxPool, AveragePool, Resize | 64x112x112>64x56x56 k3x3 s2x2   | input > output; Resize has no kernel              |
| Gather                       | 128>30522x768                   | rows per item > the table                         |
| GlobalAveragePool, Reduce... | 64x7x7                          | the input                                         |
| others (Relu, Add, ...)      | 64x56x56                        | the output                                        |

FLOPs count a multiply-add as two. Bytes are those of float32: what one item reads and writes, and the weights once per
call.
"""

import math
from collections.abc import Sequence

Sizes = Sequence[int]

_PER_ELEMENT = {
    **dict.fromkeys(("Transpose", "Concat", "Resize", "Slice", "Pad", "Expand", "Cast", "Where", "DepthToSpace"), 0),
    **dict.fromkeys(("Relu", "Add", "Sub", "Mul", "Div", "Neg", "Abs", "Min", "Max", "Equal", "Greater", "Less"), 1),
    **dict.fromkeys(("Not", "And", "Or", "Floor", "Ceil", "Round", "Sign", "ArgMax", "TopK", "CumSum"), 1),
    **dict.fromkeys(("LeakyRelu", "PRelu", "Clip", "HardSigmoid", "BatchNormalization", "Sqrt", "Reciprocal"), 2),
    **dict.fromkeys(("HardSwish", "Pow", "Exp", "Log", "Sin", "Cos", "Softplus", "Elu", "Selu", "Sum", "Mean"), 4),
    **dict.fromkeys(("Sigmoid", "LRN"), 4),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Swish"), 5),
    **dict.fromkeys(("Tanh", "Erf"), 6),
    **dict.fromkeys(("LayerNormalization", "InstanceNormalization", "GroupNormalization", "Gelu", "Mish"), 8),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool", "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"), 1),
}
_SPECIAL = ("Conv", "ConvTranspose", "Gemm", "MatMul", "Attention", "LSTM", "GRU", "RNN", "MaxPool", "AveragePool")
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_TWO_INPUTS = ("Add", "Sub", "Mul", "Div")

KNOWN = frozenset({*_PER_ELEMENT, *_SPECIAL, "Gather"})
"""The operators whose FLOPs and bytes are known."""


def text(sizes: Sizes) -> str:
    """Sizes as text: 64x56x56; 1 where there are none."""
    return "x".join(str(size) for size in sizes) or "1"


def numbers(sizes: str) -> list[int]:
    """The opposite of `text`."""
    return [int(size) for size in sizes.split("x")]


def fields(shape: str) -> tuple[list[int], list[int], dict[str, list[int]]]:
    """(input, output, options by their letter) of a text such as `64x56x56>128x28x28 k3x3 s2x2 g1`."""
    sizes, *options = shape.split(" ")
    source, _, target = sizes.partition(">")
    return numbers(source), numbers(target or source), {option[0]: numbers(option[1:]) for option in options}


def work(name: str, shape: str) -> tuple[float, float]:
    """(FLOPs, bytes) of one call for one item."""
    source, target, options = fields(shape)
    inputs, outputs = math.prod(source), math.prod(target)
    if name in ("Conv", "ConvTranspose"):
        weights = source[0] * target[0] * math.prod(options["k"]) / options["g"][0]
        positions = outputs / target[0] if name == "Conv" else inputs / source[0]
        return 2.0 * weights * positions, 4.0 * (inputs + outputs + weights)
    if name == "Gemm":
        rows, inner, columns = source
        return 2.0 * rows * inner * columns, 4.0 * (rows * inner + rows * columns + inner * columns)
    if name == "MatMul":
        many, rows, inner, columns = source
        return 2.0 * many * rows * inner * columns, 4.0 * many * (rows * inner + inner * columns + rows * columns)
    if name == "Attention":
        heads, queries, keys, width = source
        return 4.0 * heads * queries * keys * width, 8.0 * heads * width * (queries + keys)
    if name in _GATES:
        return _recurrent_work(_GATES[name], source, target[0], options)
    if name == "Gather":
        return 0.0, 8.0 * source[0] * target[-1]
    each = math.prod(options["k"]) if name in ("MaxPool", "AveragePool") else _PER_ELEMENT.get(name, 1)
    reads = 2 * outputs if name in _TWO_INPUTS else inputs
    return float(each * outputs), 4.0 * (reads + outputs)


def weight_bytes(name: str, shape: str) -> float:
    """Of the bytes of `work`, those of weights, which a batch reads once; 0 for a text that is not of this grammar."""
    try:
        source, target, options = fields(shape)
        if name in ("Conv", "ConvTranspose"):
            return 4.0 * source[0] * target[0] * math.prod(options["k"]) / options["g"][0]
        if name == "Gemm":
            _, inner, columns = source
            return 4.0 * inner * columns
        if name in _GATES:
            return _recurrent_work(_GATES[name], [0, source[1]], target[0], options)[1]
    except (LookupError, ValueError):
        return 0.0
    return 0.0


def _recurrent_work(gates: int, source: Sizes, hidden: int, options: dict[str, list[int]]) -> tuple[float, float]:
    """One product with the input and one with the state, for every gate, layer, direction and step."""
    steps, width = source
    (layers,), (both,) = options["l"], options["d"]
    widths = [width] + [hidden * both] * (layers - 1)
    weights = sum(gates * hidden * (each + hidden) * both for each in widths)
    moved = steps * sum(each + hidden * both for each in widths)
    return 2.0 * steps * weights, 4.0 * (weights + moved)
