"""`mlcd train` on this machine with knobs, against every combination measured in the same run.

    python benchmarks/record_train_gpu.py --size 1b --out $OUT/1b          # on a machine with a GPU, within 10 minutes
    python benchmarks/record_train_gpu.py --size 300m --out $OUT/300m      # a model that nothing was tuned on
    python benchmarks/record_train_gpu.py --size tiny --out /tmp/tiny      # anywhere: a tiny GPT on the processors

Three parts, each skipped where its result is in --out already, so that a run that was cut off can be continued:

    search    `mlcd train` with the strategy, at most --trials trials, then a short training: report.json
    speeds    every combination, one after the other, in one process: speeds.json
    compare   the choice's speed there over the best, trials, failures for lack of memory, budget: result.json

The example's script (examples/gpt-knobs/train.py) trains a GPT of random weights on made-up tokens.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
GPU_KNOBS: dict[str, list[Any]] = {
    "precision": ["fp32", "bf16"],
    "micro_batch": [2, 8, 32, 128],
    "recompute": [False, True],
    "attention": ["eager", "sdpa"],
    "compile": [False, True],
}
"""64 combinations; --no-compile leaves 32."""
CPU_KNOBS: dict[str, list[Any]] = {
    "precision": ["fp32", "bf16"],
    "micro_batch": [1, 4, 16],
    "recompute": [False, True],
    "threads": [1, 2],
}
MEMORY = {"micro_batch": "rises", "recompute": "falls"}


def job(size: str, knobs: dict[str, list[Any]], given: argparse.Namespace) -> dict[str, Any]:
    """The job file: a training so long that trials pay for themselves."""
    on_gpu, processors = size != "tiny", len(os.sched_getaffinity(0))
    declared = {
        name: {"values": values, "memory": MEMORY[name]} if name in MEMORY else values for name, values in knobs.items()
    }
    return {
        "name": f"gpt-{size}",
        "workdir": str(ROOT / "examples" / "gpt-knobs"),
        "resources": {"infra": "local", **({"gpus": 1} if on_gpu else {"instance_type": f"local.{processors}"})},
        "num_nodes": 1,
        "run": f"{sys.executable} train.py",
        "envs": {"GPT_SIZE": size},
        "knobs": declared,
        "job": {"samples": given.samples, "batch": given.batch},
        "goal": {"minimize": "time", "budget": given.budget},
        "search": {
            "strategy": given.strategy,
            "max_trials": given.trials,
            "trial": {"minutes": given.trial_seconds / 60, "extension": 10, "watchdog_minutes": 1},
        },
    }


def search(folder: Path, knobs: dict[str, list[Any]], given: argparse.Namespace) -> None:
    """`mlcd train`, ended when the training has begun: what is compared is the choice."""
    file = folder / "job.json"
    file.write_text(json.dumps(job(given.size, knobs, given), indent=1))
    env = {**os.environ, "MLCD_HOME": str(folder / "home")}
    mlcd = [sys.executable, "-m", "mlcd"]
    began = time.monotonic()
    with (folder / "progress.txt").open("wb") as said:
        run = subprocess.Popen(
            [*mlcd, "train", str(file), "-o", "json"], env=env, stdout=subprocess.DEVNULL, stderr=said
        )
        while run.poll() is None:
            if (
                b"Training on" in (folder / "progress.txt").read_bytes()
                or time.monotonic() - began > given.most_seconds
            ):
                run.terminate()
                run.wait(timeout=120)
            time.sleep(0.5)
    shown = subprocess.run([*mlcd, "show", "-o", "json"], env=env, capture_output=True, text=True, check=True)
    report = json.loads(shown.stdout)
    report["wall_seconds"] = time.monotonic() - began
    (folder / "report.json").write_text(json.dumps(report, indent=1))
    shutil.rmtree(folder / "home" / "work", ignore_errors=True)


def speeds(folder: Path, knobs: dict[str, list[Any]], given: argparse.Namespace) -> None:
    """Every combination; combinations that are in the file already are not measured again."""
    script = ROOT / "examples" / "gpt-knobs" / "train.py"
    env = {**os.environ, "GPT_SIZE": given.size, "MLCD_BATCH": str(given.batch)}
    options = ["--measure", str(folder / "speeds.json"), "--knobs", json.dumps(knobs)]
    limits = ["--seconds", str(given.seconds), "--most-seconds", str(given.most_seconds)]
    subprocess.run([sys.executable, str(script), *options, *limits], env=env, check=True)


def compare(folder: Path, knobs: dict[str, list[Any]]) -> dict[str, Any]:
    """How good the choice is by the exhaustive measurement, and what the search took."""
    report, measured = (
        json.loads((folder / "report.json").read_text()),
        json.loads((folder / "speeds.json").read_text()),
    )
    known = {json.dumps(each["setting"], sort_keys=True): each["samples_per_second"] for each in measured}
    fits = {key: speed for key, speed in known.items() if speed is not None}
    chosen = {name: report["choice"]["config"][name] for name in knobs} if report["choice"] else None
    own = known.get(json.dumps(chosen, sort_keys=True)) if chosen else None
    best = max(fits.values(), default=None)
    short = [t for t in report["trials"] if t["failure"] and t["failure"]["kind"] == "out-of-memory"]
    wrongly = [t for t in short if fits.get(json.dumps({n: t["config"][n] for n in knobs}, sort_keys=True))]
    total = 1
    for values in knobs.values():
        total *= len(values)
    return {
        "combinations": total,
        "measured": len(known),
        "out_of_memory": len(known) - len(fits),
        "chosen": chosen,
        "chosen_over_best": round(own / best, 4) if own and best else None,
        "best": json.loads(max(fits, key=lambda key: fits[key])) if fits else None,
        "trials": len(report["trials"]),
        "trials_out_of_memory": len(short),
        "fitted_all_the_same": len(wrongly),
        "budget_kept": float(report["receipt"]["left_usd"]) >= 0,
        "search_wall_seconds": round(report["wall_seconds"], 1),
    }


def main() -> None:
    """Run the parts that are missing, and print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=("tiny", "300m", "1b"), default="tiny")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--strategy", default="auto")
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--trial-seconds", type=float, default=20.0)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement of every combination")
    parser.add_argument("--most-seconds", type=float, default=270.0, help="of each part")
    parser.add_argument("--batch", type=int, default=0, help="the global batch; by default 128, on processors 16")
    parser.add_argument("--samples", type=int, default=2_000_000)
    parser.add_argument("--budget", default="50 USD")
    parser.add_argument("--no-compile", action="store_true")
    given = parser.parse_args()
    given.batch = given.batch or (16 if given.size == "tiny" else 128)
    knobs = dict(CPU_KNOBS if given.size == "tiny" else GPU_KNOBS)
    if given.no_compile:
        knobs.pop("compile", None)
    given.out.mkdir(parents=True, exist_ok=True)
    if not (given.out / "report.json").exists():
        search(given.out, knobs, given)
    speeds(given.out, knobs, given)
    result = compare(given.out, knobs)
    (given.out / "result.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
