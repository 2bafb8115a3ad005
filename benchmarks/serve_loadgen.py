"""MLPerf's own LoadGen compared with the product's load generator: the same server, the same scenarios.

    pip install mlcommons-loadgen
    python benchmarks/serve_loadgen.py [--seconds 10] [--rate 100] [--result benchmarks/results/serve-loadgen.json]

LoadGen decides when requests are sent and computes the statistics; this file only sends them, over the same sockets
that the product uses. So the comparison covers arrivals, the definition of the scenarios, and percentiles.
"""

import argparse
import json
import os
import queue
import re
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pages

from mlcd.loadgen import LoadInput, Scenario, measure_load, split_cores
from mlcd.loadgen.wire import Wire, bodies
from mlcd.server import RunningServer, ServerOptions, start_server

serving_models = import_module("serving_models")
RESULT = pages.ROOT / "benchmarks" / "results" / "serve-loadgen.json"
PAGE = pages.ROOT / "docs" / "server.md"
INPUTS = (LoadInput(name="input", datatype="FP32", shape=(1, 512)),)


class Carrier:
    """Sends the requests that LoadGen issues, and reports to it when the responses arrive."""

    def __init__(self, loadgen: Any, server: RunningServer) -> None:
        self._loadgen = loadgen
        place = urlsplit(server.address)
        requests = bodies(place.netloc, server.model, INPUTS, seed=0)
        self._wire = Wire(str(place.hostname), int(place.port or 0), requests, timeout_seconds=10)
        self._asked: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._carry)
        self._thread.start()
        self.errors = 0

    def issue(self, samples: list[Any]) -> None:
        for sample in samples:
            self._asked.put(sample.id)

    def close(self) -> None:
        self._asked.put(None)
        self._thread.join()
        self._wire.close()

    def _carry(self) -> None:
        while True:
            try:
                identity = self._asked.get(timeout=0.0005) if not self._wire.under_way else self._asked.get_nowait()
                if identity is None:
                    return
                self._wire.send(time.perf_counter(), tag=identity)
            except queue.Empty:
                pass
            for done in self._wire.wait(0.0002 if self._wire.under_way else 0.0):
                self.errors += bool(done.error)
                self._loadgen.QuerySamplesComplete([self._loadgen.QuerySampleResponse(done.tag, 0, 0)])


def by_loadgen(loadgen: Any, server: RunningServer, scenario: Scenario, seconds: float, rate: float) -> dict[str, Any]:
    carrier = Carrier(loadgen, server)
    settings = loadgen.TestSettings()
    settings.scenario = {
        Scenario.SERVER: loadgen.TestScenario.Server,
        Scenario.SINGLE_STREAM: loadgen.TestScenario.SingleStream,
        Scenario.MULTI_STREAM: loadgen.TestScenario.MultiStream,
    }[scenario]
    settings.mode = loadgen.TestMode.PerformanceOnly
    settings.server_target_qps = rate
    settings.server_target_latency_ns = 10**9
    settings.multi_stream_samples_per_query = 8
    settings.min_duration_ms = settings.max_duration_ms = int(seconds * 1000)
    settings.min_query_count = 1
    system = loadgen.ConstructSUT(carrier.issue, lambda: None)
    library = loadgen.ConstructQSL(64, 64, lambda _: None, lambda _: None)
    with tempfile.TemporaryDirectory() as folder:
        output = loadgen.LogOutputSettings()
        output.outdir = folder
        log = loadgen.LogSettings()
        log.log_output = output
        loadgen.StartTestWithLogSettings(system, library, settings, log)
        summary = (Path(folder) / "mlperf_log_summary.txt").read_text()
    loadgen.DestroyQSL(library)
    loadgen.DestroySUT(system)
    carrier.close()
    found = {
        f"p{percent}_ms": _field(summary, rf"{percent}\.00 percentile latency \(ns\)") / 1e6 for percent in (50, 95, 99)
    }
    return {name: round(value, 3) for name, value in found.items()} | {"errors": carrier.errors}


def _field(summary: str, name: str) -> float:
    match = re.search(rf"^{name}\s*:\s*([0-9.]+)", summary, re.MULTILINE)
    return float(match[1]) if match else float("nan")


def by_us(
    server: RunningServer, scenario: Scenario, seconds: float, rate: float, cpus: tuple[int, ...], seed: int
) -> dict[str, Any]:
    given = rate if scenario is Scenario.SERVER else None
    result = measure_load(
        server.address, server.model, INPUTS, scenario=scenario, seconds=seconds, rate=given, cpus=cpus, seed=seed
    )
    found = {f"p{p}_ms": getattr(result, f"p{p}_seconds") * 1000 for p in (50, 95, 99)}
    return {name: round(value, 3) for name, value in found.items()} | {"errors": result.errors}


def parts() -> pages.Parts:
    """What the page says of the record, by its name there."""
    record = json.loads(RESULT.read_text(encoding="utf-8"))
    lines = [
        (
            f"{record['date'][:10]}, {record['seconds']:g} s a scenario and round, load average"
            f" {record['load_average'][0]:g}; `server` at {record['rate']:g} requests a second;"
            " latencies in ms, LoadGen's and ours:"
        ),
        "",
        "| scenario | median | p99 | errors |",
        "|---|---|---|---|",
    ]
    for row in record["rounds"]:
        theirs, ours = row["loadgen"], row["ours"]
        pairs = (f"{theirs[name]:.1f}, {ours[name]:.1f}" for name in ("p50_ms", "p99_ms"))
        lines.append(f"| {row['scenario']} | {' | '.join(pairs)} | {theirs['errors']}, {ours['errors']} |")
    return {PAGE: {"loadgen": "\n".join(lines)}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rate", type=float, default=100)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--result", type=Path, default=RESULT)
    arguments = parser.parse_args()
    try:
        loadgen = import_module("mlperf_loadgen")
    except ImportError:
        sys.exit("mlcommons-loadgen is not installed; pip install mlcommons-loadgen")
    cores = split_cores(1)
    rounds: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        model = serving_models.build(Path(folder), "mlp-deep")["mlp-deep"]
        with start_server(ServerOptions(model=model, batch=8, cpus=cores.server)) as server:
            if cores.generator:
                os.sched_setaffinity(0, cores.generator)
            for number in range(arguments.rounds):
                for scenario in (Scenario.SINGLE_STREAM, Scenario.MULTI_STREAM, Scenario.SERVER):
                    theirs = by_loadgen(loadgen, server, scenario, arguments.seconds, arguments.rate)
                    ours = by_us(server, scenario, arguments.seconds, arguments.rate, cores.generator, number)
                    rounds.append({"scenario": scenario.value, "loadgen": theirs, "ours": ours})
                    print(json.dumps(rounds[-1]), flush=True)
    result = {
        "what": "mlcommons-loadgen and mlcd.loadgen on one server: mlp-deep, batch 8, one processor each",
        "code": pages.sources(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "load_average": [round(value, 1) for value in os.getloadavg()],
        "rate": arguments.rate,
        "seconds": arguments.seconds,
        "rounds": rounds,
    }
    arguments.result.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
