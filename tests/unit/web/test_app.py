"""Every page and operation of the application, asked as a server asks it: without a socket and without a browser."""

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.hostile_runs import put, recorded
from tests.report_kind_samples import language_model_run
from tests.ui_page import JOB
from tests.unit.store.test_store import add, measured, step

import mlcd
from mlcd.errors import BadInput
from mlcd.loadgen.chat import ChatLimit, ChatMetric
from mlcd.space import Config
from mlcd.store.store import Store
from mlcd.web import records
from mlcd.web.api import Api
from mlcd.web.app import make_app
from mlcd.web.bench_results import read_benches
from mlcd.web.feed import MOST_CLIENTS, Feed
from mlcd.web.guard import Guard
from mlcd.web.page_server import kept_token, serve_page
from mlcd.web.pages import Pages
from mlcd.web.processes import Processes
from mlcd.web.records import Records

TOKEN = "0" * 48
Answer = tuple[int, dict[str, str], bytes]
Ask = Callable[..., Answer]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def runs(home: Path) -> tuple[str, str]:
    """A training, and a training on functions."""
    from mlcd.spec.template import template

    return mlcd.train(JOB, home=home).run_id, mlcd.serverless(template(kind="serverless"), home=home).run_id


@pytest.fixture(scope="module")
def served(home: Path) -> str:
    """A server of a language model."""
    run = language_model_run(ChatLimit(metric=ChatMetric.TTFT, percentile=99, seconds=1.0))
    with Store(home) as store:
        put(store, recorded(run))
    return run.run_id


def asker(home: Path, feed: Feed | None = None) -> Ask:
    """Asks an application over `home`: path, and body, method, headers."""
    records, benches = Records(home), read_benches([])
    pages = Pages(records, benches=benches)
    api = Api(records, Processes(home=home, folder=home), benches)
    app = make_app(api, feed or Feed(records), pages, Guard(host="127.0.0.1", port=80, token=TOKEN))

    def ask(
        path: str, body: bytes | None = None, *, method: str = "", token: str = TOKEN, kind: str = "application/json"
    ) -> Answer:
        place, _, query = path.partition("?")
        headers = [(b"host", b"127.0.0.1"), (b"authorization", f"Bearer {token}".encode())]
        if body is not None:
            headers += [(b"x-mlcd-ui", b"1"), (b"content-type", kind.encode())]
        scope = {
            "type": "http",
            "method": method or ("GET" if body is None else "POST"),
            "path": place,
            "raw_path": place.encode(),
            "query_string": query.encode(),
            "headers": headers,
        }
        sent: list[dict[str, Any]] = []
        told = iter([{"type": "http.request", "body": body or b"", "more_body": False}])

        async def receive() -> dict[str, Any]:
            return next(told, {"type": "http.disconnect"})

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        with suppress(ZeroDivisionError):  # what a test breaks is answered, and raised for the server's log
            asyncio.run(app(scope, receive, send))  # type: ignore[arg-type]
        whole = b"".join(each.get("body", b"") for each in sent)
        return sent[0]["status"], {name.decode(): value.decode() for name, value in sent[0]["headers"]}, whole

    return ask


@pytest.fixture(scope="module")
def ask(home: Path, runs: tuple[str, str]) -> Ask:
    return asker(home)


def test_every_page_answers(ask: Ask, runs: tuple[str, str]) -> None:
    train, functions = runs
    for path, text in {
        "/": train,
        "/?search=watched&kind=train&status=done&offset=0": train,
        "/?kind=nonsense&status=nonsense": functions,
        f"/runs/{train}": "Chosen",
        f"/runs/{functions}": "Loss, of a target of",
        f"/runs/{train}/live?parts=decisions:wide": "Chose ",
        f"/runs/{train}/tables/speed": "<table",
        f"/runs/{train}/what-if": "What more budget brings",
        f"/runs/{train}/report": "<title>watched",
        f"/compare?run={train}&run={functions}": "Cost of the search",
        f"/compare?run={functions}&run={train}": "their times and costs do not compare",
        "/new": "Job file",
        "/bench": "mlcd bench train",
        "/catalog": "p4d.24xlarge",
        "/static/ui.css": ".card",
        "/static/pictures.css": ".mlcd-picture",
    }.items():
        status, headers, body = ask(path)
        assert (status, text in body.decode()) == (200, True), path
        assert "content-security-policy" in headers


def test_what_if_of_a_server_is_about_its_rate_and_its_limits(ask: Ask, served: str) -> None:
    status, _, body = ask(f"/runs/{served}/what-if")
    page = body.decode()
    assert status == 200
    assert 'data-limit="ttft_p99" data-seconds="1.0"' in page
    assert "the same choice" in page
    answers = [
        json.loads(ask(f"/api/runs/{served}/serving-what-if?{query}")[2])
        for query in ("limits=ttft_p99:1", "limits=ttft_p99:0.1", "rate=1000", "")
    ]
    assert [each["choice"] is None for each in answers] == [False, True, True, False]
    assert {tuple(each["limits"]) for each in answers} == {("ttft_p99",)}
    assert [each["rate"] for each in answers] == [None, None, 1000, None]
    assert "What if: another rate" in ask(f"/runs/{served}")[2].decode()


