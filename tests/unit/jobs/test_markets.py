"""`use_spot: any`: both markets in the space, what is believed of interruptions, and what cannot be."""

from pathlib import Path

import pytest

from mlcd.errors import SpecError
from mlcd.interruptions import DEFAULT_PER_NODE_HOUR, Interruptions
from mlcd.jobs.prepared import Prepared
from mlcd.jobs.train import prepare
from mlcd.problem import Problem
from mlcd.space import Config
from mlcd.spec import parse_train

HEAD = "name: j\ngoal: {minimize: cost}\njob: {model: resnet152, samples: 1e6}\n"
ANY = "resources: {instance_type: [g4dn.xlarge, p3.2xlarge], use_spot: any}\nnum_nodes: [1, 2]\n"


@pytest.fixture(autouse=True)
def _no_catalog_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLCD_CATALOG", raising=False)


def prepared(text: str) -> Prepared[Problem]:
    return prepare(parse_train(HEAD + text, file="job.yaml"))


def refusal(text: str) -> SpecError:
    with pytest.raises(SpecError) as caught:
        prepared(text)
    return caught.value


def config(name: str, nodes: int, market: str) -> Config:
    return Config((("instance", name), ("nodes", nodes), ("market", market)))


def known(text: str) -> Interruptions:
    found = prepared(text).problem.interruptions
    assert found is not None
    return found


def test_both_markets_are_in_the_space_each_at_its_price() -> None:
    found = prepared(ANY)
    problem = found.problem
    spot, plain = config("g4dn.xlarge", 2, "spot"), config("g4dn.xlarge", 2, "on-demand")
    assert set(problem.space) == {
        *(config("g4dn.xlarge", n, market) for n in (1, 2) for market in ("spot", "on-demand")),
        *(config("p3.2xlarge", n, "on-demand") for n in (1, 2)),
    }
    assert problem.price(spot) < problem.price(plain)
    assert str(spot) == "2 x g4dn.xlarge (spot)"
    assert any("p3.2xlarge" in note and "no spot market" in note for note in found.notes)
    assert any(f"assumed {DEFAULT_PER_NODE_HOUR:g}" in note for note in found.notes)


def test_the_users_rates_count_by_type() -> None:
    rates = "search: {spot: {interruptions_per_hour: {'g4dn.*': 0.5, default: 0.1}, save_seconds: 33}}\n"
    both = ANY.replace("p3.2xlarge", "c5.xlarge")
    found = known(both + rates)
    assert found.per_node_hour == {"g4dn.xlarge": 0.5, "c5.xlarge": 0.1}
    assert found.save_seconds == 33
    assert not any("assumed" in note for note in prepared(both + rates).notes)
    assert set(known(both + "search: {spot: {interruptions_per_hour: 0.2}}\n").per_node_hour.values()) == {0.2}


def test_work_is_kept_by_default_where_spot_is_a_choice() -> None:
    found = prepared(ANY + "checkpoints: true\n").problem
    assert found.keeps_work
    assert known(ANY + "checkpoints: true\n").saves
    assert not known(ANY).saves
    error = refusal(ANY + "checkpoints: true\nsearch: {work: beside}\n")
    assert (error.field, error.line) == ("search.work", 7)


@pytest.mark.parametrize(
    ("text", "field", "line", "said"),
    [
        ("resources: {instance_type: 'p3.*', use_spot: any}\n", "resources.use_spot", 4, "no type has a spot market"),
        ("resources: {use_spot: auto}\n", "resources.use_spot", 4, "did you mean 'any'"),
        ("resources: {use_spot: sometimes}\n", "resources.use_spot", 4, "must be true, false or any"),
        (
            ANY + "search:\n  spot: {interruptions_per_hour: -1}\n",
            "search.spot.interruptions_per_hour",
            7,
            "at least 0",
        ),
        (ANY + "search:\n  spot: {interruptions_per_hour: often}\n", "search.spot.interruptions_per_hour", 7, "a rate"),
        (ANY + "search:\n  spot: {interruptions_per_hour: {}}\n", "search.spot.interruptions_per_hour", 7, "empty"),
        (ANY + "search:\n  spot: {save_seconds: 0}\n", "search.spot.save_seconds", 7, "more than 0"),
        (ANY + "search:\n  spot: {rate: 1}\n", "search.spot.rate", 7, "did you mean 'interruptions_per_hour'"),
        ("search:\n  spot: {save_seconds: 9}\n", "search.spot", 5, "this job uses none"),
    ],
)
def test_what_cannot_be_is_one_line_with_its_place(text: str, field: str, line: int, said: str) -> None:
    error = refusal(text)
    assert (error.field, error.line) == (field, line)
    assert said in str(error)
    assert "\n" not in str(error)


def test_this_machine_has_no_spot_market(tmp_path: Path) -> None:
    job = 'name: x\nrun: "true"\njob: {samples: 9}\ngoal: {minimize: time}\nresources: {infra: local, use_spot: any}\n'
    with pytest.raises(SpecError) as caught:
        prepare(parse_train(job, file="job.yaml"), folder=tmp_path)
    assert (caught.value.field, caught.value.line) == ("resources.use_spot", 5)
    assert "local has no spot market" in str(caught.value)


def test_a_measured_table_has_no_spot_market() -> None:
    error = refusal("resources: {infra: replay/., use_spot: any}\n")
    assert error.field in ("resources.use_spot", "resources.infra")
