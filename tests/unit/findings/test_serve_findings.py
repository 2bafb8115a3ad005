"""What a served model's findings say: the recommendation, why the others lost, and functions beside an instance."""

from dataclasses import replace

import pytest
from tests.report_kind_samples import fallen_run, language_model_run, serverless_run, serving_run
from tests.report_samples import with_attempts, with_choice

from mlcd.findings.serve import chosen, nearest_miss, rejected
from mlcd.findings.serverless import serverless_findings
from mlcd.goal import Goal, Objective, Slo
from mlcd.loadgen.chat.plan import ChatLimit, ChatMetric
from mlcd.run.findings import RejectedConfig, RejectionReason
from mlcd.run.run import SearchRun
from mlcd.trial.outcome import Status
from mlcd.trial.trial import Measurement
from mlcd.units import Usd

NO_BETTER = "no better than the choice, within the noise between two load tests"
COST = Goal(minimize=Objective.COST, slo=Slo(seconds=0.05))


def with_load_test(run: SearchRun, at: int, **changed: object) -> SearchRun:
    """The run with another outcome of the load test at this place."""
    steps = list(run.steps)
    trial = steps[at].trial
    assert isinstance(trial, Measurement)
    steps[at] = steps[at].ended(replace(trial, **changed))  # type: ignore[arg-type]
    return replace(run, steps=tuple(steps))


def of_batch(run: SearchRun, batch: int) -> RejectedConfig:
    (entry,) = [entry for entry in rejected(run) if entry.config is not None and entry.config["batch"] == batch]
    return entry


def unverified(run: SearchRun, verify_seconds: float) -> SearchRun:
    assert run.serving is not None
    serving = replace(run.serving, verify_seconds=verify_seconds)
    return replace(with_attempts(run), header=replace(run.header, serving=serving))


def test_a_recommendation_has_the_rate_that_its_verification_held() -> None:
    found = chosen(serving_run())
    assert found is not None
    assert (found.requests_per_second, found.measured_requests_per_second) == (250.0, 300.0)
    assert found.usd_per_million == Usd.of("0.04"), "a million requests at 250/s take 4,000 s at $0.036 an hour"
    assert found.verified_seconds == 60.0


def test_where_no_verification_is_wanted_the_load_test_is_the_recommendation() -> None:
    found = chosen(unverified(serving_run(), 0.0))
    assert found is not None
    assert found.requests_per_second == found.measured_requests_per_second == 300.0
    assert found.verified_seconds is None


def test_a_choice_that_was_to_be_verified_and_was_not_is_no_recommendation() -> None:
    run = unverified(serving_run(), 60.0)
    assert chosen(run) is None
    assert of_batch(run, 4).reason is RejectionReason.NOT_VERIFIED
    assert of_batch(run, 4).text == "not verified: the limits left no room for it"
    running = chosen(replace(run, status=Status.RUNNING))
    assert running is not None, "while it runs it is what will be verified"
    assert running.verified_seconds is None


def test_a_choice_without_a_load_test_is_no_recommendation() -> None:
    run = unverified(serving_run(), 0.0)
    assert chosen(replace(run, steps=())) is None
    assert chosen(with_choice(run, None)) is None


def test_prices_of_the_others_are_at_the_share_that_is_promised_of_the_choice() -> None:
    """The choice is promised at 250 of 300 requests/s; at its measured rate another one looked cheaper than it is."""
    run = serving_run()
    entry = of_batch(run, 1)
    assert entry.samples_per_second == 100.0
    assert entry.usd_per_million == Usd.of("0.12"), "a million requests at 100 x 250/300 take 12,000 s"
    choice = chosen(run)
    assert choice is not None
    assert entry.text == "3.0 times the cost"
    assert entry.usd_per_million.dollars / choice.usd_per_million.dollars == pytest.approx(3.0)


def test_with_an_asked_rate_all_prices_are_at_that_rate() -> None:
    assert of_batch(serving_run(replace(COST, rate=80.0)), 1).usd_per_million == Usd.of("0.125")


def test_a_latency_of_seconds_over_the_limit_is_in_seconds() -> None:
    run = serving_run()
    load = run.trials[0].trial.load if isinstance(run.trials[0].trial, Measurement) else None
    assert load is not None
    late = with_load_test(run, 0, load=replace(load, p99_seconds=1.24))
    assert of_batch(late, 1).text == "p99 1.24 s, over the limit of 50 ms, at 100/s"


def test_a_rate_beyond_the_one_asked_for_is_worth_nothing() -> None:
    found = chosen(serving_run(replace(COST, rate=100.0)))
    assert found is not None
    assert found.usd_per_million == Usd.of("0.1"), "10,000 s at $0.036 an hour"


