"""The whole product under a limit of 1 GB: `scripts/attack memory` has more and larger cases."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from attacks.attack import MEMORY_MIB, limited_memory

CODE = """
import sys
from mlcd.cli.main import run
from mlcd.store.store import Store, home
code = run(sys.argv[1:])
assert code in (0, 3, 4, 5, 6), code
if "--dry-run" not in sys.argv:
    with Store(home()) as store:
        name = store.runs()[0].run_id
    for call in (["show", name], ["show", name, "-o", "json"], ["report", name, "--out", "page.html"], ["runs"]):
        assert run(call) == 0, call
"""
TRAIN = """\
name: t
resources: {{infra: sim/aws, instance_type: [{types}]}}
num_nodes: {nodes}
job: {{model: resnet152, batch: 4096, samples: {samples}}}
goal: {{minimize: time}}
search: {{max_trials: 3, strategy: {strategy}}}
"""
SERVERLESS = """\
name: f
resources: {{infra: sim/lambda}}
workload: {{model: logistic, target_loss: 1e-300, max_epochs: {epochs}}}
functions: {functions}
memory: [1769, 3008]
goal: {{minimize: time, budget: 1000000000}}
search: {{strategy: {strategy}}}
"""


def within_limit(folder: Path, command: str, job: str, *more: str) -> None:
    (folder / "job.yaml").write_text(job)
    done = subprocess.run(
        [sys.executable, "-c", CODE, command, "job.yaml", *more],
        cwd=folder,
        env={**os.environ, "MLCD_HOME": str(folder / "home"), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limited_memory(MEMORY_MIB),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "--dry-run" in more or (folder / "page.html").stat().st_size < 8 * 2**20


def test_a_job_of_1e18_samples_is_run_and_reported_within_1_gb(tmp_path: Path) -> None:
    within_limit(
        tmp_path, "train", TRAIN.format(types="c5.xlarge, p2.xlarge", nodes="1..9", samples=1e18, strategy="random")
    )


def test_a_large_number_of_fleets_is_scheduled_within_1_gb(tmp_path: Path) -> None:
    within_limit(tmp_path, "serverless", SERVERLESS.format(epochs=1, functions="1..100000", strategy="mpc"))


@pytest.mark.extra
@pytest.mark.parametrize("strategy", ["auto", "heterbo"])
def test_the_largest_space_is_searched_within_1_gb(tmp_path: Path, strategy: str) -> None:
    job = TRAIN.format(types="aws-62", nodes="1..1600", samples=50000, strategy=strategy)
    within_limit(tmp_path, "train", job, "--dry-run")
    within_limit(tmp_path, "train", job)


@pytest.mark.extra
def test_a_training_of_a_thousand_epochs_is_reported_within_1_gb(tmp_path: Path) -> None:
    within_limit(tmp_path, "serverless", SERVERLESS.format(epochs=1000, functions="[4]", strategy="static"))
