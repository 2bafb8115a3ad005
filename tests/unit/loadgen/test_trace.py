"""Recorded traces: which stretch is played, and how fast."""

import pytest

from mlcd.errors import BadInput
from mlcd.loadgen.chat import Exchange
from mlcd.loadgen.chat.trace import busiest_stretch, trace_rate


def trace(*times: float, tokens: dict[int, int] | None = None) -> tuple[Exchange, ...]:
    return tuple(
        Exchange(at_seconds=at, input_tokens=1, output_tokens=(tokens or {}).get(i, 1)) for i, at in enumerate(times)
    )


def times(found: tuple[Exchange, ...]) -> list[float]:
    return [round(each.at_seconds or 0.0, 6) for each in found]


def test_the_mean_rate() -> None:
    assert trace_rate(trace(10, 11, 12, 13, 14)) == 1.0
    for still in (trace(3), trace(3, 3)):
        with pytest.raises(BadInput, match="same moment"):
            trace_rate(still)


def test_the_busiest_stretch_is_played_with_what_precedes_it() -> None:
    recorded = trace(0, 1, 2, 3, 3.2, 3.4, 3.6, 3.8, 4.8, 5.8, 6.8)
    rate = trace_rate(recorded)
    assert times(busiest_stretch(recorded, rate=rate, seconds=1.0)) == [0, 0.2, 0.4, 0.6, 0.8]
    assert times(busiest_stretch(recorded, rate=rate, seconds=1.0, warm_up_seconds=2.0)) == [
        *(0.0, 1.0, 2.0),
        *(2.2, 2.4, 2.6, 2.8),
    ]


def test_tokens_make_a_stretch_busy() -> None:
    recorded = trace(*range(10), tokens={7: 500})
    (found,) = busiest_stretch(recorded, rate=1.0, seconds=0.5)
    assert found.output_tokens == 500


def test_it_is_played_at_the_rate_and_repeated() -> None:
    recorded = trace(0, 1, 2, 3)
    faster = busiest_stretch(recorded, rate=10.0, seconds=2.0)
    assert len(faster) == 20
    assert times(faster)[:5] == [0.0, 0.1, 0.2, 0.3, 0.4], "the trace follows itself"
    assert len(busiest_stretch(recorded, rate=0.5, seconds=4.0)) == 2


def test_a_stretch_may_begin_before_the_end_and_go_on_at_the_beginning() -> None:
    recorded = trace(0, 0.5, 5, 9, 9.5)
    found = busiest_stretch(recorded, rate=trace_rate(recorded), seconds=3.5)
    assert len(found) == 4
