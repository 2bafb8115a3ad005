"""The record of all strategies on measured tables and on the simulator, and the pages' tables and pictures from it.

    .venv/bin/python benchmarks/record_strategies.py TABLES --jobs 2                # what is missing of the record
    .venv/bin/python benchmarks/record_strategies.py TABLES --jobs 2 --minutes 40   # as many whole seeds as fit in
    .venv/bin/python benchmarks/record_strategies.py TABLES --unseen only           # only the held-out workloads
    .venv/bin/python benchmarks/record_strategies.py --pages                        # only the pages, from the record

TABLES is the folder that holds the folders scout, multicloud and trimtuner (docs/bench.md says what they are). ENTRANTS
says what is run how often; one seed of everything comes before the next, so a recording that is stopped has fewer
seeds, and continues when the command is given again. All of it takes about 100 minutes of one core.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small matrices, and several processes

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import pages
from regret import mean_curve, regret_curve, regret_picture
from row_file import FOLDER, Made, Row, RowFile, core_minutes, origin

from mlcd.bench.case import GoalKind, TrainRow, is_unseen
from mlcd.bench.oracle import Oracle
from mlcd.bench.protocol import TrainProtocol, Work
from mlcd.bench.train import TrainSummary, bootstrap_interval, learns_from_others, run_one, summarise
from mlcd.bench.workloads import Source, sim_workloads, table_workloads
from mlcd.search.registry import strategy
from mlcd.version import __version__

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
RECORD = RESULTS / "strategies.json"
IMAGES = ROOT / "docs" / "images"
STRATEGIES = ROOT / "docs" / "strategies"
PAGE = ROOT / "docs" / "strategy-results.md"
AUTO_PAGE = ROOT / "docs" / "auto-results.md"
NOTES = ROOT / "benchmarks" / "notes" / "strategies.md"
"""Every bed apart."""
SIM = "sim"
TABLES = ("scout", "multicloud", "trimtuner")
BEDS = (*TABLES, SIM)
ALL_TABLES = "tables"
"""In the record: the three folders of measured tables together."""
HOURS, SIM_HOURS, NOISE = (2.0, 6.0, 24.0), (6.0,), 0.03
SIM_SEEDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrant:
    """A strategy with one kind of work, and how many seeds it is run with."""

    strategy: str
    work: Work
    seeds: int


SLOW = {"arrow": 5}
"""Fewer than 10 seeds where a run takes more than 0.1 s of one core."""
RIVALS = ("heterbo", "heterbo:paper", "convbo", "cherrypick", "convbo-budget", "cherrypick-budget", "random",
          "lynceus", "ernest", "arrow", "paris")  # fmt: skip
ABLATIONS = (
    "auto:watched=off", "auto:mixture=off", "auto:level=off", "auto:order=net", "auto:scarcity=0,first-scarcity=0",
    "auto:first-unit=goal", "auto:unfinished-runs=1.5", "auto:likely=0.1", "auto:tail-degrees=30",
    "auto:least-chance=0", "auto:hopeless=0.02", "auto:least-gain=0.02", "auto:failed-share=0.5",
    "auto:deadline-runs=1.5,budget-runs=1.3", "auto:level-deviation=1",
)  # fmt: skip
"""Every setting that decides something on tables with one trial at a time, changed alone."""
ENTRANTS = (
    Entrant(strategy="auto", work=Work.THROWN, seeds=10),
    *(Entrant(strategy=name, work=Work.THROWN, seeds=SLOW.get(name, 10)) for name in RIVALS),
    Entrant(strategy=Oracle.name, work=Work.THROWN, seeds=10),
    Entrant(strategy="auto", work=Work.KEPT, seeds=10),
    Entrant(strategy="heterbo", work=Work.KEPT, seeds=5),
    Entrant(strategy="auto", work=Work.BESIDE, seeds=10),
    Entrant(strategy="heterbo", work=Work.BESIDE, seeds=5),
    *(Entrant(strategy=name, work=Work.THROWN, seeds=3) for name in ABLATIONS),
)
CASES: Mapping[Work, tuple[tuple[GoalKind, int], ...]] = {
    Work.THROWN: (*((goal, 1) for goal in GoalKind), (GoalKind.FASTEST, 8)),
    Work.KEPT: tuple((goal, 1) for goal in GoalKind),
    Work.BESIDE: ((GoalKind.FASTEST, 8), (GoalKind.CHEAPEST, 1), (GoalKind.BUDGET, 1), (GoalKind.BUDGET, 8),
                  (GoalKind.BOTH, 1)),
}  # fmt: skip
"""(goal, trials at once). Eight at once with thrown work: 6 h only."""
GOALS = {
    (Work.THROWN, GoalKind.FASTEST, 1): 1.20,
    (Work.THROWN, GoalKind.CHEAPEST, 1): 1.25,
    (Work.THROWN, GoalKind.BUDGET, 1): 1.40,
    (Work.BESIDE, GoalKind.FASTEST, 8): 1.10,
    (Work.BESIDE, GoalKind.CHEAPEST, 1): 1.14,
    (Work.BESIDE, GoalKind.BUDGET, 8): 1.18,
}
"""What was to be reached on held-out jobs, all hours pooled; set before anything was measured."""
SHORT_GOALS = {GoalKind.FASTEST: 1.18, GoalKind.CHEAPEST: 1.25, GoalKind.BUDGET: 1.30}
"""The same for 2-hour jobs beside their trials."""
DRAWN = ("auto", "heterbo", "cherrypick-budget", "lynceus", "random", "oracle")
"""In the pictures: as many as a picture has colours."""
DEFAULTS = {name: field.default for name, field in TrainRow.__dataclass_fields__.items()}


Line = Mapping[str, Any]
"""An Entry, as the record has it."""


# ---- recording


@lru_cache(maxsize=8)
def sources(bed: str, tables: Path) -> tuple[Source, ...]:
    """The workloads of a bed."""
    return sim_workloads() if bed == SIM else tuple(table_workloads(tables / bed).values())


def tasks(
    tables: Path, beds: Sequence[str], entrants: Sequence[Entrant] = ENTRANTS, *, held_out: bool = False
) -> Iterator[tuple[str, tuple[str, Source, Entrant, int, Path]]]:
    """(name, arguments of rows_of) of everything, one seed after the other; `held_out`: of those workloads alone."""
    found = {bed: [s for s in sources(bed, tables) if not held_out or is_unseen(s.name)] for bed in beds}
    for seed in range(max(each.seeds for each in entrants)):
        for entrant in entrants:
            for bed in beds:
                seeds = min(entrant.seeds, SIM_SEEDS) if bed == SIM else entrant.seeds
                if seed < seeds and (bed != SIM or entrant.work is Work.THROWN):
                    for source in found[bed]:
                        yield task_name(bed, source.name, entrant, seed), (bed, source, entrant, seed, tables)


def task_name(bed: str, workload: str, entrant: Entrant, seed: int) -> str:
    return "/".join((bed, workload, entrant.work, entrant.strategy, str(seed)))


def rows_of(bed: str, source: Source, entrant: Entrant, seed: int, tables: Path) -> list[Row]:
    """The workload under every goal and length: a row each, without what is the same for all, with its curve."""
    known = sources(bed, tables) if learns_from_others(entrant.strategy) else ()
    rows = []
    for goal, parallel in CASES[entrant.work]:
        for hours in SIM_HOURS if bed == SIM or (parallel > 1 and entrant.work is Work.THROWN) else HOURS:
            restart = entrant.work.default_restart_seconds
            protocol = TrainProtocol(hours=hours, noise=NOISE, work=entrant.work, restart_seconds=restart)
            found = run_one(
                source,
                protocol,
                kind=goal,
                strategy_text=entrant.strategy,
                seed=seed,
                parallel=parallel,
                known=known,
            )
            if found is not None:
                row: Row = {k: v for k, v in asdict(found.row).items() if v != DEFAULTS[k]}
                row["parallel"] = parallel
                if entrant.work is Work.THROWN and parallel == 1 and entrant.strategy in DRAWN and bed != SIM:
                    row["curve"] = regret_curve(found.truth, found.run)
                rows.append(row)
    return rows


def record(
    tables: Path,
    beds: Sequence[str],
    entrants: Sequence[Entrant],
    *,
    jobs: int,
    minutes: float | None,
    held_out: bool = False,
) -> None:
    """Run what is missing, and keep what follows from all rows of whole seeds.

    held_out  only the held-out workloads: what the record says of all workloads stays as it was
    """
    for entrant in entrants:
        if entrant.strategy != Oracle.name:
            strategy(entrant.strategy)  # report a wrong name or option before the first run
    wanted = dict(tasks(tables, beds, entrants, held_out=held_out))
    file = RowFile(path=FOLDER / "strategies.jsonl", code=pages.sources(), group=group)
    made = file.complete(rows_of, wanted, jobs=jobs, minutes=minutes)
    whole = whole_seeds(made, wanted)
    if not whole:
        raise SystemExit("not one seed of one strategy is whole: give it more minutes; what was run is kept")
    before = (
        json.loads(RECORD.read_text(encoding="utf-8"))
        if RECORD.exists()
        else {"summary": [], "curves": {}, "changes": []}
    )
    lines = {
        _key(line): line for line in before["summary"] if line["summary"]["strategy"] in {e.strategy for e in ENTRANTS}
    }
    found = entries(whole, pool=set(TABLES) <= set(beds))
    lines |= {_key(line): line for line in map(asdict, found) if line["unseen"] or not held_out}
    whole_tables = set(TABLES) <= set(beds)
    drawn = curves(whole) if whole_tables else {}
    ablated = {_ablation(each): each for each in before["changes"] if each["strategy"] in ABLATIONS}
    if whole_tables:
        ablated |= {_ablation(each): each for each in changes(whole) if each["unseen"] or not held_out}
    kept = {
        "date": datetime.now(UTC).date().isoformat(),
        "version": __version__,
        "sources": _named(lines.values(), "code"),
        "verified": _named(lines.values(), "verified"),
        "noise": NOISE,
        "core_minutes": core_minutes(whole),
        "curves": {goal: before["curves"].get(goal, {}) | drawn.get(goal, {}) for goal in before["curves"] | drawn},
        "changes": list(ablated.values()),
        "summary": list(lines.values()),
    }
    text = json.dumps(kept, separators=(",", ":")).replace('},{"', '},\n{"')
    RECORD.write_text(text + "\n", encoding="utf-8")


def group(name: str) -> str:
    """Of a task: a strategy with a kind of work on a bed."""
    bed, _, work, text, _ = name.split("/")
    return f"{bed}/{work}/{text}"


def _named(lines: Iterable[Line], field: str) -> str:
    """The commits that the lines have in a field."""
    return ", ".join(sorted({commit for line in lines for commit in line.get(field, "").split(", ") if commit}))


def _key(line: Line) -> tuple[object, ...]:
    fields = tuple(line[name] for name in ("bed", "unseen", "work", "parallel"))
    return (*fields, line["summary"]["goal"], line["summary"]["strategy"])


def _ablation(change: Row) -> tuple[object, ...]:
    return tuple(change[name] for name in ("strategy", "goal", "unseen"))


def whole_seeds(made: Mapping[str, Made], wanted: Mapping[str, object]) -> dict[str, Made]:
    """What was made, without seeds of a strategy and bed of which some workload is missing."""
    lacking = {_seed_of(name) for name in wanted if name not in made}
    return {name: each for name, each in made.items() if _seed_of(name) not in lacking}


def _seed_of(name: str) -> tuple[str, ...]:
    bed, _, *rest = name.split("/")
    return (bed, *rest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One strategy under one goal on one bed; `hours` maps a length to its mean ratio, `summary` pools them.

    intervals  length -> 95% interval of its mean ratio
    code       the commits that measured its runs
    verified   the commits with which a sample of older runs was the same
    """

    bed: str
    unseen: bool
    work: str
    parallel: int
    code: str
    verified: str
    seeds: int
    hours: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    summary: TrainSummary


