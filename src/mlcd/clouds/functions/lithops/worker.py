"""The function: data-parallel mini-batch SGD on one shard; its only state is in object storage."""

import hashlib
import importlib.util
import math
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcd.clouds.functions.lithops.call import CallOrder, CallReport, ShardSource, Sync
from mlcd.clouds.functions.lithops.object_store import EpochListing, ObjectStore
from mlcd.clouds.functions.lithops.objects import ShardUpdate, frame
from mlcd.clouds.functions.lithops.replica import Replica, closed
from mlcd.version import __version__
from mlcd.workloads.data import shard
from mlcd.workloads.model import BUILT_IN, Floats, Model, NotAModel, Rows, built_in, checked

POLL_SECONDS = 0.02
"""The first interval at which BSP polls for the other shards; later intervals are longer."""
LONGEST_POLL_SECONDS = 0.5
HAND_OVER_SECONDS = 2.0
"""A call with less time remaining than this, or than 5% of its time, hands the rest of its shard over."""


class InjectedFailure(Exception):
    """A failure injected on purpose (Faults)."""


def train_shard(order: CallOrder, storage: Any) -> CallReport:
    """The function that Lithops runs. Work that is done twice counts once: see replica.py."""
    call = _Call(order, storage)
    if order.mlcd_version != __version__:
        return call.report(
            broken=f"the functions' runtime has mlcd {__version__} installed, the run uses mlcd {order.mlcd_version};"
            f" build a runtime with mlcd {order.mlcd_version}, or without mlcd: it is then sent with each call"
        )
    try:
        return call.run()
    except NotAModel as error:
        return call.report(broken=str(error))
    except Exception as error:  # the edge: whatever fails, the report includes what the call has used
        return call.report(failed=f"{type(error).__name__}: {error}")


def local_batch(batch: int, shards: int) -> int:
    """Each function's share of a mini-batch: together, n functions make a step of the whole batch."""
    return math.ceil(batch / shards)