def test_buttons_of_a_run_wait_for_the_script_that_they_need(ask: Ask, runs: tuple[str, str]) -> None:
    page, live = (ask(f"/runs/{runs[0]}{path}")[2].decode() for path in ("", "/live"))
    assert page.count('data-action="stop" disabled') == page.count('data-action="resume" disabled') == 1
    assert 'data-action="stop" hidden' in live, "parts that replace those of the page are for a script that runs"


def test_every_operation_answers(ask: Ask, runs: tuple[str, str]) -> None:
    train, _ = runs
    for path, key in {
        "/api/runs?limit=1": "runs",
        f"/api/runs/{train}": "choice",
        f"/api/runs/{train}/now": "spent_usd",
        f"/api/runs/{train}/logs": "logs",
        f"/api/runs/{train}/what-if?budget_usd=300&next_trial=no": "text",
        "/api/catalog": "instances",
        "/api/bench": "results",
        "/api/templates": "templates",
        "/api/openapi.json": "paths",
    }.items():
        status, _, body = ask(path)
        assert (status, key in json.loads(body)) == (200, True), path
    status, headers, body = ask(f"/api/runs/{train}/pictures/speed")
    assert (status, headers["content-type"], body[:4]) == (200, "image/svg+xml", b"<svg")
    status, _, body = ask("/api/check", json.dumps({"job": json.dumps(JOB)}).encode())
    assert (status, json.loads(body)["error"]) == (200, None)


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/runs/none", 404, "there is no run"),
        ("/api/runs/none/now", 404, "there is no run"),
        ("/api/runs/TRAIN/pictures/none", 404, "no picture"),
        ("/api/runs/TRAIN/logs/9", 404, "no log"),
        ("/api/runs/TRAIN/what-if?budget_usd=0", 400, "budget: must be more than"),
        ("/api/runs/TRAIN/what-if?time_weight=2", 400, "time_weight"),
        ("/api/runs/FUNCTIONS/what-if", 400, "trainings on nodes"),
        ("/runs/FUNCTIONS/what-if", 400, "would have led to epochs that nobody measured"),
        ("/api/runs/TRAIN/serving-what-if", 400, "rates and latencies are those of servers"),
        ("/api/runs/TRAIN/serving-what-if?limits=p99:x", 400, "limits: write NAME:SECONDS"),
        ("/api/runs/TRAIN/serving-what-if?limits=p99", 400, "limits: write NAME:SECONDS"),
        ("/api/runs/TRAIN/serving-what-if?rate=-1", 400, "rate: must be a number"),
        ("/api/runs?limit=0", 400, "limit"),
        ("/api/runs?search=%ff", 200, "runs"),
        ("/compare?run=TRAIN", 400, "two runs or more"),
        ("/nowhere", 404, "Not Found"),
    ],
)
def test_what_cannot_be_answered_is_one_sentence(
    ask: Ask, runs: tuple[str, str], path: str, status: int, says: str
) -> None:
    found, _, body = ask(path.replace("TRAIN", runs[0]).replace("FUNCTIONS", runs[1]))
    assert (found, says in body.decode()) == (status, True), body.decode()[:300]
    if path.startswith("/api/") and status != 200:
        assert list(json.loads(body)) == ["error"]


@pytest.mark.parametrize(
    ("body", "kind", "status", "says"),
    [
        (b"{}", "text/plain", 415, "application/json"),
        (b"{", "application/json", 400, "JSON"),
        (b"[]", "application/json", 400, "object"),
        (b"{}", "application/json", 400, "job: is missing"),
        (b'{"job": "name: x"}', "application/json", 400, "job"),
        (b'{"job": "' + b"x" * 1_100_000 + b'"}', "application/json", 413, "longer than"),
    ],
)
def test_bodies_that_are_no_job_start_nothing(
    ask: Ask, home: Path, body: bytes, kind: str, status: int, says: str
) -> None:
    before = ask("/api/runs")[2]
    found, _, answer = ask("/api/runs", body, kind=kind)
    assert (found, says in answer.decode()) == (status, True), answer.decode()[:300]
    assert ask("/api/runs")[2] == before


def test_wrong_token_is_refused_and_the_right_one_becomes_a_cookie(ask: Ask) -> None:
    assert ask("/", token="1" * 48)[0] == 401
    status, headers, _ = ask(f"/?token={TOKEN}&search=x", token="")
    assert (status, headers["location"]) == (303, "/?search=x")
    assert "httponly" in headers["set-cookie"].lower()
    assert ask("/", method="POST")[0] == 403, "without the header"


