"""`mlcd ui` as a user has it: its server, a headless Chromium, and runs of the real engine."""

import json
import os
import re
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.hostile_runs import put, recorded
from tests.report_kind_samples import language_model_run
from tests.ui_page import (
    JOB,
    PATIENCE_MS,
    PageServer,
    amount,
    browser,
    check_access,
    first_run,
    held_run,
    page_server,
    release,
    watch_to_the_end,
    window,
)

import mlcd
from mlcd.findings import shown
from mlcd.findings.serving_what_if import serving_what_if
from mlcd.findings.what_if import MORE_USD
from mlcd.loadgen.chat import ChatLimit, ChatMetric
from mlcd.report.result_types import result_json
from mlcd.spec.template import template
from mlcd.store.store import Store
from mlcd.web.serving_what_if import as_json as serving_json
from mlcd.web.what_if import as_json

READY = {
    "run": "#run[data-drawn]",
    "serving": "#run[data-drawn]",
    "serverless": "#run[data-drawn]",
    "what-if": "[data-settled]",
    "serving-what-if": "[data-settled]",
    "new": "#said.good",
}
"""What a page has once its script has filled it; the others need none."""
SHOTS = Path(__file__).parents[2] / "build" / "ui"
"""Where the screenshots of the main pages go; git ignores it."""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def results(home: Path) -> tuple[mlcd.Result, mlcd.Result]:
    """Two runs that have ended."""
    return mlcd.train(JOB, home=home, seed=5), mlcd.train({**JOB, "name": "other"}, home=home, strategy="random")


@pytest.fixture(scope="module")
def other_kinds(home: Path) -> dict[str, str]:
    """A server of a language model, and a training on functions."""
    limit = ChatLimit(metric=ChatMetric.TTFT, percentile=99, seconds=1.0)
    with Store(home) as store:
        put(store, recorded(language_model_run(limit)))
    return {
        "serving": language_model_run(limit).run_id,
        "serverless": mlcd.serverless(template(kind="serverless"), home=home).run_id,
    }


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[PageServer]:
    with page_server(home) as found:
        yield found


@pytest.fixture
def page(chromium: Any, server: PageServer) -> Iterator[Any]:
    """A browser window that has the token. Fails where a script failed or the content security policy was broken."""
    with window(chromium, server) as found:
        yield found


README_PICTURE = Path(__file__).parents[2] / "docs" / "images" / "ui-run.png"
README_JOB = {
    "name": "resnet",
    "resources": {
        "infra": "sim/aws",
        "instance_type": ["c5.4xlarge", "p2.xlarge", "p3.2xlarge", "g4dn.xlarge", "g5.xlarge"],
    },
    "num_nodes": "1..16",
    "job": {"model": "resnet152", "samples": 50000, "epochs": 90, "batch": 512},
    "goal": {"minimize": "time", "budget": "30 USD"},
    "search": {"strategy": "heterbo"},
}


def test_picture_of_the_readme(chromium: Any, server: PageServer, home: Path) -> None:
    """The first screen of a run; with MLCD_UI_PICTURE=1 it is written to docs/images/ui-run.png."""
    result = mlcd.train(README_JOB, home=home)
    with window(chromium, server, viewport={"width": 1180, "height": 1000}) as page:
        page.goto(f"{server.address}/runs/{result.run_id}")
        page.wait_for_selector("#run[data-drawn]")
        page.get_by_label("Why not").select_option("p3.2xlarge")
        page.wait_for_selector("#why-not-more:not([hidden])")
        screen = page.locator("#run").inner_text()
        assert f"{MORE_USD} more:" in screen
        assert "p3.2xlarge" in page.locator("#why-not-answers").inner_text()
        SHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=str(SHOTS / "readme.png"))
        if os.environ.get("MLCD_UI_PICTURE"):
            page.screenshot(path=str(README_PICTURE))


def shot(page: Any, name: str) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    if page.locator("#run").count():
        page.wait_for_selector("#run[data-drawn]")
    page.screenshot(path=str(SHOTS / f"{name}.png"), full_page=True)