def entries(made: Mapping[str, Made], *, pool: bool) -> list[Entry]:
    """For every bed, all workloads and the held-out ones (on the simulator none is).

    pool  whether to add all tables together, with the seeds that are whole on each of them
    """
    beds: dict[tuple[str, ...], set[str]] = {}
    for name in made:
        bed, _, *seed = name.split("/")
        beds.setdefault(tuple(seed), set()).add(bed)
    groups: dict[tuple[str, bool, str, int, str, str], list[tuple[Made, TrainRow]]] = {}
    for name, each in made.items():
        bed, _, *seed = name.split("/")
        pooled_too = pool and bed != SIM and beds[tuple(seed)] >= set(TABLES)
        for known in each.rows:
            row = _row(known)
            for place in (bed, ALL_TABLES) if pooled_too else (bed,):
                for unseen in (False, True) if row.unseen and bed != SIM else (False,):
                    key = (place, unseen, row.work, known["parallel"], row.goal, row.strategy)
                    groups.setdefault(key, []).append((each, row))
    found = []
    for (bed, unseen, work, parallel, _, _), pairs in groups.items():
        rows = [row for _, row in pairs]
        (pooled,) = summarise(rows, pool_hours=True)
        apart = summarise(rows)
        found.append(
            Entry(
                bed=bed,
                unseen=unseen,
                work=work,
                parallel=parallel,
                code=", ".join(dict.fromkeys(each.code for each, _ in pairs)),
                verified=", ".join(dict.fromkeys(each.verified for each, _ in pairs if each.verified)),
                seeds=len({row.seed for row in rows}),
                hours={f"{s.hours:g}": s.mean_ratio for s in apart},
                intervals={f"{s.hours:g}": s.ratio_interval for s in apart},
                summary=pooled,
            )
        )
    return found


