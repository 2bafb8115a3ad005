import json
from collections.abc import Iterator
from dataclasses import make_dataclass
from typing import Any

import jsonschema
import pytest
from tests.rendered import json_of
from tests.report_kind_samples import SERVERLESS, SERVING
from tests.report_samples import SAMPLES, budget_run, choice_of

from mlcd.findings import shown
from mlcd.kinds import kind_of
from mlcd.report.as_json import schema
from mlcd.report.result_types import result_json, result_schema
from mlcd.report.serverless_json import serverless_json, serverless_schema
from mlcd.report.serving_json import serving_json, serving_schema


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())


@pytest.mark.parametrize("name", SAMPLES)
def test_every_training_run_matches_the_schema(name: str) -> None:
    text = json.dumps(json_of(SAMPLES[name]()), allow_nan=False)
    jsonschema.validate(json.loads(text), schema(), cls=jsonschema.Draft202012Validator)


@pytest.mark.parametrize("name", SERVING)
def test_every_serving_run_matches_its_schema(name: str) -> None:
    made = serving_json(shown(SERVING[name]()))
    jsonschema.validate(made, serving_schema(), cls=jsonschema.Draft202012Validator)
    told = {**made, "deployed": None, "written": ["a"]}
    jsonschema.validate(told, serving_schema(), cls=jsonschema.Draft202012Validator)


@pytest.mark.parametrize("name", SERVERLESS)
def test_every_serverless_run_matches_its_schema(name: str) -> None:
    made = serverless_json(shown(SERVERLESS[name]()))
    jsonschema.validate(made, serverless_schema(), cls=jsonschema.Draft202012Validator)


def test_every_result_has_its_kind() -> None:
    for samples in (SAMPLES, SERVING, SERVERLESS):
        for make in samples.values():
            run = make()
            assert kind_of(run.kind).json(run)["kind"] == str(run.kind)


def test_an_optional_key_is_omitted() -> None:
    failed, done = (serverless_json(shown(SERVERLESS["done"]()))["epochs"][at] for at in (2, 3))
    assert set(done) - set(failed) == {
        *("fetch_seconds", "compute_seconds", "update_seconds", "calls", "repeated_calls", "cold_starts"),
        *("memory_share", "cpu_share"),
    }
    assert done["memory_share"] is None


def test_a_type_without_a_json_form_is_refused() -> None:
    with pytest.raises(TypeError, match="a set cannot be part of a JSON result"):
        result_json(({1},))
    with pytest.raises(TypeError, match="has no JSON Schema"):
        result_schema(make_dataclass("Odd", [("field", bytes)]), "odd")


def test_an_unknown_key_is_refused() -> None:
    made = json_of(budget_run())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**made, "cost": 3}, schema())


def objects(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        if "properties" in node:
            yield node
        for value in node.values():
            yield from objects(value)
    elif isinstance(node, list):
        for value in node:
            yield from objects(value)


def test_the_schema_closes_and_requires_everything() -> None:
    for node in objects(schema()):
        assert node["additionalProperties"] is False
        assert set(node["required"]) == set(node["properties"])


@pytest.mark.parametrize("made", [serving_schema(), serverless_schema()], ids=["serve", "serverless"])
def test_the_other_schemas_close_and_require_what_is_always_there(made: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(made)
    for node in objects(made):
        assert node["additionalProperties"] is False
        assert set(node["required"]) <= set(node["properties"])


def test_lost_trainings_are_paid() -> None:
    run = SAMPLES["lost"]()
    made: dict[str, Any] = json_of(run)["receipt"]  # type: ignore[assignment]
    (earlier,) = made["earlier"]
    assert (earlier["ending"], earlier["seconds"], earlier["usd"]) == ("lost", 1200.0, 4.2)
    assert made["total_usd"] == pytest.approx(made["search_usd"] + 4.2 + made["run_usd"]) == run.total_usd.dollars
    assert made["total_seconds"] == pytest.approx(run.total_seconds)


def test_a_failed_training_is_on_the_receipt() -> None:
    made: dict[str, Any] = json_of(SAMPLES["run-failed"]())
    assert (made["status"], made["exit_code"]) == ("run-failed", 1)
    assert (made["receipt"]["run_seconds"], made["receipt"]["run_is_predicted"]) == (4000.0, False)
    assert made["receipt"]["saved"] == []


def test_a_naive_choice_says_what_it_would_break() -> None:
    made: dict[str, Any] = json_of(SAMPLES["both-limits"]())
    assert [saved["breaks"] for saved in made["receipt"]["saved"]] == [["deadline"], ["deadline"]]


def test_the_numbers_are_the_records() -> None:
    run = budget_run()
    made: dict[str, Any] = json_of(run)
    assert made["schema"] == 1
    assert (made["status"], made["exit_code"], made["simulated"]) == ("done", 0, True)
    assert made["choice"]["config"] == {"instance": "p2.xlarge", "nodes": 20}
    assert made["choice"]["usd"] == choice_of(run).usd.micros / 1e6
    assert made["choice"]["usd_interval"][0] < made["choice"]["usd"] < made["choice"]["usd_interval"][1]
    assert made["receipt"]["total_usd"] == run.total_usd.dollars
    assert made["receipt"]["left_usd"] == pytest.approx(85 - run.total_usd.dollars)
    assert [trial["number"] for trial in made["trials"]] == list(range(1, 13))
    failed = made["trials"][7]
    assert failed["measured"] is None
    assert failed["failure"]["kind"] == "out-of-memory"
    assert made["goal"] == {
        "text": "fastest for at most $85.00",
        "minimize": "time",
        "budget_usd": 85.0,
        "deadline_seconds": None,
    }
    assert len(made["naive"]) == 2
    assert made["why_not"][0]["kind"] == "over-budget"
