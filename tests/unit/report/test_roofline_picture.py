"""Where load tests of a language model are under the roofline."""

import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from tests.report_kind_samples import language_model_run

from mlcd.codec import from_json, to_json
from mlcd.findings import shown
from mlcd.known.ceilings import BANDWIDTH, FLOPS, most_tokens
from mlcd.known.gpus import GPUS, Machine
from mlcd.known.language_models import LanguageModel, TokenLengths
from mlcd.loadgen.chat.plan import ChatLimit, ChatMetric
from mlcd.report.pictures import pictures_of
from mlcd.run.header import ServingFacts
from mlcd.run.run import SearchRun

MODEL = LanguageModel(parameters=8e9, layers=32, hidden=4096, kv_heads=8, head_dim=128)
H100 = Machine(gpu=GPUS["H100"])
LENGTHS = TokenLengths(input_tokens=10, output_tokens=10)
LIMIT = ChatLimit(metric=ChatMetric.TTFT, percentile=95, seconds=1.0)


def run_with(**facts: object) -> SearchRun:
    run = language_model_run(LIMIT)
    assert run.header.serving is not None
    serving = replace(run.header.serving, scenario="chat", **facts)  # type: ignore[arg-type]
    return shown(replace(run, header=replace(run.header, serving=serving)))


def test_few_requests_are_bound_by_bandwidth_and_many_by_flops() -> None:
    one, bound = most_tokens(MODEL, H100, LENGTHS, 1)
    assert one == pytest.approx(3350e9 / 16e9, rel=0.01), "the weights once for each token"
    assert bound == BANDWIDTH
    many, bound = most_tokens(MODEL, H100, LENGTHS, 10_000)
    assert many == pytest.approx(989e12 / (2 * 2 * 8e9)), "a token of the prompt for each one"
    assert bound == FLOPS
    two, _ = most_tokens(MODEL, replace(H100, count=2), LENGTHS, 1)
    assert two == pytest.approx(2 * one)


def test_every_pace_has_its_share_of_what_the_data_sheet_allows() -> None:
    pictures = {picture.name: picture for picture in pictures_of(run_with(language=MODEL, machines={"": H100}))}
    picture = pictures["roofline"]
    shares = [float(row[4].rstrip("%")) for row in picture.table.rows]
    most = [most_tokens(MODEL, H100, LENGTHS, users)[0] for users in (1, 8)]
    assert shares == [pytest.approx(100 * tokens / at, abs=0.06) for tokens, at in zip((10, 40), most, strict=True)]
    assert {row[5] for row in picture.table.rows} == {BANDWIDTH}
    assert ET.fromstring(picture.svg).tag.endswith("svg")


@pytest.mark.parametrize(
    "facts", [{"language": MODEL}, {"machines": {"": H100}}, {"language": MODEL, "machines": {"x": H100}}]
)
def test_without_sizes_or_gpus_there_is_no_such_picture(facts: dict[str, object]) -> None:
    assert "roofline" not in {picture.name for picture in pictures_of(run_with(**facts))}


def test_the_gpus_are_stored() -> None:
    facts = ServingFacts(
        model="m", scenario="chat", headroom=0.3, verify_seconds=1.0, language=MODEL, machines={"": H100}
    )
    assert from_json(to_json(facts), ServingFacts) == facts
