"""`lithops/BACK_END`: the seam. One epoch of real functions, from the parameters before it to its barrier."""

import json
import math
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlcd import codec
from mlcd.clouds.functions.lithops.call import CallOrder, Faults, ShardSource, Sync
from mlcd.clouds.functions.lithops.invoker import Call, Invoker
from mlcd.clouds.functions.lithops.object_store import ObjectStore
from mlcd.clouds.functions.lithops.objects import EpochTry, ShardUpdate, data_key, outcome_key, run_prefix
from mlcd.clouds.functions.lithops.watch import Broken, CallWatch, Ended, TooManyFailures
from mlcd.clouds.functions.lithops.worker import train_shard
from mlcd.clouds.functions.provider import EpochFailed, EpochOrder
from mlcd.errors import MlcdError, ProviderError
from mlcd.functions import FunctionProblem
from mlcd.trial.call import FunctionCall
from mlcd.trial.epoch import Epoch, Phase
from mlcd.trial.epoch_0_1 import epoch_from_0_1
from mlcd.units import Usd
from mlcd.workloads.data import Layout, Samples

MB_PER_PROCESSOR = 1769
"""AWS Lambda gives one vCPU at this size and a share in proportion below it (its developer guide, 2024)."""

SILENT_SECONDS = 30.0
"""What a call that nobody waited for and that told nothing is taken to have run."""

