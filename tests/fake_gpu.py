"""A machine with a GPU as far as its driver's programs say so: files on the PATH that answer as they do."""

from pathlib import Path

import pytest

TWO = "0, GPU-aaa, NVIDIA H200, 143771, 580.1, Default\\n1, GPU-bbb, NVIDIA L4, 23034, 580.1, Default\\n"
SMI = """#!/bin/sh
case "$*" in
  *compute-apps*) printf '%s' "$FAKE_APPS" ;;
  *utilization.gpu*) printf '%b' "${FAKE_LOADS:-GPU-aaa, 80, 2048\\nGPU-bbb, 0, 512\\n}" ;;
  *memory.used*) echo "${FAKE_USED:-1024}" ;;
  *) printf '%b' "${FAKE_GPUS:-@TWO@}" ;;
esac
""".replace("@TWO@", TWO)
MPS = """#!/bin/sh
if [ "$1" = -f ]; then touch "$CUDA_MPS_PIPE_DIRECTORY/control"; echo "$$" > "$FAKE_MPS_PID"; exec sleep 60; fi
cat > /dev/null
"""


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, *, mps: bool = True, alike: int = 0) -> None:
    """Two GPUs, an H200 and an L4; or `alike` H200s. With `mps` also the multi-process service."""
    for name, text in {"nvidia-smi": SMI, **({"nvidia-cuda-mps-control": MPS} if mps else {})}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("FAKE_MPS_PID", str(folder / "mps.pid"))
    if alike:
        rows = [f"{n}, GPU-{n}, NVIDIA H200, 143771, 580.1, Default" for n in range(alike)]
        monkeypatch.setenv("FAKE_GPUS", "\\n".join(rows) + "\\n")
        monkeypatch.setenv("FAKE_LOADS", "\\n".join(f"GPU-{n}, {50 + n}, {1024 * (n + 1)}" for n in range(alike)))
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_MPS_PIPE_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