def part_rows(order: CallOrder, index: int) -> tuple[int, int]:
    """(first, last) of the rows of shard `index`: all of them, or in a part of an epoch one of the shard's blocks.

    All functions compute the same block; it is drawn anew in each epoch.
    """
    first, last = shard(order.source.rows, order.shards, index)
    size = max(1, math.ceil(order.share * (last - first) - 1e-9))
    blocks = max(1, (last - first) // size)
    first += size * int(np.random.default_rng([order.seed, order.epoch_try.epoch, index]).integers(blocks))
    return first, min(first + size, last)


def shard_steps(order: CallOrder, index: int) -> int:
    """The number of steps of one shard, about the same for any number of functions."""
    first, last = part_rows(order, index)
    return math.ceil((last - first) / local_batch(order.batch, order.shards))


class _Call:
    def __init__(self, order: CallOrder, storage: Any) -> None:
        self._order = order
        self._store = ObjectStore(storage, order.bucket, most_puts=order.most_puts, most_gets=order.most_gets)
        self._begun, self._cpu_begun = time.monotonic(), time.process_time()
        self._spent = {"fetch": 0.0, "compute": 0.0, "update": 0.0, "wait": 0.0}
        self._steps = shard_steps(order, order.shard)
        self._step = self._pushed = 0
        self._closed = False

    def run(self) -> CallReport:
        order = self._order
        with self._timed("fetch"):
            model = load_model(order.source, self._store)
            start = self._start(model)
            x, y = self._rows(*part_rows(order, order.shard))
        replica = Replica(start, order.shard)
        with self._timed("update"):
            listing = self._resume(replica)
        for step in self._steps_to_do(listing):
            self._inject_faults(step)
            with self._timed("compute"):
                rows = self._batch(step, len(y))
                replica.step(self._change(model, replica.parameters, x[rows], y[rows]))
            self._step = step + 1
            self._throttle()
            if not self._is_push(step + 1):
                continue
            with self._timed("update"):
                listing = self._push(replica)
            if listing.stopped or listing.ends or (order.sync is Sync.ASP and complete(listing, order)):
                break
            if self._is_late():
                return self.report()
        with self._timed("update"):
            self._close(model, start, listing)
        return self.report()

    # ---- reading

    def _start(self, model: Model) -> Floats:
        if not self._order.start_key:
            made = np.asarray(model.start(self._order.seed), dtype=np.float32)
            if made.ndim != 1:
                raise NotAModel(f"start() returned an array of shape {made.shape}; parameters must be one flat vector")
            return made
        found = self._store.vector(self._order.start_key)
        if found is None:
            raise FileNotFoundError(f"the parameters {self._order.start_key} are not in storage")
        return found[1]

    def _rows(self, first: int, last: int) -> tuple[Rows, Rows]:
        source, arrays = self._order.source, []
        for key, layout in ((source.x_key, source.x), (source.y_key, source.y)):
            data = self._store.get(key, layout.span(first, last))
            if data is None:
                raise FileNotFoundError(f"the samples {key} are not in storage")
            arrays.append(layout.rows(data))
        return arrays[0], arrays[1]

    def _resume(self, replica: Replica) -> EpochListing:
        """Load what is already in storage: this shard's part from an earlier attempt, and the others' parts."""
        order = self._order
        listing = self._list_epoch()
        mine = listing.furthest.get(order.shard)
        if mine is not None and (found := self._store.vector(order.epoch_try.part(mine))) is not None:
            replica.adopt(found[1])
            self._step = self._pushed = mine.step
        if order.sync is not Sync.BSP or self._step:
            self._merge(replica, listing)
        return listing

    # ---- steps

    def _steps_to_do(self, listing: EpochListing) -> Iterator[int]:
        """The steps of this shard; in ASP it repeats them until the epoch has all its steps."""
        step = self._step
        while not (listing.stopped or listing.ends) and (step < self._steps or self._order.sync is Sync.ASP):
            yield step
            step += 1

    def _change(self, model: Model, parameters: Floats, x: Rows, y: Rows) -> Floats:
        gradient = np.asarray(model.gradient(parameters, x, y), dtype=np.float32)
        if gradient.shape != parameters.shape:
            raise NotAModel(f"gradient() returned the shape {gradient.shape}; the parameters have {parameters.shape}")
        if self._order.processor_share is not None and (peak := _peak_mb()) > self._order.memory_mb:
            raise MemoryError(f"used {peak:.0f} MB; the function has {self._order.memory_mb} MB")
        return np.asarray(-self._order.rate / self._order.shards * gradient, dtype=np.float32)

    def _batch(self, step: int, rows: int) -> NDArray[np.int64]:
        """The rows of a step: the shard is shuffled anew in each epoch and round, but equally for each attempt."""
        order = self._order
        round_, at = divmod(step, self._steps)
        mixed = np.random.default_rng([order.seed, order.epoch_try.epoch, order.shard, round_]).permutation(rows)
        size = local_batch(order.batch, order.shards)
        return mixed[at * size : (at + 1) * size]

    def _is_push(self, step: int) -> bool:
        order = self._order
        if order.sync is Sync.BSP or step >= self._steps or self._is_late():
            return True
        return step * order.pushes // self._steps > (step - 1) * order.pushes // self._steps

    def _is_late(self) -> bool:
        room = max(HAND_OVER_SECONDS, 0.05 * self._order.seconds)
        return time.monotonic() - self._begun > self._order.seconds - room

    def _throttle(self) -> None:
        """Pause until the CPU time used is within what the memory size pays for, like a cloud's quota."""
        share = self._order.processor_share
        if share is None or share >= 1:
            return
        ahead = (time.process_time() - self._cpu_begun) / share - (time.monotonic() - self._begun)
        if ahead > 0:
            with self._timed("compute"):
                time.sleep(ahead)

    def _inject_faults(self, step: int) -> None:
        faults, order = self._order.faults, self._order
        if order.attempt == 1 and _chance(faults.seed, "fail", order.epoch_try.epoch, order.shard) < faults.fail_share:
            at = int(_chance(faults.seed, "at", order.epoch_try.epoch, order.shard) * self._steps)
            if step >= at:
                raise InjectedFailure(f"injected failure of shard {order.shard} at step {step}")
        slow = order.shard in faults.slow_shards and order.attempt == 1
        if slow or _chance(faults.seed, "pause", order.epoch_try.epoch, order.shard, step) < faults.pause_share:
            with self._timed("compute"):
                time.sleep(faults.pause_seconds)

    # ---- exchange with the other shards

    def _push(self, replica: Replica) -> EpochListing:
        """Push this shard's part, then merge the others'; BSP waits until all have made this step."""
        order = self._order
        header = {"steps": self._step, "seconds": round(time.monotonic() - self._begun, 3)}
        key = order.epoch_try.part(ShardUpdate(order.shard, self._step, order.attempt))
        self._store.put(key, frame(header, replica.own))
        self._pushed = self._step
        listing = self._list_epoch()
        if order.sync is Sync.BSP:
            listing = self._await_all(listing)
        if self._step < self._steps or order.sync is Sync.ASP:
            self._merge(replica, listing)
        return listing

    def _await_all(self, listing: EpochListing) -> EpochListing:
        order, begun = self._order, time.monotonic()
        wanted = [(index, min(self._step, shard_steps(order, index))) for index in range(order.shards)]
        pause = POLL_SECONDS
        while not (listing.stopped or self._is_late() or all(listing.steps(index) >= steps for index, steps in wanted)):
            time.sleep(pause)
            pause = min(pause * 1.3, LONGEST_POLL_SECONDS)
            listing = self._list_epoch()
        self._spent["wait"] += time.monotonic() - begun
        return listing

    def _merge(self, replica: Replica, listing: EpochListing) -> None:
        order = self._order
        reach = order.shards - 1 if order.sync is Sync.BSP else min(order.fan_in, order.shards - 1)
        near = (listing.furthest.get((order.shard + distance) % order.shards) for distance in range(1, reach + 1))
        newer = [part for part in near if part is not None and part.step > replica.known_steps(part.shard)]
        for part, found in zip(newer, self._store.vectors([order.epoch_try.part(p) for p in newer]), strict=True):
            if found is not None:
                replica.merge(part.shard, part.step, found[1])

    def _list_epoch(self) -> EpochListing:
        return EpochListing(self._order.epoch_try, self._store.keys(self._order.epoch_try.prefix))

    # ---- the barrier

    def _close(self, model: Model, start: Floats, listing: EpochListing) -> None:
        """The call that finds all shards complete sums them and measures the loss. Two may do so, with one result."""
        order = self._order
        if listing.stopped or listing.ends or (parts := complete(listing, order)) is None:
            return
        found = self._store.vectors([order.epoch_try.part(part) for part in parts])
        if any(each is None for each in found):
            return  # still being written: its writer will check after this call, and close
        parameters = closed(start, [each[1] for each in found if each is not None])
        x, y = self._rows(order.source.rows, order.source.rows + order.source.held)
        header = {"loss": float(model.loss(parameters, x, y)), "steps": sum(part.step for part in parts)}
        self._store.put(order.epoch_try.end(order.shard, order.attempt), frame(header, parameters))
        self._closed = True

    # ---- reporting

    def _timed(self, phase: str) -> "_Timed":
        return _Timed(self._spent, phase)

    def report(self, *, failed: str = "", broken: str = "") -> CallReport:
        order, spent = self._order, self._spent
        return CallReport(
            shard=order.shard,
            attempt=order.attempt,
            steps=self._pushed,
            done=self._pushed >= self._steps,
            closed=self._closed,
            seconds=time.monotonic() - self._begun,
            fetch_seconds=spent["fetch"],
            compute_seconds=spent["compute"],
            update_seconds=spent["update"],
            waited_seconds=spent["wait"],
            cpu_seconds=time.process_time() - self._cpu_begun,
            peak_mb=_peak_mb(),
            puts=self._store.puts,
            gets=self._store.gets,
            failed=failed,
            broken=broken,
        )


class _Timed:
    """Adds the time inside it to a phase."""

    def __init__(self, spent: dict[str, float], phase: str) -> None:
        self._spent, self._phase = spent, phase

    def __enter__(self) -> None:
        self._begun = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self._spent[self._phase] += time.monotonic() - self._begun


def complete(listing: EpochListing, order: CallOrder) -> list[ShardUpdate] | None:
    """The parts that make up the epoch, one per shard, or None where it is not complete."""
    found = []
    if order.sync is Sync.ASP:
        total = sum(shard_steps(order, index) for index in range(order.shards))
        there = [listing.furthest[index] for index in sorted(listing.furthest)]
        return there if sum(part.step for part in there) >= total else None
    for index in range(order.shards):
        part = listing.furthest.get(index)
        if part is None or part.step < shard_steps(order, index):
            return None
        found.append(part)
    return found


def load_model(source: ShardSource, store: ObjectStore) -> Model:
    """The model to train. The user's own file is imported only here, from a temporary folder.

    Raises NotAModel with the reason.
    """
    if source.model in BUILT_IN:
        return built_in(source.model)
    name, _, attribute = source.model.partition(":")
    code = store.get(source.module_key)
    if code is None:
        raise FileNotFoundError(f"the module {source.module_key} is not in storage")
    with tempfile.TemporaryDirectory(prefix="mlcd-model-") as folder:
        path = Path(folder) / f"{name}.py"
        path.write_bytes(code)
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise NotAModel(f"{name!r} is not a module name")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
            made = getattr(module, attribute)()
        except Exception as error:  # any error of the user's code is reported to the user
            raise NotAModel(f"{source.model}: {type(error).__name__}: {error}") from error
    return checked(made, source.model)


def _peak_mb() -> float:
    """The peak memory of this process, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _chance(*key: object) -> float:
    """A number in [0, 1), always the same for the same key."""
    digest = hashlib.sha256(repr(key).encode()).digest()
    return int.from_bytes(digest[:7], "big") / 2**56
