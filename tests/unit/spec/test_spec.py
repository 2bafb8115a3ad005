"""The job file: the allowed forms, and the errors for bad ones."""

import contextlib
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlcd.errors import SpecError
from mlcd.goal import Goal, Objective
from mlcd.problem import TrialPolicy
from mlcd.search.heterbo import HeterBO
from mlcd.spec import (
    NodeCounts,
    TrainSpec,
    Work,
    parse_goal,
    parse_train,
    read_train,
    spec_from_mapping,
    template,
    with_overrides,
)
from mlcd.spec.scalar import scalar
from mlcd.spec.train import TrialRules
from mlcd.units import Usd

NOW = datetime(2026, 11, 1, 12, 0, tzinfo=UTC)
MINIMAL = "name: j\ngoal: {minimize: time}\n"  # two lines, so that an added line is line 3
DOCS = Path(__file__).parents[3] / "docs" / "job-file.md"


def parse(text: str) -> TrainSpec:
    return parse_train(text, file="job.yaml", now=NOW)


def plus(text: str) -> TrainSpec:
    return parse(MINIMAL + text)


# ---- what a job file may say


def test_the_template_is_a_valid_job_file() -> None:
    spec = parse(template())
    assert spec.name == "resnet-imagenet"
    assert spec.goal == Goal(minimize=Objective.TIME, budget=Usd.of(500))
    assert spec.resources.infra == "sim/aws"
    assert spec.resources.instance_type == ("c7i.*", "g5.xlarge", "g6.xlarge", "g6e.xlarge", "p4d.24xlarge")
    assert spec.num_nodes == NodeCounts(default=tuple(range(1, 33)), by_glob=(("c*", tuple(range(1, 65))),))
    assert spec.job == Work(model="resnet152", samples=1281167, epochs=90, batch=1024, topology="ring")
    assert spec.search.trial.over(TrialPolicy()) == TrialPolicy()
    assert spec.run == "python train.py"
    assert spec.source == template()
    assert parse(template("my.job_2")).name == "my.job_2"


def test_the_template_refuses_an_invalid_job_name() -> None:
    with pytest.raises(SpecError, match="did you mean 'a-b'"):
        template("a: b")


def test_only_name_and_goal_are_needed() -> None:
    spec = parse(MINIMAL)
    assert spec == TrainSpec(name="j", goal=Goal(minimize=Objective.TIME), file="job.yaml", source=MINIMAL)


def test_every_field_is_read() -> None:
    spec = plus(
        """
resources: {infra: replay/a folder, instance_type: aws-62, use_spot: true}
num_nodes: [8, 1, 4]
workdir: .
envs: {A: text, B: 1.10, C: "on", D: 0x10}
setup: |
  one
  two
run: python train.py
job: {workload: als, hours: 6, samples: 4.5e6, epochs: 0.5, batch: 1e3, model: m, topology: ps}
search:
  strategy: cherrypick:types=c5.*+m4.*,acquisition=ei
  max_trials: 7
  parallel: 2
  assurance: 0.95
  noise: 0
  trial: {minutes: 5, extra_minutes_per_3_nodes: 0, extension: 1, watchdog_minutes: 1.5, precision: 0.1, retries: 0}
"""
    )
    assert spec.resources.infra == "replay/a folder"
    assert spec.resources.use_spot
    assert spec.num_nodes is not None
    assert spec.num_nodes.default == (1, 4, 8)
    assert spec.envs == {"A": "text", "B": "1.10", "C": "on", "D": "0x10"}
    assert spec.setup == "one\ntwo\n"
    assert spec.workdir == "."
    assert spec.job == Work(workload="als", hours=6, samples=4.5e6, epochs=0.5, batch=1000, model="m", topology="ps")
    assert (spec.search.max_trials, spec.search.parallel) == (7, 2)
    assert (spec.search.assurance, spec.search.noise) == (0.95, 0)
    assert spec.search.strategy == "cherrypick:types=c5.*+m4.*,acquisition=ei"
    assert spec.search.trial.over(TrialPolicy()) == TrialPolicy(
        seconds=300,
        extra_seconds_per_3_nodes=0,
        extension=1,
        watchdog_seconds=90,
        precision=0.1,
        retries=0,
    )


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("6h30m", 23_400),
        ("90 min", 5400),
        ("2026-11-01T13:00Z", 3600),
        ("2026-11-01T14:00+01:00", 3600),
        ("2026-11-01 12:00:30Z", 30),
    ],
)
def test_a_deadline_is_a_duration_or_a_point_in_time(written: str, seconds: float) -> None:
    assert parse(f"name: j\ngoal: {{minimize: cost, deadline: '{written}'}}").goal.deadline_seconds == seconds