@pytest.mark.parametrize(
    ("minimize", "rate", "reason", "text"),
    [
        (Objective.COST, 100.0, RejectionReason.DEARER, "3.0 times the cost"),
        (Objective.COST, 200.0, RejectionReason.DEARER, "50% more expensive"),
        (Objective.TIME, 200.0, RejectionReason.SLOWER, "33% fewer requests per second"),
        (
            Objective.COST,
            400.0,
            RejectionReason.TIED,
            "no better than the choice, within the noise between two load tests",
        ),
    ],
)
def test_why_one_that_meets_the_goal_lost(minimize: Objective, rate: float, reason: RejectionReason, text: str) -> None:
    run = with_load_test(serving_run(Goal(minimize=minimize, slo=Slo(seconds=0.05))), 0, samples_per_second=rate)
    assert (of_batch(run, 1).reason, of_batch(run, 1).text) == (reason, text)


def test_one_that_breaks_the_limit_says_by_how_much() -> None:
    entry = of_batch(serving_run(), 16)
    assert (entry.reason, entry.text) == (RejectionReason.BREAKS_SLO, "p99 200 ms, over the limit of 50 ms, at 280/s")
    median = of_batch(serving_run(replace(COST, slo=Slo(seconds=0.03, percentile=50))), 16)
    assert median.text == "p50 50 ms, over the limit of 30 ms, at 280/s"


def test_requests_that_failed_break_the_limit() -> None:
    run = serving_run()
    load = run.trials[0].trial.load if isinstance(run.trials[0].trial, Measurement) else None
    assert load is not None
    entry = of_batch(with_load_test(run, 0, load=replace(load, errors=7)), 1)
    assert (entry.reason, entry.text) == (RejectionReason.BREAKS_SLO, "7 of 1,000 requests failed")


def test_a_language_model_that_breaks_a_limit_says_which_and_by_how_much() -> None:
    limit = ChatLimit(metric=ChatMetric.TTFT, percentile=99, seconds=0.7)
    run = language_model_run(limit)
    assert chosen(run) is not None
    load = run.trials[1].trial.load if isinstance(run.trials[1].trial, Measurement) else None
    assert load is not None
    assert load.tokens is not None
    slow = replace(load, tokens=replace(load.tokens, ttft=(0.5, 0.7, 0.75)))
    entry = of_batch(with_load_test(run, 0, load=slow), 1)
    text = "ttft p99 750 ms, over the limit of 700 ms, with 8 in flight"
    assert (entry.reason, entry.text) == (RejectionReason.BREAKS_SLO, text)
    failed = of_batch(with_load_test(run, 0, load=replace(slow, errors=3)), 1)
    assert failed.text == "3 of 100 requests failed"
    assert of_batch(run, 1).text == "its answers were not measured"
    slower = replace(load, tokens=replace(load.tokens, ttft=(0.5, 0.7, 0.9)))
    missed = nearest_miss(with_load_test(with_load_test(run, 0, load=slower), 2, load=slow))
    assert missed is not None
    assert missed.config is not None
    assert missed.config["batch"] == 16, "7% over the limit, the other is 29% over it"


def test_one_that_holds_too_few_requests_says_how_many() -> None:
    run = serving_run(replace(COST, rate=200.0))
    entry = of_batch(run, 1)
    assert (entry.reason, entry.text) == (RejectionReason.BELOW_RATE, "held 100 of 200 requests/s")


def test_a_failure_without_words_is_its_kind() -> None:
    run = serving_run()
    steps = list(run.steps)
    (failure,) = run.history.failures
    steps[3] = steps[3].ended(replace(failure, message=""))
    assert of_batch(run, 32).text == "out-of-memory: the server was killed"
    assert of_batch(replace(run, steps=tuple(steps)), 32).text == "out-of-memory"


def test_the_nearest_miss_is_the_one_that_comes_nearest_as_a_factor() -> None:
    far = nearest_miss(serving_run(replace(COST, rate=290.0)))
    assert far is not None
    assert far.config is not None
    assert far.config["batch"] == 1, "a third of the rate is nearer than four times the latency"
    assert nearest_miss(serving_run(Goal(minimize=Objective.COST))) is None
    fell = nearest_miss(fallen_run())
    assert fell is not None
    assert (fell.reason, fell.text) == (RejectionReason.NOT_VERIFIED, "in its verification: p99 was 200 ms")


@pytest.mark.parametrize(
    ("minimize", "seconds", "usd", "better"),
    [
        (Objective.TIME, 1.0, "0.01", True),
        (Objective.TIME, 9000.0, "0.01", False),
        (Objective.TIME, 1.0, "90", False),
        (Objective.COST, 1.0, "0.01", True),
        (Objective.COST, 9000.0, "0.01", False),
        (Objective.COST, 1.0, "90", False),
    ],
)
def test_an_instance_is_better_that_is_worse_in_nothing(
    minimize: Objective, seconds: float, usd: str, better: bool
) -> None:
    run = serverless_run()
    assert run.verdict is not None
    instance = replace(run.instances[0], seconds=seconds, usd=Usd.of(usd))
    goal = replace(run.problem.goal, minimize=minimize)
    asked = replace(run, problem=replace(run.problem, goal=goal), verdict=replace(run.verdict, instances=(instance,)))
    assert serverless_findings(asked).better_instance == (instance if better else None)
    short = replace(asked, problem=replace(asked.problem, target_loss=0.01))
    assert serverless_findings(short).better_instance is None, "what does not reach the target is not compared"
