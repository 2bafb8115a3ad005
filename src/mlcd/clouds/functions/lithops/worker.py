"""The function: data-parallel mini-batch SGD on one shard, with no memory but object storage."""

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
from mlcd.workloads.data import shard
from mlcd.workloads.model import BUILT_IN, Floats, Model, NotAModel, Rows, built_in, checked

POLL_SECONDS = 0.02
"""Between the first two looks at whether the others are there (BSP); later looks are further apart."""
LONGEST_POLL_SECONDS = 0.5
HAND_OVER_SECONDS = 2.0
"""A call that has no more time left than this, or than a twentieth of it, hands the rest of its shard over."""


class Injected(Exception):
    """A failure made on purpose."""


def train_shard(order: CallOrder, storage: Any) -> CallReport:
    """What Lithops runs. Nothing that it does twice counts twice: see replica.py."""
    call = _Call(order, storage)
    try:
        return call.run()
    except NotAModel as error:
        return call.report(broken=str(error))
    except Exception as error:  # the edge: whatever it is, what the call has used is told with it
        return call.report(failed=f"{type(error).__name__}: {error}")


def local_batch(batch: int, shards: int) -> int:
    """The functions' shares of a mini-batch: n functions make a step of the whole batch together."""
    return math.ceil(batch / shards)


