"""How much more memory this process may use."""

import math
from pathlib import Path

_SYSTEM = Path("/proc/meminfo")
_LIMIT, _USED = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")


_RAN_OUT = (
    "out of memory",
    "memoryerror",
    "bad_alloc",
    "failed to allocate memory",
    "cannot allocate memory",
    "cuda_error_out_of_memory",
    "alloc_failed",
    "outofmemoryerror",
    "no available memory for the cache blocks",
    "is more than available memory",
)
"""What programs say of memory and GPU memory: the system, PyTorch, ONNX Runtime, cuBLAS, vLLM, transformers."""


def ran_out_of_memory(text: str) -> bool:
    """Whether a program that said this ran out of memory, its own or a GPU's."""
    return any(words in text.lower() for words in _RAN_OUT)


def free_memory_bytes() -> float:
    """The system's available memory, or less if the control group has a lower limit; infinite if neither is known."""
    found = math.inf
    if _SYSTEM.exists():
        for line in _SYSTEM.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found = int(line.split()[1]) * 1024.0
    if _LIMIT.exists() and _USED.exists() and (limit := _LIMIT.read_text().strip()) != "max":
        found = min(found, float(limit) - float(_USED.read_text()))
    return found
