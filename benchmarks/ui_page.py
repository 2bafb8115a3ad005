"""`mlcd ui` under load: a store of 10,000 runs, a run of 500 trials, 50 clients on a live run.

    python benchmarks/ui_page.py [--home FOLDER]     # prints everything; three minutes on two quiet cores
    python benchmarks/ui_page.py --record            # writes benchmarks/results/ui.json and the table of docs/ui.md
    python benchmarks/ui_page.py --home FOLDER --only fill; ... --only pages --record; ... --only live --record

In parts (`--only`), each part replaces its own figures in the record. Every single time is in the record.

Measured are: seconds until the server answers; seconds until a browser shows a page's first screen, pictures included
(in Chromium; p50 and p95 of 20 visits, the first, which reads everything, among them); how long after a commit clients
are told, and have the pictures; and what clients cost: processor time of the engine and of the page's server for each
step, without clients and with them. A client reads the run's events and fetches, as the page does, what has changed on
its screen. Steps of the live run take two seconds; those of real runs take minutes.
"""

import argparse
import json
import os
import platform
import secrets
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

import pages

sys.path.insert(0, str(pages.ROOT))

from tests.ui_page import JOB, PageServer, browser, page_server

import mlcd
from mlcd.store.database import Connection
from mlcd.store.rows import FACTS, insert, select
from mlcd.store.sqlite import SqliteDatabase
from mlcd.store.store import Store
from mlcd.store.summary import RunFilter

RECORD = pages.ROOT / "benchmarks" / "results" / "ui.json"
PAGE = pages.ROOT / "docs" / "ui.md"
COMMAND = "python benchmarks/ui_page.py --record"
VISITS, STARTS = 20, 5
MOST_START_SECONDS, MOST_PAGE_SECONDS, MOST_LIVE_SECONDS, MOST_CPU_SHARE = 2.0, 1.0, 1.0, 0.10
"""What is to be reached: the start, a page (p95), an update after its commit (p95), clients' CPU of a step."""
CPU_SHARES = ("cpu_share_of_a_step_added_by_clients", "engine_cpu_added")
READY = {
    "run": "() => { const all = [...document.querySelectorAll('[data-group] > [data-part]')];"
    " const near = all.filter(each => each.getBoundingClientRect().top < innerHeight);"
    " return near.length && near.every(each => !('later' in each.dataset)) }",
    "what if": "() => document.querySelector('#front canvas')",
    "new run": "() => document.querySelector('#job').value",
}
"""When the first screen of a page is there, beyond its being loaded."""
SETTLED = {"run": "#run[data-drawn]", "what if": "[data-settled]", "new run": "#said.good"}
"""When a page is done with everything: the next visit begins after that."""
SEEN = "picture-speed:half,picture-tradeoff:half,picture-map:full"
"""What a client has on its screen."""
LONG_JOB = {
    **JOB,
    "name": "long",
    "resources": {"infra": "sim/aws", "instance_type": ["c7i.*", "g5.xlarge", "g6.xlarge", "p4d.24xlarge"]},
    "num_nodes": "1..64",
    "goal": {"minimize": "time"},
}
ENGINE = """
import json, os, resource, sys, time
import mlcd
from mlcd.events import StepEnded

def pause(event):
    if isinstance(event, StepEnded):
        used = resource.getrusage(resource.RUSAGE_SELF)
        told = {"at": time.time(), "cpu": used.ru_utime + used.ru_stime, "trials": event.step.number}
        print(json.dumps(told), flush=True)
        time.sleep(float(sys.argv[2]))

mlcd.train(json.loads(sys.argv[1]), observer=pause)
"""


