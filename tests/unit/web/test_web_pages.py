"""What the pages show, without a browser; and the parts that need no server."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import cast

import pytest
from starlette.requests import Request
from tests.hostile_runs import put, recorded
from tests.report_kind_samples import serving_run
from tests.ui_page import JOB

import mlcd
from mlcd.cli.main import run
from mlcd.errors import BadInput
from mlcd.findings import shown
from mlcd.report.decisions import decisions
from mlcd.report.pictures import picture_among, pictures_of
from mlcd.run.kind import Kind
from mlcd.spec.template import template
from mlcd.store.store import Store
from mlcd.store.summary import RunFilter
from mlcd.trial.outcome import Status
from mlcd.units import Usd
from mlcd.web.api import Api, checked_body
from mlcd.web.api_types import BenchesJson
from mlcd.web.bench_results import read_benches
from mlcd.web.job_check import checked, command_of
from mlcd.web.openapi import Parameter
from mlcd.web.page_server import kept_token
from mlcd.web.pages import Pages
from mlcd.web.processes import Processes, is_free
from mlcd.web.records import NoSuchRun, Records
from mlcd.web.why_not import caveats


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def result(home: Path) -> mlcd.Result:
    return mlcd.train(JOB, home=home)


def test_money_adds_up_to_the_budget(home: Path, result: mlcd.Result) -> None:
    now = Records(home).now(result.run_id)
    assert now.budget_usd is not None
    assert now.remaining_usd is not None
    assert now.spent_usd + now.committed_usd + now.reserved_usd + now.remaining_usd == now.budget_usd == Usd.of(300)
    assert now.spent_usd == result.record.spent


def test_money_of_a_run_in_mid_search(home: Path, result: mlcd.Result, tmp_path: Path) -> None:
    """At every instant of a search, what is reserved is the upper bound of the best so far, as the ledger has it."""
    from dataclasses import replace

    from mlcd.findings.now import money_now

    record = result.record
    for steps in range(len(record.trials) + 1):
        then = replace(record, steps=record.steps[:steps], verdict=None, findings=None, status=Status.RUNNING)
        money = money_now(then)
        assert money.remaining is not None
        assert money.spent + money.committed + money.reserved + money.remaining == Usd.of(300)
        if money.incumbent is not None:
            assert money.reserved == money.incumbent.worst_usd
    flying = replace(record.steps[0], outcome=None, ended_seconds=None)
    then = replace(record, steps=(flying,), verdict=None, findings=None, status=Status.RUNNING)
    assert money_now(then).committed == flying.authorised_usd


def test_list_is_filtered(home: Path, result: mlcd.Result) -> None:
    records = Records(home)

    def found(**given: object) -> int:
        return records.list(RunFilter(**given), limit=5).matching  # type: ignore[arg-type]

    assert found() == found(words=("WATCH",)) == found(kind=Kind.TRAIN) == found(status=Status.DONE) == 1
    assert found(words=("sim/aws", "heterbo")) == 1
    assert found(words=("watched", "slurm")) == found(kind=Kind.SERVE) == found(status=Status.RUNNING) == 0
    assert found(words=("%",)) == found(words=("_",)) - found(words=("_",)) == 0, "no wildcards"


def test_what_was_read_is_kept_until_something_is_recorded(home: Path, result: mlcd.Result) -> None:
    records = Records(home)
    assert records.run(result.run_id) is records.run(result.run_id)
    with pytest.raises(NoSuchRun):
        records.run("../../etc/passwd")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("name: a\njob: {samples: 1}\n", Kind.TRAIN),
        ("name: a\nmodel: m.onnx\n", Kind.SERVE),
        ("name: a\nworkload: {}\n", Kind.SERVERLESS),
    ],
)
def test_command_of_a_job_file(text: str, kind: Kind) -> None:
    assert command_of(text) is kind


def test_job_files_are_checked_in_the_words_of_the_command_line() -> None:
    found = checked("name: a\ngoal: {minimise: time}\njob: {samples: 5}\n")
    assert found.line == 2
    assert found.error is not None
    assert found.error.startswith("job.yaml:2: goal")
    assert checked("").error is not None
    assert checked("a: [").error is not None
    assert checked(json.dumps(JOB)).error is None
    assert checked(json.dumps(JOB)).free


def test_clouds_that_charge_need_leave(tmp_path: Path) -> None:
    assert [
        is_free(cloud) for cloud in ("sim/aws", "replay/x", "local", "minicloud", "aws", "slurm", "localx", "simx")
    ] == [
        *(True,) * 4,
        *(False,) * 4,
    ]
    assert is_free("sim/aws,sim/gcp")
    assert not is_free("sim/aws,aws")
    assert is_free("replay/a,aws")  # a folder with a comma in its name
    with pytest.raises(BadInput, match="--allow-spend"):
        Processes(home=tmp_path, folder=tmp_path).check_cloud("aws")
    Processes(home=tmp_path, folder=tmp_path, allow_spend=True).check_cloud("aws")


def test_parameters_are_read_with_limits() -> None:
    limit = Parameter(name="limit", what="", least=1, most=200, default=50)
    assert (limit.read(None), limit.read("7")) == (50, 7)
    for wrong in ("0", "201", "-1", "1e3", "7.5", "\u0667", "x"):
        with pytest.raises(BadInput, match="limit"):
            limit.read(wrong)
    weight = Parameter(name="weight", what="", least=0, most=1, whole=False)
    assert weight.read("0.25") == 0.25
    for wrong in ("nan", "inf", "1.1", "-0.1", ".5e0"):
        with pytest.raises(BadInput, match="weight"):
            weight.read(wrong)
    kind = Parameter(name="kind", what="", choices=("a", "b"))
    with pytest.raises(BadInput, match="allowed: a, b"):
        kind.read("c")


def test_bodies_are_checked() -> None:
    rules = {"job": {"type": "string", "maxLength": 5}, "seed": {"type": "integer", "minimum": 0, "maximum": 9}}
    schema = {"required": ["job"], "properties": rules}
    assert checked_body(schema, {"job": "x", "seed": 3})
    wrong: list[object] = [[], {}, {"job": 5}, {"job": "longer"}, {"job": "x", "y": 1}]
    wrong += [{"job": "x", "seed": True}, {"job": "x", "seed": 10}]
    for each in wrong:
        with pytest.raises(BadInput):
            checked_body(schema, each)


def test_token_is_kept_for_the_owner_only(tmp_path: Path) -> None:
    token = kept_token(tmp_path)
    assert kept_token(tmp_path) == token
    assert (tmp_path / "ui-token").stat().st_mode & 0o777 == 0o600
    (tmp_path / "ui-token").write_text("short")
    assert kept_token(tmp_path) not in (token, "short")


def test_bench_results_of_other_programs_are_refused(tmp_path: Path) -> None:
    for text in ("", "[]", "{}", '{"rows": [], "summary": [{}]}', '{"rows": [{"ratio": 1}], "summary": []}'):
        file = tmp_path / "b.json"
        file.write_text(text)
        with pytest.raises(BadInput, match="--bench"):
            read_benches([file])
    with pytest.raises(BadInput, match="--bench"):
        read_benches([tmp_path / "missing.json"])


def test_every_operation_has_a_name_of_its_own(home: Path) -> None:
    api = Api(Records(home), Processes(home=home, folder=home), BenchesJson(results=()))
    names = [operation.name for operation in api.operations]
    assert len(set(names)) == len(names)
    document = api.document
    assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    text = json.dumps(document)
    assert "#/$defs/" not in text, "every reference is inside the document"


def test_results_of_the_command_are_shown_also_where_nothing_was_finished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command's own output: random search finishes nothing within this budget."""
    asked = "bench train --sim --workloads resnet-scale-out --strategies random --seeds 1 --jobs 1 -o json"
    assert run(asked.split()) == 0
    file = tmp_path / "bench.json"
    file.write_text(capsys.readouterr().out)
    (summary,) = read_benches([file]).results[0].summary
    assert summary.unfinished == summary.runs
    assert summary.probe_share is None
    home = tmp_path / "home"
    pages = Pages(Records(home), benches=read_benches([file]))
    shown = pages.bench(cast(Request, None))
    assert "<b>3.00</b>" in shown
    assert "it counts with a ratio of 3" in shown


