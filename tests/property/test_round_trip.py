"""Every stored type round-trips through JSON and through the store, with all its fields.

Types are found by walking from what the store takes, values are made from the types: a new field, or a new type in a
field, is covered by itself. Only what `__post_init__` demands is told here (RANGES and FITTED).
"""

import json
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from datetime import date
from decimal import Decimal
from enum import Enum
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlcd import codec
from mlcd.catalog.functions import FunctionPrices
from mlcd.functions import FunctionProblem
from mlcd.goal import Goal, Objective, Slo
from mlcd.interruptions import Interruptions
from mlcd.known.gpus import GpuSheet, Machine
from mlcd.known.language_models import LanguageModel
from mlcd.loadgen.chat.plan import ChatLimit
from mlcd.problem import Batching, DataMove, LearnedWork, Problem, TrialPolicy
from mlcd.run.attempt import Attempt
from mlcd.run.authorisation import Authorisation, Choice
from mlcd.run.findings import Findings
from mlcd.run.header import Header
from mlcd.run.kind import Kind
from mlcd.run.run import AnyRun, Run
from mlcd.run.step import Outcome, Role, Step
from mlcd.run.verdict import Verdict
from mlcd.space import Config, Knob, Space, Value, Workers
from mlcd.space.space import MEMORY
from mlcd.store.store import Store
from mlcd.transformer import Transformer
from mlcd.trial.call import FunctionCall
from mlcd.trial.epoch import LEAST_SHARE, Epoch, FailedEpoch, Fleet, Phase
from mlcd.trial.node_metrics import MOST_BYTES, MOST_GPU_GIB, MOST_SOURCE_CHARACTERS, NodeMetrics
from mlcd.trial.trial import Failure, Load, Measurement
from mlcd.trial.watched import Watch
from mlcd.units import Usd

Values = dict[str, Any]
Draw = Callable[[Any], Any]

BEYOND = 2**62
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
counts = st.integers(1, 10**6)
amounts = st.integers(0, 10**6)
positive = st.floats(1e-6, 1e9)
not_negative = st.floats(0, 1e9)
shares = st.floats(0, 1)
money = st.builds(Usd, st.integers(0, 10**15))
prices = st.decimals(Decimal("1e-12"), Decimal(10))
knob_values = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | counts | positive