ENDING_SECONDS = 1.0
"""What is left of an epoch's time to end the calls that still run."""
LAST_PUTS = 2
"""What is asked of the storage after an epoch's bill is made: its outcome, and a listing of what may go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionWorkload:
    """What is trained.

    model    a built-in name, or MODULE:FUNCTION; then `module` is the text of MODULE.py
    pushes   how often a function tells the others of its steps in an epoch
    fan_in   of how many others it takes them in before the barrier
    """

    model: str
    samples: Samples
    rate: float
    sync: Sync = Sync.HSP
    seed: int = 0
    pushes: int = 25
    fan_in: int = 16
    module: bytes = b""


class LithopsCloud:
    """See mlcd.clouds.functions.provider for the contract, docs/serverless.md for the scheme.

    calls   of the last epoch that was run, as they were billed
    folder  where the objects lie on this machine; Lithops' own temporary folder does not outlive it
    """

    simulated = False

    def __init__(
        self,
        *,
        backend: str,
        problem: FunctionProblem,
        workload: FunctionWorkload,
        folder: Path | None = None,
        settings: Mapping[str, Any] | None = None,
        faults: Faults | None = None,
    ) -> None:
        self.name = f"lithops/{backend}"
        self.problem, self.workload = problem, workload
        self.calls: tuple[FunctionCall, ...] = ()
        self._faults = faults or Faults()
        most = max(problem.functions)
        self._invoker = Invoker(backend, most_calls=most + problem.repeats(most), settings=settings)
        self._local = backend == "localhost"
        on_disk = self._invoker.storage.backend == "localhost"
        self._bucket = str(folder.absolute()) if folder and on_disk else ""
        self._shelf = ObjectStore(self._invoker.storage, self._bucket)

    def run_epoch(self, order: EpochOrder) -> Epoch:
        """See the contract."""
        begun, self.calls = time.monotonic(), ()
        puts, gets = self._shelf.puts, self._shelf.gets
        try:
            source, start_key = self._staged(order.run_id), self._start_key(order)
        except MlcdError:
            raise
        except Exception as error:  # each cloud's storage has errors of its own
            raise self._invoker.unusable(error) from error
        trial = EpochTry(run_id=order.run_id, epoch=order.number, token=uuid.uuid4().hex[:12])
        orders = [self._call_order(order, trial, source, start_key, shard) for shard in range(order.fleet.functions)]
        going = _Going(trial=trial, order=order, begun=begun, puts=puts, gets=gets)
        watch = CallWatch(
            lambda some: self._invoke(order, some),
            orders,
            repeats=self.problem.repeats(order.fleet.functions),
            deadline=begun + order.seconds - min(ENDING_SECONDS, 0.1 * order.seconds),
        )
        try:
            watch.until_done(lambda: self.workload.sync is Sync.ASP and self._end(trial) is not None)
            end = self._end(trial)
            if end is None:
                watch.again(orders[0])
                end = self._end(trial)
            seconds = time.monotonic() - begun
        except (TimeoutError, TooManyFailures, Broken) as error:
            self._finish(going, watch)
            raise self._failure(going, error, watch) from error
        except BaseException:
            self._finish(going, watch)
            raise
        self._finish(going, watch)
        if end is None:
            raise ProviderError(f"nothing whole lies below {trial.prefix}end/: the storage lost what was written")
        return self._outcome(going, watch, *end, seconds)

    def restore(self, run_id: str, epochs: Sequence[Epoch]) -> None:
        """Goes on with a run of an earlier process: calls that it left behind are told to end."""
        done = {epoch.number for epoch in epochs}
        prefix = f"{run_prefix(run_id)}epochs/"
        for number, token in sorted({tuple(key[len(prefix) :].split("/")[:2]) for key in self._shelf.keys(prefix)}):
            if int(number) not in done:
                self._shelf.put(EpochTry(run_id=run_id, epoch=int(number), token=token).stop, b"stop")

    def finished(self, run_id: str, number: int) -> Epoch | None:
        """An epoch that had come to its barrier when mlcd died: paid, and not to be run again."""
        found = self._shelf.get(outcome_key(run_id, number))
        return None if found is None else codec.from_json(epoch_from_0_1(json.loads(found)["epoch"]), Epoch)

    def lost(self, order: EpochOrder, *, elapsed_seconds: float) -> Usd:
        """What the calls of an epoch cost that nobody waited for: as long as they told last, and as long again.

        A call that had told nothing yet is charged as the longest that had. Never more than was authorised.
        """
        prefix = f"{run_prefix(order.run_id)}epochs/{order.number:05d}/"
        last: dict[tuple[int, int], str] = {}
        for key in self._shelf.keys(prefix):
            _, _, rest = key[len(prefix) :].partition("/")
            if rest.startswith("part/"):
                part = ShardUpdate.named(rest.removeprefix("part/"))
                last[part.shard, part.attempt] = key
        told = [found[0]["seconds"] for key in last.values() if (found := self._shelf.vector(key)) is not None]
        longest = min(2 * max(told, default=SILENT_SECONDS), elapsed_seconds)
        seconds = [min(2 * each, elapsed_seconds) for each in told]
        seconds += [longest] * max(0, order.fleet.functions - len(seconds))
        count, problem = len(seconds), self.problem
        usd = problem.prices.charge(
            memory_mb=order.fleet.memory_mb,
            call_seconds=seconds,
            puts=count * math.ceil(order.fleet.share * problem.puts_per_function),
            gets=count * math.ceil(order.fleet.share * problem.gets_per_function),
        )
        return min(usd, order.usd)

    def parameters(self, run_id: str, number: int) -> bytes:
        """The parameters that an epoch left, as float32."""
        found = self._shelf.vector(self._params_key(run_id, number))
        if found is None:
            raise ProviderError(f"the parameters of epoch {number} of {run_id} are no longer in storage")
        return found[1].tobytes()

    def close(self) -> None:
        """Ends what still runs."""
        self._invoker.close()

    # ---- before

    def _staged(self, run_id: str) -> ShardSource:
        """The samples and the user's module in storage, put there once a run."""
        samples = self.workload.samples
        objects = {"x": samples.x.tobytes(), "y": samples.y.tobytes()}
        if self.workload.module:
            objects["model.py"] = self.workload.module
        there = set(self._shelf.keys(data_key(run_id, "")))
        for name, data in objects.items():
            if data_key(run_id, name) not in there:
                self._shelf.put(data_key(run_id, name), data)
        return ShardSource(
            x_key=data_key(run_id, "x"),
            y_key=data_key(run_id, "y"),
            x=Layout.of(samples.x),
            y=Layout.of(samples.y),
            rows=samples.train_rows,
            held=samples.held,
            model=self.workload.model,
            module_key=data_key(run_id, "model.py") if self.workload.module else "",
        )

    def _start_key(self, order: EpochOrder) -> str:
        return self._params_key(order.run_id, order.number - 1) if order.number > 1 else ""

    def _params_key(self, run_id: str, number: int) -> str:
        found = self._shelf.get(outcome_key(run_id, number))
        if found is None:
            raise ProviderError(f"the parameters of epoch {number} of {run_id} are no longer in storage")
        key: str = json.loads(found)["parameters"]
        return key

    def _call_order(
        self, order: EpochOrder, trial: EpochTry, source: ShardSource, start_key: str, shard: int
    ) -> CallOrder:
        problem, workload, memory = self.problem, self.workload, order.fleet.memory_mb
        return CallOrder(
            trial=trial,
            source=source,
            shard=shard,
            shards=order.fleet.functions,
            attempt=1,
            start_key=start_key,
            sync=workload.sync,
            share=order.fleet.share,
            batch=problem.batch,
            rate=workload.rate,
            seed=workload.seed,
            pushes=math.ceil(order.fleet.share * workload.pushes),
            fan_in=workload.fan_in,
            seconds=min(problem.limit_seconds, order.seconds),
            memory_mb=memory,
            most_puts=problem.puts_per_function,
            most_gets=problem.gets_per_function,
            bucket=self._bucket,
            processor_share=min(1.0, memory / MB_PER_PROCESSOR) if self._local else None,
            faults=self._faults,
        )

    def _invoke(self, order: EpochOrder, orders: Sequence[CallOrder]) -> list[Call]:
        seconds = max(some.seconds for some in orders)
        return self._invoker.call(train_shard, orders, memory_mb=order.fleet.memory_mb, seconds=seconds)

    # ---- after

    def _end(self, trial: EpochTry) -> tuple[str, dict[str, Any]] | None:
        """(key, header) of the first parameters that are whole: another closer may be writing still."""
        for key in self._shelf.keys(f"{trial.prefix}end/"):
            found = self._shelf.vector(key)
            if found is not None:
                return key, found[0]
        return None

    def _finish(self, going: "_Going", watch: CallWatch) -> None:
        """Nobody is left running; what the calls cost is known."""
        left = watch.abandon()
        if left:
            self._shelf.put(going.trial.stop, b"stop")
            going.killed = self._invoker.end([running.call for running in left])
        self.calls = tuple(self._billed(going, ended) for ended in watch.ended)

    def _billed(self, going: "_Going", ended: Ended) -> FunctionCall:
        order, report, prices = ended.order, ended.report, self.problem.prices
        seconds = ended.wall_seconds
        if ended.answer is None and not going.killed:
            seconds = order.seconds  # it ends at its limit at the latest, and nobody waits to see when
        elif ended.answer is not None and ended.answer.seconds is not None:
            seconds = ended.answer.seconds
        puts, gets = (report.puts, report.gets) if report else (order.most_puts, order.most_gets)
        usd = prices.usd_per_second(order.memory_mb) * prices.billed_seconds(seconds) + prices.usd_per_request
        usd += prices.usd_per_put * puts + prices.usd_per_get * gets
        ending = "overtaken" if ended.answer is None else "failed" if ended.problem else "done"
        if report is not None and ending == "done" and not (report.done or report.closed):
            ending = "handed-over"
        return FunctionCall(
            epoch=going.order.number,
            shard=order.shard,
            attempt=order.attempt,
            memory_mb=order.memory_mb,
            seconds=seconds,
            usd=usd,
            fetch_seconds=report.fetch_seconds if report else 0.0,
            compute_seconds=report.compute_seconds if report else 0.0,
            update_seconds=report.update_seconds if report else 0.0,
            waited_seconds=report.waited_seconds if report else 0.0,
            puts=puts,
            gets=gets,
            cold=bool(ended.answer and ended.answer.cold),
            ending=ending,
            peak_mb=report.peak_mb if report else None,
            message=ended.problem,
        )

    def _usd(self, going: "_Going") -> Usd:
        """All calls, and what mlcd itself asked of the storage."""
        prices = self.problem.prices
        puts, gets = self._shelf.puts - going.puts + LAST_PUTS, self._shelf.gets - going.gets
        own = prices.usd_per_put * puts + prices.usd_per_get * gets
        return Usd.of(sum((call.usd for call in self.calls), own))

    def _failure(self, going: "_Going", error: Exception, watch: CallWatch) -> EpochFailed:
        seconds = min(time.monotonic() - going.begun, going.order.seconds)
        if isinstance(error, TimeoutError):
            message = f"the epoch was ended after {going.order.seconds:.0f} s, all that was authorised"
        elif isinstance(error, Broken):
            message = str(error)
        else:
            failed = sum(bool(ended.problem) for ended in watch.ended)
            count = going.order.fleet.functions
            message = f"{failed} of {count} calls failed, more than may be repeated; the last: {error}"
        return EpochFailed(message, seconds=seconds, usd=self._usd(going), hopeless=isinstance(error, Broken))

    def _outcome(
        self, going: "_Going", watch: CallWatch, end_key: str, header: dict[str, Any], seconds: float
    ) -> Epoch:
        loss = float(header["loss"])
        if not math.isfinite(loss):
            raise EpochFailed(
                f"the loss is {loss} after epoch {going.order.number}; a smaller workload.rate may help",
                seconds=seconds,
                usd=self._usd(going),
                hopeless=True,
            )
        epoch = self._epoch(going, watch, loss, seconds)
        record = {"parameters": end_key, "steps": header["steps"], "epoch": codec.to_json(epoch)}
        self._shelf.put(outcome_key(going.order.run_id, epoch.number), json.dumps(record).encode())
        self._tidy(going.trial, end_key)
        return epoch

    def _epoch(self, going: "_Going", watch: CallWatch, loss: float, seconds: float) -> Epoch:
        order = going.order
        told = [ended.report for ended in watch.ended if ended.report is not None]
        memory = order.fleet.memory_mb
        processors = max(memory / MB_PER_PROCESSOR, 0.01) if not self._local else min(1.0, memory / MB_PER_PROCESSOR)
        busy, ran = sum(report.cpu_seconds for report in told), sum(report.seconds for report in told)
        return Epoch(
            number=order.number,
            fleet=order.fleet,
            loss=loss,
            seconds=seconds,
            usd=self._usd(going),
            fetch=_phase([report.fetch_seconds for report in told]),
            compute=_phase([report.compute_seconds for report in told]),
            update=_phase([report.update_seconds for report in told]),
            calls=len(watch.ended),
            failed=watch.repeated,
            cold_starts=sum(call.cold for call in self.calls),
            memory_share=max(report.peak_mb for report in told) / memory,
            cpu_share=busy / ran / processors if ran > 0 else None,
        )

    def _tidy(self, trial: EpochTry, end_key: str) -> None:
        """Keeps the parameters of each epoch, and nothing of how they came about."""
        prefix = trial.prefix.removesuffix(f"{trial.token}/")
        self._shelf.delete([key for key in self._shelf.keys(prefix) if key != end_key and not key.endswith("/stop")])


@dataclass(slots=True, kw_only=True)
class _Going:
    trial: EpochTry
    order: EpochOrder
    begun: float
    puts: int
    gets: int
    killed: bool = field(default=False)


def _phase(seconds: list[float]) -> Phase:
    return Phase(mean_seconds=sum(seconds) / len(seconds), max_seconds=max(seconds))
