"""Spot nodes of the minicloud that are really killed: the training continues, and is paid for once."""

from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

from mlcd.clouds.minicloud.facilities import missing

pytest.importorskip("torch", reason="PyTorch is not installed: scripts/setup-venv test")
pytestmark = [pytest.mark.nodes, pytest.mark.slow]
minicloud_spot = import_module("benchmarks.minicloud_spot")  # a script, not a module that mypy knows


class OnceAfter:
    """Chance that was decided: the first lease of spot nodes that lasts so long is killed, no other."""

    def __init__(self, interrupter: Any, seconds: float) -> None:
        self._interrupter, self._seconds = interrupter, seconds

    def expovariate(self, rate: float) -> float:
        assert rate > 0
        return 1e9 if self._interrupter.killed else self._seconds

    def randrange(self, count: int) -> int:
        return count - 1


@pytest.mark.skipif(bool(missing()), reason="; ".join(missing()))
def test_a_training_whose_spot_node_is_killed_goes_on_and_is_paid_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = minicloud_spot.Interrupter

    def killed_once(rate: float, seed: str) -> object:
        found = made(rate, seed)
        found.random = OnceAfter(found, 9.0)  # longer than a trial
        return found

    monkeypatch.setattr(minicloud_spot, "Interrupter", killed_once)
    monkeypatch.setattr(minicloud_spot, "EPOCHS", 60)  # half a minute
    job = minicloud_spot.job

    def two_trials(arm: str, rate: float) -> object:
        spec = job(arm, rate)
        return replace(spec, search=replace(spec.search, max_trials=2))

    monkeypatch.setattr(minicloud_spot, "job", two_trials)
    row = minicloud_spot.one("any", 1, 2.0)  # so rare that the job chooses spot nodes, however busy the machine is
    assert row["status"] == "done", row
    assert row["killed"] == row["interruptions"] == 1, row
    assert [ending for _, ending, _, _ in row["attempts"]][-2:] in (["restarted", "done"], ["done"])  # or of a trial
    assert row["outputs"] == ["metrics.json", "model.pt"]
    assert row["in_flight"] == 0
    assert row["total_usd"] == pytest.approx(row["steps_usd"])
    assert not row["overspent"]
