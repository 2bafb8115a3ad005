"""A canonical operator that runs on its own: from its name and shape back to a call of PyTorch."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from serve_device.grammar import fields

Run = Callable[[], object]

ELEMENTWISE: dict[str, Callable[[Tensor], Tensor]] = {
    "Relu": F.relu,
    "LeakyRelu": lambda x: F.leaky_relu(x, 0.2),
    "Clip": F.relu6,
    "HardSwish": F.hardswish,
    "HardSigmoid": F.hardsigmoid,
    "Swish": F.silu,
    "Gelu": F.gelu,
    "Sigmoid": torch.sigmoid,
    "Tanh": torch.tanh,
    "Softmax": lambda x: torch.softmax(x, -1),
    "Add": lambda x: x + x,
    "Sub": lambda x: x - x,
    "Mul": lambda x: x * x,
    "Div": lambda x: x / x,
    "Transpose": lambda x: x.clone(),
    "GlobalAveragePool": lambda x: F.adaptive_avg_pool2d(x, 1),
    "ReduceMean": lambda x: x.mean(-1),
}
RUNNABLE = frozenset(ELEMENTWISE) | {
    *("Conv", "ConvTranspose", "Gemm", "MatMul", "Attention", "LSTM", "GRU", "Gather", "Resize", "Concat"),
    *("BatchNormalization", "LayerNormalization", "MaxPool", "AveragePool"),
}


class Bench:
    """One operator of one shape, with its weights on the device: `at(batch)` gives a call with fresh random input."""

    def __init__(
        self, operator: str, shape: str, dtype: torch.dtype, device: torch.device, channels_last: bool
    ) -> None:
        if operator not in RUNNABLE:
            raise ValueError(f"{operator} cannot be run by itself")
        self.operator = operator
        self.source, self.target, self.options = fields(shape)
        self.dtype, self.device, self.channels_last = dtype, device, channels_last
        self.module = self._module()
        if self.module is not None:
            self.module = self.module.to(device=device, dtype=dtype).eval()
            if channels_last:
                self.module = self.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def _module(self) -> nn.Module | None:
        source, target, options = self.source, self.target, self.options
        if self.operator in ("Conv", "ConvTranspose"):
            kind = f"{self.operator}{len(source) - 1}d"
            return getattr(nn, kind)(  # type: ignore[no-any-return]
                source[0], target[0], tuple(options["k"]), tuple(options["s"]), self._padding(), groups=options["g"][0]
            )
        if self.operator == "Gemm":
            return nn.Linear(source[1], source[2])
        if self.operator in ("LSTM", "GRU"):
            cell = nn.LSTM if self.operator == "LSTM" else nn.GRU
            layers, both = options["l"][0], options["d"][0] == 2
            return cell(source[1], target[0], layers, batch_first=True, bidirectional=both)
        if self.operator == "Gather":
            return nn.Embedding(target[0], target[1])
        if self.operator == "BatchNormalization":
            kinds = {1: nn.BatchNorm1d, 2: nn.BatchNorm1d, 3: nn.BatchNorm2d}
            return kinds[len(source)](source[0])
        if self.operator == "LayerNormalization":
            return nn.LayerNorm(source[-1])
        return None

    def _padding(self) -> tuple[int, ...]:
        """The smallest padding that gives this output size for this input size."""
        sizes = zip(self.source[1:], self.target[1:], self.options["k"], self.options["s"], strict=True)
        if self.operator == "ConvTranspose":
            return tuple(max(0, ((a - 1) * s + k - b) // 2) for a, b, k, s in sizes)
        return tuple(max(0, -(-((b - 1) * s + k - a) // 2)) for a, b, k, s in sizes)

    def _random(self, *sizes: int) -> Tensor:
        x = torch.randn(sizes, device=self.device).to(self.dtype)
        return x.contiguous(memory_format=torch.channels_last) if self.channels_last and x.dim() == 4 else x

    def at(self, batch: int) -> Run:
        """A call on a batch of random items."""
        operator, source = self.operator, self.source
        if operator == "Gemm":
            return self._through(self._random(batch * source[0], source[1]))
        if operator == "MatMul":
            many, rows, inner, columns = source
            remaining, right = self._random(batch * many, rows, inner), self._random(batch * many, inner, columns)
            return lambda: torch.bmm(remaining, right)
        if operator == "Attention":
            heads, queries, keys, width = source
            q, k = self._random(batch, heads, queries, width), self._random(batch, heads, keys, width)
            v = self._random(batch, heads, keys, width)
            return lambda: F.scaled_dot_product_attention(q, k, v)
        if operator == "Gather":
            return self._through(torch.randint(0, self.target[0], (batch, source[0]), device=self.device))
        x = self._random(batch, *source)
        if self.module is not None:
            return self._through(x)
        if operator == "Concat":
            parts = [part.clone() for part in x.chunk(2, 1)]
            return lambda: torch.cat(parts, 1)
        if operator == "Resize":
            size = self.target[1:]
            return lambda: F.interpolate(x, size)
        if operator in ("MaxPool", "AveragePool"):
            pool = F.max_pool2d if operator == "MaxPool" else F.avg_pool2d
            kernel, stride, padding = tuple(self.options["k"]), tuple(self.options["s"]), self._padding()
            return lambda: pool(x, kernel, stride, padding)
        function = ELEMENTWISE[operator]
        return lambda: function(x)

    def _through(self, x: Tensor) -> Run:
        module = self.module
        assert module is not None
        return lambda: module(x)
