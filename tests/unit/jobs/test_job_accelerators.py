"""`resources.accelerators` narrows what a job may choose from, on simulated and on real clouds."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from mlcd.catalog import Instance, load_catalog
from mlcd.errors import SpecError
from mlcd.jobs.real import types_and_counts
from mlcd.jobs.train import prepare
from mlcd.spec import parse_train, with_overrides

JOB = "name: j\njob: {model: resnet152, samples: 50000}\ngoal: {minimize: time}\nnum_nodes: 1..2\n"


@pytest.fixture(autouse=True)
def _no_catalog_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLCD_CATALOG", raising=False)


def simulated(resources: str) -> set[str]:
    prepared = prepare(parse_train(f"{JOB}resources: {resources}\n", file="job.yaml"))
    return {config.instance for config in prepared.problem.space}


@pytest.mark.parametrize(
    ("resources", "types"),
    [
        ("{accelerators: H100:8}", {"p5.48xlarge"}),
        ("{accelerators: [H100:8, H200]}", {"p5.48xlarge", "p5en.48xlarge"}),
        ("{accelerators: {H100: 1, B200: null}}", {"p5.4xlarge", "p6-b200.48xlarge"}),
        (
            "{accelerators: {L40S: 8, A10G: 2..4, H100: [1, 8]}}",
            {"g6e.48xlarge", "g5.12xlarge", "g5.24xlarge", "p5.48xlarge", "p5.4xlarge"},
        ),
        ("{accelerators: 'V100:1'}", {"p3.2xlarge"}),  # also what is not of today, where it is named
        ("{infra: sim/gcp, accelerators: L4:8}", {"g2-standard-96"}),
        ("{instance_type: 'g*.48xlarge', accelerators: [L4, L40S]}", {"g6.48xlarge", "g6e.48xlarge"}),
    ],
)
def test_only_types_with_the_accelerator_may_be_chosen(resources: str, types: set[str]) -> None:
    assert simulated(resources) == types


@pytest.mark.parametrize(
    ("resources", "field_name", "says"),
    [
        ("{accelerators: H100:3}", "resources.accelerators", "did you mean 'H100:1'?"),
        ("{accelerators: [L4, H101:8]}", "resources.accelerators[1]", "did you mean 'H100:8'?"),
        ("{instance_type: c5.*, accelerators: L4}", "resources.accelerators", "among resources.instance_type"),
        ("{accelerators: []}", "resources.accelerators", "must not be empty"),
        ("{accelerators: 8}", "resources.accelerators", "is a number (got 8)"),
        ("{accelerators: 'H100:0'}", "resources.accelerators", "is not an accelerator"),
        ("{accelerators: {H100: 0}}", "resources.accelerators.H100", "out of range"),
        ("{accelerators: {L4: 1, H100: 2..4}}", "resources.accelerators.H100", "has this accelerator (got 'H100:2')"),
        ("{accelerators: {H100: 4..2}}", "resources.accelerators.H100", "is an empty range"),
        ("{accelerators: [L4, L4]}", "resources.accelerators[1]", "given twice"),
    ],
)
def test_a_wrong_accelerator_names_the_field_and_the_fix(resources: str, field_name: str, says: str) -> None:
    with pytest.raises(SpecError) as caught:
        simulated(resources)
    assert caught.value.field == field_name
    assert (caught.value.file, caught.value.line) == ("job.yaml", 5)
    assert says in str(caught.value)


# ---- real clouds


@dataclass(frozen=True)
class Offered:
    name: str
    instances: tuple[Instance, ...]
    notes: tuple[str, ...] = field(default=())

    def offer(self) -> tuple[Instance, ...]:
        return self.instances

    def most_nodes(self, instance: str) -> int | None:
        return None


def real(resources: str, offered: tuple[Instance, ...], **overrides: Any) -> tuple[set[str], tuple[str, ...]]:
    spec = parse_train(f"name: j\nrun: python t.py\ngoal: {{minimize: time}}\nresources: {resources}\n")
    kept, _, notes = types_and_counts(with_overrides(spec, **overrides), Offered("x", offered))
    return {i.name for i in kept}, notes


def of(cloud: str) -> tuple[Instance, ...]:
    return tuple(load_catalog().for_cloud(cloud).values())


def test_a_real_cloud_takes_named_sets_and_accelerators() -> None:
    sets = load_catalog().sets
    assert real("{infra: aws, instance_type: aws-gpu}", of("aws"))[0] == set(sets["aws-gpu"])
    assert real("{infra: aws, accelerators: H100:8}", of("aws"))[0] == {"p5.48xlarge"}
    with pytest.raises(SpecError, match="has no such type"):
        real("{infra: aws, instance_type: gcp-gpu}", of("aws"))
    with pytest.raises(SpecError, match=r"did you mean 'H100:1'\?"):
        real("{infra: aws, accelerators: H100:3}", of("aws"))


def test_a_real_cloud_offers_the_current_types_by_default() -> None:
    sets = load_catalog().sets
    assert real("{infra: aws}", of("aws"))[0] == {*sets["aws-gpu"], *sets["aws-cpu"]}


def test_own_machines_are_all_offered() -> None:
    lab = tuple(
        Instance(cloud="slurm", name=name, vcpus=8, memory_gib=32, network_gbps=10, usd_per_hour=i.usd_per_hour)
        for name, i in zip(("a", "b"), of("aws"), strict=False)
    )
    assert real("{infra: slurm}", lab)[0] == {"a", "b"}
    kept, notes = real("{infra: aws, accelerators: H100:8}", lab, on="local")
    assert kept == {"a", "b"}
    assert any("resources.accelerators is ignored" in note for note in notes)
    with pytest.raises(SpecError, match=r"leave resources\.accelerators out"):
        real("{infra: slurm, accelerators: H100:8}", lab)
