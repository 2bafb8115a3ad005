"""Packs the rows of `measure` into the tables that ship with mlcd, and prints their sizes.

`python3 -m serve_device.pack FOLDER TARGET`, where FOLDER has models.csv, operators.csv and uses.csv.
"""

import csv
import gzip
import io
import sys
from collections import defaultdict
from pathlib import Path

Row = dict[str, str]


def rows(path: Path) -> list[Row]:
    with path.open() as lines:
        return list(csv.DictReader(lines))


def write(path: Path, columns: list[str], found: list[Row]) -> None:
    """Write rows reproducibly: no time stamp, sorted, blanks for missing values."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(found)
    with path.open("wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="", compresslevel=9) as packed:
        packed.write(text.getvalue().encode())
    print(f"{path.name}: {len(found)} rows, {path.stat().st_size / 1024:.0f} KiB")


def plain(row: Row) -> Row:
    """Numbers without the trailing .0 that Python writes."""
    return {key: value.removesuffix(".0") for key, value in row.items()}


def order(row: Row) -> tuple[object, ...]:
    name = (row.get("model", ""), row.get("operator", ""), row.get("shape", ""))
    return (*name, row["precision"], int(row["sms"]), int(row["batch"]), row["round"])


def complete(found: list[Row], configurations: int) -> list[Row]:
    """The operators that were measured in every configuration, with their latest measurements."""
    latest = {order(row): row for row in found if row["status"] != "error"}
    seen: dict[tuple[str, str], int] = defaultdict(int)
    for row in latest.values():
        seen[row["operator"], row["shape"]] += row["round"] == "0"
    return [row for row in latest.values() if seen[row["operator"], row["shape"]] == configurations]


def main() -> None:
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    models = sorted((plain(row) for row in rows(source / "models.csv")), key=order)
    configurations = len({(row["sms"], row["batch"], row["precision"]) for row in models})
    columns = [
        "model",
        "precision",
        "sms",
        "batch",
        "round",
        "status",
        "median_ms",
        "p95_ms",
        "memory_mib",
        "runs",
        "mode",
    ]
    write(target / "h200-models.csv.gz", [*columns, "message"], models)
    operators = sorted((plain(row) for row in complete(rows(source / "operators.csv"), configurations)), key=order)
    columns = ["operator", "shape", "precision", "sms", "batch", "round", "status", "microseconds"]
    write(target / "h200-operators.csv.gz", columns, operators)
    uses = [plain(row) for row in rows(source / "uses.csv")]
    columns = ["model", "family", "operator", "shape", "count", "flops", "bytes", "share_fp32", "share_fp16"]
    write(target / "h200-uses.csv.gz", columns, uses)


if __name__ == "__main__":
    main()