def changes(made: Mapping[str, Made]) -> list[Row]:
    """For each ablation and goal: the mean change of auto's ratio in the same runs, with a bootstrap over workloads."""
    ratios: dict[tuple[str, str], dict[tuple[str, float, int], TrainRow]] = {}
    for name, each in made.items():
        bed, _, work, text, _ = name.split("/")
        if bed != SIM and work == Work.THROWN and text in ("auto", *ABLATIONS):
            for known in each.rows:
                if known["parallel"] == 1:
                    row = _row(known)
                    ratios.setdefault((row.strategy, row.goal), {})[row.workload, row.hours, row.seed] = row
    found: list[Row] = []
    for (text, goal), rows in ratios.items():
        for unseen in (False, True) if text != "auto" else ():
            groups: dict[str, list[float]] = {}
            for run, row in rows.items():
                other = ratios.get(("auto", goal), {}).get(run)
                if other is not None and (row.unseen or not unseen):
                    groups.setdefault(row.workload, []).append(row.counted_ratio - other.counted_ratio)
            values = [value for group in groups.values() for value in group]
            if values:
                interval = bootstrap_interval(list(groups.values()))
                seeds = len({seed for _, _, seed in rows})
                found.append(
                    {"strategy": text, "goal": goal, "unseen": unseen, "seeds": seeds, "runs": len(values),
                     "change": sum(values) / len(values), "interval": interval}
                )  # fmt: skip
    return found