def test_list_says_which_functions_most_epochs_ran_on(tmp_path: Path) -> None:
    run = mlcd.serverless(template(kind="serverless"), home=tmp_path).record
    records = Records(tmp_path)
    (listed,) = records.list(RunFilter(), limit=10).runs
    used = Counter(epoch.fleet.plain for epoch in run.epochs)
    fleet, count = used.most_common(1)[0]
    assert listed.best == f"{count} of {len(run.epochs)} epochs on {fleet}"
    pages = Pages(records, benches=BenchesJson(results=()))
    shown = pages.runs(Request({"type": "http", "query_string": b"", "headers": []}))
    assert f'>{len(run.epochs)}<br><span class="dim">epochs</span></td>' in shown


def test_epochs_are_stored_with_what_was_expected(tmp_path: Path) -> None:
    run = mlcd.serverless(template(kind="serverless"), home=tmp_path).record
    reasons = [step.reason for step in run.epoch_steps]
    assert reasons[0].startswith("expected, as a guess, ")
    assert "how many epochs are needed is not known yet" in reasons[0]
    assert reasons[-1].endswith(", to the target")
    rest = r"expected .* and \$.*; then about \d+ epochs? more, .* and \$.* on the same functions"
    assert any(re.fullmatch(rest, each) for each in reasons)
    assert f"({reasons[-1]})" in decisions(run)[-2].text
    epochs = picture_among(pictures_of(run), "epochs", where="there is").draw(900.0)
    assert f"passes over the samples: {len(run.epochs)} epochs or parts" in epochs
    assert "more trials" not in picture_among(pictures_of(run), "money", where="there is").description


