"""Traffic that changes by the hour: replicas, their price, and what a simulated queue says of the changes."""

from dataclasses import replace

import pytest
from tests.report_kind_samples import language_model_run, serving_run

from mlcd.findings.day import day_plan, paid_seconds
from mlcd.findings.serve import chosen, serve_findings
from mlcd.goal import Goal, Objective, Slo
from mlcd.loadgen.chat.plan import ChatLimit, ChatMetric
from mlcd.run.findings import DayPlan
from mlcd.run.run import SearchRun
from mlcd.space import Config, Knob, Space
from mlcd.trial.trial import Measurement
from mlcd.units import Usd

NIGHT_AND_DAY = (*(100.0,) * 8, *(1000.0,) * 10, *(260.0,) * 6)
"""Of replicas that hold 250 requests/s."""


def profiled(run: SearchRun, rates: tuple[float, ...] = NIGHT_AND_DAY, start_seconds: float = 60.0) -> SearchRun:
    assert run.serving is not None
    steps = tuple(
        step.ended(replace(step.outcome, startup_seconds=start_seconds, seconds=100.0))
        if isinstance(step.outcome, Measurement)
        else step
        for step in run.steps
    )
    return replace(run, steps=steps, header=replace(run.header, serving=replace(run.serving, profile=rates)))


def plan(run: SearchRun) -> DayPlan:
    choice = chosen(run)
    assert choice is not None
    found = day_plan(run, choice)
    assert found is not None
    return found


def test_every_hour_has_the_replicas_that_hold_its_traffic() -> None:
    day = plan(profiled(serving_run()))
    assert day.replicas == (*(1,) * 8, *(4,) * 10, *(2,) * 6)
    assert day.fixed_replicas == 4
    assert day.start_seconds == 60.0
    hours = 8 + 40 + 12 + 3 * 60 / 3600
    assert day.usd_per_day.dollars == pytest.approx(0.036 * hours), "three replicas start a minute early"
    assert day.fixed_usd_per_day == Usd.of("3.456")
    assert serve_findings(serving_run()).day is None
    assert serve_findings(profiled(serving_run())).day == day, "the same seed, the same replay"


def test_of_a_choice_with_several_servers_each_is_a_replica() -> None:
    run = profiled(serving_run())
    choice = chosen(run)
    assert choice is not None
    config = Config.of({**choice.config.as_dict(), "nodes": 5})
    price = run.problem.usd_per_hour[run.problem.space.index[choice.config]]
    knobs = (*run.problem.space.knobs, Knob(name="nodes", values=(5,)))
    problem = replace(run.problem, space=Space(knobs, (config,)), usd_per_hour=(price * 5,))
    five = replace(
        choice,
        config=config,
        requests_per_second=5 * choice.requests_per_second,
        measured_requests_per_second=5 * choice.measured_requests_per_second,
    )
    assert day_plan(replace(run, problem=problem), five) == plan(run)


def test_two_days_are_priced_by_the_day() -> None:
    two = plan(profiled(serving_run(), NIGHT_AND_DAY * 2))
    assert two.days == 2
    assert two.usd_per_day.dollars == pytest.approx(plan(profiled(serving_run())).usd_per_day.dollars)
    assert len(two.changes) <= 48


@pytest.mark.parametrize(
    ("start_seconds", "paid"),
    [(0.0, 6.0), (360.0, 6.0 + 2 * 0.1), (3600.0, 8.0), (5400.0, 9.0), (10 * 3600.0, 12.0)],
)
def test_replicas_are_paid_from_when_they_start(start_seconds: float, paid: float) -> None:
    assert paid_seconds((1, 1, 3, 1), start_seconds) == pytest.approx(paid * 3600)


def test_an_hour_without_traffic_keeps_a_replica() -> None:
    assert min(plan(profiled(serving_run(), (0.0,) * 23 + (600.0,))).replicas) == 1


def test_replicas_that_start_early_keep_the_limits_and_those_that_follow_break_them() -> None:
    day = plan(profiled(serving_run()))
    assert [change.hour for change in day.changes] == [0, 8, 18]
    assert not day.broken
    (rise,) = day.late_broken
    assert (rise.hour, rise.rates, rise.replicas) == (8, (100.0, 1000.0), (1, 4))
    assert rise.late_broken[0].startswith("p99 "), "one replica holds 300/s of 1,000/s for two minutes"
    assert day.follow_seconds == 120.0


def test_without_limits_none_is_broken() -> None:
    run = profiled(serving_run(Goal(minimize=Objective.COST, slo=Slo(seconds=0.05))))
    free = replace(run, problem=replace(run.problem, goal=Goal(minimize=Objective.COST)))
    assert not plan(free).late_broken


def chat_run(limit: ChatLimit) -> SearchRun:
    return profiled(language_model_run(limit), (1.0,) * 12 + (6.0,) * 12)


def test_a_language_model_is_replayed_with_its_paces() -> None:
    day = plan(chat_run(ChatLimit(metric=ChatMetric.TTFT, percentile=99, seconds=2.0)))
    assert day.replicas == (1,) * 12 + (2,) * 12
    assert not day.broken
    (rise,) = day.late_broken
    assert rise.late_broken[0].startswith("ttft p99 ")


def test_what_the_simulation_says_of_traffic_that_was_verified_is_no_break() -> None:
    """Its steady state breaks this limit, which the verification has kept."""
    day = plan(chat_run(ChatLimit(metric=ChatMetric.TTFT, percentile=99, seconds=0.61)))
    assert not [change for change in day.broken if change.replicas[1] >= change.replicas[0]]


def test_a_late_replica_makes_whole_answers_late_and_not_the_time_of_a_token() -> None:
    (rise,) = plan(chat_run(ChatLimit(metric=ChatMetric.E2E, percentile=95, seconds=4.0))).late_broken
    assert rise.late_broken[0].startswith("e2e p95 ")
    day = plan(chat_run(ChatLimit(metric=ChatMetric.TPOT, percentile=99, seconds=0.021)))
    assert not day.broken
    assert not day.late_broken, "a request that waits has its tokens as quickly as any"
