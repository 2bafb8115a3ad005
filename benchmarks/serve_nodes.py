"""Which type, which settings, how many servers: searches on the minicloud against every configuration.

    sudo .venv/bin/python benchmarks/serve_nodes.py [--models wide thumbnail] [--seeds 3]

The bed: every configuration of three types, four settings and one to three nodes, each with all of its nodes leased and
loaded for real. Then searches that see none of it, one for each seed, each with the verification of its choice. As
root, on an otherwise idle machine; about an hour. The record is kept after every step (a type of a bed, a search); a
second call continues, and --minutes ends a call early. With --again, searches of the record are dropped first, and its
beds stay.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pages
from serving_net import Net

from mlcd.findings.serve import chosen
from mlcd.jobs.prepared import begin
from mlcd.jobs.serve import prepare
from mlcd.run.run import SearchRun
from mlcd.spec.serving import serve_mapping
from mlcd.store.store import Store
from mlcd.trial.trial import Measurement

RESULT = pages.ROOT / "benchmarks" / "results" / "serve-nodes.json"
PAGE = pages.ROOT / "docs" / "serve-nodes.md"
TYPES = ("m.small", "m.large", "n.large")
REPLICAS = (1, 2, 3)
SLO = "200ms"
TRIALS = 6
TRIAL_SECONDS = 12
KILLED = ("exit code -9", "network is gone")
"""What a step says whose nodes somebody else on the machine ended (`mlcd down -y`, tests of the minicloud). A search
with such a step is shown and counted apart, and repeated."""
NEAR = 1.1
"""A choice counts as near the best if it costs at most this many times as much."""


def wide(folder: Path) -> Path:
    """Dense layers with 17 MB of weights: a batch reads them once."""
    net = Net("wide")
    x = net.input("input", 256)
    for inside, outside in ((256, 1024), (1024, 2048), (2048, 1024)):
        x = net.dense(x, inside, outside, "Relu")
    return net.save(folder, net.dense(x, 1024, 10), 10)


def thumbnail(folder: Path) -> Path:
    """A picture of 110 kB, and little to compute: the network's bandwidth matters."""
    net = Net("thumbnail")
    x = net.pool(net.input("input", 3, 96, 96), 8, stride=8, kind="AveragePool")
    x = net.dense(net.op("Flatten", x, axis=1), 3 * 12 * 12, 64, "Relu")
    return net.save(folder, net.dense(x, 64, 10), 10)


MODELS: dict[str, Callable[[Path], Path]] = {"wide": wide, "thumbnail": thumbnail}
CASES = (("wide", 0.7), ("thumbnail", 0.7), ("wide", 1.4))
"""Model, and the rate to hold as a share of the fastest server on one node of the bed: machines differ. With 0.7, one
large node or several small ones hold it; with 1.4 no single node does."""


def search(model: Path, home: Path, *, rate: float, seed: int, **others: Any) -> SearchRun:
    """A whole run on the minicloud."""
    fields: dict[str, Any] = {
        "name": model.stem,
        "model": str(model),
        "resources": {"infra": "minicloud", "instance_type": list(TYPES), "replicas": list(REPLICAS)},
        "knobs": {"batch": [1, 8], "threads": 1, "replicas": 1, "precision": ["fp32", "int8"]},
        "goal": {"minimize": "cost", "rate": rate, "slo": {"p99": SLO}},
        "load": {"verify": "20s"},
    }
    trial = {"seconds": TRIAL_SECONDS, "watchdog": 60}
    prepared = prepare(
        serve_mapping({**fields, **others, "search": {"trial": trial, **others["search"]}}), seed=seed, folder=home
    )
    with Store(home) as store:
        return begin(prepared, store=store)


def rows(run: SearchRun) -> list[dict[str, Any]]:
    """Every load test of a run, as recorded."""
    found = []
    for step in run.trials:
        trial = step.trial
        row: dict[str, Any] = {
            "config": trial.config.as_dict(),
            "usd_per_hour": step.price.dollars,
            "seconds": round(trial.seconds, 2),
        }
        if isinstance(trial, Measurement) and trial.load is not None:
            row |= {
                "requests_per_second": round(trial.samples_per_second, 2),
                "p99_ms": round(trial.load.p99_seconds * 1000, 2),
                "errors": trial.load.errors,
                "generator_share": round(trial.load.generator_share or 0.0, 3),
            }
        else:
            row["failure"] = trial.message if not isinstance(trial, Measurement) else ""
        found.append(row)
    return found


