"""The answer of a run of each kind at a glance, and where it stands."""

from dataclasses import replace
from typing import Any

import pytest
from tests.report_kind_samples import (
    infeasible_serverless_run,
    language_model_run,
    nothing_serves_run,
    serverless_run,
    serving_run,
)
from tests.report_samples import SAMPLES, budget_run

from mlcd.findings import shown
from mlcd.loadgen.chat import ChatLimit, ChatMetric
from mlcd.report.wording import assurance_text
from mlcd.run.run import Run
from mlcd.trial.outcome import Status
from mlcd.units import format_seconds
from mlcd.web.answer import Tile, tiles
from mlcd.web.records import run_now


def answered(run: Run[Any]) -> tuple[Tile, ...]:
    found = shown(run)
    return tiles(found, run_now(found, rows=1, live=False), "fastest for at most $10")


def test_training_says_what_was_chosen_why_and_what_it_took() -> None:
    run = budget_run()
    chosen, time, cost, trials = answered(run)
    assert run.choice is not None
    assert (chosen.what, chosen.value) == ("Chosen", str(run.choice.config))
    assert chosen.small == "Fastest for at most $10."
    assert trials.value == str(len(run.trials))
    paid = shown(run).train_findings.receipt
    assert not paid.run_is_predicted
    assert (time.what, time.value) == ("Time, search and training", format_seconds(paid.total_seconds))
    assert (cost.what, cost.value) == ("Cost, search and training", str(paid.total_usd))
    most = f"at most {run.choice.worst_usd}"
    assert cost.small == f"training {paid.run_usd} ({run.choice.usd} expected, {most}), search {paid.search_usd}"


def test_training_that_has_not_ended_shows_what_is_expected() -> None:
    run = budget_run()
    assert run.choice is not None
    going = replace(run, steps=run.trials, findings=None, status=Status.RUNNING)
    _, time, cost, _ = answered(going)
    assert (cost.what, cost.value) == ("Training cost, expected", str(run.choice.usd))
    assert time.what == "Training time, expected"
    sure = assurance_text(run.problem.assurance)
    assert time.small == f"at most {format_seconds(run.choice.worst_seconds)} ({sure} sure)"


def test_training_that_has_just_begun_has_nothing_yet() -> None:
    run = replace(budget_run(), steps=(), verdict=None, findings=None, status=Status.RUNNING)
    assert [tile.value for tile in answered(run)] == ["nothing yet", "-", "-", "0"]
    unfit = answered(SAMPLES["infeasible"]())[0]
    assert unfit.value == "nothing fits"
    assert "The search ended: " in unfit.small, "where nothing was chosen, that is the answer"


def test_server_shows_rate_price_and_latency() -> None:
    chosen, rate, price, tests = answered(serving_run())
    found = shown(serving_run()).serve_findings.choice
    assert found is not None
    assert chosen.value == str(found.config)
    assert float(rate.value) == pytest.approx(found.requests_per_second, rel=0.01)
    assert "p99 " in rate.small
    assert price.value == str(found.usd_per_million)
    paid = shown(serving_run()).serve_findings.receipt
    assert price.small == f"search and verification cost {paid.total_usd}"
    assert answered(replace(serving_run(), status=Status.RUNNING))[2].small == "", "not known yet"
    assert (tests.what, tests.value) == ("Load tests", str(len(serving_run().trials)))
    assert answered(nothing_serves_run())[1].value == "-"


def test_language_model_shows_first_token_and_tokens_a_second() -> None:
    found = answered(language_model_run(ChatLimit(metric=ChatMetric.TTFT, percentile=99, seconds=1.0)))
    assert "first token within " in found[1].small
    assert "tokens/s" in found[1].small
    assert "p99 " in found[2].small
    assert "; search and verification cost $" in found[2].small


def test_functions_show_the_loss_and_its_target() -> None:
    run = serverless_run()
    loss, time, cost, epochs = answered(run)
    assert loss.what == f"Loss, of a target of {run.problem.target_loss:.4g}"
    assert float(loss.value) <= run.problem.target_loss
    assert "Trained to the target." in loss.small
    assert cost.value == str(run.spent)
    assert (epochs.what, int(epochs.value)) == ("Epochs", len(run.epoch_steps))
    assert epochs.small == "2 of 4 on 100 x 1,769 MB"
    assert time.what == "Time"
    assert answered(infeasible_serverless_run())[0].value == "-"
