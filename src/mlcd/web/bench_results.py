"""Results of `mlcd bench train -o json`, read from the files that the user names when the page is started."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlcd.errors import BadInput
from mlcd.units import Usd
from mlcd.untrusted import Malformed, printable, read_json
from mlcd.web.api_types import BenchesJson, BenchJson, BenchPointJson, BenchSummaryJson

MOST_BYTES = 64 * 2**20
MOST_POINTS = 2_000
"""Runs whose points are shown; of more, some are left out evenly."""


def read_benches(files: Sequence[Path]) -> BenchesJson:
    """The results in these files. Raises BadInput that names the file."""
    return BenchesJson(results=tuple(map(_read, files)))


def _read(file: Path) -> BenchJson:
    try:
        data = read_json(file, most_bytes=MOST_BYTES)
        rows = [row for row in data["rows"] if row["ratio"] is not None]
        every = max(1, -(-len(rows) // MOST_POINTS))
        return BenchJson(
            name=printable(file.stem, most_characters=80),
            summary=tuple(_summary(each) for each in data["summary"]),
            points=tuple(_point(row) for row in rows[::every]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, Malformed) as error:
        raise BadInput(f"--bench: {file} is not what `mlcd bench train -o json` writes ({error})") from error
    except OSError as error:
        raise BadInput(f"--bench: {file} cannot be read: {error.strerror or error}") from error


def _summary(given: dict[str, Any]) -> BenchSummaryJson:
    low, high = given["ratio_interval"]
    share = given["probe_share"]
    return BenchSummaryJson(
        strategy=_text(given["strategy"]),
        goal=_text(given["goal"]),
        hours=float(given["hours"]),
        runs=int(given["runs"]),
        mean_ratio=float(given["mean_ratio"]),
        low_ratio=float(low),
        high_ratio=float(high),
        median_ratio=float(given["median_ratio"]),
        p95_ratio=float(given["p95_ratio"]),
        violations=int(given["violations"]),
        unfinished=int(given["unfinished"]),
        mean_trials=float(given["mean_trials"]),
        probe_share=None if share is None else min(max(float(share), 0.0), 1.0),
    )


def _point(row: dict[str, Any]) -> BenchPointJson:
    return BenchPointJson(
        strategy=_text(row["strategy"]),
        workload=_text(row["workload"]),
        search_usd=Usd.of(f"{float(row['probe_usd']):.6f}"),
        ratio=float(row["ratio"]),
    )


def _text(value: object) -> str:
    return printable(str(value), most_characters=120)
