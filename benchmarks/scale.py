"""How store, history and suggestions grow: the measured figures of docs/scale.md.

    python benchmarks/scale.py                            # prints every row; minutes on two cores
    python benchmarks/scale.py --record --postgres URL    # the same with a server (an empty store: runs are added);
                                                          # writes benchmarks/results/scale.json and the page's tables

Times are of this process's processor, so that other load changes them little; the record has those on the wall as well.
Runs in the store are copies of one simulated run of `mlcd train` under other names: as many rows, of the same size.
"""

import argparse
import json
import os
import platform
import resource
import tempfile
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pages

import mlcd
from mlcd.bench.suggest import time_suggest
from mlcd.run.run import AnyRun
from mlcd.store.store import Store

RECORD = pages.ROOT / "benchmarks" / "results" / "scale.json"
PAGE = pages.ROOT / "docs" / "scale.md"
RUNS = (100, 1_000, 10_000)
CANDIDATES = (3_100, 31_000, 310_000, 1_000_060)
"""62 types x 50, 500, 5,000 and 16,130 nodes."""
OBSERVATIONS = 30
REPEATS = 5
COMMAND = "python benchmarks/scale.py --record --postgres URL"


@dataclass
class Timer:
    """Milliseconds of some work: on the wall, and of this process's processor, which other load changes little."""

    wall: float = 0.0
    cpu: float = 0.0

    def __enter__(self) -> "Timer":
        self._began = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall = 1e3 * (time.perf_counter() - self._began[0])
        self.cpu = 1e3 * (time.process_time() - self._began[1])

    def per(self, count: int) -> dict[str, float]:
        """For each of so many."""
        return {"wall_ms": self.wall / count, "cpu_ms": self.cpu / count}


def real_run(home: Path) -> tuple[AnyRun, dict[str, Any]]:
    """A run as users make them, with its job."""
    result = mlcd.train(
        {
            "name": "scale",
            "resources": {"infra": "sim/aws", "instance_type": ["aws-62"]},
            "num_nodes": "1..50",
            "job": {"model": "resnet152", "samples": 50_000, "epochs": 8},
            "goal": {"minimize": "time", "budget": "150 USD"},
        },
        home=home,
    )
    with Store(home, url="") as store:
        return store.load(result.run_id), store.spec(result.run_id)


def write(store: Store, run: AnyRun, spec: dict[str, Any], name: str) -> None:
    """The run again under another name, as its engine wrote it."""
    header = replace(run.header, run_id=name)
    store.add(replace(run, header=header, steps=(), verdict=None, findings=None), spec=spec)
    for step in run.steps:
        store.start(name, [replace(step, outcome=None, ended_seconds=None, ended_moment=None)])
        store.end(name, step)
    if run.verdict is not None:
        store.conclude(name, run.verdict)
    store.finish(name, run.status, run.findings)


def store_rows(url: str, run: AnyRun, spec: dict[str, Any], most: int) -> list[dict[str, Any]]:
    """What the store takes as it grows."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        with Store(home, url=url) as store:
            written = 0
            for count in [each for each in RUNS if each <= most]:
                added = count - written
                with Timer() as writing:
                    while written < count:
                        write(store, run, spec, f"scale-{written:06x}")
                        written += 1
                with Timer() as reading:
                    for number in range(REPEATS):
                        store.load(f"scale-{number:06x}")
                with Timer() as listing:
                    store.runs()
                with Timer() as naming:
                    for _ in range(REPEATS):
                        store.latest()
                rows.append(
                    {
                        "runs": count,
                        "write": writing.per(added),
                        "load": reading.per(REPEATS),
                        "list": listing.per(1),
                        "latest": naming.per(REPEATS),
                        "mib": sum(file.stat().st_size for file in home.glob("mlcd.sqlite3*")) / 2**20,
                    }
                )
                print(json.dumps(rows[-1]), flush=True)
    return rows


def suggestion_rows() -> list[dict[str, float]]:
    """What one suggestion takes as the space grows, in a process of its own each: for its peak memory."""
    rows = []
    for candidates in CANDIDATES:
        reading, writing = os.pipe()
        if (child := os.fork()) == 0:
            with Timer() as timer:
                times = time_suggest(
                    candidates=candidates,
                    observations=OBSERVATIONS,
                    repeats=REPEATS if candidates < 10**6 else 2,
                    with_sklearn=False,
                )
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            found = {
                "deployments": times.candidates,
                "median_seconds": times.median_ms / 1e3,
                "busy": timer.wall / timer.cpu,
                "peak_gib": peak,
            }
            os.write(writing, json.dumps(found).encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as stream:
            rows.append(json.loads(stream.read()))
        os.waitpid(child, 0)
        print(json.dumps(rows[-1]), flush=True)
    return rows


def parts() -> dict[Path, dict[str, str]]:
    """What the page says of the record."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    made = f"*{record['date']}, {record['machine']}; a run has {record['steps_of_a_run']} steps: `{COMMAND}`.*"
    head = "| runs | one run written (ms) | one read (ms) | `mlcd runs` (s) | newest name (ms) | size (MiB) |"
    texts = []
    for title, kind in (("SQLite", "sqlite"), ("PostgreSQL on the same machine", "postgres")):
        lines = [_store_line(row) for row in record["store"].get(kind, ())]
        texts.append("\n".join([f"{title}:", "", head, "|---|---|---|---|---|---|", *lines]))
    lines = [
        f"| {row['deployments']:,} | {row['median_seconds'] / max(row['busy'], 1.0):.2g} | {row['peak_gib']:.2g} |"
        for row in record["suggestions"]
    ]
    head = f"| deployments | one suggestion of `auto` after {OBSERVATIONS} trials (s) | peak memory (GiB) |"
    suggestions = "\n".join([head, "|---|---|---|", *lines])
    return {PAGE: {"scale-store": "\n\n".join([*texts, made]), "scale-suggestions": suggestions}}


def _store_line(row: dict[str, Any]) -> str:
    size = f"{row['mib']:,.0f}" if row["mib"] else "-"
    write, load, every, latest = (row[name]["cpu_ms"] for name in ("write", "load", "list", "latest"))
    return f"| {row['runs']:,} | {write:.0f} | {load:.0f} | {every / 1e3:.2g} | {latest:.1f} | {size} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--postgres", metavar="URL", default="")
    parser.add_argument("--most-runs", type=int, default=RUNS[-1])
    parser.add_argument("--without-suggestions", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run, spec = real_run(Path(folder))
    store = {"sqlite": store_rows("", run, spec, options.most_runs)}
    if options.postgres:
        store["postgres"] = store_rows(options.postgres, run, spec, min(options.most_runs, 1_000))
    record = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}",
        "steps_of_a_run": len(run.steps),
        "store": store,
        "suggestions": [] if options.without_suggestions else suggestion_rows(),
    }
    if options.record:
        RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        pages.write(parts())


if __name__ == "__main__":
    main()