def test_live_run_is_watched_from_its_first_trial_to_the_verdict(
    page: Any, server: PageServer, home: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "watched"
    process = held_run(home, gate)
    run_id = first_run(server, process)
    page.goto(f"{server.address}/runs/{run_id}")
    page.wait_for_selector(".state.running")
    page.wait_for_selector(".link.on")
    page.evaluate("() => { window.sameDocument = true }")
    watch_to_the_end(page, gate, process)
    assert page.evaluate("() => window.sameDocument"), "without a reload"
    result = mlcd.load(run_id, home=home)
    assert isinstance(result, mlcd.Result)
    assert result.best is not None
    page.wait_for_function(
        "text => document.querySelector('[data-live=best]').textContent === text", arg=str(result.best.config)
    )
    now = server.get(f"/api/runs/{run_id}/now")
    assert amount(page, "spent_usd") == now["spent_usd"] == result.record.spent.dollars
    assert amount(page, "remaining_usd") == pytest.approx(300 - result.record.spent.dollars)
    assert page.locator('[data-live="spent_usd"]').inner_text() == str(result.record.spent)
    shot(page, "run")
    check_access(page)


def test_page_reconnects_when_its_server_was_killed(chromium: Any, tmp_path: Path) -> None:
    """The run ends while there is no server: the page, which is still open, shows its end once there is one again."""
    gate = tmp_path / "go-on"
    with page_server(tmp_path) as first:
        process = held_run(tmp_path, gate)
        run_id = first_run(first, process)
        with window(chromium, first) as page:
            page.goto(f"{first.address}/runs/{run_id}")
            page.wait_for_selector(".link.on")
            release(gate, 1)
            page.wait_for_function("() => document.querySelector('[data-live=trials]').textContent === '1'")
            first.end(signal.SIGKILL)
            page.wait_for_selector(".link.off")
            release(gate)
            assert process.wait(PATIENCE_MS / 1000) == 0, "the run did not notice"
            with page_server(tmp_path, "--port", first.address.rpartition(":")[2]) as again:
                assert again.token == first.token
                page.wait_for_selector(".link.on")
                page.wait_for_selector(".head .state.done")
                assert amount(page, "spent_usd") == again.get(f"/api/runs/{run_id}/now")["spent_usd"]


def test_list_of_runs_follows_what_goes_on(page: Any, server: PageServer, home: Path, tmp_path: Path) -> None:
    """A run that begins appears by itself, and its end is shown; what is selected stays selected."""
    mlcd.train({**JOB, "name": "earlier", "search": {"strategy": "heterbo", "max_trials": 1}}, home=home)
    page.goto(f"{server.address}/")
    chosen = page.locator("input[name=run]").first
    chosen.check()
    name = chosen.get_attribute("value")
    page.locator("h1").click()  # a list that has the focus is left as it is
    page.evaluate("() => { window.sameDocument = true; document.activeElement.blur() }")
    gate = tmp_path / "go-on"
    process = held_run(home, gate)
    run_id = first_run(server, process)
    row = page.locator("tr", has=page.get_by_role("link", name=run_id))
    row.locator(".state.running").wait_for(timeout=PATIENCE_MS)
    release(gate)
    row.locator(".state.done").wait_for(timeout=PATIENCE_MS)
    assert process.wait(PATIENCE_MS / 1000) == 0
    assert page.evaluate("() => window.sameDocument"), "without a reload"
    assert page.get_by_label(f"Compare {name}").is_checked()


def test_answer_to_another_question_is_not_shown(
    page: Any, server: PageServer, results: tuple[mlcd.Result, mlcd.Result]
) -> None:
    """The first question is answered last: its answer is ignored, and gone as soon as another one is asked."""
    first, second = sorted({config.instance for config in results[0].record.problem.space})[:2]
    page.goto(f"{server.address}/runs/{results[0].run_id}")
    page.wait_for_selector("#run[data-drawn]")
    held: list[Any] = []

    def hold(route: Any) -> None:
        held.append(route)

    page.route(f"**/why-not?of={first}", hold)
    choice, shown = page.get_by_label("Why not"), page.locator("#why-not-answers")
    choice.select_option(second)
    page.wait_for_function(
        "name => document.querySelector('#why-not-answers').innerText.includes(name)", arg=f"x {second}"
    )
    old = shown.inner_text()
    choice.select_option(first)
    assert shown.inner_text() == "...", "the answer to the other question is gone at once"
    choice.select_option(second)
    choice.select_option(first)
    choice.select_option(second)
    page.wait_for_function(
        "name => document.querySelector('#why-not-answers').innerText.includes(name)", arg=f"x {second}"
    )
    assert len(held) == 2
    for route in held:
        route.fulfill(json={"answers": ["of the first"], "more": [], "subjects": []})
    page.wait_for_timeout(300)
    assert shown.inner_text() == old


def test_run_says_why_it_was_chosen_what_it_cost_and_why_not_another(
    page: Any, server: PageServer, results: tuple[mlcd.Result, mlcd.Result]
) -> None:
    """The four questions of a new user, on the first screen of a run."""
    run = results[0]
    assert run.best is not None
    page.goto(f"{server.address}/runs/{run.run_id}")
    page.wait_for_selector("#run[data-drawn]")
    screen = page.locator("#run").inner_text()
    found = run.record.train_findings
    measured = [each for each in found.rejected if each.plan is not None]
    assert str(run.best.config) in screen
    assert f"{measured[0].subject} {measured[0].text}" in screen, "why"
    assert str(found.receipt.total_usd) in screen, "what it cost"
    assert "What would more budget bring?" in screen
    instances = {config.instance for config in run.record.problem.space}
    other = next(name for name in sorted(instances) if name != run.best.config.instance)
    page.get_by_label("Why not").select_option(other)
    page.wait_for_selector("#why-not-more:not([hidden])")
    assert other in page.locator("#why-not-answers").inner_text()
    assert not page.locator("#why-not-more ul").is_visible(), "the rest is where it is asked for"
    page.get_by_text("More", exact=True).click()
    told = page.locator("#why-not-answers").inner_text() + page.locator("#why-not-more").inner_text()
    about = [each.text for each in found.rejected if each.config and each.config.instance == other]
    about += [each.text for each in found.untried if each.config.instance == other]
    assert about[0] in told
    for each in (".tiles", "#why-not", "[data-gauge]"):
        box = page.locator(each).first.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] < 900, f"{each} is on the first screen"
    check_access(page)
    page.get_by_role("link", name="Decisions").click()
    assert page.url.endswith("#decisions")


