"""Global batches, which do not depend on the number of workers, and each worker's share of them."""

from collections.abc import Iterator, Sized
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from mlcd.training.training_progress import current_progress


def loader(dataset: Dataset[Any], *, batch_size: int | None = None, seed: int = 0, **options: Any) -> DataLoader[Any]:
    """This worker's share of each global batch, reshuffled each epoch; `options` are DataLoader's own.

    The global batches are the same for any number of workers: strong scaling changes the speed only. An incomplete
    last batch is dropped. Raises ValueError where a batch is larger than the dataset or smaller than the number of
    workers.
    """
    here = current_progress().env
    batch = here.batch if batch_size is None else batch_size
    if batch is None:
        raise ValueError("mlcd.torch.loader: give batch_size=, the batch of all workers together")
    shares = _Shares(dataset, batch=batch, rank=here.rank, workers=here.workers, seed=seed)
    return DataLoader(dataset, batch_sampler=shares, **options)


class _Shares(Sampler[list[int]]):
    """The indices of this worker's share of each global batch of an epoch, as a batch sampler."""

    def __init__(self, dataset: object, *, batch: int, rank: int, workers: int, seed: int) -> None:
        if not isinstance(dataset, Sized):
            raise TypeError(
                "mlcd.torch.loader: the dataset has no length; divide its stream yourself (mlcd.share_of_batch)"
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
