"""A recorded trace: requests with their times of arrival, played faster or slower, from where it is busiest."""

from collections.abc import Sequence
from dataclasses import replace

from mlcd.errors import BadInput
from mlcd.loadgen.chat.plan import Exchange


def trace_rate(trace: Sequence[Exchange]) -> float:
    """Requests a second, on average. Raises BadInput for one request, or for all at one moment."""
    seconds = _at(trace[-1]) - _at(trace[0])
    if len(trace) < 2 or seconds <= 0:
        raise BadInput("a trace needs two requests or more that do not all arrive at the same moment")
    return (len(trace) - 1) / seconds


def busiest_stretch(
    trace: Sequence[Exchange], *, rate: float, seconds: float, warm_up_seconds: float = 0.0
) -> tuple[Exchange, ...]:
    """`seconds` of the trace in which most tokens are asked for, after the `warm_up_seconds` that precede them.

    Played so fast that the whole trace has `rate` requests a second on average: its bursts keep their shape. A trace
    that is shorter is repeated. Times count from the beginning of the warm-up. Raises BadInput as `trace_rate` does.
    """
    factor = trace_rate(trace) / rate
    times = [(_at(each) - _at(trace[0])) * factor for each in trace]
    period = len(trace) / rate
    begin = _busiest(times, [each.input_tokens + each.output_tokens for each in trace], period, seconds)
    start = begin - warm_up_seconds
    found = []
    turn = int(start // period)
    while turn * period < begin + seconds:
        for at, each in zip(times, trace, strict=True):
            moment = at + turn * period - start
            if 0 <= moment < warm_up_seconds + seconds:
                found.append(replace(each, at_seconds=moment))
        turn += 1
    return tuple(found)


def _busiest(times: Sequence[float], tokens: Sequence[int], period: float, seconds: float) -> float:
    """When the stretch with the most tokens begins; the trace follows itself."""
    if seconds >= period:
        return times[0]
    best, begin = -1, times[0]
    held, end = 0, 0
    count = len(times)
    for first in range(count):
        while end < first + count and times[end % count] + (period if end >= count else 0.0) < times[first] + seconds:
            held += tokens[end % count]
            end += 1
        if held > best:
            best, begin = held, times[first]
        held -= tokens[first]
    return begin


def _at(exchange: Exchange) -> float:
    return exchange.at_seconds or 0.0