def test_without_now_a_deadline_is_counted_from_the_clock() -> None:
    soon = datetime.now(UTC) + timedelta(hours=1)
    remaining = parse_goal({"minimize": "time", "deadline": soon}).deadline_seconds
    assert remaining is not None
    assert 3590 < remaining <= 3600


@pytest.mark.parametrize("written", ["100 USD", "$100", "100", "100.00", "1e2", "0x64", "'100'", "USD 100"])
def test_a_budget_has_several_forms(written: str) -> None:
    assert parse(f"name: j\ngoal: {{minimize: knee, budget: {written}}}").goal.budget == Usd.of(100)


def test_thousands_may_be_separated() -> None:
    assert parse("name: j\ngoal:\n  minimize: time\n  budget: 1,000.50 USD").goal.budget == Usd.of("1000.5")


@pytest.mark.parametrize(
    ("written", "counts"), [("4", (4,)), ("1..3", (1, 2, 3)), ("7..7", (7,)), ("[2, 1]", (1, 2)), ("4.0", (4,))]
)
def test_node_counts_have_several_forms(written: str, counts: tuple[int, ...]) -> None:
    assert plus(f"num_nodes: {written}").num_nodes == NodeCounts(default=counts)
    by_glob = plus(f"num_nodes: {{default: 9, p3.*: {written}}}").num_nodes
    assert by_glob is not None
    assert by_glob.for_instance("p3.2xlarge") == counts


def test_the_first_glob_that_matches_counts() -> None:
    counts = plus("num_nodes: {c5.x: 1, c*: 2, default: 3}").num_nodes
    assert counts is not None
    assert [counts.for_instance(name) for name in ("c5.x", "c4.y", "p2.z")] == [(1,), (2,), (3,)]


@pytest.mark.parametrize(
    "text",
    [
        "---\n" + MINIMAL,
        MINIMAL + "...\n",
        "\ufeff" + MINIMAL,
        MINIMAL.replace("\n", "\r\n"),
        "%YAML 1.2\n---\n" + MINIMAL,
    ],
)
def test_harmless_forms_of_yaml_are_read(text: str) -> None:
    assert parse(text).name == "j"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4.5e6", 4.5e6),
        ("1e3", 1000.0),
        ("1.", 1.0),
        (".5", 0.5),
        ("-7", -7),
        ("0123", 123),
        ("0o17", 15),
        ("0x1F", 31),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("", None),
        ("Null", None),
        (".inf", float("inf")),
        ("-.INF", float("-inf")),
        ("yes", "yes"),
        ("off", "off"),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("2026-12-01", "2026-12-01"),
        ("9" * 101, "9" * 101),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    assert scalar(text) == value
    assert type(scalar(text)) is type(value)


def test_nan_is_a_number_in_yaml() -> None:
    assert scalar(".nan") != scalar(".nan")


# ---- errors: (text after MINIMAL or a whole file, line, field, fragment of the message)

