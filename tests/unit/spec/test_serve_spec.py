"""The job file of `mlcd serve`: what it reads and what it refuses."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mlcd.errors import SpecError
from mlcd.goal import Objective, Slo
from mlcd.loadgen.plan import Scenario
from mlcd.spec.record import FieldTable
from mlcd.spec.serve import ServeSpec
from mlcd.spec.serving import model_record, parse_serve, read_serve, serve_mapping, server_record, with_flags
from mlcd.units import Usd

WHOLE = """\
name: resnet50
model: resnet50.onnx
resources: {infra: local, prices: {local.2: 0.20 USD}}
knobs: {batch: [1, 4, 16, 64], threads: 1..2, replicas: 1..2, precision: [fp32, int8]}
sizes: {sequence: 128}
load: {scenario: server, rate: 200, headroom: 0.2, verify: 30s}
goal: {maximize: requests per dollar, slo: {p99: 50ms}, budget: 1 USD, deadline: 20min}
search: {strategy: "falcon:threshold=0.8", max_trials: 6, noise: 0.1, trial: {seconds: 20s, watchdog: 10, retries: 0}}
"""
SHORT = "name: a\nmodel: a.onnx\n"


def test_every_field_of_the_job_file() -> None:
    spec = parse_serve(WHOLE)
    assert (spec.name, spec.model, spec.sizes) == ("resnet50", "resnet50.onnx", {"sequence": 128})
    assert spec.resources.prices == {"local.2": Usd.of("0.2")}
    assert spec.knobs.batch == (1, 4, 16, 64)
    assert (spec.knobs.threads, spec.knobs.replicas) == ((1, 2), (1, 2))
    assert spec.knobs.precision == ("fp32", "int8")
    assert spec.scenario is Scenario.SERVER
    assert (spec.load.headroom, spec.load.verify_seconds) == (0.2, 30.0)
    assert spec.goal.minimize is Objective.COST
    assert spec.goal.slo == Slo(seconds=0.05, percentile=99)
    assert spec.goal.rate == 200
    assert spec.goal.budget == Usd.of(1)
    assert spec.goal.deadline_seconds == 1200
    assert spec.search.strategy == "falcon:threshold=0.8"
    assert dict(spec.search.trial.given) == {"seconds": 20.0, "watchdog_seconds": 10.0, "retries": 0}


def test_the_three_goals() -> None:
    assert parse_serve(SHORT + "goal: {maximize: rate}").goal.minimize is Objective.TIME
    assert parse_serve(SHORT + "goal: {maximize: requests per dollar}").goal.minimize is Objective.COST
    cheapest = parse_serve(SHORT + "goal: {minimize: cost, rate: 500/s, slo: {p95: 0.1s}}").goal
    assert (cheapest.minimize, cheapest.rate) == (Objective.COST, 500)
    assert cheapest.slo == Slo(seconds=0.1, percentile=95)


def test_without_a_latency_limit_the_load_is_offline() -> None:
    assert parse_serve(SHORT + "goal: {maximize: rate}").scenario is Scenario.OFFLINE
    assert parse_serve(SHORT + "goal: {maximize: rate, slo: {p50: 5 ms}}").scenario is Scenario.SERVER


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("goal: {maximize: throughput}", r"job.yaml:3: goal.maximize: is not one of .* did you mean 'rate'\?"),
        ("goal: {minimize: cost}", r"job.yaml:3: goal: minimize: cost needs the rate"),
        ("goal: {slo: {p99: 5ms}}", r"job.yaml:3: goal: has neither maximize nor minimize"),
        ("goal: {maximize: rate, minimize: cost, rate: 5}", r"goal: has both"),
        ("goal: {maximize: rate, rate: 5}", r"goal.rate: cannot be given when it is maximized"),
        ("goal: {maximize: rate, slo: {p98: 5ms}}", r"goal.slo.p98: is not a percentile .* allowed: {p99: 50ms}"),
        ("goal: {maximize: rate, slo: {p99: 50}}", r"goal.slo.p99: a latency needs a unit .* did you mean '50ms'\?"),
        ("goal: {maximize: rate, slo: {p99: fast}}", r"goal.slo.p99: is not a latency"),
        ("goal: {maximize: rate, slo: {p99: 0ms}}", r"goal.slo.p99: is out of range"),
        ("goal: {maximize: rate, slo: {p99: 5ms, p50: 1ms}}", r"goal.slo: must have exactly one percentile"),
        ("goal: {minimize: cost, rate: lots}", r"goal.rate: is not a rate .* allowed: requests per second"),
        ("goal: {minimize: cost, rate: 1e-300}", r"goal.rate: is out of range"),
        ("goal: {maximize: rate}\nknobs: {batch: [0]}", r"job.yaml:4: knobs.batch\[?0?\]?: is out of range"),
        ("goal: {maximize: rate}\nknobs: {batch: []}", r"knobs.batch: gives no values to choose from"),
        ("goal: {maximize: rate}\nknobs: {threads: 2..1}", r"knobs.threads: is an empty range .* '1..2'"),
        ("goal: {maximize: rate}\nknobs: {batch: [4, 4]}", r"knobs.batch\[1\]: is given twice"),
        (
            "goal: {maximize: rate}\nknobs: {precision: half}",
            r"knobs.precision: .* fp32, int8, .*; did you mean 'fp16'",
        ),
        ("goal: {maximize: rate}\nknobs: {batches: 4}", r"knobs.batches: unknown field; .* did you mean 'batch'\?"),
        ("goal: {maximize: rate}\nknobs: {memory: 4}", r"knobs.memory: not supported yet; replicas that do not fit"),
        ("goal: {maximize: rate}\nload: {scenario: poisson}", r"load.scenario: .* did you mean 'server'\?"),
        ("goal: {maximize: rate}\nload: {scenario: server}", r"job.yaml:4: load.scenario: looks for the highest rate"),
        ("goal: {maximize: rate}\nload: {rate: 5}", r"load.rate: conflicts with goal.maximize: rate"),
        ("goal: {minimize: cost, rate: 5}\nload: {rate: 6}", r"load.rate: differs from goal.rate, which is 5/s"),
        ("goal: {maximize: rate}\nload: {from: nod}", r"load.from: is not one of .*here, node; did you mean 'node'"),
        ("goal: {maximize: rate}\nload: {from: remote}", r"load.from: is not one of .* did you mean 'node'"),
        (
            "goal: {maximize: rate}\nload: {from: node}",
            r"load.from: is for leased nodes, .*allowed: here, or resources",
        ),
        ("goal: {maximize: rate}\nload: {headroom: 1}", r"load.headroom: is out of range"),
        (
            "goal: {maximize: rate}\nsearch: {parallel: 2}",
            r"search.parallel: not supported yet; parallel load tests",
        ),
        ("goal: {maximize: rate}\nsizes: {length: 0}", r"sizes.length: is out of range"),
        ("goal: {maximize: rate}\nnum_nodes: 4", r"num_nodes: not supported yet; write resources: {replicas: 1..3}"),
        ("", r"job.yaml:1: goal: is missing; allowed: {maximize: requests per dollar"),
    ],
)
def test_mistakes_name_line_field_and_fix(lines: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parse_serve(SHORT + lines)


def test_the_model_must_be_named() -> None:
    with pytest.raises(SpecError, match=r"model: is missing; allowed: a file such as"):
        parse_serve("name: a\ngoal: {maximize: rate}")
    with pytest.raises(SpecError, match=r"the file is empty; allowed: a job file"):
        parse_serve("")


def test_flags_override_the_values_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(WHOLE)
    spec = with_flags(read_serve(file), {"slo": "p95=20ms", "trials": "3", "strategy": "random", "budget": None})
    assert spec.goal.slo == Slo(seconds=0.02, percentile=95)
    assert (spec.search.max_trials, spec.search.strategy) == (3, "random")
    assert spec.goal.budget == Usd.of(1)
    assert spec.file == str(file)
    assert parse_serve(spec.source, file=str(file), flags=dict(spec.overrides)) == spec


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"slo": "50ms"}, r"^--slo: is not a latency limit \(got '50ms'\); allowed: p99=50ms"),
        ({"slo": "p99=50"}, r"^--slo: a latency needs a unit"),
        ({"slo": "p90=50ms"}, r"^--slo: is not a percentile"),
        ({"trials": "many"}, r"^--trials: must be a whole number"),
        ({"trials": "0"}, r"^--trials: is out of range"),
        ({"rate": "-3"}, r"^--rate: is not a rate"),
        ({"maximize": "speed"}, r"^--maximize: is not one of the choices"),
        ({"budget": "3 EUR"}, r"^--budget: money is in US dollars only"),
        ({"strategy": "Falcon!"}, r"^--strategy: is not a strategy"),
    ],
)
def test_mistakes_on_the_command_line_name_the_flag(flags: dict[str, str | None], message: str) -> None:
    spec = serve_mapping({"name": "a", "model": "a.onnx", "goal": {"maximize": "requests per dollar"}})
    with pytest.raises(SpecError, match=message):
        with_flags(spec, flags)


def test_errors_found_later_name_the_line_or_flag() -> None:
    spec = parse_serve(WHOLE)
    assert str(spec.error("search.strategy", "no")).startswith("job.yaml:8: search.strategy: no")
    assert str(spec.error("knobs.none", "no")).startswith("job.yaml:4: knobs.none: no")
    assert str(with_flags(spec, {"on": "mars"}).error("resources.infra", "no")).startswith("--on: no")


def test_a_deadline_counts_from_the_moment_that_is_given() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    spec = parse_serve(SHORT + "goal: {maximize: rate, deadline: 2026-01-01T01:00Z}", now=now)
    assert spec.goal.deadline_seconds == 3600


def test_the_jobs_in_the_docs_and_examples_are_valid() -> None:
    root = Path(__file__).resolve().parents[3]
    blocks = re.findall(r"```yaml serve\n(.*?)```", (root / "docs" / "serve.md").read_text(encoding="utf-8"), re.S)
    assert len(blocks) >= 6
    for block in blocks:
        assert parse_serve(block).goal
    for file in (root / "examples" / "serve").glob("*.yaml"):
        assert read_serve(file).model == "digits-mlp.onnx"


@pytest.mark.parametrize(("page", "record"), [("serve", model_record), ("language-models", server_record)])
def test_every_field_is_documented(page: str, record: Callable[[None], FieldTable[ServeSpec]]) -> None:
    text = (Path(__file__).resolve().parents[3] / "docs" / f"{page}.md").read_text(encoding="utf-8")
    own = {place for place in record(None).places() if not place.startswith("search.")}
    shared = set(record(None).places()) - own if page == "serve" else set()  # the other page refers to this one
    sections = own | shared | {"goal.slo"}
    for place in sections - {"resources", "knobs", "load", "goal", "search", "search.trial", "server"}:
        name = place.rpartition(".")[2]
        assert f"`{name}`" in text or f"{name}`" in text or f"`{name}:" in text, place


@pytest.mark.parametrize(("written", "seconds"), [("0", 0.0), ("45s", 45.0), ("2min", 120.0), ("1m30s", 90.0)])
def test_how_long_the_choice_is_verified(written: str, seconds: float) -> None:
    spec = parse_serve(f"{SHORT}goal: {{maximize: rate}}\nload: {{verify: {written}}}\n")
    assert spec.load.verify_seconds == seconds


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("10", "load.verify: has no unit (got 10); allowed: such as 10s, or 0 for none"),
        ("soon", "load.verify: is not a duration (got 'soon'); allowed: a number with a unit, such as 20s or 2min"),
        ("2d", "load.verify: is out of range (got '2d')"),
        ("true", "load.verify: must be"),
    ],
)
def test_a_verification_needs_a_duration(written: str, says: str) -> None:
    with pytest.raises(SpecError, match=re.escape(says)):
        parse_serve(f"{SHORT}goal: {{maximize: rate}}\nload: {{verify: {written}}}\n")
