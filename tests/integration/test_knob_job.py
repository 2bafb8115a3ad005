"""`mlcd train` with knobs on this machine: chosen, passed to the script, stored, reported, and what is never read."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unmeasured import UNMEASURED

from mlcd.problem import Problem
from mlcd.store.store import Store
from mlcd.trial.trial import FailureKind

pytestmark = [pytest.mark.waits, pytest.mark.slow]

SCRIPT = """
import os, time

import mlcd

precision, micro = mlcd.knob("precision", "fp32"), mlcd.knob("micro_batch", 1)
recompute = os.environ["RECOMPUTE"] == "true"
if micro >= 4 and not recompute:
    raise MemoryError("made")
pace = 0.05 * {"fp32": 1.0, "bf16": 0.5}[precision] * (0.4 + 0.6 / micro) * (1.1 if recompute else 1.0)
for _ in mlcd.steps(range(100_000), batch_size=10):
    time.sleep(pace)
open("out.txt", "w").write(f"{precision} {micro} {os.environ['precision']} {os.environ['MICRO_BATCH']}")
"""

JOB = """
name: knobs
workdir: .
resources: {infra: local, instance_type: local.1}
num_nodes: 1
run: python train.py
knobs:
  precision: [fp32, bf16]
  micro_batch: [1, 2, 4]
  recompute: {values: [false, true], memory: falls}
  idle: [1, 2]
  exclude: [{recompute: true, micro_batch: [1, 2]}, {idle: 2}]
job: {samples: 6000, batch: 10}
outputs: [out.txt]
goal: {minimize: time, budget: 1 USD}
search: {strategy: STRATEGY, trial: {minutes: 0.03, extension: 10, watchdog_minutes: 0.5, precision: 0.5}}
"""


def mlcd(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mlcd", *words],
        cwd=folder,
        env={**UNMEASURED, "MLCD_HOME": str(folder / "home"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("strategy", ["auto", "heterbo"])
def test_knobs_are_chosen_run_stored_and_reported(strategy: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "job.yaml").write_text(JOB.replace("STRATEGY", strategy))
    done = mlcd(tmp_path, "train", "job.yaml", "-o", "json")
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    chosen = report["choice"]["config"]
    assert chosen["precision"] == "bf16"
    assert chosen["micro_batch"] > 1
    (out,) = (tmp_path / "home" / "work").glob("*/outputs/out.txt")
    assert out.read_text() == f"bf16 {chosen['micro_batch']} bf16 {chosen['micro_batch']}"
    warning = 'the script did not ask for idle: every value gives the same training; use mlcd.knob("idle", default)'
    assert done.stderr.count(warning) == 1
    with Store(tmp_path / "home") as store:
        run = store.load(store.runs()[0].run_id)
    assert isinstance(run.problem, Problem)
    assert len(run.problem.space) == 8
    assert {trial.config for trial in run.history} <= set(run.problem.space)
    short = [trial.config for trial in run.history.failures if trial.kind is FailureKind.OUT_OF_MEMORY]
    assert len(short) <= 2  # fp32 and bf16: the first says nothing about the other
    shown = mlcd(tmp_path, "show")
    assert f"precision=bf16, micro_batch={chosen['micro_batch']}" in shown.stdout
    page = mlcd(tmp_path, "report", "--out", "page.html")
    assert page.returncode == 0, page.stderr


LEARNING_SCRIPT = """
import time

import mlcd

learns, pace = {"small": 2e-5, "large": 2e-4}[mlcd.knob("rate", "small")], mlcd.knob("pace", 0.02)
done = 0
for _ in mlcd.steps(range(100_000), batch_size=100):
    time.sleep(pace)
    done += 100
    mlcd.score(loss=1 / (learns * done + 1))
open("out.txt", "w").write(f"{mlcd.knob('rate', 'small')} {done}")
"""

LEARNING_JOB = """
name: learning
workdir: .
resources: {infra: local, instance_type: local.1}
num_nodes: 1
run: python train.py
knobs:
  rate: {values: [small, large], changes: learning}
  pace: [0.02, 0.03]
job: {samples: 1000000, batch: 100, target: {metric: loss, value: 0.2, better: lower}}
outputs: [out.txt]
goal: {minimize: time, budget: 1 USD}
search: {strategy: heterbo, trial: {minutes: 0.04, extension: 10, watchdog_minutes: 0.5, precision: 0.5}}
"""


def test_a_knob_that_changes_learning_is_chosen_by_when_its_target_is_met(tmp_path: Path) -> None:
    """Both rates are equally fast; with the large one the target takes a tenth of the samples."""
    (tmp_path / "train.py").write_text(LEARNING_SCRIPT)
    (tmp_path / "job.yaml").write_text(LEARNING_JOB)
    done = mlcd(tmp_path, "train", "job.yaml", "-o", "json")
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["choice"]["config"]["rate"] == "large"
    tried = [trial["config"]["rate"] for trial in report["trials"]]
    assert set(tried) == {"small", "large"}
    reasons = [trial["reason"] for trial in report["trials"]]
    assert sum("how well the model learns with rate=" in reason for reason in reasons) == 1
    (out,) = (tmp_path / "home" / "work").glob("*/outputs/out.txt")
    rate, samples = out.read_text().split()
    assert rate == "large"
    assert float(samples) == 20_000  # 1 / (2e-4 u + 1) is 0.2 there
    assert "the script did not ask for" not in done.stderr
