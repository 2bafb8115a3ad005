"""`data` of a job: what bringing it to each place takes, and what is refused."""

from pathlib import Path

import pytest

from mlcd.catalog.egress import egress_price
from mlcd.errors import SpecError
from mlcd.jobs.prepared import Prepared, begin
from mlcd.jobs.train import prepare
from mlcd.problem import DataMove, Problem
from mlcd.report.verdict import verdict
from mlcd.run.run import SearchRun
from mlcd.spec import parse_train
from mlcd.store.store import Store
from mlcd.trial.trial import Measurement
from mlcd.units import Usd

JOB = "name: j\njob: {model: resnet152, samples: 50000}\ngoal: {minimize: cost, budget: 90 USD}\nnum_nodes: 1..2\n"
BOTH = "resources: {infra: [sim/aws, sim/gcp], accelerators: L4:1}\n"


@pytest.fixture(autouse=True)
def _no_catalog_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLCD_CATALOG", raising=False)


def prepared(data: str, resources: str = BOTH) -> Prepared[Problem]:
    return prepare(parse_train(f"{JOB}{resources}data: {data}\n", file="job.yaml"))


@pytest.mark.parametrize(
    ("location", "place", "usd"),
    [
        ("aws/us-east-1", "aws", 0.0),
        ("aws", "aws/us-east-1/us-east-1a", 0.0),
        ("aws/us-east-1", "sim/aws", 0.0),
        ("aws/us-east-1", "aws/eu-west-1", 0.02),
        ("aws/us-east-1", "gcp", 0.09),
        ("gcp/europe-west4", "gcp", 0.05),
        ("gcp", "azure/westeurope", 0.12),
        ("azure/westeurope", "azure", 0.05),
        ("azure", "kubernetes", 0.087),
        ("aws/ap-south-1", "gcp", None),
        ("aws/us-gov-west-1", "gcp", None),
        ("aws", "aws/sa-east-1", None),
        ("lambda", "gcp", None),
    ],
)
def test_egress_prices(location: str, place: str, usd: float | None) -> None:
    price = egress_price(location, place)
    assert (None if price is None else price.usd_per_gb) == usd


def test_each_place_has_its_own_price_and_time() -> None:
    found = prepared("{location: aws/us-east-1, size: 200 GB, trial_size: 20 GB, bandwidth: 4 Gbps}")
    there, elsewhere = found.problem.moves["aws"], found.problem.moves["gcp"]
    assert there == DataMove()
    assert elsewhere == DataMove(usd=Usd.of(18), trial_usd=Usd.of("1.8"), seconds=400.0, trial_seconds=40.0)
    assert "aws: the data is there" in found.notes
    assert any(
        "costs $18.00 for a training and $1.80 for a trial ($0.09/GB, list price" in note for note in found.notes
    )


def test_the_worst_case_of_a_trial_has_the_data_and_its_time() -> None:
    plain = prepare(parse_train(f"{JOB}{BOTH}")).problem
    moved = prepared("{location: aws, size: 10, bandwidth: 1 Gbps}").problem
    row = next(at for at, place in enumerate(moved.places) if place == "gcp")
    price, policy = moved.usd_per_hour[row], moved.trial
    seconds = (plain.planned_trial_seconds[row] + 80.0) * (1 + policy.extension) + policy.watchdog_seconds
    assert moved.worst_trial_seconds[row] == pytest.approx(seconds)
    assert moved.worst_trial_micros[row] == (price.for_seconds(seconds) + Usd.of("0.9")).micros
    same = moved.places.index("aws")
    assert moved.worst_trial_micros[same] == plain.worst_trial_micros[same]


def test_the_users_price_overrides_the_list_price() -> None:
    assert prepared("{location: aws, size: 1 TB, egress: 0.01 USD/GB}").problem.moves["gcp"].usd == Usd.of(10)
    assert prepared("{location: aws, size: 1 TB, egress: 0}").problem.moves == {}
    own = prepared("{location: our cellar, size: 1 TB, egress: $0.05/GB}").problem.moves
    assert {place: move.usd for place, move in own.items()} == {"aws": Usd.of(50), "gcp": Usd.of(50)}


def test_one_cloud_counts_its_data_too() -> None:
    found = prepared("{location: aws, size: 100 GB}", "resources: {infra: sim/gcp, accelerators: L4:1}\n")
    assert found.problem.moves[""].usd == Usd.of(9)


@pytest.mark.parametrize(
    ("data", "field", "says"),
    [
        ("{location: aws}", "data.size", "is missing"),
        ("{size: 20 GB}", "data.location", "is missing"),
        ("{location: aws, size: 20 GBit}", "data.size", "is not a size"),
        ("{location: aws, size: 0}", "data.size", "out of range"),
        ("{location: aws, size: 20, egress: 0.09 EUR/GB}", "data.egress", "is not a price"),
        ("{location: aws, size: 20, bandwidth: 5}", "data.bandwidth", "must be text"),
        ("{location: aws, size: 20, bandwidth: 5 GB/s}", "data.bandwidth", "is not a rate"),
        ("{location: aws, size: 20, trial_size: 30}", "data.trial_size", "is more than data.size"),
        ("{location: our cellar, size: 20}", "data.location", "or give data.egress"),
        ("{location: aws/ap-south-1, size: 20}", "data.location", "no price is known for data that goes from"),
        ("{location: aws, size: 20, egres: 1}", "data.egres", "did you mean 'egress'"),
    ],
)
def test_mistakes_name_the_field_and_its_line(data: str, field: str, says: str) -> None:
    with pytest.raises(SpecError, match="data") as refused:
        prepared(data)
    assert (refused.value.field, refused.value.line) == (field, 6)
    assert says in str(refused.value)


def test_a_run_pays_for_its_data_once_a_lease(tmp_path: Path) -> None:
    types = "resources: {infra: [sim/aws, sim/gcp], instance_type: [c7i.large, g2-standard-4]}\n"
    run = driven(tmp_path, prepared("{location: aws, size: 10 GB, trial_size: 1 GB, bandwidth: 10 Gbps}", types))
    trained = run.final
    assert trained is not None
    assert trained.config.instance == "g2-standard-4 (gcp)"
    assert trained.usd == run.problem.price(trained.config).for_seconds(trained.seconds) + Usd.of("0.9")
    trials = [step.trial for step in run.trials if isinstance(step.trial, Measurement) and "gcp" in str(step.config)]
    for trial in trials:
        assert trial.usd == run.problem.price(trial.config).for_seconds(trial.seconds) + Usd.of("0.09")
    assert run.train_findings.receipt.data_usd == Usd.of("0.9") + Usd.of("0.09") * len(trials)
    assert "of which for bringing data to the nodes" in verdict(run)


def driven(home: Path, job: Prepared[Problem]) -> SearchRun:
    with Store(home) as store:
        return begin(job, store=store)
