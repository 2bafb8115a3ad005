"""The job file of `mlcd serverless`: what it reads, how it is resolved, and what it refuses."""

import re
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from mlcd.clouds.functions.lithops.cloud import FunctionWorkload
from mlcd.errors import BadInput, ProviderError, SpecError
from mlcd.goal import Objective
from mlcd.jobs.serverless import prepare
from mlcd.spec.functions import parse_serverless, read_serverless, serverless_record, with_function_flags
from mlcd.units import Usd

ROOT = Path(__file__).resolve().parents[3]
WHOLE = """\
name: ctr-logreg
resources: {infra: lithops/localhost, prices: aws-lambda}
workload: {model: logistic, batch: 256, rate: 1.5, target_loss: 0.35, max_epochs: 40}
functions: 1..64
memory: [512, 1769, 3008]
sync: bsp
goal: {minimize: time, budget: 3 USD, deadline: 30min}
search: {strategy: "static:functions=8,memory=1769", pushes: 10, fan_in: 4, repeats: 0.2, limit: 10min}
"""
SHORT = "name: a\nworkload: {model: logistic, target_loss: 0.4}\ngoal: {minimize: time, budget: 1}\n"


def test_every_field_of_the_job_file() -> None:
    spec = parse_serverless(WHOLE)
    assert spec.functions == tuple(range(1, 65))
    assert spec.memory_mb == (512, 1769, 3008)
    assert spec.sync == "bsp"
    assert (spec.workload.model, spec.workload.batch, spec.workload.rate) == ("logistic", 256, 1.5)
    assert (spec.workload.target_loss, spec.workload.max_epochs) == (0.35, 40)
    assert spec.goal.minimize is Objective.TIME
    assert (spec.goal.budget, spec.goal.deadline_seconds) == (Usd.of(3), 1800)
    assert (spec.search.pushes, spec.search.fan_in, spec.search.repeats, spec.search.limit_seconds) == (10, 4, 0.2, 600)


def test_missing_fields_have_defaults() -> None:
    spec = parse_serverless(SHORT)
    assert (spec.resources.infra, spec.sync, spec.search.strategy) == ("lithops/localhost", "hsp", "mpc")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("goal: {minimize: time, budget: 0}", "goal.budget: a budget must be more than $0 (got 0)"),
        ("goal: {minimize: knee}", "goal.minimize: functions are scheduled for time or cost"),
        ("sync: async", "sync: is not one of the choices (got 'async'); allowed: hsp, bsp, asp; did you mean 'asp'?"),
        ("functions: 8..2", "functions: is an empty range (got '8..2')"),
        ("functions: 0", "functions: is out of range (got 0)"),
        ("functions: 1..300", "functions: more functions than the 256 samples of a batch"),
        ("memory: lots", "memory: is not a memory size (got 'lots')"),
        ("memory: [512, 512]", "memory[1]: is given twice (got 512)"),
        ("workload: {model: 'a-b:c', target_loss: 1}", "workload.model: does not name a function of a module"),
        ("workload: {model: logistic}", "workload.target_loss: is missing"),
        ("workload: {modle: logistic}", "workload.modle: unknown field"),
        ("workload: {model: logistic, target_loss: low}", "workload.target_loss: must be a number (got 'low')"),
        ("search: {limit: 1s}", "search.limit: is out of range (got '1s')"),
        ("num_nodes: 3", "num_nodes: not supported yet; use functions instead"),
    ],
)
def test_mistakes_are_named_with_their_line(line: str, message: str) -> None:
    field = line.partition(":")[0]
    lines = [row for row in SHORT.splitlines() if not row.startswith(f"{field}:")]
    with pytest.raises(SpecError, match=re.escape(message)) as caught:
        parse_serverless("\n".join([*lines, line]), file="job.yaml")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("memory: 64", "memory: aws-lambda has no functions of this size (got 64); allowed: 128 to 10,240 MB"),
        ("resources: {prices: aws}", "resources.prices: no such table (got 'aws')"),
        ("resources: {infra: aws/lambda}", "resources.infra: functions do not run there (got 'aws/lambda')"),
        ("workload: {model: logstic, target_loss: 1}", "did you mean 'logistic'?"),
        (
            "workload: {model: 'mine:make', rate: 1, target_loss: 1}",
            "workload.model: there is no mine.py in",
        ),
        ("workload: {model: logistic, data: nowhere, target_loss: 1}", "workload.data: there is no such folder"),
        ("search: {strategy: mcp}", "search.strategy: unknown scheduler 'mcp'"),
        ("search: {strategy: informed}", "search.strategy: informed runs only in `mlcd bench serverless`"),
    ],
)
def test_a_job_that_cannot_be_resolved_is_refused_before_spending(change: str, message: str) -> None:
    field = change.partition(":")[0]
    lines = [row for row in SHORT.splitlines() if not row.startswith(f"{field}:")]
    with pytest.raises(BadInput, match=re.escape(message)):
        prepare(parse_serverless("\n".join([*lines, change])))


