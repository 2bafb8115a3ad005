"""wrk against the server, with one request in twenty malformed; and wrk compared with the product's own load generator.

    python benchmarks/serve_wrk.py [--seconds 60] [--connections 32] [--rounds 5]

Keeps benchmarks/results/serve-wrk.json and writes what docs/server.md says of it.

Every request has an id: `good`, or `bad` for a malformed one (of eight kinds, in turn). A correct server answers every
good one with 200 and its id, every bad one with 4xx, drops no connection and keeps running. wrk does not report which
response belongs to which request, so the counts are compared: they may differ by the requests in flight at the end.

Then both generators load the same server without malformed requests, in turn, and the server is asked in the middle
half of each test how many requests it has answered: that says which generator to believe. Needs wrk (Debian: apt
install wrk).
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pages

from mlcd.loadgen import LoadInput, Scenario, measure_load, split_cores
from mlcd.server import RunningServer, ServerOptions, start_server

sys.path.insert(0, str(Path(__file__).resolve().parent))
serving_models = import_module("serving_models")

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "server.md"
RESULT = ROOT / "benchmarks" / "results" / "serve-wrk.json"

LUA = """
local folder, share = "@FOLDER@", @SHARE@
local function read(name)
  local file = assert(io.open(folder .. "/" .. name, "rb"))
  local data = file:read("*a"); file:close(); return data
end
local path, binary = "@PATH@", {["Content-Type"] = "application/octet-stream"}
binary["Inference-Header-Content-Length"] = read("good.length")
local text = {["Content-Type"] = "application/json"}
local good = wrk.format("POST", path, binary, read("good.bin"))
local bad = {}
for index = 1, @KINDS@ do
  local headers, name = text, "bad" .. index
  local length = read(name .. ".length")
  if length ~= "" then headers = {["Inference-Header-Content-Length"] = length} end
  bad[index] = wrk.format(read(name .. ".method"), read(name .. ".path"), headers, read(name .. ".bin"))
