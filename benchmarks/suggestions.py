"""One suggestion after 30 trials: mlcd and scikit-learn over 3,100 and 100,000 candidates, and other libraries.

The first table is `mlcd bench suggest` with its scikit-learn in the same run, and needs only scikit-learn (`pip install
'mlcd[compare]'`): 3 minutes on an idle machine with --no-others. The second has the other libraries.

Every engine gets the same 30 measured speeds of ResNet-152 on simulated AWS (the 58 types of aws-62 that may train, up
to 54 nodes), refits its model and suggests the next trial. The engines take turns within one process, so that other
load slows all alike. An engine that is not installed is reported as such. The others need a separate environment:

    python3.11 -m venv .venvs/compare
    .venvs/compare/bin/pip install torch==2.13.0          # the CPU build, first and exactly
    .venvs/compare/bin/pip install botorch ax-platform optuna scikit-learn -e .
    .venvs/compare/bin/python benchmarks/suggestions.py --record     # or [--repeats 9] [-o json] without a record
"""

import argparse
import json
import logging
import os
import platform
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pages
from scipy.special import ndtr

from mlcd.bench.new_run import after_trials, new_run
from mlcd.bench.suggest import SuggestTimes, time_suggest
from mlcd.clouds.sim import SimCloud
from mlcd.deciders.search import SearchDecider
from mlcd.deciders.training import TrainingDecider
from mlcd.goal import Goal, Objective
from mlcd.problem import Problem
from mlcd.run.kind import Kind
from mlcd.search.registry import strategy
from mlcd.space import Config
from mlcd.trial.trial import History, Measurement
from mlcd.units import ZERO
from papers.heterbo_figures.experiment import Experiment

RECORD = pages.ROOT / "benchmarks" / "results" / "suggestions.json"
PAGE = pages.ROOT / "docs" / "bench.md"
CANDIDATES = (3_100, 100_006)
"""62 types x 50 and x 1,613 nodes."""
STRATEGIES = ("auto", "heterbo:start=1")
LEAST_SHARE, MOST_SECONDS = 6.0, 2.0
"""What auto is to reach: scikit-learn takes so many times longer over the fewer candidates; seconds over the many."""
EXPERIMENT = Experiment(
    job="resnet-budgets", goal=Goal(minimize=Objective.TIME), types=("aws-62",), max_nodes=54, max_trials=200
)


class Stopwatch:
    """Times the part of an engine's work that a search repeats at every step."""

    def __init__(self) -> None:
        self.milliseconds: list[float] = []

    def __enter__(self) -> None:
        self.begun = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.milliseconds.append((time.perf_counter() - self.begun) * 1000)


def measured(problem: Problem, cloud: SimCloud, observations: int, seed: int) -> History:
    """Random deployments that run, with 3% noise."""
    random = np.random.default_rng(seed)
    runnable = [(c, s) for c in problem.space if (s := cloud.true_samples_per_second(c)) is not None]
    rows = random.choice(len(runnable), size=observations, replace=False)
    return History(
        tuple(
            Measurement(
                config=runnable[row][0],
                attempt=1,
                samples_per_second=float(runnable[row][1] * np.exp(0.03 * random.normal())),
                relative_error=0.03,
                iterations=30,
                startup_seconds=90.0,
                seconds=600.0,
                usd=ZERO,
            )
            for row in rows
        )
    )


def arrays(problem: Problem, history: History) -> tuple[Any, Any, Any]:
    """(all candidates' features, measured rows, log speeds)."""
    encoding = problem.space.encoding
    inputs = np.hstack([encoding.features, encoding.counts])
    inputs = (inputs - inputs.min(axis=0)) / np.ptp(inputs, axis=0)
    rows = np.array([problem.space.index[t.config] for t in history.measured])
    return inputs, rows, np.log([t.samples_per_second for t in history.measured])


# ---- engines: one suggestion each


def auto(problem: Problem, history: History, watch: Stopwatch) -> Config:
    """See _ours."""
    return _ours("auto", problem, history, watch)


def heterbo(problem: Problem, history: History, watch: Stopwatch) -> Config:
    """See _ours; without first looks at every type."""
    return _ours("heterbo:start=1", problem, history, watch)


def _ours(text: str, problem: Problem, history: History, watch: Stopwatch) -> Config:
    """A strategy as in a search: it has suggested after all trials but the last, and is asked again after all."""
    decider = SearchDecider(strategy=strategy(text), aftermath=TrainingDecider())
    run = new_run(Kind.TRAIN, problem, cloud="sim", strategy=text)
    before, now = after_trials(run, history.trials[:-1]), after_trials(run, history.trials)
    decider.round(before, before.step_seconds, 1)
    with watch:
        requests, _ = decider.round(now, now.step_seconds, 1)
    return requests[0].authorisation.config if requests else history.trials[0].config


