"""Offline data on this machine's processors: small ONNX models served in every configuration.

    python benchmarks/serve_cpu.py served FOLDER      # rates through the real server
    python benchmarks/serve_cpu.py batches FOLDER     # ONNX Runtime's seconds of a batch
    python benchmarks/serve_cpu.py operators FOLDER   # the same for their key operators alone
    python benchmarks/serve_cpu.py pack FOLDER        # what is shipped: src/mlcd/known/data

Each appends rows to FOLDER/KIND.csv and continues where it stopped; it holds the lock for at most seven minutes at a
time, so that other measurements get their turn. A tenth of the points is measured twice, to estimate the noise. Models
that benchmarks/serve_real.py searches for are excluded, so that they stay unknown.
"""

import argparse
import contextlib
import csv
import fcntl
import gzip
import hashlib
import io
import json
import math
import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import onnxruntime
from serve_cpu_operators import (
    QUANTISED,
    Runner,
    Single,
    covering,
    feeds_of,
    in_precision,
    key_operators,
    singles,
)
from serving_models import MODELS, build

from mlcd.graphs import read_onnx
from mlcd.loadgen import LoadInput, Scenario, measure_load, split_cores
from mlcd.server import Precision, ServerOptions, start_server

HELD_OUT = ("resnet50-like", "vit-small", "gru")
"""Never measured here: what benchmarks/serve_real.py searches for."""
BATCHES = (1, 4, 16, 64)
SHAPES = ((1, 1), (2, 1), (1, 2))
"""(threads, replicas) on two processors."""
PRECISIONS = ("fp32", "int8")
HOLD_SECONDS = 420.0
SERVED_SECONDS = 0.9
RUN_SECONDS, OPERATOR_SECONDS = 0.1, 0.05
KNOBS = ("batch", "threads", "replicas", "precision")
AGAIN = 9
"""The repeat number of a doubtful point."""

Row = dict[str, Any]


def configurations() -> list[Row]:
    """In the order of the space: batch, threads, replicas, precision."""
    return [
        {"batch": batch, "threads": threads, "replicas": replicas, "precision": precision}
        for batch, (threads, replicas), precision in product(BATCHES, SHAPES, PRECISIONS)
    ]


def repeats(key: str) -> int:
    """2 for a tenth of the points, 1 for the others."""
    return 2 if hashlib.sha256(key.encode()).digest()[0] < 26 else 1


@contextlib.contextmanager
def turn(lock: Path) -> Iterator[Callable[[], bool]]:
    """Hold the lock; yields a function that says whether the turn may continue."""
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        until = time.monotonic() + HOLD_SECONDS
        yield lambda: time.monotonic() < until
    time.sleep(2.0)  # let a process that waits for the lock wake up first


def points(names: Sequence[str]) -> list[Row]:
    """Every model in every configuration, some twice."""
    found = []
    for name, config in product(names, configurations()):
        key = f"{name} {sorted(config.items())}"
        found += [{"name": name, **config, "repeat": repeat} for repeat in range(1, repeats(key) + 1)]
    return found


def run_all(file: Path, lock: Path, wanted: Sequence[Row], key: Sequence[str], measure: Callable[[Row], Row]) -> None:
    """Measure the points that the file does not have yet, one row per point, in turns."""
    done = set()
    if file.exists():
        with file.open() as stream:
            done = {tuple(row[k] for k in key) for row in csv.DictReader(stream)}
    waiting = [row for row in wanted if tuple(str(row[k]) for k in key) not in done]
    while waiting:
        with turn(lock) as may_go_on:
            while waiting and may_go_on():
                row = {**waiting[0], **measure(waiting[0])}
                new = not file.exists()
                with file.open("a", newline="") as stream:
                    writer = csv.DictWriter(stream, list(row))
                    if new:
                        writer.writeheader()
                    writer.writerow(row)
                waiting.pop(0)
        print(f"{file.name}: {len(waiting)} to go", flush=True)


def served(folder: Path, lock: Path) -> None:
    """Rates through the real server, with as many requests in flight as fill every replica's batch."""
    names = [name for name in MODELS if name not in HELD_OUT]
    models = build(folder / "models", *names)

    def measure(row: Row) -> Row:
        cores = split_cores(row["threads"] * row["replicas"])
        options = ServerOptions(
            model=models[row["name"]],
            batch=row["batch"],
            threads=row["threads"],
            replicas=row["replicas"],
            precision=Precision(row["precision"]),
            cpus=cores.server,
            cache=folder / "quantised",
        )
        with start_server(options) as server:
            inputs = [LoadInput(name=i.name, datatype=i.datatype, shape=(1, *i.shape[1:])) for i in server.inputs]
            seen = measure_load(
                server.address,
                server.model,
                inputs,
                scenario=Scenario.OFFLINE,
                seconds=SERVED_SECONDS,
                concurrency=row["batch"] * row["replicas"],
                cpus=cores.generator,
                apart=cores.apart,
            )
            memory = _peak_gib(server.process.pid)
            startup = server.startup_seconds
        return {
            "family": MODELS[row["name"]][0],
            "requests_per_second": f"{seen.requests_per_second:.6g}",
            "p50_seconds": f"{seen.p50_seconds:.6g}",
            "p99_seconds": f"{seen.p99_seconds:.6g}",
            "requests": seen.requests,
            "errors": seen.errors,
            "memory_gib": f"{memory:.4f}",
            "startup_seconds": f"{startup:.3f}",
            "generator_share": f"{seen.processor_share:.3f}",
            "apart": int(seen.apart),
        }

    run_all(folder / "served.csv", lock, points(names), ("name", *KNOBS, "repeat"), measure)