BAD_FIELDS = [
    # names of fields
    ("budgett: 5", "budgett", "unknown field"),
    ("goals: {}", "goals", "did you mean 'goal'"),
    ("budget: 100", "budget", "did you mean 'goal.budget'"),
    ("NUM-NODES: 4", "NUM-NODES", "did you mean 'num_nodes'"),
    ("resources: {num_nodes: 4}", "resources.num_nodes", "write it at the top of the file"),
    ("resources: {instance_typ: x}", "resources.instance_typ", "did you mean 'instance_type'"),
    ("search: {trial: {minuets: 4}}", "search.trial.minuets", "did you mean 'minutes'"),
    ("search: {parallel:4}", "search['parallel:4']", "a space after the colon"),
    ("job: {<<: {samples: 4}}", "job['<<']", "unknown field"),
    ("name: k", "name", "given twice; first on line 1"),
    ("job: {epochs: 1, epochs: 2}", "job.epochs", "given twice; first on line 3"),
    ("volumes: {/a: b}", "volumes", "not supported yet"),
    ("secrets: {A: b}", "secrets", "takes names only"),
    ("secrets: [2A]", "secrets[0]", "not a valid variable name"),
    ("platform: torch", "platform", "did you mean 'pytorch'"),
    ("platform: {topology: ring}", "platform.name", "is missing"),
    ("platform: {name: mxnet, topology: star}", "platform.topology", "is not a topology of mxnet"),
    ("progress: {}", "progress", "exactly one of"),
    ("progress: {steps: mlcd.steps, file: a}", "progress", "exactly one of"),
    ("progress: {steps: my.steps}", "progress.steps", "mlcd.steps"),
    ("progress: {pattern: '('}", "progress.pattern", "not a regular expression"),
    ("progress: {pattern: 'loss: (.*)'}", "progress.pattern", "names none of the groups"),
    ("outputs: [/etc/passwd]", "outputs[0]", "must be inside the working folder"),
    ("outputs: [../up]", "outputs[0]", "must be inside the working folder"),
    ("outputs: [a, a]", "outputs[1]", "given twice"),
    ("outputs: [~/model.pt]", "outputs[0]", "must be inside the working folder"),
    ("outputs: ['s3://bucket/model.pt']", "outputs[0]", "must be inside the working folder"),
    ("outputs: [a, ./a/]", "outputs[1]", "given twice"),
    ("outputs: a.pt, b.pt", "outputs", "several paths need brackets"),
    ("outputs: ['*.pt']", "outputs[0]", "patterns are not expanded"),
    ("checkpoints: yes", "checkpoints", "did you mean 'true'"),
    ("resources: {prices: {small: 0}}", "resources.prices.small", "more than $0"),
    ("resources: {cpus: 8}", "resources.cpus", "not supported yet; choose types"),
    ("resources: {ports: 80}", "resources.ports", "not supported yet"),
    # shapes
    ("job: 5", "job", "must be a mapping"),
    ("job: [1]", "job", "must be a mapping"),
    ("job:", "job", "has no value"),
    ("run:", "run", "has no value"),
    ("run: 5", "run", "must be text; write it as '5'"),
    ("run: [a]", "run", "must be text (got ['a'])"),
    ("workdir: ' '", "workdir", "not blank"),
    ("resources: {infra: ''}", "resources.infra", "not blank"),
    ("[a]: 1", "", "a field's name must be text"),
    # YAML beyond plain data
    ("run: !!python/object/apply:os.system [ls]", "run", "tags are not allowed"),
    ("run: !mine x", "run", "got '!mine'"),
    ("!!str run: x", "", "tags are not allowed"),
    ("run: &a x", "run", "anchors are not allowed"),
    ("run: *a", "run", "aliases are not allowed"),
    ("job: &j [*j]", "job", "anchors are not allowed"),
    ("run: " + "[" * 30, "run" + "[0]" * 20, "nested deeper than 20"),
    ("---\nname: k", "", "only one document"),
    # not YAML
    ("\tjob: {}", "", "spaces, not tabs"),
    ("run: a: b", "", "needs quotes"),
    ("run: @x", "", "put the value in quotes"),
    ("run", "", "NAME: VALUE"),
    ("run: 'x\nsetup: y", "", "never closed"),
    ("job: {samples: 5", "", "a bracket or a comma is missing"),
    ("  job: {}", "", "same column"),
    ("run: '\\x'\"", "", "not YAML"),
    ("resources: {instance_type: *.xlarge}", "", "begins with * needs quotes"),
    ("run: a\x00b", "", "contains a character that is not allowed in text"),
    # resources
    ("resources: {instance_type: []}", "resources.instance_type", "must not be empty"),
    ("resources: {instance_type: [a, b, a]}", "resources.instance_type[2]", "given twice (got 'a')"),
    ("resources: {instance_type: [a, 5]}", "resources.instance_type[1]", "must be text"),
    ("resources: {instance_type: 'a, b'}", "resources.instance_type", "did you mean '[a, b]'"),
    ("resources: {instance_type: a$}", "resources.instance_type", "is not a valid instance type"),
    ("resources: {use_spot: yes}", "resources.use_spot", "did you mean 'true'"),
    ("resources: {use_spot: 1}", "resources.use_spot", "must be true, false or any (got 1)"),
    # node counts
    ("num_nodes: 0", "num_nodes", "out of range"),
    ("num_nodes: -3", "num_nodes", "at least 1 and at most 100,000"),
    ("num_nodes: 2.5", "num_nodes", "must be a whole number (got 2.5)"),
    ("num_nodes: true", "num_nodes", "must be a whole number"),
    ("num_nodes: 5..1", "num_nodes", "is an empty range (got '5..1')"),
    ("num_nodes: 0..5", "num_nodes", "from 1 to 100,000"),
    ("num_nodes: 1..100001", "num_nodes", "out of range"),
    ("num_nodes: 1-50", "num_nodes", "did you mean '1..50'"),
    ("num_nodes: many", "num_nodes", "is not a number of nodes"),
    ("num_nodes: []", "num_nodes", "must not be empty"),
    ("num_nodes: [1, 2, 1]", "num_nodes[2]", "given twice (got 1)"),
    ("num_nodes: [1, x]", "num_nodes[1]", "must be a whole number"),
    ("num_nodes: {c*: 5}", "num_nodes", "no default"),
    ("num_nodes: {default: 5, c*: 0}", "num_nodes['c*']", "out of range"),
    ("num_nodes: {default: {a: 1}}", "num_nodes.default", "must not be a mapping"),
    # work
    ("job: {samples: 0}", "job.samples", "more than 0"),
    ("job: {samples: '50,000'}", "job.samples", "did you mean '50000'"),
    ("job: {samples: lots}", "job.samples", "must be a number (got 'lots')"),
    ("job: {samples: .nan}", "job.samples", "out of range (got nan)"),
    ("job: {epochs: .inf}", "job.epochs", "out of range (got inf)"),
    ("job: {samples: 1e400}", "job.samples", "out of range"),
    (f"job: {{samples: {'9' * 5000}}}", "job.samples", "must be a number"),
    ("job: {batch: 1.5}", "job.batch", "must be a whole number"),
    ("job: {batch: .inf}", "job.batch", "must be a whole number"),
    ("job: {topology: mesh}", "job.topology", "allowed: ring, ps"),
    ("job: {topology: all-reduce}", "job.topology", "did you mean 'ring'"),
    ("job: {topology: 5}", "job.topology", "is not one of the choices (got 5)"),
    ("job: {hours: -1}", "job.hours", "out of range"),
    # search
    ("search: {strategy: 'heterbo:prune'}", "search.strategy", "NAME:OPTION=VALUE"),
    ("search: {strategy: 'heterbo:a=1,a=2'}", "search.strategy", "the option 'a' twice"),
    ("search: {strategy: HeterBO!}", "search.strategy", "is not a strategy"),
    ("search: {max_trials: 0}", "search.max_trials", "at least 1"),
    ("search: {parallel: 1e9}", "search.parallel", "out of range"),
    ("search: {assurance: 1}", "search.assurance", "at least 0.5 and less than 1"),
    ("search: {assurance: 0.4}", "search.assurance", "out of range"),
    ("search: {noise: -0.1}", "search.noise", "out of range"),
    ("search: {slowdown: -0.1}", "search.slowdown", "out of range"),
    ("search: {slowdown: 11}", "search.slowdown", "out of range"),
    ("search: {trial: {minutes: 0}}", "search.trial.minutes", "at most 10,080 minutes"),
    ("search: {trial: {extension: -1}}", "search.trial.extension", "at least 0"),
    ("search: {trial: {precision: 1}}", "search.trial.precision", "less than 1"),
    ("search: {trial: {retries: 0.5}}", "search.trial.retries", "whole number"),
    # environment
    ("envs: {2A: x}", "envs['2A']", "is not a valid variable name"),
    ("envs: {A: true}", "envs.A", "write it as 'true' with the quotes"),
    ("envs: {A: [s3cr3t]}", "envs.A", "must be text"),
]