def _row(known: Row) -> TrainRow:
    fields = {key: value for key, value in known.items() if key not in ("parallel", "curve")}
    return TrainRow(**{**DEFAULTS, **fields})


def curves(made: Mapping[str, Made]) -> dict[str, dict[str, list[float]]]:
    """Goal -> strategy -> its mean curve over the held-out workloads of all tables, lengths and seeds."""
    found: dict[str, dict[str, list[list[float]]]] = {}
    for each in made.values():
        for row in each.rows:
            if row.get("unseen") and "curve" in row:
                found.setdefault(row["goal"], {}).setdefault(row["strategy"], []).append(row["curve"])
    return {goal: {name: mean_curve(of) for name, of in by_name.items()} for goal, by_name in found.items()}


# ---- pages


def parts() -> dict[Path, dict[str, str]]:
    """The tables of every page, by their names there."""
    result = json.loads(RECORD.read_text(encoding="utf-8"))
    lines = result["summary"]
    own = {STRATEGIES / f"{name}.md": {name: own_table(lines, name)} for name in OWN}
    beds = {
        bed: f"{bed_table([line for line in lines if line['bed'] == bed])}\n\n*{_made(result, bed)}*" for bed in BEDS
    }
    made = f"*{_made(result, ALL_TABLES)}*"
    auto = {
        "goals": f"{goals_table(lines)}\n\n{made}",
        "parts": ablations_table(result["changes"]),
        "regret": "\n\n".join(f"![{goal}](images/regret-{goal}.svg)" for goal in result["curves"]),
    }
    page = {"strategies": f"{rivals_table(lines)}\n\n{made}"}
    return {PAGE: page, NOTES: {"losses": losses_table(lines), **beds}, AUTO_PAGE: auto, **own}


