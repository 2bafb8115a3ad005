"""How much of its GPUs a job uses, looked at every few seconds while it runs."""

import threading
from collections.abc import Sequence

from mlcd.gpus import Gpu, gpu_loads
from mlcd.trial.node_metrics import NodeMetrics

SAMPLE_SECONDS = 2.0
"""Between two looks: each takes the driver's program some 50 ms."""
SOURCE = "nvidia-smi"


class GpuSampler:
    """Samples in a thread from `start` to `stop`; then `metrics` has means and peaks. Never raises."""

    def __init__(self, gpus: Sequence[Gpu], *, nodes: int) -> None:
        self._gpus, self._nodes = tuple(gpus), nodes
        self._percents: list[float] = []
        self._peak_gib = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="mlcd-gpus")

    def start(self) -> None:
        """Begin; does nothing without GPUs."""
        if self._gpus:
            self._thread.start()

    def stop(self) -> None:
        """End; idempotent, returns at once."""
        self._over.set()

    def metrics(self) -> NodeMetrics | None:
        """What was seen so far; None where the driver told nothing."""
        if not self._percents:
            return None
        return NodeMetrics(
            source=SOURCE,
            nodes=self._nodes,
            gpu_percent=sum(self._percents) / len(self._percents),
            gpu_memory_gib=self._peak_gib,
        )

    def _run(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            loads = gpu_loads(self._gpus)
            if loads:
                self._percents.append(sum(each.percent for each in loads) / len(loads))
                self._peak_gib = max(self._peak_gib, *(each.used_gib for each in loads))