RANGES: Mapping[type, Mapping[str, st.SearchStrategy[Any]]] = {
    Authorisation: {"seconds": not_negative | st.just(math.inf)},
    Batching: {
        "reference": counts,
        "decay": st.none() | shares,
        "noise_scale": st.none() | not_negative | st.just(math.inf),
    },
    DataMove: dict.fromkeys(("usd", "trial_usd"), money) | dict.fromkeys(("seconds", "trial_seconds"), not_negative),
    Epoch: {"number": counts, "loss": st.floats(-1e9, 1e9), "seconds": not_negative, "usd": money, "failed": amounts},
    Failure: {"attempt": counts, "seconds": not_negative, "usd": money},
    Fleet: {"functions": counts, "memory_mb": counts, "share": st.floats(LEAST_SHARE, 1)},
    FunctionPrices: {
        **dict.fromkeys(("usd_per_gb_second", "usd_per_request", "granule_seconds"), prices),
        **dict.fromkeys(("usd_per_put", "usd_per_get"), prices),
        "limit_seconds": positive | st.just(math.inf),
        "concurrency": counts,
        "tier_usd_per_second": st.none() | st.dictionaries(counts, prices, min_size=1, max_size=3),
    },
    NodeMetrics: {
        "source": texts.filter(bool).map(lambda text: text[:MOST_SOURCE_CHARACTERS]),
        "nodes": counts,
        "cpu_percent": st.floats(0, 100),  # one of the three must be there
        **dict.fromkeys(("received_bytes", "sent_bytes"), st.none() | st.floats(0, MOST_BYTES)),
        "gpu_percent": st.none() | st.floats(0, 100),
        "gpu_memory_gib": st.none() | st.floats(0, MOST_GPU_GIB),
    },
    FunctionProblem: {
        "samples": st.integers(1000, 10**6),
        "batch": counts,
        "max_epochs": counts,
        "model_bytes": amounts,
        "puts_per_function": amounts,
        "gets_per_function": amounts,
        "target_loss": st.floats(-1e9, 1e9),
        "repeat_share": shares,
        "longest_epoch_seconds": positive,
    },
    GpuSheet: dict.fromkeys(("tflops", "gb_per_second", "memory_gib", "link_gb_per_second"), positive),
    Goal: {
        "deadline_seconds": st.none() | positive | st.just(math.inf),
        "budget": st.none() | st.builds(Usd, counts),
        "rate": st.none() | positive,
    },
    Machine: {"count": counts},
    Measurement: {
        "attempt": counts,
        "samples_per_second": positive,
        "relative_error": st.floats(0, 100),
        "iterations": counts,
        "seconds": not_negative,
        "usd": money,
        "noise_scale": st.none() | not_negative | st.just(math.inf),
    },
    Problem: {
        "work_samples": positive,
        "assurance": st.floats(0.5, 0.9999999),
        "max_trials": counts,
        "noise": st.floats(0, 0.999),
        "slowdown": st.floats(0, 10),
        "work_error": not_negative,
        "parameters": st.none() | positive,
        "restart_seconds": not_negative,
        "stop_seconds": not_negative,
    },
    Interruptions: {
        "per_node_hour": st.dictionaries(texts, not_negative, max_size=3),
        **dict.fromkeys(("shape", "save_seconds"), positive),
        "seen": amounts,
        "expected": not_negative,
    },
    LearnedWork: {"samples": positive, "error": not_negative},
    LanguageModel: {
        **dict.fromkeys(("layers", "hidden", "kv_heads", "head_dim"), st.integers(1, 10_000)),
        "parameters": st.floats(1.0, 1e13),
        "encoder_layers": st.integers(0, 1000),
        "bytes_per_weight": st.floats(0.1, 8.0),
    },
    ChatLimit: {"seconds": positive, "percentile": st.sampled_from([50, 95, 99])},
    Slo: {"seconds": positive, "percentile": st.sampled_from([50, 95, 99])},
    Step: {"number": counts, "round": counts},
    TrialPolicy: {
        **dict.fromkeys(("extra_seconds_per_3_nodes", "extension", "watchdog_seconds"), not_negative),
        "start_seconds": st.none() | not_negative,
        "seconds": positive,
        "precision": st.floats(0.01, 0.99),
        "known_precision": st.floats(0.01, 0.99),
        "least_share": st.floats(0.01, 2.0),
        "retries": amounts,
    },
    Transformer: {
        "parameters": st.floats(1, 1e15),
        **dict.fromkeys(("layers", "hidden", "heads", "sequence"), counts),
    },
    Watch: {"seconds": positive, "usd": money, "chance": shares},
    Workers: {"count": counts, "memory_gib": positive, "tflops": not_negative, "network_gbps": not_negative},
}
"""Fields that may not have every value of their type."""


# ---- fields that must fit each other


def _load(draw: Draw, values: Values) -> None:
    names = ("p50_seconds", "p95_seconds", "p99_seconds")
    values.update(zip(names, sorted(draw(st.tuples(positive, positive, positive))), strict=True))
    values["requests"] = draw(counts)
    values["errors"] = draw(st.integers(0, values["requests"]))


def _measurement(draw: Draw, values: Values) -> None:
    values["startup_seconds"] = values["seconds"] * draw(shares)


def _phase(draw: Draw, values: Values) -> None:
    values["max_seconds"] = draw(not_negative)
    values["mean_seconds"] = values["max_seconds"] * draw(shares)


def _epoch(draw: Draw, values: Values) -> None:
    values["calls"] = values["failed"] + draw(amounts)


def _step(draw: Draw, values: Values) -> None:
    outcomes: Mapping[Role, Any] = {Role.TRIAL: Measurement | Failure, Role.EPOCH: Epoch | FailedEpoch}
    values["outcome"] = draw(st.none() | of(outcomes.get(values["role"], Attempt)))