OWN = ("heterbo", "convbo", "cherrypick", "convbo-budget", "cherrypick-budget", "random")
"""Strategies whose own pages have a table."""


def pictures() -> dict[Path, str]:
    """The pictures of docs/images that follow from the record."""
    result = json.loads(RECORD.read_text(encoding="utf-8"))
    origin = f"mlcd {result['version']} ({_codes(result['summary'], ALL_TABLES)}), {result['date']}"
    return {
        IMAGES / f"regret-{goal}.svg": regret_picture(
            {name: by_name[name] for name in DRAWN if name in by_name}, goal=goal, origin=origin
        )
        + "\n"
        for goal, by_name in result["curves"].items()
    }


def _of(lines: Sequence[Line], **wanted: object) -> list[Line]:
    """The lines with these values, in the line or its summary."""
    return [line for line in lines if all({**line, **line["summary"]}[key] == value for key, value in wanted.items())]


def losses_table(lines: Sequence[Line]) -> str:
    """Where another strategy's mean ratio is below auto's, in the digits that are printed."""
    rows = ["| bed | goal | jobs | `auto` (95%) | place | ahead of it |", "|---|---|---|---|---|---|"]
    for bed in BEDS:
        for unseen, jobs in ((False, "all"), (True, "held out")):
            for goal, parallel in CASES[Work.THROWN]:
                found = [
                    line
                    for line in _of(lines, bed=bed, unseen=unseen, work="thrown", goal=goal.value, parallel=parallel)
                    if line["summary"]["strategy"] in ("auto", *RIVALS)
                ]
                ours = [line["summary"] for line in found if line["summary"]["strategy"] == "auto"]
                ahead = [
                    line["summary"]
                    for line in found
                    if ours and round(line["summary"]["mean_ratio"], 2) < round(ours[0]["mean_ratio"], 2)
                ]
                if ahead:
                    names = ", ".join(_ahead(s) for s in sorted(ahead, key=lambda s: float(s["mean_ratio"])))
                    place = f"{len(ahead) + 1} of {len(found)}"
                    words = f"{bed} | {_goal(goal, parallel)} | {jobs} | {_ratio(ours[0])} | {place} | {names}"
                    rows.append(f"| {words} |")
    return "\n".join(rows)


def _ahead(s: Line) -> str:
    """A strategy that is ahead, with the runs in which it broke a limit or finished nothing."""
    lost = ", ".join(
        f"{s[key]} {word}" for key, word in (("violations", "broken"), ("unfinished", "unfinished")) if s[key]
    )
    return f"`{s['strategy']}` {_ratio(s)}" + (f" [{lost} of {s['runs']}]" if lost else "")


def _goal(goal: str, parallel: int) -> str:
    return f"{goal}, {parallel} at once" if parallel > 1 else str(goal)