def test_log_is_followed(page: Any, server: PageServer, home: Path) -> None:
    """Lines that a node writes appear, in the log that was chosen."""
    run_id = mlcd.train({**JOB, "name": "logged", "search": {"strategy": "heterbo", "max_trials": 1}}, home=home).run_id
    files = []
    for node in (0, 1):
        folder = home / "work" / run_id / "leases" / "lease-1" / f"node-{node}"
        folder.mkdir(parents=True)
        files.append(folder / "log.txt")
        files[-1].write_text(f"node {node} has begun\n")
    (home / "work" / run_id / "leases" / "lease-1" / "job.json").write_text('{"instance": "x"}')
    page.goto(f"{server.address}/runs/{run_id}")
    wanted = "text => document.querySelector('#log-text').textContent.includes(text)"
    page.wait_for_function(wanted, arg="node 1 has begun")
    with files[1].open("a") as log:
        log.write("loss 0.25\n")
    page.wait_for_function(wanted, arg="loss 0.25")
    page.get_by_label("Log", exact=True).select_option(index=0)
    page.wait_for_function(wanted, arg="node 0 has begun")
    assert "loss 0.25" not in page.locator("#log-text").inner_text()
    files[1].write_text("")
    page.goto(f"{server.address}/runs/{run_id}")
    page.wait_for_function(wanted, arg="node 0 has begun")  # of a run that has ended, the newest that is not empty


def test_runs_are_listed_found_and_compared(
    page: Any, server: PageServer, results: tuple[mlcd.Result, mlcd.Result]
) -> None:
    page.goto(f"{server.address}/")
    for result in results:
        assert page.get_by_role("link", name=result.run_id).count() == 1
    shot(page, "runs")
    check_access(page)
    page.get_by_role("searchbox", name="Search").fill("other")
    page.get_by_role("button", name="Filter").click()
    assert page.get_by_role("link", name=results[1].run_id).count() == 1
    assert page.get_by_role("link", name=results[0].run_id).count() == 0
    page.goto(f"{server.address}/")
    button = page.get_by_role("button", name="Compare the selected")
    assert button.is_disabled()
    for result in results:
        page.get_by_label(f"Compare {result.run_id}").check()
    button.click()
    text = page.locator("main").inner_text()
    for result in results:
        assert result.run_id in text
        assert str(result.record.spent) in text
    shot(page, "compare")
    check_access(page)


