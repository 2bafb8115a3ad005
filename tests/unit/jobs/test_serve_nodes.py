"""Serving on leased nodes: what a job file may say, the space and prices that follow, and one line for each mistake."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.tiny_onnx import write_mlp

from mlcd.catalog import Instance, load_catalog
from mlcd.clouds.serving import CommandServing
from mlcd.clouds.skypilot import SkyPilotEngine
from mlcd.errors import SpecError
from mlcd.jobs import serve_nodes
from mlcd.jobs.real import engine_for
from mlcd.jobs.serve import PreparedServing, prepare
from mlcd.jobs.serve_nodes import (
    LOAD_NODE_NOTE,
    NODE_START_STOP_SECONDS,
    NODE_TRIAL,
    RENTED_START_STOP_SECONDS,
    RENTED_TRIAL,
)
from mlcd.search.serving.per_replica import PerReplica
from mlcd.space import UNSET, Config
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


def test_what_the_budget_cannot_verify_is_told_before_it_is_spent(tmp_path: Path) -> None:
    """At $3 an hour, a load test takes at most 105 s and $0.09, a verification 187 s and $0.16 of each node."""
    goal = {"minimize": "cost", "rate": "100/s"}
    note = "goal.budget of $0.5000 covers one load test and the verification of at most 2 x big"
    found = prepared(tmp_path, {"replicas": "1..4"}, goal={**goal, "budget": "0.5 USD"})
    assert note in found.notes
    rich = prepared(tmp_path, {"replicas": "1..4"}, goal={**goal, "budget": "1 USD"})
    assert not any(
        "verification of at most" in each for each in (*rich.notes, *prepared(tmp_path, {}, goal=goal).notes)
    )


def test_a_node_that_sends_the_load_is_part_of_every_lease_and_of_no_request(tmp_path: Path) -> None:
    found = prepared(tmp_path, {"replicas": "1..4"}, load={"from": "node"})
    problem = found.problem
    assert {c.nodes for c in problem.space} == {1, 2, 3}  # of the four that there are, one sends the load
    assert any("room for at most 3 x big beside the node that sends the load" in note for note in found.notes)
    assert LOAD_NODE_NOTE in found.notes
    for config in problem.space:
        assert problem.price(config) == Usd.of("3") * config.nodes
        assert problem.lease_price(config) == Usd.of("3") * (config.nodes + 1)
    index = problem.space.index[next(c for c in problem.space if c.nodes == 1)]
    assert problem.worst_trial_micros[index] == Usd.of("6").for_seconds(problem.worst_trial_seconds[index]).micros
    assert problem.verification_micros[index] == Usd.of("6").for_seconds(problem.verify_seconds or 0).micros
    usual = prepared(tmp_path, {"replicas": "1..4"}, load={"from": "here"}).problem
    assert all(usual.lease_price(config) == usual.price(config) for config in usual.space)
    with pytest.raises(SpecError, match="no room for this many nodes of any type beside the node that sends the load"):
        prepared(tmp_path, {"replicas": 4}, load={"from": "node"})


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
    with pytest.raises(SpecError, match=r"knobs\.nodes: is a word for what mlcd chooses itself.*did you mean 'NODES'"):
        prepare(serve_mapping(other))


SPREAD: dict[str, Any] = {
    "name": "m",
    "server": {"run": "serve $PORT $NODE_RANK $SEQS $LAYERS", "name": "m", "nodes": 2},
    "resources": {"infra": "minicloud", "replicas": "1..3"},
    "knobs": {"SEQS": [1, 4], "LAYERS": {"values": [10, 16, 22], "per": "node"}},
    "goal": {"maximize": "rate"},
}


def test_a_server_over_two_nodes_and_a_knob_of_each(tmp_path: Path) -> None:
    found = prepare(serve_mapping(SPREAD), folder=tmp_path / "home")
    space = found.problem.space
    assert {c.nodes for c in space} == {2, 4}  # of three servers of two nodes, four nodes are enough for two
    assert any("room for at most 4 x big" in note for note in found.notes)
    assert "each server has 2 nodes: nodes / 2 is the number of servers" in found.notes
    assert [knob.name for knob in space.knobs] == ["instance", "nodes", "SEQS", "LAYERS_0", "LAYERS_1"]
    assert len(space) == 2 * 2 * 2 * 3 * 3
    config = next(c for c in space if (c.nodes, c["LAYERS_0"], c["LAYERS_1"], c["SEQS"]) == (4, 10, 22, 4))
    assert found.problem.price(config) == Usd.of("1" if config.instance == "tiny" else "3") * 4
    assert isinstance(found.server, CommandServing)
    program = found.server.on_node(config)
    assert program.nodes == 2
    assert [dict(env) for env in program.node_env] == [{"LAYERS": "10"}, {"LAYERS": "22"}]
    assert program.env["SEQS"] == "4"
    loaded = prepare(serve_mapping({**SPREAD, "load": {"from": "node"}}), folder=tmp_path / "home")
    assert {c.nodes for c in loaded.problem.space} == {2}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"server": {"nodes": 0}}, r"server.nodes: is out of range"),
        ({"server": {"nodes": "two"}}, r"server.nodes: must be a whole number"),
        ({"server": {"node": 2, "nodes": None}}, r"server.node: unknown field.*did you mean 'nodes'"),
        ({"server": {"run": "serve $PORT $SEQS $LAYERS"}}, r"server.run: must tell the 2 nodes of a server apart"),
        ({"server": {"nodes": 1}}, r"knobs.LAYERS: has a value for each node of a server, and server.nodes is 1"),
        ({"resources": {"infra": "local", "replicas": None}}, r"server.nodes: is for leased nodes"),
        ({"resources": {"replicas": [1, 41]}}, r"resources.replicas: of 2 nodes each are 82 nodes"),
        ({"load": {"profile": "day.csv"}}, r"load.profile: is for servers of one node"),
        ({"knobs": {"LAYERS": {"values": [1], "per": "nod"}}}, r"knobs.LAYERS.per: .*did you mean 'node'"),
        (
            {"knobs": {"exclude": [{"LAYERS": 10}]}},
            r"knobs.LAYERS: has a value for each node: no condition can name it",
        ),
        ({"knobs": {"HEAD": [1]}, "server": {"run": "$PORT $NODE_RANK $SEQS $LAYERS $HEAD"}}, r"knobs.HEAD: is set by"),
        (
            {"knobs": {"LAYERS_1": [1]}, "server": {"run": "$PORT $NODE_RANK $SEQS $LAYERS $LAYERS_1"}},
            r"knobs.LAYERS: has a value for each node, and there is a knob with the name of one",
        ),
    ],
)
def test_mistakes_about_servers_over_nodes_are_one_line(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    fields = dict(SPREAD)
    for name, given in changes.items():
        both = {**SPREAD.get(name, {}), **given}
        fields[name] = {key: value for key, value in both.items() if value is not None}
    with pytest.raises(SpecError, match=message) as caught:
        prepare(serve_mapping(fields), folder=tmp_path / "home")
    assert "\n" not in str(caught.value)


SPLIT: dict[str, Any] = {
    "name": "m",
    "server": {"run": "serve $PORT $SEQS ${SPLIT:+--split $SPLIT}", "name": "m"},
    "resources": {"infra": "minicloud", "replicas": "1..2"},
    "knobs": {
        "SEQS": [1, 4],
        "SPLIT": {"values": [2, 4, 8], "when": {"instance_type": "b*"}},
        "exclude": [{"SEQS": 1, "SPLIT": 8}],
    },
    "goal": {"maximize": "rate"},
}


def test_each_type_of_node_has_the_knobs_and_values_that_it_can_use(tmp_path: Path) -> None:
    found = prepare(serve_mapping(SPLIT), folder=tmp_path / "home")
    space = found.problem.space
    rows = {(c["instance"], c.nodes, c["SEQS"], c["SPLIT"]) for c in space}
    assert rows == {
        *(("tiny", nodes, seqs, UNSET) for nodes in (1, 2) for seqs in (1, 4)),
        *(("big", nodes, seqs, n) for nodes in (1, 2) for seqs in (1, 4) for n in (2, 4, 8) if (seqs, n) != (1, 8)),
    }
    assert len(space) == len(rows) == len(found.problem.usd_per_hour)
    (split,) = (knob for knob in space.knobs if knob.name == "SPLIT")
    assert split.values == (2, 4, 8, UNSET)
    assert isinstance(found.server, CommandServing)
    alone = Config((("SEQS", 4), ("SPLIT", UNSET)))
    assert "SPLIT" not in found.server.on_node(alone).env
    assert found.server.on_node(Config((("SEQS", 4), ("SPLIT", 2)))).env["SPLIT"] == "2"
    assert np.isfinite(space.encoding.features).all()


@pytest.mark.parametrize(
    ("knobs", "resources", "message"),
    [
        ({"SPLIT": {"values": [2, 8], "when": {"instance_type": "c*"}}}, {}, "knobs.SPLIT: never applies"),
        ({"exclude": [{"SEQS": [1, 4]}]}, {}, "knobs.exclude: excludes every combination"),
        ({}, {"infra": "local", "replicas": None}, "knobs: name instance_type, and local is the one machine"),
    ],
)
def test_conditions_that_no_node_meets(
    tmp_path: Path, knobs: dict[str, Any], resources: dict[str, Any], message: str
) -> None:
    places = {name: value for name, value in {**SPLIT["resources"], **resources}.items() if value is not None}
    fields = {**SPLIT, "knobs": {**SPLIT["knobs"], **knobs}, "resources": places}
    with pytest.raises(SpecError, match=message):
        prepare(serve_mapping(fields), folder=tmp_path / "home")


def test_a_value_that_no_type_can_use_is_told(tmp_path: Path) -> None:
    knobs = {**SPLIT["knobs"], "exclude": [{"instance_type": "*", "SPLIT": 8}]}
    found = prepare(serve_mapping({**SPLIT, "knobs": knobs}), folder=tmp_path / "home")
    assert "knobs.SPLIT: 8 never occur under the conditions and are excluded" in found.notes


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ({"infra": "lithops"}, r"resources.infra: mlcd serves no models there .*allowed: local, minicloud, slurm, aws"),
        ({"infra": "minicloud", "image_id": "x"}, r"resources.image_id: is for nodes that are rented: on minicloud"),
        ({"infra": "minicluod"}, r"resources.infra: .*did you mean 'minicloud'"),
        ({"infra": "minicloud/x"}, r"resources.infra: mlcd serves no models there"),
        ({"prices": {"bigg": "1 USD"}}, r"resources.prices.bigg: minicloud has no such type; .*did you mean 'big'"),
        ({"infra": "local", "prices": {"lokal.1": "1 USD"}}, r"resources.prices.lokal.1: .*did you mean 'local.1'"),
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


# ---- nodes that are rented

COMMAND: dict[str, Any] = {
    "name": "m",
    "server": {"run": "serve $PORT $SEQS", "name": "m", "image": "vllm/vllm-openai:v1"},
    "resources": {"infra": "aws/us-west-2", "replicas": "1..2"},
    "knobs": {"SEQS": [1, 4]},
    "goal": {"maximize": "rate", "budget": "5 USD"},
    "setup": "pip install x",
    "secrets": ["HF_TOKEN"],
}


def test_a_command_on_rented_nodes_brings_its_files_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_s3cr3t")
    (tmp_path / "code").mkdir()
    found = prepare(serve_mapping({**COMMAND, "workdir": str(tmp_path / "code")}), folder=tmp_path / "home")
    assert found.charged
    assert found.problem.trial == RENTED_TRIAL
    assert found.problem.verify_seconds == pytest.approx(60 / 0.9 + RENTED_START_STOP_SECONDS)
    assert found.catalog_date == load_catalog().date.isoformat()
    assert isinstance(found.server, CommandServing)
    there = found.server.on_node(Config.of({"SEQS": 1}), shares_files=False)
    assert (there.folder, there.setup) == (tmp_path / "code", "pip install x")
    assert found.nodes is not None
    cloud = found.nodes.cloud(found.server, noise=None)
    assert (cloud.shares_files, cloud.is_here, dict(cloud.secrets)) == (False, False, {"HF_TOKEN": "hf_s3cr3t"})
    assert "hf_s3cr3t" not in repr(found.nodes)


def test_skypilots_settings_of_a_serving_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_s3cr3t")
    spec = serve_mapping({**COMMAND, "file_mounts": {"/models": "s3://bucket"}})
    engine = engine_for("aws", "us-west-2", tmp_path, spec)
    assert isinstance(engine, SkyPilotEngine)
    settings = engine.settings
    assert (settings.infra, settings.image_id, settings.outputs) == ("aws/us-west-2", "docker:vllm/vllm-openai:v1", ())
    assert settings.file_mounts == {"/models": "s3://bucket"}
    assert settings.secrets == {"HF_TOKEN": "hf_s3cr3t"}
    own = serve_mapping({**COMMAND, "resources": {"infra": "aws", "image_id": "ami-1"}})
    other = engine_for("aws", "", tmp_path, own)
    assert isinstance(other, SkyPilotEngine)
    assert other.settings.image_id == "ami-1"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"secrets": ["NO_SUCH"]}, r"secrets: NO_SUCH is not in your environment"),
        ({"workdir": "nowhere", "secrets": []}, r"workdir: there is no such folder"),
        (
            {"resources": {"infra": "minicloud"}},
            r"setup: is for nodes that are rented: on minicloud servers have the files and the environment of this",
        ),
        ({"resources": {"infra": "local"}}, r"setup: is for nodes that are rented: on local"),
        ({"resources": {"infra": "awss"}}, r"resources.infra: .*did you mean 'aws'"),
    ],
)
def test_mistakes_about_rented_nodes_are_one_line(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    fields = {**COMMAND, **({} if "setup" in message else {"setup": ""}), **changes}
    if not fields["setup"]:
        del fields["setup"]
    if "infra" in str(changes) and "setup" not in message:
        del fields["secrets"]
    with pytest.raises(SpecError, match=message) as caught:
        prepare(serve_mapping(fields), folder=tmp_path / "home")
    assert "\n" not in str(caught.value)


def test_files_of_pytorch_stay_on_machines_that_have_it(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"model: files of PyTorch are served on local, minicloud and slurm"):
        prepared(tmp_path, {"infra": "gcp"}, model="m.pt2")
