"""The command line of mlcd, on a GPU that several runs share: only one loads a server at a time.

    python -m serve_gpu.cli serve job.yaml -o json

What differs from `mlcd`: a load test waits for the GPU (a lock in $GPU_TURNS), has $LOAD_SECONDS of load however long
its server took to start, and a verification starts when all that is to be measured has been ($GPU_TURNS/go): then those
of several models run at the same time. Servers start while others are loaded.
"""

import fcntl
import json
import os
import time
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlcd.engine.serving
import mlcd.loadgen.chat.measure
import mlcd.loadgen.measure
from mlcd.cli.main import main
from mlcd.clouds.serving.local import LocalServing
from mlcd.loadgen.process import run_generator
from mlcd.server.options import Device, Precision

TURNS = Path(os.environ["GPU_TURNS"])
LOAD_SECONDS = float(os.environ.get("LOAD_SECONDS", "6"))
TOGETHER = os.environ.get("VERIFY_TOGETHER") == "1"
LONGEST_WAIT_SECONDS = 600.0


def in_turn(module: str, plan: str, *, most_seconds: float) -> str:
    """A load test, when the GPU is free."""
    about: dict[str, Any] = json.loads(plan)
    verifies = about.get("rate") is not None
    if not verifies:
        about["seconds"] = LOAD_SECONDS
    if "exchanges" in about:
        _warm_up(about)
    with (TURNS / "gpu.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH if verifies and TOGETHER else fcntl.LOCK_EX)
        begun = time.time()
        try:
            return run_generator(module, json.dumps(about), most_seconds=most_seconds)
        finally:
            with (TURNS / "turns.csv").open("a") as out:
                out.write(f"{os.getpid()},{int(verifies)},{begun:.2f},{time.time() - begun:.2f}\n")


def _warm_up(about: dict[str, Any]) -> None:
    """A few requests before the turn: a server's first ones load kernels."""
    body = {"model": about["model"], "messages": [{"role": "user", "content": "time " * 100}], "max_tokens": 4}
    for _ in range(2):
        request = urllib.request.Request(
            about["address"] + about["path"],
            data=json.dumps(body).encode(),
            headers={"content-type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                answer.read()
        except OSError:
            return  # the load test tells


def after_all(verify: Callable[..., Any]) -> Callable[..., Any]:
    """`verify`, after everything was measured."""

    def wait_then_verify(*given: Any, **named: Any) -> Any:
        (TURNS / f"arrived-{os.getpid()}").touch()
        until = time.monotonic() + LONGEST_WAIT_SECONDS
        while not (TURNS / "go").exists() and time.monotonic() < until:
            time.sleep(0.2)
        return verify(*given, **named)

    return wait_then_verify


def _rehearse() -> None:
    """On processors, where there is no GPU: what is chosen stays, what runs is PyTorch on the CPU in fp32."""
    options = LocalServing.options

    def on_processors(self: LocalServing, *given: Any, **named: Any) -> Any:
        return replace(_as_fp32(options, self, *given, **named), device=Device.CPU)

    LocalServing.options = on_processors  # type: ignore[method-assign]


def _as_fp32(options: Callable[..., Any], *given: Any, **named: Any) -> Any:
    return replace(options(*given, **named), precision=Precision.FP32)


if __name__ == "__main__":
    mlcd.loadgen.measure.run_generator = in_turn  # type: ignore[attr-defined]
    mlcd.loadgen.chat.measure.run_generator = in_turn  # type: ignore[attr-defined]
    if TOGETHER:
        mlcd.engine.serving.verify_load = after_all(mlcd.engine.serving.verify_load)  # type: ignore[attr-defined]
    if os.environ.get("REHEARSE") == "1":
        _rehearse()
    main()