def test_a_back_end_without_prices_is_left_to_the_provider() -> None:
    with pytest.raises(ProviderError, match="has no prices here") as caught:
        prepare(parse_serverless(SHORT + "resources: {infra: lithops/k8s}\n"))
    assert caught.value.exit_code == 7


def test_flags_override_fields_and_are_named_in_errors() -> None:
    spec = parse_serverless(SHORT)
    changed = with_function_flags(
        spec, {"on": "sim/lambda", "budget": "2", "functions": "2..8", "memory": "512,1024", "sync": None}
    )
    assert (changed.resources.infra, changed.goal.budget) == ("sim/lambda", Usd.of(2))
    assert (changed.functions, changed.memory_mb) == (tuple(range(2, 9)), (512, 1024))
    assert parse_serverless(changed.source, flags=dict(changed.overrides)) == changed
    for flag, value in (("budget", "0"), ("functions", "9..1"), ("memory", "a few"), ("sync", "both")):
        with pytest.raises(SpecError, match=f"^--{flag}: "):
            with_function_flags(spec, {flag: value})


def test_a_data_folder_is_relative_to_the_job_file(tmp_path: Path) -> None:
    folder = tmp_path / "ctr"
    folder.mkdir()
    np.save(folder / "x.npy", np.zeros((100, 3), dtype=np.uint16))
    np.save(folder / "y.npy", np.zeros(100, dtype=np.uint8))
    job = tmp_path / "job.yaml"
    job.write_text(
        "name: a\nworkload: {model: logistic, data: ctr, target_loss: 1}\nfunctions: 1..4\ngoal: {minimize: cost}\n"
    )
    prepared = prepare(read_serverless(job))
    assert prepared.problem.samples == 80
    np.save(folder / "y.npy", np.zeros(99, dtype=np.uint8))
    with pytest.raises(SpecError, match=r"x.npy has 100 rows and y.npy has 99"):
        prepare(read_serverless(job))
    np.save(folder / "y.npy", np.array([object()]), allow_pickle=True)
    with pytest.raises(SpecError, match="cannot be read"):
        prepare(read_serverless(job))


def test_a_user_model_is_read_as_text_and_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text("raise RuntimeError('imported')\n")
    np.save(tmp_path / "x.npy", np.zeros((100, 3)))
    np.save(tmp_path / "y.npy", np.zeros(100))
    job = tmp_path / "job.yaml"
    job.write_text(
        "name: a\nworkload: {model: 'mine:make', data: ., rate: 0.1, target_loss: 1}\nfunctions: 1..4\n"
        "goal: {minimize: cost}\n"
    )
    prepared = prepare(read_serverless(job), folder=tmp_path / "home")
    given: list[FunctionWorkload] = []

    class Connected:
        def __init__(self, *, workload: FunctionWorkload, **_: object) -> None:
            given.append(workload)

        def close(self) -> None:
            pass

    monkeypatch.setattr("mlcd.jobs.serverless.LithopsCloud", Connected)
    with ExitStack() as leaving:
        prepared.connect(prepared.problem, leaving)
    assert b"imported" in given[0].module


def test_a_simulated_workload_supplies_missing_fields() -> None:
    spec = parse_serverless(
        "name: a\nresources: {infra: sim/lambda}\nworkload: {model: paper}\ngoal: {minimize: time, budget: 100}\n"
    )
    problem = prepare(spec).problem
    assert problem.functions[-1] == 3000
    assert problem.prices.name == "siren-paper"


def test_the_example_job_files_are_valid() -> None:
    folder = ROOT / "examples" / "serverless"
    jobs = sorted(folder.glob("*.yaml"))
    assert len(jobs) >= 4
    for job in jobs:
        assert prepare(read_serverless(job)).problem.samples > 100


def test_the_documented_job_file_is_valid_and_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    page = (ROOT / "docs" / "serverless.md").read_text()
    (text,) = re.findall(r"```yaml serverless\n(.*?)```", page, re.S)
    assert prepare(parse_serverless(text)).problem.samples == 9600
    for place in serverless_record().places():
        if place not in ("resources", "workload", "search", "goal.minimize", "goal.budget", "goal.deadline"):
            assert f"`{place}`" in page, place