def part_rows(order: CallOrder, index: int) -> tuple[int, int]:
    """(first, last) of the rows of shard `index`: all of it, or in a part of an epoch one of the blocks it falls into.

    The same for all that ask, and another by chance in each epoch.
    """
    first, last = shard(order.source.rows, order.shards, index)
    size = max(1, math.ceil(order.share * (last - first) - 1e-9))
    blocks = max(1, (last - first) // size)
    first += size * int(np.random.default_rng([order.seed, order.trial.epoch, index]).integers(blocks))
    return first, min(first + size, last)


def shard_steps(order: CallOrder, index: int) -> int:
    """Steps of one shard, about as many for any number of functions."""
    first, last = part_rows(order, index)
    return math.ceil((last - first) / local_batch(order.batch, order.shards))


class _Call:
    def __init__(self, order: CallOrder, storage: Any) -> None:
        self._order = order
        self._shelf = ObjectStore(storage, order.bucket, most_puts=order.most_puts, most_gets=order.most_gets)
        self._begun, self._cpu_begun = time.monotonic(), time.process_time()
        self._spent = {"fetch": 0.0, "compute": 0.0, "update": 0.0, "wait": 0.0}
        self._steps = shard_steps(order, order.shard)
        self._step = self._pushed = 0
        self._closed = False

    def run(self) -> CallReport:
        order = self._order
        with self._timed("fetch"):
            model = load_model(order.source, self._shelf)
            start = self._start(model)
            x, y = self._rows(*part_rows(order, order.shard))
        replica = Replica(start, order.shard)
        with self._timed("update"):
            board = self._resume(replica)
        for step in self._to_do(board):
            self._trouble(step)
            with self._timed("compute"):
                rows = self._batch(step, len(y))
                replica.step(self._change(model, replica.parameters, x[rows], y[rows]))
            self._step = step + 1
            self._keep_pace()
            if not self._is_push(step + 1):
                continue
            with self._timed("update"):
                board = self._push(replica)
            if board.stopped or board.ends or (order.sync is Sync.ASP and complete(board, order)):
                break
            if self._is_late():
                return self.report()
        with self._timed("update"):
            self._close(model, start, board)
        return self.report()

    # ---- reading

    def _start(self, model: Model) -> Floats:
        if not self._order.start_key:
            made = np.asarray(model.start(self._order.seed), dtype=np.float32)
            if made.ndim != 1:
                raise NotAModel(f"start() gave an array of shape {made.shape}; parameters are one flat vector")
            return made
        found = self._shelf.vector(self._order.start_key)
        if found is None:
            raise FileNotFoundError(f"the parameters {self._order.start_key} are not in storage")
        return found[1]

    def _rows(self, first: int, last: int) -> tuple[Rows, Rows]:
        source, arrays = self._order.source, []
        for key, layout in ((source.x_key, source.x), (source.y_key, source.y)):
            data = self._shelf.get(key, layout.span(first, last))
            if data is None:
                raise FileNotFoundError(f"the samples {key} are not in storage")
            arrays.append(layout.rows(data))
        return arrays[0], arrays[1]

    def _resume(self, replica: Replica) -> EpochListing:
        """What is there already: of this shard from an earlier attempt, and of the others."""
        order = self._order
        board = self._look()
        mine = board.furthest.get(order.shard)
        if mine is not None and (found := self._shelf.vector(order.trial.part(mine))) is not None:
            replica.adopt(found[1])
            self._step = self._pushed = mine.step
        if order.sync is not Sync.BSP or self._step:
            self._merge(replica, board)
        return board

    # ---- steps

    def _to_do(self, board: EpochListing) -> Iterator[int]:
        """The steps of this shard; in ASP it goes round again until the epoch has all its steps."""
        step = self._step
        while not (board.stopped or board.ends) and (step < self._steps or self._order.sync is Sync.ASP):
            yield step
            step += 1

    def _change(self, model: Model, parameters: Floats, x: Rows, y: Rows) -> Floats:
        gradient = np.asarray(model.gradient(parameters, x, y), dtype=np.float32)
        if gradient.shape != parameters.shape:
            raise NotAModel(f"gradient() gave the shape {gradient.shape}; the parameters have {parameters.shape}")
        if self._order.processor_share is not None and (peak := _peak_mb()) > self._order.memory_mb:
            raise MemoryError(f"{peak:.0f} MB were used, and the function has {self._order.memory_mb} MB")
        return np.asarray(-self._order.rate / self._order.shards * gradient, dtype=np.float32)

    def _batch(self, step: int, rows: int) -> NDArray[np.int64]:
        """The rows of a step: the shard in another order each epoch and round, the same for each attempt."""
        order = self._order
        round_, at = divmod(step, self._steps)
        mixed = np.random.default_rng([order.seed, order.trial.epoch, order.shard, round_]).permutation(rows)
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

    def _keep_pace(self) -> None:
        """Pauses until no more processor time was used than the memory pays for, as clouds do by quota."""
        share = self._order.processor_share
        if share is None or share >= 1:
            return
        ahead = (time.process_time() - self._cpu_begun) / share - (time.monotonic() - self._begun)
        if ahead > 0:
            with self._timed("compute"):
                time.sleep(ahead)

    def _trouble(self, step: int) -> None:
        faults, order = self._order.faults, self._order
        if order.attempt == 1 and _chance(faults.seed, "fail", order.trial.epoch, order.shard) < faults.fail_share:
            at = int(_chance(faults.seed, "at", order.trial.epoch, order.shard) * self._steps)
            if step >= at:
                raise Injected(f"shard {order.shard} fails at step {step}, on purpose")
        slow = order.shard in faults.slow_shards and order.attempt == 1
        if slow or _chance(faults.seed, "pause", order.trial.epoch, order.shard, step) < faults.pause_share:
            with self._timed("compute"):
                time.sleep(faults.pause_seconds)

    # ---- the others

    def _push(self, replica: Replica) -> EpochListing:
        """Tells the others, then takes in what they told; BSP waits until all have made this step."""
        order = self._order
        header = {"steps": self._step, "seconds": round(time.monotonic() - self._begun, 3)}
        key = order.trial.part(ShardUpdate(order.shard, self._step, order.attempt))
        self._shelf.put(key, frame(header, replica.own))
        self._pushed = self._step
        board = self._look()
        if order.sync is Sync.BSP:
            board = self._await_all(board)
        if self._step < self._steps or order.sync is Sync.ASP:
            self._merge(replica, board)
        return board

    def _await_all(self, board: EpochListing) -> EpochListing:
        order, begun = self._order, time.monotonic()
        wanted = [(index, min(self._step, shard_steps(order, index))) for index in range(order.shards)]
        pause = POLL_SECONDS
        while not (board.stopped or self._is_late() or all(board.steps(index) >= steps for index, steps in wanted)):
            time.sleep(pause)
            pause = min(pause * 1.3, LONGEST_POLL_SECONDS)
            board = self._look()
        self._spent["wait"] += time.monotonic() - begun
        return board

    def _merge(self, replica: Replica, board: EpochListing) -> None:
        order = self._order
        reach = order.shards - 1 if order.sync is Sync.BSP else min(order.fan_in, order.shards - 1)
        near = (board.furthest.get((order.shard + distance) % order.shards) for distance in range(1, reach + 1))
        newer = [part for part in near if part is not None and part.step > replica.known_steps(part.shard)]
        for part, found in zip(newer, self._shelf.vectors([order.trial.part(p) for p in newer]), strict=True):
            if found is not None:
                replica.merge(part.shard, part.step, found[1])

    def _look(self) -> EpochListing:
        return EpochListing(self._order.trial, self._shelf.keys(self._order.trial.prefix))

    # ---- the barrier

    def _close(self, model: Model, start: Floats, board: EpochListing) -> None:
        """Who finds that all shards are there adds them up and tells the loss. Two may, and come to the same."""
        order = self._order
        if board.stopped or board.ends or (parts := complete(board, order)) is None:
            return
        found = self._shelf.vectors([order.trial.part(part) for part in parts])
        if any(each is None for each in found):
            return  # still being written: its writer will look after us, and close
        parameters = closed(start, [each[1] for each in found if each is not None])
        x, y = self._rows(order.source.rows, order.source.rows + order.source.held)
        header = {"loss": float(model.loss(parameters, x, y)), "steps": sum(part.step for part in parts)}
        self._shelf.put(order.trial.end(order.shard, order.attempt), frame(header, parameters))
        self._closed = True

    # ---- telling

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
            puts=self._shelf.puts,
            gets=self._shelf.gets,
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


def complete(board: EpochListing, order: CallOrder) -> list[ShardUpdate] | None:
    """The parts that make up the epoch, one a shard, or None where it is not over."""
    found = []
    if order.sync is Sync.ASP:
        total = sum(shard_steps(order, index) for index in range(order.shards))
        there = [board.furthest[index] for index in sorted(board.furthest)]
        return there if sum(part.step for part in there) >= total else None
    for index in range(order.shards):
        part = board.furthest.get(index)
        if part is None or part.step < shard_steps(order, index):
            return None
        found.append(part)
    return found


def load_model(source: ShardSource, shelf: ObjectStore) -> Model:
    """The model to train. The user's own file is imported here, in a folder of its own, and nowhere else.

    Raises NotAModel with the reason.
    """
    if source.model in BUILT_IN:
        return built_in(source.model)
    name, _, attribute = source.model.partition(":")
    code = shelf.get(source.module_key)
    if code is None:
        raise FileNotFoundError(f"the module {source.module_key} is not in storage")
    with tempfile.TemporaryDirectory(prefix="mlcd-model-") as folder:
        path = Path(folder) / f"{name}.py"
        path.write_bytes(code)
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise NotAModel(f"{name} is not a module's name")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
            made = getattr(module, attribute)()
        except Exception as error:  # whatever the user's code does wrong is the user's to read
            raise NotAModel(f"{source.model}: {type(error).__name__}: {error}") from error
    return checked(made, source.model)


def _peak_mb() -> float:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _chance(*key: object) -> float:
    """A number in [0, 1), always the same for the same key."""
    digest = hashlib.sha256(repr(key).encode()).digest()
    return int.from_bytes(digest[:7], "big") / 2**56