@pytest.mark.waits
def test_run_is_started_by_a_process_of_its_own(ask: Ask, home: Path) -> None:
    few = {"infra": "sim/aws", "instance_type": ["g5.xlarge"]}
    search = {"strategy": "random", "max_trials": 1}
    job = json.dumps({**JOB, "name": "begun", "resources": few, "num_nodes": "1..2", "search": search})
    status, _, body = ask("/api/runs", json.dumps({"job": job, "seed": 3}).encode())
    run_id = json.loads(body)["run_id"]
    assert (status, run_id.startswith("begun-")) == (201, True)
    for _ in range(1200):
        if json.loads(ask(f"/api/runs/{run_id}/now")[2])["state"] == "done":
            break
        time.sleep(0.1)
    assert mlcd.load(run_id, home=home).record.seed == 3
    status, _, body = ask(f"/api/runs/{run_id}/stop", b"{}")
    assert (status, "is not running" in body.decode()) == (400, True)
    status, _, body = ask(f"/api/runs/{run_id}/resume", b"{}")
    assert (status, "has ended" in body.decode()) == (400, True)


def test_job_that_the_command_refuses_says_why(tmp_path: Path) -> None:
    processes = Processes(home=tmp_path, folder=tmp_path)
    bad = json.dumps({**JOB, "resources": {"infra": "sim/aws", "instance_type": "none-such"}})
    from mlcd.run.kind import Kind

    with pytest.raises(BadInput, match="none-such"):
        processes.dry_run(Kind.TRAIN, bad)
    with pytest.raises(BadInput, match="none-such"):
        processes.start(Kind.TRAIN, "watched", bad, seed=0)


def test_run_of_this_process_is_not_stopped(home: Path, runs: tuple[str, str]) -> None:
    with Store(home) as store, store.lock(runs[0]), pytest.raises(BadInput, match="Ctrl-C where it was started"):
        Processes(home=home, folder=home).stop(runs[0])


def test_store_that_cannot_be_read_is_a_page_and_an_answer_that_say_so(tmp_path: Path) -> None:
    (tmp_path / "mlcd.sqlite3").write_bytes(b"this is no database" * 100)
    ask = asker(tmp_path)
    for path in ("/", "/api/runs"):
        status, _, body = ask(path)
        assert (status, "it is not a database" in body.decode()) == (503, True)


def test_a_run_that_cannot_be_shown_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A colleague's rows, with right digests: before, the whole list was answered with 500."""
    with Store(tmp_path) as store:
        for name in ("good", "hostile", "fatal"):
            add(store, name)
        store.start("hostile", [step(1)])
        store.end("hostile", step(1).ended(measured(Config.deployment("<b>nowhere</b>", 3))))
    now = records.run_now

    def failing(run: Any, **given: Any) -> Any:
        return 1 / 0 if run.run_id == "fatal" else now(run, **given)

    monkeypatch.setattr(records, "run_now", failing)
    ask = asker(tmp_path)
    status, _, body = ask("/api/runs")
    listed = {run["run_id"]: run["damage"] for run in json.loads(body)["runs"]}
    assert (status, listed["good"]) == (200, "")
    assert "which is none of its configurations" in listed["hostile"]
    assert "fatal cannot be shown (ZeroDivisionError" in listed["fatal"]
    status, _, body = ask("/")
    assert (status, b"<b>nowhere" in body) == (200, False)
    for name, says in (("hostile", "which is none of its"), ("fatal", "cannot be shown (ZeroDivisionError")):
        for path in (f"/runs/{name}", f"/api/runs/{name}/now", f"/compare?run=good&run={name}"):
            status, _, body = ask(path)
            assert (status, says in body.decode(), b"<b>nowhere" in body) == (
                503,
                True,
                "api" in path and name == "hostile",
            )
    assert ask("/runs/good")[0] == 200


def test_what_nobody_expected_is_a_page_and_an_answer_that_say_so(
    home: Path, runs: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Records, "run", lambda *_: 1 / 0)
    for path in (f"/runs/{runs[0]}/what-if", f"/api/runs/{runs[0]}/why-not"):
        status, headers, body = asker(home)(path)
        assert status == 500
        assert "unexpected ZeroDivisionError: this is a bug in mlcd" in body.decode()
        assert "content-security-policy" in headers


def test_too_many_clients_are_refused(home: Path, runs: tuple[str, str]) -> None:
    class Full(Feed):
        clients = MOST_CLIENTS

    status, _, body = asker(home, Full(Records(home)))(f"/api/runs/{runs[0]}/events")
    assert (status, "clients watch already" in body.decode()) == (503, True)


def test_token_file_that_is_no_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "ui-token").mkdir()
    with pytest.raises(BadInput, match=r"ui-token cannot be read .*: remove it"):
        kept_token(tmp_path)
    (tmp_path / "ui-token").rmdir()
    (tmp_path / "ui-token").write_text("too short")
    assert len(kept_token(tmp_path)) == 48


def test_unknown_run_is_refused_before_anything_listens(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLCD_HOME", str(home))
    with pytest.raises(BadInput, match="none-such"):
        serve_page("none-such", host="127.0.0.1", port=0, ready=lambda _: None)
