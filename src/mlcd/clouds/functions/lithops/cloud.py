"""`lithops/BACK_END` as a FunctionCloud: runs one epoch of real functions to its barrier."""

import json
import math
import re
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
from mlcd.clouds.functions.lithops.watch import CallWatch, Ended, TooManyFailures, UntrainableModel
from mlcd.clouds.functions.lithops.worker import train_shard
from mlcd.clouds.functions.provider import EpochFailed, EpochOrder
from mlcd.errors import MlcdError, ProviderError
from mlcd.functions import FunctionProblem
from mlcd.trial.call import FunctionCall
from mlcd.trial.epoch import Epoch, Phase
from mlcd.trial.epoch_0_1 import epoch_from_0_1
from mlcd.units import Usd
from mlcd.untrusted import Fields, Malformed, parse_json
from mlcd.workloads.data import Layout, Samples

MB_PER_PROCESSOR = 1769
"""AWS Lambda gives one vCPU at this size and a share in proportion below it (its developer guide, 2024)."""

UNREPORTED_CALL_SECONDS = 30.0
"""The assumed duration of a call that nobody waited for and that reported nothing."""

END_CALLS_SECONDS = 1.0
"""The part of an epoch's time reserved for ending the calls that still run."""
OUTCOME_BYTES = 64 * 1024
"""An outcome in storage has under 2 KiB."""
_EPOCH = re.compile(r"[0-9]{1,9}")
CLOSING_PUTS = 2
"""Storage requests after an epoch's cost is computed: one for its outcome, one to list what can be deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionWorkload:
    """The training.

    model    a built-in name, or MODULE:FUNCTION; then `module` is the text of MODULE.py
    pushes   how often a function pushes its steps to the others in an epoch
    fan_in   from how many others it merges them before the barrier
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
    folder  where to keep the objects on this machine: unlike Lithops' own temporary folder, it outlives the process
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
        self._store = ObjectStore(self._invoker.storage, self._bucket)

    def run_epoch(self, order: EpochOrder) -> Epoch:
        """See mlcd.clouds.functions.provider."""
        begun, self.calls = time.monotonic(), ()
        puts, gets = self._store.puts, self._store.gets
        try:
            source, start_key = self._upload_data(order.run_id), self._start_key(order)
        except MlcdError:
            raise
        except Exception as error:  # each cloud's storage raises its own errors
            raise self._invoker.unusable(error) from error
        epoch_try = EpochTry(run_id=order.run_id, epoch=order.number, token=uuid.uuid4().hex[:12])
        orders = [
            self._call_order(order, epoch_try, source, start_key, shard) for shard in range(order.fleet.functions)
        ]
        running = _RunningEpoch(epoch_try=epoch_try, order=order, begun=begun, puts=puts, gets=gets)
        watch = CallWatch(
            lambda some: self._invoke(order, some),
            orders,
            repeats=self.problem.repeats(order.fleet.functions),
            deadline=begun + order.seconds - min(END_CALLS_SECONDS, 0.1 * order.seconds),
        )
        try:
            watch.until_done(lambda: self.workload.sync is Sync.ASP and self._end(epoch_try) is not None)
            end = self._end(epoch_try)
            if end is None:
                watch.again(orders[0])
                end = self._end(epoch_try)
            seconds = time.monotonic() - begun
        except (TimeoutError, TooManyFailures, UntrainableModel) as error:
            self._finish(running, watch)
            raise self._failure(running, error, watch) from error
        except BaseException:  # Ctrl-C too: functions that nobody waits for must not go on
            self._finish(running, watch)
            raise
        self._finish(running, watch)
        if end is None:
            raise ProviderError(f"{epoch_try.prefix}end/ has no complete object: the storage lost what was written")
        return self._outcome(running, watch, *end, seconds)

    def restore(self, run_id: str, epochs: Sequence[Epoch]) -> None:
        """Continue a run of an earlier process: tells the calls that it left running to end."""
        done = {epoch.number for epoch in epochs}
        prefix = f"{run_prefix(run_id)}epochs/"
        tries = {tuple(key[len(prefix) :].split("/")[:2]) for key in self._store.keys(prefix)}
        for number, token in sorted(each for each in tries if len(each) == 2 and _EPOCH.fullmatch(each[0])):
            if int(number) not in done:
                self._store.put(EpochTry(run_id=run_id, epoch=int(number), token=token).stop, b"stop")

    def finished(self, run_id: str, number: int) -> Epoch | None:
        """An epoch that had reached its barrier when mlcd died, which is paid for and must not run again; else None."""
        try:
            found = self._outcome_of(run_id, number)
            if found is None:
                return None
            return codec.from_json(epoch_from_0_1(dict(found.fields("epoch").data)), Epoch)
        except (Malformed, KeyError, ValueError):  # somebody else wrote it: the epoch counts as lost, and runs again
            return None

    def lost(self, order: EpochOrder, *, elapsed_seconds: float) -> Usd:
        """The cost of an epoch's calls that nobody waited for: each call's last reported duration, doubled.

        A call that had reported nothing is charged as much as the longest that had. Never more than was authorised.
        """
        prefix = f"{run_prefix(order.run_id)}epochs/{order.number:05d}/"
        last: dict[tuple[int, int], str] = {}
        for key in self._store.keys(prefix):
            _, _, rest = key[len(prefix) :].partition("/")
            if rest.startswith("part/"):
                part = ShardUpdate.named(rest.removeprefix("part/"))
                if part is not None:
                    last[part.shard, part.attempt] = key
        headers = [found[0] for key in last.values() if (found := self._store.vector(key)) is not None]
        reported = [each for header in headers if (each := _seconds(header)) is not None]
        longest = min(2 * max(reported, default=UNREPORTED_CALL_SECONDS), elapsed_seconds)
        seconds = [min(2 * each, elapsed_seconds) for each in reported]
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
        """The parameters after an epoch, as float32. Raises ProviderError where storage no longer has them."""
        found = self._store.vector(self._params_key(run_id, number))
        if found is None:
            raise ProviderError(f"the parameters of epoch {number} of {run_id} are no longer in storage")
        return found[1].tobytes()

    def close(self) -> None:
        """End the calls that still run."""
        self._invoker.close()

    # ---- before

    def _upload_data(self, run_id: str) -> ShardSource:
        """Put the samples and the user's module into storage, once per run."""
        samples = self.workload.samples
        objects = {"x": samples.x.tobytes(), "y": samples.y.tobytes()}
        if self.workload.module:
            objects["model.py"] = self.workload.module
        there = set(self._store.keys(data_key(run_id, "")))
        for name, data in objects.items():
            if data_key(run_id, name) not in there:
                self._store.put(data_key(run_id, name), data)
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
        try:
            found = self._outcome_of(run_id, number)
            key = None if found is None else found.text("parameters")
        except Malformed as error:
            raise ProviderError(
                f"the outcome of epoch {number} of {run_id} in storage is malformed: {error}"
            ) from error
        if key is None:
            raise ProviderError(f"the parameters of epoch {number} of {run_id} are no longer in storage")
        if not key.startswith(run_prefix(run_id)) or ".." in key.split("/"):
            raise ProviderError(f"{outcome_key(run_id, number)} names the parameters of something else: {key[:200]!r}")
        return key

    def _outcome_of(self, run_id: str, number: int) -> Fields | None:
        """An epoch's outcome in storage, where functions can write too; None where there is none. Raises Malformed."""
        key = outcome_key(run_id, number)
        found = self._store.get(key)
        if found is None:
            return None
        if len(found) > OUTCOME_BYTES:
            raise Malformed(key, f"is larger than {OUTCOME_BYTES:,} bytes")
        return Fields(parse_json(found, key), key)

    def _call_order(
        self, order: EpochOrder, epoch_try: EpochTry, source: ShardSource, start_key: str, shard: int
    ) -> CallOrder:
        problem, workload, memory = self.problem, self.workload, order.fleet.memory_mb
        return CallOrder(
            epoch_try=epoch_try,
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

    def _end(self, epoch_try: EpochTry) -> tuple[str, dict[str, Any]] | None:
        """(key, header) of the first complete parameters: another function may still be writing its own."""
        for key in self._store.keys(f"{epoch_try.prefix}end/"):
            found = self._store.vector(key)
            if found is not None:
                return key, found[0]
        return None

    def _finish(self, running: "_RunningEpoch", watch: CallWatch) -> None:
        """End the calls that still run, and compute what each call cost."""
        abandoned = watch.abandon()
        if abandoned:
            self._store.put(running.epoch_try.stop, b"stop")
            running.killed = self._invoker.end([one.call for one in abandoned])
        self.calls = tuple(self._billed(running, ended) for ended in watch.ended)

    def _billed(self, running: "_RunningEpoch", ended: Ended) -> FunctionCall:
        order, report, prices = ended.order, ended.report, self.problem.prices
        seconds = ended.wall_seconds
        if ended.answer is None and not running.killed:
            seconds = order.seconds  # it ends at its limit at the latest; nobody waits for it
        elif ended.answer is not None and ended.answer.seconds is not None:
            seconds = ended.answer.seconds
        puts, gets = (report.puts, report.gets) if report else (order.most_puts, order.most_gets)
        usd = prices.usd_per_second(order.memory_mb) * prices.billed_seconds(seconds) + prices.usd_per_request
        usd += prices.usd_per_put * puts + prices.usd_per_get * gets
        ending = "overtaken" if ended.answer is None else "failed" if ended.problem else "done"
        if report is not None and ending == "done" and not (report.done or report.closed):
            ending = "handed-over"
        return FunctionCall(
            epoch=running.order.number,
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

    def _usd(self, running: "_RunningEpoch") -> Usd:
        """The cost of all calls and of mlcd's own storage requests."""
        prices = self.problem.prices
        puts, gets = self._store.puts - running.puts + CLOSING_PUTS, self._store.gets - running.gets
        own = prices.usd_per_put * puts + prices.usd_per_get * gets
        return Usd.of(sum((call.usd for call in self.calls), own))

    def _failure(self, running: "_RunningEpoch", error: Exception, watch: CallWatch) -> EpochFailed:
        seconds = min(time.monotonic() - running.begun, running.order.seconds)
        if isinstance(error, TimeoutError):
            message = f"the epoch was ended after {running.order.seconds:.0f} s, all that was authorised"
        elif isinstance(error, UntrainableModel):
            message = str(error)
        else:
            failed = sum(bool(ended.problem) for ended in watch.ended)
            count = running.order.fleet.functions
            message = f"{failed} of {count} calls failed, more than may be repeated; the last: {error}"
        return EpochFailed(
            message, seconds=seconds, usd=self._usd(running), hopeless=isinstance(error, UntrainableModel)
        )

    def _outcome(
        self, running: "_RunningEpoch", watch: CallWatch, end_key: str, header: dict[str, Any], seconds: float
    ) -> Epoch:
        fields = Fields(header, end_key)
        try:
            loss = fields.number("loss") if "loss" in fields else math.nan  # see `unframe`
        except Malformed as problem:
            raise EpochFailed(str(problem), seconds=seconds, usd=self._usd(running)) from problem
        if not math.isfinite(loss):
            raise EpochFailed(
                f"the loss is {loss} after epoch {running.order.number}; try a smaller workload.rate",
                seconds=seconds,
                usd=self._usd(running),
                hopeless=True,
            )
        epoch = self._epoch(running, watch, loss, seconds)
        record = {"parameters": end_key, "steps": header.get("steps"), "epoch": codec.to_json(epoch)}
        self._store.put(outcome_key(running.order.run_id, epoch.number), json.dumps(record).encode())
        self._delete_intermediate(running.epoch_try, end_key)
        return epoch

    def _epoch(self, running: "_RunningEpoch", watch: CallWatch, loss: float, seconds: float) -> Epoch:
        order = running.order
        reports = [ended.report for ended in watch.ended if ended.report is not None]
        memory = order.fleet.memory_mb
        processors = max(memory / MB_PER_PROCESSOR, 0.01) if not self._local else min(1.0, memory / MB_PER_PROCESSOR)
        busy, ran = sum(report.cpu_seconds for report in reports), sum(report.seconds for report in reports)
        return Epoch(
            number=order.number,
            fleet=order.fleet,
            loss=loss,
            seconds=seconds,
            usd=self._usd(running),
            fetch=_phase([report.fetch_seconds for report in reports]),
            compute=_phase([report.compute_seconds for report in reports]),
            update=_phase([report.update_seconds for report in reports]),
            calls=len(watch.ended),
            failed=watch.repeated,
            cold_starts=sum(call.cold for call in self.calls),
            memory_share=max(report.peak_mb for report in reports) / memory,
            cpu_share=busy / ran / processors if ran > 0 else None,
        )

    def _delete_intermediate(self, epoch_try: EpochTry, end_key: str) -> None:
        """Delete the epoch's intermediate objects; keep its parameters."""
        prefix = epoch_try.prefix.removesuffix(f"{epoch_try.token}/")
        self._store.delete([key for key in self._store.keys(prefix) if key != end_key and not key.endswith("/stop")])


@dataclass(slots=True, kw_only=True)
class _RunningEpoch:
    epoch_try: EpochTry
    order: EpochOrder
    begun: float
    puts: int
    gets: int
    killed: bool = field(default=False)


def _seconds(header: dict[str, Any]) -> float | None:
    try:
        return Fields(header).number("seconds", least=0)
    except Malformed:
        return None


def _phase(seconds: list[float]) -> Phase:
    return Phase(mean_seconds=sum(seconds) / len(seconds), max_seconds=max(seconds))
