"""A model's operators, each with its time on the GPU: one profiled run, every dispatched call under its own name."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils._python_dispatch import TorchDispatchMode

from serve_device.grammar import Call, canonical

MARK = "op|"


class Naming(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs every call inside a profiler range with its canonical name and shape."""

    def __init__(self, batch: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.batch = batch
        self.keys: list[tuple[str, str]] = []

    def __torch_dispatch__(
        self, func: Any, types: Sequence[Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        # The shape is known only after the call: the range has a number, an index into the list of keys.
        with record_function(f"{MARK}{len(self.keys)}"):
            out = func(*args, **(kwargs or {}))
        call = Call(func, args, kwargs or {}, out, self.batch)
        self.keys.append(canonical(call, func.overloadpacket.__name__))
        return out


@dataclass(frozen=True, kw_only=True)
class Use:
    """An operator of a model: how often it is called with this shape, and its total microseconds."""

    operator: str
    shape: str
    count: int
    microseconds: float


def trace(module: nn.Module, sample: Tensor, batch: int) -> list[Use]:
    """Every operator that takes time in one run, the longest first: GPU time where there is one, else CPU time."""
    gpu = sample.is_cuda
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if gpu else [])]
    with torch.no_grad():
        module(sample)
        naming = Naming(batch)
        with profile(activities=activities) as profiler, naming:
            module(sample)
            if gpu:
                torch.cuda.synchronize()
    times: Counter[tuple[str, str]] = Counter()
    counts: Counter[tuple[str, str]] = Counter()
    for event in profiler.events() or []:
        if not event.name.startswith(MARK) or event.device_type != DeviceType.CPU:
            continue
        spent = event.device_time_total if gpu else event.cpu_time_total
        if spent > 0:
            key = naming.keys[int(event.name[len(MARK) :])]
            times[key] += spent
            counts[key] += 1
    return [
        Use(operator=key[0], shape=key[1], count=counts[key], microseconds=spent) for key, spent in times.most_common()
    ]
