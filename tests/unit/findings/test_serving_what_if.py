"""Which server would be chosen at another rate or under other limits, from what the load tests measured."""

from dataclasses import replace
from typing import Any

import pytest
from tests.report_kind_samples import fallen_run, language_model_run, serverless_run, serving_run
from tests.report_samples import with_attempts

from mlcd.api import ServeResult
from mlcd.errors import BadInput
from mlcd.findings import shown
from mlcd.findings.serving_what_if import ServingWhatIf, limits_of, serving_what_if
from mlcd.findings.what_if import what_if
from mlcd.loadgen.chat import ChatLimit, ChatMetric
from mlcd.run.attempt import Ending
from mlcd.run.run import SearchRun

P99 = 0.05
FIRST_TOKEN = ChatLimit(metric=ChatMetric.TTFT, percentile=99, seconds=1.0)


def asked(run: SearchRun, rate: float | None = None, **limits: float) -> ServingWhatIf:
    return serving_what_if(shown(run), rate=rate, limits=limits)


def batches(found: ServingWhatIf) -> list[int]:
    """The batch of every option that does, best first."""
    return [int(dict(each.config.values)["batch"]) for each in found.options if each.fits]


def test_same_limits_give_the_same_choice_and_price() -> None:
    run = shown(serving_run())
    found = asked(run, p99=P99)
    choice = run.serve_findings.choice
    assert choice is not None
    assert found.choice is not None
    assert found.choice.config == choice.config
    assert found.choice.usd_per_million == choice.usd_per_million, "at the promised rate, not at the measured one"
    assert "the same choice" in found.text


def test_looser_limit_lets_more_do_and_a_tighter_one_fewer() -> None:
    assert batches(asked(serving_run(), p99=P99)) == [4, 1]
    assert batches(asked(serving_run(), p99=0.2)) == [4, 16, 1]
    assert batches(asked(serving_run())) == [4, 16, 1], "without a limit"
    tight = asked(serving_run(), p99=0.01)
    assert (batches(tight), tight.choice) == ([], None)
    assert "over the limit" in tight.options[0].text


def test_rate_that_is_held_by_less_costs_less() -> None:
    for rate, able in ((90, {1, 4}), (200, {4}), (301, set[int]())):
        found = asked(serving_run(), rate=rate, p99=P99)
        assert set(batches(found)) == able
        for each in found.options:
            assert each.fits == (
                each.requests_per_second >= rate and each.seconds[0] is not None and each.seconds[0] <= P99
            )
    short = next(each for each in asked(serving_run(), rate=200, p99=P99).options if not each.fits)
    assert short.text in ("held 100 of 200 requests/s", "p99 200 ms, over the limit of 50 ms, at 280/s")


def test_what_failed_its_verification_is_not_chosen() -> None:
    found = asked(fallen_run(), rate=50, p99=P99)
    assert 1 not in batches(found)
    assert any(each.text.startswith("failed its verification: ") for each in found.options)


def test_choice_that_was_verified_at_a_lower_rate_than_it_failed_at_is_chosen_at_that_rate() -> None:
    run = serving_run()
    held = run.attempts[-1]
    fell = replace(held, ending=Ending.MOVED, samples_per_second=270.0, message="p99 was 200 ms")
    again = with_attempts(run, fell, held)
    same = asked(again, p99=P99)
    assert same.choice is not None
    assert same.choice.config == held.config
    assert same.choice.requests_per_second == held.samples_per_second == 250.0
    assert batches(asked(again, rate=250, p99=P99)) == [4]
    more = asked(again, rate=260, p99=P99)
    assert more.choice is None, "what was measured in seconds was not held for a minute"
    assert "held 250 of 260 requests/s" in [each.text for each in more.options]


def test_verification_shows_what_holds_under_a_tighter_limit() -> None:
    tight = asked(serving_run(), p99=0.03)
    assert tight.choice is not None
    assert (tight.choice.requests_per_second, tight.choice.seconds) == (250.0, (0.03,))


def test_slower_pace_of_a_language_model_keeps_a_tighter_limit() -> None:
    run = language_model_run(FIRST_TOKEN)
    rates = []
    for seconds in (1.0, 0.3):
        choice = asked(run, ttft_p99=seconds).choice
        assert choice is not None
        assert choice.seconds[0] is not None
        assert choice.seconds[0] <= seconds
        rates.append(choice.requests_per_second)
    assert rates == [3.0, pytest.approx(0.99 * 3 / 4)], "as verified; then one at a time, one of 100 late"
    assert asked(run, ttft_p99=0.1).choice is None
    assert tuple(limits_of(run.problem.goal)) == ("ttft_p99",)


def test_without_a_choice_it_says_what_would_be_chosen() -> None:
    run = shown(serving_run())
    assert run.findings is not None
    none = replace(run, findings=replace(run.findings, serve=replace(run.serve_findings, choice=None)))
    assert "it would be chosen" in serving_what_if(none, rate=None, limits={}).text
    other = asked(run, rate=90, p99=P99)
    assert " instead of batch=4" in other.text


def test_what_no_server_can_have_is_refused() -> None:
    with pytest.raises(BadInput, match="no limit 'p50'; it has: p99"):
        asked(serving_run(), p50=1.0)
    with pytest.raises(BadInput, match="more than 0 s"):
        asked(serving_run(), p99=0.0)
    with pytest.raises(BadInput, match="rate"):
        asked(serving_run(), rate=0.0)
    with pytest.raises(BadInput, match="servers"):
        serving_what_if(serverless_run(), rate=None, limits={})  # type: ignore[arg-type]


def test_result_answers_as_the_page_does() -> None:
    with pytest.raises(BadInput, match=r"ServeResult\.what_if"):
        what_if(serving_run())
    result = ServeResult(shown(serving_run()))
    assert result.what_if() == asked(serving_run(), p99=P99), "the job's own limits"
    assert result.what_if(rate=200, limits={"p99": 0.3}) == asked(serving_run(), rate=200, p99=0.3)
    wrong: list[dict[str, Any]] = [{"rate": "many"}, {"rate": True}, {"limits": 0.05}, {"limits": {"p99": "50ms"}}]
    for given in wrong:
        with pytest.raises(BadInput, match=next(iter(given))):
            result.what_if(**given)