def test_what_if_answers_as_the_python_function_does(
    page: Any, server: PageServer, results: tuple[mlcd.Result, mlcd.Result]
) -> None:
    run = results[0]
    page.goto(f"{server.address}/runs/{run.run_id}/what-if")
    page.wait_for_selector("[data-settled]")
    choice = page.locator('[data-out="choice"]').inner_text()
    assert choice == str(mlcd.what_if(run, budget=300).choice.config)  # type: ignore[union-attr]
    shot(page, "what-if")
    receipt = run.record.train_findings.receipt
    lead = page.locator(".lead").inner_text()
    assert f"this run's took {receipt.run_usd}" in lead, "what was paid, beside what is expected"
    assert f"search {receipt.search_usd}" in page.locator("[data-out=split_usd]").inner_text()
    types = [config.instance for config in run.record.problem.space]
    keys = page.locator("#front .marks span").all_inner_texts()
    named = [name for name in dict.fromkeys(types) if name in keys]
    assert keys[: len(named)] == named, "types have the job's order, whatever is best now"
    check_access(page)
    with page.expect_response(re.compile("what-if.*next_trial=yes")) as answer:
        page.get_by_role("button", name="-$20").click()
    found = answer.value.json()
    assert found["budget_usd"] == 280
    assert found == json.loads(json.dumps(result_json(as_json(run.run_id, mlcd.what_if(run, budget=280)))))
    page.get_by_role("slider", name="Time against money").focus()
    with page.expect_response(re.compile("what-if.*time_weight=0.00.*|what-if.*next_trial=no.*time_weight=0.00")):
        page.keyboard.press("Home")
    cheapest = mlcd.what_if(run, budget=280, weight=0)
    page.wait_for_function(
        "text => document.querySelector('[data-out=choice]').textContent === text",
        arg=str(cheapest.choice.config),  # type: ignore[union-attr]
    )


def test_what_if_of_a_server_answers_as_the_python_function_does(
    page: Any, server: PageServer, home: Path, other_kinds: dict[str, str]
) -> None:
    run_id = other_kinds["serving"]
    record: Any = shown(mlcd.load(run_id, home=home).record)
    page.goto(f"{server.address}/runs/{run_id}")
    page.get_by_role("link", name="What if").click()
    page.wait_for_selector("[data-settled]")
    before = serving_what_if(record, rate=None, limits={"ttft_p99": 1.0})
    assert before.choice is not None
    assert page.locator('[data-out="choice"]').inner_text() == str(before.choice.config)
    assert page.locator('[data-out="text"]').inner_text() == before.text
    shot(page, "serving-what-if")
    check_access(page)
    found = server.get(f"/api/runs/{run_id}/serving-what-if?limits=ttft_p99:0.3")
    expected = serving_json(run_id, serving_what_if(record, rate=None, limits={"ttft_p99": 0.3}), names=("ttft_p99",))
    assert found == json.loads(json.dumps(result_json(expected)))
    page.get_by_role("slider", name="ttft p99").focus()
    with page.expect_response(re.compile("serving-what-if")) as answer:
        page.keyboard.press("Home")
    told = answer.value.json()
    assert told["choice"] is None, "no pace was so fast"
    page.wait_for_function("text => document.querySelector('[data-out=text]').textContent === text", arg=told["text"])
    with page.expect_response(re.compile("serving-what-if")):
        page.get_by_role("button", name="As it was asked").click()
    page.wait_for_function("text => document.querySelector('[data-out=text]').textContent === text", arg=before.text)


