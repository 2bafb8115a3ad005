"""How much our load generator for language models distorts times when very many answers stream at the same time.

    python benchmarks/chat_streams.py [--streams 200 1000 2000] [--seconds 30] [--rounds 3]

Keeps benchmarks/results/chat-streams.json and writes what docs/language-models.md says of it. The server is the tests'
own (tests/chat_server.py), whose times are known; it is one process of Python, on the same processors. What it is late
by itself is in the figures, too: they are upper bounds of what the generator distorts.
"""

import argparse
import json
import os
import statistics
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pages

from mlcd.loadgen.chat import ChatPlan, Exchange, measure_chat

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
RECORD = ROOT / "benchmarks" / "results" / "chat-streams.json"
PAGE = ROOT / "docs" / "language-models.md"
TTFT_SECONDS, TPOT_SECONDS = 1.0, 0.2
INPUT_TOKENS, OUTPUT_TOKENS = 64, 32


def measured(streams: int, seconds: float, number: int) -> dict[str, Any]:
    """One load test of a fresh server."""
    from tests.chat_server import chat_server  # noqa: PLC0415 - of the repository, not of the package

    with chat_server(ttft_seconds=TTFT_SECONDS, tpot_seconds=TPOT_SECONDS, slots=2 * streams) as address:
        exchange = Exchange(input_tokens=INPUT_TOKENS, output_tokens=OUTPUT_TOKENS)
        plan = ChatPlan(
            address=address, model="toy", exchanges=(exchange,), concurrency=streams, seconds=seconds, seed=number
        )
        result = measure_chat(plan)
    seen = result.chosen
    return {
        "streams": streams,
        "round": number,
        "ttft_ms": {name: round(value * 1000, 2) for name, value in seen.ttft.items()},
        "tpot_ms": {name: round(value * 1000, 3) for name, value in seen.tpot.items()},
        "tokens_per_second": round(seen.output_tokens_per_second, 1),
        "requests": seen.requests,
        "errors": seen.errors,
        "generator_share": round(result.processor_share, 3),
        "saturated": result.saturated,
        "load_average": round(os.getloadavg()[0], 1),
    }


def table(record: dict[str, Any]) -> str:
    """What the page says."""
    lines = [
        "| streams | TTFT p50 | TTFT p95 | TPOT p50 | TPOT p95 | tokens/s | of one processor |",
        "|---|---|---|---|---|---|---|",
    ]
    groups: dict[int, list[dict[str, Any]]] = {}
    for row in record["rows"]:
        groups.setdefault(row["streams"], []).append(row)
    for streams, rows in groups.items():
        cells = []
        for name, true in (("ttft_ms", TTFT_SECONDS * 1000), ("tpot_ms", TPOT_SECONDS * 1000)):
            for percentile in ("p50", "p95"):
                value = statistics.median(row[name][percentile] for row in rows)
                cells.append(f"{value:.4g} ms ({value / true - 1:+.1%})")
        rate = statistics.median(row["tokens_per_second"] for row in rows)
        share = statistics.median(row["generator_share"] for row in rows)
        lines.append(f"| {streams:,} | {' | '.join(cells)} | {rate:,.0f} | {share:.0%} |")
    loads = sorted(row["load_average"] for row in record["rows"])
    note = (
        f"Medians of {record['rounds']} rounds of {record['seconds']:g} s ({record['date'][:10]}, {record['cpus']}"
        f" processors, load averages {loads[0]:g} to {loads[-1]:g} by other work). In brackets: against the server's"
        f" timetable of {TTFT_SECONDS * 1000:g} ms and {TPOT_SECONDS * 1000:g} ms, the server's own delay included."
    )
    return "\n".join([*lines, "", note])


def parts() -> dict[Path, dict[str, str]]:
    """What is written into which page."""
    return {PAGE: {"streams": table(json.loads(RECORD.read_text()))}}


def main() -> None:
    """Measure, keep the record, write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, nargs="+", default=[200, 1000, 2000])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    rows = []
    for number in range(given.rounds):
        for streams in given.streams:
            rows.append(measured(streams, given.seconds, number))
            print(json.dumps(rows[-1]), flush=True)
    record = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "sources": pages.sources(),
        "cpus": os.cpu_count(),
        "seconds": given.seconds,
        "rounds": given.rounds,
        "rows": sorted(rows, key=lambda row: row["streams"]),
    }
    RECORD.write_text(json.dumps(record, indent=1) + "\n")
    pages.write(parts())


if __name__ == "__main__":
    main()
