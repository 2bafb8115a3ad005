"""What each figure of `mlcd bench serverless` counts, by hand."""

from types import SimpleNamespace

import pytest

from mlcd.bench.serverless import compare
from mlcd.bench.serverless.compare import ServerlessRow, run_one, summarise, versus
from mlcd.trial.outcome import Status
from mlcd.units import Usd


@pytest.mark.parametrize(("usd", "violated"), [("200", False), ("200.000001", True)])
def test_a_training_over_its_budget_is_violated(monkeypatch: pytest.MonkeyPatch, usd: str, violated: bool) -> None:
    run = SimpleNamespace(
        status=Status.DONE, spent=Usd.of(usd), epochs=(), failed_epochs=(), epoch_steps=(), smallest_budget=None
    )
    monkeypatch.setattr(compare, "train", lambda *_: run)
    found = run_one("paper", "mpc-first", 200.0, 0)
    assert found.violated is violated
    assert summarise([found])[0].violations == int(violated)


def trained(scheduler: str, seconds: float, *, seed: int = 0, status: str = "done") -> ServerlessRow:
    return ServerlessRow(
        workload="paper",
        scheduler=scheduler,
        budget_usd=200.0,
        seed=seed,
        status=status,
        seconds=seconds,
        usd=100.0,
        epochs=3,
        failed_epochs=0,
        functions=(1, 2),
        memory_mb=(512, 512),
        smallest_budget_usd=None,
        violated=False,
    )


def test_means_are_over_trainings_that_reached_their_target() -> None:
    rows = [trained("mpc", 100.0), trained("mpc", 1.0, seed=1, status="infeasible")]
    (found,) = summarise(rows)
    assert (found.runs, found.infeasible, found.mean_seconds) == (2, 1, 100.0)


def test_schedulers_are_compared_on_trainings_that_both_finished() -> None:
    rows = [
        *(trained("static", 100.0, seed=seed) for seed in (0, 1)),
        trained("mpc", 50.0, seed=0),
        trained("mpc", 1.0, seed=2),
        trained("mpc", 1.0, seed=1, status="infeasible"),
    ]
    by_name = {line.scheduler: line for line in versus(rows)}
    assert by_name["mpc"].against_static == -0.5
    assert by_name["static"].against_static == 0.0
    assert by_name["mpc"].against_siren is None