def test_message_of_a_dry_run_names_the_file_as_the_check_does(home: Path) -> None:
    job = {**JOB, "resources": {"infra": "sim/aws", "instance_type": ["g5.xlrage"]}}
    with pytest.raises(BadInput, match=r"^job\.yaml:\d+: resources\.instance_type"):
        Processes(home=home, folder=home).dry_run(Kind.TRAIN, json.dumps(job))


def test_dry_run_says_what_would_help_where_nothing_fits(home: Path) -> None:
    job = {**JOB, "goal": {"minimize": "time", "budget": "0.01 USD"}}
    found = Processes(home=home, folder=home).dry_run(Kind.TRAIN, json.dumps(job))
    assert found["configurations_within_limits"] == 0
    assert found["ways_out"]
    assert "alone may need" in found["ways_out"][0]


def test_first_screen_says_what_limits_the_answer_and_what_it_is_compared_with(tmp_path: Path) -> None:
    mlcd.train(JOB, home=tmp_path)
    mlcd.serverless(template(kind="serverless"), home=tmp_path)
    server = serving_run()
    with Store(tmp_path) as store:
        put(store, recorded(server))
    pages, records = Pages(Records(tmp_path), benches=BenchesJson(results=())), Records(tmp_path)
    brief = {}
    for each in records.list(RunFilter(), limit=10).runs:
        request = Request({"type": "http", "path_params": {"run_id": each.run_id}, "query_string": b"", "headers": []})
        brief[each.kind] = pages.run(request).partition('data-part="brief"')[2].partition("</section>")[0]
    assert "<b>What did the search save?</b> Compared with " in brief["train"]
    assert "<b>Is a plain instance better, as estimated?</b> " in brief["serverless"]
    (note,) = caveats(shown(server))
    assert f"<b>What limits it?</b> {note}" in brief["serve"]