end
sent_good, sent_bad, ok, refused, failed, bad_accepted, other = 0, 0, 0, 0, 0, 0, 0
local count, threads = 0, {}
function setup(thread) table.insert(threads, thread) end
function request()
  count = count + 1
  if share > 0 and count % math.floor(1 / share) == 0 then
    sent_bad = sent_bad + 1
    return bad[sent_bad % #bad + 1]
  end
  sent_good = sent_good + 1
  return good
end
function response(status, headers, body)
  if status == 200 then
    if body:find('"id": "good"', 1, true) then ok = ok + 1
    elseif body:find('"id": "bad"', 1, true) then bad_accepted = bad_accepted + 1
    else other = other + 1 end
  elseif status >= 400 and status < 500 then refused = refused + 1
  else failed = failed + 1 end
end
function done(summary, latency, requests)
  local total = {}
  for _, name in ipairs({"sent_good", "sent_bad", "ok", "refused", "failed", "bad_accepted", "other"}) do
    total[name] = 0
    for _, thread in ipairs(threads) do total[name] = total[name] + thread:get(name) end
  end
  local e = summary.errors
  io.write(string.format('RESULT {"sent_good": %d, "sent_bad": %d, "answered_200": %d, "answered_4xx": %d, ' ..
    '"answered_5xx": %d, "malformed_answered_200": %d, "answered_200_without_id": %d, ' ..
    '"socket_errors": {"connect": %d, "read": %d, "write": %d, "timeout": %d}, "requests": %d, "seconds": %.3f, ' ..
    '"p50_ms": %.3f, "p95_ms": %.3f, "p99_ms": %.3f, "max_ms": %.3f}\\n',
    total.sent_good, total.sent_bad, total.ok, total.refused, total.failed, total.bad_accepted, total.other,
    e.connect, e.read, e.write, e.timeout, summary.requests, summary.duration / 1e6,
    latency:percentile(50) / 1e3, latency:percentile(95) / 1e3, latency:percentile(99) / 1e3, latency.max / 1e3))
end
"""


def request(identity: str, **change: Any) -> tuple[bytes, bytes]:
    """(JSON, tensor) of a request for the model mlp-small, changed."""
    data = np.full(256, 0.5, dtype=np.float32).tobytes()
    tensor = {"name": "input", "datatype": "FP32", "shape": [1, 256], "parameters": {"binary_data_size": len(data)}}
    return json.dumps({"id": identity, "inputs": [{**tensor, **change}]}).encode(), data


def malformed(path: str) -> list[tuple[str, str, str, bytes]]:
    """(method, path, length of the JSON or "", body) of eight requests that cannot be answered."""
    text, data = request("bad")
    wrong_shape, wrong_type, wrong_name = (
        request("bad", **change)[0] for change in ({"shape": [1, 255]}, {"datatype": "INT8"}, {"name": "nothing"})
    )
    return [
        ("POST", path, "", text[: len(text) // 2]),
        ("POST", path, "", os.urandom(400)),
        ("POST", path, str(len(wrong_shape)), wrong_shape + data),
        ("POST", path, str(len(wrong_type)), wrong_type + data),
        ("POST", path, str(len(wrong_name)), wrong_name + data),
        ("POST", path, str(len(text)), text + data[:-7]),
        ("POST", path, "1000000", text + data),
        ("POST", path.replace("mlp-small", "no-such-model"), str(len(text)), text + data),
    ]


def run_wrk(
    server: RunningServer, *, seconds: int, connections: int, share: float, cpus: tuple[int, ...]
) -> dict[str, Any]:
    """The results that wrk reports."""
    path = f"/v2/models/{server.model}/infer"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text, data = request("good")
        (folder / "good.bin").write_bytes(text + data)
        (folder / "good.length").write_text(str(len(text)))
        kinds = malformed(path)
        for index, (method, place, length, body) in enumerate(kinds, start=1):
            for part, content in (("method", method), ("path", place), ("length", length)):
                (folder / f"bad{index}.{part}").write_text(content)
            (folder / f"bad{index}.bin").write_bytes(body)
        script = LUA
        for mark, value in (("FOLDER", name), ("SHARE", share), ("PATH", path), ("KINDS", len(kinds))):
            script = script.replace(f"@{mark}@", str(value))
        (folder / "load.lua").write_text(script)
        command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", str(folder / "load.lua")]
        pin = (lambda: os.sched_setaffinity(0, cpus)) if cpus else None
        found = subprocess.run([*command, server.address], capture_output=True, text=True, check=False, preexec_fn=pin)
    lines = [line for line in found.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        sys.exit(f"wrk failed: {found.stdout}{found.stderr}")
    result: dict[str, Any] = json.loads(lines[0].removeprefix("RESULT "))
    return result | {"requests_per_second": round(result["requests"] / result["seconds"], 1)}


def verdict(seen: dict[str, Any], connections: int, alive: bool) -> dict[str, bool]:
    """The requirements, and whether each was met."""
    return {
        "server_runs": alive,
        "no_5xx": seen["answered_5xx"] == 0,
        "no_connection_lost": not any(seen["socket_errors"].values()),
        "every_malformed_4xx": 0 <= seen["sent_bad"] - seen["answered_4xx"] <= connections,
        "no_malformed_200": seen["malformed_answered_200"] == 0,
        "every_good_200": 0 <= seen["sent_good"] - seen["answered_200"] <= connections,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--compare-seconds", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if shutil.which("wrk") is None:
        sys.exit("wrk is not installed; on Debian: apt install wrk")
    cores = split_cores(1)
    with tempfile.TemporaryDirectory() as folder:
        model = serving_models.build(Path(folder), "mlp-small")["mlp-small"]
        with start_server(ServerOptions(model=model, batch=8, cpus=cores.server)) as server:
            before = server.stats()
            seen = run_wrk(
                server, seconds=arguments.seconds, connections=arguments.connections, share=0.05, cpus=cores.generator
            )
            alive, after = server.is_alive, server.stats()
            rounds = [compare(server, arguments, cores.generator) for _ in range(arguments.rounds)]
            alive = alive and server.is_alive
        remaining = server.is_alive
    held = {**verdict(seen, arguments.connections, alive), "nothing_left_running": not remaining}
    result = {
        "what": "wrk, one request in twenty malformed, against python -m mlcd.server mlp-small.onnx --batch 8",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, {os.cpu_count()} processors; "
        + ("server and generator on one each" if cores.apart else cores.note),
        "load_average": [round(value, 1) for value in os.getloadavg()],
        "connections": arguments.connections,
        "seen": seen,
        "held": held,
        "memory_mib": {"before": before["memory_bytes"] / 2**20, "after": after["memory_bytes"] / 2**20},
        "beside_our_generator": rounds,
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    pages.write(parts())
    sys.exit(0 if all(held.values()) else 1)


def parts() -> dict[Path, dict[str, str]]:
    """What the page says, by the names there."""
    record = json.loads(RESULT.read_text(encoding="utf-8"))
    seen, memory = record["seen"], record["memory_mib"]
    held = (
        f"{record['date'][:10]}, {record['machine']}: {seen['requests']:,} requests over {record['connections']}"
        f" connections in {seen['seconds']:.0f} s. {seen['answered_200']:,} good ones were answered 200, all"
        f" {seen['answered_4xx']:,} malformed ones 4xx, {seen['answered_5xx']} 5xx;"
        f" {sum(seen['socket_errors'].values())} connections were lost, and the server's memory grew by"
        f" {memory['after'] - memory['before']:.1f} MiB."
    )
    lines = [
        "| round | generator | requests a second, it says | the server counted | difference | mean batch | median |",
        "|---|---|---|---|---|---|---|",
    ]
    for number, both in enumerate(record["beside_our_generator"], start=1):
        for name, found in both.items():
            says, counted = found["requests_per_second"], found["server_requests_per_second"]
            figures = f"{says:,.0f} | {counted:,.0f} | {says / counted - 1:+.1%} | {found['server_batch']:.1f}"
            lines.append(f"| {number} | {name} | {figures} | {found['p50_ms']:.1f} ms |")
    return {PAGE: {"held": held, "wrk": "\n".join([*lines, "", beside(record)])}}


def beside(record: dict[str, Any]) -> str:
    """How the generators differ from the server's own count and from each other."""
    rounds = record["beside_our_generator"]
    most = {
        name: max(
            abs(both[name]["requests_per_second"] / both[name]["server_requests_per_second"] - 1) for both in rounds
        )
        for name in ("ours", "wrk")
    }
    median = {name: sum(both[name]["p50_ms"] for both in rounds) / len(rounds) for name in ("ours", "wrk")}
    higher = sum(both["wrk"]["p50_ms"] > both["ours"]["p50_ms"] for both in rounds)
    return (
        f"Ours is within {most['ours']:.1%} of the server's count, wrk within {most['wrk']:.1%}. The server counted the"
        f" middle half of each test, the generators all of it, on {record['machine'].partition(';')[0]} with a load"
        f" average of {record['load_average'][0]:g}. wrk's median latency is higher in {higher} of {len(rounds)} rounds"
        f" (means {median['wrk']:.2f} ms, ours {median['ours']:.2f} ms)."
    )


def compare(server: RunningServer, arguments: argparse.Namespace, cpus: tuple[int, ...]) -> dict[str, Any]:
    """Both generators, closed loop, the same number of connections, no malformed requests."""
    seconds = arguments.compare_seconds
    with counted(server, seconds) as by_server:
        theirs = run_wrk(server, seconds=seconds, connections=arguments.connections, share=0, cpus=cpus)
    wrk = {key: theirs[key] for key in ("requests_per_second", "p50_ms", "p95_ms", "p99_ms")} | by_server
    time.sleep(0.5)
    with counted(server, seconds) as by_server:
        found = measure_load(
            server.address,
            server.model,
            [LoadInput(name="input", datatype="FP32", shape=(1, 256))],
            scenario=Scenario.OFFLINE,
            seconds=seconds,
            concurrency=arguments.connections,
            cpus=cpus,
        )
    ours = {
        "requests_per_second": round(found.requests_per_second, 1),
        "p50_ms": round(found.p50_seconds * 1000, 3),
        "p95_ms": round(found.p95_seconds * 1000, 3),
        "p99_ms": round(found.p99_seconds * 1000, 3),
        "processor_share": round(found.processor_share, 3),
        "saturated": found.saturated,
    } | by_server
    return {"wrk": wrk, "ours": ours}


@contextmanager
def counted(server: RunningServer, seconds: float) -> Iterator[dict[str, float]]:
    """What the server itself counts in the middle half of `seconds`; filled at the end of the block."""
    found: dict[str, float] = {}

    def watch() -> None:
        time.sleep(0.3 * seconds)  # later than a quarter: our generator first warms up for a tenth of its time
        first = server.stats()
        time.sleep(0.5 * seconds)
        last = server.stats()
        passed, answered, batches = (last[key] - first[key] for key in ("uptime_seconds", "requests", "batches"))
        found["server_requests_per_second"] = round(answered / passed, 1)
        found["server_batch"] = round(answered / batches, 2)
        found["server_processor_share"] = round((last["processor_seconds"] - first["processor_seconds"]) / passed, 3)

    watcher = threading.Thread(target=watch)
    watcher.start()
    yield found
    watcher.join()


if __name__ == "__main__":
    main()
