"""The model server against 50,000 hostile requests, while a witness sends good ones and measures its own latency.

The server is a real process with a small model. `http_requests.py` has the requests; the limits on time are shortened
to seconds so that slow clients meet them. The witness is a process of its own: the attacker's load must not show in it.
"""

import asyncio
import contextlib
import http.client
import json
import multiprocessing
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path

from attacks.attack import Attack, Kind, Tally
from attacks.http_client import HANG, TRIES, Answer, Client
from attacks.http_requests import (
    BODY_SECONDS,
    HEADER_SECONDS,
    MODEL,
    REQUEST_BYTES,
    Case,
    body_of,
    case_of,
)

AT_ONCE = 48
PACE = 3.0
"""Time between two cases over the time of a good request (the tenth percentile of the witness before the attack): so
the witness sees the harm of single requests and not a queue of many."""
CONNECTIONS = 160
IN_FLIGHT_BYTES = 32 * 2**20
MOST_GROWTH_MIB = 256
"""Of the server's memory over that after its first answers: twice the bytes in flight (a batch is a copy), five times
the largest body (text and numbers of the one being read), buffers of connections, and what the allocator keeps."""
MOST_LOG_BYTES = 64 * 1024
LATENCY_RATIO = 20.0
"""p99 of the witness under attack over its own p99 before it."""
HANG_SECONDS = 30.0
IDLE_SECONDS = 3.0
HOLD_SECONDS = IDLE_SECONDS + BODY_SECONDS
"""After this, a client that has read nothing looks whether the server has closed the connection."""
"""Of a request that is turned away with 503 or whose connection makes room for others, as a client would."""
WITNESS_PAUSE_SECONDS = 0.01
UNLOADED_REQUESTS = 500


def run(count: int, seed: int, folder: Path) -> Tally:
    """See Attack."""
    from tests.tiny_onnx import write_open  # noqa: PLC0415

    tally = Tally()
    with _server(write_open(folder / f"{MODEL}.onnx"), folder) as server, _witness(server.port) as witness:
        unloaded = witness.unloaded_seconds()
        before_descriptors, before_mib = server.descriptors(), server.memory_mib("VmHWM")
        asyncio.run(_attack(count, seed, server.port, PACE * statistics.quantiles(unloaded, n=10)[0], tally))
        seen = witness.end()
        time.sleep(2 * BODY_SECONDS + 2)  # whatever is held open has to end by now
        _judge_server(server, before_descriptors, before_mib, tally)
        _judge_witness(seen, tally)
    return tally


@dataclass(frozen=True, kw_only=True)
class _Server:
    process: "subprocess.Popen[bytes]"
    port: int
    log: Path

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))  # noqa: PTH208

    def memory_mib(self, name: str) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(rf"^{name}:\s+(\d+) kB", status, re.MULTILINE)
        return int(found[1]) / 1024 if found else 0.0


@contextlib.contextmanager
def _server(model: Path, folder: Path) -> Iterator[_Server]:
    options = [f"--connections={CONNECTIONS}", f"--header-seconds={HEADER_SECONDS}", f"--body-seconds={BODY_SECONDS}"]
    options += [
        f"--idle-seconds={IDLE_SECONDS}",
        f"--in-flight-bytes={IN_FLIGHT_BYTES}",
        f"--request-bytes={REQUEST_BYTES}",
    ]
    command = [sys.executable, "-m", "mlcd.server", str(model), "--batch=4", "--size", "length=4", *options]
    log = folder / "log.txt"
    with log.open("wb") as errors:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors)
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        yield _Server(process=process, port=int(ready["address"].rpartition(":")[2]), log=log)
    finally:
        process.terminate()
        process.wait(30)


async def _attack(count: int, seed: int, port: int, pace_seconds: float, tally: Tally) -> None:
    numbers = iter(range(count))
    client = Client(port=port, hang_seconds=HANG_SECONDS, hold_seconds=HOLD_SECONDS)
    loop = asyncio.get_running_loop()
    due = loop.time()

    async def attacker() -> None:
        nonlocal due
        for number in numbers:
            due = max(due, loop.time() - pace_seconds) + pace_seconds
            await asyncio.sleep(due - loop.time())
            case = case_of(seed, number)
            for found in await asyncio.gather(*(client.ask(case) for _ in range(case.clients))):
                _judge(case, number, found, tally)
            tally.count(case.kind)

    await asyncio.gather(*(attacker() for _ in range(AT_ONCE)))


def _judge(case: Case, number: int, found: list[Answer] | str, tally: Tally) -> None:
    if isinstance(found, str):
        kind = Kind.HANG if found == HANG else Kind.WRONG
        tally.find(kind, number, f"{case.kind}: {found}")
        return
    for answer in found:
        status, problem = answer.status, _problem(answer)
        if problem:
            tally.find(Kind.WRONG, number, f"{case.kind}: {problem}")
        elif status >= 500 and status != 503:
            tally.find(Kind.SERVER_ERROR, number, f"{case.kind}: answered {status}")
        elif status not in case.allowed and status != 503:
            right = ", ".join(str(each) if each else "closed" for each in sorted(case.allowed)[:8])
            tally.find(Kind.WRONG, number, f"{case.kind}: answered {status or 'by closing'}; right: {right}")


