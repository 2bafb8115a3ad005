"""`mlcd train` on this machine with knobs, against every combination measured in the same run.

    python benchmarks/record_train_gpu.py --size 1b --out /tmp/1b          # with a GPU; train_gpu.sh is one call
    python benchmarks/record_train_gpu.py --size 300m --out /tmp/300m      # a model that nothing was tuned on
    python benchmarks/record_train_gpu.py --size tiny --out /tmp/tiny      # anywhere: a tiny GPT on the processors
    python benchmarks/record_train_gpu.py --rehearse --out /tmp/rehearsal  # the GPU's knobs on processors: does it run?
    python benchmarks/record_train_gpu.py --plan                           # what each part is expected to take
    python benchmarks/record_train_gpu.py --record FOLDER ...              # results/train-gpu.json and the page's table

Four parts. Each keeps what it has in --out after every setting, and is continued where it was cut off:

    search    `mlcd train` with the strategy, at most --trials trials, until its training begins: report.json
    memory    `mlcd train` on a setting that cannot fit: what its trial failed of: memory.json
    speeds    every combination, one after the other: speeds.json. A process that dies is started again without the
              setting that it died of
    compare   the choice's speed there over the best, trials, failures for lack of memory, budget: result.json

--most-seconds is for all parts together; the search leaves a minute of it. The example's script
(examples/gpt-knobs/train.py) trains a GPT of random weights on made-up tokens.
"""

import argparse
import json
import math
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "examples" / "gpt-knobs" / "train.py"
RECORD = ROOT / "benchmarks" / "results" / "train-gpu.json"
PAGE = ROOT / "docs" / "how-to" / "gpus.md"
GPU_KNOBS: dict[str, list[Any]] = {
    "attention": ["sdpa", "eager"],
    "precision": ["bf16", "tf32"],
    "compile": [False, True],
    "recompute": [False, True],
    "micro_batch": [2, 8, 32],
}
"""48 combinations. A step has 32 samples of 1,024 tokens. Of a billion parameters, 32 samples at once without
recomputation take about 65 GiB in bf16 with sdpa and 210 GiB in tf32 with eager attention: some do not fit 139 GiB."""
CPU_KNOBS: dict[str, list[Any]] = {
    "precision": ["fp32", "bf16"],
    "micro_batch": [1, 4, 16],
    "recompute": [False, True],
    "threads": [1, 2],
}
MEMORY = {"micro_batch": "rises", "recompute": "falls"}
SAMPLES = {"tiny": 200_000, "300m": 1_500_000, "1b": 500_000}
"""Trainings of hours on an H200, so that a search of minutes pays for itself. They are ended when they begin."""
BUDGET = {"tiny": "5 USD", "300m": "60 USD", "1b": "60 USD"}
BATCH = {"tiny": 16, "300m": 32, "1b": 32}
PARAMETERS = {"300m": 0.37e9, "1b": 1.04e9}
MOST_DEATHS = 4
"""So many settings may end the measuring process; then the rest is not measured."""


def knobs_of(given: argparse.Namespace) -> dict[str, list[Any]]:
    """What is chosen from."""
    knobs = dict(GPU_KNOBS if given.size != "tiny" or given.rehearse else CPU_KNOBS)
    if given.rehearse:
        knobs |= {"micro_batch": [2, 16], "attention": ["sdpa"]}
    if given.few:
        knobs |= {"precision": ["fp32", "bf16"], "micro_batch": [1, 16], "threads": [1]}
    return knobs


def job(knobs: Mapping[str, list[Any]], given: argparse.Namespace) -> dict[str, Any]:
    """The job file: a training so long that trials pay for themselves."""
    on_gpu, processors = given.size != "tiny", len(os.sched_getaffinity(0))
    declared = {
        name: {"values": values, "memory": MEMORY[name]} if name in MEMORY else values for name, values in knobs.items()
    }
    return {
        "name": f"gpt-{given.size}",
        "workdir": str(SCRIPT.parent),
        "resources": {"infra": "local", **({"gpus": 1} if on_gpu else {"instance_type": f"local.{processors}"})},
        "num_nodes": 1,
        "run": f"{sys.executable} train.py",
        "envs": {"GPT_SIZE": given.size},
        "knobs": declared,
        "job": {"samples": SAMPLES[given.size], "batch": given.batch},
        "goal": {"minimize": "time", "budget": BUDGET[given.size]},
        "search": {
            "strategy": given.strategy,
            "max_trials": given.trials,
            "trial": {"minutes": given.trial_seconds / 60, "extension": 4, "watchdog_minutes": 1.5},
        },
    }


