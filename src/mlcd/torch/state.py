"""Checkpoints of objects with a state_dict."""

from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from mlcd.torch.group import device
from mlcd.training import checkpoints
from mlcd.training.training_progress import current_progress

_STATE = "state.pt"
_RATES = "mlcd.learning_rates"


def checkpoint(**things: Any) -> int:
    """Restore model, optimizer, scheduler and the like, and save them from now on; returns the samples already done.

    Takes anything with state_dict and load_state_dict, by a name of your own: model=..., optimizer=... A parallel model
    is saved without its wrapper. Call it on every worker, after init where there are several: the first worker reads
    the checkpoint and sends it to the others, so that they need not share any files.

    An optimizer's learning rate is restored, times the ratio of its initial rate now to its initial rate then. So a
    training that continues with another batch uses the rate of that batch, and a schedule keeps its position.
    """
    for name, thing in things.items():
        if not isinstance(thing, _HasState):
            raise TypeError(f"mlcd.torch.checkpoint: {name} has no state_dict and load_state_dict")
    bare = {
        name: thing.module if isinstance(thing, DistributedDataParallel) else thing for name, thing in things.items()
    }

    rates = {
        name: [g.get("initial_lr", g["lr"]) for g in thing.param_groups]  # a schedule may start at 0
        for name, thing in bare.items()
        if isinstance(thing, torch.optim.Optimizer)
    }

    def save(folder: Path) -> None:
        state: dict[str, Any] = {name: thing.state_dict() for name, thing in bare.items()}
        state[_RATES] = rates
        with (folder / _STATE).open("wb") as file:
            try:
                torch.save(state, file)
            except RuntimeError as error:  # raised by PyTorch's writer when the disk is full
                raise OSError(f"writing {_STATE} failed ({error})") from error

    here = current_progress()
    found = _newest_state(here.env.checkpoint_folder)
    if found is not None:
        samples, state = found
        for name, thing in bare.items():
            thing.load_state_dict(state[name])
        _rescale(bare, rates, state.get(_RATES, {}))
        here.restored(samples)
    here.save_with(save)
    return here.samples


def _rescale(things: dict[str, Any], now: dict[str, list[float]], then: dict[str, list[float]]) -> None:
    for name, rates in now.items():
        factors = [
            made_now / made_then if made_then else 1.0
            for made_now, made_then in zip(rates, then.get(name, rates), strict=True)
        ]
        for group, factor in zip(things[name].param_groups, factors, strict=True):
            for key in group.keys() & {"lr", "initial_lr"}:
                group[key] *= factor
        for thing in things.values():
            if getattr(thing, "optimizer", None) is things[name] and hasattr(thing, "base_lrs"):
                thing.base_lrs = [base * factor for base, factor in zip(thing.base_lrs, factors, strict=True)]


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
