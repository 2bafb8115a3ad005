"""A job that needs much memory, on the set of 62 types: the search learns from what did not fit."""

from pathlib import Path

import pytest

import mlcd
from mlcd.search.registry import STRATEGIES
from mlcd.store.store import Store
from mlcd.trial.trial import Failure, FailureKind

JOB = """
name: bert
resources: {{infra: sim/aws, instance_type: aws-62}}
job: {{model: bert-large, batch: {batch}, samples: 1e6}}
goal: {{minimize: {goal}}}
search: {{max_trials: 6, strategy: "{strategy}"}}
"""


@pytest.mark.parametrize("goal", ["cost", "time"])
@pytest.mark.parametrize("batch", [256, 512, 2048])
@pytest.mark.parametrize("strategy", [name for name in ("heterbo", "auto") if name in STRATEGIES])
def test_a_deployment_that_fits_is_measured_within_six_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str, batch: int, goal: str
) -> None:
    monkeypatch.setenv("MLCD_HOME", str(tmp_path))
    result = mlcd.train(JOB.format(batch=batch, goal=goal, strategy=strategy))
    with Store(tmp_path) as store:
        history = store.load(result.run_id).history
    assert history.measured
    assert all(
        trial.kind is FailureKind.OUT_OF_MEMORY and not trial.config.instance.startswith("t3.")
        for trial in history
        if isinstance(trial, Failure)
    )
