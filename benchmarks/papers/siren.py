"""The toy table of Siren's paper (INFOCOM 2019) and its comparison with EC2, next to the simulator's figures.

    .venv/bin/python benchmarks/papers/siren.py [--figures toy,ec2] [-o json]

All our figures are simulated. The paper's main table is `mlcd bench serverless`. docs/siren.md discusses them.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mlcd.errors import BadInput
from papers import siren_ec2, siren_toy
from papers.script import parser, print_json, run, table


def main(words: Sequence[str]) -> None:
    options = parser(__doc__)
    options.add_argument("--figures", default="all", metavar="A,B", help="toy, ec2; both without")
    asked = options.parse_args(words)
    names = tuple(TEXTS) if asked.figures == "all" else tuple(part.strip() for part in asked.figures.split(","))
    for name in names:
        if name not in TEXTS:
            raise BadInput(f"--figures: there is no figure {name!r} here; allowed: all, {', '.join(TEXTS)}")
    if asked.output == "json":
        print_json({name: JSON[name]() for name in names})
        return
    print("\n\n".join(TEXTS[name]() for name in names))


def toy_text() -> str:
    lines = [["what", "epochs", "loss: paper", "ours", "seconds: paper", "ours", "USD: paper", "ours", "with storage"]]
    for r in siren_toy.toy_table():
        losses = (f"{r.paper_loss:.6f}", f"{r.loss:.6f}")
        costs = (f"{r.paper_usd:.3f}", f"{r.usd:.4f}", f"{r.usd_with_storage:.4f}")
        lines.append([r.what, str(r.epochs), *losses, f"{r.paper_seconds:.2f}", f"{r.seconds:.2f}", *costs])
    said = "Simulated; the paper measured on AWS. Costs are those of the functions, as in the paper."
    return f"{table(lines, '<>>>>>>>>')}\n\n{said}"


def ec2_text() -> str:
    head = ["workload", "paid by the", "less time at equal cost", "fastest: functions", "instances"]
    lines = [[*head, "cheapest: functions", "instances"]]
    for f in siren_ec2.findings():
        less = "none payable" if f.most_less_time is None else f"up to {f.most_less_time:.1%}"
        fastest = (f"{f.fastest_functions.seconds:,.0f} s", f"{f.fastest_instances.seconds:,.0f} s")
        cheapest = (f"${f.cheapest_functions.usd:.3f}", f"${f.cheapest_instances.usd:.3f}")
        lines.append([f.workload, f.paid_by, less, *fastest, *cheapest])
    said = "Simulated; the speed of an instance's core is set so that LeNet, paid by the hour, gives the paper's 44.3%."
    return f"{table(lines, '<<>>>>>')}\n\n{said}"


TEXTS: Mapping[str, Callable[[], str]] = {"toy": toy_text, "ec2": ec2_text}
JSON: Mapping[str, Callable[[], object]] = {"toy": siren_toy.as_json, "ec2": siren_ec2.as_json}


if __name__ == "__main__":
    run(main)
