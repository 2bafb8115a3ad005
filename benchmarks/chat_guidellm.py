"""Our load generator for language models compared with guidellm, in turn on the same server.

    python benchmarks/chat_guidellm.py [--seconds 30] [--rounds 3] [--concurrency 1 16] [--only known | theirs]

Keeps benchmarks/results/chat-guidellm.json and writes what docs/language-models.md says of it. Two servers: ours whose
times are known (tests/chat_server.py), and guidellm's own, whose times vary. Both generators ask for the same lengths
with as many requests in flight, one after the other, and the order alternates. `transformers serve` refuses guidellm's
requests (422: it does not know `ignore_eos` and `stop`). Needs scripts/setup-engine guidellm; the tokenizer that
guidellm wants is made with its own packages.
"""

import argparse
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pages

from mlcd.loadgen.chat import ChatPlan, Exchange, measure_chat

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
RECORD = ROOT / "benchmarks" / "results" / "chat-guidellm.json"
PAGE = ROOT / "docs" / "language-models.md"
GUIDELLM = ROOT / ".venvs" / "guidellm" / "bin" / "guidellm"
TTFT_SECONDS, TPOT_SECONDS = 0.5, 0.05
INPUT_TOKENS, OUTPUT_TOKENS = 64, 32
FIGURES = {"ttft_ms": "TTFT (median)", "tpot_ms": "TPOT (median)", "tokens_per_second": "output tokens/s"}
KNOWN, THEIRS = "ours, of known times", "guidellm's, whose times vary"


@contextmanager
def known_server() -> Iterator[str]:
    """A server whose times are known."""
    from tests.chat_server import chat_server  # noqa: PLC0415 - of the repository, not of the package

    with chat_server(ttft_seconds=TTFT_SECONDS, tpot_seconds=TPOT_SECONDS) as address:
        yield address


@contextmanager
def their_server(model: Path) -> Iterator[str]:
    """guidellm's own server, once it is ready."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    times = {"ttft-ms": 500, "ttft-ms-std": 50, "itl-ms": 50, "itl-ms-std": 5, "output-tokens": OUTPUT_TOKENS}
    options = [f"--{name}={value}" for name, value in times.items()]
    command = [str(GUIDELLM), "mock-server", "--host=127.0.0.1", f"--port={port}", "--model=toy", *options]
    env = {**os.environ, "HF_HUB_OFFLINE": "1"}
    command.append(f"--processor={model}")
    with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            address = f"http://127.0.0.1:{port}"
            until = time.monotonic() + 120
            while not _ready(address):
                if time.monotonic() > until or process.poll() is not None:
                    raise SystemExit("guidellm mock-server did not start")
                time.sleep(0.5)
            yield address
        finally:
            process.terminate()


def _ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def ours(address: str, model: str, concurrency: int, seconds: float) -> dict[str, float]:
    """What mlcd measures."""
    exchange = Exchange(input_tokens=INPUT_TOKENS, output_tokens=OUTPUT_TOKENS)
    plan = ChatPlan(
        address=address, model=model, exchanges=(exchange,), concurrency=concurrency, seconds=seconds, seed=1
    )
    seen = measure_chat(plan).chosen
    return {
        "ttft_ms": seen.ttft["p50"] * 1000,
        "tpot_ms": seen.tpot["p50"] * 1000,
        "tokens_per_second": seen.output_tokens_per_second,
        "requests": seen.requests,
        "errors": seen.errors,
    }


def theirs(address: str, model: str, concurrency: int, seconds: float, tokenizer: Path) -> dict[str, float]:
    """What guidellm measures."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        command = [
            *(str(GUIDELLM), "run", "--disable-console"),
            *("--backend", f"kind=openai_http,target={address},model={model},request_format=/v1/chat/completions"),
            *("--profile", f"kind=concurrent,streams={concurrency}"),
            *("--constraint", f"kind=max_duration,seconds={seconds:g}"),
            *("--tokenizer", f"kind=huggingface_auto,model={tokenizer}"),
            *("--data", f"kind=synthetic_text,prompt_tokens={INPUT_TOKENS},output_tokens={OUTPUT_TOKENS}"),
            *("--output", f"kind=json,path={file}"),
        ]
        env = {**os.environ, "HF_HUB_OFFLINE": "1"}
        done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
        if done.returncode:
            raise SystemExit(f"guidellm ended with code {done.returncode}: {done.stderr.strip()[-500:]}")
        metrics = json.loads(file.read_text())["benchmarks"][0]["metrics"]
    return {
        "ttft_ms": metrics["time_to_first_token_ms"]["successful"]["median"],
        # Its own TPOT counts the time to the first token too; the pace after it is what it calls this.
        "tpot_ms": metrics["inter_token_latency_ms"]["successful"]["median"],
        "tokens_per_second": metrics["output_tokens_per_second"]["total"]["mean"],
        "requests": metrics["request_totals"]["successful"],
        "errors": metrics["request_totals"]["errored"],
    }