def main() -> int:
    """Measure and print; the exit code says whether everything was reached."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--steps", type=int, default=15, help="steps of the live runs")
    parser.add_argument("--pause", type=float, default=2.0, help="seconds that a step of the live runs takes at least")
    parser.add_argument("--home", type=Path, help="keep the store here, and use it again")
    parser.add_argument("--record", action="store_true", help=f"write {RECORD.name}")
    parser.add_argument("--only", choices=("fill", "pages", "live"), help="one part; the others stay as recorded")
    parser.add_argument("--names", default="", help="pages to visit, separated by ';'; the others stay as recorded")
    given = parser.parse_args()
    found = json.loads(RECORD.read_text(encoding="utf-8")) if given.only and RECORD.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        home = given.home or Path(folder)
        if given.only != "live":
            long_run = filled(home, given.runs, given.trials)
        if given.only == "fill":
            return 0
        if given.only != "live":
            before = provenance()
            made = measured_pages(given, home, long_run)
            found |= {"pages_measured": before, **made, "pages": {**found.get("pages", {}), **made["pages"]}}
    if given.only != "pages":
        before = provenance()
        found |= {"live_measured": before, **measured_live(given)}
    found["reached"] = is_reached(found)
    print(json.dumps(found, indent=2))
    if given.record:
        RECORD.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
        if {"pages", "live_with_clients"} <= found.keys():
            pages.write(parts())
    return 0 if found["reached"] else 1


def provenance() -> dict[str, Any]:
    """When, on what, and with which code something was measured."""
    return {
        "made": datetime.now(UTC).date().isoformat(),
        "code": pages.sources(),
        "load_average_before": os.getloadavg()[0],
        "machine": f"{os.cpu_count()} cores, Python {platform.python_version()}",
    }


def measured_pages(given: argparse.Namespace, home: Path, long_run: str) -> dict[str, Any]:
    starts = [started(home) for _ in range(STARTS)]
    with page_server(home) as server:
        wanted = {
            name: path
            for name, path in places(server, long_run).items()
            if not given.names or name in given.names.split(";")
        }
        shown = {name: visits(server, name, path) for name, path in wanted.items()}
    return {
        "runs": given.runs,
        "trials": given.trials,
        "start_seconds": {"p50": statistics.median(starts), "most": max(starts), "all": starts},
        "pages": shown,
    }


def measured_live(given: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as alone:
        without = live(Path(alone), given, clients=0)
    with tempfile.TemporaryDirectory() as watched:
        with_one = live(Path(watched), given, clients=1)
    with tempfile.TemporaryDirectory() as watched:
        with_clients = live(Path(watched), given, clients=given.clients)
    step = with_clients["step_seconds"]
    added = with_clients["server_cpu_seconds_per_step"] - without["server_cpu_seconds_per_step"]
    engine = with_clients["engine_cpu_seconds_per_step"] / without["engine_cpu_seconds_per_step"] - 1
    return {
        "clients": given.clients,
        "live_without_clients": without,
        "live_with_one_client": with_one,
        "live_with_clients": with_clients,
        "cpu_share_of_a_step_added_by_clients": added / step,
        "engine_cpu_added": engine,
    }


def is_reached(found: dict[str, Any]) -> bool:
    """Whether everything that was measured reaches its mark."""
    marks = []
    if "pages" in found:
        marks.append(found["start_seconds"]["most"] <= MOST_START_SECONDS)
        marks += [each["p95_seconds"] <= MOST_PAGE_SECONDS for each in found["pages"].values()]
    if "live_with_clients" in found:
        live = found["live_with_clients"]
        marks += [live[f"{what}_p95_seconds"] <= MOST_LIVE_SECONDS for what in ("update", "pictures")]
        marks += [found[what] <= MOST_CPU_SHARE for what in CPU_SHARES]
    return all(marks)


def started(home: Path) -> float:
    """Seconds from the command to a server that answers."""
    began = time.monotonic()
    with page_server(home):
        return time.monotonic() - began


def filled(home: Path, runs: int, trials: int) -> str:
    """A store of so many runs, copies of one; and the name of a run of so many trials, which the engine made."""
    with Store(home) as store:
        _, have = store.find(RunFilter(), limit=1)
    if have < runs:
        made = mlcd.train(JOB, home=home)
        database = SqliteDatabase(home)
        rows = {table: select(database.db, f"SELECT * FROM {table} WHERE run_id = ?", made.run_id) for table in FACTS}
        last = {
            table: database.db.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()[0]
            for table in ("verdicts", "statuses")
        }
        database.db.execute("PRAGMA synchronous = OFF")
        for start in range(have + 1, runs, 500):
            database.write(partial(add_copies, made.run_id, rows, last, min(500, runs - start)))
        database.close()
    with Store(home) as store:
        known = store.runs_of_job("long")
    if known:
        return known[0]
    return mlcd.train({**LONG_JOB, "search": {"strategy": "exhaustive", "max_trials": trials}}, home=home).run_id


def add_copies(
    run_id: str, rows: dict[str, list[dict[str, object]]], last: dict[str, int], count: int, db: Connection
) -> None:
    """Copies of a run under other names."""
    for _ in range(count):
        name = f"{JOB['name']}-{secrets.token_hex(6)}"
        for table in FACTS:
            for row in rows[table]:
                copy = {key: value for key, value in row.items() if key != "digest"} | {"run_id": name}
                if table == "runs":
                    copy["header"] = str(copy["header"]).replace(run_id, name)
                if table in last:
                    last[table] += 1
                    copy["id"] = last[table]
                insert(db, table, [copy])


def places(server: PageServer, long_run: str) -> dict[str, str]:
    run = quote(long_run, safe="")
    other = next(run["run_id"] for run in server.get("/api/runs?limit=5")["runs"] if run["run_id"] != long_run)
    return {
        "runs": "/",
        "runs, searched": "/?search=sim/aws&kind=train&status=done",
        "runs, the oldest": "/?offset=9900",
        "run": f"/runs/{run}",
        "what if": f"/runs/{run}/what-if",
        "compare": f"/compare?run={run}&run={other}",
        "report": f"/runs/{run}/report",
        "new run": "/new",
        "catalog": "/catalog",
        "bench, without results": "/bench",
    }


def visits(server: PageServer, name: str, path: str) -> dict[str, Any]:
    """Seconds until a page's first screen is there, of several visits; the first reads everything."""
    took = []
    used = cpu_seconds(server.process.pid)
    with browser() as chromium:
        page = chromium.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(120_000)
        page.goto(f"{server.address}/static/ui.css?token={server.token}")
        for _ in range(VISITS):
            began = time.monotonic()
            page.goto(f"{server.address}{path}", wait_until="load")
            if name in READY:
                page.wait_for_function(READY[name])
            took.append(time.monotonic() - began)
            if name in SETTLED:
                page.wait_for_selector(SETTLED[name])
    used = (cpu_seconds(server.process.pid) - used) / VISITS
    return {
        "first_seconds": took[0],
        "p50_seconds": statistics.median(took),
        "p95_seconds": high(took),
        "server_cpu_seconds": used,
        "all_seconds": [round(each, 4) for each in took],
    }