def sklearn(problem: Problem, history: History, watch: Stopwatch) -> Config:
    """Matern 5/2 with a length per feature, two starts; expected improvement over all candidates."""
    library = import_module("sklearn.gaussian_process")
    kernels = library.kernels
    inputs, rows, values = arrays(problem, history)
    with watch:
        matern = kernels.Matern(np.ones(inputs.shape[1]), nu=2.5)
        kernel = kernels.ConstantKernel() * matern + kernels.WhiteKernel(0.01)
        process = library.GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=1, random_state=0)
        mean, deviation = process.fit(inputs[rows], values).predict(inputs, return_std=True)
        z = (mean - values.max()) / deviation
        gain = (mean - values.max()) * ndtr(z) + deviation * np.exp(-z * z / 2) / np.sqrt(2 * np.pi)
        row = int(gain.argmax())
    return problem.space.configs[row]


def botorch(problem: Problem, history: History, watch: Stopwatch) -> Config:
    """SingleTaskGP with its own defaults; LogExpectedImprovement over all candidates."""
    torch, library = import_module("torch"), import_module("botorch")
    likelihoods = import_module("gpytorch.mlls")
    inputs, rows, values = arrays(problem, history)
    x = torch.tensor(inputs, dtype=torch.double)
    y = torch.tensor(values, dtype=torch.double).unsqueeze(-1)
    with watch:
        model = library.models.SingleTaskGP(x[rows], y)
        library.fit_gpytorch_mll(likelihoods.ExactMarginalLogLikelihood(model.likelihood, model))
        with torch.no_grad():
            acquisition = library.acquisition.LogExpectedImprovement(model, best_f=y.max())
            row = int(acquisition(x.unsqueeze(1)).argmax())
    return problem.space.configs[row]


def ax(problem: Problem, history: History, watch: Stopwatch) -> Config:
    """The service interface: instance type as an unordered choice, nodes as a whole number."""
    configs = import_module("ax.api.configs")
    types = sorted({c.instance for c in problem.space})
    client = import_module("ax.api.client").Client(random_seed=0)
    client.configure_experiment(
        parameters=[
            configs.ChoiceParameterConfig(name="instance", values=types, parameter_type="str", is_ordered=False),
            configs.RangeParameterConfig(name="nodes", bounds=(1, int(problem.nodes.max())), parameter_type="int"),
        ]
    )
    client.configure_optimization(objective="speed")
    client.configure_generation_strategy(initialization_budget=5, initialize_with_center=False)
    for trial in history.measured:
        index = client.attach_trial({"instance": trial.config.instance, "nodes": trial.config.nodes})
        client.complete_trial(index, raw_data={"speed": float(np.log(trial.samples_per_second))})
    with watch:
        found = client.get_next_trials(max_trials=1)
    table = client.summarize()
    assert str(table.iloc[-1]["generation_node"]) == "MBM", "a quasi-random point is no suggestion of a model"
    parameters: dict[str, Any] = dict(next(iter(found.values())))
    return Config.deployment(str(parameters["instance"]), int(parameters["nodes"]))


def optuna(problem: Problem, history: History, watch: Stopwatch) -> Config:
    """GPSampler: instance type as a category, nodes as a whole number."""
    library = import_module("optuna")
    library.logging.set_verbosity(library.logging.ERROR)
    space: dict[str, Any] = {
        "instance": library.distributions.CategoricalDistribution(sorted({c.instance for c in problem.space})),
        "nodes": library.distributions.IntDistribution(1, int(problem.nodes.max())),
    }
    study = library.create_study(direction="maximize", sampler=library.samplers.GPSampler(seed=0))
    for trial in history.measured:
        parameters = {"instance": trial.config.instance, "nodes": trial.config.nodes}
        value = float(np.log(trial.samples_per_second))
        study.add_trial(library.trial.create_trial(params=parameters, distributions=space, value=value))
    with watch:
        asked = study.ask(space)
    return Config.deployment(str(asked.params["instance"]), int(asked.params["nodes"]))


Engine = Callable[[Problem, History, Stopwatch], Config]
"""Suggests the next trial; the stopwatch times what a search repeats at every step."""