def searched(run: SearchRun, seed: int) -> dict[str, Any]:
    """A search, and what came of it."""
    choice = chosen(run)
    attempts = (*run.earlier, *([run.final] if run.final else []))
    return {
        "seed": seed,
        "status": str(run.status),
        "choice": choice.config.as_dict() if choice else None,
        "usd_per_hour": run.problem.price(choice.config).dollars if choice else None,
        "p99_ms": round(choice.load.p99_seconds * 1000, 2) if choice else None,
        "verifications": [
            {"config": str(each.config), "held": each.is_done, "fault": each.message} for each in attempts
        ],
        "seconds": round(run.total_seconds, 1),
        "usd": run.total_usd.dollars,
        "trials": rows(run),
    }


def rate_of(bed: list[dict[str, Any]], share: float) -> float:
    """The rate to hold: two digits of that share of the fastest server on one node."""
    fastest = max(row["requests_per_second"] for row in bed if kept(row) and row["config"]["nodes"] == 1)
    return float(f"{share * fastest:.2g}")


def measure(
    name: str,
    share: float,
    seeds: int,
    record: dict[str, Any],
    keep: Callable[[], None],
    time_over: Callable[[], bool],
) -> None:
    """The bed of a model, and its searches; what the record has is not measured again."""
    with tempfile.TemporaryDirectory(prefix="mlcd-serve-nodes-") as folder:
        model, home = MODELS[name](Path(folder)), Path(folder) / "home"
        mine = record["models"].setdefault(name, {"bed": [], "searches": {}})
        for instance in TYPES:
            if time_over():
                return
            if any(row["config"]["instance"] == instance for row in mine["bed"]):
                continue
            record["beds_measured"] = f"{datetime.now(UTC).date().isoformat()}, {pages.sources()}"
            every = {"strategy": "exhaustive", "max_trials": 1000, "every_replica": True}
            where = {"infra": "minicloud", "instance_type": [instance], "replicas": list(REPLICAS)}
            made = search(model, home, rate=1.0, seed=0, load={"verify": 0}, search=every, resources=where)
            mine["bed"] += rows(made)
            keep()
        rate = rate_of(mine["bed"], share)
        done = mine["searches"].setdefault(f"{share:g}", [])
        while len(done) < seeds:
            if time_over():
                return
            seed = min(set(range(seeds)) - {each["seed"] for each in done})
            found = searched(search(model, home, rate=rate, seed=seed, search={"max_trials": TRIALS}), seed)
            ended = killed_steps(found) > 0
            (mine.setdefault("ended", []) if ended else done).append({**found, "rate": rate, "share": share})
            keep()


def killed_steps(found: dict[str, Any]) -> int:
    """Steps of a search whose nodes somebody else ended."""
    texts = [each["fault"] for each in found["verifications"]] + [each.get("failure", "") for each in found["trials"]]
    return sum(any(words in text for words in KILLED) for text in texts)


def kept(row: dict[str, Any]) -> bool:
    """Whether the latency limit was kept."""
    return "p99_ms" in row and row["p99_ms"] <= float(SLO.removesuffix("ms")) and not row["errors"]


def best_of(bed: list[dict[str, Any]], rate: float) -> dict[str, Any]:
    """The cheapest configuration of the bed that held the rate within the limit; of several, the fastest."""
    held = [row for row in bed if kept(row) and row["requests_per_second"] >= rate]
    return min(held, key=lambda row: (row["usd_per_hour"], -row["requests_per_second"]))


