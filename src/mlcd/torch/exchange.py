"""Averaging of the workers' gradients: communication hooks of DistributedDataParallel."""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.distributed import GradBucket  # type: ignore[attr-defined]  # public, but not re-exported

Exchange = Callable[[dist.ProcessGroup, GradBucket], torch.futures.Future[torch.Tensor]]
"""Called for each bucket of gradients in turn, in the same order on all workers."""


def alone(_: object, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """For one worker: its gradients are the mean."""
    return _done(bucket.buffer())


def by_all_reduce(group: dist.ProcessGroup, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """As DistributedDataParallel by default: every worker gets the mean, and the traffic spreads over all links."""
    # Divide first, so that half precision does not overflow.
    parts = bucket.buffer().div_(dist.get_world_size(group))
    work = dist.all_reduce(parts, group=group, async_op=True)
    assert work is not None  # noqa: S101  it is None only outside the group
    mean: torch.futures.Future[torch.Tensor] = work.get_future().then(lambda done: done.value()[0])
    return mean


def by_parameter_server(_: object, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Every worker of the job sends its gradients to rank 0 and receives the mean from it.

    All traffic passes through rank 0's link, as with a parameter server; a collective reduce would spread it.
    """
    mean, others = bucket.buffer(), range(1, dist.get_world_size())
    if dist.get_rank() == 0:
        theirs = [torch.empty_like(mean) for _ in others]
        waiting = [_arriving(gradients, worker) for worker, gradients in zip(others, theirs, strict=True)]
        for work, gradients in zip(waiting, theirs, strict=True):
            work.wait()
            mean.add_(gradients)
        mean.div_(dist.get_world_size())
        for work in [_leaving(mean, worker) for worker in others]:
            work.wait()
    else:
        dist.send(mean, 0)
        dist.recv(mean, 0)
    return _done(mean)


def _done(mean: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(mean)
    return done


def _arriving(tensor: torch.Tensor, worker: int) -> dist.Work:
    work = dist.irecv(tensor, worker)
    assert work is not None  # noqa: S101  it is None only outside the group
    return work


def _leaving(tensor: torch.Tensor, worker: int) -> dist.Work:
    work = dist.isend(tensor, worker)
    assert work is not None  # noqa: S101  it is None only outside the group
    return work