def test_new_run_is_checked_as_it_is_typed_and_started(page: Any, server: PageServer, home: Path) -> None:
    page.goto(f"{server.address}/new")
    said = page.locator("#said")
    page.wait_for_selector("#said.good")
    page.get_by_label("Job file").fill("name: typed\ngoal: {minimise: time}\n")
    page.wait_for_selector("#said.bad")
    assert "job.yaml:2: goal" in said.inner_text()
    assert "did you mean 'minimize'" in said.inner_text()
    assert page.locator("#start").is_disabled()
    page.get_by_label("Job file").fill(json.dumps({**JOB, "name": "typed", "resources": {"infra": "aws"}}))
    page.wait_for_function("() => document.querySelector('#said').textContent.includes('charges real money')")
    assert page.locator("#start").is_disabled()
    misspelt = "name: typed\nresources: {infra: sim/aws, instance_type: [g5.xlrage]}\nnum_nodes: 1..4\n"
    misspelt += "job: {model: resnet152, samples: 50000, epochs: 9, batch: 512}\n"
    misspelt += "goal: {minimize: time, budget: BUDGET}\n"
    page.get_by_label("Job file").fill(misspelt.replace("BUDGET", "9 USD"))
    page.wait_for_function("() => document.querySelector('#said').textContent.includes('under way')")
    assert "good" not in (said.get_attribute("class") or "")
    page.wait_for_selector("#said.bad")
    assert said.inner_text().startswith("job.yaml:2: resources.instance_type")
    assert page.locator("#numbers .bad").inner_text().strip() == "2"
    assert page.locator("#start").is_disabled()
    page.get_by_label("Job file").fill(misspelt.replace("xlrage", "xlarge").replace("BUDGET", "0.01 USD"))
    page.wait_for_selector("#said.amber")
    assert re.fullmatch(r"Nothing fits: one trial of 1 x g5.xlarge alone may need .*\.", said.inner_text())
    assert page.locator("#start").is_disabled()
    page.get_by_label("Job file").fill(json.dumps({**JOB, "name": "typed"}))
    page.wait_for_function("() => document.querySelector('#said').textContent.includes('typed on sim/aws')")
    assert page.locator("#start").is_disabled()
    page.wait_for_selector("#said.good")
    page.wait_for_selector("#expected dl")
    assert "the search takes" in page.locator("#expected").inner_text()
    shot(page, "new")
    check_access(page)
    page.locator("#start").click()
    page.wait_for_url(re.compile("/runs/typed-"))
    page.wait_for_selector(".head .state.done")
    run_id = page.url.rpartition("/")[2]
    assert mlcd.load(run_id, home=home).status == "done"


def test_run_is_stopped_and_resumed(page: Any, server: PageServer, home: Path, tmp_path: Path) -> None:
    process = held_run(home, tmp_path / "never")
    run_id = first_run(server, process)
    page.goto(f"{server.address}/runs/{run_id}")
    page.get_by_role("button", name="Stop").click()
    page.wait_for_selector(".head .state.interrupted")
    assert process.wait(PATIENCE_MS / 1000) != 0
    page.get_by_role("button", name="Resume").click()
    page.wait_for_selector(".head .state.done")
    assert mlcd.load(run_id, home=home).status == "done"


def test_report_is_shown(page: Any, server: PageServer, results: tuple[mlcd.Result, mlcd.Result]) -> None:
    page.goto(f"{server.address}/runs/{results[0].run_id}")
    page.get_by_role("link", name="Report").click()
    assert str(results[0].best.config) in page.locator("h1").inner_text()  # type: ignore[union-attr]
    colour = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert colour != "rgba(0, 0, 0, 0)", "its style is applied"


def test_report_is_one_file_for_screen_readers_dark_mode_phone_and_paper(
    chromium: Any, results: tuple[mlcd.Result, mlcd.Result], tmp_path: Path
) -> None:
    file = tmp_path / "report.html"
    results[0].report(file)
    asked: list[str] = []
    for options in ({}, {"viewport": {"width": 400, "height": 800}, "color_scheme": "dark"}):
        context = chromium.new_context(**options)
        page = context.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.goto(file.as_uri())
        assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
        check_access(page)
        shot(page, f"report{'-dark-phone' if options else ''}")
        context.close()
    assert set(asked) == {file.as_uri()}, "it loads nothing"
    page = chromium.new_page(color_scheme="dark")
    page.goto(file.as_uri())
    page.emulate_media(media="print")
    assert (
        page.evaluate("() => getComputedStyle(document.querySelector('.mlcd')).backgroundColor") == "rgb(255, 255, 255)"
    )
    page.close()


def test_servers_and_functions_have_their_own_pictures(
    page: Any, server: PageServer, home: Path, other_kinds: dict[str, str]
) -> None:
    pictures = {
        "serving": ("latency", "tokens", "rates", "operators", "map", "money", "timeline"),
        "serverless": ("epochs", "map", "money", "timeline"),
    }
    for kind, run_id in other_kinds.items():
        page.goto(f"{server.address}/runs/{run_id}")
        page.wait_for_selector("#run[data-drawn]")
        for name in pictures[kind]:
            assert page.locator(f"#picture-{name} svg").count() == 1, name
            assert page.locator(f"#picture-{name} details").count() == 1, f"{name} has its table"
        shot(page, kind)
        check_access(page)
    text = page.locator(".tiles").inner_text()
    result = mlcd.load(run_id, home=home)
    assert str(result.record.spent) in text


