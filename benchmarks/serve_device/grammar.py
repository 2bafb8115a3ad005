"""From PyTorch's calls to canonical operators: a name as in ONNX, and the sizes of one item as text.

| operator                      | text                            | meaning                                           |
| ----------------------------- | ------------------------------- | ------------------------------------------------- |
| Conv, ConvTranspose           | 64x56x56>128x28x28 k3x3 s2x2 g1 | input > output, kernel, stride, groups; 1-D alike |
| Gemm                          | 128x768x3072                    | rows per item x in x out: a product with weights  |
| MatMul                        | 12x128x64x128                   | products per item x rows x inner x columns        |
| Attention                     | 12x128x128x64                   | heads x queries x keys x width                    |
| LSTM, GRU                     | 64x512>512 l2 d1                | steps x inputs > hidden, layers, directions       |
| MaxPool, AveragePool, Resize  | 64x112x112>64x56x56 k3x3 s2x2   | input > output; Resize has no kernel              |
| Gather                        | 128>30522x768                   | rows per item > the table                         |
| others, as Relu, Add, Softmax | 64x56x56                        | the output                                        |

FLOPs count a multiply-add as two. Bytes are those of float32: what one item reads and writes, and the weights once
per call.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

Sizes = Sequence[int]


def text(sizes: Sizes) -> str:
    """Sizes as text: 64x56x56."""
    return "x".join(str(size) for size in sizes) or "1"


def item(tensor: Tensor, batch: int) -> tuple[int, ...]:
    """The sizes for one item: the leading size is the batch, or a multiple of it, or the same for every item."""
    first, *rest = tensor.shape or (1,)
    if first == batch:
        return tuple(rest) or (1,)
    return (first // batch if first % batch == 0 else first, *rest)


class Call:
    """One call of PyTorch's dispatcher: its arguments by the schema's names, and its result."""

    def __init__(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any, batch: int) -> None:
        names = [argument.name for argument in function._schema.arguments]
        self.given = dict(zip(names, args, strict=False)) | dict(kwargs)
        self.out: Tensor = out[0] if isinstance(out, (tuple, list)) else out
        self.batch = batch

    def __getitem__(self, name: str) -> Any:
        return self.given.get(name)

    def first(self) -> Tensor:
        """The first tensor among the arguments, or the first of the first list."""
        for value in self.given.values():
            if isinstance(value, Tensor):
                return value
            if isinstance(value, (tuple, list)) and value and isinstance(value[0], Tensor):
                return value[0]
        return self.out


def spread(values: Sequence[int] | int | None, count: int) -> list[int]:
    """One number per axis."""
    if values is None or values == []:
        return [1] * count
    return [values] * count if isinstance(values, int) else [*values] * (count if len(values) == 1 else 1)


def convolution(call: Call) -> tuple[str, str]:
    weight, source = call["weight"], item(call["input"], call.batch)
    kernel, stride = list(weight.shape[2:]), spread(call["stride"], weight.dim() - 2)
    name = "ConvTranspose" if call["transposed"] else "Conv"
    shape = f"{text(source)}>{text(item(call.out, call.batch))} k{text(kernel)} s{text(stride)} g{call['groups']}"
    return name, shape


def pool(name: str) -> Callable[[Call], tuple[str, str]]:
    def rule(call: Call) -> tuple[str, str]:
        source = call["self"]
        kernel = spread(call["kernel_size"], source.dim() - 2)
        stride = spread(call["stride"] or kernel, source.dim() - 2)
        sizes = f"{text(item(source, call.batch))}>{text(item(call.out, call.batch))}"
        return name, f"{sizes} k{text(kernel)} s{text(stride)}"

    return rule


def product(call: Call) -> tuple[str, str]:
    """addmm, mm, linear: rows x weights."""
    remaining = (
        call["mat1"] if call["mat1"] is not None else call["input"] if call["input"] is not None else call["self"]
    )
    inner, columns = remaining.shape[-1], call.out.shape[-1]
    rows = max(1, remaining.numel() // inner // call.batch)
    return "Gemm", text((rows, inner, columns))


def batched(call: Call) -> tuple[str, str]:
    remaining, right = call["self"], call["mat2"]
    many = max(1, remaining.shape[0] // call.batch)
    return "MatMul", text((many, remaining.shape[1], remaining.shape[2], right.shape[2]))


def attention(call: Call) -> tuple[str, str]:
    query, key = call["query"], call["key"]
    return "Attention", text((query.shape[1], query.shape[2], key.shape[2], query.shape[3]))


def recurrent(call: Call) -> tuple[str, str]:
    source = call["input"]
    steps = source.shape[1] if call["batch_first"] else source.shape[0]
    hidden, layers, both = call["hidden_size"], call["num_layers"], 2 if call["bidirectional"] else 1
    name = {2: "LSTM", 3: "GRU"}.get(call["mode"], "RNN")
    return name, f"{steps}x{source.shape[-1]}>{hidden} l{layers} d{both}"


def gather(call: Call) -> tuple[str, str]:
    table, ids = call["weight"], call["indices"]
    return "Gather", f"{max(1, ids.numel() // call.batch)}>{text(table.shape)}"


def resize(call: Call) -> tuple[str, str]:
    return "Resize", f"{text(item(call['self'], call.batch))}>{text(item(call.out, call.batch))}"


def mean(call: Call) -> tuple[str, str]:
    source = call["self"]
    name = "GlobalAveragePool" if source.dim() == 4 and call.out.shape[2:].numel() == 1 else "ReduceMean"
    return name, text(item(source, call.batch))


def plain(name: str) -> Callable[[Call], tuple[str, str]]:
    def rule(call: Call) -> tuple[str, str]:
        return name, text(item(call.out, call.batch))

    return rule


RULES: dict[str, Callable[[Call], tuple[str, str]]] = {
    "convolution": convolution,
    "_convolution": convolution,
    "cudnn_convolution": convolution,
    "max_pool2d_with_indices": pool("MaxPool"),
    "avg_pool2d": pool("AveragePool"),
    "_adaptive_avg_pool2d": mean,
    "mean": mean,
    "addmm": product,
    "mm": product,
    "linear": product,
    "bmm": batched,
    "_cudnn_rnn": recurrent,
    "embedding": gather,
    "upsample_nearest2d": resize,
    "upsample_bilinear2d": resize,
    **{
        f"_scaled_dot_product_{kind}": attention
        for kind in ("flash_attention", "efficient_attention", "cudnn_attention", "flash_attention_for_cpu")
    },
    **{
        aten: plain(name)
        for name, atens in {
            "BatchNormalization": (
                "cudnn_batch_norm",
                "native_batch_norm",
                "_native_batch_norm_legit_no_training",
                "batch_norm",
            ),
            "LayerNormalization": ("native_layer_norm",),
            "Relu": ("relu", "relu_"),
            "LeakyRelu": ("leaky_relu", "leaky_relu_"),
            "Clip": ("hardtanh", "hardtanh_", "clamp", "clamp_"),
            "HardSwish": ("hardswish", "hardswish_"),
            "HardSigmoid": ("hardsigmoid", "hardsigmoid_"),
            "Swish": ("silu", "silu_"),
            "Gelu": ("gelu",),
            "Sigmoid": ("sigmoid", "sigmoid_"),
            "Tanh": ("tanh", "tanh_"),
            "Softmax": ("_softmax",),
            "Add": ("add", "add_"),
            "Sub": ("sub", "sub_"),
            "Mul": ("mul", "mul_"),
            "Div": ("div", "div_"),
            "Concat": ("cat",),
            "Transpose": ("clone", "copy_", "_to_copy", "contiguous"),
        }.items()
        for aten in atens
    },
}


def canonical(call: Call, aten: str) -> tuple[str, str]:
    """(operator, text) of a call; an unknown one keeps PyTorch's name, in ONNX's spelling."""
    rule = RULES.get(aten)
    if rule is not None:
        return rule(call)
    name = "".join(part.capitalize() for part in aten.strip("_").split("_"))
    return name, text(item(call.out, call.batch)) if isinstance(call.out, Tensor) else "1"


def numbers(sizes: str) -> list[int]:
    """The sizes in a text: 64x56x56 to [64, 56, 56]."""
    return [int(size) for size in sizes.split("x")]


def fields(shape: str) -> tuple[list[int], list[int], dict[str, list[int]]]:
    """(input, output, options by letter) of a text such as `64x56x56>128x28x28 k3x3 s2x2 g1`."""
    sizes, *options = shape.split(" ")
    source, _, target = sizes.partition(">")
    return numbers(source), numbers(target or source), {option[0]: numbers(option[1:]) for option in options}


def work(operator: str, shape: str) -> tuple[float, float]:
    """(FLOPs, bytes) of one call for one item."""
    source, target, options = fields(shape)
    inputs, outputs = math.prod(source), math.prod(target)
    if operator in ("Conv", "ConvTranspose"):
        taps = math.prod(options["k"]) / options["g"][0]
        moved = source[0] * target[0] * taps
        positions = outputs / target[0] if operator == "Conv" else inputs / source[0]
        return 2.0 * moved * positions, 4.0 * (inputs + outputs + moved)
    if operator == "Gemm":
        rows, inner, columns = source
        return 2.0 * rows * inner * columns, 4.0 * (rows * inner + rows * columns + inner * columns)
    if operator == "MatMul":
        many, rows, inner, columns = source
        return 2.0 * many * rows * inner * columns, 4.0 * many * (rows * inner + inner * columns + rows * columns)
    if operator == "Attention":
        heads, queries, keys, width = source
        return 4.0 * heads * queries * keys * width, 8.0 * heads * width * (queries + keys)
    if operator in ("LSTM", "GRU"):
        steps, width = source
        hidden, both, gates = target[0], options["d"][0], 4 if operator == "LSTM" else 3
        widths = [width] + [hidden * both] * (options["l"][0] - 1)
        weights = sum(gates * hidden * (w + hidden) * both for w in widths)
        moved = steps * sum(w + hidden * both for w in widths)
        return 2.0 * steps * weights, 4.0 * (weights + moved)
    if operator == "Gather":
        return 0.0, 8.0 * source[0] * target[-1]
    each = {"MaxPool": math.prod(options.get("k", [1])), "AveragePool": math.prod(options.get("k", [1]))}
    each |= {"BatchNormalization": 2, "LayerNormalization": 8, "Softmax": 5, "Gelu": 8, "Swish": 5, "Sigmoid": 4}
    each |= {"Transpose": 0, "Concat": 0, "Resize": 0, "Tanh": 6}
    reads = 2 * outputs if operator in ("Add", "Sub", "Mul", "Div") else inputs
    return float(each.get(operator, 1) * outputs), 4.0 * (reads + outputs)


def dtype_of(precision: str) -> torch.dtype:
    """The tensors' type; tf32 is float32 with less precise products."""
    return torch.float16 if precision == "fp16" else torch.float32
