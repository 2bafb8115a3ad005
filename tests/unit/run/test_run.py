"""A run, its steps and its permissions: what they say of themselves, and what they refuse to say."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.report_kind_samples import serverless_run, serving_run
from tests.report_samples import budget_run

from mlcd.run.attempt import Attempt, Ending
from mlcd.run.authorisation import Authorisation, as_config, as_fleet
from mlcd.run.run import Run
from mlcd.run.step import Outcome, Role, Step
from mlcd.space import Config
from mlcd.trial.epoch import Epoch, FailedEpoch, Fleet, Phase
from mlcd.trial.outcome import Status
from mlcd.trial.trial import Failure, FailureKind
from mlcd.units import ZERO, Usd

CONFIG = Config.deployment("p2.xlarge", 2)
FLEET = Fleet(8, 1024)
PHASE = Phase(mean_seconds=1.0, max_seconds=2.0)
FAILURE = Failure(
    config=CONFIG, attempt=1, kind=FailureKind.CAPACITY, message="none there", seconds=30.0, usd=Usd.of("0.5")
)
ATTEMPT = Attempt(config=CONFIG, seconds=600.0, usd=Usd.of(2))
EPOCH = Epoch(
    number=1, fleet=FLEET, loss=0.5, seconds=60.0, usd=Usd.of("0.2"), fetch=PHASE, compute=PHASE, update=PHASE, calls=8
)
FAILED_EPOCH = FailedEpoch(number=1, fleet=FLEET, seconds=20.0, usd=Usd.of("0.1"), message="too slow")


def step(role: Role, outcome: Outcome | None = None, *, number: int = 1, started: float = 0.0) -> Step:
    choice = FLEET if role is Role.EPOCH else CONFIG
    return Step(
        number=number,
        round=number,
        role=role,
        authorisation=Authorisation(choice=choice, attempt=1, usd=Usd.of(5), seconds=900.0),
        reason="",
        usd_per_hour=None if role is Role.EPOCH else Usd.of("1.80"),
        started_seconds=started,
        started_at=1000.0 + started,
        outcome=outcome,
    )


def empty(run: Run[Any]) -> Run[Any]:
    return replace(run, status=Status.RUNNING, steps=(), verdict=None, findings=None)


# ---- steps and permissions


def test_a_permission_is_for_nodes_or_for_functions() -> None:
    assert step(Role.TRIAL).config == CONFIG
    assert step(Role.EPOCH).fleet == FLEET
    with pytest.raises(TypeError, match="8 x 1,024 MB is not a configuration of nodes"):
        as_config(FLEET)
    with pytest.raises(TypeError, match="is not a fleet of functions"):
        as_fleet(CONFIG)


@pytest.mark.parametrize(("number", "of_round"), [(0, 1), (1, 0)])
def test_steps_and_rounds_count_from_one(number: int, of_round: int) -> None:
    with pytest.raises(ValueError, match="count from 1"):
        replace(step(Role.TRIAL), number=number, round=of_round)


@pytest.mark.parametrize(
    ("role", "outcome"),
    [
        (Role.TRIAL, ATTEMPT),
        (Role.TRIAL, EPOCH),
        (Role.TRAINING, FAILURE),
        (Role.VERIFICATION, FAILED_EPOCH),
        (Role.EPOCH, FAILURE),
        (Role.EPOCH, ATTEMPT),
    ],
)
def test_a_step_has_an_outcome_of_its_role(role: Role, outcome: Outcome) -> None:
    with pytest.raises(ValueError, match=f"a {type(outcome).__name__} is not the outcome of a {role}"):
        step(role).ended(outcome)


def test_a_step_says_what_came_of_it() -> None:
    assert step(Role.TRIAL, FAILURE).trial is FAILURE
    assert step(Role.TRAINING, ATTEMPT).final is ATTEMPT
    assert step(Role.VERIFICATION, ATTEMPT).final is ATTEMPT
    assert step(Role.EPOCH, EPOCH).epoch is EPOCH
    assert step(Role.EPOCH, FAILED_EPOCH).epoch is FAILED_EPOCH
    assert step(Role.TRIAL).price == Usd.of("1.80")


@pytest.mark.parametrize(
    ("ask", "given", "says"),
    [
        (lambda s: s.trial, step(Role.TRAINING, ATTEMPT), "not a trial that has ended"),
        (lambda s: s.trial, step(Role.TRIAL), "not a trial that has ended"),
        (lambda s: s.final, step(Role.TRIAL, FAILURE), "not a training or verification that has ended"),
        (lambda s: s.epoch, step(Role.EPOCH), "not an epoch that has ended"),
        (lambda s: s.price, step(Role.EPOCH), "has no price per hour"),
    ],
)
def test_a_step_refuses_what_it_has_not(ask: Callable[[Step], object], given: Step, says: str) -> None:
    with pytest.raises(ValueError, match=f"step 1 .*{says}|step 1 {says}"):
        ask(given)


def test_an_attempt_is_begun_again_where_it_was_not_its_own_end() -> None:
    again = {ending for ending in Ending if ending.is_begun_again}
    assert again == {Ending.LOST, Ending.INTERRUPTED, Ending.RESTARTED, Ending.MOVED, Ending.CONTINUED}
    assert [ending for ending in Ending if replace(ATTEMPT, ending=ending).is_done] == [Ending.DONE]


# ---- the run


def test_a_step_is_in_flight_until_its_outcome_is_known() -> None:
    run = empty(budget_run()).with_started([step(Role.TRIAL), step(Role.TRIAL, number=2)])
    assert [s.number for s in run.in_flight] == [1, 2]
    assert run.spent == ZERO, "what is in flight is charged when it has ended"
    later = run.with_ended(2, FAILURE)
    assert [s.number for s in later.in_flight] == [1]
    assert [s.number for s in later.trials] == [2]
    assert later.spent == later.search_usd == later.total_usd == FAILURE.usd
    assert run.in_flight != later.in_flight, "a run is not changed; each step makes a new one"


@pytest.mark.parametrize("number", [1, 3])
def test_only_what_is_in_flight_can_end(number: int) -> None:
    run = empty(budget_run()).with_started([step(Role.TRIAL, FAILURE), step(Role.TRIAL, number=2)])
    with pytest.raises(ValueError, match=f"step {number} is not in flight"):
        run.with_ended(number, FAILURE)


def test_before_the_verdict_nothing_is_decided() -> None:
    run = empty(serverless_run())
    assert run.stopped == ""
    assert run.choice is None
    assert (run.naive, run.relaxations, run.instances) == ((), (), ())
    assert run.smallest_budget is None
    assert run.first_start is None
    assert run.step_seconds == run.wall_seconds == run.search_seconds == run.total_seconds == run.reached_samples == 0.0
    assert not run.is_target_reached


def test_the_headers_facts_are_the_runs() -> None:
    run = serverless_run()
    header = run.header
    for name in ("run_id", "created", "kind", "cloud", "simulated", "strategy", "seed", "parallel", "version"):
        assert getattr(run, name) == getattr(header, name)
    assert run.catalog_date == header.catalog_date
    assert run.serving is None
    assert run.function_facts is header.functions
    with pytest.raises(ValueError, match="is not a serverless run"):
        _ = serving_run().function_facts


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda run: run.train_findings, "no findings for training on nodes"),
        (lambda run: run.serve_findings, "no findings for serving"),
        (lambda run: run.serverless_findings, "no findings for a serverless training"),
    ],
)
def test_findings_that_were_not_computed_are_not_shown(ask: Callable[[Run[Any]], object], says: str) -> None:
    for run in (budget_run(), serving_run(), serverless_run()):
        with pytest.raises(ValueError, match=says):
            ask(empty(run))


def test_attempts_that_another_one_followed_are_paid_too() -> None:
    moved = replace(ATTEMPT, ending=Ending.MOVED, reached_samples=300.0, seconds=100.0)
    run = empty(budget_run()).with_started(
        [step(Role.TRAINING, moved), step(Role.TRAINING, ATTEMPT, number=2, started=100.0)]
    )
    assert run.earlier == (moved,)
    assert run.final is ATTEMPT
    assert run.spent == Usd.of(4)
    assert run.reached_samples == 300.0
    assert run.step_seconds == run.total_seconds == 700.0


def test_epochs_that_failed_take_time_and_money() -> None:
    run = empty(serverless_run()).with_started(
        [step(Role.EPOCH, FAILED_EPOCH), step(Role.EPOCH, EPOCH, number=2, started=50.0)]
    )
    assert run.epochs == (EPOCH,)
    assert run.failed_epochs == (FAILED_EPOCH,)
    assert run.epoch_seconds == 80.0
    assert run.spent == Usd.of("0.3")


def test_on_a_real_cloud_deciding_and_downtime_count() -> None:
    steps = [step(Role.EPOCH, FAILED_EPOCH), step(Role.EPOCH, EPOCH, number=2, started=50.0)]
    real, simulated = (
        replace(empty(serverless_run()), header=replace(serverless_run().header, simulated=simulated))
        .with_started([steps[0], replace(steps[1], started_at=1500.0)])
        for simulated in (False, True)
    )  # fmt: skip
    assert real.first_start == 1000.0
    assert real.wall_seconds == 560.0, "from the first start to the last end"
    assert simulated.wall_seconds == 110.0, "what the steps took on the run's clock"
    assert empty(real).wall_seconds == 0.0


@pytest.mark.parametrize(("loss", "reached"), [(0.9, False), (None, True)])
def test_the_target_is_met_by_the_last_loss(loss: float | None, reached: bool) -> None:
    run = empty(serverless_run())
    last = replace(EPOCH, loss=run.problem.target_loss if loss is None else loss)
    assert run.with_started([step(Role.EPOCH, last)]).is_target_reached is reached
