"""The workers of a job: their process group, and the model whose gradients they average."""

import os
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import HashStore  # type: ignore[attr-defined]  # public, but not re-exported
from torch.nn.parallel import DistributedDataParallel

from mlcd.torch.exchange import alone, by_all_reduce, by_parameter_server
from mlcd.torch.noise import NoiseWatch, claim, watched
from mlcd.training.training_progress import current_progress


def init() -> int:
    """Join the other workers, with NCCL on GPUs and Gloo elsewhere; returns this worker's rank.

    Does nothing where the script has already joined them; a single process forms its own group.
    """
    if dist.is_initialized():
        return dist.get_rank()
    gpu = torch.cuda.is_available()
    if gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    backend = "nccl" if gpu else "gloo"
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group(backend)
    else:  # a single process needs no address and no port
        dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
    return dist.get_rank()


def device() -> torch.device:
    """The device for this worker's model and batches."""
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def parallel(model: torch.nn.Module, *, noise: bool | None = None, **options: Any) -> DistributedDataParallel:
    """The model, its gradients averaged over all workers after each backward pass; `options` are PyTorch's own.

    By all-reduce, or through rank 0 where the job's topology is `ps`. With `noise`, by default where mlcd asks for it
    (MLCD_NOISE=1), the gradients' squared norms are reported every few steps. Raises ValueError where `noise` is True
    for a second model of this process, because the norms would be mixed.
    """
    init()
    here = current_progress()
    wanted = here.env.noise if noise is None else noise
    if wanted:
        # A hook divides the buckets in a separate pass; PyTorch would do that while copying. Views avoid the copies.
        options = {"gradient_as_bucket_view": True, **options}
    made = DistributedDataParallel(model.to(device()), **options)
    workers = dist.get_world_size(made.process_group)
    through_one = os.environ.get("MLCD_TOPOLOGY") == "ps" and dist.get_world_size() > 1
    if wanted and claim(made, insist=noise is True):
        exchange = by_parameter_server if through_one else by_all_reduce if workers > 1 else alone
        watch = NoiseWatch(here, exchange, made.process_group, here.env.noise_every)
        made.register_comm_hook(watch, watched)
    elif through_one:
        made.register_comm_hook(None, by_parameter_server)
    return made