def bed_table(lines: Sequence[Line]) -> str:
    """Every strategy on one bed, work thrown away."""
    heads = "goal | strategy | seeds | ratio (95%) | 2 h | 6 h | 24 h | if done | broken | unfinished | trials"
    rows = [f"| {heads} | held out: ratio (95%) | of runs |", "|---" * 13 + "|"]
    for goal, parallel in CASES[Work.THROWN]:
        for line in _of(lines, unseen=False, work="thrown", goal=goal.value, parallel=parallel):
            s = line["summary"]
            if s["strategy"] in ABLATIONS:
                continue
            other = _of(lines, unseen=True, work="thrown", goal=goal, parallel=parallel, strategy=s["strategy"])
            apart = f"{_ratio(other[0]['summary'])} | {other[0]['summary']['runs']}" if other else "- | -"
            counts = f"{s['violations']} | {s['unfinished']} of {s['runs']} | {s['mean_trials']:.1f}"
            figures = f"{_ratio(s)} | {_lengths(line)} | {_number(s['mean_ratio_done'])} | {counts} | {apart}"
            rows.append(f"| {_goal(goal, parallel)} | `{s['strategy']}` | {line['seeds']} | {figures} |")
    return "\n".join(rows)


def _lengths(line: Line) -> str:
    return " | ".join(_number(line["hours"].get(f"{hours:g}")) for hours in HOURS)


