"""The simulated queue: against what queueing theory says, and at changes of traffic and replicas."""

import statistics

import pytest

from mlcd.models.serving.replay import MOST_REPLICAS, Curve, Replayed, Stage, replay

ONE = Curve(in_flight=(1.0,), requests_per_second=(1.0,), most_in_flight=1)
"""One request at a time, a second each."""
SHARED = Curve(in_flight=(1.0, 8.0), requests_per_second=(1.0, 4.0), most_in_flight=8)


def stages(*given: tuple[float, float, int]) -> list[Stage]:
    return [Stage(begin_seconds=at, requests_per_second=rate, replicas=count) for at, rate, count in given]


def test_rates_between_and_beyond_what_was_measured() -> None:
    assert [SHARED.rate(n) for n in (0.5, 1, 4.5, 8, 99)] == [0.5, 1.0, 2.5, 4.0, 4.0]
    for wrong in ({"in_flight": (2.0, 1.0)}, {"requests_per_second": (1.0, 0.0)}, {"most_in_flight": 0}):
        with pytest.raises(ValueError, match=r"rise|needs a rate"):
            Curve(**{"in_flight": (1.0, 2.0), "requests_per_second": (1.0, 2.0), "most_in_flight": 2, **wrong})  # type: ignore[arg-type]


def test_a_server_of_constant_times_waits_as_pollaczek_and_khinchine_say() -> None:
    found = replay(ONE, stages((0.0, 0.5, 1)), end_seconds=40_000, seed=1)
    waits = statistics.mean(each.wait_seconds for each in found)
    assert waits == pytest.approx(0.5 / (2 * 0.5), rel=0.1), "rho / (2 (1 - rho)) of M/D/1"
    assert all(each.service_seconds == pytest.approx(1.0) for each in found)


def test_several_at_once_share_a_replica() -> None:
    (first, *_) = replay(SHARED, stages((0.0, 0.01, 1)), end_seconds=500, seed=2)
    assert first.service_seconds == pytest.approx(1.0), "alone"
    busy = replay(SHARED, stages((0.0, 3.5, 1)), end_seconds=2_000, seed=2)
    assert len(busy) == pytest.approx(7_000, rel=0.05)
    assert statistics.mean(each.service_seconds for each in busy) > 1.3
    assert max(each.in_flight for each in busy) <= 8


def test_too_few_replicas_make_a_queue_that_more_of_them_work_off() -> None:
    late = replay(ONE, stages((0, 0.5, 1), (100, 3.0, 1), (200, 3.0, 6)), end_seconds=600, seed=3)
    early = replay(ONE, stages((0, 0.5, 1), (100, 3.0, 6)), end_seconds=600, seed=3)

    def worst(found: list[Replayed], begin: float, end: float) -> float:
        return max(each.wait_seconds for each in found if begin <= each.arrived_seconds < end)

    assert worst(late, 100, 200) > 50
    assert worst(early, 100, 200) < 10
    assert worst(late, 400, 600) < 10


def test_replicas_that_go_finish_what_they_have() -> None:
    found = replay(ONE, stages((0, 4.0, 8), (50, 0.0, 0)), end_seconds=60, seed=4)
    assert all(each.service_seconds == pytest.approx(1.0) for each in found)
    assert len(found) == pytest.approx(200, abs=60)


def test_many_replicas_are_simulated_as_few_with_the_same_traffic_each() -> None:
    found = replay(SHARED, stages((0, 6_000, 2_000), (10, 9_000, 3_000)), end_seconds=20, seed=5)
    assert len(found) < 3.5 * MOST_REPLICAS * 20
    few = replay(SHARED, stages((0, 3.0 * 32, 32)), end_seconds=20, seed=5)
    assert statistics.mean(r.wait_seconds for r in found) == pytest.approx(
        statistics.mean(r.wait_seconds for r in few), abs=0.05
    )
