"""The files that a job's `load:` names: a trace, lengths of prompts and answers, the rates of a day."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from mlcd.errors import BadInput
from mlcd.loadgen.chat import Exchange
from mlcd.loadgen.chat.trace import trace_rate
from mlcd.spec.serve import Lengths, ServeSpec
from mlcd.untrusted import Column, Malformed, read_table

MOST_TRACE_ROWS = 1_000_000
MOST_DRAWN = 4096
"""Lengths that a load test goes through in turn: percentiles of more differ by less than its noise."""
LEAST_HOURS, MOST_HOURS = 24, 24 * 366
MOST_TOKENS = 1_000_000
MOST_SECONDS = 366 * 86_400.0
MOST_RATE = 1e6
ARRIVAL = Column(name="arrival_seconds", least=0, most=MOST_SECONDS, is_rising=True)
INPUT = Column(name="input_tokens", least=1, most=MOST_TOKENS, is_whole=True)
OUTPUT = Column(name="output_tokens", least=1, most=MOST_TOKENS, is_whole=True)
RATE = Column(name="requests_per_second", least=0, most=MOST_RATE)
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """What is asked of a language model.

    exchanges  lengths of prompts and answers, for load tests that set their own pace
    trace      the recorded requests with their arrivals; empty: none
    """

    exchanges: tuple[Exchange, ...]
    trace: tuple[Exchange, ...] = ()


def day_rates(spec: ServeSpec) -> tuple[float, ...]:
    """The requests a second of every hour; empty without `load.profile`. Raises SpecError."""
    if not spec.load.profile:
        return ()
    field = "load.profile"
    rates = _table(spec, field, spec.load.profile, (RATE,), least=LEAST_HOURS, most=MOST_HOURS)[RATE.name]
    if not any(rates):
        raise spec.error(field, "has no hour with requests", value=spec.load.profile)
    return tuple(rates)


def requests_of(spec: ServeSpec, *, seed: int) -> Requests:
    """The requests of a job that serves a language model. Raises SpecError."""
    load = spec.load
    if load.trace:
        return _traced(spec, seed)
    given = (
        load.input_lengths or Lengths(mean=load.input_tokens),
        load.output_lengths or Lengths(mean=load.output_tokens),
    )
    same_file = given[0].file and given[0].file == given[1].file
    found = [
        _lengths(spec, name, lengths, seed=seed if same_file else seed + at)
        for at, (name, lengths) in enumerate(zip((INPUT.name, OUTPUT.name), given, strict=True))
    ]
    count = max(map(len, found))
    inputs, outputs = ((each * math.ceil(count / len(each)))[:count] for each in found)
    exchanges = tuple(
        Exchange(input_tokens=max(first, load.shared_tokens, 1), output_tokens=second)
        for first, second in zip(inputs, outputs, strict=True)
    )
    return Requests(exchanges=exchanges)


def with_requests(spec: ServeSpec, requests: Requests) -> ServeSpec:
    """The job with what its files say: mean lengths, and the rate to hold where only a trace gives it."""
    shown = requests.trace or requests.exchanges
    load = replace(
        spec.load,
        input_tokens=round(sum(each.input_tokens for each in shown) / len(shown)),
        output_tokens=round(sum(each.output_tokens for each in shown) / len(shown)),
    )
    goal = spec.goal
    if requests.trace and "goal.minimize" in spec.places and goal.rate is None:
        goal = replace(goal, rate=trace_rate(requests.trace))
    return replace(spec, load=load, goal=goal)


def _traced(spec: ServeSpec, seed: int) -> Requests:
    field, name = "load.trace", spec.load.trace
    table = _table(spec, field, name, (ARRIVAL, INPUT, OUTPUT), least=2, most=MOST_TRACE_ROWS)
    columns = (table[column.name] for column in (ARRIVAL, INPUT, OUTPUT))
    trace = tuple(
        Exchange(at_seconds=at, input_tokens=int(first), output_tokens=int(second))
        for at, first, second in zip(*columns, strict=True)
    )
    try:
        trace_rate(trace)
    except BadInput as error:
        raise spec.error(field, str(error), value=name) from error
    if spec.load.shared_tokens > min(each.input_tokens for each in trace):
        raise spec.error("load.shared_tokens", "is more than the shortest prompt of load.trace")
    drawn = _drawn(trace, seed)
    return Requests(exchanges=tuple(replace(each, at_seconds=None) for each in drawn), trace=trace)


def _lengths(spec: ServeSpec, name: str, lengths: Lengths, *, seed: int) -> list[int]:
    """Lengths in tokens, at most MOST_DRAWN of them."""
    if lengths.file:
        column = INPUT if name == INPUT.name else OUTPUT
        table = _table(spec, f"load.{name}.file", lengths.file, (column,), least=1, most=MOST_TRACE_ROWS)
        return [int(each) for each in _drawn(table[name], seed)]
    if not lengths.std:
        return [lengths.mean]
    # A log-normal with this mean and deviation: lengths are positive, and long ones are rare and very long.
    sigma = math.sqrt(math.log1p((lengths.std / lengths.mean) ** 2))
    mu = math.log(lengths.mean) - sigma * sigma / 2
    rng = random.Random(seed)  # noqa: S311
    return [min(max(round(rng.lognormvariate(mu, sigma)), 1), MOST_TOKENS) for _ in range(MOST_DRAWN)]


def _drawn(rows: Sequence[T], seed: int) -> list[T]:
    """All rows in random order, or MOST_DRAWN of them."""
    rng = random.Random(seed)  # noqa: S311
    return rng.sample(list(rows), min(len(rows), MOST_DRAWN))


def _table(
    spec: ServeSpec, field: str, name: str, columns: Sequence[Column], *, least: int, most: int
) -> dict[str, list[float]]:
    here = (Path(spec.file).parent if spec.file else Path()).absolute()
    form = "a CSV file with the columns " + ", ".join(column.name for column in columns)
    try:
        return read_table(here / spec.path(field, name), columns, least_rows=least, most_rows=most)
    except Malformed as error:
        raise spec.error(field, error.problem, value=name, allowed=form) from error
    except FileNotFoundError as error:
        raise spec.error(field, "there is no such file", value=name, allowed=form) from error
    except OSError as error:
        raise spec.error(field, f"cannot be read: {error.strerror or error}", value=name) from error
