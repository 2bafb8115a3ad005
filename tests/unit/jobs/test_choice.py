"""What a job may choose from: types, node counts and clouds, and the place that is named when they do not fit."""

from dataclasses import replace
from pathlib import Path

import pytest

from mlcd.clouds.local import Local
from mlcd.errors import ProviderError, SpecError
from mlcd.jobs.prepared import Prepared
from mlcd.jobs.train import prepare
from mlcd.problem import Problem
from mlcd.space import Config
from mlcd.spec import TrainSpec, parse_train, template, with_overrides
from mlcd.units import Usd

HEAD = "name: j\ngoal: {minimize: time}\njob: {model: resnet152, samples: 1e6}\n"


@pytest.fixture(autouse=True)
def _no_catalog_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLCD_CATALOG", raising=False)


def parse(text: str) -> TrainSpec:
    return parse_train(HEAD + text, file="job.yaml")


def prepared(text: str) -> Prepared[Problem]:
    return prepare(parse(text))


def types(found: Prepared[Problem]) -> set[str]:
    return {config.instance for config in found.problem.space}


def refusal(text: str) -> SpecError:
    with pytest.raises(SpecError) as caught:
        prepare(parse(text))
    return caught.value


# ---- simulated clouds


def test_without_types_a_cloud_offers_its_own() -> None:
    assert types(prepared("")) == types(prepared("resources: {instance_type: [aws-gpu, aws-cpu]}"))
    gcp, azure = prepared("resources: {infra: sim/gcp}"), prepared("resources: {infra: sim/azure}")
    assert "a2-highgpu-1g" in types(gcp)
    assert "Standard_D4s_v5" in types(azure)
    assert len(gcp.problem.space) == 50 * len(types(gcp))


def test_spot_excludes_types_without_a_spot_market_with_a_note() -> None:
    found = prepared("resources: {instance_type: [c5.*, 'p3.*'], use_spot: true}")
    assert "c5.xlarge" in types(found)
    assert not any(name.startswith("p3") for name in types(found))
    assert found.notes == ("excluded, no spot market: p3.2xlarge, p3.8xlarge, p3.16xlarge",)
    assert "and " in prepared("resources: {instance_type: aws-62, use_spot: true}").notes[0]
    assert not any("spot" in note for note in prepared("").notes)


@pytest.mark.parametrize(
    ("chosen", "unfit", "why"),
    [
        ("aws-62", "t3.medium", "burstable: t3.medium, t3.large, t3.xlarge, t3.2xlarge"),
        ("aws-accelerators", "inf2.xlarge", "inference only: inf2.xlarge"),
        ("'*.xlarge'", "inf2.xlarge", "inference only: inf2.xlarge"),
    ],
)
def test_types_that_cannot_train_are_excluded_with_a_note(chosen: str, unfit: str, why: str) -> None:
    found = prepared(f"resources: {{instance_type: [{chosen}]}}\nnum_nodes: 1..2\n")
    assert unfit not in types(found)
    assert "c5.xlarge" in types(found) or "p3.2xlarge" in types(found)
    assert any(why in note for note in found.notes)
    named = prepared(f"resources: {{instance_type: [{chosen}, {unfit}]}}\nnum_nodes: 1..2\n")
    assert unfit in types(named)
    assert not any(f"{unfit}," in note or f"{unfit} " in note for note in named.notes)


@pytest.mark.parametrize("pattern", ["t3.*", "inf2.*", "t3.medium"])
def test_types_that_cannot_train_are_offered_where_a_pattern_is_for_them_alone(pattern: str) -> None:
    found = prepared(f"resources: {{instance_type: ['{pattern}']}}\nnum_nodes: 1..2\n")
    assert types(found)
    assert found.notes == ()


def test_spot_refuses_a_type_that_is_named() -> None:
    error = refusal("resources:\n  instance_type:\n  - c5.*\n  - p2.xlarge\n  use_spot: true\n")
    assert (error.file, error.line, error.field, error.value) == (
        "job.yaml",
        7,
        "resources.instance_type[1]",
        "p2.xlarge",
    )
    assert "has no spot market" in str(error)
    assert "use_spot: false" in error.allowed


def test_spot_refuses_when_nothing_is_left() -> None:
    error = refusal("resources: {instance_type: 'p3.*', use_spot: true}")
    assert (error.field, error.line) == ("resources.use_spot", 4)
    assert "p3.2xlarge" in str(error)