def _peak_gib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 2**20
    return 0.0


def batches(folder: Path, lock: Path) -> None:
    """ONNX Runtime's seconds of a batch, without a server."""
    names = [name for name in MODELS if name not in HELD_OUT]
    models = build(folder / "models", *names)
    graphs = {name: read_onnx(path) for name, path in models.items()}

    def measure(row: Row) -> Row:
        path = in_precision(models[row["name"]], row["precision"], folder / "quantised")
        runner = Runner(path, threads=row["threads"], replicas=row["replicas"])
        timed = runner.time(feeds_of(graphs[row["name"]], row["batch"]), seconds=RUN_SECONDS)
        return {"seconds": f"{timed.seconds:.6g}", "runs": timed.runs}

    run_all(folder / "batches.csv", lock, points(names), ("name", *KNOBS, "repeat"), measure)


def operators(folder: Path, lock: Path) -> None:
    """The operators that take nearly all of the models' time, each on its own."""
    names = [name for name in MODELS if name not in HELD_OUT]
    models = build(folder / "models", *names)
    (folder / "singles").mkdir(exist_ok=True)
    shares: list[Row] = []
    found: dict[str, Single] = {}
    with turn(lock):
        for name, path in models.items():
            graph, parts = key_operators(path)
            shares += [
                {
                    "name": name,
                    "operator": operator.name,
                    "shape": operator.shape,
                    "count": operator.count,
                    "share": f"{share:.6g}",
                    "flops": f"{operator.flops:.9g}",
                    "bytes": f"{operator.bytes:.9g}",
                }
                for operator, share in parts.items()
            ]
            for single in singles(path, graph, covering(parts), folder / "singles"):
                found.setdefault(f"{single.operator.name} {single.operator.shape}", single)
    write(folder / "shares.csv", shares)
    wanted = []
    for key, single in found.items():
        for config in configurations():
            if config["precision"] != "fp32" and single.operator.name not in QUANTISED:
                continue
            again = repeats(f"{key} {sorted(config.items())}")
            wanted += [{"key": key, **config, "repeat": repeat} for repeat in range(1, again + 1)]
    runners: dict[tuple[Any, ...], Runner] = {}

    def measure(row: Row) -> Row:
        single = found[row["key"]]
        place = (row["key"], row["threads"], row["replicas"], row["precision"])
        if place not in runners:
            runners.clear()
            path = in_precision(single.path, row["precision"], folder / "quantised")
            runners[place] = Runner(path, threads=row["threads"], replicas=row["replicas"])
        os.sched_setaffinity(0, runners[place].cpus)
        timed = runners[place].time(single.feeds(row["batch"]), seconds=OPERATOR_SECONDS)
        one = single.operator
        return {
            "operator": one.name,
            "shape": one.shape,
            "flops": f"{one.flops / one.count:.9g}",
            "bytes": f"{one.bytes / one.count:.9g}",
            "seconds": f"{timed.seconds:.6g}",
            "runs": timed.runs,
        }

    # One session for all batches of a configuration; the many convolutions last.
    order = ("key", "precision", "threads", "replicas", "batch")
    wanted.sort(key=lambda row: (row["key"].startswith("Conv "), *(row[k] for k in order)))
    file, place = folder / "operators.csv", ("key", *KNOBS, "repeat")
    run_all(file, lock, wanted, place, measure)
    run_all(file, lock, [row for row in _doubtful(read(file)) if row["key"] in found], place, measure)


def _doubtful(rows: Sequence[Row]) -> list[Row]:
    """Points to measure once more: a batch that took longer than one four times as large, or four times less."""
    least = {tuple(row[k] for k in ("key", *KNOBS)): float(row["seconds"]) for row in _least(rows, ("key",), "seconds")}
    found: dict[tuple[str, ...], Row] = {}
    for small, large in pairwise(map(str, BATCHES)):
        for (name, batch, *rest), seconds in least.items():
            other = least.get((name, large, *rest))
            if batch != small or other is None or seconds * 0.87 <= other <= 8 * seconds:
                continue
            for size in (small, large):
                place = (name, size, *rest)
                config = dict(zip(KNOBS, (int(size), int(rest[0]), int(rest[1]), rest[2]), strict=True))
                found[place] = {"key": name, **config, "repeat": AGAIN}
    return list(found.values())