BAD_GOALS = [
    ("{}", "goal.minimize", "is missing; allowed: time, cost, knee"),
    ("{minimize: fastest}", "goal.minimize", "did you mean 'time'"),
    ("{minimize: cots}", "goal.minimize", "did you mean 'cost'"),
    ("{minimize:time}", "goal['minimize:time']", "a space after the colon"),
    ("{minimize: [time]}", "goal.minimize", "is not one of the choices"),
    ("{minimize: time, slo: 5}", "goal.slo", "unknown field"),
    ("{minimize: time, budget: 0}", "goal.budget", "more than $0"),
    ("{minimize: time, budget: -5}", "goal.budget", "not negative"),
    ("{minimize: time, budget: -5 USD}", "goal.budget", "must not be negative"),
    ("{minimize: time, budget: .nan}", "goal.budget", "finite"),
    ("{minimize: time, budget: .inf}", "goal.budget", "finite"),
    ("{minimize: time, budget: 100 EUR}", "goal.budget", "US dollars only (got '100 EUR')"),
    ("{minimize: time, budget: €100}", "goal.budget", "US dollars only"),
    ("{minimize: time, budget: '1,50 USD'}", "goal.budget", "a comma separates thousands"),
    ("{minimize: time, budget: 1,000}", "goal['000']", 'put it in quotes, such as "1,000 USD"'),
    ("{minimize: time, budget: 1,000.50 USD}", "goal['000.50 USD']", "put it in quotes"),
    ("{minimize: time, budget: lots}", "goal.budget", "not an amount of money"),
    ("{minimize: time, budget: true}", "goal.budget", "not an amount of money"),
    ("{minimize: time, budget: [5]}", "goal.budget", "not an amount of money"),
    ("{minimize: time, budget: 1e13}", "goal.budget", "out of range"),
    ("{minimize: time, deadline: 6}", "goal.deadline", "needs a unit"),
    ("{minimize: time, deadline: '6'}", "goal.deadline", "needs a unit"),
    ("{minimize: time, deadline: true}", "goal.deadline", "not a deadline"),
    ("{minimize: time, deadline: soon}", "goal.deadline", "not a duration"),
    ("{minimize: time, deadline: 0h}", "goal.deadline", "more than 0 seconds"),
    ("{minimize: time, deadline: -6h}", "goal.deadline", "must not be negative"),
    ("{minimize: time, deadline: 9999999h}", "goal.deadline", "at most 3,650 days"),
    ("{minimize: time, deadline: 2026-12-01T18:00}", "goal.deadline", "its zone"),
    ("{minimize: time, deadline: 2026-12-01}", "goal.deadline", "its zone"),
    ("{minimize: time, deadline: 2026-13-01T18:00Z}", "goal.deadline", "not a date and time"),
    ("{minimize: time, deadline: 2026-10-31T18:00Z}", "goal.deadline", "in the past; it is 2026-11-01T12:00+0000"),
]

