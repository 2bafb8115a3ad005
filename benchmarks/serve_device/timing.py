"""Timing of one point: a batch from the host's memory to the end of the model, or an operator on its own.

Preparing a point (choosing kernels, loading them, capturing the graph) takes far longer than timing it, mostly on the
CPU. So several processes prepare at the same time, and only one times: `alone()` is held only while the clock runs.
"""

import fcntl
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from serve_device.operators import Run

GATE = Path("/tmp/mlcd-gate")
GRAPH_UNTIL_SECONDS = 0.3  # longer batches are timed without a graph: launches no longer matter, seconds do
SPEND_SECONDS = 0.03  # on the timed runs of a point, where that is at least 5 and at most 40 runs


@contextmanager
def held(kind: int) -> Iterator[None]:
    with GATE.open("a") as gate:
        fcntl.flock(gate, kind)
        try:
            yield
        finally:
            torch.cuda.synchronize()
            fcntl.flock(gate, fcntl.LOCK_UN)


def beside() -> AbstractContextManager[None]:
    """While held, other processes may use the GPU too, and no clock runs."""
    return held(fcntl.LOCK_SH)


def alone() -> AbstractContextManager[None]:
    """While held, no other process uses the GPU."""
    return held(fcntl.LOCK_EX)


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Seconds of a batch (median, p95), peak memory, runs timed, and how: graph or eager."""

    median_seconds: float
    p95_seconds: float
    memory_mib: float
    runs: int
    mode: str


def set_precision(precision: str) -> None:
    """fp32 means full-precision products: TF32 is used only for tf32."""
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"


def capture(run: Run, repeats: int = 1) -> torch.cuda.CUDAGraph:
    """The call as a graph, on the current stream."""
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin(capture_error_mode="relaxed")
    try:
        for _ in range(repeats):
            run()
    finally:
        graph.capture_end()
    return graph


def clock(run: Run) -> float:
    """Seconds from an idle GPU to an idle GPU, by the host's clock."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def time_model(module: nn.Module, host: Tensor, expected_seconds: float) -> Timing:
    """Time the model on a batch in pinned host memory: copy in, run, wait, as a server with one batch at a time.

    The model runs as a CUDA graph, as in tuned servers; where the graph does not fit or would not matter, it runs
    eagerly. Raises torch.cuda.OutOfMemoryError where the share's memory is too small.
    """
    torch.cuda.reset_peak_memory_stats()
    graph: torch.cuda.CUDAGraph | None = None
    with beside():
        static = torch.empty_like(host, device="cuda")
        if expected_seconds < 1.0:
            module(static.copy_(host, non_blocking=True))
        if expected_seconds < GRAPH_UNTIL_SECONDS:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            try:
                graph = capture(lambda: module(static))
            except torch.cuda.OutOfMemoryError:
                torch.cuda.empty_cache()

    def run() -> None:
        static.copy_(host, non_blocking=True)
        if graph is None:
            module(static)
        else:
            graph.replay()

    with alone():
        first = clock(run)
        if first < 0.04:
            seconds = [clock(run) for _ in range(max(5, min(40, int(SPEND_SECONDS / first))))]
        else:
            seconds = [first, *(clock(run) for _ in range(2 if first < 0.15 else 1 if first < 0.3 else 0))]
    ordered = sorted(seconds)
    return Timing(
        median_seconds=statistics.median(ordered),
        p95_seconds=ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))],
        memory_mib=torch.cuda.max_memory_allocated() / 2**20,
        runs=len(ordered),
        mode="graph" if graph is not None else "eager",
    )


def gpu_clock(run: Run) -> float:
    """Seconds of the call by the GPU's own clock."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    run()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1000.0


def prepare_operator(run: Run) -> Callable[[], float]:
    """Prepare a call while other processes run; returns a function to call alone, which gives the seconds of one call.

    A short call is repeated in one graph, so that launches do not count. The shorter of two rounds counts.
    """
    run()
    rough = gpu_clock(run)
    if rough > 0.004:
        return lambda: min(gpu_clock(run), gpu_clock(run))
    repeats = max(2, min(20, int(0.0005 / rough)))
    graph = capture(run, repeats)

    def timed(_inputs: Run = run) -> float:  # the graph reads the call's inputs: they must live as long as it does
        gpu_clock(graph.replay)
        return min(gpu_clock(graph.replay), gpu_clock(graph.replay)) / repeats

    return timed
