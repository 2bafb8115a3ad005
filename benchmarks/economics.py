"""What `minimize: cost` pays in all: search and run over the best run, known for free, for jobs of minutes to days.

    .venv/bin/python benchmarks/economics.py --jobs 2                     # the record, 500 jobs; 10 minutes of 2 cores
    .venv/bin/python benchmarks/economics.py --count 60 --seed 1 --show   # other jobs, printed only: for tuning
    .venv/bin/python benchmarks/economics.py --only 17 --work kept        # one job, trial by trial

A job is drawn by --seed and its number: a third each on the simulator's aws-gpu, aws-62 and all of aws, any of its
models, batch, topology, 1 to 50 nodes, noise of 1 to 10%; its cheapest run takes 6 minutes to 4 days. It is written as
a job file, and prepared and run as `mlcd train` does. The record is of seed 16: choose nothing on that one.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small matrices, and several processes

import argparse
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pages
from row_file import FOLDER, Row, RowFile, codes, core_minutes, origin, verifiers

from mlcd.bench.case import UNFINISHED_RATIO, search_with
from mlcd.catalog import load_catalog
from mlcd.clouds.sim import MODELS, SimCloud
from mlcd.jobs.resolved_job import ResolvedJob, simulated
from mlcd.jobs.train import strategy_of
from mlcd.run.run import SearchRun
from mlcd.spec import spec_from_mapping
from mlcd.trial.outcome import Status
from mlcd.units import HOUR
from mlcd.version import __version__

RESULT = pages.ROOT / "benchmarks" / "results" / "economics.json"
PAGE = pages.ROOT / "docs" / "auto-results.md"
OFFERED = {"aws-gpu": "aws-gpu", "aws-62": "aws-62", "aws": "*"}
WORKS = ("thrown", "kept", "beside")
RECORD_SEED = 16
"""Of the jobs that are reported. Nothing is chosen on them."""
GOAL, GOAL_SHARE = 1.25, 0.95
"""Search plus run is at most so many times the best run, in this share of the jobs."""
HOURS = (0.1, 96.0)
QUANTILES = (50, 90, 95, 99)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostJob:
    """A job on the simulator. `hours` is what its cheapest run takes, start-up included."""

    number: int
    offered: str
    model: str
    batch: int
    topology: str
    most_nodes: int
    noise: float
    hours: float
    seed: int

    def file(self, samples: float, *, strategy: str, work: str) -> dict[str, Any]:
        """The job file, as a mapping."""
        return {
            "name": f"job-{self.number}",
            "resources": {"infra": "sim/aws", "instance_type": [OFFERED[self.offered]]},
            "num_nodes": f"1..{self.most_nodes}" if self.most_nodes > 1 else 1,
            "job": {"model": self.model, "batch": self.batch, "topology": self.topology, "samples": samples},
            "goal": {"minimize": "cost"},
            "search": {"strategy": strategy, "noise": self.noise, "work": work},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRow:
    """One run: what was paid, and what the best run alone would have cost.

    best    the cheapest deployment and its run's dollars
    chosen  where it was trained; None when unfinished
    one_trial  the ratio of a search that tries the best deployment once, thrown away, and trains there
    dearest    the most expensive trial and its dollars; None: no trial
    """

    number: int
    offered: str
    strategy: str
    work: str
    hours: float
    deployments: int
    status: str
    trials: int
    failed: int
    search_usd: float
    total_usd: float | None
    best: str
    best_usd: float
    chosen: str | None
    one_trial: float
    dearest: tuple[str, float] | None

    @property
    def ratio(self) -> float:
        """Search plus run over the best run; at least UNFINISHED_RATIO where nothing was trained."""
        if self.total_usd is None:
            return max(self.search_usd / self.best_usd, UNFINISHED_RATIO)
        return self.total_usd / self.best_usd


def drawn(count: int, seed: int) -> Iterator[CostJob]:
    """The jobs of a seed; each can run on something that it is offered."""
    for number in range(count):
        rng = random.Random(f"economics/{seed}/{number}")
        while True:
            job = _draw(rng, number)
            if _cheapest(*_truth(job)) is not None:
                break
        yield job


def _draw(rng: random.Random, number: int) -> CostJob:
    return CostJob(
        number=number,
        offered=list(OFFERED)[number % len(OFFERED)],
        model=rng.choice(list(MODELS)),
        batch=rng.choice((64, 128, 256, 512, 1024)),
        topology=rng.choice(("ring", "ps")),
        most_nodes=round(_log_uniform(rng, 1, 50)),
        noise=_log_uniform(rng, 0.01, 0.1),
        hours=_log_uniform(rng, *HOURS),
        seed=rng.randrange(2**31),
    )


def _log_uniform(rng: random.Random, low: float, high: float) -> float:
    return float(low * (high / low) ** rng.random())


def _truth(job: CostJob) -> tuple[ResolvedJob, SimCloud]:
    """The job with one sample of work, to ask its cloud how quick each deployment is."""
    found = _resolved(job, 1.0, strategy="random", work="thrown")
    assert isinstance(found.cloud, SimCloud)
    return found, found.cloud


def _resolved(job: CostJob, samples: float, *, strategy: str, work: str) -> ResolvedJob:
    spec = spec_from_mapping(job.file(samples, strategy=strategy, work=work))
    return simulated(spec, ["aws"], load_catalog(), job.seed)


def _cheapest(job: ResolvedJob, cloud: SimCloud) -> int | None:
    """The row with the cheapest sample; None where the job runs nowhere."""
    speeds = [cloud.true_samples_per_second(config) for config in job.problem.space]
    prices = [
        np.inf if speed is None else rate / speed
        for speed, rate in zip(speeds, job.problem.dollars_per_second, strict=True)
    ]
    row = int(np.argmin(prices))
    return row if np.isfinite(prices[row]) else None


def samples_of(job: CostJob) -> float:
    """The work that takes `hours` where a sample is cheapest."""
    found, cloud = _truth(job)
    row = _cheapest(found, cloud)
    assert row is not None
    config = found.problem.space.configs[row]
    speed = cloud.true_samples_per_second(config)
    assert speed is not None
    return max(job.hours * HOUR - cloud.startup_seconds(config), 60.0) * speed


def best_run(job: ResolvedJob) -> tuple[str, float, float]:
    """The deployment whose run is cheapest, start-up included, its dollars, and their ratio with a trial of it."""
    cloud, problem = job.cloud, job.problem
    assert isinstance(cloud, SimCloud)
    runs = []
    for config, price, trial in zip(problem.space, problem.usd_per_hour, problem.planned_trial_seconds, strict=True):
        speed = cloud.true_samples_per_second(config)
        if speed is not None:
            seconds = cloud.startup_seconds(config) + problem.work_samples / speed
            runs.append((price.for_seconds(seconds).dollars, str(config), 1 + float(trial) / seconds))
    usd, config_text, one_trial = min(runs)
    return config_text, usd, one_trial


def run_job(job: CostJob, strategy: str, work: str, samples: float | None = None) -> tuple[CostRow, SearchRun]:
    """Search and training of one job, as `mlcd train` makes them, and what that came to."""
    work_samples = samples_of(job) if samples is None else samples
    resolved = _resolved(job, work_samples, strategy=strategy, work=work)
    spec = spec_from_mapping(job.file(work_samples, strategy=strategy, work=work))
    chosen = strategy_of(spec, job.seed)
    run = search_with(chosen, resolved.problem, resolved.cloud, name=strategy, seed=job.seed)
    best, best_usd, one_trial = best_run(resolved)
    final = (run.final or run.finished_trial) if run.status is Status.DONE else None
    tried = tuple((str(trial.config), trial.usd.dollars) for trial in run.history)
    row = CostRow(
        number=job.number,
        offered=job.offered,
        strategy=strategy,
        work=work,
        hours=job.hours,
        deployments=len(resolved.problem.space),
        status=run.status.value,
        trials=len(run.trials),
        failed=len(run.trials) - len(run.history.measured),
        search_usd=run.search_usd.dollars,
        total_usd=run.total_usd.dollars if final else None,
        best=best,
        best_usd=best_usd,
        chosen=str(final.config) if final else None,
        one_trial=one_trial,
        dearest=max(tried, key=lambda pair: pair[1], default=None),
    )
    return row, run


def rows_of(job: CostJob, strategy: str, works: Sequence[str]) -> list[Row]:
    """The job with each kind of work."""
    samples = samples_of(job)
    return [asdict(run_job(job, strategy, work, samples)[0]) for work in works]


# ---- two jobs that once cost far too much


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One run of a named job.

    name         `$1.10 on one GPU`, or `bert-large on aws-62`
    job          its model, batch and goal
    best_usd     the best run's dollars
    total_usd    what search and run cost; None when unfinished
    first_fit    the number of the first trial that measured a speed; None: none did
    """

    name: str
    job: str
    seed: int
    work: str
    best: str
    best_usd: float
    total_usd: float | None
    trials: int
    first_fit: int | None