def _problem(answer: Answer) -> str:
    """What is wrong with an answer, whatever was asked; "" where nothing is."""
    if answer.status == 503 and b"retry-after: " not in answer.head:
        return "503 without Retry-After"
    if answer.status < 400:
        return ""
    try:
        problem = json.loads(answer.content)["error"]
    except (ValueError, KeyError):
        return f"an answer {answer.status} without an error: {answer.content[:80]!r}"
    if "\n" in problem or len(problem) > 1000:
        return f"an error of {len(problem)} characters: {problem[:80]!r}"
    return ""


@dataclass(kw_only=True)
class _Seen:
    """By the witness: seconds of its requests before and during the attack, and what went wrong."""

    unloaded: list[float] = field(default_factory=list)
    loaded: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    retries: int = 0


@dataclass(frozen=True, kw_only=True)
class _Witness:
    over: Event
    result: Connection

    def unloaded_seconds(self) -> list[float]:
        """Waits for the requests before the attack."""
        found: list[float] = self.result.recv()
        return found

    def end(self) -> _Seen:
        self.over.set()
        seen: _Seen = self.result.recv()
        return seen


@contextlib.contextmanager
def _witness(port: int) -> Iterator[_Witness]:
    context = multiprocessing.get_context("spawn")
    over = context.Event()
    result, sender = context.Pipe(duplex=False)
    process = context.Process(target=_watch, args=(port, over, sender), daemon=True)
    process.start()
    try:
        yield _Witness(over=over, result=result)
    finally:
        over.set()
        process.join(10)
        if process.is_alive():
            process.kill()


def _watch(port: int, over: Event, sender: Connection) -> None:
    """Good requests, one after the other, every tenth on a new connection, until it is over."""
    seen, number = _Seen(), 0
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG_SECONDS)
    while not over.is_set():
        number += 1
        if number % 10 == 0:
            connection.close()
        began = time.perf_counter()
        for attempt in range(TRIES):
            problem = _good_answer(connection, number)
            if not problem:
                break
            connection.close()
            seen.retries += 1
            time.sleep(0.01 * 2**attempt)
        else:
            seen.errors.append(problem)
        (seen.loaded if number > UNLOADED_REQUESTS else seen.unloaded).append(time.perf_counter() - began)
        if number == UNLOADED_REQUESTS:
            sender.send(seen.unloaded)
        time.sleep(WITNESS_PAUSE_SECONDS)
    sender.send(seen)


def _good_answer(connection: http.client.HTTPConnection, number: int) -> str:
    """What is wrong with the answer to a good request; "" where nothing is."""
    numbers = [float(number), -1.0, 0.5, 7.0]
    try:
        connection.request("POST", f"/v2/models/{MODEL}/infer", body_of(data=numbers))
        answer = connection.getresponse()
        content = answer.read()
    except (OSError, http.client.HTTPException) as error:
        return f"{type(error).__name__}: {error}"
    if answer.status != 200:
        return f"answered {answer.status}: {content[:100]!r}"
    found = json.loads(content)["outputs"][0]["data"]
    return "" if found == [max(each, 0.0) for each in numbers] else f"a wrong answer: {found}"


def _p99(seconds: list[float]) -> float:
    return sorted(seconds)[int(0.99 * len(seconds))]


def _judge_witness(seen: _Seen, tally: Tally) -> None:
    for error in seen.errors:
        tally.find(Kind.WRONG, -1, f"the witness: {error}")
    if not seen.loaded:
        tally.find(Kind.HANG, -1, "the witness was not answered once during the attack")
        return
    ratio = _p99(seen.loaded) / _p99(seen.unloaded)
    tally.outcomes[f"witness requests (p99 {ratio:.1f} times its own unloaded, {seen.retries} retries)"] = len(
        seen.loaded
    )
    if ratio > LATENCY_RATIO:
        tally.find(Kind.HANG, -1, f"p99 of the witness is {ratio:.0f} times its own before the attack")


def _judge_server(server: _Server, descriptors: int, memory_mib: float, tally: Tally) -> None:
    if server.process.poll() is not None:
        tally.find(Kind.WRONG, -1, f"the server ended with code {server.process.returncode}")
        return
    if (now := server.descriptors()) > descriptors + 2:
        tally.find(Kind.WRONG, -1, f"{now} descriptors are open after the attack, {descriptors} before it")
    tally.peak_mib = server.memory_mib("VmHWM")
    if (growth := tally.peak_mib - memory_mib) > MOST_GROWTH_MIB:
        tally.find(Kind.MEMORY, -1, f"the server's memory grew by {growth:.0f} MiB, over {MOST_GROWTH_MIB}")
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=HANG_SECONDS)
    connection.request("GET", f"/v2/models/{MODEL}/stats")
    stats = json.loads(connection.getresponse().read())
    connection.close()
    for name in ("in_flight_bytes", "waiting", "running"):
        if stats[name]:
            tally.find(Kind.MEMORY, -1, f"{name} is {stats[name]} after all requests have ended")
    log = server.log.read_text(errors="replace")
    tally.outcomes["lines of log"] = log.count("\n")
    if len(log) > MOST_LOG_BYTES:
        tally.find(Kind.MEMORY, -1, f"the log has {len(log):,} bytes, over {MOST_LOG_BYTES:,}")
    if "Traceback" in log:
        tally.find(Kind.TRACEBACK, -1, log[log.index("Traceback") :][-300:])


ATTACKS = (Attack(name="http", what="hostile HTTP requests to the model server", count=50_000, run=run),)