def _least(rows: Sequence[Row], keys: Sequence[str], value: str) -> list[Row]:
    """One row per point, with the least of its repeats: other load on the machine can only add time."""
    found: dict[tuple[str, ...], Row] = {}
    for row in rows:
        place = tuple(row[k] for k in (*keys, *KNOBS))
        if place not in found or float(row[value]) < float(found[place][value]):
            found[place] = row
    return list(found.values())


def pack(folder: Path, _lock: Path) -> None:
    """The shipped data: means over repeats as compressed tables, and their origin."""
    data = Path(__file__).parent.parent / "src" / "mlcd" / "known" / "data"
    data.mkdir(exist_ok=True)
    rows = {kind: read(folder / f"{kind}.csv") for kind in ("served", "batches", "operators", "shares")}
    noise = {kind: _noise(rows[kind], value, key) for kind, value, key in _NOISY}
    seconds = {
        tuple(row[k] for k in ("name", *KNOBS)): row["seconds"]
        for row in _means(rows["batches"], ("name",), ("seconds",))
    }
    models = _means(
        rows["served"], ("name", "family"), ("requests_per_second", "p50_seconds", "p99_seconds", "memory_gib")
    )
    for row in models:
        row["batch_seconds"] = seconds.get(tuple(row[k] for k in ("name", *KNOBS)), "")
    parts = ("operator", "shape", "flops", "bytes", *KNOBS, "seconds")
    curves = [
        {part: row[part] for part in parts} for row in _least(rows["operators"], ("operator", "shape"), "seconds")
    ]
    counts = Counter((row["operator"], row["shape"]) for row in curves if row["precision"] == "fp32")
    curves = [row for row in curves if counts[row["operator"], row["shape"]] == len(configurations()) // 2]
    for name, content in (("models", models), ("operators", curves), ("shares", rows["shares"])):
        text = _csv(content)
        (data / f"cpu-{name}.csv.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
        print(f"cpu-{name}: {len(content):,} rows")
    about = {
        "measured": time.strftime("%Y-%m-%d", time.gmtime((folder / "served.csv").stat().st_mtime)),
        "machine": _machine(),
        "onnxruntime": onnxruntime.__version__,
        "script": "benchmarks/serve_cpu.py",
        "models": len({row["name"] for row in models}),
        "operators": len({(row["operator"], row["shape"]) for row in curves}),
        "repeated_points": {kind: found[1] for kind, found in noise.items()},
        "noise": {kind: round(found[0], 4) for kind, found in noise.items()},
    }
    (data / "cpu.json").write_text(json.dumps(about, indent=2) + "\n")
    print(json.dumps(about, indent=2))


def _means(rows: Sequence[Row], keys: Sequence[str], values: Sequence[str]) -> list[Row]:
    """One row per point, the geometric mean over its repeats."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[k] for k in (*keys, *KNOBS)), []).append(row)
    return [
        {
            **dict(zip((*keys, *KNOBS), group, strict=True)),
            **{v: f"{statistics.geometric_mean(float(row[v]) for row in some):.6g}" for v in values},
        }
        for group, some in groups.items()
    ]


def _noise(rows: Sequence[Row], value: str, key: Sequence[str]) -> tuple[float, int]:
    """The relative deviation of one measurement, from pairs: 1.4826 median(|d|) / sqrt(2), d = ln of their ratio."""
    groups: dict[tuple[str, ...], list[float]] = {}
    for row in rows:
        if int(row["repeat"]) != AGAIN:
            groups.setdefault(tuple(row[k] for k in (*key, *KNOBS)), []).append(float(row[value]))
    apart = [abs(math.log(pair[0] / pair[1])) for pair in groups.values() if len(pair) == 2]
    return 1.4826 * statistics.median(apart or [0.0]) / math.sqrt(2), len(apart)


_NOISY = (
    ("served", "requests_per_second", ("name",)),
    ("batches", "seconds", ("name",)),
    ("operators", "seconds", ("key",)),
)


def read(file: Path) -> list[Row]:
    """The rows of a table; empty where it has not been measured yet."""
    if not file.exists():
        return []
    with file.open() as stream:
        return list(csv.DictReader(stream))


def write(file: Path, rows: Sequence[Row]) -> None:
    """A table of rows."""
    file.write_text(_csv(rows))


def _csv(rows: Sequence[Row]) -> str:
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def _machine() -> str:
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if "model name" in line
    ]
    return f"{len(names)} x {names[0]}" if names else "unknown"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=list(KINDS))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--lock", type=Path, default=Path(tempfile.gettempdir()) / "mlcd-measure")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    KINDS[arguments.kind](arguments.folder, arguments.lock)


KINDS = {"served": served, "batches": batches, "operators": operators, "pack": pack}


if __name__ == "__main__":
    main()
