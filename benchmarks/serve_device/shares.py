"""A share of the GPU: a process that may use so many of its multiprocessors, and memory in proportion."""

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
    """CUDA's multi-process service, for as long as shares are measured."""
    Path(PIPES).mkdir(exist_ok=True)
    os.environ["CUDA_MPS_PIPE_DIRECTORY"] = os.environ["CUDA_MPS_LOG_DIRECTORY"] = PIPES
    subprocess.run(["nvidia-cuda-mps-control", "-d"], check=True)
    try:
        yield
    finally:
        subprocess.run(["nvidia-cuda-mps-control"], input=b"quit\n", check=False)


def percentage(sms: int) -> int:
    """What the service takes: whole percents, of which it makes whole multiprocessors, rounded down to pairs."""
    return -(-100 * sms // WHOLE)


def start_share(sms: int, work: Callable[[int], None]) -> int:
    """Starts `work(multiprocessors)` in a process of its own with that share, and gives back its id.

    A process a share: the limit is read when CUDA starts. Modules imported and built here are there too, by fork;
    so CUDA must not be in use in this process.
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
    except BaseException:  # the fork's edge: nothing may run on as if it were the parent
        traceback.print_exc()
    finally:
        os._exit(code)


def wait_for(child: int) -> bool:
    """True where it ended well."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