def test_every_page_by_keyboard_dark_and_on_a_phone(
    chromium: Any, server: PageServer, results: tuple[mlcd.Result, mlcd.Result], other_kinds: dict[str, str]
) -> None:
    run_id = results[0].run_id
    places = {
        "runs": "/",
        "run": f"/runs/{run_id}",
        "what-if": f"/runs/{run_id}/what-if",
        "new": "/new",
        "bench": "/bench",
        "catalog": "/catalog",
        "compare": f"/compare?run={run_id}&run={results[1].run_id}",
        **{kind: f"/runs/{other}" for kind, other in other_kinds.items()},
        "serving-what-if": f"/runs/{other_kinds['serving']}/what-if",
    }
    with window(chromium, server, viewport={"width": 400, "height": 800}, color_scheme="dark") as page:
        for name, place in places.items():
            page.goto(f"{server.address}{place}")
            if name in READY:
                page.wait_for_selector(READY[name])
            wide = page.evaluate("() => document.documentElement.scrollWidth")
            assert wide <= 400, f"{name} is {wide} pixels wide"
            assert page.evaluate("() => getComputedStyle(document.body).backgroundColor") == "rgb(12, 17, 23)"
            check_access(page)
            shot(page, f"dark-phone-{name}")
    with window(chromium, server) as page:
        page.goto(f"{server.address}/?search={run_id}")  # one run: its link is not far, however many there are
        page.keyboard.press("Tab")
        assert page.evaluate("() => document.activeElement.textContent") == "Skip to the content"
        reached = set()
        for _ in range(20):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("() => document.activeElement.textContent.trim()"))
        assert {"Runs", "New run", "Bench", "Catalog", "Filter", run_id} <= reached
        page.get_by_role("link", name=run_id).focus()
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile(run_id))
        page.get_by_role("link", name="What if").focus()
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile("what-if"))
        page.goto(f"{server.address}/catalog")
        page.get_by_role("button", name="$/h", exact=True).focus()
        page.keyboard.press("Enter")
        prices = [float(text) for text in page.locator("#types tbody tr td:nth-child(7)").all_inner_texts()[:20]]
        assert prices == sorted(prices)


def test_locked_store_gives_a_page_that_says_so(chromium: Any, tmp_path: Path) -> None:
    run_id = mlcd.train(JOB, home=tmp_path).run_id
    with page_server(tmp_path) as server, window(chromium, server) as page:
        server.end()
        with page_server(tmp_path, "--port", server.address.rpartition(":")[2]) as again:  # has not read the store yet
            locked = sqlite3.connect(tmp_path / "mlcd.sqlite3", isolation_level=None)
            locked.execute("PRAGMA locking_mode = EXCLUSIVE")
            locked.execute("BEGIN EXCLUSIVE")
            page.goto(f"{again.address}/runs/{run_id}")
            assert "another mlcd process has locked it" in page.locator("main").inner_text()
            assert page.get_by_role("link", name="All runs").count() == 1
            locked.close()
            page.goto(f"{again.address}/runs/{run_id}")
            assert page.locator("h1").inner_text() == run_id


def test_broken_stores_give_a_page_that_says_so(chromium: Any, tmp_path: Path) -> None:
    mlcd.train(JOB, home=tmp_path)
    with page_server(tmp_path) as server, window(chromium, server) as page:
        file = tmp_path / "mlcd.sqlite3"
        kept = file.read_bytes()
        file.write_bytes(b"this is no database" * 100)
        page.goto(f"{server.address}/")
        assert "it is not a database" in page.locator("main").inner_text()
        file.write_bytes(kept)
        with sqlite3.connect(file) as db:
            db.execute("PRAGMA user_version = 999")
        db.close()
        page.goto(f"{server.address}/")
        assert "newer mlcd" in page.locator("main").inner_text()
        with sqlite3.connect(file) as db:
            db.execute("PRAGMA user_version = 8")
        db.close()
        page.goto(f"{server.address}/")
        assert page.get_by_role("link", name=re.compile("watched-")).count() == 1