def measured(server: str, address: str, model: str, tokenizer: Path, given: argparse.Namespace) -> list[dict[str, Any]]:
    """Rounds at every concurrency; who is first alternates."""
    rows = []
    for concurrency in given.concurrency:
        for number in range(given.rounds):
            found: dict[str, dict[str, float]] = {}
            for name in ("mlcd", "guidellm")[:: 1 if number % 2 == 0 else -1]:
                if name == "mlcd":
                    found[name] = ours(address, model, concurrency, given.seconds)
                else:
                    found[name] = theirs(address, model, concurrency, given.seconds, tokenizer)
            rows.append({"server": server, "concurrency": concurrency, "round": number, **found})
            print(json.dumps(rows[-1]), flush=True)
    return rows


def apart(rows: list[dict[str, Any]], figure: str) -> float:
    """The median over rounds of ours / guidellm's, less 1."""
    return float(statistics.median(row["mlcd"][figure] / row["guidellm"][figure] for row in rows)) - 1


def table(record: dict[str, Any]) -> str:
    """What the page says."""
    lines = ["| server | in flight | " + " | ".join(FIGURES.values()) + " |", "|---|---|" + "---|" * len(FIGURES)]
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in record["rows"]:
        groups.setdefault((row["server"], row["concurrency"]), []).append(row)
    for (server, concurrency), rows in groups.items():
        cells = []
        for figure in FIGURES:
            both = [statistics.median(row[name][figure] for row in rows) for name in ("mlcd", "guidellm")]
            cells.append(f"{both[0]:.4g} / {both[1]:.4g} ({apart(rows, figure):+.1%})")
        lines.append(f"| {server} | {concurrency} | {' | '.join(cells)} |")
    worst = {server: max(_apart_all(groups, server)) for server in dict.fromkeys(key[0] for key in groups)}
    words = "; ".join(f"{server}: at most {most:.1%} apart" for server, most in worst.items())
    request_seconds = TTFT_SECONDS + (OUTPUT_TOKENS - 1) * TPOT_SECONDS
    note = (
        f"mlcd / guidellm {record['guidellm']}: medians of {record['rounds']} rounds of {record['seconds']:g} s in"
        f" turn, and the median ratio of a round ({record['cpus']} processors with a load of"
        f" {record['load_average'][1]:g} by other work, {record['date'][:10]}). {words}. What is true of the server of"
        f" known times: {TTFT_SECONDS * 1000:g} ms, {TPOT_SECONDS * 1000:g} ms, and"
        f" {OUTPUT_TOKENS / request_seconds:.2f} tokens/s for each request in flight."
    )
    return "\n".join([*lines, "", note])


def _apart_all(groups: dict[tuple[str, int], list[dict[str, Any]]], server: str) -> list[float]:
    return [abs(apart(rows, figure)) for key, rows in groups.items() if key[0] == server for figure in FIGURES]


def parts() -> dict[Path, dict[str, str]]:
    """What is written into which page."""
    return {PAGE: {"guidellm": table(json.loads(RECORD.read_text()))}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--only", choices=("known", "theirs"), help="one server; rows of the other stay as they are")
    given = parser.parse_args()
    if not GUIDELLM.exists():
        raise SystemExit(f"{GUIDELLM} is missing; run: scripts/setup-engine guidellm")
    servers = {"known": KNOWN, "theirs": THEIRS}
    wanted = [servers[given.only]] if given.only else [*servers.values()]
    rows = [row for row in json.loads(RECORD.read_text())["rows"] if row["server"] not in wanted] if given.only else []
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "llama"
        make = [str(GUIDELLM.with_name("python")), str(ROOT / "examples" / "make_llama.py"), str(model)]
        subprocess.run(make, check=True, capture_output=True)
        for name in wanted:
            with known_server() if name == KNOWN else their_server(model) as address:
                rows += measured(name, address, "toy", model, given)
            keep(sorted(rows, key=lambda row: row["server"] == THEIRS), given)


def keep(rows: list[dict[str, Any]], given: argparse.Namespace) -> None:
    """Write the record and the page."""
    version = subprocess.run([str(GUIDELLM), "--version"], capture_output=True, text=True, check=True).stdout.split()[
        -1
    ]
    record = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "sources": pages.sources(),
        "load_average": [round(value, 1) for value in os.getloadavg()],
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "guidellm": version,
        "seconds": given.seconds,
        "rounds": given.rounds,
        "rows": rows,
    }
    RECORD.write_text(json.dumps(record, indent=1) + "\n")
    pages.write(parts())


if __name__ == "__main__":
    main()
