"""For PyTorch scripts: the process group, DistributedDataParallel, the global batch and checkpoints, a line each.

    import mlcd.torch
    mlcd.torch.init()
    model = mlcd.torch.parallel(Net())
    loader = mlcd.torch.loader(dataset, batch_size=192)              # the batch of all workers together
    mlcd.torch.checkpoint(model=model, optimizer=optimizer)
    for images, labels in mlcd.steps(loader, batch_size=192, total=epochs * len(dataset)):
        ...

Each may be left out for PyTorch's own; by hand, without any variables, all of it works with one process.
"""

import os
from collections.abc import Iterator, Sized
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
import torch.distributed as dist
from torch.distributed import GradBucket, HashStore  # type: ignore[attr-defined]  # public, but not re-exported
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, Sampler

from mlcd.training import checkpoints
from mlcd.training.course import course

_STATE = "state.pt"


def init() -> int:
    """Join the other workers, by NCCL where each has a GPU and Gloo elsewhere; returns this one's rank.

    Nothing happens where the script joined them already; a single process forms a group of its own.
    """
    if dist.is_initialized():
        return dist.get_rank()
    gpu = torch.cuda.is_available()
    if gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    backend = "nccl" if gpu else "gloo"
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group(backend)
    else:  # no one to meet: no address and no port are needed
        dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
    return dist.get_rank()


def device() -> torch.device:
    """Where this worker's model and batches belong."""
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def parallel(model: torch.nn.Module, **options: Any) -> DistributedDataParallel:
    """The model, its gradients averaged over all workers after each backward pass; `options` are PyTorch's own.

    By all-reduce, or through rank 0 where the job's topology is `ps`.
    """
    init()
    made = DistributedDataParallel(model.to(device()), **options)
    if os.environ.get("MLCD_TOPOLOGY") == "ps" and dist.get_world_size() > 1:
        made.register_comm_hook(None, _by_parameter_server)
    return made


def loader(dataset: Dataset[Any], *, batch_size: int | None = None, seed: int = 0, **options: Any) -> DataLoader[Any]:
    """This worker's share of each global batch, shuffled anew each epoch; `options` are DataLoader's own.

    The global batches are the same however many workers there are: strong scaling changes the speed only. A last batch
    that is not full is left out. Raises ValueError where a batch is larger than the dataset or smaller than the
    number of workers.
    """
    here = course().surroundings
    batch = here.batch if batch_size is None else batch_size
    if batch is None:
        raise ValueError("mlcd.torch.loader: give batch_size=, the batch of all workers together")
    shares = _Shares(dataset, batch=batch, rank=here.rank, workers=here.workers, seed=seed)
    return DataLoader(dataset, batch_sampler=shares, **options)


def checkpoint(**things: Any) -> int:
    """Restore model, optimizer, scheduler and the like, and have them saved; returns the samples already done.

    Takes anything with state_dict and load_state_dict, by a name of your own: model=..., optimizer=... A parallel model
    is saved without its wrapper. Call it on every worker, after init where there are several: the first one reads the
    checkpoint and the others are given what it read, so that they need not share any files.
    """
    for name, thing in things.items():
        if not isinstance(thing, _HasState):
            raise TypeError(f"mlcd.torch.checkpoint: {name} has no state_dict and load_state_dict")
    bare = {
        name: thing.module if isinstance(thing, DistributedDataParallel) else thing for name, thing in things.items()
    }

    def save(folder: Path) -> None:
        state = {name: thing.state_dict() for name, thing in bare.items()}
        with (folder / _STATE).open("wb") as file:
            try:
                torch.save(state, file)
            except RuntimeError as error:  # PyTorch's writer says so when the disk is full
                raise OSError(f"writing {_STATE} failed ({error})") from error

    here = course()
    found = _newest_state(here.surroundings.checkpoint_folder)
    if found is not None:
        samples, state = found
        for name, thing in bare.items():
            thing.load_state_dict(state[name])
        here.restored(samples)
    here.save_by(save)
    return here.samples


def _newest_state(folder: Path | None) -> tuple[int, dict[str, Any]] | None:
    if folder is None:
        return None
    several = dist.is_initialized() and dist.get_world_size() > 1
    given: list[Any] = [None]
    if not several or dist.get_rank() == 0:
        newest = checkpoints.newest(folder)
        if newest is not None:
            state = torch.load(newest.path / _STATE, map_location=device(), weights_only=True)
            given = [(newest.samples, state)]
    if several:
        dist.broadcast_object_list(given, src=0, device=device())
    found: tuple[int, dict[str, Any]] | None = given[0]
    return found


@runtime_checkable
class _HasState(Protocol):
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> Any: ...


class _Shares(Sampler[list[int]]):
    """The indices of this worker's share of each global batch of an epoch."""

    def __init__(self, dataset: object, *, batch: int, rank: int, workers: int, seed: int) -> None:
        if not isinstance(dataset, Sized):
            raise TypeError(
                "mlcd.torch.loader: the dataset has no length; share its stream yourself (mlcd.share_of_batch)"
            )
        self.size, self.batch, self.rank, self.workers, self.seed = len(dataset), batch, rank, workers, seed
        if not workers <= batch <= self.size:
            raise ValueError(
                f"mlcd.torch.loader: a batch of {batch} does not fit {self.size} samples and {workers} workers"
            )
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.size // self.batch

    def __iter__(self) -> Iterator[list[int]]:
        shuffle = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        order = torch.randperm(self.size, generator=shuffle).tolist()
        first = self.rank * self.batch // self.workers
        last = (self.rank + 1) * self.batch // self.workers
        for start in range(0, len(self) * self.batch, self.batch):
            yield order[start + first : start + last]


def _by_parameter_server(_: object, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """A communication hook: every worker sends its gradients to rank 0 and has the mean back from there.

    All of it passes through rank 0's link, as with a parameter server; a collective reduce would spread it.
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