def live(home: Path, given: argparse.Namespace, *, clients: int) -> dict[str, float]:
    """A run of so many steps with so many clients on it."""
    job = {**LONG_JOB, "search": {"strategy": "exhaustive", "max_trials": given.steps}}
    with page_server(home) as server:
        engine = subprocess.Popen(
            [sys.executable, "-c", ENGINE, json.dumps(job), str(given.pause)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "MLCD_HOME": str(home)},
        )
        while not (runs := server.get("/api/runs")["runs"]):
            time.sleep(0.05)
        run_id = runs[0]["run_id"]
        told: dict[int, list[float]] = {}
        drawn: dict[int, list[float]] = {}
        with watching(server, run_id, clients, told, drawn):
            assert engine.stdout is not None
            ends = []
            used = []
            for line in engine.stdout:
                ends.append(json.loads(line))
                used.append(cpu_seconds(server.process.pid))
        engine.wait()
    ends, used = ends[2:], used[2:]  # without the start
    delays, seen = ([at - end["at"] for end in ends for at in got.get(end["trials"], [])] for got in (told, drawn))
    return {
        "steps": len(ends),
        "step_seconds": (ends[-1]["at"] - ends[0]["at"]) / (len(ends) - 1),
        "engine_cpu_seconds_per_step": (ends[-1]["cpu"] - ends[0]["cpu"]) / (len(ends) - 1),
        "server_cpu_seconds_per_step": (used[-1] - used[0]) / (len(ends) - 1),
        **({"update_p50_seconds": statistics.median(delays), "update_p95_seconds": high(delays)} if delays else {}),
        **({"pictures_p50_seconds": statistics.median(seen), "pictures_p95_seconds": high(seen)} if seen else {}),
    }