ENGINES: dict[str, tuple[str, Engine]] = {
    "mlcd, auto": ("mlcd", auto),
    "mlcd, heterbo": ("mlcd", heterbo),
    "scikit-learn": ("scikit-learn", sklearn),
    "BoTorch, LogEI": ("botorch", botorch),
    "Ax": ("ax-platform", ax),
    "Optuna, GPSampler": ("optuna", optuna),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--observations", type=int, default=30)
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text")
    parser.add_argument("--record", action="store_true", help="write the record and its part of docs/bench.md")
    parser.add_argument("--no-others", action="store_true", help="only ours and scikit-learn; keep the others' record")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")

    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    kept = {}
    if arguments.no_others and RECORD.exists():
        before = json.loads(RECORD.read_text(encoding="utf-8"))
        kept = {name: before[name] for name in ("candidates", "engines", "others_made") if name in before}
    found: dict[str, Any] = {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "code": pages.sources(),
        "observations": arguments.observations,
        "repeats": arguments.repeats,
        "machine": machine,
        "paired": [asdict(times) for times in paired(arguments)],
        **(kept if arguments.no_others else others(arguments)),
    }
    if arguments.record:
        RECORD.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        pages.write(parts())
    print(json.dumps(found, indent=2) if arguments.output == "json" else tables(found))


def paired(arguments: argparse.Namespace) -> list[SuggestTimes]:
    """Ours and scikit-learn in turns."""
    return [
        time_suggest(
            candidates=candidates,
            observations=arguments.observations,
            repeats=arguments.repeats if candidates < 10_000 else max(arguments.repeats // 3, 3),
            strategy_text=text,
        )
        for candidates in CANDIDATES
        for text in STRATEGIES
    ]


def others(arguments: argparse.Namespace) -> dict[str, Any]:
    """Every library that is installed, in turns."""
    setting = EXPERIMENT.setting(0)
    problem, cloud = setting.problem, setting.cloud
    assert isinstance(cloud, SimCloud)
    watches, versions, problems = {}, {}, {}
    for name, (package, _) in ENGINES.items():
        try:
            versions[name] = version(package)
            watches[name] = Stopwatch()
        except PackageNotFoundError:
            problems[name] = "not installed"
    for repeat in range(arguments.repeats + 1):  # the first round warms up and is dropped
        history = measured(problem, cloud, arguments.observations, repeat)
        for name, watch in watches.items():
            if name not in problems:
                try:
                    chosen = ENGINES[name][1](problem, history, watch)
                    assert chosen in problem.space.index
                except Exception as error:  # a failing engine becomes a row of the table
                    problems[name] = f"failed: {type(error).__name__}: {error}"
    rows = []
    for name in ENGINES:
        times = watches[name].milliseconds[1:] if name in watches and name not in problems else []
        rows.append(
            {
                "engine": name,
                "version": versions.get(name),
                "median_ms": statistics.median(times) if times else None,
                "p95_ms": float(np.percentile(times, 95)) if times else None,
                "problem": problems.get(name),
            }
        )
    made = f"{datetime.now(UTC):%Y-%m-%d}, commit {pages.sources()}"
    return {"candidates": len(problem.space), "engines": rows, "others_made": made}


def tables(found: dict[str, Any]) -> str:
    """Both tables of markdown; the second where the record has it."""
    return paired_table(found) + (f"\n\n{others_table(found)}" if "engines" in found else "")


def paired_table(found: dict[str, Any]) -> str:
    """Ours beside scikit-learn, and what auto is to reach."""
    lines = [
        "| strategy | candidates | median | p95 | scikit-learn | over ours | to reach |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in found["paired"]:
        many = row["candidates"] > CANDIDATES[0]
        asked = f"{MOST_SECONDS:g} s" if many else f"{LEAST_SHARE:g} x"
        theirs = row["sklearn_median_ms"]
        beside = "not installed | -" if theirs is None else f"{theirs:.0f} ms | {theirs / row['median_ms']:.1f} x"
        figures = f"{row['median_ms']:.0f} ms | {row['p95_ms']:.0f} ms | {beside}"
        name = row["strategy"]
        lines.append(f"| `{name}` | {row['candidates']:,} | {figures} | {asked if name == 'auto' else '-'} |")
    return "\n".join(lines)


def others_table(found: dict[str, Any]) -> str:
    """Every library over the same candidates; the last column is over auto's time."""
    ours = found["engines"][0]["median_ms"]
    lines = ["| engine | version | candidates | median | p95 | over auto |", "|---|---|---|---|---|---|"]
    for row in found["engines"]:
        figures = f"{row['problem']} | - | -"
        if row["median_ms"] is not None:
            figures = f"{row['median_ms']:.1f} ms | {row['p95_ms']:.1f} ms | {row['median_ms'] / ours:.1f} x"
        lines.append(f"| {row['engine']} | {row['version'] or '-'} | {found['candidates']:,} | {figures} |")
    return "\n".join(lines)


def parts() -> dict[Path, dict[str, str]]:
    """What docs/bench.md says of the record."""
    found = json.loads(RECORD.read_text(encoding="utf-8"))
    made = f"{found['machine']}, {found['date']}, commit {found['code']}: median of {found['repeats']}"
    text = f"On {made} (`benchmarks/results/suggestions.json`):\n\n{paired_table(found)}"
    if "engines" in found:
        text += f"\n\nOther libraries ({found['others_made']}):\n\n{others_table(found)}"
    return {PAGE: {"suggestions": text}}


if __name__ == "__main__":
    main()
