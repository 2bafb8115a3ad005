"""A share of the GPU: a process that may use some of its multiprocessors, and memory in proportion."""

import os
import subprocess
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

WHOLE = 132  # multiprocessors of an H200
PIPES = "/tmp/mlcd-mps"


@contextmanager
def service() -> Iterator[None]:
    """Run CUDA's multi-process service for the duration of the `with` block."""
    Path(PIPES).mkdir(exist_ok=True)
    os.environ["CUDA_MPS_PIPE_DIRECTORY"] = os.environ["CUDA_MPS_LOG_DIRECTORY"] = PIPES
    subprocess.run(["nvidia-cuda-mps-control", "-d"], check=True)
    try:
        yield
    finally:
        subprocess.run(["nvidia-cuda-mps-control"], input=b"quit\n", check=False)


def percentage(sms: int) -> int:
    """The service's setting: a whole percentage, which it converts to multiprocessors, rounded down to pairs."""
    return -(-100 * sms // WHOLE)


def start_share(sms: int, work: Callable[[int], None]) -> int:
    """Start `work(multiprocessors)` in a new process with that share, and return the process id.

    Each share needs its own process, because CUDA reads the limit when it starts. The fork shares modules imported and
    built here; so CUDA must not be in use in this process.
    """
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        if sms < WHOLE:
            os.environ["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(percentage(sms))
        found = torch.cuda.get_device_properties(0).multi_processor_count
        torch.cuda.set_per_process_memory_fraction(min(1.0, sms / WHOLE))
        with torch.cuda.stream(torch.cuda.Stream()), torch.no_grad():  # type: ignore[no-untyped-call]
            work(found)
        code = 0
    except BaseException:  # the forked process must end here and never continue as the parent
        traceback.print_exc()
    finally:
        os._exit(code)


def wait_for(child: int) -> bool:
    """Whether it ended without error."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
