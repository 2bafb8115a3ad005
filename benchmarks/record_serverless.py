"""The record of `mlcd bench serverless`, with the tables of docs/siren.md.

    .venv/bin/python benchmarks/record_serverless.py              # about half an hour on 2 cores
    .venv/bin/python benchmarks/record_serverless.py --page-only  # the tables from the record

Everything is simulated; the same sources give the same record.
"""

import argparse
import json
import statistics
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pages
from serverless_findings import BUDGETS, findings, interval, mpc_results, percent, siren_results, table, wrong_claims

from mlcd.bench.serverless.compare import (
    DEFAULT_SCHEDULERS,
    ServerlessComparison,
    ServerlessRow,
    Versus,
    compare,
    smallest_budgets,
    summarise,
    versus,
    workload_names,
)
from mlcd.clouds.functions.sim.wide import UNSEEN_ONLY, families
from mlcd.version import __version__
from papers import siren_ec2, siren_toy

ROOT = Path(__file__).parents[1]
PAGE, SHORT_PAGE = ROOT / "benchmarks" / "notes" / "siren.md", ROOT / "docs" / "siren.md"
MPC_PAGE, SIREN_PAGE = (ROOT / "docs" / "schedulers" / f"{name}.md" for name in ("mpc", "siren"))
WRONG_PAGE = ROOT / "docs" / "what-we-got-wrong.md"
RESULT = ROOT / "benchmarks" / "results" / "serverless.json"
CURVE = ROOT / "benchmarks" / "results" / "siren-training.json"
SCRIPT = ".venv/bin/python benchmarks/papers/siren.py"
PAPER_ROWS = {100.0: (4979.7, 4480.4), 200.0: (2816.9, 2454.4), 300.0: (2452.3, 1569.5)}


def table_of(rows: Sequence[ServerlessRow]) -> list[dict[str, Any]]:
    """The lines of a table, as recorded: each scheduler at each budget."""
    pairs: dict[tuple[str, float], Versus] = {(v.scheduler, v.budget_usd): v for v in versus(rows)}
    done = {(r.workload, r.scheduler, r.budget_usd, r.seed): r.seconds for r in rows if r.status == "done"}
    needed = smallest_budgets(rows)
    lines = []
    for s in sorted(summarise(rows), key=lambda s: s.budget_usd):
        at = s.scheduler, s.budget_usd
        mine = [r for r in rows if (r.scheduler, r.budget_usd) == at]
        told = [r for r in mine if (r.workload, "informed", r.budget_usd, r.seed) in done]
        ratios: dict[str, list[float]] = {}
        for r in told:
            if r.status == "done":
                best = done[r.workload, "informed", r.budget_usd, r.seed]
                ratios.setdefault(r.workload, []).append(r.seconds / best - 1)
        every = [value for values in ratios.values() for value in values]
        pair = pairs.get(at)
        lines.append(
            {
                "budget_usd": s.budget_usd,
                "scheduler": s.scheduler,
                "runs": s.runs,
                "mean_seconds": s.mean_seconds,
                "mean_usd": s.mean_usd,
                "over_budget": s.violations,
                "unfinished": s.infeasible,
                "payable": len(told),
                "unfinished_of_payable": sum(r.status != "done" for r in told),
                "needs_usd": needed.get(at),
                "against_static": pair.against_static if pair else None,
                "against_untrained": pair.against_untrained if pair else None,
                "against_siren": pair.against_siren if pair else None,
                "against_informed": statistics.fmean(every) if every else None,
                "interval": interval(ratios) if every else None,
                "median": statistics.median(every) if every else None,
            }
        )
    return lines


