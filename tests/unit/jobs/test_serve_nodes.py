"""Serving on leased nodes: what a job file may say, the space and prices that follow, and one line for each mistake."""

from pathlib import Path
from typing import Any

import pytest
from tests.tiny_onnx import write_mlp

from mlcd.catalog import Instance
from mlcd.errors import SpecError
from mlcd.jobs import serve_nodes
from mlcd.jobs.serve import PreparedServing, prepare
from mlcd.jobs.serve_nodes import NODE_START_STOP_SECONDS, NODE_TRIAL
from mlcd.search.serving.per_replica import PerReplica
from mlcd.spec.serving import serve_mapping
from mlcd.units import Usd


class Cluster:
    """Two types: one that has room for a small model only, and four of which can be had."""

    name, noise = "minicloud", 0.07

    def offer(self) -> tuple[Instance, ...]:
        common: dict[str, Any] = {"cloud": "minicloud", "network_gbps": 1.0}
        return (
            Instance(name="tiny", vcpus=0.5, memory_gib=1e-6, usd_per_hour=Usd.of("1"), **common),
            Instance(name="big", vcpus=4, memory_gib=16, usd_per_hour=Usd.of("3"), **common),
        )

    def most_nodes(self, instance: str) -> int:
        return 4


@pytest.fixture(autouse=True)
def _cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_nodes, "engine_for", lambda *_: Cluster())


def prepared(tmp_path: Path, resources: dict[str, Any], **changes: Any) -> PreparedServing:
    fields = {
        "name": "m",
        "model": str(write_mlp(tmp_path / "m.onnx")),
        "resources": {"infra": "minicloud", **resources},
        "knobs": {"batch": [1, 8], "precision": "fp32"},
        "goal": {"minimize": "cost", "rate": "100/s"},
    }
    return prepare(serve_mapping({**fields, **changes}), folder=tmp_path / "home")


def test_types_settings_and_nodes_with_the_price_of_all_nodes(tmp_path: Path) -> None:
    found = prepared(tmp_path, {"replicas": "1..3", "prices": {"big": "5 USD"}})
    space = found.problem.space
    assert {knob.name: knob.values for knob in space.knobs}["instance"] == ("big",)
    assert any("too small for this model" in note and "tiny" in note for note in found.notes)
    pairs = {(c["threads"], c["replicas"]) for c in space}
    assert pairs == {(t, r) for t in range(1, 5) for r in range(1, 5) if t * r <= 4}
    assert {c.nodes for c in space} == {1, 2, 3}
    assert all(found.problem.price(c) == Usd.of("5") * c.nodes for c in space)
    assert found.problem.scales_out
    assert found.problem.noise == Cluster.noise
    assert found.problem.trial == NODE_TRIAL
    assert found.problem.verify_seconds == pytest.approx(60 / 0.9 + NODE_START_STOP_SECONDS)
    assert isinstance(found.decider.strategy, PerReplica)  # type: ignore[attr-defined]
    assert (found.cloud, found.charged, found.strategy) == ("minicloud", False, "heterbo")


def test_a_server_that_starts_slowly_has_as_much_time_in_its_verification(tmp_path: Path) -> None:
    slow = prepared(tmp_path, {}, search={"trial": {"seconds": "600s"}})
    assert slow.problem.verify_seconds == pytest.approx(60 / 0.9 + 600)
    here = prepared(tmp_path, {"infra": "local"}, search={"trial": {"seconds": "300s"}})
    assert here.problem.verify_seconds == pytest.approx(60 / 0.9 + 300)


def test_every_number_can_be_measured(tmp_path: Path) -> None:
    found = prepared(tmp_path, {"replicas": "1..3"}, search={"every_replica": True})
    assert not found.problem.scales_out
    assert not isinstance(found.decider.strategy, PerReplica)  # type: ignore[attr-defined]


def test_without_a_rate_one_server_says_it_all(tmp_path: Path) -> None:
    found = prepared(tmp_path, {"replicas": "2..3"}, goal={"maximize": "requests per dollar"})
    assert {c.nodes for c in found.problem.space} == {2}
    assert any("do not depend on the replicas: 2 is used" in note for note in found.notes)
    assert {c.nodes for c in prepared(tmp_path, {"replicas": "1..3"}, goal={"maximize": "rate"}).problem.space} == {
        1,
        2,
        3,
    }


def test_the_knobs_of_a_command_are_its_settings(tmp_path: Path) -> None:
    fields = {
        "name": "m",
        "server": {"run": "serve $PORT $SEQS", "name": "m"},
        "resources": {"infra": "minicloud", "replicas": 2},
        "knobs": {"SEQS": [1, 4]},
        "goal": {"maximize": "tokens per dollar"},
    }
    found = prepare(serve_mapping(fields), folder=tmp_path / "home")
    assert [knob.name for knob in found.problem.space.knobs] == ["instance", "nodes", "SEQS"]
    assert len(found.problem.space) == 4
    other = {**fields, "server": {"run": "s $PORT $nodes", "name": "m"}, "knobs": {"nodes": [1, 2]}}
    with pytest.raises(SpecError, match=r"knobs\.nodes: is chosen by mlcd on leased nodes"):
        prepare(serve_mapping(other))


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ({"infra": "aws"}, r"resources.infra: mlcd serves no models there .*allowed: local, minicloud, slurm$"),
        ({"infra": "minicluod"}, r"resources.infra: .*did you mean 'minicloud'"),
        ({"infra": "minicloud/x"}, r"resources.infra: mlcd serves no models there"),
        ({"replicas": 0}, r"resources.replicas: is out of range \(got 0\)"),
        ({"replicas": "0..2"}, r"resources.replicas: is out of range"),
        ({"replicas": 5}, r"resources.replicas: minicloud has no room for this many nodes of any type"),
        ({"instance_type": "bigg"}, r"resources.instance_type: minicloud has no such type .*did you mean 'big'"),
        ({"instance_type": "tiny"}, r"knobs: no type has the processors"),
        ({"accelerators": "A100"}, r"resources.accelerators: no instance type of minicloud has this accelerator"),
        ({"infra": "local", "replicas": 2}, r"resources.replicas: is for leased nodes"),
        ({"infra": "local", "instance_type": "big"}, r"resources.instance_type: is for leased nodes"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, resources: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        prepared(tmp_path, resources)
    assert "\n" not in str(caught.value)