def search(folder: Path, knobs: Mapping[str, list[Any]], given: argparse.Namespace, most_seconds: float) -> None:
    """`mlcd train`, ended when the training has begun: what is compared is the choice.

    A search that was cut off is continued with its trials, where --out still has its home.
    """
    file, home, progress = folder / "job.json", folder / "home", folder / "progress.txt"
    file.write_text(json.dumps(job(knobs, given), indent=1))
    env = {**os.environ, "MLCD_HOME": str(home)}
    mlcd = [sys.executable, "-m", "mlcd"]
    words = ["resume", "-o", "json"] if (home / "mlcd.sqlite3").exists() else ["train", str(file), "-o", "json"]
    began = time.monotonic()
    with progress.open("ab") as said:
        run = subprocess.Popen([*mlcd, *words], env=env, stdout=subprocess.DEVNULL, stderr=said)
        while run.poll() is None:
            if b"Training on" in progress.read_bytes() or time.monotonic() - began > most_seconds:
                run.send_signal(signal.SIGTERM)
                run.wait(timeout=120)
            time.sleep(0.2)
    shown = subprocess.run([*mlcd, "show", "-o", "json"], env=env, capture_output=True, text=True, check=False)
    if shown.returncode != 0:
        raise SystemExit(f"the search left no run:\n{progress.read_text(errors='replace')[-3000:]}\n{shown.stderr}")
    report = json.loads(shown.stdout)
    report["wall_seconds"] = time.monotonic() - began
    if report["choice"] is None and run.returncode != 0 and time.monotonic() - began > most_seconds:
        (folder / "unfinished.json").write_text(json.dumps(report, indent=1))  # the next call continues it
        return
    (folder / "report.json").write_text(json.dumps(report, indent=1))
    shutil.rmtree(home / "work", ignore_errors=True)


def memory(folder: Path, given: argparse.Namespace) -> None:
    """Whether mlcd tells a setting that cannot fit from one that fails otherwise: a search may well avoid them all."""
    knobs: dict[str, list[Any]] = {
        "attention": ["eager"],
        "precision": ["tf32"],
        "compile": [False],
        "recompute": [False],
        "micro_batch": [32],
    }
    own = folder / "memory"
    own.mkdir(exist_ok=True)
    options = argparse.Namespace(**{**vars(given), "trials": 1})
    search(own, knobs, options, 120.0)
    trials = json.loads(next(own.glob("[ru]*.json")).read_text())["trials"]
    found = [{"config": t["config"], "failure": t["failure"], "measured": t["failure"] is None} for t in trials]
    (folder / "memory.json").write_text(json.dumps(found, indent=1))


def speeds(folder: Path, knobs: Mapping[str, list[Any]], given: argparse.Namespace, most_seconds: float) -> None:
    """Every combination; combinations that are in the file already are not measured again."""
    file, began = folder / "speeds.json", time.monotonic()
    env = {**os.environ, "GPT_SIZE": given.size, "MLCD_BATCH": str(given.batch)}
    for _ in range(MOST_DEATHS):
        left = most_seconds - (time.monotonic() - began)
        options = ["--measure", str(file), "--knobs", json.dumps(knobs), "--seconds", str(given.seconds)]
        command = [sys.executable, str(SCRIPT), *options, "--most-seconds", str(max(left, 0.0))]
        with (folder / "measuring.txt").open("ab") as said:
            done = subprocess.run(command, env=env, stdout=said, stderr=said, check=False)
        begun = file.with_suffix(".begun")
        if done.returncode == 0 or not begun.exists():
            return
        measured = json.loads(file.read_text()) if file.exists() else []
        died = {"setting": json.loads(begun.read_text()), "samples_per_second": None, "out_of_memory": ""}
        file.write_text(json.dumps([*measured, {**died, "died": done.returncode}], indent=0))
        begun.unlink()


