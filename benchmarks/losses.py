"""Where `auto` loses, and what it would reach if it knew more: seen workloads of the measured tables.

    .venv/bin/python benchmarks/losses.py TABLES    # writes benchmarks/results/losses.json and its page's tables

The ratio of a run (search and training over the best training) is taken apart: what the trials took; how much longer
the training takes than on the best deployment that was measured and is within the limits; how much longer that one
takes than the best of all. Beside that, the same decisions with a model that knows the speed of every deployment up to
an independent error, and which of them cannot run; and the same searches where two runs of a deployment do not differ.
Nothing here is held out: it explains, it does not report.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small matrices, and several processes

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pages
from row_file import FOLDER, Row, RowFile, codes, core_minutes, origin, verifiers

from mlcd.bench.case import GoalKind, TrainTruth, is_unseen
from mlcd.bench.oracle import Oracle
from mlcd.bench.protocol import TrainProtocol, Work
from mlcd.bench.train import Searched, run_one
from mlcd.bench.workloads import case_of, table_workloads
from mlcd.clouds.replay import ReplayWorkload
from mlcd.models import gp
from mlcd.models.mixed_speed import MixedModel
from mlcd.problem import Problem
from mlcd.trial.trial import History
from mlcd.version import __version__

RESULT = pages.ROOT / "benchmarks" / "results" / "losses.json"
PAGE = pages.ROOT / "docs" / "auto-results.md"
BEDS = ("scout", "multicloud", "trimtuner")
HOURS = (2.0, 6.0)
NOISE, NO_NOISE = 0.03, 0.001
SEED = 100
CASES = (
    (Work.THROWN, GoalKind.FASTEST),
    (Work.THROWN, GoalKind.CHEAPEST),
    (Work.THROWN, GoalKind.BUDGET),
    (Work.BESIDE, GoalKind.CHEAPEST),
    (Work.BESIDE, GoalKind.BUDGET),
)
ERRORS = (0.05, 0.15, 0.3)
LEAST_VARIANCE = 1e-6
NEVER_SECONDS = 1e12
"""The training where it cannot run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A strategy, and what is changed for it. `error` None: its own model."""

    words: str
    strategy: str = "auto"
    noise: float = NOISE
    error: float | None = None


VARIANTS = (
    Variant(words="`auto`"),
    Variant(words="two runs of one deployment differ by 0.1%", noise=NO_NOISE),
    *(Variant(words=f"every speed known up to {error:.0%}", error=error) for error in ERRORS),
    Variant(words="the best is known: one trial of it", strategy=Oracle.name),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """One run. Parts are in the best training's value; None where nothing was trained or measured.

    trials  what the search took
    choice  the training's deployment less the best measured one that is within the limits
    missed  the best measured one less the best of all
    """

    variant: str
    work: str
    goal: str
    hours: float
    ratio: float
    finished: bool
    number: int
    trials: float
    choice: float | None
    missed: float | None


def informed_model(truth: TrainTruth, error: float, seed: int) -> Any:
    """A replacement of `mixed_model`: what was measured, and else the true speed with an independent error."""
    random = np.random.default_rng(seed)
    seconds = np.array([NEVER_SECONDS if each is None else each for each in truth.seconds])
    wrong = error * random.standard_normal(len(seconds))

    def model(problem: Problem, history: History, *_: object) -> MixedModel:
        speed = np.log(truth.problem.works / seconds) + wrong
        variance = np.full(len(speed), error**2)
        for trial in history.measured:
            row = problem.space.index[trial.config]
            speed[row] = np.log(trial.samples_per_second)
            variance[row] = max(trial.relative_error**2, LEAST_VARIANCE)
        none = gp.Data(rows=np.array([], dtype=np.intp), values=np.array([]), errors=np.array([]))
        startup = float(np.mean([t.startup_seconds for t in history.measured])) if history.measured else 0.0
        log_seconds = np.log(np.exp(np.log(problem.works * problem.stretches) - speed) + startup)
        return MixedModel(
            weights=np.ones(1),
            log_speed=speed[None],
            log_seconds=log_seconds[None],
            variance=variance[None],
            startup_seconds=startup,
            data=none,
            processes=(),
        )

    return model


def loss(variant: Variant, source: ReplayWorkload, work: Work, goal: GoalKind, hours: float) -> Loss | None:
    """One run; None where nothing fits the limits."""
    restart = work.default_restart_seconds
    protocol = TrainProtocol(hours=hours, noise=variant.noise, work=work, restart_seconds=restart)

    def searched() -> Searched | None:
        return run_one(source, protocol, kind=goal, strategy_text=variant.strategy, seed=SEED)

    if variant.error is None:
        found = searched()
    else:
        truth, _ = case_of(source, protocol, seed=SEED)
        with patch("mlcd.search.auto.mixed_model", informed_model(truth, variant.error, SEED)):
            found = searched()
    return None if found is None else taken_apart(variant.words, found)


def taken_apart(words: str, found: Searched) -> Loss:
    """The parts of a run's ratio."""
    row, run = found.row, found.run
    values = _values(found)
    measured = min((values[t.config] for t in run.history.measured if t.config in values), default=None)
    final = None if run.final is None else values.get(run.final.config)
    return Loss(
        variant=words,
        work=row.work,
        goal=row.goal,
        hours=row.hours,
        ratio=row.counted_ratio,
        finished=row.status == "done",
        number=row.trials,
        trials=run.problem.goal.value(run.search_seconds, run.search_usd.dollars) / row.optimum,
        choice=None if final is None or measured is None else (final - measured) / row.optimum,
        missed=None if measured is None else measured / row.optimum - 1,
    )


