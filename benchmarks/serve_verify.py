"""Whether recommendations hold: for each model a search, its own verification of 60 seconds, and then another one.

`first_choice_held`: the first verification succeeded, nothing was downgraded. `held_again`: the final recommendation
sustained the promised rate within the limit for another 60 seconds, on a new server and with other arrivals.

    python benchmarks/serve_verify.py FOLDER [--out benchmarks/results/serve-verify.json] [NAME ...]

Models that are in the offline data are searched for as if they were unknown: their own rows are excluded.
"""

import argparse
import contextlib
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import pages
import serve_real
from serve_cpu import turn
from serving_models import MODELS, build

import mlcd.jobs.serve as serving
from mlcd.findings.serve import chosen
from mlcd.known.cpu import cpu
from mlcd.profiler.load import verify_load

RESULT = pages.ROOT / "benchmarks" / "results" / "serve-verify.json"
PAGE = pages.ROOT / "docs" / "serve.md"
NAMES = (
    "resnet50-like", "vit-small", "gru", "mlp-wide", "yolo-like", "efficientnet-like", "inception-like", "dcn",
    "text-cnn", "autoencoder",
)  # fmt: skip
"""Models that nothing was tuned on: sha256(name) is even."""


def verify(name: str, model: Path, strategy: str, home: Path, slo: str) -> dict[str, Any]:
    """One search, with its verifications in order."""
    known = cpu().without(name)
    serving._known = lambda: known
    spec = serve_real.job(name, model, strategy, trials=serve_real.TRIALS, verify_seconds=60.0, slo=slo)
    record, prepared = serve_real.search(spec, home)
    choice = chosen(record)
    once_more = choice and verify_load(
        prepared.server,
        choice.config,
        rate=choice.requests_per_second,
        attempt=50,
        most_seconds=150.0,
        test=prepared.test,
        run_id=record.run_id,
    )
    runs = [*record.earlier, *([record.final] if record.final else [])]
    return {
        "model": name,
        "family": MODELS[name][0],
        "slo": slo,
        "status": str(record.status),
        "first_choice_held": bool(record.final and record.final.is_done and not record.earlier),
        "held": bool(record.final and record.final.is_done),
        "held_again": bool(once_more and not once_more.fault),
        "again": {"fault": once_more.fault, "p99_ms": once_more.load.p99_seconds * 1000 if once_more.load else None}
        if once_more
        else None,
        "choice": str(choice.config) if choice else None,
        "requests_per_second": choice.requests_per_second if choice else None,
        "p99_ms": choice.load.p99_seconds * 1000 if choice else None,
        "requests": choice.load.requests if choice else None,
        "verifications": [
            {
                "config": str(run.config),
                "held": run.is_done,
                "message": run.message,
                "p99_ms": run.load.p99_seconds * 1000 if run.load else None,
            }
            for run in runs
        ],
        "trials": serve_real.table(record),
    }


def parts() -> pages.Parts:
    """What the page says of the record, by its name there."""
    record = json.loads(RESULT.read_text(encoding="utf-8"))
    summary, rows = record["summary"], record["models"]
    count = summary["models"]
    later = [row for row in rows if row["held"] and not row["first_choice_held"]]
    names = f" ({', '.join(row['model'] for row in later)})" if later else ""
    again = sorted(row["again"]["p99_ms"] for row in rows if row["again"] and row["again"]["p99_ms"] is not None)
    lines = [
        f"Measured on {summary['measured']} with the code of {summary['code']}.",
        "",
        "| | models |",
        "|---|---|",
        f"| the first choice held its verification of 60 s | {summary['first_choice_held']} of {count} |",
        f"| the first did not, one after it did{names} | {len(later)} of {count} |",
        f"| none held | {count - summary['held_in_the_end']} of {count} |",
        (
            "| what was recommended held 60 s more on a new server, with other arrivals |"
            f" {summary['held_again']} of {count} |"
        ),
        "",
        f"In those last 60 s p99 was {again[0]:.0f} to {again[-1]:.0f} ms at the promised rate.",
    ]
    return {PAGE: {"verified": "\n".join(lines)}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=list(NAMES))
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--strategy", default="falcon")
    parser.add_argument("--slo", default=serve_real.SLO)
    parser.add_argument("--lock", type=Path, default=Path(tempfile.gettempdir()) / "mlcd-measure")
    arguments = parser.parse_args()
    models = build(arguments.folder / "models", *arguments.names)
    done: dict[str, Any] = {"models": []}
    with contextlib.suppress(OSError, ValueError):
        done = json.loads(arguments.out.read_text())
    for name, model in models.items():
        with turn(arguments.lock):
            found = verify(name, model, arguments.strategy, arguments.folder / "home", arguments.slo)
        done["models"] = [other for other in done["models"] if other["model"] != name] + [found]
        rows = done["models"]
        done["summary"] = {
            "models": len(rows),
            "first_choice_held": sum(row["first_choice_held"] for row in rows),
            "held_in_the_end": sum(row["held"] for row in rows),
            "held_again": sum(row["held_again"] for row in rows),
            "measured": time.strftime("%Y-%m-%d"),
            "code": pages.sources(),
        }
        arguments.out.write_text(json.dumps(done, indent=1) + "\n")
        print(
            f"{name}: {found['choice']}, held at once: {found['first_choice_held']}, again: {found['held_again']}",
            flush=True,
        )


if __name__ == "__main__":
    main()
