"""The measuring program, on the GPU's machine: `python3 -m serve_device.measure probe | trace | models | operators`.

Rows are written as they are measured; a share whose process crashes is restarted after the point that crashed it.
"""

import argparse
import copy
import csv
import gc
import math
import os
import random
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from torch import Tensor, nn

from serve_device.grammar import dtype_of, work
from serve_device.operators import RUNNABLE, Bench
from serve_device.shares import WHOLE, service, start_share, wait_for
from serve_device.timing import alone, beside, prepare_operator, set_precision, time_model
from serve_device.trace import trace
from serve_device.zoo import ZOO, Entry, fill

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
PRECISIONS = ("fp32", "tf32", "fp16")
LONGEST_SECONDS = 25.0  # a batch expected to take longer is not run
REPEATED = 0.1
STARTS = 8
TRACE_BATCH = 8
MODEL_COLUMNS = "model,sms,found_sms,batch,precision,round,status,median_ms,p95_ms,memory_mib,runs,mode,message"
OPERATOR_COLUMNS = "operator,shape,sms,batch,precision,round,status,microseconds,message"
USE_COLUMNS = "model,family,operator,shape,count,flops,bytes,share_fp32,share_fp16,microseconds_fp32,microseconds_fp16"

Key = tuple[str, ...]


class Table:
    """A CSV file that grows by rows, and knows which points it has."""

    def __init__(self, path: Path, columns: str, keys: Iterable[str], earlier: Path | None = None) -> None:
        self.path, self.columns, self.keys = path, columns.split(","), tuple(keys)
        self.done: dict[Key, dict[str, str]] = {}
        if earlier is not None and earlier.exists():
            self._read(earlier)
        if path.exists():
            self._read(path)
        else:
            path.write_text(columns + "\n")

    def _read(self, path: Path) -> None:
        with path.open() as lines:
            self.done |= {tuple(row[key] for key in self.keys): row for row in csv.DictReader(lines)}

    def reread(self) -> None:
        """Read the rows that another process wrote."""
        self._read(self.path)

    def has(self, *key: object) -> bool:
        return tuple(str(part) for part in key) in self.done

    def seconds(self, *key: object) -> float:
        """Seconds of a model's point; 0 where it is missing or did not run."""
        row = self.done.get(tuple(str(part) for part in key), {})
        return float(row.get("median_ms") or 0.0) / 1e3

    def add(self, **row: object) -> None:
        self.done[tuple(str(row[key]) for key in self.keys)] = {key: str(value) for key, value in row.items()}
        with self.path.open("a", newline="") as lines:
            csv.DictWriter(lines, self.columns, restval="").writerow(row)


def digits(value: float) -> float:
    """The value with four significant digits; more would be noise."""
    return float(f"{value:.4g}")