BAD_FILES = [
    ("", 1, "", "the file is empty"),
    ("# nothing but a comment\n", 1, "", "the file is empty"),
    ("---\n", 1, "", "the file is empty"),
    ("- name: j\n", 1, "", "must be a mapping"),
    ("just words\n", 1, "", "must be a mapping"),
    ("goal: {minimize: time}\n", 1, "name", "is missing"),
    ("name: j\n", 1, "goal", "is missing; allowed: {minimize: time | cost | knee, ...}"),
    ("name: j\ngoal:\n  budget: 5\n", 2, "goal.minimize", "is missing"),
    ("name: j\ngoal:\n  minimize: time\n  budget: 5 GBP\n", 4, "goal.budget", "US dollars only"),
    (
        "name: j\nresources:\n  instance_type:\n  - a\n  - a b\n",
        5,
        "resources.instance_type[1]",
        "is not a valid instance type",
    ),
    ("\n\nname: my job\ngoal: {minimize: time}", 3, "name", "did you mean 'my-job'"),
    ("name: 12\n", 1, "name", "write it as '12'"),
    ("name: ''\n", 1, "name", "is not a valid job name"),
    ("name: ../../etc\n", 1, "name", "did you mean 'etc'"),
    ("%YAML 3.0\n---\nname: j\n", 1, "", "not YAML"),
    ("x: " + "y" * 300_000, None, "", "too large"),
]


def refuse(text: str) -> SpecError:
    with pytest.raises(SpecError) as caught:
        parse(text)
    error = caught.value
    assert str(error).startswith("job.yaml:" if error.line is None else f"job.yaml:{error.line}:")
    assert "\n" not in str(error)
    assert len(str(error)) < 500
    assert error.exit_code == 2
    return error