def test_the_template_works_with_spot() -> None:
    spec = parse_train(template().replace("use_spot: false", "use_spot: true"))
    found = prepare(spec)
    assert found.notes == ()
    plain = prepare(parse_train(template()))
    assert {"c7i.large", "g6.xlarge", "p4d.24xlarge"} < types(plain)
    assert types(plain) == types(found)


@pytest.mark.parametrize(
    ("text", "line", "field", "value", "says"),
    [
        (
            "resources: {instance_type: c5.xlrge}",
            4,
            "resources.instance_type",
            "c5.xlrge",
            ["unknown instance type of aws", "allowed: a name, a glob", "did you mean 'c5.xlarge'?"],
        ),
        ("resources:\n  instance_type: [c5.*, zz.*]", 5, "resources.instance_type[1]", "zz.*", ["of aws matches"]),
        (
            "resources: {infra: sim/gcp, instance_type: [aws-gpu]}",
            4,
            "resources.instance_type[0]",
            "aws-gpu",
            ["a named set of aws, not of gcp", "gcp-cpu", "did you mean 'gcp-gpu'?"],
        ),
        ("resources: {infra: sim/awz}", 4, "resources.infra", "sim/awz", ["did you mean 'sim/aws'?"]),
        ("search: {strategy: hetrbo}", 4, "search.strategy", None, ["did you mean 'heterbo'?"]),
        (
            "resources: {instance_type: c5.*}\nnum_nodes: {default: 1, 'c6*': 2}",
            5,
            "num_nodes['c6*']",
            "c6*",
            ["matches none", "c5.large", "did you mean 'c5.*'?"],
        ),
        ("num_nodes: 1..100000", 4, "num_nodes", None, ["14,700,000 configurations", "narrow", "at most 100,000"]),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(
    text: str, line: int, field: str, value: str | None, says: list[str]
) -> None:
    error = refusal(text)
    assert (error.file, error.line, error.field, error.value) == ("job.yaml", line, field, value)
    for part in says:
        assert part in str(error)


@pytest.mark.parametrize(
    ("job", "field", "says"),
    [
        ("{samples: 5}", "job.model", ["needs a model", "resnet152"]),
        ("{samples: 5, model: resnet50}", "job.model", ["(got 'resnet50')", "did you mean 'resnet152'?"]),
        ("{samples: 5, model: BERT}", "job.model", ["did you mean 'bert-large'?"]),
        ("{model: bert}", "job.samples", ["missing", "more than 0"]),
        ("{model: bert, samples: 5, workload: als}", "job.workload", ["replay/FOLDER", "(got 'als')"]),
        ("{model: bert, samples: 5, hours: 6}", "job.hours", ["replay/FOLDER"]),
    ],
)
def test_what_a_simulated_job_needs(job: str, field: str, says: list[str]) -> None:
    with pytest.raises(SpecError) as caught:
        prepare(parse_train(f"name: j\ngoal: {{minimize: time}}\njob: {job}\n", file="job.yaml"))
    assert (caught.value.file, caught.value.line, caught.value.field) == ("job.yaml", 3, field)
    for part in says:
        assert part in str(caught.value)


def test_every_node_needs_a_sample_of_the_batch() -> None:
    error = refusal("resources: {instance_type: c5.xlarge}\nnum_nodes: 513..600")
    assert (error.line, error.field, error.value) == (3, "job.batch", 512)
    assert "num_nodes of at most 512" in str(error)
    assert len(prepared("resources: {instance_type: c5.xlarge}\nnum_nodes: 511..513").problem.space) == 3


# ---- where


@pytest.mark.parametrize(
    ("on", "says"),
    [
        ("amazon", ["there is no such cloud", "did you mean 'aws'?"]),
        ("eks", ["did you mean 'kubernetes'?"]),
        ("foo", ["there is no such cloud", "allowed: sim/aws, sim/azure, sim/gcp, replay/FOLDER"]),
        ("sim", ["sim/CLOUD"]),
        ("sim/", ["sim/CLOUD"]),
        ("replay", ["name the folder", "replay/FOLDER"]),
        ("replay/", ["name the folder", "docs/replay.md"]),
        ("Sim/AWS", ["did you mean 'sim/aws'?"]),
        ("sim-gcp", ["did you mean 'sim/gcp'?"]),
        ("replya/tables", ["did you mean 'replay/tables'?"]),
        ("slrum", ["did you mean 'slurm'?"]),
        ("replay/nowhere", ["no such folder", "docs/replay.md"]),
    ],
)
def test_a_mistaken_cloud_is_bad_input(on: str, says: list[str]) -> None:
    with pytest.raises(SpecError) as caught:
        prepare(with_overrides(parse(""), on=on))
    assert str(caught.value).startswith("--on: ")
    for part in (*says, repr(on)):
        assert part in str(caught.value)


def test_a_function_cloud_is_a_provider_error() -> None:
    with pytest.raises(ProviderError, match="`mlcd serverless`"):
        prepare(with_overrides(parse(""), on="lithops/localhost"))


# ---- measured tables

ROWS = "".join(f"{name},{n},{1000 / n}\n" for name in ("c4.large", "c4.xlarge", "m4.large") for n in (4, 8, 16))


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "t"
    folder.mkdir()
    (folder / "instances.csv").write_text(
        "instance,vcpus,memory_gib,usd_per_hour\nc4.large,2,4,0.1\nc4.xlarge,4,8,0.2\nm4.large,2,8,0.1\n"
    )
    (folder / "als.csv").write_text(f"instance,nodes,seconds\n{ROWS}m4.large,32,40\n")
    return folder


def replay(text: str, job: str = "{workload: als}", resources: str = "") -> Prepared[Problem]:
    head = f"name: j\ngoal: {{minimize: time}}\njob: {job}\nresources: {{infra: replay/t{resources}}}\n"
    return prepare(parse_train(head + text, file="job.yaml"))


def rows(found: Prepared[Problem]) -> list[str]:
    return [str(config) for config in found.problem.space]


@pytest.mark.usefixtures("table")
def test_a_replayed_job_may_choose_from_all_that_was_measured() -> None:
    found = replay("")
    assert len(found.problem.space) == 10
    assert found.cloud == "replay/t"


@pytest.mark.usefixtures("table")
def test_a_replayed_job_keeps_to_the_types_and_counts_it_names() -> None:
    assert rows(replay("num_nodes: [1, 8, 9]", resources=", instance_type: ['c4.*']")) == [
        "8 x c4.large",
        "8 x c4.xlarge",
    ]
    assert rows(replay("", resources=", instance_type: m4.large"))[-1] == "32 x m4.large"
    by_glob = replay("num_nodes: {default: 4, c4.*: 8..16}", resources=", instance_type: [m4.large, c4.xlarge]")
    assert rows(by_glob) == ["8 x c4.xlarge", "16 x c4.xlarge", "4 x m4.large"]
    assert len(rows(replay("", resources=", instance_type: aws-paper"))) == 10
    left_out = replay("num_nodes: 32")
    assert rows(left_out) == ["32 x m4.large"]
    assert left_out.notes == ("excluded, never measured on these node counts: c4.large, c4.xlarge",)


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(
    ("text", "job", "resources", "line", "field", "says"),
    [
        ("", "{workload: als}", ", instance_type: [c4.large, c4.lrge]", 4, "resources.instance_type[1]", "'c4.large'?"),
        ("", "{workload: als}", ", instance_type: p3.*", 4, "resources.instance_type", "measured on"),
        ("", "{workload: als}", ", use_spot: true", 4, "resources.use_spot", "no spot prices"),
        ("num_nodes: 1..3", "{workload: als}", "", 5, "num_nodes", "allowed: 4, 8, 16, 32"),
        ("num_nodes: {default: 4, c5.*: 8}", "{workload: als}", "", 5, "num_nodes['c5.*']", "did you mean 'c4.*'?"),
        ("", "{workload: asl}", "", 3, "job.workload", "(got 'asl'); allowed: als; did you mean 'als'?"),
        ("", "{hours: 2}", "", 3, "job.workload", "is missing, and t has no workload 'j'; allowed: als"),
    ],
)
def test_what_a_table_does_not_have_is_named_with_its_place(
    text: str, job: str, resources: str, line: int, field: str, says: str
) -> None:
    with pytest.raises(SpecError) as caught:
        replay(text, job, resources)
    assert (caught.value.file, caught.value.line, caught.value.field) == ("job.yaml", line, field)
    assert says in str(caught.value)


# ---- real nodes


def test_the_users_price_of_a_real_node_counts_more_than_the_clouds(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Local.offer
    spot = Usd.of("0.01")
    monkeypatch.setattr(Local, "offer", lambda self: tuple(replace(i, spot_usd_per_hour=spot) for i in plain(self)))
    job = 'name: x\nrun: "true"\njob: {samples: 9}\ngoal: {minimize: time}\nresources: {infra: local, use_spot: true'
    one = Config.deployment("local.1", 1)
    assert prepare(parse_train(job + "}\n")).problem.price(one) == spot
    assert prepare(parse_train(job + ", prices: {local.1: 3 USD}}\n")).problem.price(one) == Usd.of(3)
