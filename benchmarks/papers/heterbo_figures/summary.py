"""The tables of docs/paper.md, from the records of benchmarks/record_paper.py."""

from collections.abc import Mapping, Sequence
from typing import Any

from papers.heterbo_figures.experiment import OURS

Row = tuple[str, str, str]

SUMMARY: tuple[Row, ...] = (
    ("1a", "price of p2.8xlarge over c5.xlarge", "price of p2.8xlarge over c5.xlarge"),
    ("1b", "slowest of three clusters over the fastest", "slowest over fastest"),
    ("2", "profiling time of 180 deployments", "exhaustive:points=180: profiling time"),
    ("2", "profiling time of ConvBO", "convbo: profiling time"),
    ("3", "nodes at the top of the speed curve", "scale-out, c5.4xlarge: nodes at the top of the curve"),
    ("5", "ConvBO's steps that raise the total time", "convbo's steps after which the total h is higher than before"),
    ("7", "next trial cheaper than ConvBO's", "next trial of {ours}, money less than convbo's (no limit)"),
    ("9", "profiling time, share of ConvBO's", "profiling time of {ours}, share of convbo's"),
    ("9", "choice over the free optimum", "{ours}: training of its choice over the free optimum"),
    ("10", "deadline kept", "{ours}: limits met"),
    ("10", "profiling money, share of ConvBO's", "profiling money of {ours}, share of convbo's"),
    ("10", "choice over the free optimum", "{ours}: training of its choice over the free optimum"),
    ("10", "choice over what can be promised", "{ours}: training of its choice over the best that can be promised"),
    ("11", "budget kept", "{ours}: limits met"),
    ("11", "profiling time, share of ConvBO's", "profiling time of {ours}, share of convbo's"),
    ("11", "choice over the free optimum", "{ours}: training of its choice over the free optimum"),
    ("11", "choice over what can be promised", "{ours}: training of its choice over the best that can be promised"),
    ("12", "total time; random search: see the record", "{ours}: total time"),
    ("13", "budget kept", "{ours}: limit kept"),
    ("13", "total time less than ConvBO's", "total time of {ours}, less than convbo's"),
    ("13", "total time less than Paleo's, ring", "total time of {ours}, less than paleo's"),
    ("13", "total time less than Paleo's, butterfly", "total time of {ours}, less than paleo:topology=butterfly's"),
    ("13", "total time less than Paleo's, tree", "total time of {ours}, less than paleo:topology=tree's"),
    ("14", "deadline kept", "{ours}: limit kept"),
    ("14", "total money less than ConvBO's", "total money of {ours}, less than convbo's"),
    (
        "14",
        "total money less than CherryPick's",
        "total money of {ours}, less than cherrypick:types=c5.4xlarge+p2.xlarge's",
    ),
    ("15", "steps", "{ours}: steps"),
    ("15", "choice over the free optimum", "{ours}: training of its choice over the free optimum"),
    ("16", "choice over the free optimum", "{ours}: training of its choice over the free optimum"),
    ("17", "choice over the free optimum", "{ours}: training of its choice over the free optimum"),
    ("18", "largest total time of ConvBO over it", "largest total time of convbo over {ours}'s"),
    (
        "18",
        "largest total time of CherryPick over it",
        "largest total time of cherrypick:types=c5n.4xlarge over {ours}'s",
    ),
    ("19", "6.4M: speed-up over ConvBO", "alexnet (6.4M): speed-up of {ours}'s total time over convbo's, fastest"),
    ("19", "20B: speed-up over ConvBO", "zero-20b (20B): speed-up of {ours}'s total time over convbo's, fastest"),
    ("19", "6.4M: cost saved over ConvBO", "alexnet (6.4M): saving of {ours}'s total cost over convbo's, cheapest"),
    ("19", "20B: cost saved over ConvBO", "zero-20b (20B): saving of {ours}'s total cost over convbo's, cheapest"),
)
"""(figure, label, `what` of the record's entry). `{ours}` stands for each of OURS; without it one value serves both."""


def cell(value: object) -> str:
    """A value of the record, at four digits."""
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:.4g}"


def summary(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """One line for each statement of the paper: its value, `heterbo`'s and `heterbo:paper`'s."""
    found = {(entry["figure"], entry["what"]): entry for entry in entries}
    names = " | ".join(f"`{ours}`" for ours in OURS)
    lines = [f"| figure | what | paper | {names} |", "|---|---|---|---|---|"]
    for figure, label, what in SUMMARY:
        first, second = (found[figure, what.format(ours=ours)] for ours in OURS)
        paper = _short(first["paper"], first["unit"])
        second_cell = _short(second["ours"], second["unit"]) if "{ours}" in what else ""
        lines.append(f"| {figure} | {label} | {paper} | {_short(first['ours'], first['unit'])} | {second_cell} |")
    return lines


def _short(value: object, unit: str) -> str:
    text = value if isinstance(value, str) or value is None else f"{value:.3g}"
    if text is None:
        return "-"
    return text if isinstance(value, str) or unit == "runs" else f"{text} {unit}"


def figures(result: Mapping[str, Any], script: str) -> list[str]:
    """Every entry of the record, a table for each figure."""
    lines = [f"mlcd {result['version']}, commit {result['sources']}, {result['date']}. All of ours is simulated.", ""]
    for figure in dict.fromkeys(entry["figure"] for entry in result["figures"]):
        entries = [entry for entry in result["figures"] if entry["figure"] == figure]
        lines += [f"### Fig. {figure}", "", f"`{script} --figures {figure} --seeds {entries[0]['seeds']}`", ""]
        lines += ["| what | paper | ours (simulated) | unit | note |", "|---|---|---|---|---|"]
        lines += [
            f"| {e['what']} | {cell(e['paper'])} | {cell(e['ours'])} | {e['unit']} | {e['note']} |" for e in entries
        ]
        lines.append("")
    return lines


def readings(record: Mapping[str, Any]) -> list[str]:
    """What each reading of the paper's equations gave: runs that kept the limits, and the choice over the optimum."""
    names = list(record["readings"][0]["figures"])
    head = " | ".join(f"Fig. {name}" for name in names)
    lines = [f"| reading | {head} | single types |", "|---" * (len(names) + 2) + "|"]
    for reading in record["readings"]:
        cells = [f"{reading['figures'][name]['kept']}; {_ratio(reading['figures'][name]['choice'])}" for name in names]
        lines.append(f"| {reading['meaning']} | {' | '.join(cells)} | {reading['single_types']:.2f} |")
    made = f"commit {record['sources']}, {record['date']}, {record['seeds']} seeds from {record['first_seed']}"
    again = "The script exists at that commit only: check it out to repeat this."
    lines += ["", f"*`{record['command']}`, {made}. {again}*"]
    return lines


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
