"""A few runs of benchmarks/chaos.py at fixed instants; it makes all of them."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

chaos = import_module("benchmarks.chaos")  # a script, not a module that mypy knows

pytestmark = [
    pytest.mark.waits,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc"),
]


@pytest.mark.parametrize(
    "what",
    [
        "local:full-disk",
        # test_minicloud.py kills mlcd there, and test_local.py continues a run that was killed.
        pytest.param("minicloud:kill-mlcd", marks=pytest.mark.extra),
        pytest.param("local:kill-mlcd", marks=pytest.mark.extra),
        pytest.param("local:kill-all", marks=pytest.mark.extra),
        pytest.param("local:filled-disk", marks=pytest.mark.extra),
        pytest.param("minicloud:network-deleted", marks=pytest.mark.extra),
        pytest.param("minicloud:out-of-memory", marks=pytest.mark.extra),
    ],
)
def test_a_disturbed_run_leaves_no_processes_and_loses_no_data(what: str, tmp_path: Path) -> None:
    cloud, _, blow = what.partition(":")
    if reason := chaos.possible(cloud, blow):
        pytest.skip(reason)
    row = chaos.strike(1, cloud, blow, seed=2, folder=tmp_path)
    assert row.wrong == [], row


def test_every_blow_is_in_the_plan_and_has_its_message() -> None:
    assert {what.split(":")[1] for what in chaos.PLAN} == set(chaos.BLOWS) == set(chaos.SAYS)
    assert {what.split(":")[0] for what in chaos.PLAN if what.endswith(":beside")} == {"local", "minicloud"}


def test_remaining_processes_are_found(tmp_path: Path) -> None:
    lease_id = f"mlcd-chaos-test-{tmp_path.name[-8:]}"
    assert chaos.remains(lease_id) == []
    with subprocess.Popen(["sleep", "60"], env={"MLCD_LEASE": lease_id, "PATH": "/usr/bin:/bin"}) as remaining:
        try:
            assert chaos.remains(lease_id) == [f"process {remaining.pid}"]
        finally:
            remaining.kill()