@pytest.mark.parametrize(("text", "field", "fragment"), BAD_FIELDS, ids=lambda value: str(value)[:40])
def test_a_bad_field_is_named_with_its_line(text: str, field: str, fragment: str) -> None:
    error = refuse(MINIMAL + text)
    assert (error.line, error.field) == (3, field)
    assert fragment in str(error)


@pytest.mark.parametrize("text", [f"heterbo:{name}{rest}" for name in HeterBO.presets for rest in ("", ",prune=off")])
def test_a_preset_needs_no_value(text: str) -> None:
    assert plus(f"search: {{strategy: '{text}'}}").search.strategy == text


@pytest.mark.parametrize(("goal", "field", "fragment"), BAD_GOALS)
def test_a_bad_goal_is_named_with_its_line(goal: str, field: str, fragment: str) -> None:
    error = refuse(f"name: j\n# what we want\ngoal: {goal}\n")
    assert (error.line, error.field) == (3, field)
    assert fragment in str(error)


@pytest.mark.parametrize(("text", "line", "field", "fragment"), BAD_FILES, ids=lambda value: str(value)[:40])
def test_a_bad_file_is_named_with_its_line(text: str, line: int | None, field: str, fragment: str) -> None:
    error = refuse(text)
    assert (error.line, error.field) == (line, field)
    assert fragment in str(error)


def test_a_long_value_is_shown_in_part() -> None:
    error = refuse(MINIMAL + f"job: {{topology: {'x' * 1000}}}")
    assert "xxx..." in str(error)


@given(st.text(max_size=60))
def test_any_text_gives_a_job_or_a_spec_error(text: str) -> None:
    for whole in (text, MINIMAL + text, f"{MINIMAL}job: {{{text}}}"):
        with contextlib.suppress(SpecError):
            parse(whole)


# ---- files


def test_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(MINIMAL)
    assert read_train(file) == read_train(str(file)) == replace(parse(MINIMAL), file=str(file))


def test_a_missing_file_suggests_a_similar_name(tmp_path: Path) -> None:
    (tmp_path / "resnet.yaml").write_text(MINIMAL)
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(SpecError, match=r"resnt.yaml: there is no such file; did you mean '.*resnet.yaml'"):
        read_train(tmp_path / "resnt.yaml")
    for unlike in ("other.yaml", "nosuch.yaml", "x.yaml"):
        with pytest.raises(SpecError, match=r"there is no such file$"):
            read_train(tmp_path / unlike)
    with pytest.raises(SpecError, match=r"there is no such file$"):
        read_train(tmp_path / "nowhere" / "job.yaml")


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="is a directory"):
        read_train(tmp_path)
    with pytest.raises(SpecError, match="cannot be read: "):
        read_train(tmp_path / ("x" * 5000))
    with pytest.raises(SpecError, match="cannot be read: "):
        read_train("a\0b")
    file = tmp_path / "job.yaml"
    file.write_bytes(b"name: j\nrun: caf\xe9\n")
    with pytest.raises(SpecError, match=r"job.yaml:2: is not UTF-8 text \(got b'\\xe9'\)"):
        read_train(file)
    file.write_bytes(b" " * 300_000)
    with pytest.raises(SpecError, match="too large for a job file; allowed: at most 256 KiB"):
        read_train(file)


# ---- from Python


def test_a_mapping_is_a_job_too() -> None:
    spec = spec_from_mapping(
        {
            "name": "j",
            "resources": {"instance_type": ["a", "b"], "use_spot": None},
            "num_nodes": range(1, 4),
            "workdir": Path("src"),
            "job": {"samples": Decimal("4.5e6"), "epochs": Fraction(1, 2)},
            "goal": Goal(minimize=Objective.COST, deadline_seconds=90.5, budget=Usd(1)),
            "envs": {"A": "\x7f\ud800é\x01", "B": 1},
        },
    )
    assert spec.num_nodes is not None
    assert spec.num_nodes.default == (1, 2, 3)
    assert spec.job == Work(samples=4.5e6, epochs=0.5)
    assert spec.goal == Goal(minimize=Objective.COST, deadline_seconds=90.5, budget=Usd(1))
    assert spec.workdir == "src"
    assert parse_train(spec.source, file="") == replace(spec, source=spec.source)