def _values(found: Searched) -> dict[Any, float]:
    """The true value of the training on each deployment where it is within the limits."""
    goal, values = found.run.problem.goal, {}
    problem = found.truth.problem
    for config, seconds, price in zip(problem.space.configs, found.truth.seconds, problem.usd_per_hour, strict=True):
        if seconds is None or (goal.deadline_seconds is not None and seconds > goal.deadline_seconds):
            continue
        usd = price.for_seconds(seconds)
        if goal.budget is None or usd <= goal.budget:
            values[config] = goal.value(seconds, usd.dollars)
    return values


def losses_of(variant: Variant, source: ReplayWorkload) -> list[Row]:
    """The workload under every case and length."""
    works = (Work.THROWN,) if variant.strategy == Oracle.name else tuple(Work)
    found = (loss(variant, source, work, goal, hours) for work, goal in CASES if work in works for hours in HOURS)
    return [asdict(each) for each in found if each is not None]


def tasks(tables: Path) -> dict[str, tuple[Variant, ReplayWorkload]]:
    """Every seen workload with every variant, by name."""
    return {
        f"{variant.words}/{bed}/{source.name}": (variant, source)
        for variant in VARIANTS
        for bed in BEDS
        for source in table_workloads(tables / bed).values()
        if not is_unseen(source.name)
    }


def summary(losses: Sequence[Loss]) -> list[dict[str, Any]]:
    """The mean of every part, for each variant and case; parts over the runs that have them."""
    found = []
    for variant, work, goal in dict.fromkeys((each.variant, each.work, each.goal) for each in losses):
        group = [each for each in losses if (each.variant, each.work, each.goal) == (variant, work, goal)]
        short = [each.ratio for each in group if each.hours == min(HOURS)]
        found.append(
            {
                "variant": variant,
                "work": work,
                "goal": goal,
                "runs": len(group),
                "ratio": float(np.mean([each.ratio for each in group])),
                "two_hours": float(np.mean(short)),
                "number": float(np.mean([each.number for each in group])),
                "trials": float(np.mean([each.trials for each in group])),
                "choice": float(np.mean([each.choice for each in group if each.choice is not None] or [0.0])),
                "missed": float(np.mean([each.missed for each in group if each.missed is not None] or [0.0])),
                "unfinished": sum(not each.finished for each in group),
            }
        )
    return found


# ---- page


def parts_table(lines: Sequence[Mapping[str, Any]]) -> str:
    """auto's own ratio, taken apart. Where work is not thrown away, what trials take is mostly work that is kept."""
    rows = ["| work | goal | runs | ratio | trials take | choice | not found | unfinished | trials |", "|---" * 9 + "|"]
    for line in lines:
        if line["variant"] == VARIANTS[0].words and line["work"] == Work.THROWN:
            figures = " | ".join(f"{line[name]:.2f}" for name in ("ratio", "trials", "choice", "missed"))
            counts = f"{line['unfinished']} | {line['number']:.1f}"
            rows.append(f"| {line['work']} | {line['goal']} | {line['runs']} | {figures} | {counts} |")
    return "\n".join(rows)


def knowledge_table(lines: Sequence[Mapping[str, Any]]) -> str:
    """The mean ratio of every variant under every case; that of 2-hour jobs in brackets."""
    heads = " | ".join(f"{work}, {goal}" for work, goal in CASES)
    rows = [f"| what is changed | {heads} |", "|---" * (len(CASES) + 1) + "|"]
    for variant in VARIANTS:
        of = {(line["work"], line["goal"]): line for line in lines if line["variant"] == variant.words}
        if not of:
            continue
        cells = [
            f"{of[case]['ratio']:.2f} ({of[case]['two_hours']:.2f})" if case in of else "-"
            for case in ((work.value, goal.value) for work, goal in CASES)
        ]
        rows.append(f"| {variant.words} | {' | '.join(cells)} |")
    return "\n".join(rows)


def parts() -> dict[Path, dict[str, str]]:
    """What the page says of the record."""
    found = json.loads(RESULT.read_text(encoding="utf-8"))
    commits = origin(found["code"], found["verified"])
    made = f"*mlcd {found['version']} ({commits}), {found['date']}: `benchmarks/losses.py TABLES`, seed {SEED}.*"
    tables = f"{parts_table(found['summary'])}\n\n{knowledge_table(found['summary'])}"
    return {PAGE: {"losses": f"{tables}\n\n{made}"}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument(
        "--minutes", type=float, help="start nothing more after so long; lines that lack runs are left out"
    )
    arguments = parser.parse_args()
    file = RowFile(path=FOLDER / "losses.jsonl", code=pages.sources(), group=lambda name: name.split("/")[0])
    wanted = tasks(arguments.tables)
    done = file.complete(losses_of, wanted, jobs=arguments.jobs, minutes=arguments.minutes)
    lacking = {name.split("/")[0] for name in wanted if name not in done}
    made = {name: each for name, each in done.items() if name.split("/")[0] not in lacking}
    if not made:
        raise SystemExit("not one line is whole: give it more minutes; what was run is kept")
    losses = [Loss(**row) for each in made.values() for row in each.rows]
    kept: dict[str, Any] = {
        "date": datetime.now(UTC).date().isoformat(),
        "version": __version__,
        "code": codes(made),
        "verified": verifiers(made),
        "core_minutes": core_minutes(made),
        "summary": summary(losses),
    }
    RESULT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    pages.write(parts())
    print(f"{parts_table(kept['summary'])}\n\n{knowledge_table(kept['summary'])}")


if __name__ == "__main__":
    import losses  # the processes that it starts find its functions by this name

    losses.main()