def _knob(draw: Draw, values: Values) -> None:
    """A choice with features, or a count."""
    if draw(st.booleans()):
        options = draw(st.lists(knob_values, min_size=1, max_size=4, unique=True))
        width = draw(st.integers(0, 3))
        numbers = st.floats(allow_nan=False)
        values["features"] = {v: draw(st.tuples(*[numbers] * width)) for v in options}
    else:
        options = draw(st.lists(counts | positive, min_size=1, max_size=4, unique=True))
        values["features"] = None
    values["values"] = tuple(options)
    values["is_setting"] = values["features"] is not None and draw(st.booleans())
    values["memory"] = draw(st.sampled_from(("", *MEMORY)))
    values["log2_sizes"] = draw(st.none() | st.fixed_dictionaries(dict.fromkeys(options, st.floats(allow_nan=False))))
    values["kinds"] = draw(st.none() | st.fixed_dictionaries(dict.fromkeys(options, texts)))
    values["workers"] = draw(st.none() | st.fixed_dictionaries(dict.fromkeys(options, of(Workers))))


def _space(draw: Draw, values: Values) -> None:
    knobs = draw(st.lists(of(Knob), min_size=1, max_size=3, unique_by=lambda knob: knob.name))
    rows = st.tuples(*(st.sampled_from(knob.values) for knob in knobs))
    names = [knob.name for knob in knobs]
    chosen = draw(st.lists(rows, min_size=1, max_size=5, unique=True))
    values.update(knobs=tuple(knobs), configs=tuple(Config(tuple(zip(names, row, strict=True))) for row in chosen))


def _problem(draw: Draw, values: Values) -> None:
    size = len(values["space"])
    values["beside"] = values["beside"] and not values["keeps_work"]
    values["similar"] = draw(st.just(()) | st.tuples(*[st.floats(-9, 9)] * size))
    values["usd_per_hour"] = draw(st.tuples(*[st.builds(Usd, counts)] * size))
    more = draw(st.none() | st.tuples(*[st.builds(Usd, amounts)] * size))
    own = values["usd_per_hour"]
    values["lease_usd_per_hour"] = () if more is None else tuple(map(operator.add, own, more))
    values["stretch"] = draw(st.just(()) | st.tuples(*[st.floats(1, 100)] * size))
    if "batch" not in {knob.name for knob in values["space"].knobs}:
        values["batching"] = None


def _prices(draw: Draw, values: Values) -> None:
    low = draw(st.integers(1, 1000))
    values["memory_mb"] = (low, low + 100 * draw(st.integers(5, 100)), draw(st.sampled_from([1, 2, 100])))


def _function_problem(draw: Draw, values: Values) -> None:
    numbers = draw(st.sets(st.integers(1, 1000), min_size=1, max_size=8))
    sizes = draw(st.sets(st.sampled_from(values["prices"].memory_sizes[:50]), min_size=1, max_size=4))
    values.update(functions=tuple(sorted(numbers)), memory_mb=tuple(sorted(sizes)))
    values["limit_seconds"] = min(values["prices"].limit_seconds, 1e9) * draw(st.floats(1e-3, 1))
    values["first_loss"] = draw(st.none() | st.just(values["target_loss"] + 1 + abs(values["target_loss"])))
    values["goal"] = replace(values["goal"], minimize=draw(st.sampled_from([Objective.TIME, Objective.COST])))


FITTED: Mapping[type, Callable[[Draw, Values], None]] = {
    Epoch: _epoch,
    FunctionPrices: _prices,
    FunctionProblem: _function_problem,
    Knob: _knob,
    Load: _load,
    Measurement: _measurement,
    Phase: _phase,
    Problem: _problem,
    Space: _space,
    Step: _step,
}


# ---- values from types