def compare(folder: Path, knobs: Mapping[str, list[Any]]) -> dict[str, Any]:
    """How good the choice is by the exhaustive measurement, and what the search took."""
    report, measured = (
        json.loads((folder / "report.json").read_text()),
        json.loads((folder / "speeds.json").read_text()),
    )
    known = {_key(each["setting"]): each for each in measured}
    fits = {key: each["samples_per_second"] for key, each in known.items() if each["samples_per_second"] is not None}
    chosen = {name: report["choice"]["config"][name] for name in knobs} if report["choice"] else None
    own, best = fits.get(_key(chosen)) if chosen else None, max(fits.values(), default=None)
    tried = [(_key({name: t["config"][name] for name in knobs}), t) for t in report["trials"]]
    short = [(key, t) for key, t in tried if t["failure"] and t["failure"]["kind"] == "out-of-memory"]
    spread = sorted(fits.values())
    return {
        "combinations": math.prod(len(values) for values in knobs.values()),
        "measured": len(known),
        "out_of_memory": sum(bool(each["out_of_memory"]) for each in measured),
        "died": sum("died" in each for each in measured),
        "chosen": chosen,
        "chosen_over_best": round(own / best, 4) if own and best else None,
        "best": known[max(fits, key=lambda key: fits[key])]["setting"] if fits else None,
        "best_samples_per_second": round(best, 3) if best else None,
        "median_over_best": round(spread[len(spread) // 2] / best, 4) if best else None,
        "within_5_percent": sum(speed >= 0.95 * best for speed in spread) if best else 0,
        "trials": len(tried),
        "trials_out_of_memory": len(short),
        "out_of_memory_in_both": sum(key in known and key not in fits for key, _ in short),
        "fitted_all_the_same": sum(key in fits for key, _ in short),
        "budget_kept": float(report["receipt"]["left_usd"]) >= 0,
        "search_wall_seconds": round(report["wall_seconds"], 1),
        "measuring_seconds": round(sum(each.get("took_seconds", 0.0) for each in measured), 1),
    }


def _key(setting: Mapping[str, Any]) -> str:
    return json.dumps(dict(setting), sort_keys=True)


def machine() -> dict[str, str]:
    """What it ran on."""
    import torch  # noqa: PLC0415  # only where it is measured

    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else ""
    return {
        "gpu": gpu,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "code": os.environ.get("COMMIT", ""),
    }


def plan(knobs: Mapping[str, list[Any]], given: argparse.Namespace) -> dict[str, Any]:
    """Expected seconds of each part on an H200: 400 TFLOPS in bf16 and 250 in tf32, 8 s to compile, 15 s to start."""
    total, most = 0.0, 0.0
    for values in product(*knobs.values()):
        setting = dict(zip(knobs, values, strict=True))
        flops = 6 * PARAMETERS[given.size] * 1024 * given.batch * (4 / 3 if setting["recompute"] else 1.0)
        step = flops / (400e12 if setting["precision"] == "bf16" else 250e12)
        step *= 1.6 if setting["attention"] == "eager" else 1.0
        seconds = 0.5 + step + max(given.seconds, 3 * step) + (8.0 + step if setting["compile"] else 0.0)
        total, most = total + seconds, max(most, seconds)
    trials = (given.trials + 1) * (15.0 + 5.0 + given.trial_seconds)
    return {
        "size": given.size,
        "speeds_seconds": round(total),
        "longest_setting_seconds": round(most),
        "search_seconds": round(trials),
    }


def record(folders: Sequence[Path]) -> None:
    """The committed record: of each folder the result, every speed, and every trial."""
    found = {}
    for folder in folders:
        parts = {name: json.loads((folder / f"{name}.json").read_text()) for name in ("result", "speeds", "report")}
        parts["report"] = {name: parts["report"][name] for name in ("choice", "receipt", "trials", "wall_seconds")}
        found[folder.name] = parts
    RECORD.write_text(json.dumps(found, indent=0) + "\n", encoding="utf-8")


def main() -> None:
    """Run the parts that are missing, and print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=("tiny", "300m", "1b"), default="tiny")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--strategy", default="auto")
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--trial-seconds", type=float, default=15.0)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement of every combination")
    parser.add_argument("--most-seconds", type=float, default=560.0, help="of all parts together")
    parser.add_argument("--parts", default="search,memory,speeds", help="some of search, memory and speeds")
    parser.add_argument("--batch", type=int, default=0, help="the global batch; by default 32, on processors 16")
    parser.add_argument("--few", action="store_true", help="fewer combinations on processors: for the test suite")
    parser.add_argument("--rehearse", action="store_true", help="the GPU's knobs on processors with the tiny model")
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--record", type=Path, nargs="+", metavar="FOLDER")
    given = parser.parse_args()
    if given.record:
        record(given.record)
        return
    given.batch = given.batch or BATCH[given.size]
    knobs = knobs_of(given)
    if given.plan:
        for given.size in PARAMETERS:
            given.batch = BATCH[given.size]
            print(json.dumps(plan(GPU_KNOBS, given)))
        return
    if given.out is None:
        parser.error("--out is needed")
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "machine.json").write_text(json.dumps(machine(), indent=1))
    began = time.monotonic()
    if "search" in given.parts and not (given.out / "report.json").exists():
        search(given.out, knobs, given, max(given.most_seconds - 60.0, given.most_seconds * 2 / 3))
    on_gpu = given.size != "tiny" or given.rehearse
    if "memory" in given.parts and on_gpu and not (given.out / "memory.json").exists():
        memory(given.out, given)
    if "speeds" in given.parts:
        speeds(given.out, knobs, given, given.most_seconds - (time.monotonic() - began))
    if (given.out / "report.json").exists() and (given.out / "speeds.json").exists():
        result = {**compare(given.out, knobs), **json.loads((given.out / "machine.json").read_text())}
        if (given.out / "memory.json").exists():
            kinds = [
                (each["failure"] or {}).get("kind") for each in json.loads((given.out / "memory.json").read_text())
            ]
            result["memory_trials"] = kinds
        (given.out / "result.json").write_text(json.dumps(result, indent=1) + "\n")
        print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