@contextmanager
def watching(
    server: PageServer, run_id: str, clients: int, told: dict[int, list[float]], drawn: dict[int, list[float]]
) -> Iterator[None]:
    """Clients as the page is one: `told` gets when each had the event of how many trials, `drawn` when the pictures."""
    allowed = {"Authorization": f"Bearer {server.token}"}

    def mark(times: dict[int, list[float]], seen: int, trials: int) -> int:
        for each in range(seen + 1, trials + 1):
            times.setdefault(each, []).append(time.time())
        return max(seen, trials)

    def watch() -> None:
        seen, shown = 0, 0
        pictures = HTTPConnection(server.address.removeprefix("http://"))
        with urlopen(Request(f"{server.address}/api/runs/{run_id}/events", headers=allowed)) as answer:
            for line in answer:
                if not line.startswith(b"data: "):
                    continue
                now = json.loads(line[6:])
                seen = mark(told, seen, now.get("trials", 0))
                pictures.request("GET", f"/runs/{run_id}/live?parts={SEEN}", headers=allowed)
                pictures.getresponse().read()
                shown = mark(drawn, shown, seen)
                if now.get("state") == "done":
                    return

    threads = [threading.Thread(target=watch, daemon=True) for _ in range(clients)]
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join(10)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def high(values: Sequence[float]) -> float:
    return sorted(values)[max(0, round(0.95 * len(values)) - 1)]


def parts() -> dict[Path, dict[str, str]]:
    """What the page says of the record."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    with_clients = record["live_with_clients"]
    lines = [
        f"| {name} | {row['first_seconds']:.2f} | {row['p50_seconds']:.2f} | {row['p95_seconds']:.2f} |"
        for name, row in record["pages"].items()
    ]
    head = "| page | first visit (s) | p50 (s) | p95 (s) |"
    alone = record["live_with_one_client"]
    one = alone["server_cpu_seconds_per_step"] / alone["step_seconds"]
    start, told = record["start_seconds"], with_clients["update_p95_seconds"]
    words = (
        f"`mlcd ui` answers after {start['p50']:.1f} s (at most {start['most']:.1f} s). {record['clients']} clients on"
        f" a live run with steps of {with_clients['step_seconds']:.1f} s are told of a step {told:.2f} s after its"
        f" commit, and have its pictures after {with_clients['pictures_p95_seconds']:.2f} s (p95). They cost"
        f" {record['cpu_share_of_a_step_added_by_clients']:.0%} of a processor in the page's server (one alone"
        f" {one:.0%}), and the engine {record['engine_cpu_added']:+.0%} of its own processor time for a step."
    )
    measured = record["pages_measured"], record["live_measured"]
    loads = " and ".join(f"{each['load_average_before']:.1f}" for each in measured)
    commits = " and ".join(dict.fromkeys(each["code"] for each in measured))
    made = f"*{measured[0]['made']}, {measured[0]['machine']}, load before {loads}, commit {commits}: `{COMMAND}`.*"
    text = "\n".join([head, "|---|---|---|---|", *lines])
    return {PAGE: {"ui-speed": "\n\n".join([text, words, made])}}


if __name__ == "__main__":
    sys.exit(main())