def scaling(bed: list[dict[str, Any]]) -> list[float]:
    """Rate of n nodes / n times that of one, for every setting and n > 1 that kept the limit."""

    def key(config: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
        return tuple((name, value) for name, value in config.items() if name != "nodes")

    found = [row for row in bed if kept(row)]
    one = {key(row["config"]): row["requests_per_second"] for row in found if row["config"]["nodes"] == 1}
    return [
        row["requests_per_second"] / row["config"]["nodes"] / one[key(row["config"])]
        for row in found
        if row["config"]["nodes"] > 1 and key(row["config"]) in one
    ]


def shown(config: dict[str, Any] | None) -> str:
    """`2 x m.large, batch 8, int8`."""
    return (
        "none"
        if config is None
        else f"{config['nodes']} x {config['instance']}, batch {config['batch']}, {config['precision']}"
    )


def parts() -> pages.Parts:
    """What the page says of the record, by its name there."""
    record = json.loads(RESULT.read_text(encoding="utf-8"))
    beds = {name: mine["bed"] for name, mine in record["models"].items()}
    where = f"on {record['cpus']} processors, of which at most one did other work"
    lines = [
        f"Searches of {record['measured']} with the code of {record['code']}, {where}. The 36 configurations",
        f"of each model were measured before ({record['beds_measured']}).",
        "",
        "Three types x four settings x one to three nodes of the minicloud, for two models; p99 within 200 ms.",
        "All 36 configurations were measured for real, each with all of its nodes. Each search made at most",
        f"{TRIALS} load tests of one node, and verified its choice for 20 s with all of its nodes.",
        "",
        "| model, requests/s | best of 36 | seed | choice, verified | cost / best's | load tests | failed | killed |",
        "|---|---|---|---|---|---|---|---|",
    ]
    near: dict[bool, list[bool]] = {False: [], True: []}
    for name, rate, each in _searches(record):
        best = best_of(beds[name], rate)
        ratio = each["usd_per_hour"] / best["usd_per_hour"] if each["usd_per_hour"] else float("inf")
        killed = killed_steps(each)
        near[killed > 0].append(ratio <= NEAR)
        cells = (
            f"{name}, {rate:g}",
            f"{shown(best['config'])}: ${best['usd_per_hour']:.2f} an hour, {best['requests_per_second']:.0f}/s",
            str(each["seed"]),
            shown(each["choice"]),
            "-" if ratio == float("inf") else f"{ratio:.2f}",
            str(len(each["trials"])),
            str(sum(not verification["held"] for verification in each["verifications"])),
            str(killed),
        )
        lines.append(f"| {' | '.join(cells)} |")
    scales = [scale for bed in beds.values() for scale in scaling(bed)]
    shares = [row["generator_share"] for bed in beds.values() for row in bed if "generator_share" in row]
    quiet, other = (f"{sum(found)} of {len(found)}" for found in near.values())
    others = f" where nobody interfered, {other} of the others" if near[True] else ""
    off = statistics.median(abs(scale - 1) for scale in scales)
    middle, most = statistics.median(shares), max(shares)
    low, half, high = statistics.quantiles(scales)
    lines += [
        "",
        "The rate to hold is 0.7 or 1.4 times that of the fastest server on one node. `failed`: verifications that",
        "failed before one held; `killed`: steps whose nodes other users of the machine ended. Choices that cost at",
        f"most 10% more than the cheapest that held the rate: {quiet}{others}. Every choice held its rate when it was",
        "verified.",
        "",
        f"Over {len(scales)} pairs, the rate of n nodes / n times that of one was {half:.2f} at the median, with",
        f"quartiles {low:.2f} and {high:.2f}; the median deviation from 1 was {off:.0%}. The load generator used",
        f"{middle:.0%} of a processor at the median, {most:.0%} at most.",
    ]
    return {PAGE: {"nodes": "\n".join(lines)}}


def _searches(record: dict[str, Any]) -> Iterator[tuple[str, float, dict[str, Any]]]:
    for name, share in CASES:
        mine = record["models"][name]
        found = [*mine["searches"].get(f"{share:g}", ()), *(e for e in mine.get("ended", ()) if e["share"] == share)]
        for each in sorted(found, key=lambda each: (each["seed"], killed_steps(each))):
            yield name, each["rate"], each


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--again", action="store_true", help="make all searches again, and keep the beds")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no further step after this time")
    arguments = parser.parse_args()
    begun = time.monotonic()
    record: dict[str, Any] = {"models": {}}
    if arguments.out.exists():
        record = json.loads(arguments.out.read_text(encoding="utf-8"))
        record.setdefault("beds_measured", f"{record['measured']}, {record['code']}")
    if arguments.again:
        for mine in record["models"].values():
            mine["searches"], mine["ended"] = {}, []

    def keep() -> None:
        now = datetime.now(UTC).date().isoformat()
        record.update(measured=now, code=pages.sources(), cpus=os.cpu_count(), trial_seconds=TRIAL_SECONDS, slo=SLO)
        arguments.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")

    def time_over() -> bool:
        return bool(time.monotonic() - begun > arguments.minutes * 60)

    for name, share in CASES:
        if name in arguments.models:
            measure(name, share, arguments.seeds, record, keep, time_over)
    print(f"{time.monotonic() - begun:.0f} s")
    if arguments.out == RESULT:
        pages.write(parts())


if __name__ == "__main__":
    main()
