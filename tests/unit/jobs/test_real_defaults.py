"""The settings that differ between real and simulated nodes."""

from pathlib import Path

import pytest

from mlcd.jobs.train import prepare
from mlcd.spec import spec_from_mapping

REAL = {
    "name": "job",
    "resources": {"infra": "local"},
    "run": "true",
    "job": {"samples": 1000},
    "goal": {"minimize": "time"},
}
SIMULATED = {
    "name": "job",
    "resources": {"infra": "sim/aws", "instance_type": ["c5.xlarge"]},
    "job": {"samples": 1000, "model": "resnet152"},
    "goal": {"minimize": "time"},
}


@pytest.mark.parametrize(
    ("job", "search", "slowdown"),
    [
        (REAL, {}, 0.1),
        (REAL, {"slowdown": 0.3}, 0.3),
        (REAL, {"slowdown": 0}, 0.0),
        (SIMULATED, {}, 0.0),
        (SIMULATED, {"slowdown": 0.2}, 0.2),
    ],
)
def test_limits_allow_for_slower_trainings_on_real_nodes(
    job: dict[str, object], search: dict[str, object], slowdown: float, tmp_path: Path
) -> None:
    spec = spec_from_mapping({**job, "workdir": str(tmp_path), "search": search})
    assert prepare(spec, folder=tmp_path / "home").problem.slowdown == slowdown