def test_numpy_numbers_are_accepted() -> None:
    import numpy as np

    spec = spec_from_mapping(
        {"name": "j", "num_nodes": [np.int64(4)], "job": {"samples": np.float32(8)}, "goal": {"minimize": "time"}}
    )
    assert spec.num_nodes is not None
    assert spec.num_nodes.default == (4,)
    assert spec.job.samples == 8


@given(
    st.dictionaries(st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True), st.text(max_size=20), max_size=4),
    st.text(max_size=40),
    st.integers(min_value=1, max_value=10**18).map(float),
)
def test_the_source_of_a_mapping_reads_back(envs: dict[str, str], run: str, samples: float) -> None:
    job = {"name": "j", "goal": {"minimize": "time"}, "envs": envs, "run": run, "job": {"samples": samples}}
    spec = spec_from_mapping(job)
    assert parse_train(spec.source, file="") == spec


def deep() -> dict[str, Any]:
    loop: dict[str, Any] = {}
    loop["a"] = loop
    return loop


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ({"goal": {"minimize": "time"}}, "name: is missing"),
        ({"name": "j", "goal": {"minimize": "tim"}}, r"goal.minimize: .*did you mean 'time'"),
        ({"name": "j", "goal": {1: 2}}, r"goal: a field's name must be text \(got 1\)"),
        ({"name": "j", "goal": {"minimize": {"time"}}}, "goal.minimize: values of Python type set"),
        ({"name": "j", "goal": {"minimize": "time", "deadline": datetime(2020, 1, 1)}}, "its zone"),
        ({"name": "j", "goal": {"minimize": "time", "deadline": timedelta(0)}}, "more than 0 seconds"),
        ({"name": "j", "job": {"samples": "5"}}, "job.samples: must be a number"),
        ({"name": "j", "goal": {"minimize": "time"}, "resources": {"instance_type": [None]}}, "has no value"),
        ({"name": "j", "goal": Goal(minimize=Objective.TIME, deadline_seconds=1e30)}, "at most 3,650 days"),
        ({"name": "j", "goal": {"minimize": "time", "budget": 10**5000}}, "goal.budget: is too large a number"),
        (deep(), "nested deeper than 20"),
        (["a"], "must be a mapping"),
    ],
)
def test_a_bad_mapping_is_refused(job: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        spec_from_mapping(job)


def test_a_goal_is_a_mapping_a_text_or_itself() -> None:
    goal = Goal(minimize=Objective.TIME, budget=Usd.of(100), deadline_seconds=3600)
    assert parse_goal({"minimize": "time", "budget": "100 USD", "deadline": "1h"}) == goal
    assert parse_goal("{minimize: time, budget: 100 USD, deadline: 2026-11-01T13:00Z}", now=NOW) == goal
    assert parse_goal(goal) is goal
    assert parse_goal("knee") == Goal(minimize=Objective.KNEE)
    with pytest.raises(SpecError, match=r"goal.minimize: .*did you mean 'cost'"):
        parse_goal("cheapest")
    with pytest.raises(SpecError, match=r"goal.budget: .*more than \$0"):
        parse_goal({"minimize": "time", "budget": 0})
    with pytest.raises(SpecError, match="goal: has no value"):
        parse_goal("")


# ---- from the command line


def test_flags_override_the_values_of_the_file() -> None:
    spec = parse(MINIMAL)
    changed = with_overrides(
        spec, on="sim/gcp", budget="$5", deadline="2026-11-01T13:00Z", strategy="random:steps=9", parallel="4", now=NOW
    )
    assert changed.resources.infra == "sim/gcp"
    assert changed.goal == Goal(minimize=Objective.TIME, budget=Usd.of(5), deadline_seconds=3600)
    assert (changed.search.strategy, changed.search.parallel) == ("random:steps=9", 4)
    assert with_overrides(spec) == spec
    kept: dict[str, Any] = dict(changed.overrides)
    assert with_overrides(spec, **kept, now=NOW) == changed
    twice = with_overrides(changed, budget=0.00001, parallel=2)
    assert twice.goal.budget == Usd(10)
    assert dict(twice.overrides)["parallel"] == "2"


@pytest.mark.parametrize(
    ("flag", "value", "fragment"),
    [
        ("on", " ", "not blank"),
        ("budget", "-5", "not negative"),
        ("budget", "0", "more than $0"),
        ("budget", "5 EUR", "US dollars only"),
        ("budget", float("nan"), "not an amount of money"),
        ("deadline", "6", "needs a unit"),
        ("deadline", "2020-01-01T00:00Z", "in the past"),
        ("strategy", "a:b", "NAME:OPTION=VALUE"),
        ("parallel", 0, "at least 1"),
        ("parallel", "many", "whole number"),
        ("parallel", "", "has no value"),
    ],
)
def test_a_bad_flag_is_named(flag: str, value: Any, fragment: str) -> None:
    with pytest.raises(SpecError) as caught:
        with_overrides(parse(MINIMAL), **{flag: value})
    assert caught.value.field == f"--{flag}"
    assert str(caught.value).startswith(f"--{flag}: ")
    assert fragment in str(caught.value)


def test_a_flag_from_python_is_named_without_dashes() -> None:
    with pytest.raises(SpecError, match=r"^budget: ") as caught:
        with_overrides(parse(MINIMAL), budget="-5 USD", mark="")
    assert caught.value.field == "budget"


def test_fields_that_were_not_given_are_known() -> None:
    spec = parse(MINIMAL)
    assert spec.resources.instance_type is None
    assert spec.num_nodes is None
    assert "resources.instance_type" not in spec.places


def test_an_error_found_later_names_the_position() -> None:
    spec = plus("resources:\n  instance_type: [a,\n    b]\nnum_nodes: {default: 1, c*: 2}\njob: {samples: 1}\n")
    assert str(spec.error("resources.instance_type[1]", "no")) == "job.yaml:5: resources.instance_type[1]: no"
    assert str(spec.error("num_nodes['c*']", "no")) == "job.yaml:6: num_nodes['c*']: no"
    assert str(spec.error("job.model", "is missing")) == "job.yaml:7: job.model: is missing"
    assert str(spec.error("search.strategy", "no", value="x")) == "job.yaml: search.strategy: no (got 'x')"
    changed = with_overrides(spec, on="sim/x", deadline="6h")
    assert str(changed.error("resources.infra", "no")) == "--on: no"
    assert str(changed.error("goal.deadline", "no")) == "--deadline: no"
    mapped = spec_from_mapping({"name": "j", "goal": {"minimize": "time"}, "num_nodes": [1, 2]})
    assert str(mapped.error("goal.minimize", "no")) == "goal.minimize: no"
    assert set(mapped.places) == {"name", "goal", "goal.minimize", "num_nodes"}


# ---- the page

BLOCKS = re.findall(r"^```(\w+)([^\n]*)\n(.*?)^```$", DOCS.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    ("kind", "text"), [(info.strip(), text) for language, info, text in BLOCKS if language == "yaml"]
)
def test_every_example_on_the_page_is_a_job_file(kind: str, text: str) -> None:
    if kind == "fragment":
        text = "name: j\n" + ("" if text.startswith("goal:") else "goal: {minimize: time}\n") + text
    parse(text)


@pytest.mark.parametrize("text", [text for language, _, text in BLOCKS if language == "python"])
def test_the_python_examples_on_the_page_run(text: str) -> None:
    exec(compile(text, str(DOCS), "exec"), {})


def test_every_field_is_documented() -> None:
    from mlcd.spec.parse import RESOURCES, train_record

    page = DOCS.read_text()
    record = train_record()
    for place in record.places():
        assert (
            f"`{place.rpartition('.')[2]}`" in page
            or f"`{place.removeprefix('search.')}`" in page
            or place in ("search.trial", "search.spot")
        )
    for name in (*record.later, *RESOURCES.later):
        assert f"`{name}`" in page


def test_the_defaults_on_the_page_are_the_defaults() -> None:
    page = next(text for language, info, text in BLOCKS if language == "yaml" and "precision" in text)
    spec = parse(page)
    usual = TrialPolicy()
    assert spec.search.trial.over(usual) == usual
    assert replace(spec.search, noise=None, slowdown=None, trial=TrialRules()) == parse(MINIMAL).search
    assert spec.job == Work(model="resnet152", samples=50000, epochs=90)
