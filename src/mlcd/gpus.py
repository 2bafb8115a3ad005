"""The NVIDIA GPUs of this machine, as its driver's own program tells them: no library is needed."""

import os
import shutil
import subprocess
from collections.abc import Collection
from dataclasses import dataclass

_SMI = "nvidia-smi"
_MPS_CONTROL = "nvidia-cuda-mps-control"
_SECONDS = 20.0
"""The driver's first answer after a boot takes a few seconds; a broken one hangs."""
_FIELDS = ("index", "uuid", "name", "memory.total", "driver_version", "compute_mode")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU.

    index       the driver's number of it
    memory_gib  in all
    """

    index: int
    uuid: str
    name: str
    memory_gib: float
    driver: str
    compute_mode: str = "Default"

    @property
    def model(self) -> str:
        """The name that catalogs have, such as H200: without maker, memory and form."""
        words = self.name.replace("-", " ").split()
        known = [word for word in words if word.upper() not in ("NVIDIA", "TESLA", "GEFORCE", "QUADRO")]
        return known[0] if known else self.name


def find_gpus() -> tuple[Gpu, ...]:
    """The GPUs that programs started here would use: those of CUDA_VISIBLE_DEVICES where it is set, in its order."""
    found = []
    for line in _ask(f"--query-gpu={','.join(_FIELDS)}"):
        values = [value.strip() for value in line.split(",")]
        if len(values) == len(_FIELDS) and values[0].isdecimal():
            found.append(
                Gpu(
                    index=int(values[0]),
                    uuid=values[1],
                    name=values[2],
                    memory_gib=_number(values[3]) / 1024,
                    driver=values[4],
                    compute_mode=values[5],
                )
            )
    return _visible(tuple(found), os.environ.get("CUDA_VISIBLE_DEVICES"))


def used_gib(gpu: Gpu, pids: Collection[int] | None = None) -> float | None:
    """GPU memory in use, in all or by these processes; None where the driver does not tell."""
    if pids is not None:
        rows = [line.split(",") for line in _ask("--query-compute-apps=pid,used_memory", gpu)]
        own = [_number(row[1]) for row in rows if len(row) == 2 and row[0].strip() in map(str, pids)]
        return sum(own) / 1024 if sum(own) > 0 else None
    whole = _ask("--query-gpu=memory.used", gpu)
    return _number(whole[0]) / 1024 if whole else None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLoad:
    """What a GPU does now: the share of time in which it computed, in percent, and its memory in use."""

    percent: float
    used_gib: float


def gpu_loads(gpus: Collection[Gpu]) -> tuple[GpuLoad, ...]:
    """Of each of these GPUs; empty where the driver does not tell."""
    wanted = {gpu.uuid for gpu in gpus}
    rows = [
        [value.strip() for value in line.split(",")] for line in _ask("--query-gpu=uuid,utilization.gpu,memory.used")
    ]
    return tuple(
        GpuLoad(percent=min(_number(row[1]), 100.0), used_gib=_number(row[2]) / 1024)
        for row in rows
        if len(row) == 3 and row[0] in wanted
    )


def can_share() -> bool:
    """Whether CUDA's multi-process service is installed here: it limits a process to a share of a GPU."""
    return shutil.which(_MPS_CONTROL) is not None


def _visible(gpus: tuple[Gpu, ...], wanted: str | None) -> tuple[Gpu, ...]:
    """CUDA's rule: numbers or beginnings of unique names; what follows an unknown one is not seen."""
    if wanted is None:
        return gpus
    found: list[Gpu] = []
    for text in (part.strip() for part in wanted.split(",")):
        match = [gpu for gpu in gpus if text and (str(gpu.index) == text or gpu.uuid.startswith(text))]
        if not match:
            break
        found.append(match[0])
    return tuple(found)


def _ask(query: str, gpu: Gpu | None = None) -> list[str]:
    """The lines of the driver's answer; none where there is no driver or it does not answer."""
    program = shutil.which(_SMI)
    if program is None:
        return []
    command = [program, query, "--format=csv,noheader,nounits", *(["--id", gpu.uuid] if gpu else [])]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_SECONDS, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.decode(errors="replace").splitlines() if done.returncode == 0 else []


def _number(text: str) -> float:
    """A number of MiB; 0 for `[N/A]` and the like."""
    try:
        return max(float(text.strip()), 0.0)
    except ValueError:
        return 0.0