def own_table(lines: Sequence[Line], name: str) -> str:
    """One strategy on every bed, trials one after the other, work thrown away."""
    rows = [
        "| bed | goal | runs | ratio (95%) | if done | limits broken | unfinished | trials |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for bed in BEDS:
        for goal in GoalKind:
            for text in (name, "heterbo:paper") if name == "heterbo" else (name,):
                wanted: dict[str, object] = {"bed": bed, "goal": goal.value, "strategy": text}
                for line in _of(lines, unseen=False, work="thrown", parallel=1, **wanted):
                    s = line["summary"]
                    words = goal.value if text == name else f"{goal}, `{text}`"
                    figures = f"{_ratio(s)} | {_number(s['mean_ratio_done'])} | {s['violations']} | {s['unfinished']}"
                    rows.append(f"| {bed} | {words} | {s['runs']} | {figures} | {s['mean_trials']:.1f} |")
    rows += ["", "[What the columns mean](../bench.md#what-the-figures-mean); all strategies side by side, and the"]
    rows += ["held-out jobs: [strategy results](../strategy-results.md)."]
    return "\n".join(rows)


def goals_table(lines: Sequence[Line]) -> str:
    """auto on the held-out workloads of all tables with each kind of work, beside heterbo and what was to reach."""
    rows = [
        "| work | goal | seeds | `auto` (95%) | to reach | 2 h | 6 h | 24 h | broken | lost | `heterbo` | `oracle` |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for work, cases in CASES.items():
        for goal, parallel in cases:
            wanted: dict[str, object] = {"work": work.value, "goal": goal.value, "parallel": parallel}
            of = {line["summary"]["strategy"]: line for line in _of(lines, bed=ALL_TABLES, unseen=True, **wanted)}
            if "auto" not in of:
                continue
            s = of["auto"]["summary"]
            asked = GOALS.get((work, goal, parallel))
            short = SHORT_GOALS.get(goal) if (work, goal, parallel) in GOALS and work is Work.BESIDE else None
            asked_text = "-" if asked is None else f"{asked:.2f}{'' if short is None else f', 2 h: {short:.2f}'}"
            other = _ratio(of["heterbo"]["summary"]) if "heterbo" in of else "-"
            oracle = f"{of['oracle']['summary']['mean_ratio']:.2f}" if "oracle" in of else "-"
            unfinished = f"{s['unfinished']} of {s['runs']}"
            figures = f"{_ratio(s)} | {asked_text} | {_lengths(of['auto'])} | {s['violations']} | {unfinished}"
            words = f"{work} | {_goal(goal, parallel)} | {of['auto']['seeds']}"
            rows.append(f"| {words} | {figures} | {other} | {oracle} |")
    return "\n".join(rows)


def rivals_table(lines: Sequence[Line]) -> str:
    """Every strategy on the held-out workloads of all tables, work thrown away, all lengths pooled."""
    goals = [goal.value for goal in GoalKind]
    rows = [
        f"| strategy | seeds | {' | '.join(goals)} | broken | unfinished |",
        "|---" * (len(goals) + 4) + "|",
    ]
    for name in ("auto", *RIVALS, Oracle.name):
        wanted: dict[str, object] = {"bed": ALL_TABLES, "unseen": True, "work": "thrown", "parallel": 1}
        found = {line["summary"]["goal"]: line for line in _of(lines, strategy=name, **wanted)}
        if found:
            ratios = " | ".join(_ratio(found[goal]["summary"]) if goal in found else "-" for goal in goals)
            runs = sum(line["summary"]["runs"] for line in found.values())
            broken, lost = (sum(x["summary"][key] for x in found.values()) for key in ("violations", "unfinished"))
            seeds = next(iter(found.values()))["seeds"]
            rows.append(f"| `{name}` | {seeds} | {ratios} | {broken} | {lost} of {runs} |")
    return "\n".join(rows)


def ablations_table(changes: Sequence[Line]) -> str:
    """auto with one part changed: the mean change of the ratio on the same workloads, lengths and seeds."""
    goals = [goal.value for goal in GoalKind]
    rows = [f"| strategy | seeds | workloads | {' | '.join(goals)} |", "|---" * (len(goals) + 3) + "|"]
    for name in ABLATIONS:
        for unseen, words in ((False, "all"), (True, "held out")):
            of = {c["goal"]: c for c in changes if (c["strategy"], c["unseen"]) == (name, unseen)}
            if of:
                cells = [
                    f"{of[goal]['change']:+.3f} ({of[goal]['interval'][0]:+.2f} to {of[goal]['interval'][1]:+.2f})"
                    for goal in goals
                ]
                rows.append(f"| `{name}` | {of[goals[0]]['seeds']} | {words} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _made(result: Mapping[str, Any], bed: str) -> str:
    version = f"mlcd {result['version']} ({_codes(result['summary'], bed)}), {result['date']}"
    return f"{version}: noise {result['noise']:.0%}, the fastest training takes 2, 6 or 24 h."


def _codes(lines: Sequence[Line], bed: str) -> str:
    """The commits of a bed's lines."""
    of = [line for line in lines if line["bed"] == bed]
    return origin(_named(of, "code"), _named(of, "verified")) or "none yet"


def _ratio(s: Mapping[str, Any]) -> str:
    return f"{s['mean_ratio']:.2f} ({s['ratio_interval'][0]:.2f} to {s['ratio_interval'][1]:.2f})"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path, nargs="?", help="folder of the measured tables; only --pages needs none")
    parser.add_argument("--beds", default=",".join(BEDS), help="which to record")
    parser.add_argument("--jobs", type=int, default=2, help="processes; -1 is one a core")
    parser.add_argument("--seeds", type=int, default=10, help="at most so many")
    parser.add_argument("--strategies", help="only these, separated by semicolons")
    parser.add_argument("--work", default=",".join(Work), help="only these kinds of work")
    parser.add_argument("--unseen", choices=["all", "only"], default="all", help="only: the held-out workloads")
    parser.add_argument("--minutes", type=float, help="start nothing more after so long")
    parser.add_argument("--pages", action="store_true", help="only write the tables of docs/, from the record")
    arguments = parser.parse_args()
    if not arguments.pages:
        if arguments.tables is None:
            parser.error("the folder of the measured tables is missing")
        names = [name.strip() for name in arguments.strategies.split(";")] if arguments.strategies else None
        entrants = [
            replace(each, seeds=min(each.seeds, arguments.seeds))
            for each in ENTRANTS
            if (names is None or each.strategy in names) and each.work.value in arguments.work.split(",")
        ]
        beds = arguments.beds.split(",")
        record(
            arguments.tables,
            beds,
            entrants,
            jobs=arguments.jobs,
            minutes=arguments.minutes,
            held_out=arguments.unseen == "only",
        )
    for path, text in pictures().items():
        path.write_text(text, encoding="utf-8")
    pages.write(parts())


if __name__ == "__main__":
    import record_strategies  # the processes that it starts find its functions by this name

    record_strategies.main()