CHEAP, CHEAP_USD, CHEAP_GOAL_USD = "$1.10 on one GPU of aws-gpu", 1.10, 1.60
MEMORY, MEMORY_TRIALS = "bert-large on aws-62", 6
EXAMPLE_SEEDS = 5


def example_jobs() -> list[tuple[str, CostJob, float]]:
    """(name, job, work in samples): the models that one GPU trains for $1.10, and bert-large where little fits."""
    found = []
    common: dict[str, Any] = {"topology": "ring", "most_nodes": 50, "noise": 0.03}
    for number, model in enumerate(("alexnet", "resnet152", "inception-v3", "char-rnn", "bert-large")):
        job = CostJob(number=number, offered="aws-gpu", model=model, batch=128, hours=0.0, seed=0, **common)
        found.append((CHEAP, job, samples_for(_truth(job)[0], CHEAP_USD)))
    for number, batch in enumerate((256, 512, 2048), start=len(found)):
        job = CostJob(number=number, offered="aws-62", model="bert-large", batch=batch, hours=0.0, seed=0, **common)
        found.append((MEMORY, job, 1e6))
    return found


def samples_for(job: ResolvedJob, usd: float) -> float:
    """The work whose cheapest run costs so much."""
    cloud, rates = job.cloud, job.problem.dollars_per_second
    assert isinstance(cloud, SimCloud)
    return max(
        float(usd / rate - cloud.startup_seconds(config)) * speed
        for config, rate in zip(job.problem.space, rates, strict=True)
        if (speed := cloud.true_samples_per_second(config)) is not None
    )


