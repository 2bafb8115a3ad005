"""A server's share of a GPU: which one it sees, how much of it computes for it, how much of its memory it may take."""

import sys
from collections.abc import Mapping
from pathlib import Path

from mlcd.gpus import Gpu

WHOLE = 100
"""Percent."""
_SERVICE = Path(__file__).with_name("mps.py")


def on_share(command: list[str], env: Mapping[str, str], *, gpu: Gpu, percent: int) -> tuple[list[str], dict[str, str]]:
    """(command, variables) that run `command` on so many percent of `gpu`; under CUDA's MPS unless it has all of it.

    CUDA rounds the share down to whole multiprocessors. Memory is limited in proportion, because the price is.
    """
    placed = {**env, "CUDA_VISIBLE_DEVICES": gpu.uuid}
    if percent >= WHOLE:
        return command, placed
    placed["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(percent)
    if gpu.memory_gib > 0:
        placed["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={int(gpu.memory_gib * 1024 * percent / WHOLE)}M"
    return [sys.executable, "-I", str(_SERVICE), *command], placed
