"""The server's statistics: counts, queue and memory."""

import time
from pathlib import Path
from typing import Any

from mlcd.server.batching import Counts
from mlcd.server.memory import Memory
from mlcd.server.options import ServerOptions


def memory_bytes() -> dict[str, int]:
    """(current, peak) resident memory of this process; empty where the system does not report it."""
    status = Path("/proc/self/status")
    if not status.exists():
        return {}
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
    return {"now": int(fields["VmRSS"].split()[0]) * 1024, "most": int(fields["VmHWM"].split()[0]) * 1024}


def as_json(counts: Counts, options: ServerOptions, memory: Memory, *, gpu_bytes: int | None = None) -> dict[str, Any]:
    """Counts since the start; times are sums over requests (wait) and over batches (run).

    gpu_bytes  the most GPU memory that the model has taken
    """
    resident = memory_bytes()
    return {
        "name": options.model_name,
        "batch": options.batch,
        "threads": options.threads,
        "replicas": options.replicas,
        "precision": options.precision.value,
        "uptime_seconds": time.monotonic() - counts.started,
        "requests": counts.requests,
        "items": counts.rows,
        "batches": counts.batches,
        "refused_by_model": counts.refused,
        "turned_away": counts.turned_away,
        "waiting": counts.waiting,
        "running": counts.running,
        "run_seconds": counts.run_seconds,
        "wait_seconds": counts.wait_seconds,
        "processor_seconds": time.process_time(),
        "memory_bytes": resident.get("now"),
        "peak_memory_bytes": resident.get("most"),
        "gpu_memory_bytes": gpu_bytes,
        "in_flight_bytes": memory.held_bytes,
    }


_COUNTERS = {
    "requests": "Inference requests that were well formed",
    "items": "Items that were run",
    "batches": "Batches that were run",
    "refused_by_model": "Requests that the model refused",
    "turned_away": "Requests turned away because the queue was full",
    "run_seconds": "Seconds that batches ran",
    "wait_seconds": "Seconds that requests waited in the queue",
    "processor_seconds": "Processor time of the server",
}
_GAUGES = {
    "waiting": "Requests in the queue",
    "running": "Batches that run",
    "memory_bytes": "Resident memory",
    "peak_memory_bytes": "The most resident memory so far",
    "gpu_memory_bytes": "The most GPU memory so far",
    "in_flight_bytes": "Requests and answers in memory, as far as they count for the limit",
}


def as_prometheus(counts: Counts, options: ServerOptions, memory: Memory, *, gpu_bytes: int | None = None) -> str:
    """The same numbers in Prometheus' text format."""
    values = as_json(counts, options, memory, gpu_bytes=gpu_bytes)
    lines = []
    for names, kind, ending in ((_COUNTERS, "counter", "_total"), (_GAUGES, "gauge", "")):
        for name, meaning in names.items():
            if values[name] is not None:
                metric = f"mlcd_server_{name}{ending}"
                lines += [f"# HELP {metric} {meaning}.", f"# TYPE {metric} {kind}"]
                lines.append(f'{metric}{{model="{options.model_name}"}} {values[name]}')
    return "\n".join(lines) + "\n"