def examples_of(name: str, job: CostJob, samples: float, strategy: str, works: Sequence[str]) -> list[Row]:
    """Every kind of work and seed."""
    found = []
    for work in works:
        for seed in range(EXAMPLE_SEEDS):
            row, run = run_job(replace(job, seed=seed), strategy, work, samples)
            fits = [number for number, trial in enumerate(run.history, start=1) if trial in run.history.measured]
            found.append(
                asdict(
                    Example(
                        name=name,
                        job=f"{job.model}, batch {job.batch}",
                        seed=seed,
                        work=work,
                        best=row.best,
                        best_usd=row.best_usd,
                        total_usd=row.total_usd,
                        trials=row.trials,
                        first_fit=fits[0] if fits else None,
                    )
                )
            )
    return found


# ---- record and page


def record(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run what is missing, and summarise."""
    works = arguments.work.split(",")
    strategies = [part.strip() for part in arguments.strategies.split(";")]
    file = RowFile(path=FOLDER / "economics.jsonl", code=pages.sources(), group=lambda name: name.split("/")[0])
    jobs = list(drawn(arguments.count, arguments.seed))
    tasks = {
        f"{strategy}/{arguments.seed}/{job.number}/{','.join(works)}": (job, strategy, works)
        for strategy in strategies
        for job in jobs
    }
    made = file.complete(rows_of, tasks, jobs=arguments.jobs)
    named = {
        f"{strategy}/{name}/{job.number}/{','.join(works)}": (name, job, samples, strategy, works)
        for strategy in strategies
        for name, job, samples in example_jobs()
    }
    examples = file.complete(examples_of, named, jobs=arguments.jobs)
    rows = [CostRow(**row) for each in made.values() for row in each.rows]
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "version": __version__,
        "code": codes({**made, **examples}),
        "verified": verifiers({**made, **examples}),
        "command": f"benchmarks/economics.py --count {arguments.count} --seed {arguments.seed}",
        "core_minutes": core_minutes({**made, **examples}),
        "summary": [asdict(each) for each in summaries(rows)],
        "worst": [asdict(row) for row in sorted(rows, key=lambda row: -row.ratio) if row.strategy == strategies[0]][
            :20
        ],
        "examples": [{"strategy": name.split("/")[0], **row} for name, each in examples.items() for row in each.rows],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class CostSummary:
    """Runs of one strategy with one kind of work on some jobs; `within` is the share at most GOAL."""

    strategy: str
    work: str
    jobs: str
    runs: int
    within: float
    quantiles: dict[str, float]
    worst: float
    unfinished: int
    one_trial_within: float


LENGTHS = (
    ("under 40 min", 0.0, 2 / 3),
    ("40 min to 4 h", 2 / 3, 4.0),
    ("4 to 24 h", 4.0, 24.0),
    ("over 24 h", 24.0, 1e9),
)


def summaries(rows: Sequence[CostRow]) -> list[CostSummary]:
    """For every strategy and kind of work: all jobs, those of each set of types, and of each length."""
    found = []
    for strategy, work in dict.fromkeys((row.strategy, row.work) for row in rows):
        ours = [row for row in rows if (row.strategy, row.work) == (strategy, work)]
        groups = {"all": ours}
        groups |= {offered: [row for row in ours if row.offered == offered] for offered in OFFERED}
        groups |= {name: [row for row in ours if low <= row.hours < high] for name, low, high in LENGTHS}
        for name, group in groups.items():
            if group:
                ratios = np.array([row.ratio for row in group])
                found.append(
                    CostSummary(
                        strategy=strategy,
                        work=work,
                        jobs=name,
                        runs=len(group),
                        within=float(np.mean(ratios <= GOAL)),
                        quantiles={f"p{q}": float(np.percentile(ratios, q)) for q in QUANTILES},
                        worst=float(ratios.max()),
                        unfinished=sum(row.total_usd is None for row in group),
                        one_trial_within=float(np.mean([row.one_trial <= GOAL for row in group])),
                    )
                )
    return found


def shown(summary: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """What the page has of the record: all jobs, and each length for the first strategy."""
    lengths = {name for name, _, _ in LENGTHS}
    first = summary[0]["strategy"] if summary else ""
    return [s for s in summary if s["jobs"] == "all" or (s["jobs"] in lengths and s["strategy"] == first)]


def table(summary: Sequence[Mapping[str, Any]]) -> str:
    """The summaries as a table of markdown."""
    lines = [
        f"| strategy | work | jobs | runs | at most {GOAL} | median | p90 | p95 | p99 | worst | unfinished | bound |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for s in summary:
        quantiles = " | ".join(f"{value:.2f}" for value in s["quantiles"].values())
        figures = (
            f"{s['within']:.1%} | {quantiles} | {s['worst']:.1f} | {s['unfinished']} | {s['one_trial_within']:.0%}"
        )
        lines.append(f"| `{s['strategy']}` | {s['work']} | {s['jobs']} | {s['runs']} | {figures} |")
    return "\n".join(lines)


def examples_table(examples: Sequence[Mapping[str, Any]]) -> str:
    """The two named jobs: dearest total, and latest first fit, over models, batches and seeds."""
    lines = ["| job | strategy | work | runs | goal | reached by | worst |", "|---|---|---|---|---|---|---|"]
    for name, strategy, work in dict.fromkeys((e["name"], e["strategy"], e["work"]) for e in examples):
        group = [e for e in examples if (e["name"], e["strategy"], e["work"]) == (name, strategy, work)]
        if name == CHEAP:
            paid = [np.inf if e["total_usd"] is None else e["total_usd"] for e in group]
            goal, reached = f"under ${CHEAP_GOAL_USD:.2f} in all", sum(usd < CHEAP_GOAL_USD for usd in paid)
            worst = "unfinished" if np.isinf(max(paid)) else f"${max(paid):.2f}"
        else:
            first = [np.inf if e["first_fit"] is None else e["first_fit"] for e in group]
            goal, reached = f"one that fits within {MEMORY_TRIALS} trials", sum(n <= MEMORY_TRIALS for n in first)
            worst = "none measured" if np.isinf(max(first)) else f"trial {max(first)}"
        lines.append(f"| {name} | `{strategy}` | {work} | {len(group)} | {goal} | {reached} | {worst} |")
    return "\n".join(lines)


def parts() -> dict[Path, dict[str, str]]:
    """What the page says of the record."""
    found = json.loads(RESULT.read_text(encoding="utf-8"))
    commits = origin(found["code"], found.get("verified", ""))
    made = f"*mlcd {found['version']} ({commits}), {found['date']}: `{found['command']}`.*"
    text = f"{table(shown(found['summary']))}\n\n{examples_table(found['examples'])}\n\n{made}"
    return {PAGE: {"economics": text}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500, help="jobs")
    parser.add_argument("--seed", type=int, default=RECORD_SEED, help="of the jobs")
    parser.add_argument("--strategies", default="auto; heterbo", help="separated by semicolons")
    parser.add_argument("--work", default=",".join(WORKS))
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--show", action="store_true", help="print, and keep no record")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="one job, trial by trial")
    arguments = parser.parse_args()
    if arguments.only is not None:
        show(arguments)
        return
    found = record(arguments)
    if not arguments.show:
        RESULT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        pages.write(parts())
    print(f"{table(found['summary'])}\n\n{examples_table(found['examples'])}\n")
    for row in found["worst"]:
        print(json.dumps(row))


def show(arguments: argparse.Namespace) -> None:
    """One job under every kind of work."""
    job = list(drawn(arguments.only + 1, arguments.seed))[-1]
    print(job)
    for strategy in arguments.strategies.split(";"):
        for work in arguments.work.split(","):
            row, run = run_job(job, strategy.strip(), work)
            print(f"\n{row.strategy}, {work}: ratio {row.ratio:.2f}, best {row.best} ${row.best_usd:.2f}")
            for step in run.trials:
                print(f"  {step.authorisation.choice}: {step.reason}")
            print(f"  trained on {row.chosen}")


if __name__ == "__main__":
    main()