def short(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"[:120]


def alive() -> bool:
    """Whether CUDA still works in this process after an error."""
    try:
        torch.cuda.synchronize()
        torch.zeros(1, device="cuda").item()
    except RuntimeError:
        return False
    return True


def ready(module: nn.Module, precision: str) -> nn.Module:
    """The module as it is served in that precision: channels last where tensor cores are used."""
    set_precision(precision)
    if precision == "fp32":
        return module
    served: nn.Module = module.to(dtype_of(precision)).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return served


def host_input(entry: Entry, precision: str, batch: int) -> Tensor:
    """Random input in pinned memory, in the layout and type the model takes."""
    dtype = torch.int64 if entry.ids else dtype_of(precision)
    last = precision != "fp32" and len(entry.shape) == 3 and not entry.ids
    layout = torch.channels_last if last else torch.contiguous_format
    host = torch.empty((batch, *entry.shape), dtype=dtype, pin_memory=True, memory_format=layout)
    if entry.ids:
        return host.random_(0, entry.ids)
    step = max(1, (1 << 24) // math.prod(entry.shape))
    for start in range(0, batch, step):
        part = host[start : start + step]
        part.copy_(torch.empty_like(part, device="cuda").normal_())
    return host


def measure_models(
    table: Table,
    sms: int,
    found: int,
    modules: dict[str, nn.Module],
    batches: tuple[int, ...],
    until: float,
    again: int,
) -> None:
    """Every model x precision x batch in this share, except those in the table; `again` = 1 repeats a tenth."""
    chosen = random.Random(sms * 2 + again)
    for entry in ZOO:
        if entry.name not in modules:
            continue
        points = [(p, b) for p in PRECISIONS for b in batches]
        if again:
            points = [point for point in points if chosen.random() < REPEATED]
        points = [(p, b) for p, b in points if not table.has(entry.name, sms, b, p, again)]
        if not points or time.monotonic() > until:
            continue
        with beside():
            module = fill(copy.deepcopy(modules[entry.name]), torch.device("cuda"))
        for precision in PRECISIONS:
            wanted = [b for p, b in points if p == precision]
            if wanted and time.monotonic() < until:
                with beside():
                    module = ready(module, precision)
                    host = host_input(entry, precision, max(wanted))
                _measure_batches(table, sms, found, entry, module, host, precision, wanted, again)
                del host
        with beside():
            del module
            gc.collect()
            torch.cuda.empty_cache()


def _measure_batches(
    table: Table,
    sms: int,
    found: int,
    entry: Entry,
    module: nn.Module,
    host: Tensor,
    precision: str,
    batches: list[int],
    again: int,
) -> None:
    last, stop = batches[0] // 2, ""
    expected = table.seconds(entry.name, sms, last, precision, 0)  # of an earlier call
    for batch in batches:
        row: dict[str, object] = {"model": entry.name, "sms": sms, "found_sms": found, "batch": batch}
        row |= {"precision": precision, "round": again}
        predicted = expected * batch / last if expected else 0.0
        if stop or predicted > LONGEST_SECONDS:
            status, message = ("oom", stop) if stop else ("slow", f"not run: expected {predicted:.1f} s")
            table.add(**row, status=status, message=message)
            continue
        try:
            timing = time_model(module, host[:batch], predicted)
        except torch.cuda.OutOfMemoryError:
            stop = f"a batch of {batch} did not fit"
            table.add(**row, status="oom", message=stop)
            with beside():
                torch.cuda.empty_cache()
            continue
        except RuntimeError as error:
            table.add(**row, status="error", message=short(error))
            if not alive():
                raise
            continue
        expected, last = timing.median_seconds, batch
        table.add(
            **row,
            status="ok",
            median_ms=digits(timing.median_seconds * 1e3),
            p95_ms=digits(timing.p95_seconds * 1e3),
            memory_mib=digits(timing.memory_mib),
            runs=timing.runs,
            mode=timing.mode,
        )
        with beside():
            torch.cuda.empty_cache()


def chosen_operators(uses: Path, top: int) -> list[tuple[str, str]]:
    """The (operator, shape) pairs that carry most of the models' time, in both precisions together."""
    weight: defaultdict[tuple[str, str], float] = defaultdict(float)
    with uses.open() as lines:
        for row in csv.DictReader(lines):
            if row["operator"] in RUNNABLE:
                weight[row["operator"], row["shape"]] += float(row["share_fp32"]) + float(row["share_fp16"])
    return sorted(weight, key=lambda key: -weight[key])[:top]


def measure_operators(
    table: Table, sms: int, chosen: list[tuple[str, str]], batches: tuple[int, ...], until: float, again: int
) -> None:
    """Every operator x precision x batch in this share."""
    pick = random.Random(sms * 2 + again)
    for operator, shape in chosen:
        if time.monotonic() > until:
            return
        for precision in PRECISIONS:
            wanted = [b for b in batches if not table.has(operator, shape, sms, b, precision, again)]
            wanted = [b for b in wanted if not again or pick.random() < REPEATED]
            if not wanted:
                continue
            set_precision(precision)
            _measure_operator(table, operator, shape, sms, precision, wanted, again)


def _measure_operator(
    table: Table, operator: str, shape: str, sms: int, precision: str, batches: list[int], again: int
) -> None:
    same: dict[str, object] = {"operator": operator, "shape": shape, "sms": sms, "precision": precision, "round": again}
    timed: list[tuple[int, Callable[[], float]]] = []
    with beside():
        torch.cuda.empty_cache()  # all shares' processes together must fit into the GPU's memory
        bench = Bench(operator, shape, dtype_of(precision), torch.device("cuda"), precision != "fp32")
        for batch in batches:
            try:
                timed.append((batch, prepare_operator(bench.at(batch))))
            except torch.cuda.OutOfMemoryError:
                table.add(**same, batch=batch, status="oom")
                torch.cuda.empty_cache()
            except RuntimeError as error:
                table.add(**same, batch=batch, status="error", message=short(error))
                if not alive():
                    raise
    with alone():
        results = [(batch, seconds()) for batch, seconds in timed]
    for batch, spent in results:
        table.add(**same, batch=batch, status="ok", microseconds=digits(spent * 1e6))


def trace_models(path: Path, modules: dict[str, nn.Module], device: torch.device) -> None:
    """Each model's operators, with their share of its time at batch 8 in fp32 and in fp16."""
    path.write_text(USE_COLUMNS + "\n")
    for entry in ZOO:
        if entry.name not in modules:
            continue
        module = fill(copy.deepcopy(modules[entry.name]), device)
        found: dict[tuple[str, str], dict[str, object]] = {}
        for precision in ("fp32", "fp16"):
            if device.type == "cuda":
                module = ready(module, precision)
            dtype = dtype_of(precision) if device.type == "cuda" else torch.float32
            sample = entry.sample(TRACE_BATCH, dtype).to(device)
            if precision == "fp16" and sample.dim() == 4:
                sample = sample.contiguous(memory_format=torch.channels_last)
            uses = trace(module, sample, TRACE_BATCH)
            total = sum(use.microseconds for use in uses)
            for use in uses:
                flops, moved = work(use.operator, use.shape) if use.operator in RUNNABLE else (0.0, 0.0)
                row = found.setdefault((use.operator, use.shape), {"share_fp32": 0.0, "share_fp16": 0.0})
                row |= {"count": max(use.count, int(str(row.get("count", 0))))}
                row |= {"flops": digits(flops * use.count), "bytes": digits(moved * use.count)}
                row |= {f"share_{precision}": digits(use.microseconds / total)}
                row |= {f"microseconds_{precision}": digits(use.microseconds)}
        with path.open("a", newline="") as lines:
            writer = csv.DictWriter(lines, USE_COLUMNS.split(","), restval="0")
            for (operator, shape), row in found.items():
                writer.writerow(
                    {"model": entry.name, "family": entry.family, "operator": operator, "shape": shape} | row
                )
        print(f"{entry.name}: {len(found)} operators", flush=True)


def probe(path: Path, sms: int, found: int) -> None:
    """The real performance of a share: fp16 products in TFLOP/s, with and without a graph, and copies in GB/s."""
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.float16)
    small = torch.randn(2048, 2048, device="cuda", dtype=torch.float16)
    moved = torch.empty(1 << 29, device="cuda", dtype=torch.uint8)
    with alone():
        seconds, graphed, copied = (
            prepare_operator(run)() for run in (lambda: a @ a, lambda: small @ small, moved.clone)
        )
    row = f"{sms},{found},{2e-12 * 8192**3 / seconds:.1f},{2e-12 * 2048**3 / graphed:.1f},{2**30 / copied / 1e9:.0f}"
    print(row, flush=True)
    with path.open("a") as lines:
        lines.write(row + "\n")


def over_shares(levels: list[int], parts: int, table: Table | None, job: Callable[[int, int, int], None]) -> None:
    """`job(sms, found, part)` for every share and part, concurrently; one that crashes is restarted a few times."""
    began = time.monotonic()

    def start(sms: int, part: int) -> int:
        return start_share(sms, lambda found: job(sms, found, part))

    with service():
        running = {start(sms, part): (sms, part, 1) for sms in levels for part in range(parts)}
        while running:
            child, status = os.wait()
            sms, part, starts = running.pop(child)
            print(f"{sms} SMs, part {part}: {status} after {time.monotonic() - began:.0f} s", flush=True)
            if status and starts < STARTS:
                if table is not None:
                    table.reread()
                running[start(sms, part)] = (sms, part, starts + 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["probe", "trace", "models", "operators"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sms", default="132")
    parser.add_argument("--seconds", type=float, default=500.0)
    parser.add_argument("--batches", default=",".join(str(batch) for batch in BATCHES))
    parser.add_argument("--only", default="", help="names of models")
    parser.add_argument("--earlier", type=Path, help="a table of an earlier call, whose points are not run again")
    parser.add_argument("--uses", type=Path, help="the table that trace wrote")
    parser.add_argument("--top", type=int, default=200)
    parser.add_argument("--parts", type=int, default=2, help="processes a share")
    given = parser.parse_args()
    torch.set_num_threads(1)  # threads do not survive the fork
    gc.disable()
    until = time.monotonic() + given.seconds
    first_until = until - 0.1 * given.seconds
    levels = [int(sms) for sms in given.sms.split(",")]
    batches = tuple(int(batch) for batch in given.batches.split(","))
    names = given.only.split(",") if given.only else [entry.name for entry in ZOO]
    modules = {entry.name: entry.module() for entry in ZOO if entry.name in names}
    print(f"torch {torch.__version__}, python {sys.version.split()[0]}, whole GPU {WHOLE} SMs", flush=True)
    if given.what == "trace":
        wait_for(start_share(WHOLE, lambda _: trace_models(given.out, modules, torch.device("cuda"))))
    elif given.what == "probe":
        over_shares(levels, 1, None, lambda sms, found, _: probe(given.out, sms, found))
    elif given.what == "models":
        table = Table(given.out, MODEL_COLUMNS, ("model", "sms", "batch", "precision", "round"), given.earlier)

        def job(sms: int, found: int, part: int) -> None:
            mine = {name: module for place, (name, module) in enumerate(modules.items()) if place % given.parts == part}
            measure_models(table, sms, found, mine, batches, first_until, 0)
            measure_models(table, sms, found, mine, batches, until, 1)

        over_shares(levels, given.parts, table, job)
    else:
        keys = ("operator", "shape", "sms", "batch", "precision", "round")
        table = Table(given.out, OPERATOR_COLUMNS, keys, given.earlier)
        chosen = chosen_operators(given.uses, given.top)

        def run(sms: int, _: int, part: int) -> None:
            measure_operators(table, sms, chosen[part :: given.parts], batches, first_until, 0)
            measure_operators(table, sms, chosen[part :: given.parts], batches, until, 1)

        over_shares(levels, given.parts, table, run)


if __name__ == "__main__":
    main()