def of(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a type."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    if isinstance(kind, TypeVar):
        return of(kind.__bound__)
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return st.one_of([of(member) for member in inner])
    if origin is tuple and inner[-1] is Ellipsis:
        return st.lists(of(inner[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(of, inner))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return st.dictionaries(of(inner[0]), of(inner[1]), max_size=3)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from(kind)
    cls: Any = origin or kind
    assert is_dataclass(cls), f"no values of {kind} are known: add them here, and to mlcd.codec where it needs a hook"
    return st.deferred(lambda: _values(cls))


@st.composite
def _values(draw: Draw, cls: Any) -> Any:
    hints = get_type_hints(cls)
    ranges, fitted = RANGES.get(cls, {}), _FIT_FIELDS.get(cls, frozenset())
    values = {
        field.name: draw(ranges[field.name] if field.name in ranges else of(hints[field.name]))
        for field in fields(cls)
        if field.init and field.name not in fitted
    }
    if cls in FITTED:
        FITTED[cls](draw, values)
    return cls(**values)


_PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    NoneType: st.none(),
    bool: st.booleans(),
    int: st.integers(-BEYOND, BEYOND),
    float: st.floats(allow_nan=False),
    str: texts,
    Decimal: st.decimals(allow_nan=False, allow_infinity=False),
    date: st.dates(),
    Value: knob_values,
    Config: st.dictionaries(texts, knob_values, max_size=4).map(Config.of),
}
_FIT_FIELDS: Mapping[type, frozenset[str]] = {
    FunctionProblem: frozenset({"functions", "memory_mb", "limit_seconds", "first_loss"}),
    Knob: frozenset({"values", "features", "log2_sizes", "kinds", "workers", "is_setting", "memory"}),
    Space: frozenset({"knobs", "configs"}),
    Step: frozenset({"outcome"}),
}
"""Fields that FITTED draws itself: without a type, or in conflict with what was drawn before."""


# ---- which types


def reached(kinds: Iterable[Any]) -> set[type]:
    """Every class with fields that values of these types may hold."""
    found: set[type] = set()
    todo = list(kinds)
    while todo:
        kind = todo.pop()
        if isinstance(kind, TypeVar):
            todo.append(kind.__bound__)
            continue
        todo += get_args(kind)
        cls = get_origin(kind) or kind
        if is_dataclass(cls) and isinstance(cls, type) and cls not in found:
            found.add(cls)
            todo += [hint for name, hint in get_type_hints(cls).items() if name in {f.name for f in fields(cls)}]
    return found


EXAMPLES = [10, pytest.param(100, marks=pytest.mark.extra)]
"""Values of each type. Most types are also drawn as parts of others, so that even few are many of each."""
STORED = sorted(reached([Run, FunctionCall]), key=lambda cls: cls.__name__)
OWN_FORM = {Config, Knob, Space, Usd}
"""Types that are not an object with their fields by name."""


def test_every_stored_type_is_covered() -> None:
    written = (Header, Problem, FunctionProblem, Choice, Step, Outcome, FunctionCall, Verdict, Findings)
    assert reached(written) <= set(STORED)
    assert {Measurement, Failure, Attempt, Epoch, FailedEpoch, FunctionPrices, Config, Fleet} <= set(STORED)
    for told in (RANGES, FITTED, _FIT_FIELDS):
        assert set(told) <= set(STORED)
    for cls, names in (*RANGES.items(), *_FIT_FIELDS.items()):
        assert set(names) <= {field.name for field in fields(cls)}, cls


def test_no_two_stored_types_have_one_tag() -> None:
    tags = [codec._tag(cls) for cls in STORED]
    assert len(set(tags)) == len(tags)


@pytest.mark.parametrize("examples", EXAMPLES)
@pytest.mark.parametrize("cls", STORED, ids=lambda cls: cls.__name__)
def test_a_value_round_trips_with_all_its_fields(cls: type, examples: int) -> None:
    @settings(
        max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
    )
    @given(of(cls))
    def check(value: Any) -> None:
        as_type: Any = Run[type(value.problem)] if cls is Run else cls  # type: ignore[misc]
        text = codec.encode(value, as_type)
        data = json.loads(text, parse_constant=_not_json)
        again = codec.decode(text, as_type)
        assert again == value
        assert type(again) is type(value)
        assert codec.encode(again, as_type) == text
        if cls not in OWN_FORM:
            assert set(data) == {field.name for field in fields(cls)}

    check()


UNIONS = {"outcome": Outcome, "choice": Choice, "problem": Problem | FunctionProblem, "perhaps": Outcome | None}


@pytest.mark.parametrize("name", UNIONS)
def test_one_of_several_types_round_trips(name: str) -> None:
    @settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
    @given(of(UNIONS[name]))
    def check(value: Any) -> None:
        again = codec.decode(codec.encode(value, UNIONS[name]), UNIONS[name])
        assert again == value
        assert type(again) is type(value)

    check()


@given(st.sampled_from([math.inf, -math.inf, math.nan]))
def test_numbers_without_a_json_form_become_text(number: float) -> None:
    text = codec.encode(number, float)
    assert json.loads(text) == str(number)
    assert math.isnan(number) or codec.decode(text, float) == number


def test_a_knob_value_is_finite() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        codec.encode(Config.of({"lr": math.inf}))


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(of(Run), st.lists(of(FunctionCall), max_size=3, unique_by=lambda call: (call.shard, call.attempt)))
def test_a_run_round_trips_through_the_store(drawn: AnyRun, calls: list[FunctionCall]) -> None:
    fitting = (_fitted(drawn.problem, step) for step in drawn.steps)
    kept = [_stored(step) for step in fitting if step is not None]
    steps = tuple(replace(step, number=number) for number, step in enumerate(kept, start=1))
    findings = drawn.findings if drawn.status.is_final else None
    kind = Kind.SERVERLESS if isinstance(drawn.problem, FunctionProblem) else Kind.SERVE
    header = replace(drawn.header, run_id="drawn-0a1b2c", kind=kind, reused=())
    run: AnyRun = replace(drawn, header=header, steps=steps, findings=findings, outputs="", log="")
    if isinstance(run.problem, Problem):
        sizes = run.problem.transformer or Transformer(parameters=1.0, layers=1, hidden=1, heads=1, sequence=1)
        run = replace(run, problem=replace(run.problem, work_known=True, transformer=sizes))  # a trial may report them
    with Store(None) as store:
        store.add(replace(run, steps=(), verdict=None, findings=None), spec={"a": 1})
        store.start(run.run_id, [replace(step, outcome=None) for step in steps])
        for step in run.ended:
            store.end(run.run_id, step, calls if step == run.ended[0] else ())
        if run.verdict is not None:
            store.conclude(run.run_id, run.verdict)
        store.finish(run.run_id, run.status, run.findings)
        assert store.load(run.run_id) == run
        assert store.kind(run.run_id) is run.kind
        expected = sorted(calls, key=lambda call: (call.shard, call.attempt)) if run.ended else []
        assert list(store.calls(run.run_id)) == expected
        (line,) = store.runs()
        assert line.spent == run.spent
        assert line.trials == len(run.trials) + len(run.epoch_steps)


def _fitted(problem: Problem | FunctionProblem, step: Step) -> Step | None:
    """The step on a configuration of the problem, at a time; None if no run of such a problem has it."""
    times: dict[str, Any] = {name: getattr(step, name) for name in ("started_seconds", "started_at", "ended_seconds")}
    at: dict[str, Any] = {name: 1.0 for name, time in times.items() if time is not None and not math.isfinite(time)}
    step = replace(step, **at)
    is_epoch, has_fleet = step.role is Role.EPOCH, isinstance(step.authorisation.choice, Fleet)
    if isinstance(problem, FunctionProblem):
        return step if is_epoch and has_fleet else None
    if is_epoch:
        return None
    config = problem.space.configs[0]
    outcome: Any = None if step.outcome is None else replace(cast(Any, step.outcome), config=config)
    return replace(step, authorisation=replace(step.authorisation, choice=config), outcome=outcome)


def _stored(step: Step) -> Step:
    """A step that has no outcome has not ended."""
    return step if step.outcome is not None else replace(step, ended_seconds=None, ended_moment=None)


def _not_json(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")
