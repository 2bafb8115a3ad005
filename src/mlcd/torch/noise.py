"""SGD noise, measured in the gradient exchange: squared norms of the workers' gradients and of their mean.

In a measured step each worker computes the squared norm of every bucket before the exchange; the first worker also
computes that of the mean. After the last bucket has been sent, two numbers are summed over the workers. The sum is read
in the next step, when it has long arrived, so that no worker waits for it. A single worker has no other gradient to
compare with: it keeps the gradient of one step and compares it with the next one, although the weights have changed in
between. (Two halves of a batch would be cleaner, but the script controls the backward pass.)

Only squared norms are reported; mlcd computes the noise scale from them elsewhere.
"""

import gc
import math
import statistics
import sys
import time
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed import GradBucket  # type: ignore[attr-defined]  # public, but not re-exported
from torch.nn.parallel import DistributedDataParallel

from mlcd.torch.exchange import Exchange
from mlcd.training.training_progress import TrainingProgress

MAX_TIME_SHARE = 0.01
"""The share of the time that measuring may take by its own count. The aim is 3%; the count misses part of the cost."""
COST_STEPS = 5
"""Number of measured steps whose median is the cost of measuring."""
MAX_INTERVAL_STEPS = 100
"""The most steps from one measured step to the next, unless the user sets another interval."""

_claimed: "weakref.ref[DistributedDataParallel] | None" = None


def claim(model: DistributedDataParallel, *, insist: bool) -> bool:
    """Whether to measure this model: only the first of the process. Raises ValueError for another if `insist`."""
    global _claimed  # noqa: PLW0603  a process has one progress file, so it has one watched model
    if _claimed is not None and _claimed() is not None:
        gc.collect()  # a deleted model may still be alive in reference cycles
    if _claimed is not None and _claimed() is not None:
        text = "mlcd.torch.parallel: this process already measures the noise of another model"
        if insist:
            raise ValueError(text)
        print(f"{text}; this one is not measured", file=sys.stderr)  # noqa: T201
        return False
    _claimed = weakref.ref(model)
    return True


class NoiseWatch:
    """Measures some steps of one model, the same steps on all workers; the head reports.

    every  steps from one measured step to the next. None: the least that keeps measuring below MAX_TIME_SHARE
    """

    def __init__(
        self, progress: TrainingProgress, exchange: Exchange, group: dist.ProcessGroup, every: int | None
    ) -> None:
        self._progress, self._exchange, self._group, self._every = progress, exchange, group, every
        self._workers = dist.get_world_size(group)
        self._head = dist.get_rank(group) == 0
        self._step = -1
        # PyTorch rearranges the buckets after the first step, and a single worker has to keep one gradient first.
        self._next = 1 if self._workers > 1 else 2
        self._squares: list[torch.Tensor] = []
        self._others: list[torch.Tensor] = []
        self._kept: dict[tuple[int, ...], torch.Tensor] = {}
        self._arriving: tuple[dist.Work | None, torch.Tensor] | None = None
        self._cost = 0.0
        self._costs: deque[float] = deque(maxlen=COST_STEPS)
        self._seconds: deque[float] = deque(maxlen=4 * COST_STEPS)
        self._begun = time.perf_counter()

    def mean(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """The bucket's mean over the workers, from the exchange."""
        if bucket.index() == 0:
            self._begin()
        if self._step == self._next:
            exchanged = self._measure(bucket)
        else:
            if self._workers == 1 and self._step == self._next - 1:
                with self._count_cost():
                    self._kept[_layout(bucket)] = bucket.buffer().clone()
            exchanged = self._exchange(self._group, bucket)
        if bucket.is_last() and self._step == self._next:
            with self._count_cost():
                self._send()
        return exchanged

    def _begin(self) -> None:
        now = time.perf_counter()
        if self._step >= 0:
            self._seconds.append(now - self._begun)
        self._begun = now
        self._step += 1
        if self._arriving is not None:
            with self._count_cost():
                self._take(*self._arriving)
            self._arriving = None
            self._costs.append(self._cost)
            self._cost = 0.0

    def _measure(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        with self._count_cost():
            mine = bucket.buffer()
            self._squares.append(_square(mine))
            if self._workers == 1:
                self._compare(_layout(bucket), mine)
        exchanged = self._exchange(self._group, bucket)
        return exchanged.then(self._see) if self._head and self._workers > 1 else exchanged

    def _see(self, exchanged: torch.futures.Future[torch.Tensor]) -> torch.Tensor:
        # May run in the exchange's own thread, concurrently with the backward pass: both only append.
        with self._count_cost():
            mean = exchanged.value()
            self._others.append(_square(mean))
        return mean

    def _compare(self, layout: tuple[int, ...], now: torch.Tensor) -> None:
        before = self._kept.pop(layout, None)
        if before is not None:
            self._others.append(torch.stack([_square(before), _product(before, now)]))

    def _send(self) -> None:
        mine = torch.stack(self._squares).sum()
        # The head's interval is sent along, because all workers have to measure the same steps.
        numbers = torch.stack([mine, torch.full_like(mine, self._wanted_interval() if self._head else 0.0)])
        work = dist.all_reduce(numbers, group=self._group, async_op=True) if self._workers > 1 else None
        self._arriving = (work, numbers)

    def _wanted_interval(self) -> int:
        if self._every is not None:
            return self._every
        if len(self._costs) < COST_STEPS:
            return 1
        share = statistics.median(self._costs) / statistics.median(self._seconds)
        return min(MAX_INTERVAL_STEPS, max(1, math.ceil(share / MAX_TIME_SHARE)))

    def _take(self, work: "dist.Work | None", numbers: torch.Tensor) -> None:
        if work is not None:
            work.wait()
        square, every = numbers.tolist()
        self._next += max(int(every), 2 if self._workers == 1 else 1)
        buckets, others = len(self._squares), self._others
        self._squares, self._others = [], []
        self._kept.clear()
        if not self._head or len(others) < buckets:  # a bucket without a counterpart in the step before
            return
        seen = torch.stack(others).sum(0)
        if self._workers > 1:
            self._progress.noise(local=square / self._workers, total=seen.item(), workers=self._workers)
        else:
            before, dot = seen.tolist()
            self._progress.noise(before=before, now=square, dot=dot, workers=1)

    @contextmanager
    def _count_cost(self) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        self._cost += time.perf_counter() - begun


def watched(watch: NoiseWatch, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The communication hook."""
    return watch.mean(bucket)


def _layout(bucket: GradBucket) -> tuple[int, ...]:
    """The parameters in the bucket, in order."""
    return tuple(id(parameter) for parameter in bucket.parameters())


def _square(gradients: torch.Tensor) -> torch.Tensor:
    return _product(gradients, gradients)


def _product(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    if one.dtype in (torch.float16, torch.bfloat16):  # their squares overflow
        one, other = one.float(), other.float()
    return torch.dot(one, other).double()