def comparison_table(lines: Sequence[dict[str, Any]]) -> list[str]:
    shown = []
    for line in lines:
        needed, between = line["needs_usd"], line["interval"]
        over = percent(line["against_informed"])
        if between is not None and line["scheduler"] != "informed":
            over += f" ({between[0]:+.1%} to {between[1]:+.1%})"
        shown.append(
            [
                f"${line['budget_usd']:g}",
                f"`{line['scheduler']}`",
                "-" if line["mean_seconds"] is None else f"{line['mean_seconds']:,.0f}",
                "-" if line["mean_usd"] is None else f"{line['mean_usd']:,.2f}",
                str(line["over_budget"]),
                f"{line['unfinished']} of {line['runs']}" + (f" (needs ${needed:g})" if needed else ""),
                f"{line['unfinished_of_payable']} of {line['payable']}",
                *(percent(line[key]) for key in ("against_static", "against_untrained", "against_siren")),
                over,
                percent(line["median"]),
            ]
        )
    heads = ["budget", "scheduler", "seconds", "USD", "over budget", "unfinished", "of those `informed` finishes"]
    heads += ["vs `static`", "vs `siren-untrained`", "vs `siren`", "vs `informed` (95%)", "median"]
    return table(heads, shown)


def paper_table(lines: Sequence[dict[str, Any]]) -> list[str]:
    means = {(line["scheduler"], line["budget_usd"]): line["mean_seconds"] for line in lines}
    shown = []
    for budget, (grid, siren) in PAPER_ROWS.items():
        names = ("static-n", "siren-untrained", "siren", "mpc-first", "mpc")
        ours = {name: means.get((name, budget)) for name in names}
        base = ours["static-n"]
        shown.append(
            [
                f"${budget:g}",
                f"{grid:,.1f} s",
                f"{siren:,.1f} s ({siren / grid - 1:+.1%})",
                *(
                    "-" if seconds is None or base is None else f"{seconds:,.1f} s ({seconds / base - 1:+.1%})"
                    for seconds in ours.values()
                ),
            ]
        )
    heads = [
        "budget",
        "paper: grid search",
        "paper: Siren",
        "`static-n`",
        "`siren-untrained`",
        "`siren`",
        "`mpc-first`",
    ]
    return table([*heads, "`mpc` after four earlier trainings"], shown)


def families_table(record: dict[str, Any]) -> list[str]:
    """What `mpc` and `siren` take over `informed` on each wide workload, with the laws that it drew."""
    shown = []
    for name, line in record["wide"]["workloads"].items():
        laws = [line["families"][kind] for kind in ("losses", "times", "memory", "progress")]
        shown.append([f"`{name}`", *laws, *(percent(line[who]) for who in ("static", "siren", "mpc"))])
    heads = ["workload", "loss", "times", "memory", "progress", "`static`", "`siren`", "`mpc`"]
    return [*table(heads, shown), unseen_laws(record), ""]


def unseen_laws(record: dict[str, Any]) -> str:
    """How many of the wide workloads draw laws that no tuning workload has."""
    drawn = {
        name: [kind for kind, law in line["families"].items() if law in getattr(UNSEEN_ONLY, kind)]
        for name, line in record["wide"]["workloads"].items()
    }
    losses = sum("losses" in kinds for kinds in drawn.values())
    none = ", ".join(f"`{name}`" for name, kinds in drawn.items() if not kinds) or "no workload"
    some = sum(bool(kinds) for kinds in drawn.values())
    return (
        f"{some} of {len(drawn)} workloads draw at least one law that no tuning workload has, {losses} such a loss"
        f" curve; {none} draws none."
    )


def toy_lines(record: dict[str, Any]) -> list[str]:
    rows = [
        [
            r["what"],
            str(r["epochs"]),
            f"{r['paper_loss']:.6f} / {r['loss']:.6f}",
            f"{r['paper_seconds']:.2f} / {r['seconds']:.2f}",
            f"{r['paper_usd']:.3f} / {r['usd']:.4f}",
            f"{r['usd_with_storage']:.4f}",
        ]
        for r in record["toy"]
    ]
    return table(
        ["on", "epochs", "loss: paper / ours", "seconds: paper / ours", "USD: paper / ours", "with storage"], rows
    )


