"""Flags over job files of every kind, the reader of ranges, and the form of errors."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlcd.errors import SpecError
from mlcd.goal import Goal, Objective, Slo, goal_fields, goal_json
from mlcd.spec.choices import Choices
from mlcd.spec.functions import SERVERLESS
from mlcd.spec.job_file import JobFile
from mlcd.spec.mapping import tree
from mlcd.spec.parse import TRAIN
from mlcd.spec.serving import SERVE
from mlcd.units import Usd

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TRAIN_TEXT = "# mine\nname: a\nenvs: {SEED: 007, RATE: 1.10}\njob: {model: m}\ngoal: {minimize: time, budget: 5}\n"
SERVE_TEXT = "# mine\nname: a\nmodel: a.onnx\ngoal: {minimize: cost, rate: 5}\n"
SERVERLESS_TEXT = "# mine\nname: a\nworkload: {model: logistic, target_loss: 1}\ngoal: {minimize: time}\n"

CASES: list[tuple[JobFile[Any], str, dict[str, object]]] = [
    (
        TRAIN,
        TRAIN_TEXT,
        {
            "goal": Goal(minimize=Objective.COST, deadline_seconds=0.5),
            "on": "sim/aws",
            "budget": Usd("12.340001"),
            "deadline": timedelta(hours=1.5),
            "strategy": "random",
            "envs": {"TOKEN": "a", "SEED": "8"},
            "parallel": 3,
        },
    ),
    (
        SERVE,
        SERVE_TEXT,
        {
            "on": "local",
            "slo": {"p95": "20ms"},
            "maximize": "requests per dollar",
            "rate": 7.5,
            "budget": "3 USD",
            "deadline": "2026-01-01T02:00Z",
            "strategy": "random",
            "trials": 4,
        },
    ),
    (
        SERVERLESS,
        SERVERLESS_TEXT,
        {
            "on": "sim/lambda",
            "budget": 3,
            "deadline": timedelta(minutes=1),
            "strategy": "static",
            "sync": "bsp",
            "functions": [1, 2],
            "memory": "512,1024",
        },
    ),
]
KINDS = pytest.mark.parametrize(("kind", "text", "flags"), CASES, ids=["train", "serve", "serverless"])


@KINDS
def test_text_and_overrides_recreate_the_job(kind: JobFile[Any], text: str, flags: dict[str, object]) -> None:
    assert set(flags) == set(kind.flags)
    spec = kind.with_flags(kind.parse(text, now=NOW), flags, now=NOW)
    assert spec.source == text
    stored = json.loads(json.dumps(dict(spec.overrides)))
    again = kind.parse(text, now=NOW, flags=stored)
    assert again == spec
    assert again != kind.parse(text, now=NOW)
    one_by_one = kind.parse(text, now=NOW)
    for name, value in flags.items():
        one_by_one = kind.with_flags(one_by_one, {name: value}, now=NOW)
    assert one_by_one == spec
    assert kind.with_flags(spec, dict.fromkeys(flags)) is spec


@KINDS
def test_every_flag_is_named_in_errors_found_at_once_and_later(
    kind: JobFile[Any], text: str, flags: dict[str, object]
) -> None:
    spec = kind.parse(text, now=NOW)
    changed = kind.with_flags(spec, flags, now=NOW, mark="--")
    for name in flags:
        with pytest.raises(SpecError, match=f"^--{name}: ") as caught:
            kind.with_flags(spec, {name: object()})
        assert caught.value.field == f"--{name}"
        assert str(changed.error(kind.flags[name].path, "no")) == f"--{name}: no"


@KINDS
def test_flags_keep_the_line_numbers_of_the_file(kind: JobFile[Any], text: str, flags: dict[str, object]) -> None:
    del flags
    with pytest.raises(SpecError, match=r"^job.yaml:5|^job.yaml:6"):
        kind.parse(text + "goals: 1\n", flags={"on": "x"})
    changed = kind.with_flags(kind.parse(text), {"strategy": "random"})
    assert str(changed.error("name", "no")) == "job.yaml:2: name: no"
    assert str(changed.error("goal.nothing", "no")).startswith("job.yaml:")
    with pytest.raises(SpecError, match=r"^job.yaml:\d: search: must be a mapping"):
        kind.parse(text + "search: fast\n", flags={"strategy": "random"})


def test_a_number_is_kept_as_it_is_written() -> None:
    spec = TRAIN.with_flags(TRAIN.parse(TRAIN_TEXT), {"on": "sim/aws"})
    assert spec.envs == {"SEED": "007", "RATE": "1.10"}


def test_a_goal_replaces_limits_given_before() -> None:
    spec = TRAIN.with_flags(TRAIN.parse(TRAIN_TEXT), {"budget": "9 USD", "on": "sim/aws"})
    changed = TRAIN.with_flags(spec, {"goal": {"minimize": "knee"}})
    assert (changed.goal, changed.resources.infra) == (Goal(minimize=Objective.KNEE), "sim/aws")
    assert TRAIN.with_flags(changed, {"budget": 2}).goal == Goal(minimize=Objective.KNEE, budget=Usd.of(2))


def test_a_goal_may_be_added_to_a_text_without_one() -> None:
    text = TRAIN_TEXT.partition("goal:")[0]
    assert TRAIN.parse(text, flags={"goal": {"minimize": "time"}}).goal == Goal(minimize=Objective.TIME)
    with pytest.raises(SpecError, match="goal: is missing"):
        TRAIN.parse(text)


def test_maximize_replaces_minimize() -> None:
    assert SERVE.parse(SERVE_TEXT, flags={"maximize": "requests per dollar"}).goal.rate == 5


def test_a_deadline_that_is_kept_is_counted_from_the_same_moment() -> None:
    text = TRAIN_TEXT.replace("budget: 5", "deadline: 2026-01-01T01:00Z")
    spec = TRAIN.with_flags(TRAIN.parse(text, now=NOW), {"on": "sim/aws"})
    assert spec.goal.deadline_seconds == 3600
    later = TRAIN.with_flags(spec, {"deadline": "2026-01-01T01:00Z"}, now=NOW + timedelta(minutes=30))
    assert later.goal.deadline_seconds == 1800


# ---- goals

GOAL = Goal(
    minimize=Objective.COST, deadline_seconds=90.5, budget=Usd("1.5"), slo=Slo(seconds=0.05, percentile=95), rate=2.5
)


def test_a_goal_has_one_json_form() -> None:
    plain = {"minimize": "cost", "budget_usd": 1.5, "deadline_seconds": 90.5}
    assert goal_json(GOAL) == plain
    assert goal_json(GOAL, text="words") == {"text": "words", **plain}
    serving = {"slo_percentile": 95, "slo_seconds": 0.05, "requests_per_second": 2.5}
    assert goal_json(GOAL, serving=True) == {**plain, **serving}
    free = goal_json(Goal(minimize=Objective.TIME), serving=True)
    assert {key for key, value in free.items() if value is None} == {*plain, *serving} - {"minimize"}


def test_a_goal_is_written_as_a_job_file_reads_it() -> None:
    job = {"name": "a", "model": "a.onnx", "goal": GOAL}
    assert SERVE.from_mapping(job).goal == GOAL
    assert SERVE.from_mapping({**job, "goal": goal_fields(GOAL)}).goal == GOAL
    with pytest.raises(SpecError, match=r"goal\.slo: unknown field"):  # never silently ignored
        TRAIN.from_mapping({"name": "a", "goal": GOAL})


# ---- ranges

CHOICES = Choices(form="FORM", most=1000, unit="things")


@given(st.integers(min_value=1, max_value=1000), st.integers(min_value=1, max_value=1000))
def test_a_range_is_the_list_of_its_numbers(first: int, last: int) -> None:
    node = tree(f" {first} .. {last}", path="x")
    if first > last:
        with pytest.raises(SpecError, match=f"empty range .* did you mean '{last}..{first}'"):
            CHOICES(node)
        return
    assert CHOICES(node) == CHOICES(tree(range(first, last + 1))) == tuple(range(first, last + 1))


@given(st.sets(st.integers(min_value=1, max_value=1000), min_size=1).flatmap(lambda some: st.permutations(list(some))))
def test_a_list_is_sorted_and_a_number_is_a_list_of_one(numbers: list[int]) -> None:
    assert CHOICES(tree(numbers)) == tuple(sorted(numbers))
    assert CHOICES(tree(numbers[0])) == (numbers[0],)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("0..5", r"is out of range .* from 1 to 1,000 things"),
        ("1..1001", r"is out of range .* from 1 to 1,000 things"),
        ("1-5", r"gives no values to choose from .* allowed: FORM; did you mean '1..5'\?"),
        ("many", r"gives no values to choose from .* allowed: FORM"),
        ([], "gives no values to choose from"),
        ({"a": 1}, "gives no values to choose from"),
        ([1, 2, 1], r"x\[2\]: is given twice"),
        ([1, 0], r"x\[1\]: is out of range"),
        ([1.5], r"x\[0\]: must be a whole number"),
        (True, "must be a whole number"),
        (None, "has no value"),
    ],
)
def test_an_empty_set_of_choices_is_refused(value: object, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        CHOICES(tree(value, path="x"))