def ec2_lines(record: dict[str, Any]) -> list[str]:
    rows = [
        [
            f["workload"],
            f"by the {f['paid_by']}",
            "none payable" if f["most_less_time"] is None else f"up to {f['most_less_time']:.1%}",
            f"{f['fastest_functions']['seconds']:,.0f} s / {f['fastest_instances']['seconds']:,.0f} s",
            f"${f['cheapest_functions']['usd']:.3f} / ${f['cheapest_instances']['usd']:.3f}",
        ]
        for f in record["ec2"]
    ]
    heads = ["workload", "instances are paid", "less time at equal cost"]
    return table([*heads, "fastest: functions / instances", "cheapest: functions / instances"], rows)


def curve_lines() -> list[str]:
    record = json.loads(CURVE.read_text(encoding="utf-8"))
    curve = record["curve"]
    shown = curve[:: max(1, len(curve) // 10)]
    if shown[-1] is not curve[-1]:
        shown.append(curve[-1])
    rows = [
        [
            f"{p['steps']:,.0f}",
            f"{p['paper']:.3f}",
            f"{p['other']:.3f}",
            "-" if p["reward"] is None else f"{p['reward']:.2f}",
        ]
        for p in shown
    ]
    said = f"`{record['command']}`: {record['seconds']} s on 2 cores that other work shared."
    heads = ["epochs seen", "paper's workload", "other workloads", "reward, exploring"]
    return [said, "", *table(heads, rows), *kept_policy(record), ""]


def kept_policy(record: dict[str, Any]) -> list[str]:
    """Which point of the learning curve is shipped, and how far the training came."""
    curve, words = record["curve"], record["command"].split()
    asked = int(words[words.index("--steps") + 1])
    scores = [point["paper"] + point["other"] for point in curve]
    at = scores.index(min(scores))
    later = ", ".join(f"{score:.3f}" for score in scores[at + 1 :])
    end = curve[-1]["steps"]
    ended = f"It ended after {end:,.0f} of {asked:,} epochs" + (", by its time limit." if end < asked else ".")
    kept = f"Kept is the policy of {curve[at]['steps']:,.0f}, the lowest sum of both columns ({scores[at]:.3f}"
    kept += f"; later {later})." if later else ")."
    paper = [curve[at]["paper"], curve[0]["paper"]]
    worse = "worse" if paper[0] > paper[1] else "better"
    validated = f"it is {worse} than untrained in these validation runs ({paper[0]:.3f}, untrained {paper[1]:.3f})"
    return [f"{ended} {kept} On the paper's workload {validated}."]


def over_informed(rows: Sequence[ServerlessRow], workload: str, scheduler: str) -> float | None:
    """The mean time over `informed`'s on one workload, minus 1, over all budgets."""
    found = [
        v.against_informed for v in versus([r for r in rows if r.workload == workload]) if v.scheduler == scheduler
    ]
    known = [value for value in found if value is not None]
    return statistics.fmean(known) if known else None


def command_lines(record: dict[str, Any], name: str) -> list[str]:
    """The command of one table, and what made it."""
    made = record[name].get("made") or record
    return [
        "",
        f"    {record['commands'][name]}",
        "",
        f"*mlcd {made['version']} ({made['sources']}), {made['date']}.*",
        "",
    ]


def page_lines(record: dict[str, Any]) -> list[str]:
    """The part of the page between the marks, from the record and the learning curve."""
    seeds = record["seeds"]
    return [
        "Simulated; record: `benchmarks/results/serverless.json`.",
        "",
        *(f"### Unseen laws: {seeds['wide']} seeds on each of twelve workloads", *command_lines(record, "wide")),
        *comparison_table(record["wide"]["table"]),
        *("Over `informed`, by the laws that each workload drew (means over budgets and seeds):", ""),
        *families_table(record),
        *("### The paper's table", "", *paper_table(record["paper"]["table"])),
        *(f"### The paper's workload, {seeds['paper']} seeds", *command_lines(record, "paper")),
        *comparison_table(record["paper"]["table"]),
        *(f"### Optimus' law: {seeds['unseen']} seeds, twelve workloads", *command_lines(record, "unseen")),
        *comparison_table(record["unseen"]["table"]),
        *("### Were progress independent of the number of functions", *command_lines(record, "flat")),
        *comparison_table(record["flat"]["table"]),
        *("### The toy table", "", f"    {SCRIPT} --figures toy", "", *toy_lines(record)),
        *("### Functions against instances", "", f"    {SCRIPT} --figures ec2", "", *ec2_lines(record)),
        *("### How the policy learnt", "", *curve_lines()),
    ]


def parts() -> dict[Path, dict[str, str]]:
    """The tables of the page, by their name there."""
    record = json.loads(RESULT.read_text(encoding="utf-8"))
    results = "\n".join(page_lines(record))
    first = results.partition("### Unseen laws")[2].partition("\n")[2].partition("\nOver `informed`, by the laws")[0]
    return {
        PAGE: {"results": results, "findings": findings(record)},
        SHORT_PAGE: {"results": first},
        MPC_PAGE: {"results": mpc_results(record)},
        SIREN_PAGE: {"results": siren_results(record)},
        WRONG_PAGE: {"serverless": wrong_claims(record)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default="wide,paper,unseen,flat", help="those measured anew; others stay")
    parser.add_argument("--wide-seeds", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=20, help="of the paper's workload")
    parser.add_argument("--unseen-seeds", type=int, default=20)
    parser.add_argument("--flat-seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--page-only", action="store_true", help="write the page from the record, measure nothing")
    arguments = parser.parse_args()
    record: dict[str, Any] = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() else {}
    measured = [] if arguments.page_only else [part for part in arguments.tables.split(",") if part]
    seeds = {
        "wide": arguments.wide_seeds,
        "paper": arguments.seeds,
        "unseen": arguments.unseen_seeds,
        "flat": arguments.flat_seeds,
    }
    names = {"wide": "wide", "paper": "paper", "unseen": "unseen", "flat": "flat"}
    budgets = {"paper": (50.0, *BUDGETS), "wide": BUDGETS, "unseen": BUDGETS, "flat": BUDGETS}
    extra = {"paper": ("mpc-first",)}
    for name in measured:
        schedulers = (*DEFAULT_SCHEDULERS, *extra.get(name, ()))
        rows = compare(
            ServerlessComparison(
                workloads=workload_names(names[name]),
                schedulers=schedulers,
                budgets=budgets[name],
                seeds=seeds[name],
                jobs=arguments.jobs,
            )
        )
        made = {
            "version": __version__,
            "sources": pages.sources("src", "benchmarks/papers"),
            "date": datetime.now(UTC).date().isoformat(),
        }
        record[name] = {"made": made, "table": table_of(rows)}
        if name == "wide":
            record[name]["workloads"] = {
                made: {"families": families(made)} | {who: over_informed(rows, made, who) for who in DEFAULT_SCHEDULERS}
                for made in dict.fromkeys(row.workload for row in rows)
            }
            record[name]["rows"] = [
                [r.workload, r.scheduler, r.budget_usd, r.seed, r.status, round(r.seconds, 1), round(r.usd, 2)]
                for r in rows
            ]
        words = f"mlcd bench serverless --workloads {names[name]} --budgets {','.join(f'{b:g}' for b in budgets[name])}"
        record.setdefault("commands", {})[name] = f"{words} --seeds {seeds[name]} --schedulers {','.join(schedulers)}"
        record.setdefault("seeds", {})[name] = seeds[name]
        record |= {
            **made,
            "simulated": True,
            "toy": siren_toy.as_json()["rows"],
            "ec2": siren_ec2.as_json()["findings"],
        }
        RESULT.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        print(name, flush=True)
    pages.write(parts())


if __name__ == "__main__":
    main()
